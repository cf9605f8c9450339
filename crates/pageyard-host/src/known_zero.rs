//! Tracks pages not allocated since the system provided them: they need no zeroing, or must be
//! written before use.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pageyard::Pfn;

use crate::memory::Region;

/// Pages per word.
const BITS: u64 = u64::BITS as u64;

/// A bit for each page, set once the page was allocated since the system provided it; 32 KiB per
/// GiB. The owner of a page changes its bit; neighbouring pages share words.
///
/// A page whose bit is clear is zero, until the first page is returned lazily (`MADV_FREE`). From
/// then on such a page may hold anything, and the system may still take it; the first write keeps
/// it.
#[derive(Debug)]
pub(crate) struct KnownZero {
    first: Pfn,
    used: Box<[AtomicU64]>,
    lazily: AtomicBool,
}

impl KnownZero {
    /// Creates the bitmap for pages that the system has just provided.
    pub(crate) fn new(frames: &Range<Pfn>) -> KnownZero {
        let words = (frames.end.0 - frames.start.0).div_ceil(BITS);
        let used = (0..words).map(|_| AtomicU64::new(0)).collect();
        KnownZero { first: frames.start, used, lazily: AtomicBool::new(false) }
    }

    /// Returns the words that cover `pages` pages from a frame on, with the first page of each word
    /// and the mask of the bits in range.
    #[inline]
    fn words(&self, pfn: Pfn, pages: u64) -> impl Iterator<Item = (u64, &AtomicU64, u64)> {
        let start = pfn.0.saturating_sub(self.first.0);
        let end = start + pages;
        let words = start / BITS..end.div_ceil(BITS);
        words.filter_map(move |n| {
            let from = start.max(n * BITS) - n * BITS;
            let count = end.min((n + 1) * BITS) - n * BITS - from;
            let mask = (u64::MAX >> (BITS - count)) << from;
            Some((self.first.0 + n * BITS, self.used.get(n as usize)?, mask))
        })
    }

    /// Records that pages of this region are allocated. Returns whether all of them are zero.
    #[inline(always)]
    pub(crate) fn take_known_zero(&self, region: &Region, pfn: Pfn, pages: u64) -> bool {
        // The same for most requests: a page that was in use before.
        let n = pfn.0.wrapping_sub(self.first.0);
        let used = self.used.get((n / BITS) as usize);
        let is_used = used.is_some_and(|word| word.load(Relaxed) >> (n % BITS) & 1 != 0);
        !(pages == 1 && is_used) && self.record_use(region, pfn, pages)
    }

    /// Does that for any number of pages.
    #[inline(never)]
    fn record_use(&self, region: &Region, pfn: Pfn, pages: u64) -> bool {
        let mut zeros = true;
        for (first, word, mask) in self.words(pfn, pages) {
            let was = word.load(Relaxed);
            zeros &= was & mask == 0;
            // Usually only read, so that CPUs using neighbouring pages share the cache line.
            if was & mask != mask {
                zeros &= self.first_use(region, first, word, mask & !was);
            }
        }
        zeros
    }

    /// Records the first allocation of pages of a word since the system provided them. Returns
    /// whether they are zero.
    #[cold]
    fn first_use(&self, region: &Region, first: u64, word: &AtomicU64, bits: u64) -> bool {
        word.fetch_or(bits, Relaxed);
        // Set before the first page is returned lazily by a thread that then frees the page to the
        // allocator, from which this thread got it. So this load sees it.
        if !self.lazily.load(Relaxed) {
            return true;
        }
        for bit in (0..BITS).filter(|bit| bits >> bit & 1 != 0) {
            if let Some(page) = region.address(Pfn(first + bit), 1) {
                // SAFETY: the word is mapped and aligned, and the page is the allocator's, whose
                // contents nothing relies on. The store is atomic, so that it is not optimised
                // away: it keeps the page
                // (`lazily_freed_pages_are_reclaimed_before_allocation`).
                unsafe { AtomicU64::from_ptr(page.as_ptr().cast()) }.store(0, Relaxed);
            }
        }
        false
    }

    /// Returns how many pages of these were allocated since the system provided them.
    pub(crate) fn touched_of(&self, pfn: Pfn, pages: u64) -> u64 {
        let of = |(_, word, mask): (u64, &AtomicU64, u64)| (word.load(Relaxed) & mask).count_ones();
        self.words(pfn, pages).map(of).map(u64::from).sum()
    }

    /// Returns how many pages were allocated since the system provided them.
    pub(crate) fn touched_pages(&self) -> u64 {
        self.used.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
    }

    /// Records that free pages are zero: they were not written after all, or the system took their
    /// memory back.
    pub(crate) fn mark_zero(&self, pfn: Pfn, pages: u64) {
        for (_, word, mask) in self.words(pfn, pages) {
            word.fetch_and(!mask, Relaxed);
        }
    }

    /// Records that free pages are about to be returned lazily.
    pub(crate) fn mark_lazily_freed(&self, pfn: Pfn, pages: u64) {
        self.lazily.store(true, Relaxed);
        self.mark_zero(pfn, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_zero_once() {
        let region = Region::new(1024).unwrap();
        let known_zero = KnownZero::new(&region.frames());
        let at = |n| Pfn(region.first().0 + n);
        assert!(known_zero.take_known_zero(&region, at(0), 1));
        assert!(!known_zero.take_known_zero(&region, at(0), 1));
        assert!(known_zero.take_known_zero(&region, at(1), 1));
        // Across several words, and with one of many pages used.
        assert!(known_zero.take_known_zero(&region, at(60), 200));
        assert!(!known_zero.take_known_zero(&region, at(259), 2));
        assert!(known_zero.take_known_zero(&region, at(261), 39));
        assert_eq!(known_zero.touched_pages(), 2 + 240);
        known_zero.mark_zero(at(60), 70);
        assert_eq!(known_zero.touched_pages(), 2 + 170);
        assert_eq!((known_zero.touched_of(at(1), 200), known_zero.touched_of(at(0), 130)), (72, 2));
        let is_used = |start, pages| known_zero.touched_of(at(start), pages) > 0;
        assert!(!is_used(2, 128) && is_used(2, 129) && is_used(1, 129) && is_used(299, 725));
        assert!(!is_used(300, 724));
        assert!(known_zero.take_known_zero(&region, at(60), 70));
        assert!(!known_zero.take_known_zero(&region, at(130), 1));
        assert!(known_zero.take_known_zero(&region, at(2), 58), "all between");
    }

    /// Until it is written, the system may take a page that was returned lazily.
    #[test]
    fn a_lazily_freed_page_is_written_to_once() {
        let region = Region::new(1024).unwrap();
        let known_zero = KnownZero::new(&region.frames());
        let at = |n| Pfn(region.first().0 + n);
        // SAFETY: the region is mapped and belongs to the test alone.
        let word =
            |n| unsafe { AtomicU64::from_ptr(region.address(at(n), 1).unwrap().cast().as_ptr()) };
        assert!(
            known_zero.take_known_zero(&region, at(0), 300),
            "nothing was given back lazily yet"
        );
        (0..400).for_each(|n| word(n).store(7, Relaxed));
        known_zero.mark_lazily_freed(at(50), 100);
        assert!(!known_zero.take_known_zero(&region, at(40), 80), "zeros are not known any more");
        assert!(!known_zero.take_known_zero(&region, at(140), 170));
        assert!(!known_zero.take_known_zero(&region, at(50), 100));
        for n in 0..400 {
            // The pages returned lazily, and the first ten that were never allocated.
            let written = (50..150).contains(&n) || (300..310).contains(&n);
            assert_eq!(word(n).load(Relaxed), if written { 0 } else { 7 }, "{n}");
        }
    }
}
