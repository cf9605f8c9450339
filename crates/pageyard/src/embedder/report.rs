//! What the checks report, and how often (spec §11.2, §11.4).

use core::fmt;

use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{Order, Pfn};
use crate::embedder::checks::BadPage;
use crate::embedder::poison::Corruption;

/// Something is wrong with memory or with what somebody did to it. For the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// A page is not as an unused page must be; its whole block is out of use now (§11.2).
    BadPage {
        /// The page.
        pfn: Pfn,
        /// The first frame of its block.
        block: Pfn,
        /// The block's order.
        order: Order,
        /// What is wrong with it.
        why: BadPage,
        /// Seen when the block was handed out; else when it was freed.
        at_alloc: bool,
    },
    /// So many reports of bad pages were left out since the one before.
    BadPagesSuppressed(u64),
    /// The pattern in a free block was damaged (§11.4). The block is handed out all the same.
    Poison {
        /// The first frame of the block.
        block: Pfn,
        /// The block's order.
        order: Order,
        /// Where, from the start of the block, and how.
        corruption: Corruption,
    },
    /// So many reports of damaged patterns were left out since the one before.
    PoisonSuppressed(u64),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Report::BadPage { pfn, block, order, why, at_alloc } => {
                let when = if at_alloc { "allocated" } else { "freed" };
                write!(f, "bad page {pfn} in the block of order {order} at {block}, ")?;
                write!(f, "seen when it was {when}: {why}")
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

/// At most so many of something in so long. Two CPUs at once may let one more or one less pass;
/// time comes from [`Platform::now`](crate::Platform::now), and where that stands still, so does
/// the limit.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// When the present period began.
    since: AtomicU64,
    /// Let through in this period.
    passed: AtomicU64,
    /// Not let through since the last one that was.
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

    /// Whether one more may pass, and how many were held back before it.
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
