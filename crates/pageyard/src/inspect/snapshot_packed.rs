//! Snapshots of zones on the packed engine, and their restoration.
//!
//! The free counter follows from the records of free blocks, which must agree with the recorded one.

use lock_api::RawMutex;

use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, Order, PAGEBLOCK_PAGES, Pfn};
use crate::embedder::policy::Rules;
use crate::inspect::record::{Record, ZoneRecord, ensure};
use crate::packed::Region;
use crate::pcp::pageset::{list_index, list_type};
use crate::pcp::tuning::Tuning;
use crate::zone::state::{PerCpu, Zone};

/// What the records of a zone on the packed engine add up to.
#[derive(Default)]
pub(crate) struct Sums {
    /// Pages of all blocks.
    pages: u64,
    /// Free pages outside isolated pageblocks.
    free: i64,
    /// The CPUs' parts of the free counter.
    pub(crate) parts: i64,
    isolated_blocks: u64,
    /// Pageblocks of the highatomic reserve.
    reserved_blocks: u64,
}

impl<R: RawMutex> Zone<'_, R> {
    /// The records of a zone on the packed engine after the first. Blocks in depots are given as
    /// those of CPU 0.
    pub(crate) fn snapshot_packed(&self, region: &Region<'_, R>, each: &mut impl FnMut(Record)) {
        let end = self.first_index().saturating_add(self.spanned as u32);
        let blocks = (0..end).step_by(PAGEBLOCK_PAGES as usize);
        for idx in blocks.filter(|&idx| !self.block_is_absent(idx)) {
            let pfn = self.pfn(idx).max(self.start);
            each(Record::Block { pfn, migrate_type: self.block_type(idx) });
        }
        let order_of = |order| Order::new(order).unwrap_or_default();
        region.for_each_free(|idx, order, migrate_type| {
            each(Record::Free { pfn: self.pfn(idx), order: order_of(order), migrate_type });
        });
        for idx in 0..end {
            let state = self.state(idx);
            if state.kind() == Kind::Allocated {
                let (pfn, order) = (self.pfn(idx), order_of(state.order()));
                each(Record::Allocated { pfn, order, movable: state.is_movable() });
            }
            if region.blocks.is_marked(idx) && state.kind() != Kind::Reserved {
                each(Record::Poisoned { pfn: self.pfn(idx) });
            }
        }
        for (cpu, slot) in (0..).map(CpuId).zip(self.cpus) {
            let depots = if cpu.0 == 0 { region.depots.pages() } else { 0 };
            let pages = region.kept_by(cpu.0).saturating_add(depots);
            let tuning = slot.pageset.lock().tuning;
            each(Record::Cpu(slot.record(cpu, Tuning { count: pages as i32, ..tuning })));
            let mut cached = |idx, order, t: MigrateType| {
                each(Record::Cached { cpu, list: list_index(order, t), pfn: self.pfn(idx) });
            };
            region.for_each_kept(cpu.0, &mut cached);
            if cpu.0 == 0 {
                region.for_each_in_depots(&mut cached);
            }
        }
    }

    /// Reads a record of a pageblock, a block or a frame.
    pub(crate) fn read_packed(
        &self,
        rules: &Rules,
        region: &Region<'_, R>,
        record: Record,
        sums: &mut Sums,
    ) -> Result<(), &'static str> {
        match record {
            Record::Zone(_) | Record::Cpu(_) => {}
            Record::Block { pfn, migrate_type: t } => {
                let idx = self.index_of(pfn).ok_or("the frame is outside the zone")?;
                let isolated = t == MigrateType::Isolate;
                ensure(region.restore_block(idx, t), "the pageblock appears twice")?;
                sums.isolated_blocks += u64::from(isolated);
                sums.reserved_blocks += u64::from(t == MigrateType::HighAtomic);
            }
            Record::Free { pfn, order, migrate_type } => {
                let idx = self.occupy_packed(region, pfn, order.get(), sums)?;
                let last = idx + order.pages() - 1;
                ensure(
                    [idx, last].iter().all(|&i| region.restored_type(i) == Some(migrate_type)),
                    "the block is on another type's list than its pageblock's",
                )?;
                sums.free += i64::from(region.restore_free(idx, order.get()));
            }
            Record::Allocated { pfn, order, movable } => {
                let idx = self.occupy_packed(region, pfn, order.get(), sums)?;
                let t = match region.restored_type(idx) {
                    _ if movable => MigrateType::Movable,
                    Some(MigrateType::Reclaimable) => MigrateType::Reclaimable,
                    _ => MigrateType::Unmovable,
                };
                region.restore_held(idx, order.get());
                region.set_allocated(idx, order.get(), t);
            }
            Record::Guard { .. } => return Err("the policy has no guards of this order"),
            Record::Bad { .. } => return Err("the packed engine has no bad blocks"),
            Record::Poisoned { pfn } => self.read_poisoned_packed(region, pfn, sums)?,
            Record::Cached { cpu, list, pfn } => {
                let (slot, order) = self.list_of(rules, cpu, list)?;
                let part = region.cpus.get(cpu.0 as usize).ok_or("the layout has no such CPU")?;
                let idx = self.occupy_packed(region, pfn, order, sums)?;
                let mut pageset = slot.pageset.lock();
                pageset.tuning.count = pageset.tuning.count.wrapping_sub(1 << order);
                drop(pageset);
                region.restore_held(idx, order);
                // As a free: what magazines and depots have no room for goes to the zone.
                let mut own = part.own.lock();
                region.put_block(&mut own, idx, order, list_type(list) as usize);
                slot.settle(self, &mut own);
            }
        }
        Ok(())
    }

    /// Turns the frames of a block, absent so far, into its frames. Counts them.
    fn occupy_packed(
        &self,
        region: &Region<'_, R>,
        pfn: Pfn,
        order: u8,
        sums: &mut Sums,
    ) -> Result<u32, &'static str> {
        let frames = self.frames_of_block(pfn, order)?;
        for i in frames.clone() {
            let there = region.restored_type(i).is_some();
            ensure(there, "a block in a pageblock that has no record")?;
            ensure(!region.blocks.is_marked(i), "the block has a frame that is faulty")?;
            ensure(region.restore_frame(i), "the block overlaps another one")?;
        }
        sums.pages += 1 << order;
        Ok(frames.start)
    }

    /// Marks a frame of a block as poisoned, or takes a frame that is in no block out of use.
    fn read_poisoned_packed(
        &self,
        region: &Region<'_, R>,
        pfn: Pfn,
        sums: &mut Sums,
    ) -> Result<(), &'static str> {
        let idx = self.index_of(pfn).ok_or("the frame is outside the zone")?;
        ensure(!region.blocks.is_marked(idx), "the frame is faulty already")?;
        let over = self.block_over(idx).map(|(_, state)| state.kind());
        if over == Some(Kind::Allocated) {
            let _lock = self.lock.lock();
            region.mark(idx);
            return Ok(());
        }
        let absent = region.state(idx).is_some_and(|state| state.is_absent());
        ensure(absent, "a faulty frame in a block that is neither allocated nor bad")?;
        self.occupy_packed(region, pfn, 0, sums)?;
        let _lock = self.lock.lock();
        region.restore_faulty(idx);
        Ok(())
    }

    /// Checks that the blocks add up to what the records of the zone and its CPUs say.
    pub(crate) fn check_packed(&self, z: &ZoneRecord, sums: &Sums) -> Result<(), &'static str> {
        for slot in self.cpus {
            let left = slot.pageset.lock().tuning.count;
            ensure(left == 0, "a CPU's count is not what its lists hold")?;
        }
        ensure(sums.pages <= z.managed, "more pages in blocks than managed")?;
        let counted = z.nr_free.saturating_add(sums.parts);
        ensure(counted == sums.free, "the free counter is not what the free blocks add up to")?;
        ensure(
            z.isolated_blocks == sums.isolated_blocks,
            "the number of isolated pageblocks is not that of their records",
        )?;
        let reserved = sums.reserved_blocks.saturating_mul(PAGEBLOCK_PAGES.into());
        ensure(
            z.reserved_highatomic >= reserved,
            "the highatomic reserve is smaller than its pageblocks",
        )
    }

    /// Publishes all pageblocks and their free pages. The caller holds the zone lock.
    pub(crate) fn publish_packed(&self, region: &Region<'_, R>, sums: &Sums) {
        let end = self.first_index().saturating_add(self.spanned as u32);
        for idx in (0..end).step_by(PAGEBLOCK_PAGES as usize) {
            region.finish_restore(idx);
        }
        let reserved = sums.reserved_blocks.saturating_mul(PAGEBLOCK_PAGES.into());
        self.reserved_highatomic.store(reserved, Relaxed);
        // In a zone that had such pageblocks before, what became free during the restore is counted already.
        region.blocks.recount_set_apart();
        self.add_free_packed(sums.free.wrapping_sub(sums.parts));
        self.count_loose(region);
    }

    /// Undoes what the records read so far have done.
    pub(crate) fn make_blank_packed(&self, region: &Region<'_, R>) {
        for (slot, part) in self.cpus.iter().zip(region.cpus) {
            let mut own = part.own.lock();
            own.forget();
            slot.settle(self, &mut own);
            slot.set_diff(0);
        }
        let _lock = self.lock.lock();
        region.make_blank();
        region.blocks.recount_set_apart();
        region.take_loose();
        region.depots.forget_parts();
        self.nr_free.store(0, Relaxed);
        self.near_mark().note_counter(0);
    }

    /// Lets requests use the magazines of the CPUs that are online. The caller holds `limits_lock`.
    pub(crate) fn enable_restored(&self) {
        let enabled = self.disabled.load(Relaxed) == 0;
        for (cpu, _) in (0..).map(CpuId).zip(self.cpus).filter(|(_, s)| s.up.load(Relaxed)) {
            self.enable_packed(cpu, enabled);
        }
    }
}

impl<R: RawMutex> PerCpu<R> {
    /// Adds to the CPU's part of the free counter, which belongs to the holder of the CPU's lock.
    pub(crate) fn restore_diff(&self, region: &Region<'_, R>, cpu: CpuId, pages: i32) {
        let own = region.cpus.get(cpu.0 as usize).map(|part| part.own.lock());
        self.set_diff(self.diff().saturating_add(pages));
        drop(own);
    }
}
