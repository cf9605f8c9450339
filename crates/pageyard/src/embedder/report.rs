//! What the checks report, and how often (spec §11.2, §11.4).

use core::fmt;

use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{Order, Pfn};
use crate::embedder::checks::BadPage;
use crate::embedder::poison::Corruption;

/// A fault of memory or a mistake in its use, for the log.
///
/// ```
/// use pageyard::{Observer, Report};
///
/// struct Log;
/// impl Observer for Log {
///     fn report(&self, report: Report) {
///         // Locks may be held: format it into a ring, not into memory of the allocator.
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// A page is not in the state of an unused page. Its whole block is now out of use (§11.2).
    BadPage {
        /// The page.
        pfn: Pfn,
        /// The first frame of its block.
        block: Pfn,
        /// The block's order.
        order: Order,
        /// What is wrong with the page.
        why: BadPage,
        /// Whether it was found when the block was allocated rather than freed.
        at_alloc: bool,
    },
    /// Number of reports of bad pages suppressed since the previous one.
    BadPagesSuppressed(u64),
    /// The pattern in a free block was damaged (§11.4). The block is allocated anyway.
    Poison {
        /// The first frame of the block.
        block: Pfn,
        /// The block's order.
        order: Order,
        /// Where the damage is, from the start of the block, and of what kind.
        corruption: Corruption,
    },
    /// Number of reports of damaged patterns suppressed since the previous one.
    PoisonSuppressed(u64),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Report::BadPage { pfn, block, order, why, at_alloc } => {
                let when = if at_alloc { "allocated" } else { "freed" };
                write!(f, "bad page {pfn} in the block of order {order} at {block}, ")?;
                write!(f, "found when it was {when}: {why}")
            }
            Report::BadPagesSuppressed(n) => write!(f, "{n} reports of bad pages suppressed"),
            Report::Poison { block, order, corruption: c } => {
                let what = if c.single_bit { "single bit error" } else { "memory corruption" };
                write!(f, "{what} in the free block of order {order} at {block}, ")?;
                write!(f, "bytes {:#x} to {:#x}", c.first, c.last)
            }
            Report::PoisonSuppressed(n) => write!(f, "{n} reports of damaged patterns suppressed"),
        }
    }
}

/// A limit on the number of events in a period. Two concurrent CPUs may let one event more or less
/// pass. Time comes from [`Platform::now`](crate::Platform::now); if that stands still, the period
/// never ends.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// Start of the current period.
    since: AtomicU64,
    /// Events passed in this period.
    passed: AtomicU64,
    /// Events held back since the last one that passed.
    held_back: AtomicU64,
}

impl RateLimit {
    pub(crate) const fn new() -> Self {
        RateLimit {
            since: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Returns how many events were held back before this one if it may pass, or `None`.
    pub(crate) fn admit(&self, now: u64, most: u64, period_ns: u64) -> Option<u64> {
        if now.saturating_sub(self.since.load(Relaxed)) >= period_ns
            || self.passed.load(Relaxed) == 0
        {
            self.since.store(now, Relaxed);
            self.passed.store(0, Relaxed);
        }
        if self.passed.fetch_add(1, Relaxed) < most {
            return Some(self.held_back.swap(0, Relaxed));
        }
        self.held_back.fetch_add(1, Relaxed);
        None
    }
}
