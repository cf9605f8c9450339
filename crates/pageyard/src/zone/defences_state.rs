//! The counters of a zone's pages that are out of use, and the rate limits of its checks' reports
//! (spec §11).

use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::embedder::report::RateLimit;

/// Per-zone state of checks and defences.
#[derive(Debug)]
pub(crate) struct ZoneSafety {
    /// Pages. Changed by any thread.
    pub(crate) bad: AtomicU64,
    /// Pages. Changed under the zone lock.
    pub(crate) poisoned: AtomicU64,
    /// Pages. Changed under the zone lock.
    pub(crate) guards: AtomicU64,
    pub(crate) bad_reports: RateLimit,
    pub(crate) poison_reports: RateLimit,
}

impl ZoneSafety {
    pub(crate) const fn new() -> Self {
        ZoneSafety {
            bad: AtomicU64::new(0),
            poisoned: AtomicU64::new(0),
            guards: AtomicU64::new(0),
            bad_reports: RateLimit::new(),
            poison_reports: RateLimit::new(),
        }
    }

    pub(crate) fn clear(&self) {
        for n in [&self.bad, &self.poisoned, &self.guards] {
            n.store(0, Relaxed);
        }
    }
}

/// Changes a counter that has one writer at a time.
pub(crate) fn change(n: &AtomicU64, by: i64) {
    n.store(n.load(Relaxed).wrapping_add_signed(by), Relaxed);
}
