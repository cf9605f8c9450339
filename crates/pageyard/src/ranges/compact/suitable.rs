//! Whether compacting a zone is worth it, and when enough has been done (spec §7.5).

use lock_api::RawMutex;

use super::Job;
use crate::allocator::yard::{Yard, fragmentation_index};
use crate::base::gfp::AllocFlags;
use crate::base::units::{COSTLY_ORDER, MAX_ORDER, MigrateType, Order, ZoneId, ZoneKind};
use crate::base::watermark::{LOW, MIN, Supply};
use crate::embedder::compact_events::{CompactEvent, CompactResult};
use crate::embedder::config::Config;
use crate::zone::at::At;
use crate::zone::state::Zone;

impl<R: RawMutex> Zone<'_, R> {
    pub(super) fn blocks_by_order(&self) -> [u64; MAX_ORDER as usize + 1] {
        core::array::from_fn(|o| self.areas.blocks(o as u8))
    }

    /// Whether there is room to move things to, if so many pages were free.
    fn has_room(&self, order: Order, highest: ZoneKind, free: u64) -> bool {
        let mark = if order.get() > COSTLY_ORDER { LOW } else { MIN };
        let gap = 2 << order.get();
        let mark = self.watermarks.effective(mark).saturating_add(gap);
        let supply = Supply { free, ..self.supply() };
        self.watermarks.ok(0, mark, highest, AllocFlags::CMA, supply, || true)
    }

    /// Whether a request of this type would find a block of the order, its own or one that it may
    /// claim.
    pub(super) fn has_block_for(&self, order: Order, t: MigrateType) -> bool {
        (order.get()..=MAX_ORDER).any(|o| {
            let any = |t| !self.areas.list(o, t).is_empty();
            any(t) || t == MigrateType::Movable && any(MigrateType::Cma) || self.has_claimable(o, t)
        })
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Before a run for an order: `Success` where a block can be had without, `Skipped` where it is
    /// likely to fail, `Continue` where it is worth it.
    #[inline(never)]
    pub(super) fn suits(&self, order: Order, job: &Job, threshold: u64) -> CompactResult {
        let zone = self.zone;
        let o = order.get();
        let mark = zone.watermarks.effective(job.flags.mark());
        let has_block = || zone.areas.has_block(o, job.flags);
        if zone.watermarks.ok(o, mark, job.highest, job.flags, zone.supply(), has_block) {
            return CompactResult::Success;
        }
        let mut result = CompactResult::Continue;
        if !zone.has_room(order, job.highest, zone.supply().free) {
            result = CompactResult::Skipped;
        } else if o > COSTLY_ORDER {
            // A cheap order is worth a try anyway; for a costly one it must be fragmentation, not
            // want of memory, that makes the request fail.
            let index = fragmentation_index(&zone.blocks_by_order(), order);
            if u64::try_from(index).is_ok_and(|i| i <= threshold) {
                result = CompactResult::NotSuitableZone;
            }
        }
        self.tell(CompactEvent::Suitable { zone: zone.id(), order, result });
        if result == CompactResult::NotSuitableZone { CompactResult::Skipped } else { result }
    }
}

impl<C: Config> Yard<'_, C> {
    pub(super) fn extfrag_threshold(&self) -> u64 {
        self.knobs.lock().extfrag_threshold
    }

    /// Whether a zone that may serve this order could be compacted if its reclaimable pages were
    /// free, of which `reclaimable` says how many there are: after a compaction that was
    /// [skipped](CompactResult::Skipped), whether reclaiming on is of any use (§7.6). One part in
    /// `order` of them is counted.
    pub fn could_compact(
        &self,
        order: Order,
        highest: ZoneKind,
        reclaimable: impl Fn(ZoneId) -> u64,
    ) -> bool {
        self.zones
            .iter()
            .filter(|z| z.is_populated() && z.kind <= highest)
            .any(|z| z.could_be_compacted(order, highest, &reclaimable))
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// The same of one zone.
    pub(crate) fn could_be_compacted(
        &self,
        order: Order,
        highest: ZoneKind,
        reclaimable: impl Fn(ZoneId) -> u64,
    ) -> bool {
        let free = self.supply_exact().free;
        let more = reclaimable(self.id()) / u64::from(order.get().max(1));
        self.has_room(order, highest, free.saturating_add(more))
    }
}
