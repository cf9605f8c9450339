//! A set of pageblocks: bits, and one bit of summary for 64 of them.

use crate::base::shared::AtomicU64;
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::packed::planted::fence_for_loom;

/// A word of an index. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::IndexWord;
///
/// static PART: [IndexWord; 128] = [const { IndexWord::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct IndexWord(AtomicU64);

impl IndexWord {
    /// Returns a word without members.
    pub const fn new() -> Self {
        IndexWord(AtomicU64::new(0))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

impl Default for IndexWord {
    fn default() -> Self {
        IndexWord::new()
    }
}

/// Returns how many words a set of `members` takes, its summary included.
pub(crate) const fn words_of_set(members: usize) -> usize {
    let bits = members.div_ceil(64);
    bits + bits.div_ceil(64)
}

/// A set of the numbers below `64 * words.len()`.
///
/// The summary may name a word that has become empty. It never lacks a word with a member, but
/// while the operation that adds the member is in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSet<'a> {
    words: &'a [IndexWord],
    summary: &'a [IndexWord],
}

impl<'a> BlockSet<'a> {
    /// Returns the set kept in `memory`, of [`words_of_set`]`(members)` words.
    pub(crate) fn new(memory: &'a [IndexWord], members: usize) -> Self {
        let (words, summary) = memory.split_at_checked(members.div_ceil(64)).unwrap_or((&[], &[]));
        BlockSet { words, summary }
    }

    pub(crate) fn insert(&self, member: u32) {
        self.insert_all(member as usize / 64, 1 << (member % 64));
    }

    /// Adds the members of one word that `bits` selects.
    pub(crate) fn insert_all(&self, w: usize, bits: u64) {
        let Some(IndexWord(word)) = self.words.get(w) else { return };
        let old = word.fetch_or(bits, SeqCst);
        fence_for_loom();
        if old == 0
            && let Some(IndexWord(summary)) = self.summary.get(w / 64)
        {
            summary.fetch_or(1 << (w % 64), SeqCst);
        }
    }

    /// Removes a member. Returns whether this call removed it.
    pub(crate) fn remove(&self, member: u32) -> bool {
        let (w, bit) = (member as usize / 64, 1 << (member % 64));
        let Some(IndexWord(word)) = self.words.get(w) else { return false };
        // Without a look first, so that the line comes to this CPU once.
        let old = word.fetch_and(!bit, SeqCst);
        if old == bit {
            self.summarize(w);
        }
        old & bit != 0
    }

    /// Removes the members of one word that `bits` selects if all of them are there.
    pub(crate) fn remove_all(&self, w: usize, bits: u64) -> bool {
        let Some(IndexWord(word)) = self.words.get(w) else { return false };
        let mut old = word.load(SeqCst);
        loop {
            if old & bits != bits {
                return false;
            }
            match word.compare_exchange(old, old & !bits, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old == bits {
            self.summarize(w);
        }
        true
    }

    /// Clears the summary of a word that has become empty.
    fn summarize(&self, w: usize) {
        let (Some(IndexWord(word)), Some(IndexWord(summary))) =
            (self.words.get(w), self.summary.get(w / 64))
        else {
            return;
        };
        let bit = 1 << (w % 64);
        summary.fetch_and(!bit, SeqCst);
        fence_for_loom();
        // A member that was added in between found a word that was not empty or set the bit before
        // it was cleared.
        if word.load(SeqCst) != 0 {
            summary.fetch_or(bit, SeqCst);
        }
    }

    pub(crate) fn contains(&self, member: u32) -> bool {
        self.word(member as usize / 64) >> (member % 64) & 1 != 0
    }

    /// Returns the members of one word.
    pub(crate) fn word(&self, w: usize) -> u64 {
        self.words.get(w).map_or(0, |w| w.0.load(SeqCst))
    }

    /// Returns the first member at or after `from`, or else the first one.
    pub(crate) fn find(&self, from: u32) -> Option<u32> {
        let member = |w: usize, bits: u64| (w as u32 * 64) + bits.trailing_zeros();
        let bits_of = |w: usize| Some(self.words.get(w)?.0.load(SeqCst));
        let first = from as usize / 64;
        if let Some(bits) = bits_of(first)
            && bits >> (from % 64) != 0
        {
            return Some(member(first, bits & (!0 << (from % 64))));
        }
        let sums = self.summary.len();
        let start = first / 64;
        // Once around; the first summary word is visited at the end again, for its lower part.
        for k in 0..=sums {
            let s = (start + k).checked_rem(sums)?;
            let mut sum = self.summary.get(s)?.0.load(SeqCst);
            if k == 0 {
                sum &= (!0 << (first % 64)) & !(1 << (first % 64));
            }
            while sum != 0 {
                let w = s * 64 + sum.trailing_zeros() as usize;
                sum &= sum - 1;
                if let Some(bits) = bits_of(w)
                    && bits != 0
                {
                    return Some(member(w, bits));
                }
            }
        }
        None
    }

    /// Returns the words without their summary.
    pub(crate) fn words(self) -> impl Iterator<Item = u64> + 'a {
        self.words.iter().map(|w| w.0.load(SeqCst))
    }

    /// Returns the members in ascending order.
    pub(crate) fn members(self) -> impl Iterator<Item = u32> + 'a {
        (0..).zip(self.words()).flat_map(|(w, bits)| ones(bits).map(move |bit| w * 64 + bit))
    }

    /// Returns the members in ascending order. Faster than [`members`](Self::members) if there are few, but
    /// may miss one that is being added.
    pub(crate) fn listed(self) -> impl Iterator<Item = u32> + 'a {
        let summary = (0..).zip(self.summary).map(|(s, sum)| (s, sum.0.load(SeqCst)));
        let words = summary.flat_map(|(s, sum)| ones(sum).map(move |w| s * 64 + w));
        words.flat_map(move |w| ones(self.word(w as usize)).map(move |bit| w * 64 + bit))
    }

    /// Makes the members look as if other CPUs were still adding them.
    #[cfg(test)]
    pub(crate) fn forget_summary(&self) {
        self.summary.iter().for_each(|IndexWord(summary)| summary.store(0, Relaxed));
    }

    pub(crate) fn len(&self) -> u64 {
        self.words().map(|w| u64::from(w.count_ones())).sum()
    }
}

/// Returns the numbers of the set bits.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        let more = bits != 0;
        bits &= bits.wrapping_sub(1);
        more.then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn set_agrees_with_a_tree() {
        let members = 64 * 64 * 2 + 70;
        let memory: Vec<_> = (0..words_of_set(members)).map(|_| IndexWord::new()).collect();
        let set = BlockSet::new(&memory, members);
        let mut tree = BTreeSet::new();
        let mut x = 7u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let member = (x >> 33) as u32 % members as u32;
            // Few members most of the time, so that words and summaries become empty.
            if x >> 60 < 5 {
                set.insert(member);
                tree.insert(member);
            } else if let Some(found) = set.find(member) {
                let next = tree.range(member..).next().or_else(|| tree.first());
                assert_eq!(Some(&found), next, "from {member}");
                assert!(set.remove(found) && tree.remove(&found));
                assert!(!set.remove(found));
            } else {
                assert!(tree.is_empty());
            }
            assert_eq!(set.contains(member), tree.contains(&member));
        }
        assert!(set.listed().eq(tree.iter().copied()) && set.members().eq(tree.iter().copied()));
        assert_eq!(set.len(), tree.len() as u64);
    }

    #[test]
    fn the_summary_names_the_words_with_members() {
        let members = 64 * 64 * 2 + 70;
        let memory: Vec<_> = (0..words_of_set(members)).map(|_| IndexWord::new()).collect();
        let set = BlockSet::new(&memory, members);
        let named =
            || set.summary.iter().map(|IndexWord(sum)| sum.load(SeqCst)).collect::<Vec<_>>();
        let firsts = [5, 64 * 3, 64 * 70 + 9, 64 * 129];
        for member in firsts {
            set.insert_all(member as usize / 64, 0b111 << (member % 64));
        }
        assert_eq!(named(), [0b1001, 1 << 6, 0b10]);
        for member in firsts {
            assert!(set.remove(member));
        }
        assert_eq!(named(), [0b1001, 1 << 6, 0b10], "two are left of each word");
        for member in firsts {
            assert!(set.remove(member + 1) && set.remove(member + 2));
        }
        assert_eq!(named(), [0; 3]);
        set.insert(64 * 71);
        set.insert(64 * 71 + 1);
        assert!(set.remove_all(71, 0b10) && named() == [0, 1 << 7, 0]);
        assert!(set.remove_all(71, 0b01) && named() == [0; 3]);
    }

    #[test]
    fn find_goes_past_empty_words_that_the_summary_names() {
        let memory = [const { IndexWord::new() }; words_of_set(64 * 64 * 2)];
        let set = BlockSet::new(&memory, 64 * 64 * 2);
        set.insert(2 * 64 + 5);
        set.summary[0].0.store(0b111, SeqCst);
        assert_eq!(set.find(64 * 70), Some(2 * 64 + 5));
        assert_eq!(set.find(0), Some(2 * 64 + 5));
    }

    #[test]
    fn set_without_members_finds_nothing() {
        assert_eq!(BlockSet::new(&[], 0).find(5), None);
        let memory = [const { IndexWord::new() }; 2];
        assert_eq!(BlockSet::new(&memory, 3).find(u32::MAX), None);
    }
}
