//! What an operation that makes frames free must note besides their pageblock's place: that pageblocks
//! are set apart, and that searches of all pageblocks found no block of an order.
//!
//! A request that no pageblock can serve looks at all of them. While memory is in pieces the next one
//! would do the same, so the first notes what it did not find. A search announces itself, then reads the
//! words of all pageblocks, then notes that it found nothing; an operation that makes frames free writes
//! their word, then looks for searches and takes back what they noted. One of the two sees the other. Until
//! that operation has done both, requests may not see the frames.

use crate::base::shared::AtomicU64;
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::sync::fence;
use crate::packed::bits;
use crate::packed::planted::{Bug, fence_for_loom, planted};

/// Bits 0 to 8: searches for these orders are under way, or found nothing. Bits 16 to 24: they found
/// nothing. Bit 31: pageblocks are set apart, or were. From bit 32: how often the others were taken back.
#[derive(Debug)]
pub(super) struct Notes(AtomicU64);

const MISSING: u32 = 16;
const SET_APART: u64 = 1 << 31;
const ROUND: u32 = 32;

/// A search for blocks of an order that has begun.
pub(super) struct Search {
    order: u8,
    round: u64,
}

impl Notes {
    pub(super) const fn new() -> Self {
        Notes(AtomicU64::new(0))
    }

    /// Returns whether a free must update a note.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.0.load(SeqCst) as u32 != 0
    }

    #[inline(always)]
    pub(super) fn has_set_apart(&self) -> bool {
        self.0.load(Relaxed) & SET_APART != 0
    }

    pub(super) fn note_set_apart(&self) {
        self.0.fetch_or(SET_APART, SeqCst);
    }

    /// Returns whether no pageblock has a free block of an order up to 8: a search for it, or for a
    /// lower order, found none.
    pub(super) fn is_missing(&self, order: u8) -> bool {
        self.missing().is_some_and(|missing| missing <= order)
    }

    /// Returns the lowest order of which no pageblock has a free block, as far as searches found.
    pub(super) fn missing(&self) -> Option<u8> {
        let orders = self.0.load(SeqCst) >> MISSING & up_to(8);
        (orders != 0).then_some(orders.trailing_zeros() as u8)
    }

    /// Announces a search of all pageblocks.
    pub(super) fn begin(&self, order: u8) -> Search {
        let round = self.0.fetch_or(1 << order, SeqCst) >> ROUND;
        // Before the words are read, which is not ordered otherwise.
        fence(SeqCst);
        Search { order, round }
    }

    /// Ends a search. Notes that it found nothing, unless frames became free that it may have missed; or
    /// forgets it, so that frees need not look for it.
    pub(super) fn end(&self, search: &Search, has_found: bool) {
        let bit = 1 << search.order;
        let ended = |now: u64| {
            let ends = now >> ROUND == search.round && now & bit << MISSING == 0;
            ends.then(|| if has_found { take_back(now, bit) } else { now | bit << MISSING })
        };
        _ = self.0.fetch_update(SeqCst, SeqCst, ended);
    }

    /// Takes back what was noted of the orders up to this one: there may be such a block now. The caller
    /// wrote its words or label by `SeqCst` operations, or a fence followed.
    pub(super) fn note_free(&self, order: u8) {
        if planted(Bug::NoTakingBack) {
            return;
        }
        fence_for_loom();
        let noted = |now: u64| (now & up_to(order) != 0).then(|| take_back(now, up_to(order)));
        _ = self.0.fetch_update(SeqCst, SeqCst, noted);
    }

    /// Like [`note_free`](Self::note_free), for the free frames of a word.
    pub(super) fn note_free_in(&self, word: u64) {
        let lowest = (self.0.load(SeqCst) & up_to(8)).trailing_zeros();
        if word == !0 {
            self.note_free(8);
        } else if lowest < 6 && bits::run_heads(word, lowest as u8) != 0 {
            self.note_free(bits::largest_run(word));
        }
    }
}

/// Forgets searches for some orders and what they noted. Others that are under way note nothing either.
const fn take_back(now: u64, orders: u64) -> u64 {
    (now & !(orders | orders << MISSING)).wrapping_add(1 << ROUND)
}

/// Returns the bits of the orders up to this one.
const fn up_to(order: u8) -> u64 {
    (2 << order) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_search_missed_is_not_noted() {
        let notes = Notes::new();
        let missing = || [1, 2, 3, 8].map(|order| notes.is_missing(order));
        notes.end(&notes.begin(2), false);
        assert_eq!((missing(), notes.any()), ([false, true, true, true], true));
        // A block that is too small changes nothing.
        notes.note_free_in(0b110);
        assert_eq!(missing(), [false, true, true, true]);
        notes.note_free_in(0b1111_0000);
        assert_eq!((missing(), notes.any()), ([false; 4], false));
        // A block that becomes free behind a search, also if another one has begun since.
        let search = notes.begin(3);
        notes.note_free(5);
        let other = notes.begin(3);
        notes.end(&search, false);
        assert_eq!(missing(), [false; 4]);
        notes.end(&other, false);
        assert_eq!(missing(), [false, false, true, true]);
        // One that is too small for the search is not behind it.
        let search = notes.begin(8);
        notes.note_free(1);
        notes.end(&search, false);
        assert_eq!(missing(), [false, false, true, true]);
        let search = notes.begin(2);
        notes.note_free(1);
        notes.end(&search, false);
        assert_eq!(missing(), [false, true, true, true]);
        notes.note_free(2);
        notes.end(&notes.begin(3), false);
        // One that finds a block leaves nothing for frees to look at, but what another one noted.
        notes.end(&notes.begin(1), true);
        assert_eq!(missing(), [false, false, true, true]);
        notes.end(&notes.begin(3), true);
        assert_eq!(missing(), [false, false, true, true]);
        notes.note_free_in(!0);
        notes.end(&notes.begin(1), true);
        assert_eq!((missing(), notes.any()), ([false; 4], false));
    }

    #[test]
    fn pageblocks_that_are_set_apart_stay_noted() {
        let notes = Notes::new();
        notes.note_set_apart();
        notes.end(&notes.begin(0), false);
        notes.note_free(8);
        assert!(notes.has_set_apart() && notes.any() && !notes.is_missing(8));
    }
}
