//! Requests on the packed engine: how one zone serves a request and takes a block back. Everything
//! above (zonelists, watermarks, reserves, the slow path, hooks) is the same for both engines.
//!
//! Magazines, run and pending word belong to the holder of the CPU's lock, and so do the CPU's part
//! of the zone's free counter (`zone::packed_parts`) and its counters. No other lock is taken, but the
//! zone lock for counters of rare events.

use core::mem::take;

use lock_api::{MutexGuard, RawMutex};

use crate::allocator::yard::Yard;
use crate::base::free_error::FreeError;
use crate::base::gfp::AllocFlags;
use crate::base::stats::DrainReason;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CACHED_TYPES, CpuId, MigrateType, Order, PAGEBLOCK_PAGES, Pfn, ZoneKind};
use crate::base::unwind::Rollback;
use crate::base::watermark::{HIGH, Supply};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::packed;
use crate::packed::Region;
use crate::packed::class::{class_of, is_kept};
use crate::packed::cpu::{Cpu, Mixing};
use crate::request::free::{BATCH, BatchError};
use crate::zone::at::At;
use crate::zone::state::Zone;

/// A region, and a CPU's part of it whose lock is held.
type Own<'z, 'a, R> = (&'z Region<'a, R>, MutexGuard<'z, R, Cpu>);

impl<'z, 'a, C: Config> At<'z, 'a, C> {
    /// Returns the zone's region and this CPU's part of it, if no one else holds its lock.
    #[inline(always)]
    fn own(&self) -> Option<Own<'z, 'a, C::Lock>> {
        let region = self.zone.region()?;
        let own = region.cpus.get(self.cpu.0 as usize)?.own.try_lock()?;
        Some((region, own))
    }

    /// The common case of a request: a block of the loaded magazine or the run. `part` is this CPU's.
    #[inline(always)]
    pub(crate) fn pop_packed(
        &self,
        part: &packed::PerCpu<C::Lock>,
        order: u8,
        t: MigrateType,
    ) -> Option<u32> {
        let (region, mut own) = (self.zone.region()?, part.own.try_lock()?);
        let frame = region.pop_block(&mut own, order, t)?;
        self.slot.counters.allocs.add(order, t);
        Some(frame)
    }

    /// Returns whether this CPU's magazines, or a depot, have a block for a request. The zone may have none
    /// of this order then.
    #[cold]
    #[inline(never)]
    pub(crate) fn keeps_block(&self, order: u8, t: MigrateType) -> bool {
        let kept = (t as usize) < CACHED_TYPES && is_kept(order);
        kept && self.own().is_some_and(|(region, own)| {
            let class = class_of(order, t as usize);
            own.is_enabled
                && (region.keeps(&own, class) || region.depots.has_full(own.domain as usize, class))
        })
    }

    /// The common case of a free. `part` is this CPU's. `OWNED`: no other thread can free the block.
    /// `None`: nothing has changed.
    #[inline(always)]
    pub(crate) fn free_packed_fast<const OWNED: bool>(
        &self,
        part: &packed::PerCpu<C::Lock>,
        pfn: Pfn,
        order: u8,
    ) -> Option<()> {
        let (region, mut own) = (self.zone.region()?, part.own.try_lock()?);
        if !own.is_enabled {
            return None;
        }
        let (frame, t) = region.begin_free::<OWNED>(pfn, order)?;
        let untold = Rollback::new(|| region.roll_back_free(frame, order, t));
        self.note_free(frame, order);
        untold.disarm();
        self.slot.counters.frees.add(order, MigrateType::from_bits(t as u32));
        if region.put_block(&mut own, frame, order, t) {
            self.settle(region, &mut own);
        }
        Some(())
    }

    /// Takes a block: from this CPU's magazines, which are refilled, or from the zone.
    #[inline(always)]
    pub(crate) fn take_packed(&self, order: u8, t: MigrateType, flags: AllocFlags) -> Option<u32> {
        let region = self.zone.region()?;
        let mixes = !flags.contains(AllocFlags::NOFRAGMENT);
        if region.blocks.has_set_apart() && !flags.contains(AllocFlags::NO_WAIT) {
            return self.take_with_set_apart(region, order, t, flags, mixes);
        }
        self.take_ordinary(region, order, t, flags, mixes)
    }

    /// Takes a block, possibly from a pageblock that is set apart. CMA pageblocks serve movable requests
    /// before pageblocks of other types do, and first while they hold more than half of the free pages
    /// (§4.3). The highatomic reserve serves urgent requests after the magazines and their refills, but before
    /// the rest of the zone, and others that must not wait as the last (§3.8).
    #[cold]
    #[inline(never)]
    fn take_with_set_apart(
        &self,
        region: &Region<'a, C::Lock>,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
        mixes: bool,
    ) -> Option<u32> {
        let cma = flags.contains(AllocFlags::CMA);
        let reserve = || self.take_set_apart(region, order, t, MigrateType::HighAtomic);
        let area = || self.take_set_apart(region, order, t, MigrateType::Cma);
        let ordinary = |mixes| self.take_ordinary(region, order, t, flags, mixes);
        let mut frame = None;
        if flags.contains(AllocFlags::HIGHATOMIC) && !is_kept(order) {
            frame = reserve();
        }
        if cma {
            if self.zone.supply().is_mostly_cma() {
                frame = frame.or_else(area);
            }
            frame = frame.or_else(|| ordinary(false)).or_else(area);
        }
        if mixes || !cma {
            frame = frame.or_else(|| ordinary(mixes));
        }
        let last = AllocFlags::HIGHATOMIC | AllocFlags::OOM | AllocFlags::NON_BLOCK;
        if flags.intersects(last) {
            frame = frame.or_else(reserve);
        }
        frame
    }

    fn take_set_apart(
        &self,
        region: &Region<'a, C::Lock>,
        order: u8,
        t: MigrateType,
        from: MigrateType,
    ) -> Option<u32> {
        let frame = region.take_set_apart(self.cpu.0, order, t, from);
        self.zone.count_loose(region);
        if frame.is_some() {
            self.slot.counters.direct_allocs.add_shared(order, t);
        }
        frame
    }

    #[inline(never)]
    fn take_ordinary(
        &self,
        region: &Region<'a, C::Lock>,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
        mixes: bool,
    ) -> Option<u32> {
        if is_kept(order) {
            match self.own() {
                Some((region, mut own)) if own.is_enabled => {
                    let before = own.counts;
                    let frame = region.take_block(&mut own, order, t, mixes);
                    if frame.is_some() {
                        self.slot.counters.allocs.add(order, t);
                    }
                    self.settle(region, &mut own);
                    let mixing = Mixing::between(&before, &own.counts).and(region.take_mixing());
                    drop(own);
                    self.note_mixing(mixing, flags);
                    return frame;
                }
                Some(_) => {}
                None => _ = self.zone.bypasses.fetch_add(1, Relaxed),
            }
        }
        if flags.contains(AllocFlags::NO_WAIT) {
            // Without magazines it might look at every pageblock.
            return None;
        }
        let frame = region.take_alone(None, region.here(self.cpu.0), order, t, mixes);
        self.zone.count_loose(region);
        self.note_mixing(region.take_mixing(), flags);
        if frame.is_some() {
            self.slot.counters.direct_allocs.add_shared(order, t);
        }
        frame
    }

    /// Fills places with single pages under one lock of the CPU's magazines. Returns how many.
    pub(crate) fn take_packed_bulk<'p>(
        &self,
        t: MigrateType,
        flags: AllocFlags,
        places: impl Iterator<Item = &'p mut u32>,
    ) -> usize {
        let Some((region, mut own)) = self.own().filter(|(_, own)| own.is_enabled) else {
            return 0;
        };
        let before = own.counts;
        let cma = region.blocks.has_set_apart() && flags.contains(AllocFlags::CMA);
        let mut got = 0;
        for place in places {
            let mut own_page = |mixes| {
                let frame = region.take_block(&mut own, 0, t, mixes)?;
                self.slot.counters.allocs.add(0, t);
                Some(frame)
            };
            let frame = match cma {
                true => self.take_beside_area(region, t, own_page),
                false => own_page(true),
            };
            let Some(frame) = frame else { break };
            *place = frame;
            got += 1;
        }
        self.settle(region, &mut own);
        let mixing = Mixing::between(&before, &own.counts).and(region.take_mixing());
        drop(own);
        self.note_mixing(mixing, flags);
        got
    }

    /// Takes a movable page: as [`take_with_set_apart`](Self::take_with_set_apart), with the CPU's magazines
    /// behind `own_page`, which may mix types.
    #[cold]
    #[inline(never)]
    fn take_beside_area(
        &self,
        region: &Region<'a, C::Lock>,
        t: MigrateType,
        mut own_page: impl FnMut(bool) -> Option<u32>,
    ) -> Option<u32> {
        let area = || self.take_set_apart(region, 0, t, MigrateType::Cma);
        let first = if self.zone.supply().is_mostly_cma() { area() } else { None };
        first.or_else(|| own_page(false)).or_else(area).or_else(|| own_page(true))
    }

    /// Returns a block that has left its owner to this CPU's magazines or to the zone.
    pub(crate) fn put_packed(&self, frame: u32, order: u8) {
        let Some(region) = self.zone.region() else { return };
        // Frees into an isolated pageblock go to the zone at once: the isolating call waits for them.
        let isolated = region.blocks.is_isolated(frame / PAGEBLOCK_PAGES);
        match self.own() {
            Some((region, mut own)) if own.is_enabled && is_kept(order) && !isolated => {
                let t = region.finish_leaving(frame);
                self.slot.counters.frees.add(order, MigrateType::from_bits(t as u32));
                region.put_block(&mut own, frame, order, t);
                return self.settle(region, &mut own);
            }
            Some(_) => {}
            None => _ = self.zone.bypasses.fetch_add(1, Relaxed),
        }
        self.put_packed_direct(frame, order);
    }

    /// Returns up to [`BATCH`] blocks that have left their owners to this CPU's magazines or to the
    /// zone. `SINGLE`: all of them are pages; with that constant it takes half of the instructions.
    fn put_packed_batch<const SINGLE: bool>(&self, blocks: &[(u32, u8)]) {
        let blocks = blocks.iter().map(|&(frame, order)| (frame, if SINGLE { 0 } else { order }));
        let mut direct = u32::MAX;
        match self.own() {
            Some((region, mut own)) if own.is_enabled => {
                direct = 0;
                let mut settles = false;
                for (n, (frame, order)) in blocks.clone().enumerate() {
                    // What goes to an isolated pageblock is waited for.
                    if !is_kept(order) || region.blocks.is_isolated(frame / PAGEBLOCK_PAGES) {
                        direct |= 1 << n;
                        continue;
                    }
                    let t = region.finish_leaving(frame);
                    self.slot.counters.frees.add(order, MigrateType::from_bits(t as u32));
                    settles |= region.put_block(&mut own, frame, order, t);
                }
                if settles {
                    self.settle(region, &mut own);
                }
            }
            Some(_) => {}
            None => _ = self.zone.bypasses.fetch_add(1, Relaxed),
        }
        if direct != 0 {
            let left = blocks.enumerate().filter(|(n, _)| direct >> n & 1 != 0);
            left.for_each(|(_, (frame, order))| self.put_packed_direct(frame, order));
        }
    }

    /// Returns a block that has left its owner to the zone.
    fn put_packed_direct(&self, frame: u32, order: u8) {
        let Some(region) = self.zone.region() else { return };
        let t = MigrateType::from_bits(region.finish_leaving(frame) as u32);
        region.free_large(frame, order, self.cpu.0);
        self.count_frees(region);
        self.slot.counters.direct_frees.add_shared(order, t);
    }

    /// Returns a block to the zone after a hook panicked before the caller received it. The observer
    /// is not told.
    pub(crate) fn give_up_packed(&self, frame: u32, order: u8) {
        let Some(region) = self.zone.region() else { return };
        if region.begin_leaving::<false>(frame, order) {
            self.put_packed_direct(frame, order);
        }
    }

    /// Counts pages that moved between the CPU and the zone. The caller holds the CPU's lock.
    fn settle(&self, region: &Region<'_, C::Lock>, own: &mut Cpu) {
        let (taken, returned) = self.slot.settle(self.zone, own);
        let counters = &self.slot.counters;
        if taken > 0 {
            counters.refills.add(1);
            counters.refilled_pages.add(taken);
        }
        if own.lost > 0 {
            // They were freed to this CPU, which does not keep them.
            counters.drained_pages[DrainReason::High as usize].add(take(&mut own.lost).into());
        }
        if returned > 0 {
            counters.count_drain(DrainReason::High, returned);
            self.count_frees(region);
        } else {
            self.zone.count_loose(region);
        }
    }

    /// Counts pages that moved to the zone without a CPU's part, and requests a report if there is
    /// something to report (§9.9).
    pub(crate) fn count_frees(&self, region: &Region<'_, C::Lock>) {
        self.zone.count_loose(region);
        if self.hooks.report_order().is_some()
            && !self.zone.report.pending.load(Relaxed)
            && region.has_unreported()
        {
            self.zone.report.request(self.hooks);
        }
    }

    /// Counts pageblocks that served another type, and boosts the watermarks after one that changed
    /// its type (§3.4).
    fn note_mixing(&self, mixing: Mixing, flags: AllocFlags) {
        let Mixing { claims, steals, relabels } = mixing;
        if claims == 0 && steals == 0 {
            return;
        }
        let counters = &self.zone.counters;
        counters.claims_whole.add_shared(claims);
        counters.claims_part.add_shared(relabels);
        counters.steals.add_shared(steals.saturating_sub(relabels));
        if relabels > 0
            && let Some(zone) = self.lock_for(flags)
        {
            (0..relabels).for_each(|_| zone.boost(flags.contains(AllocFlags::KSWAPD)));
        }
    }

    /// Returns the frees that this CPU has collected to the zone, unless it is in a request.
    pub(crate) fn flush_packed(&self) {
        if let Some((region, mut own)) = self.own() {
            region.flush(&mut own);
            self.settle(region, &mut own);
        }
    }

    /// Ends this CPU's refills from a pageblock, unless it is in a request.
    pub(crate) fn release_packed(&self, block: u32) {
        if let Some((region, own)) = self.own() {
            region.release_current(own.number, block);
        }
    }

    /// Returns all of a CPU's frames to the zone. Waits for a request of that CPU.
    pub(crate) fn drain_packed(&self, owner: CpuId) {
        let Some(region) = self.zone.region() else { return };
        let (Some(part), Some(slot)) = (region.cpus.get(owner.0 as usize), self.zone.slot(owner))
        else {
            return;
        };
        slot.drain_own(self.zone, region, &mut part.own.lock());
        self.count_frees(region);
    }

    /// Returns what magazines and depots keep to the zone, but for CPUs that are in a request: those are
    /// asked to drain themselves. Waits for no one, so any request may call it.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_kept(&self) {
        let Some(region) = self.zone.region() else { return };
        for (part, slot) in region.cpus.iter().zip(self.zone.cpus) {
            match part.own.try_lock() {
                Some(mut own) => slot.drain_own(self.zone, region, &mut own),
                None => part.shared.request_drain(),
            }
        }
        self.zone.drain_depots();
        self.count_frees(region);
    }

    /// Runs one tick for this CPU (§9.2): adds its part to the zone's counter, returns frees that it
    /// has collected, and trims its domain's depot if it is this CPU's turn. `most` is what is left of
    /// the magazines that the tick returns to zones. Returns whether a depot that it trims has pages for
    /// another tick. (No tick empties magazines.)
    pub(crate) fn tick_packed(&self, most: &mut u32) -> bool {
        let Some(region) = self.zone.region() else { return false };
        let Some(own) = self.fold_packed(region) else { return false };
        self.slot.counters.ticks.add(1);
        drop(own);
        self.zone.note_above_high();
        let depots_keep = region.tick_cpu(self.cpu.0, most);
        self.count_frees(region);
        depots_keep
    }

    /// Returns the frees that the CPU has collected, and folds its parts of the zone's counter (§9.2).
    /// Returns what the CPU owns, still locked.
    pub(crate) fn fold_packed(
        &self,
        region: &'z Region<'a, C::Lock>,
    ) -> Option<MutexGuard<'z, C::Lock, Cpu>> {
        let mut own = region.cpus.get(self.cpu.0 as usize)?.own.lock();
        region.flush(&mut own);
        self.slot.fold(self.zone, &mut own);
        Some(own)
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns whether a block of this order fails this mark only for want of pages that magazines and
    /// depots keep. They do not count as free, and in a small zone they may be nearly all there is; or the
    /// zone has enough pages, and only they are a block of this order.
    pub(crate) fn lacks_kept(
        &self,
        order: u8,
        mark: u64,
        highest: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        let Some(region) = self.region() else { return false };
        let supply = self.supply_exact();
        let suffices = |supply: Supply| {
            if flags.contains(AllocFlags::NO_WATERMARKS) {
                return supply.free >> order > 0;
            }
            self.watermarks.ok(order, mark, highest, flags, supply, || true)
        };
        if suffices(supply) {
            return !self.has_block(order, flags) && region.idle_keeps_block(order);
        }
        let with = |kept| Supply { free: supply.free.saturating_add(kept), ..supply };
        suffices(with(region.kept_by_idle()))
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Drains the magazines and depots of the zones that are below their HIGH marks only for want of
    /// what these keep. Background reclaim then has nothing to reclaim.
    pub(crate) fn free_kept_of(&self, zones: &'a [Zone<'a, C::Lock>]) {
        for zone in zones {
            let mark = zone.watermarks.effective(HIGH);
            if zone.lacks_kept(0, mark, zone.kind, AllocFlags::empty())
                && let Some(at) = self.at_any(zone)
            {
                at.free_kept();
            }
        }
    }

    /// Frees a block outside the common case.
    pub(crate) fn free_rest_packed(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let (at, frame) = self.begin_free(pfn, order)?;
        self.finish_free_packed(&at, frame, order);
        Ok(())
    }

    /// Reports a free and completes it.
    pub(crate) fn finish_free_packed(&self, at: &At<'_, 'a, C>, frame: u32, order: Order) {
        self.report_free_packed(at, frame, order);
        at.put_packed(frame, order.get());
    }

    /// Reports a free. If the observer panics, the block stays its owner's.
    fn report_free_packed(&self, at: &At<'_, 'a, C>, frame: u32, order: Order) {
        let untold = Rollback::new(|| {
            if let Some(region) = at.zone.region() {
                region.stay(frame);
            }
        });
        at.note_free(frame, order.get());
        untold.disarm();
    }

    /// Frees a block to the zone, past this CPU's magazines.
    pub(crate) fn free_direct_packed(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let (at, frame) = self.begin_free(pfn, order)?;
        self.report_free_packed(&at, frame, order);
        at.put_packed_direct(frame, order.get());
        Ok(())
    }

    /// Frees a batch: all blocks leave their owners, or none. Then up to [`BATCH`] neighbours of one
    /// zone are freed under one lock of the CPU's magazines. If the observer panics, those that are
    /// not free yet stay their owners'.
    pub(crate) fn free_batch_packed<const OWNED: bool, B>(
        &self,
        cpu: CpuId,
        blocks: &[B],
        of: impl Fn(&B) -> (Pfn, Order),
    ) -> Result<(), BatchError> {
        let mut zone = None;
        for (index, (pfn, order)) in blocks.iter().map(&of).enumerate() {
            let left = self
                .locate_near(pfn, &mut zone)
                .is_some_and(|(region, frame)| region.begin_leaving::<OWNED>(frame, order.get()));
            if !left {
                self.roll_back_frees(blocks.iter().take(index).map(|b| of(b).0));
                return Err(BatchError { index, error: self.why_not_packed(pfn, order) });
            }
        }
        let mut rest = blocks;
        while let Some((pfn, _)) = rest.first().map(&of) {
            let zone = self.locate(pfn).map(|(zone, _)| zone);
            let at = zone.and_then(|zone| self.at(zone, cpu));
            let mut group = [(0, 0); BATCH];
            let (mut len, mut highest) = (0, 0);
            for (slot, (pfn, order)) in group.iter_mut().zip(rest.iter().map(&of)) {
                let Some(frame) = zone.and_then(|zone| zone.index_of(pfn)) else { break };
                *slot = (frame, order.get());
                highest |= order.get();
                len += 1;
            }
            if let (Some(at), Some(group)) = (at, group.get(..len)) {
                let unfinished =
                    Rollback::new(|| self.roll_back_frees(rest.iter().map(|b| of(b).0)));
                group.iter().for_each(|&(frame, order)| at.note_free(frame, order));
                unfinished.disarm();
                match highest {
                    0 => at.put_packed_batch::<true>(group),
                    _ => at.put_packed_batch::<false>(group),
                }
            }
            rest = rest.get(len.max(1)..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Returns a frame's region and its index there. `near`: the zone of the last one, which usually
    /// contains this one too.
    #[inline(always)]
    fn locate_near<'z>(
        &'z self,
        pfn: Pfn,
        near: &mut Option<&'a Zone<'a, C::Lock>>,
    ) -> Option<(&'a Region<'a, C::Lock>, u32)> {
        if let Some(zone) = *near
            && let Some(frame) = zone.index_of(pfn)
        {
            return Some((zone.region()?, frame));
        }
        let (zone, frame) = self.locate(pfn)?;
        *near = Some(zone);
        Some((zone.region()?, frame))
    }

    /// Returns why a block cannot be freed.
    #[cold]
    fn why_not_packed(&self, pfn: Pfn, order: Order) -> FreeError {
        let region = self.locate(pfn).and_then(|(zone, _)| zone.region());
        region.map_or(FreeError::Foreign, |region| region.why_not(pfn, order))
    }

    /// Frees all pages of a block but its first, which stays allocated as a block of order 0.
    pub(crate) fn free_shared_packed(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let (zone, first) = self.owned(pfn, order)?;
        let at = self.here(zone)?;
        let Some(region) = zone.region() else { return Err(FreeError::Foreign) };
        region.split(pfn, order, Order::ZERO)?;
        // One by one: the zone's bits merge by themselves. Should the observer panic, the remaining
        // pages stay allocated, each as a block of its own.
        for frame in first + 1..first + order.pages() {
            if region.begin_leaving::<false>(frame, 0) {
                self.finish_free_packed(&at, frame, Order::ZERO);
            }
        }
        Ok(())
    }
}
