//! Whole pageblocks: all frames free, and none of them a bit. Two sets, since the memory of some was
//! reported as free to the embedder (spec §9.9), which may have it elsewhere: those serve last.

use crate::packed::set::{BlockSet, IndexWord, words_of_set};

/// The whole pageblocks, reported or not. Removing a pageblock gives its frames to the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeSet<'a> {
    pub(super) fresh: BlockSet<'a>,
    pub(super) reported: BlockSet<'a>,
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
