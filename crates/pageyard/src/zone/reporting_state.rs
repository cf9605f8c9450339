//! Whether a zone has free blocks to report, and when (spec §9.9).

use crate::base::sync::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use crate::embedder::platform::Platform;

/// After the first block worth reporting became free, in nanoseconds.
const DELAY: u64 = 2_000_000_000;

/// Whether a zone has something to report, and when.
#[derive(Debug)]
pub(crate) struct Reporting {
    pub(crate) pending: AtomicBool,
    pub(crate) due: AtomicU64,
    /// Pages in blocks that bear the mark. Zone lock.
    pub(crate) reported: AtomicU64,
    /// Pages in blocks that bore it when a request took them. Zone lock.
    pub(crate) retaken: AtomicU64,
    /// The fewest free pages since somebody asked. Zone lock.
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

    /// So many pages are free now. Zone lock held.
    #[inline]
    pub(crate) fn saw(&self, free: i64) {
        if free < self.lowest.load(Relaxed) {
            self.lowest.store(free, Relaxed);
        }
    }

    /// Pages in blocks that bear the mark.
    pub(crate) fn marked(&self) -> &AtomicU64 {
        &self.reported
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

    /// A block large enough has become free. Zone lock held.
    #[inline]
    pub(crate) fn request(&self, hooks: &impl Platform) {
        if !self.pending.load(Relaxed) {
            self.due.store(hooks.now().saturating_add(DELAY), Relaxed);
            self.pending.store(true, Relaxed);
        }
    }

    /// Whatever becomes free meanwhile is no news. Zone lock held.
    pub(crate) fn without_news(&self, free: impl FnOnce()) {
        let pending = self.pending.load(Relaxed);
        free();
        self.pending.store(pending, Relaxed);
    }
}
