//! When a request that compaction did not serve tries again (spec §7.6).

use crate::base::units::{COSTLY_ORDER, Order};
use crate::embedder::compact_events::{CompactResult, Priority};

/// How often a request whose compaction succeeded, but whose block was lost to somebody else, may
/// try again.
pub const MOST_RETRIES: u32 = 16;

/// What a request remembers between its compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// Successes in vain at this priority.
    pub lost: u32,
    /// How hard the next one tries.
    pub priority: Priority,
}

impl Default for Retries {
    /// As a request begins after its first reclaim (§2.10).
    fn default() -> Self {
        Retries { lost: 0, priority: Priority::SyncLight }
    }
}

/// Whether a request that was not served after a compaction is to compact once more (§7.6), and how
/// hard: `retries` changes accordingly.
///
/// `any_suitable` says whether a zone could be compacted if what is reclaimable were free: it is
/// asked only where the compaction was skipped for want of memory.
pub fn should_retry(
    order: Order,
    result: CompactResult,
    retries: &mut Retries,
    any_suitable: impl FnOnce() -> bool,
) -> bool {
    if order == Order::ZERO {
        return false;
    }
    if result == CompactResult::Skipped {
        return any_suitable();
    }
    let costly = order.get() > COSTLY_ORDER;
    if result == CompactResult::Success {
        let most = if costly { MOST_RETRIES / 4 } else { MOST_RETRIES };
        retries.lost = retries.lost.saturating_add(1);
        if retries.lost <= most {
            return true;
        }
    }
    let harder = match retries.priority {
        Priority::Async => Priority::SyncLight,
        Priority::SyncLight if !costly => Priority::SyncFull,
        _ => return false,
    };
    *retries = Retries { lost: 0, priority: harder };
    true
}
