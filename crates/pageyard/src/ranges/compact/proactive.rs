//! Compaction ahead of requests: how fragmented a node may become (spec §7.8).

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MAX_ORDER, NodeId, Order};
use crate::embedder::config::Config;
use crate::zone::state::{RECLAIM_ACTIVE, Zone};

/// How fragmented these free blocks per order are: the part of free memory that cannot serve a huge
/// page, in percent; 0 where nothing is free.
pub fn zone_score(blocks: &[u64; MAX_ORDER as usize + 1]) -> u64 {
    let (mut free, mut suitable) = (0, 0);
    for (order, &n) in blocks.iter().enumerate() {
        // 128 bits hold any counts.
        let pages = u128::from(n) << order;
        free += pages;
        if order >= usize::from(Order::HUGE.get()) {
            suitable += pages;
        }
    }
    ((free - suitable) * 100).checked_div(free).unwrap_or(0) as u64
}

/// The score of a node: those of its zones, each with its present pages as its weight.
pub fn node_score(zones: impl Iterator<Item = (u64, u64)> + Clone) -> u64 {
    let present: u128 = zones.clone().map(|(present, _)| u128::from(present)).sum();
    let share = |(p, score): (u64, u64)| u128::from(p) * u128::from(score);
    zones.map(|z| share(z).checked_div(present + 1).unwrap_or(0) as u64).sum()
}

/// The score at which proactive compaction of a zone stops.
pub fn stop_at(proactiveness: u64) -> u64 {
    100u64.saturating_sub(proactiveness).max(5)
}

/// The score of a node above which it starts.
pub fn start_above(proactiveness: u64) -> u64 {
    (stop_at(proactiveness) + 10).min(100)
}

impl<R: RawMutex> Zone<'_, R> {
    pub(super) fn score(&self) -> u64 {
        zone_score(&self.blocks_by_order())
    }
}

impl<C: Config> Yard<'_, C> {
    /// How fragmented a node is, 0 to 100 (§7.8).
    pub fn fragmentation_score(&self, node: NodeId) -> u64 {
        let zones = self.zones_of(node).filter(|z| z.is_populated());
        node_score(zones.map(|z| (z.present.load(Relaxed), z.score())))
    }

    pub(super) fn proactiveness(&self) -> u64 {
        self.knobs.lock().compaction_proactiveness
    }

    /// Whether a node is so fragmented that compaction is to begin by itself.
    pub(super) fn wants_proactive(&self, node: NodeId) -> bool {
        let proactiveness = self.proactiveness();
        proactiveness != 0
            && !self.zones_of(node).any(|z| z.has_flag(RECLAIM_ACTIVE))
            && self.fragmentation_score(node) > start_above(proactiveness)
    }
}
