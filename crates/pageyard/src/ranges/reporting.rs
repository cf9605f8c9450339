//! Free-page reporting: the embedder learns which blocks are free, so that the memory behind them
//! can be used elsewhere meanwhile (spec §9.9). For balloons and host crates.
//!
//! A block is reported once while it stays on its list. The mark is part of its state word, which
//! is rewritten when the block leaves the list or merges. Marked pages are counted where blocks
//! leave their lists, so an embedder can always read how many are still to be reported.

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::AllocFlags;
use crate::base::list::List;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, ZoneId, ZoneKind,
};
use crate::base::unwind::Rollback;
use crate::base::watermark::LOW;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::platform::Platform;
use crate::packed::Region;
use crate::zone::area::End;
use crate::zone::at::{At, Locked};

/// Blocks per call of the hook.
const BATCH: usize = 32;
/// A pass makes at most one call of the hook per this many blocks of a list, rounded up.
const BLOCKS_PER_CALL: u64 = 16 * BATCH as u64;

/// Blocks inspected under one hold of the zone lock by `report_free_pages`.
const LOOKS: u32 = 4096;

/// Free pages of a zone in blocks of [`Reclaim::report_order`] and above (§9.9).
///
/// ```
/// # use pageyard::*;
/// struct Balloon;
/// impl Reclaim for Balloon {
///     const REPORT_ORDER: Option<Order> = Some(Order::HUGE);
///     fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool { true }
/// }
/// # type Lock = spin::mutex::SpinMutex<()>;
/// let hooks = Parts::new(()).reclaim(Balloon);
/// let yard: Yard<'_, Hooked<Lock, Parts<(), Balloon>>> =
///     Yard::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, hooks)?;
/// let done = yard.report_free_pages(ZoneKind::Normal, Order::MAX, 4096);
/// let reported: Reported = yard.reported(ZoneKind::Normal).unwrap();
/// assert_eq!(reported.reported, done);
/// # Ok::<(), InitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reported {
    /// Pages in blocks that have not been reported.
    pub waiting: u64,
    /// Pages in blocks that have been reported and are still free.
    pub reported: u64,
    /// Pages in reported blocks that requests then took, wholly or in part, since the start: memory
    /// that had to be fetched back.
    pub retaken: u64,
}

impl<C: Config> Yard<'_, C> {
    /// Reports free blocks to [`Reclaim::report_free`], if the embedder wants reports and one is
    /// due: two seconds by [`Platform::now`] after the first of the blocks became free (§9.9).
    ///
    /// Returns the nanoseconds until the next call, or `None` if there is nothing to report. An
    /// embedder's thread should call it repeatedly at that interval.
    pub fn report_free_blocks(&self) -> Option<u64> {
        let least = self.hooks.report_order()?;
        let cpu = self.hooks.cpu();
        let now = self.hooks.now();
        let mut next = None;
        for zone in self.zones.iter().filter(|z| z.is_populated()) {
            let report = &zone.report;
            if !report.pending.load(Relaxed) {
                continue;
            }
            let due = report.due.load(Relaxed);
            if now < due {
                next = Some(next.map_or(due, |n: u64| n.min(due)));
                continue;
            }
            let Some(at) = self.at(zone, cpu) else { continue };
            report.pending.store(false, Relaxed);
            if at.report_zone(least) {
                // The budget did not suffice for every block, or the hook refused some.
                let locked = at.lock();
                report.request(&self.hooks);
                drop(locked);
            }
            if report.pending.load(Relaxed) {
                let due = report.due.load(Relaxed);
                next = Some(next.map_or(due, |n: u64| n.min(due)));
            }
        }
        next.map(|due| due.saturating_sub(now))
    }
}

impl<C: Config> Yard<'_, C> {
    /// Returns how much of a zone's free memory has been reported and how much has not. `None` if
    /// there is no such zone or the hooks never report. Takes no lock.
    pub fn reported(&self, zone: impl Into<ZoneId>) -> Option<Reported> {
        let least = self.hooks.report_order()?;
        let z = self.zone(zone)?;
        if let Some(region) = z.region() {
            return Some(region.reports(least));
        }
        let (reported, retaken) = (z.report.reported.load(Relaxed), z.report.retaken.load(Relaxed));
        let free = (least.get()..=MAX_ORDER).map(|o| z.areas.blocks(o) << o).sum::<u64>();
        Some(Reported { waiting: free.saturating_sub(reported), reported, retaken })
    }

    /// Returns the lowest number of free pages in a zone since the previous call for it, or since
    /// the start. Tells an embedder how much memory its load will need again.
    ///
    /// Reads the zone's own counter, without the per-CPU deltas (§9.2). Pages on per-CPU lists do
    /// not count as free. `None` if there is no such zone or the hooks never report.
    pub fn take_lowest_free(&self, zone: impl Into<ZoneId>) -> Option<u64> {
        self.hooks.report_order()?;
        let cpu = self.hooks.cpu();
        let at = self.at(self.zone(zone)?, cpu)?;
        let _locked = at.lock();
        let now = at.zone.nr_free.load(Relaxed);
        Some(at.zone.report.lowest.swap(now, Relaxed).min(now).max(0) as u64)
    }

    /// Reports free blocks of a zone to [`Reclaim::report_free`] at once, up to about `most` pages.
    /// For embedders that decide by themselves when memory is idle, instead of calling
    /// [`report_free_blocks`](Yard::report_free_blocks).
    ///
    /// Blocks that requests use last come first: the largest ones, down to `least`, and among these
    /// the movable ones. All memory was movable at the start, so blocks of another type exist
    /// because a request needed them. At any time at most 32 blocks are off their lists, and at
    /// most a quarter of the blocks that the free pages above the LOW mark hold. If that quarter is
    /// less than one block, the limit is one block, provided that those pages hold two; otherwise
    /// nothing is reported.
    ///
    /// Blocks below [`Reclaim::report_order`] are never reported, whatever `least` says. With
    /// [`Order::MAX`], a load that the unreported memory can serve fetches nothing back: smaller
    /// blocks that are reported are used before larger ones that are not.
    ///
    /// Returns the number of pages that the hook accepted. Stops when the hook refuses.
    pub fn report_free_pages(&self, zone: impl Into<ZoneId>, least: Order, most: u64) -> u64 {
        use MigrateType::{Cma, HighAtomic, Movable, Reclaimable, Unmovable};
        let cpu = self.hooks.cpu();
        let at = self.zone(zone).and_then(|z| self.at(z, cpu));
        let (Some(at), Some(lowest)) = (at, self.hooks.report_order()) else { return 0 };
        let mut done = 0;
        let types = [Movable, Reclaimable, Unmovable, HighAtomic, Cma];
        let lowest = lowest.max(least).get();
        // The packed engine reports whole pageblocks, which have no type.
        let (lowest, lists) = match at.zone.region() {
            Some(_) => (lowest.max(PAGEBLOCK_ORDER), 1),
            None => (lowest, types.len()),
        };
        for order in (lowest..=MAX_ORDER).rev() {
            for t in types.into_iter().take(lists) {
                while done < most {
                    let Some(pages) = at.report_some(order, t, most - done) else { return done };
                    if pages == 0 {
                        break;
                    }
                    done += pages;
                }
            }
        }
        done
    }
}

/// Blocks taken off their lists for one call of the hook.
pub(super) struct Batch {
    blocks: [(Pfn, Order); BATCH],
    len: usize,
    /// The hook refused some: ask it again, but not in this pass.
    pub(super) refused: bool,
}

impl Batch {
    pub(super) fn new() -> Self {
        Batch { blocks: [Default::default(); BATCH], len: 0, refused: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    pub(super) fn push(&mut self, pfn: Pfn, order: Order) {
        if let Some(slot) = self.blocks.get_mut(self.len) {
            *slot = (pfn, order);
            self.len += 1;
        }
    }

    /// Keeps the blocks for which `keeps` returns true.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(Pfn, Order) -> bool) {
        let blocks = self.blocks;
        for (pfn, order) in blocks.into_iter().take(core::mem::take(&mut self.len)) {
            if keeps(pfn, order) {
                self.push(pfn, order);
            }
        }
    }

    /// Adds whole pageblocks of the packed engine, until there are `most` blocks.
    fn fill<R: RawMutex>(&mut self, region: &Region<'_, R>, order: u8, most: usize) {
        let Some(size) = Order::new(order) else { return };
        while self.len < most.min(BATCH) {
            let Some(frame) = region.begin_report(order) else { return };
            self.push(region.pfn(frame), size);
        }
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Returns what has been reported, and what has not in blocks of this order and above.
    fn reports(&self, least: Order) -> Reported {
        let waiting = |order| self.unreported(order) << order;
        Reported {
            waiting: waiting(least.get().max(PAGEBLOCK_ORDER)),
            reported: self.reported_pages(),
            retaken: self.blocks.retaken() * u64::from(PAGEBLOCK_PAGES),
        }
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Takes blocks that were not reported off a list until the batch has `most`, after at most `looks`
    /// blocks. Returns the next block, and whether the zone could spare every block.
    fn collect(
        &self,
        list: &List,
        order: Order,
        batch: &mut Batch,
        most: usize,
        looks: u32,
    ) -> (Option<u32>, bool) {
        let zone = self.zone;
        let (mut next, mut looks) = (list.first(), looks);
        while let Some(idx) = next.filter(|_| batch.len < most && looks > 0) {
            looks -= 1;
            let frame = zone.map.frame(idx);
            next = zone.map.get(frame.next().into()).map(|_| frame.next());
            let state = frame.state();
            if state.is_reported() {
                continue;
            }
            if !state.is(Kind::Free, order.get()) || !self.hold(idx, order.get()) {
                return (next, false);
            }
            batch.push(zone.pfn(idx), order);
        }
        (next, true)
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Makes one pass over a zone. Returns whether something is left for the next one.
    fn report_zone(&self, least: Order) -> bool {
        let zone = self.zone;
        let room = (BATCH as u64) << least.get();
        let mark = zone.watermarks.effective(LOW).saturating_add(room);
        let mut batch = Batch::new();
        let mut left = false;
        // Requests miss blocks that are off their lists, so report only if memory is plentiful.
        if zone.watermarks.ok(0, mark, ZoneKind::Dma, AllocFlags::CMA, zone.supply(), || true) {
            if let Some(region) = zone.region() {
                left = self.report_region(region, least, &mut batch);
            } else {
                for order in least.get()..=MAX_ORDER {
                    for t in MigrateType::ALL.into_iter().filter(|&t| t != MigrateType::Isolate) {
                        left |= self.report_list(order, t, &mut batch);
                    }
                }
            }
        }
        self.report_batch(&mut batch);
        left || batch.refused
    }

    /// Reports the whole pageblocks of the packed engine, those of order 10 first. Returns whether the
    /// budget ended first.
    fn report_region(&self, region: &Region<'_, C::Lock>, least: Order, batch: &mut Batch) -> bool {
        for order in (least.get().max(PAGEBLOCK_ORDER)..=MAX_ORDER).rev() {
            let budget = region.unreported(order).div_ceil(BLOCKS_PER_CALL);
            for _ in 0..budget {
                batch.fill(region, order, BATCH);
                if batch.len < BATCH {
                    break;
                }
                self.report_batch(batch);
                if batch.refused {
                    return false;
                }
            }
            // Those of a pair are not reported one by one for want of budget.
            if region.unreported(order) > 0 {
                return true;
            }
        }
        false
    }

    /// Reports the blocks of one list. Returns whether the budget ended first.
    fn report_list(&self, order: u8, t: MigrateType, batch: &mut Batch) -> bool {
        let zone = self.zone;
        let list = zone.areas.list(order, t);
        let Some(o) = Order::new(order).filter(|_| !list.is_empty() && !batch.refused) else {
            return false;
        };
        let budget = zone.areas.blocks(order).div_ceil(BLOCKS_PER_CALL);
        for _ in 0..budget {
            let locked = self.lock();
            // Bounded, so that a list corrupted by a caller's mistake still ends.
            let (next, _) = locked.collect(list, o, batch, BATCH, zone.map.len());
            if batch.len < BATCH {
                return false;
            }
            // Inspected blocks are not inspected again.
            if let Some(idx) = next {
                list.rotate_to(&zone.map, idx);
            }
            drop(locked);
            self.report_batch(batch);
            if next.is_none() || batch.refused {
                return false;
            }
        }
        true
    }

    /// Reports about `most` pages in blocks of one list, in one call of the hook. Returns the
    /// number of pages, or `None` if the hook refused or the zone has no block to spare.
    fn report_some(&self, order: u8, t: MigrateType, most: u64) -> Option<u64> {
        let zone = self.zone;
        let mut batch = Batch::new();
        let size = Order::new(order)?;
        let mut spare;
        let low = zone.watermarks.effective(LOW);
        let wanted = || {
            let above = zone.supply_exact().free.saturating_sub(low);
            // In a small zone a quarter is less than one block.
            let one = u64::from(above >> order > 1);
            let room = (above >> order >> 2).max(one).min(BATCH as u64);
            (room, most.div_ceil(1 << order).min(room) as usize)
        };
        if let Some(region) = zone.region() {
            let (room, wanted) = wanted();
            spare = room > 0 || region.unreported(order) == 0;
            batch.fill(region, order, wanted);
        } else {
            let locked = self.lock();
            let (room, wanted) = wanted();
            let list = zone.areas.list(order, t);
            spare = list.is_empty() || room > 0;
            let (next, spared) = locked.collect(list, size, &mut batch, wanted, LOOKS);
            spare &= spared;
            if spared
                && batch.len < wanted
                && let Some(idx) = next
            {
                // Inspected blocks are not inspected again.
                list.rotate_to(&zone.map, idx);
            }
        }
        let pages = self.report_batch(&mut batch);
        if batch.refused || pages == 0 && !spare { None } else { Some(pages) }
    }

    /// Calls the hook and returns the blocks to their lists, also if the hook panics. Returns the pages
    /// that the hook accepted.
    pub(super) fn report_batch(&self, batch: &mut Batch) -> u64 {
        let blocks = batch.blocks.get(..batch.len).unwrap_or(&[]);
        if blocks.is_empty() {
            return 0;
        }
        let unreported = Rollback::new(|| self.relist(blocks, false));
        let taken = self.hooks.report_free(blocks);
        unreported.disarm();
        self.relist(blocks, taken);
        let pages = blocks.iter().map(|(_, order)| u64::from(order.pages())).sum();
        batch.refused |= !taken;
        batch.len = 0;
        if taken { pages } else { 0 }
    }

    /// Returns blocks to the tails of their lists. `taken`: the hook accepted them; this is noted of those
    /// that are not pieces.
    fn relist(&self, blocks: &[(Pfn, Order)], taken: bool) {
        let zone = self.zone;
        if let Some(region) = zone.region() {
            for &(pfn, order) in blocks {
                let Some(idx) = zone.index_of(pfn) else { continue };
                if order.get() < PAGEBLOCK_ORDER {
                    region.free_large(idx, order.get(), self.cpu.0);
                } else {
                    region.end_report(idx, order.get(), taken);
                }
            }
            return zone.count_loose(region);
        }
        let locked = self.lock();
        // Relisting these blocks must not request another report.
        zone.report.without_news(|| {
            for &(pfn, order) in blocks {
                let Some(idx) = zone.index_of(pfn) else { continue };
                zone.counters.pages_returned.add(order.pages().into());
                if zone.map.is_tainted(idx, order.get()) {
                    // A frame of it failed meanwhile.
                    locked.free_around(idx, order.get());
                    continue;
                }
                // In pieces: its second pageblock may have been isolated meanwhile.
                locked.free_pieces(idx, order.get(), End::Tail);
                let frame = zone.map.frame(idx);
                let noted = taken && self.hooks.report_order().is_some_and(|least| order >= least);
                if noted && frame.state().is(Kind::Free, order.get()) {
                    frame.set_state(State::with_reported(frame.state()));
                    zone.report.note(1 << order.get());
                }
            }
        });
    }
}
