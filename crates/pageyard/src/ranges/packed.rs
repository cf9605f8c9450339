//! Ranges on the packed engine: isolation, blocks at a given place, memory that comes and goes. The
//! steps above these (which pageblocks, in which order, what migrates) are the same for both
//! engines.

use core::ops::Range;

use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CpuId, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, block_start, each_block,
};
use crate::embedder::config::Config;
use crate::packed::Region;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::{IsolateError, Purpose};
use crate::ranges::place::PlaceError;
use crate::request::alloc::AllocError;
use crate::zone::at::{At, Locked};

/// Attempts to isolate a pageblock that a CPU refills from.
const TRIES: usize = 8;

impl<'a, C: Config> At<'_, 'a, C> {
    /// Drains all CPUs and depots of the zone.
    pub(crate) fn drain_packed_zone(&self) {
        (0..self.zone.cpus.len() as u32).for_each(|cpu| self.drain_packed(CpuId(cpu)));
        self.zone.drain_depots();
    }

    /// Isolates one pageblock. A pageblock that a CPU refills from is not isolated until that CPU is
    /// drained.
    pub(crate) fn isolate_packed(
        &self,
        region: &Region<'a, C::Lock>,
        block: u32,
        frames: &Range<u32>,
        t: MigrateType,
        purpose: Purpose,
    ) -> Result<(), IsolateError> {
        for _ in 0..TRIES {
            // A statement of its own: a drain waits for CPUs, which must not be under the zone lock.
            let answer = self.lock().isolate_packed(region, block, frames, t, purpose);
            match answer {
                Err(IsolateError::Isolated(p))
                    if !region.blocks.is_isolated(block / PAGEBLOCK_PAGES) =>
                {
                    if region.is_allocated_whole(block) {
                        return Err(IsolateError::Unmovable(p));
                    }
                    self.drain_packed_zone();
                }
                answer => return answer,
            }
        }
        Err(IsolateError::Isolated(self.zone.pfn(block)))
    }
}

impl<'a, C: Config> Locked<'_, 'a, C> {
    /// One attempt. The zone lock serialises the beginnings and ends of isolations.
    fn isolate_packed(
        &self,
        region: &Region<'a, C::Lock>,
        block: u32,
        frames: &Range<u32>,
        t: MigrateType,
        purpose: Purpose,
    ) -> Result<(), IsolateError> {
        let z = self.zone;
        let end = block.saturating_add(PAGEBLOCK_PAGES);
        let tested = frames.start.max(block)..frames.end.min(end);
        if let Some(idx) = z.unmovable_in(tested, t, purpose) {
            return Err(IsolateError::Unmovable(z.pfn(idx)));
        }
        if z.whole_block(block).is_none() {
            return Err(IsolateError::ZoneEdge(z.pfn(block)));
        }
        let was = z.block_type(block);
        // A block of whole pageblocks that a contiguous range allocated in a CMA area, or such a block on its
        // way: when its free ends, its pageblock must still be set apart.
        if was.is_set_apart() && region.is_allocated_whole(block) {
            return Err(IsolateError::Unmovable(z.pfn(block)));
        }
        if was.is_set_apart() && region.first_in_transit(block..block + 1).is_some() {
            return Err(IsolateError::Isolated(z.pfn(block)));
        }
        if !region.isolate_block(block / PAGEBLOCK_PAGES) {
            return Err(IsolateError::Isolated(z.pfn(block)));
        }
        z.count_loose(region);
        z.isolated_blocks.fetch_add(1, Relaxed);
        match was {
            MigrateType::HighAtomic => self.forget_reserved(),
            MigrateType::Cma => z.refresh_cached_mark(self.rules()),
            _ => {}
        }
        Ok(())
    }

    /// Isolates a pageblock for compaction, which ends that with
    /// [`end_compaction`](Self::end_compaction), unless one of these frames cannot move.
    pub(crate) fn isolate_for_compaction(
        &self,
        region: &Region<'a, C::Lock>,
        block: u32,
        frames: &Range<u32>,
    ) -> bool {
        let (first, t) = (block * PAGEBLOCK_PAGES, MigrateType::Movable);
        let done = !region.blocks.is_set_apart(block)
            && self.isolate_packed(region, first, frames, t, Purpose::Use).is_ok();
        if done {
            region.blocks.set_compacted(block);
        }
        done
    }

    /// Ends an isolation that compaction began, unless another call ended it meanwhile. That call may
    /// have been followed by an isolation that is not compaction's. The pageblock keeps its type.
    pub(crate) fn end_compaction(&self, region: &Region<'a, C::Lock>, block: u32) {
        if region.blocks.is_compacted(block) {
            let t = region.blocks.block_type(block);
            self.unisolate_packed(region, block * PAGEBLOCK_PAGES, t);
        }
    }

    /// Ends the isolation of a pageblock, which gets type `t`. Nothing happens to any other one.
    pub(crate) fn unisolate_packed(
        &self,
        region: &Region<'a, C::Lock>,
        block: u32,
        t: MigrateType,
    ) {
        // Pageblocks of sections that were removed stay isolated.
        let here = !self.zone.block_is_absent(block);
        if here && region.unisolate_block(block / PAGEBLOCK_PAGES, t) {
            self.count_frees(region);
            self.zone.isolated_blocks.fetch_sub(1, Relaxed);
            if t == MigrateType::Cma {
                self.zone.refresh_cached_mark(self.rules());
            }
        }
    }

    /// Allocates all frames of an isolated range in blocks of one order, or none. Removes them with
    /// [`Purpose::Leave`].
    pub(crate) fn take_packed_range(
        &self,
        region: &Region<'a, C::Lock>,
        frames: &Range<u32>,
        purpose: Purpose,
        order: Order,
    ) -> Result<(), ContigError> {
        let z = self.zone;
        if let Some(block) = each_block(block_start(frames.start)..frames.end)
            .find(|block| !region.blocks.is_isolated(block / PAGEBLOCK_PAGES))
        {
            return Err(ContigError::Busy(z.pfn(block)));
        }
        region
            .take_bits(frames.clone(), purpose == Purpose::Leave)
            .map_err(|frame| ContigError::Busy(z.pfn(frame)))?;
        z.count_loose(region);
        if purpose == Purpose::Leave {
            self.forget_packed(region, frames);
            return Ok(());
        }
        // Under the same hold of the lock: a call that ends the isolation finds blocks in use. The
        // pageblocks may be movable; that the owner can move the frames it has to say first.
        for frame in frames.clone().step_by(1 << order.get()) {
            region.set_allocated(frame, order.get(), MigrateType::Unmovable);
        }
        let pages = frames.end.wrapping_sub(frames.start);
        z.placed_pages.fetch_add(pages.into(), Relaxed);
        Ok(())
    }

    /// Removes empty sections. Their pageblocks stay isolated until memory is added again.
    fn forget_packed(&self, region: &Region<'a, C::Lock>, frames: &Range<u32>) {
        let z = self.zone;
        let pages = frames.end.wrapping_sub(frames.start);
        region.forget(frames.clone());
        for block in each_block(frames.clone()) {
            region.count_again(block / PAGEBLOCK_PAGES);
        }
        z.count_loose(region);
        let blocks = u64::from(pages / PAGEBLOCK_PAGES);
        z.isolated_blocks.fetch_sub(blocks, Relaxed);
        z.managed.fetch_sub(pages.into(), Relaxed);
        z.present.fetch_sub(pages.into(), Relaxed);
    }
}

impl<'a, C: Config> At<'_, 'a, C> {
    /// Adds sections of free memory, and holds the zone lock for one pageblock at a time.
    pub(crate) fn arrive_packed(&self, region: &Region<'a, C::Lock>, frames: &Range<u32>) {
        let z = self.zone;
        for block in each_block(frames.clone()) {
            let locked = self.lock();
            // Isolated since the memory was removed, if it ever was there. Depots are open again.
            region.blocks.unisolate(block / PAGEBLOCK_PAGES, Some(MigrateType::Movable));
            // Cannot fail: the sections are this zone's, and none of their frames is memory.
            _ = region.add_as(z.pfn(block)..z.pfn(block + PAGEBLOCK_PAGES), false);
            z.present.fetch_add(PAGEBLOCK_PAGES.into(), Relaxed);
            z.managed.fetch_add(PAGEBLOCK_PAGES.into(), Relaxed);
            drop(locked);
            // Asks the clock.
            self.count_frees(region);
        }
    }

    /// Frees reserved memory of the zone.
    pub(crate) fn release_reserved_packed(&self, region: &Region<'a, C::Lock>, range: Range<Pfn>) {
        let pages = range.end.0.wrapping_sub(range.start.0);
        // Cannot fail: `release` has checked each frame, and calls wait for each other.
        if region.add_as(range, true).is_ok() {
            self.zone.managed.fetch_add(pages, Relaxed);
        }
        self.count_frees(region);
    }

    /// Allocates the block at a frame, if all of it is free and the zone keeps its MIN watermark.
    pub(crate) fn take_packed_at(
        &self,
        region: &Region<'a, C::Lock>,
        idx: u32,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
    ) -> Result<(), PlaceError> {
        let z = self.zone;
        for drained in [false, true] {
            let blocks = each_block(block_start(idx)..idx.saturating_add(1 << order));
            for block in blocks {
                let of = z.block_type(block);
                let cma = of == MigrateType::Cma && t == MigrateType::Movable;
                let fits = cma && order < PAGEBLOCK_ORDER;
                if of == MigrateType::Isolate || of.is_set_apart() && !fits {
                    let first = block.max(idx);
                    let state = region.state(first);
                    return Err(match state.is_none_or(|state| state.is_absent()) {
                        // Pageblocks of memory that left stay isolated.
                        true => PlaceError::Reserved(z.pfn(first)),
                        false => PlaceError::Withheld(z.pfn(first), of),
                    });
                }
            }
            let busy = match region.first_not_free(idx, order) {
                None if !z.can_spare(order, flags) => return Err(AllocError::NoMemory.into()),
                None => match region.take_exact(idx, order, t) {
                    true => {
                        z.count_loose(region);
                        self.slot.counters.direct_allocs.add_shared(order, t);
                        return Ok(());
                    }
                    // Another request was faster.
                    false => idx,
                },
                Some(frame) => frame,
            };
            let pfn = z.pfn(busy);
            if region.state(busy).is_none_or(|state| state.is_absent()) {
                return Err(PlaceError::Reserved(pfn));
            }
            if drained || z.block_over(busy).is_some() {
                return Err(PlaceError::InUse(pfn));
            }
            // Perhaps a CPU or a depot has it.
            self.drain_packed_zone();
        }
        Err(PlaceError::InUse(z.pfn(idx)))
    }

    /// Allocates a movable block outside these pageblocks, if the zone keeps its MIN watermark.
    pub(crate) fn take_packed_outside(
        &self,
        region: &Region<'a, C::Lock>,
        order: u8,
        blocks: &Range<u32>,
    ) -> Option<u32> {
        let z = self.zone;
        if !z.can_spare(order, AllocFlags::WMARK_MIN) {
            return None;
        }
        let below = z.start..z.pfn(blocks.start.max(z.first_index()));
        let above = z.pfn(blocks.end)..Pfn(u64::MAX);
        let take = |within| self.take_packed_placed(region, order, 1, within, MigrateType::Movable);
        take(below).or_else(|| take(above))
    }

    /// Allocates the first block of the zone within a range that meets an alignment.
    pub(crate) fn take_packed_placed(
        &self,
        region: &Region<'a, C::Lock>,
        order: u8,
        align: u64,
        within: Range<Pfn>,
        t: MigrateType,
    ) -> Option<u32> {
        let z = self.zone;
        let step = align.max(1 << order);
        let mut start = z.start.max(within.start).0.checked_next_multiple_of(step)?;
        let end = within.end.min(z.end()).0;
        while start.checked_add(1 << order)? <= end {
            let idx = z.index_of(Pfn(start))?;
            let block = idx / PAGEBLOCK_PAGES;
            if order < PAGEBLOCK_ORDER && region.is_full(block) {
                let next = u64::from(block + 1) * u64::from(PAGEBLOCK_PAGES) + z.base;
                start = next.checked_next_multiple_of(step)?;
                continue;
            }
            if region.first_not_free(idx, order).is_none() && region.take_exact(idx, order, t) {
                z.count_loose(region);
                self.slot.counters.direct_allocs.add_shared(order, t);
                return Some(idx);
            }
            start = start.checked_add(step)?;
        }
        None
    }
}
