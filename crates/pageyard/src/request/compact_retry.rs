//! When to retry compaction for a request that it did not serve (spec §7.6).

use crate::base::units::{COSTLY_ORDER, Order};
use crate::embedder::compact_events::{CompactResult, Priority};

/// How often a request may retry if compaction succeeded but other requests took the block.
pub const MOST_RETRIES: u32 = 16;

/// State that a request keeps between its compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// Successful compactions at this priority that did not serve the request.
    pub lost: u32,
    /// Priority of the next compaction.
    pub priority: Priority,
}

impl Default for Retries {
    /// The state of a request after its first reclaim (§2.10).
    fn default() -> Self {
        Retries { lost: 0, priority: Priority::SyncLight }
    }
}

/// Returns whether an unserved request should compact once more (§7.6). Updates `retries` with the
/// priority to use.
///
/// `any_suitable` returns whether a zone could be compacted if all reclaimable pages were free. It
/// is only called if the compaction was skipped for lack of memory.
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
