//! Which pages still hold the zeros that the system gave them with, so that they need not be zeroed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::Pfn;

/// Pages of a word.
const BITS: u64 = u64::BITS as u64;

/// A bit for each page that was ever handed out since the system gave it: 32 KiB for a GiB. Each is
/// changed by the one who has its page, and words are shared by neighbours.
#[derive(Debug)]
pub(crate) struct Fresh {
    first: Pfn,
    used: Box<[AtomicU64]>,
}

impl Fresh {
    /// For pages that the system has just given.
    pub(crate) fn new(frames: &Range<Pfn>) -> Fresh {
        let words = (frames.end.0 - frames.start.0).div_ceil(BITS);
        Fresh { first: frames.start, used: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The words that so many pages from a frame on lie in, and which bits of each are theirs.
    #[inline]
    fn words(&self, pfn: Pfn, pages: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let start = pfn.0.saturating_sub(self.first.0);
        let end = start + pages;
        let words = start / BITS..end.div_ceil(BITS);
        words.filter_map(move |n| {
            let from = start.max(n * BITS) - n * BITS;
            let count = end.min((n + 1) * BITS) - n * BITS - from;
            let mask = (u64::MAX >> (BITS - count)) << from;
            Some((self.used.get(n as usize)?, mask))
        })
    }

    /// The pages go to somebody who may write to them. Whether all of them were zeros.
    #[inline]
    pub(crate) fn use_up(&self, pfn: Pfn, pages: u64) -> bool {
        let mut zeros = true;
        for (word, mask) in self.words(pfn, pages) {
            let was = word.load(Relaxed);
            // Mostly only looked at: so neighbours on several CPUs share the line.
            if was & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
            zeros &= was & mask == 0;
        }
        zeros
    }

    /// The pages are zeros: nobody wrote to them after all, or the system took their memory back.
    pub(crate) fn renew(&self, pfn: Pfn, pages: u64) {
        for (word, mask) in self.words(pfn, pages) {
            word.fetch_and(!mask, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_fresh_once() {
        let fresh = Fresh::new(&(Pfn(1000)..Pfn(1300)));
        assert!(fresh.use_up(Pfn(1000), 1));
        assert!(!fresh.use_up(Pfn(1000), 1));
        assert!(fresh.use_up(Pfn(1001), 1));
        // Over several words, and where one page of many was used.
        assert!(fresh.use_up(Pfn(1060), 200));
        assert!(!fresh.use_up(Pfn(1259), 2));
        assert!(fresh.use_up(Pfn(1261), 39));
        fresh.renew(Pfn(1060), 70);
        assert!(fresh.use_up(Pfn(1060), 70));
        assert!(!fresh.use_up(Pfn(1130), 1));
        assert!(fresh.use_up(Pfn(1002), 58), "all between");
    }
}
