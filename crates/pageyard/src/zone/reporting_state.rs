//! Whether a zone has free blocks to report, and when (spec §9.9).

use crate::base::sync::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use crate::embedder::platform::Platform;

/// Delay in nanoseconds after the first reportable block became free.
const DELAY: u64 = 2_000_000_000;

/// Whether a zone has free blocks to report, and when.
#[derive(Debug)]
pub(crate) struct Reporting {
    pub(crate) pending: AtomicBool,
    pub(crate) due: AtomicU64,
    /// Pages in blocks with the reported mark. Zone lock.
    pub(crate) reported: AtomicU64,
    /// Pages in blocks that had the mark when a request took them. Zone lock.
    pub(crate) retaken: AtomicU64,
    /// The fewest free pages since the last query. Zone lock.
    pub(crate) lowest: AtomicI64,
}

impl Reporting {
    pub(crate) const fn new() -> Self {
        Reporting {
            pending: AtomicBool::new(false),
            due: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            retaken: AtomicU64::new(0),
            lowest: AtomicI64::new(0),
        }
    }

    /// Records the number of free pages.
    #[inline]
    pub(crate) fn saw(&self, free: i64) {
        if free < self.lowest.load(Relaxed) {
            self.lowest.fetch_min(free, Relaxed);
        }
    }

    pub(crate) fn note(&self, pages: u64) {
        self.reported.store(self.reported.load(Relaxed).saturating_add(pages), Relaxed);
    }

    #[cold]
    pub(crate) fn forget(&self, pages: u64, taken: bool) {
        self.reported.store(self.reported.load(Relaxed).saturating_sub(pages), Relaxed);
        if taken {
            self.retaken.store(self.retaken.load(Relaxed).saturating_add(pages), Relaxed);
        }
    }

    /// Records that a block large enough to report has become free. Of two calls at once, either sets
    /// the time.
    #[inline]
    pub(crate) fn request(&self, hooks: &impl Platform) {
        if !self.pending.load(Relaxed) {
            self.due.store(hooks.now().saturating_add(DELAY), Relaxed);
            self.pending.store(true, Relaxed);
        }
    }

    /// Runs `free` without requesting a report for the blocks it frees. The zone lock must be held.
    pub(crate) fn without_news(&self, free: impl FnOnce()) {
        let pending = self.pending.load(Relaxed);
        free();
        self.pending.store(pending, Relaxed);
    }
}
