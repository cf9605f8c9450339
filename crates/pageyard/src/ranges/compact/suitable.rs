//! Whether compacting a zone is worthwhile, and when enough has been done (spec §7.5).

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
    /// Returns whether the zone has the block that a job wants, above the request's watermark.
    pub(super) fn is_served(&self, order: Order, job: &Job) -> bool {
        let mark = self.watermarks.effective(job.flags.mark());
        let has_block = || self.has_block(order.get(), job.flags);
        self.watermarks.ok(order.get(), mark, job.highest, job.flags, self.supply(), has_block)
    }

    /// Returns whether there would be room to move blocks to if `free` pages were free.
    fn has_room(&self, order: Order, highest: ZoneKind, free: u64) -> bool {
        let mark = if order.get() > COSTLY_ORDER { LOW } else { MIN };
        let gap = 2 << order.get();
        let mark = self.watermarks.effective(mark).saturating_add(gap);
        let supply = Supply { free, ..self.supply() };
        self.watermarks.ok(0, mark, highest, AllocFlags::CMA, supply, || true)
    }

    /// Returns whether a request fails because of too little memory rather than fragmentation: the
    /// fragmentation index is from 0 to the threshold. `free`: the free pages.
    fn lacks_memory(&self, order: Order, free: u64, threshold: u64) -> bool {
        let blocks = match self.region() {
            None => self.free_blocks(),
            // All of them would be in all pageblocks, but only few must be there for an index that is
            // above the threshold.
            Some(region) => {
                let most = most_blocks(free, order, threshold);
                region.about_free_blocks(|blocks| {
                    let large = blocks.iter().skip(order.get().into()).sum::<u64>();
                    large > 0 || blocks.iter().sum::<u64>() > most
                })
            }
        };
        let index = fragmentation_index(&blocks, order);
        u64::try_from(index).is_ok_and(|i| i <= threshold)
    }

    /// Returns whether a request of this type would find a block of the order, of its own type or
    /// one that it may claim.
    pub(super) fn has_block_for(&self, order: Order, t: MigrateType) -> bool {
        (order.get()..=MAX_ORDER).any(|o| {
            let any = |t| !self.areas.list(o, t).is_empty();
            any(t) || t == MigrateType::Movable && any(MigrateType::Cma) || self.has_claimable(o, t)
        })
    }
}

/// Returns how many free blocks, all below an order, leave the fragmentation index (§9.6) of `free` pages at
/// or below the threshold.
const fn most_blocks(free: u64, order: Order, threshold: u64) -> u64 {
    let need = 1000 + free.saturating_mul(1000) / order.pages() as u64;
    match need.checked_div(1000_u64.saturating_sub(threshold)) {
        Some(most) => most,
        None => u64::MAX,
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Decides before a run for an order. `Success`: a block is available without compaction.
    /// `Skipped`: the run would probably fail. `Continue`: the run is worthwhile.
    #[inline(never)]
    pub(super) fn suits(&self, order: Order, job: &Job, threshold: u64) -> CompactResult {
        let zone = self.zone;
        if zone.is_served(order, job) {
            return CompactResult::Success;
        }
        let mut result = CompactResult::Continue;
        let free = zone.supply().free;
        if !zone.has_room(order, job.highest, free) {
            result = CompactResult::Skipped;
        } else if order.get() > COSTLY_ORDER && zone.lacks_memory(order, free, threshold) {
            // A cheap order is always worth a try. A costly one is worth it only if the request
            // fails because of fragmentation and not because of too little memory.
            result = CompactResult::NotSuitableZone;
        }
        self.tell(CompactEvent::Suitable { zone: zone.id(), order, result });
        if result == CompactResult::NotSuitableZone { CompactResult::Skipped } else { result }
    }
}

impl<C: Config> Yard<'_, C> {
    pub(super) fn extfrag_threshold(&self) -> u64 {
        self.setting(|knobs| knobs.extfrag_threshold)
    }

    /// Returns whether any zone that may serve this order could be compacted if its reclaimable
    /// pages were free. Call it after a compaction was [skipped](CompactResult::Skipped), to decide
    /// whether further reclaim is useful (§7.6). `reclaimable` returns a zone's reclaimable pages,
    /// of which one part in `order` is counted.
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
    /// Like [`Yard::could_compact`], for one zone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_5_one_more_block_lifts_the_index_above_the_threshold() {
        for o in 4..9 {
            let order = Order::new(o).unwrap();
            for (small, large) in [(1, 0), (0, 1), (40, 3), (1000, 0), (900, 800), (0, 1 << 20)] {
                let mut blocks = [0; MAX_ORDER as usize + 1];
                (blocks[0], blocks[3]) = (small, large);
                let index = fragmentation_index(&blocks, order);
                for threshold in [0, 1, 499, 500, 900, 999, 1000] {
                    let most = most_blocks(small + 8 * large, order, threshold);
                    let is_above = i64::from(index) > threshold as i64;
                    assert_eq!(small + large > most, is_above, "{o}: {index}, {threshold}");
                }
            }
        }
    }
}
