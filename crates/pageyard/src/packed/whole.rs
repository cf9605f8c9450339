//! Whole pageblocks: all frames free, and none of them a bit. Two sets, since the memory of some was
//! reported as free to the embedder (spec §9.9), which may have it elsewhere: those serve last.

use lock_api::RawMutex;

use crate::base::units::{PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits;
use crate::packed::blocks::Blocks;
use crate::packed::region::Region;
use crate::packed::set::{BlockSet, IndexWord, words_of_set};

/// The whole pageblocks, reported or not. Removing a pageblock gives its frames to the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSet<'a> {
    fresh: BlockSet<'a>,
    reported: BlockSet<'a>,
}

impl<'a> WholeSet<'a> {
    /// Returns how many words the sets of `blocks` pageblocks take.
    pub(crate) const fn words_for(blocks: usize) -> usize {
        2 * words_of_set(blocks)
    }

    /// Returns the sets kept in `memory`, of [`words_for`](Self::words_for) words.
    pub(crate) fn new(memory: &'a [IndexWord], blocks: usize) -> Self {
        let (fresh, reported) = memory.split_at_checked(words_of_set(blocks)).unwrap_or((&[], &[]));
        WholeSet { fresh: BlockSet::new(fresh, blocks), reported: BlockSet::new(reported, blocks) }
    }

    /// Adds a pageblock that was not reported since it was last in use.
    pub(crate) fn insert(self, block: u32) {
        self.fresh.insert(block);
    }

    /// Removes a pageblock. Returns whether this call removed it.
    pub(crate) fn remove(self, block: u32) -> bool {
        self.fresh.remove(block) || self.reported.remove(block)
    }

    /// Removes the pageblocks of one word that `bits` selects if all of them are there. Returns how
    /// many of them were reported.
    ///
    /// If some were and another CPU takes one of the others meanwhile, these are back after a moment
    /// in which other calls miss them.
    pub(crate) fn remove_all(self, w: usize, bits: u64) -> Option<u32> {
        if self.fresh.remove_all(w, bits) {
            return Some(0);
        }
        let reported = self.reported.word(w) & bits;
        if reported == 0 || !self.reported.remove_all(w, reported) {
            return None;
        }
        let rest = bits & !reported;
        if rest == 0 || self.fresh.remove_all(w, rest) {
            return Some(reported.count_ones());
        }
        self.reported.insert_all(w, reported);
        None
    }

    pub(crate) fn contains(self, block: u32) -> bool {
        self.fresh.contains(block) || self.reported.contains(block)
    }

    /// Returns the first pageblock at or after `from`, or else the first one; a reported one only if
    /// there is no other.
    pub(crate) fn find(self, from: u32) -> Option<u32> {
        self.fresh.find(from).or_else(|| self.reported.find(from))
    }

    /// Returns the words of both sets together.
    pub(crate) fn words(self) -> impl Iterator<Item = u64> + 'a {
        self.fresh.words().zip(self.reported.words()).map(|(fresh, reported)| fresh | reported)
    }

    pub(crate) fn len(self) -> u64 {
        self.fresh.len() + self.reported.len()
    }
}

impl Blocks<'_> {
    /// Takes whole pageblocks that were not reported: one, or two that are a block of order 10.
    fn claim_fresh(&self, order: u8) -> Option<u32> {
        let fresh = self.whole().fresh;
        if order == PAGEBLOCK_ORDER {
            return core::iter::from_fn(|| fresh.find(0)).find(|&block| fresh.remove(block));
        }
        (0..).zip(fresh.words()).find_map(|(w, bits)| {
            let mut heads = bits::run_heads(bits, 1);
            core::iter::from_fn(|| {
                let head = heads.trailing_zeros();
                heads &= heads.wrapping_sub(1);
                (head < 64).then_some(head)
            })
            .find(|head| fresh.remove_all(w, 3 << head))
            .map(|head| w as u32 * 64 + head)
        })
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Takes a free block of order 9 or 10 that was not reported. The caller returns it with
    /// [`end_report`](Self::end_report).
    pub(crate) fn begin_report(&self, order: u8) -> Option<u32> {
        let block = self.blocks.claim_fresh(order)?;
        self.note_loose(-(1 << order));
        Some(block * PAGEBLOCK_PAGES)
    }

    /// Returns a block, reported or not.
    pub(crate) fn end_report(&self, frame: u32, order: u8, reported: bool) {
        let whole = self.blocks.whole();
        let first = frame / PAGEBLOCK_PAGES;
        for block in first..first + (1 << (order - PAGEBLOCK_ORDER)) {
            let mut pages = PAGEBLOCK_PAGES;
            if self.blocks.is_tainted(block) {
                pages = self.put_sound_block(block, 0);
            } else if reported {
                whole.reported.insert(block);
            } else {
                whole.fresh.insert(block);
            }
            self.note_loose(pages.into());
        }
    }

    /// Returns whether a whole pageblock has not been reported.
    pub(crate) fn has_unreported(&self) -> bool {
        self.blocks.whole().fresh.find(0).is_some()
    }

    /// Returns the free blocks of order 9 or 10 that have not been reported.
    pub(crate) fn unreported(&self, order: u8) -> u64 {
        let fresh = self.blocks.whole().fresh;
        let pairs = || fresh.words().map(|bits| u64::from(bits::run_heads(bits, 1).count_ones()));
        if order == PAGEBLOCK_ORDER { fresh.len() } else { pairs().sum() }
    }

    /// Returns the pages of whole pageblocks that have been reported.
    pub(crate) fn reported_pages(&self) -> u64 {
        self.blocks.whole().reported.len() * u64::from(PAGEBLOCK_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_pageblocks_serve_last_and_pairs_may_be_mixed() {
        let memory = [const { IndexWord::new() }; WholeSet::words_for(64)];
        let whole = WholeSet::new(&memory, 64);
        whole.reported.insert(2);
        whole.insert(9);
        assert_eq!(whole.find(0), Some(9));
        assert!(whole.contains(2) && whole.remove(9) && !whole.remove(9));
        assert_eq!(whole.find(9), Some(2));

        whole.insert(3);
        assert_eq!(whole.remove_all(0, 0b1100), Some(1));
        assert_eq!((whole.len(), whole.remove_all(0, 0b1100)), (0, None));

        // Half of a pair is not enough, and is not lost.
        whole.reported.insert(2);
        assert_eq!(whole.remove_all(0, 0b1100), None);
        assert_eq!(whole.reported.len(), 1);
        whole.reported.insert(3);
        assert_eq!(whole.remove_all(0, 0b1100), Some(2));
        assert_eq!(whole.words().next(), Some(0));
    }
}
