//! Interface between the allocator and the embedder's reclaim (spec §3.4, §3.7, §3.9, §7.2, §7.3).

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{NodeId, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, ZoneId, ZoneKind};
use crate::base::watermark::HIGH;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::reclaim_job::{
    Mark, NodeReclaim, NodeReclaimJob, ReclaimJob, SWAP_CLUSTER_MAX,
};
use crate::request::alloc::Request;
use crate::zone::state::{RECLAIM_ACTIVE, Zone};

impl ReclaimJob {
    pub(crate) fn direct(req: &Request, node: NodeId) -> Self {
        ReclaimJob {
            node,
            allowed: req.nodes,
            highest: req.highest,
            order: req.order,
            gfp: req.gfp,
            pages: SWAP_CLUSTER_MAX,
            priority: ReclaimJob::FIRST_PRIORITY,
            may_write: req.gfp.contains(Gfp::IO),
            may_swap: req.gfp.contains(Gfp::IO),
        }
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// The safe watermark test (§3.7): sums the per-CPU parts of the counter if they could matter.
    pub(crate) fn passes_safely(&self, mark: Mark, order: Order, highest: ZoneKind) -> bool {
        let mut supply = self.supply();
        if supply.free < self.drift_mark.load(Relaxed) {
            supply = self.supply_exact();
        }
        let (order, flags) = (order.get(), AllocFlags::WMARK_MIN);
        let mark = self.watermarks.effective(mark as usize);
        let has_block = || self.has_block(order, flags);
        self.watermarks.ok(order, mark, highest, flags, supply, has_block)
    }

    /// Like [`passes_safely`](Self::passes_safely), but only free pages in wholly free pageblocks
    /// count (B.1).
    pub(crate) fn passes_in_pageblocks(&self, mark: Mark, order: Order, highest: ZoneKind) -> bool {
        let mut supply = self.supply();
        // Isolated pageblocks may be free or not: all are taken off, so that no page counts that no
        // request can get.
        let isolated = self.isolated_blocks.load(Relaxed).saturating_mul(PAGEBLOCK_PAGES.into());
        supply.free = self.areas.pages_from(PAGEBLOCK_ORDER).saturating_sub(isolated);
        let (order, flags) = (order.get(), AllocFlags::WMARK_MIN);
        let mark = self.watermarks.effective(mark as usize);
        let has_block = || self.has_block(order, flags);
        self.watermarks.ok(order, mark, highest, flags, supply, has_block)
    }
}

impl<C: Config> Yard<'_, C> {
    /// Returns whether a zone passes a watermark, boost included, for ordinary requests of this
    /// order that may use zones up to `highest`. Uses the safe test of §3.7, which sums the per-CPU
    /// parts of the counter if they could matter. `None` if the zone does not exist.
    pub fn passes(
        &self,
        zone: impl Into<ZoneId>,
        mark: Mark,
        order: Order,
        highest: ZoneKind,
    ) -> Option<bool> {
        Some(self.zone(zone)?.passes_safely(mark, order, highest))
    }

    /// Marks the begin or end of background reclaim in a zone (§7.2). Its per-CPU lists shrink
    /// while it is active. Returns whether the zone exists.
    pub fn set_reclaim_active(&self, zone: impl Into<ZoneId>, active: bool) -> bool {
        let Some(z) = self.zone(zone) else { return false };
        if active {
            z.set_flag(RECLAIM_ACTIVE);
        } else {
            z.clear_flag(RECLAIM_ACTIVE);
        }
        true
    }

    /// Lowers a zone's watermark boost by `seen` pages, the boost when background reclaim began
    /// (§3.4). Call it at the end of a run. Returns whether the zone exists.
    pub fn lower_boost(&self, zone: impl Into<ZoneId>, seen: u64) -> bool {
        let Some(z) = self.zone(zone) else { return false };
        let _lock = z.lock.lock();
        z.watermarks.set_boost(z.watermarks.boost().saturating_sub(seen));
        z.refresh_cached_mark(self.rules());
        true
    }

    /// Step 6 of §2.8: reclaims unneeded caches of a near node. If both caches are within their
    /// minimums (§10), there is nothing to reclaim.
    pub(crate) fn reclaim_node(&self, node: NodeId, order: Order, gfp: Gfp) -> NodeReclaim {
        let knobs = self.knobs();
        if knobs.zone_reclaim_mode == 0 || self.must_not_reclaim(gfp) {
            return NodeReclaim::NoScan;
        }
        let zones = self.node(node).map_or(&[][..], |n| n.zones);
        let managed: u64 = zones.iter().map(|z| z.managed.load(Relaxed)).sum();
        let percent = |ratio: u64| managed.saturating_mul(ratio) / 100;
        let job = NodeReclaimJob {
            node,
            order,
            gfp,
            pages: SWAP_CLUSTER_MAX.max(order.pages().into()),
            may_write: knobs.zone_reclaim_mode & 2 != 0,
            may_unmap: knobs.zone_reclaim_mode & 4 != 0,
            min_unmapped: percent(knobs.min_unmapped_ratio),
            min_slab: percent(knobs.min_slab_ratio),
        };
        if let Some(has) = self.as_reclaimer(|| self.hooks.node_caches(&job))
            && has.unmapped <= job.min_unmapped
            && has.slab <= job.min_slab
        {
            return NodeReclaim::Full;
        }
        self.as_reclaimer(|| self.hooks.node_reclaim(&job))
    }

    /// Returns the pages that ordinary requests never get, summed over all zones (§3.9).
    pub fn total_reserve(&self) -> u64 {
        let of_zone = |z: &Zone<'_, C::Lock>| {
            let reserves = z.watermarks.reserves();
            let most = reserves.iter().skip(z.kind as usize).max().copied().unwrap_or(0);
            z.managed.load(Relaxed).min(z.watermarks.effective(HIGH).saturating_add(most))
        };
        self.zones.iter().map(of_zone).sum()
    }
}
