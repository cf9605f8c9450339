//! Takes free frames: clears their bits.

use super::Blocks;
use crate::base::shared::AtomicU64;
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::units::PAGEBLOCK_PAGES;
use crate::packed::bits::{self, WORDS};
use crate::packed::label::Meta;
use crate::packed::planted::{Bug, fence_for_loom, planted};

impl Blocks<'_> {
    /// Takes up to `want` blocks of an order up to 6 from a word, which comes with its number. Returns
    /// their heads. The pageblock need not be active.
    #[inline]
    pub(crate) fn take(
        &self,
        (word, w): (u32, &AtomicU64),
        order: u8,
        want: u32,
        domain: usize,
    ) -> u64 {
        let bits = w.load(Relaxed);
        if bits == 0 {
            return 0;
        }
        if order == 0 && want >= 64 {
            return w.swap(0, SeqCst);
        }
        let mut heads = bits::run_heads(bits, order);
        if heads == 0 {
            return 0;
        }
        if order < 6 {
            // Blocks first that are no half of a free block of twice the size.
            let larger = bits::run_heads(bits, order + 1);
            let single = heads & !(larger | larger << (1 << order));
            if single != 0 {
                heads = single;
            }
        }
        let heads = bits::lowest(heads, want);
        let mask = bits::fill_runs(heads, order);
        let got = w.fetch_and(!mask, SeqCst) & mask;
        if self.has_set_apart() {
            self.note_set_apart(word / WORDS as u32, -i64::from(got.count_ones()));
        }
        if got == mask {
            return heads;
        }
        self.keep_complete(word, got, heads, order, domain)
    }

    /// Returns those of the blocks with these heads that are complete in what was `got` of them:
    /// another CPU took the other frames.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_complete(
        &self,
        word: u32,
        got: u64,
        heads: u64,
        order: u8,
        domain: usize,
    ) -> u64 {
        // The rest of incomplete blocks goes back the ordinary way: the pageblock may have left the
        // index meanwhile.
        let complete = bits::run_heads(got, order) & heads;
        let back = got & !bits::fill_runs(complete, order);
        if planted(Bug::BareReturn) {
            _ = self.word(word).map(|w| w.fetch_or(back, SeqCst));
        } else if back != 0 {
            self.put(word, back, domain);
        }
        complete
    }

    /// Takes one block of an order up to 8 from a pageblock that need not be active, and updates
    /// the pageblock's place.
    pub(crate) fn take_direct(&self, block: u32, order: u8, domain: usize) -> Option<u32> {
        self.take_where(block, order, domain, Meta::is_open)
    }

    /// Like [`take_direct`](Self::take_direct), from a pageblock whose label meets a condition.
    #[inline(always)]
    pub(in crate::packed) fn take_where(
        &self,
        block: u32,
        order: u8,
        domain: usize,
        may_take: impl Fn(Meta) -> bool,
    ) -> Option<u32> {
        fence_for_loom();
        if !may_take(self.meta(block)) {
            return None;
        }
        let frame = if order <= 6 {
            self.numbered_words(block).find_map(|(word, w)| {
                let head = self.take((word, w), order, 1, domain);
                (head != 0).then(|| word * 64 + head.trailing_zeros())
            })
        } else {
            self.take_words(block, order, domain)
        };
        let frame = frame?;
        fence_for_loom();
        if !may_take(self.meta(block)) && !planted(Bug::NoRecheck) {
            // Isolated since the first look: what was free then stays free.
            self.put_back(frame, order, domain);
            return None;
        }
        self.after_take(block, domain);
        Some(frame)
    }

    /// Takes 2 or 4 neighbouring words, all of their frames or none.
    fn take_words(&self, block: u32, order: u8, domain: usize) -> Option<u32> {
        let n = 1usize << (order - 6);
        for (part, words) in self.words_of(block).chunks(n).enumerate() {
            if words.iter().any(|w| w.load(Relaxed) != !0) {
                continue;
            }
            if !self.take_all_of(block, words) {
                // Without these frames the pageblock may have left the index.
                self.after_take(block, domain);
                continue;
            }
            return Some(block * PAGEBLOCK_PAGES + (part * n) as u32 * 64);
        }
        None
    }

    /// Takes all frames of these words of a pageblock, or none.
    pub(in crate::packed) fn take_all_of(&self, block: u32, words: &[AtomicU64]) -> bool {
        let taken = self.take_full(words);
        if taken && self.has_set_apart() {
            self.note_set_apart(block, -(words.len() as i64 * 64));
        }
        taken
    }

    /// Takes all frames of these words, or none.
    pub(super) fn take_full(&self, words: &[AtomicU64]) -> bool {
        for (i, w) in words.iter().enumerate() {
            if w.compare_exchange(!0, 0, SeqCst, SeqCst).is_err() {
                let restored = if planted(Bug::NoRollback) { 0 } else { i };
                for taken in words.iter().take(restored) {
                    taken.fetch_or(!0, SeqCst);
                }
                if restored > 0 {
                    self.notes.note_free(8);
                }
                return false;
            }
        }
        true
    }

    /// Returns whether a pageblock has an aligned free run of an order up to 6.
    pub(crate) fn has_run(&self, block: u32, order: u8) -> bool {
        bits::has_run(self.words_now(block), order)
    }
}
