//! Frees frames: sets their bits.

use super::Blocks;
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::units::{PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits::{self, WORDS};
use crate::packed::planted::{Bug, fence_for_loom, planted};

/// One bit in sixteen of a word. A free that sets one of them counts its pageblock's free frames
/// again; the others leave the pageblock's bucket as it is.
pub(super) const SAMPLE: u64 = 0x0001_0001_0001_0001;

impl Blocks<'_> {
    /// Frees frames of one word.
    #[inline]
    pub(crate) fn put(&self, word: u32, mask: u64, domain: usize) {
        let Some(w) = self.word(word) else { return };
        // The frames are the caller's, so none of their bits is set: the sum is an `or` that
        // returns the old value in one instruction.
        let old = w.fetch_add(mask, SeqCst);
        fence_for_loom();
        if old & mask != 0 {
            return self.undo_put(word, mask, old, domain);
        }
        if self.notes.any() {
            return self.put_noted(word, mask, old, domain);
        }
        self.note_put(word, mask, old, domain);
    }

    /// A call of its own at the end, so that a put saves no registers.
    #[cold]
    #[inline(never)]
    fn put_noted(&self, word: u32, mask: u64, old: u64, domain: usize) {
        if self.has_set_apart() {
            self.note_set_apart(word / WORDS as u32, mask.count_ones().into());
        }
        self.notes.note_free_in(old | mask);
        self.note_put(word, mask, old, domain);
    }

    /// Notes that frames of a word were freed of which `old` were free before.
    #[inline(always)]
    fn note_put(&self, word: u32, mask: u64, old: u64, domain: usize) {
        let new = old | mask;
        if old == 0 && planted(Bug::NoPutCheck) {
            return;
        }
        let sampled = mask & (SAMPLE << (word % 16)) != 0;
        if old == 0 || new == !0 || sampled {
            self.after_put(word / WORDS as u32, new, sampled, domain);
        }
    }

    /// Undoes a put of frames that were free already: a caller broke the contract of
    /// `free_owned`. The other frames become free.
    #[cold]
    #[inline(never)]
    fn undo_put(&self, word: u32, mask: u64, old: u64, domain: usize) {
        if let Some(w) = self.word(word) {
            w.fetch_sub(mask, SeqCst);
        }
        // The sum may have hidden free frames from a search.
        self.notes.note_free(8);
        self.double_frees.fetch_add((old & mask).count_ones().into(), Relaxed);
        if mask & !old != 0 {
            self.put(word, mask & !old, domain);
        }
    }

    /// Frees a block of order 6 or more within one pageblock, or whole pageblocks.
    pub(crate) fn put_large(&self, frame: u32, order: u8, domain: usize) {
        if order < PAGEBLOCK_ORDER {
            return self.put_words(frame / 64, 1 << (order - 6), domain);
        }
        for i in 0..1u32 << (order - PAGEBLOCK_ORDER) {
            let block = frame / PAGEBLOCK_PAGES + i;
            if self.deactivate_isolated(block) || self.is_set_apart(block) {
                self.put_words(block * WORDS as u32, WORDS as u32, domain);
            } else {
                self.whole().insert(block);
            }
        }
    }

    /// Frees all frames of `n` words.
    pub(super) fn put_words(&self, first: u32, n: u32, domain: usize) {
        (first..first + n).for_each(|word| self.put(word, !0, domain));
    }

    /// Frees a block of any order.
    pub(crate) fn put_back(&self, frame: u32, order: u8, domain: usize) {
        match order {
            0..6 => self.put(frame / 64, bits::block_mask(frame, order), domain),
            _ => self.put_large(frame, order, domain),
        }
    }
}
