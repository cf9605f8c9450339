//! Requests of a yard's callers, by order, including those that the thread cache serves.
//!
//! No request is counted for this. The allocator behind the cache counts the blocks that it
//! allocates and frees, and every magazine counts the blocks popped from it in the word that a pop
//! writes anyway. A reader takes both and removes what moved between the two:
//!
//! - allocations = those of the allocator - blocks fetched by refills + refills + hits, because
//!   each refill passes one block to its caller and keeps the rest;
//! - frees = those of the allocator + blocks in the cache - blocks fetched by refills + refills
//!   + hits: what left a magazine other than by a hit was freed to the allocator.
//!
//! The allocator counts the pages of a range when they are freed, as single pages, but not when it
//! takes them; so ranges are counted here.

use pageyard::CpuStats;

use crate::magazine::ORDERS;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::thread_cache::ThreadCacheStats;

/// Blocks by order.
type Counts = [u64; ORDERS];

/// Blocks that the allocator behind the cache allocated and freed.
#[derive(Default)]
pub(crate) struct BackendCounts {
    allocs: Counts,
    frees: Counts,
}

impl BackendCounts {
    /// Adds the counters of a CPU in a zone.
    pub(crate) fn add(&mut self, stats: &CpuStats) {
        for (sum, counts) in [(&mut self.allocs, &stats.allocs), (&mut self.frees, &stats.frees)] {
            for (sum, by_type) in sum.iter_mut().zip(&counts.0) {
                *sum += by_type.iter().sum::<u64>();
            }
        }
    }

    /// Adds what the thread cache did since: the cache must have been read after `self`.
    fn with_cache(mut self, cache: &ThreadCacheStats) -> BackendCounts {
        // A reading in the middle of a refill may be below 0 for a moment.
        let add = |to: &mut u64, n: u64| *to = to.saturating_add_signed(n as i64);
        // Only single pages are refilled.
        let fetched = cache.refills.wrapping_sub(cache.refilled_pages);
        for order in 0..ORDERS {
            let fetched = if order == 0 { fetched } else { 0 };
            let hits = cache.hits_by_order[order].wrapping_add(fetched);
            add(&mut self.allocs[order], hits);
            add(&mut self.frees[order], hits.wrapping_add(cache.blocks[order]));
        }
        self
    }
}

/// The largest counts reported so far.
///
/// Invariant: a reported count never decreases, which readers of counters would take for a restart
/// of the program. The parts are read at different moments while threads go on, so a sum may be
/// lower than an earlier one. The cache is read after the allocator, so that a refill in between
/// makes the sum too low; only refills in progress, each of at most 125 blocks, make it too high.
#[derive(Default)]
pub(crate) struct Requests {
    allocs: [AtomicU64; ORDERS],
    frees: [AtomicU64; ORDERS],
    /// Pages ever allocated in ranges.
    ranges: AtomicU64,
    /// Requests that failed for want of memory.
    failed: AtomicU64,
}

impl Requests {
    /// Counts a range of `pages` pages that a caller allocated.
    pub(crate) fn count_range(&self, pages: u64) {
        self.ranges.fetch_add(pages, Relaxed);
    }

    /// Counts a request that failed for want of memory.
    pub(crate) fn count_failure(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Returns the blocks that callers allocated and freed, by order.
    pub(crate) fn report(&self, backend: BackendCounts, cache: &ThreadCacheStats) -> [Vec<u64>; 2] {
        let mut now = backend.with_cache(cache);
        now.allocs[0] = now.allocs[0].wrapping_add(self.ranges.load(Relaxed));
        let most = |(most, now): (&AtomicU64, u64)| most.fetch_max(now, Relaxed).max(now);
        [
            self.allocs.iter().zip(now.allocs).map(most).collect(),
            self.frees.iter().zip(now.frees).map(most).collect(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of these orders.
    fn of(blocks: &[(usize, u64)]) -> Counts {
        let mut all = Counts::default();
        blocks.iter().for_each(|&(order, n)| all[order] = n);
        all
    }

    fn backend(allocs: u64, frees: u64) -> BackendCounts {
        let one = |n| std::array::from_fn(|order| if order == 0 { n } else { 0 });
        BackendCounts { allocs: one(allocs), frees: one(frees) }
    }

    #[test]
    fn blocks_that_the_cache_fetched_are_no_requests() {
        // Two refills of 63 blocks: two for their callers, 124 kept. 100 hits, 30 blocks pushed,
        // 40 flushed, 14 in the cache.
        let cache = ThreadCacheStats {
            blocks: of(&[(0, 14)]),
            hits_by_order: of(&[(0, 100)]),
            refills: 2,
            refilled_pages: 126,
            flushes: 1,
            flushed_pages: 40,
            ..ThreadCacheStats::default()
        };
        // Ten more of each bypassed the cache.
        let [allocs, frees] = Requests::default().report(backend(136, 50), &cache);
        assert_eq!((allocs[0], frees[0]), (10 + 2 + 100, 10 + 30));
        assert!(allocs[1..].iter().chain(&frees[1..]).all(|&n| n == 0));
    }

    #[test]
    fn blocks_are_counted_at_their_order() {
        let cache = ThreadCacheStats {
            blocks: of(&[(0, 3), (2, 5), (9, 2)]),
            hits_by_order: of(&[(0, 42), (2, 7), (9, 8)]),
            ..ThreadCacheStats::default()
        };
        let [allocs, frees] = Requests::default().report(backend(0, 0), &cache);
        assert_eq!((allocs[0], allocs[2], allocs[9]), (42, 7, 8));
        assert_eq!((frees[0], frees[2], frees[9]), (45, 12, 10));
    }

    #[test]
    fn reported_counts_never_decrease() {
        let requests = Requests::default();
        let none = ThreadCacheStats::default();
        assert_eq!(requests.report(backend(100, 90), &none)[0][0], 100);
        // Read in the middle of a refill.
        let cache = ThreadCacheStats { refills: 1, refilled_pages: 63, ..none };
        let [allocs, frees] = requests.report(backend(120, 95), &cache);
        assert_eq!((allocs[0], frees[0]), (100, 90));
        let [allocs, frees] = requests.report(backend(0, 0), &cache);
        assert_eq!((allocs[0], frees[0]), (100, 90), "below 0");
        assert_eq!(requests.report(backend(200, 190), &none)[0][0], 200);
    }
}
