//! Proactive compaction: how fragmented a node may become before it starts (spec §7.8).

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MAX_ORDER, NodeId, Order, PAGEBLOCK_PAGES};
use crate::embedder::config::Config;
use crate::zone::state::{RECLAIM_ACTIVE, Zone};

/// Returns the fragmentation of these free blocks per order: the share of free memory that cannot
/// serve a huge page, in percent. 0 if nothing is free.
pub fn zone_score(blocks: &[u64; MAX_ORDER as usize + 1]) -> u64 {
    let (mut free, mut suitable) = (0, 0);
    for (order, &n) in blocks.iter().enumerate() {
        // 128 bits, so that no counts overflow.
        let pages = u128::from(n) << order;
        free += pages;
        if order >= usize::from(Order::HUGE.get()) {
            suitable += pages;
        }
    }
    score_of(free, suitable)
}

/// Returns the share of free pages that are not suitable for a huge page, in percent.
fn score_of(free: u128, suitable: u128) -> u64 {
    (free.saturating_sub(suitable) * 100).checked_div(free).unwrap_or(0) as u64
}

/// Returns the score of a node: the scores of its zones, weighted by their present pages.
pub fn node_score(zones: impl Iterator<Item = (u64, u64)> + Clone) -> u64 {
    let present: u128 = zones.clone().map(|(present, _)| u128::from(present)).sum();
    let share = |(p, score): (u64, u64)| u128::from(p) * u128::from(score);
    zones.map(|z| share(z).checked_div(present + 1).unwrap_or(0) as u64).sum()
}

/// Returns the zone score at which proactive compaction stops.
pub fn stop_at(proactiveness: u64) -> u64 {
    100u64.saturating_sub(proactiveness).max(5)
}

/// Returns the node score above which proactive compaction starts.
pub fn start_above(proactiveness: u64) -> u64 {
    (stop_at(proactiveness) + 10).min(100)
}

impl<R: RawMutex> Zone<'_, R> {
    pub(super) fn score(&self) -> u64 {
        match self.region() {
            None => zone_score(&self.free_blocks()),
            // Counting the blocks of each order would look at all pageblocks.
            Some(region) => {
                let suitable = region.whole_blocks() * u64::from(PAGEBLOCK_PAGES);
                score_of(self.supply_exact().free.into(), suitable.into())
            }
        }
    }
}

impl<C: Config> Yard<'_, C> {
    /// Returns the fragmentation score of a node, from 0 to 100 (§7.8).
    pub fn fragmentation_score(&self, node: NodeId) -> u64 {
        let zones = self.zones_of(node).filter(|z| z.is_populated());
        node_score(zones.map(|z| (z.present.load(Relaxed), z.score())))
    }

    pub(crate) fn proactiveness(&self) -> u64 {
        self.setting(|knobs| knobs.compaction_proactiveness)
    }

    /// Returns whether a node is fragmented enough for proactive compaction to start.
    pub(super) fn wants_proactive(&self, node: NodeId) -> bool {
        let proactiveness = self.proactiveness();
        proactiveness != 0
            && !self.zones_of(node).any(|z| z.has_flag(RECLAIM_ACTIVE))
            && self.fragmentation_score(node) > start_above(proactiveness)
    }
}
