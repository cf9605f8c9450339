//! Checks every invariant that must hold while no thread is inside the allocator. For debugging and
//! tests (spec §1.3, §1.7, §4.8, §5.2, §9.2).

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Frame, Kind, NIL, State};
use crate::base::list::List;
use crate::base::stats::MOST_THRESHOLD;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, TYPES,
};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::policy::Proposals;
use crate::inspect::validate_error::{Broken, Invalid, Tally};
use crate::packed::Region;
use crate::pcp::pageset::{LISTS, Pageset, is_cached_order, list_order};
use crate::zone::state::{Zone, first_mark};

mod owners;

type PerList = [[i64; TYPES]; MAX_ORDER as usize + 1];

impl<C: Config> Yard<'_, C> {
    /// Checks every structural invariant in one pass over the lists and one over the frames.
    ///
    /// Frames:
    ///
    /// - Each frame is reserved or in exactly one block, which is aligned and inside its zone. The
    ///   block is free, on a per-CPU list, in use, a guard or out of use. These blocks make up the
    ///   managed pages.
    /// - Free buddies below the order of a pageblock have merged.
    /// - Free blocks are on the lists of their pageblocks' type, unless the policy carries types.
    /// - Poisoned frames are neither free nor cached.
    /// - A pageblock with an owner is not wholly free, and no other CPU's lists hold a block marked as
    ///   the owner's.
    ///
    /// Lists: links are consistent in both directions from the first frame to the last. A list
    /// contains only heads of its order and type. Every free or cached head is on a list.
    ///
    /// Counters: the following match what they count.
    ///
    /// - Free pages, including the per-CPU deltas, none of which exceeds the largest possible
    ///   threshold.
    /// - Free highatomic and CMA pages.
    /// - Blocks by order, and cached pages by CPU.
    /// - Guards, bad, poisoned and reported pages.
    /// - Isolated pageblocks.
    ///
    /// The counter of the highatomic reserve is no lower than the reserve. The cached watermark
    /// follows from the watermarks.
    ///
    /// **No other thread may be inside the allocator during the call**: no request, free, drain,
    /// tick, change of a setting, compaction, report or hotplug. No hook may call this. Otherwise
    /// it may report an intermediate state, but does no harm. It holds each CPU's list lock and
    /// each zone lock for a while in turn. It frees what [`free_nowait`](Yard::free_nowait) queued,
    /// changes nothing else and needs no memory. A zone
    /// [restored](Yard::restore) from a hand-made snapshot is only as consistent as that snapshot.
    ///
    /// # Errors
    /// [`Invalid`] names the first invariant that does not hold, its zone, and its frame if there
    /// is one.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.flush_queues();
        self.zones.iter().try_for_each(|zone| {
            Look {
                zone,
                carried: self.rules().carried_types,
                high_orders: is_cached_order(self.rules(), 1),
                owned: self.policy.owns_blocks(),
                least_reported: <C::Hooks as Reclaim>::REPORT_ORDER,
                mark: first_mark(self.rules()),
            }
            .all()
        })
    }
}

/// One zone, with the relevant properties of the yard's type.
struct Look<'z, 'a, R: RawMutex> {
    zone: &'z Zone<'a, R>,
    /// Free and per-CPU lists do not follow the type of their blocks' pageblocks.
    carried: bool,
    /// Per-CPU lists keep blocks of higher orders too.
    high_orders: bool,
    /// CPUs own pageblocks.
    owned: bool,
    least_reported: Option<Order>,
    /// The watermark that the cached watermark is derived from.
    mark: usize,
}

/// Pages by their block's kind, and the number of blocks that are on lists.
#[derive(Default)]
struct Seen {
    free: PerList,
    cached_blocks: i64,
    cached: i64,
    allocated: i64,
    guards: i64,
    bad: i64,
    poisoned: i64,
    reported: i64,
}

/// Converts a number of blocks of an order to pages.
fn pages(blocks: i64, order: usize) -> i64 {
    blocks.wrapping_shl(order as u32)
}

/// Converts to the public type. Orders here never exceed the largest one.
fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

impl<R: RawMutex> Look<'_, '_, R> {
    /// Checks a zone on the packed engine: its frames, and the counters that follow from them.
    fn packed(&self, region: &Region<'_, R>) -> Result<(), Invalid> {
        let census = region.validate().map_err(|broken| Invalid {
            zone: self.zone.id(),
            frame: None,
            broken: Broken::Packed(broken),
        })?;
        let zone = self.zone;
        let parts: i64 = zone.cpus.iter().map(|c| i64::from(c.diff())).sum();
        let shared = region.depots.parts() + region.loose_pages();
        let says = zone.nr_free.load(Relaxed) + parts + shared;
        let is = census.bits + census.whole;
        self.count(Tally::Free, says, is as i64 - region.withheld_pages() as i64)?;
        self.count(Tally::Managed, zone.managed.load(Relaxed) as i64, census.present as i64)?;
        self.count(Tally::Poisoned, region.out_of_use() as i64, census.faulty as i64)?;
        self.count(
            Tally::Isolated,
            zone.isolated_blocks.load(Relaxed) as i64,
            census.isolated_blocks as i64,
        )?;
        let reserved = region.blocks.pages_set_apart().0 as i64;
        let says = zone.reserved_highatomic.load(Relaxed) as i64;
        self.count(Tally::ReservedHighatomic, says, reserved)?;
        self.marks()
    }

    fn all(&self) -> Result<(), Invalid> {
        if let Some(region) = self.zone.region() {
            return self.packed(region);
        }
        let cached = self.pagesets()?;
        let listed = self.free_lists()?;
        let seen = self.frames()?;
        for (o, (listed, seen)) in listed.iter().zip(&seen.free).enumerate() {
            let order = order_of(o as u8);
            for (t, (&says, &is)) in MigrateType::ALL.iter().zip(listed.iter().zip(seen)) {
                self.count(Tally::Listed(order, *t), says, is)?;
            }
            let says = self.zone.areas.blocks(o as u8);
            self.count(Tally::Blocks(order), says as i64, seen.iter().sum())?;
        }
        self.count(Tally::AllCached, cached, seen.cached_blocks)?;
        self.counters(&seen)?;
        self.pageblocks()?;
        if self.owned {
            self.owners()?;
        }
        self.marks()
    }

    fn fail<T>(&self, idx: Option<u32>, broken: Broken) -> Result<T, Invalid> {
        let frame = idx.map(|i| self.zone.pfn(i));
        Err(Invalid { zone: self.zone.id(), frame, broken })
    }

    fn ensure(&self, holds: bool, idx: Option<u32>, broken: Broken) -> Result<(), Invalid> {
        if holds { Ok(()) } else { self.fail(idx, broken) }
    }

    fn count(&self, of: Tally, says: i64, is: i64) -> Result<(), Invalid> {
        self.ensure(says == is, None, Broken::Count { of, says, is })
    }

    /// Checks all per-CPU lists and returns the number of blocks on them.
    fn pagesets(&self) -> Result<i64, Invalid> {
        let zone = self.zone;
        let mut all = 0i64;
        for (cpu, slot) in (0..).map(CpuId).zip(zone.cpus) {
            let pageset = slot.pageset.lock();
            let mut cached = 0i64;
            for index in 0..Pageset::LISTS_THERE {
                let list = pageset.list(index);
                let used = index < if self.high_orders { LISTS } else { 3 };
                let open = used && slot.up.load(Relaxed);
                self.ensure(open || list.is_empty(), list.first(), Broken::UnusedList(cpu))?;
                let order = list_order(index);
                let blocks = self.walk(list, Kind::Cached, order, None)?;
                cached = cached.saturating_add(pages(blocks, order.into()));
                all = all.saturating_add(blocks);
            }
            self.count(Tally::Cached(cpu), pageset.tuning.count.into(), cached)?;
            // A lowered threshold takes effect with the next change of the delta.
            let most = slot.threshold.load(Relaxed).max(MOST_THRESHOLD);
            let fits = [slot.diff(), slot.cma_diff()].iter().all(|n| n.unsigned_abs() <= most);
            self.ensure(fits, None, Broken::Threshold(cpu))?;
        }
        Ok(all)
    }

    /// Counts the blocks on each free list.
    fn free_lists(&self) -> Result<PerList, Invalid> {
        let _lock = self.zone.lock.lock();
        let mut listed = PerList::default();
        for (order, types) in (0..).zip(&mut listed) {
            for (t, n) in MigrateType::ALL.into_iter().zip(types) {
                let list = self.zone.areas.list(order, t);
                *n = self.walk(list, Kind::Free, order, Some(t))?;
            }
        }
        Ok(listed)
    }

    /// Checks the blocks of a list and counts them. Terminates on a ring: a frame found twice is
    /// the first one, or its link to the previous frame is wrong.
    fn walk(
        &self,
        list: &List,
        kind: Kind,
        order: u8,
        t: Option<MigrateType>,
    ) -> Result<i64, Invalid> {
        let Some(first) = list.first() else { return Ok(0) };
        let (mut at, mut before, mut blocks) = (first, NIL, 0i64);
        while at != NIL {
            let misplaced = Broken::Misplaced { order: order_of(order) };
            let Some(frame) = self.zone.map.get(at.into()) else {
                return self.fail(Some(at), misplaced);
            };
            let state = frame.state();
            let fits = state.is(kind, order) && t.is_none_or(|t| t == state.migrate_type());
            self.ensure(fits, Some(at), misplaced)?;
            let linked = before == NIL || at != first && frame.prev() == before;
            self.ensure(linked, Some(at), Broken::Link)?;
            blocks = blocks.saturating_add(1);
            before = at;
            at = frame.next();
        }
        self.ensure(list.last() == Some(before), Some(before), Broken::End)?;
        Ok(blocks)
    }

    /// Checks every frame once.
    fn frames(&self) -> Result<Seen, Invalid> {
        let map = &self.zone.map;
        let mut seen = Seen::default();
        let mut idx = 0u32;
        while let Some(frame) = map.get(idx.into()) {
            let state = frame.state();
            idx = match state.kind() {
                Kind::Reserved => idx.saturating_add(1),
                Kind::Tail => return self.fail(Some(idx), Broken::Lost),
                Kind::Held => return self.fail(Some(idx), Broken::Held),
                _ => {
                    self.block(idx, frame, state, &mut seen)?;
                    idx.saturating_add(1 << state.order())
                }
            };
        }
        Ok(seen)
    }

    fn block(&self, idx: u32, head: &Frame, s: State, seen: &mut Seen) -> Result<(), Invalid> {
        let map = &self.zone.map;
        let here = Some(idx);
        let Some(order) = Order::new(s.order()) else {
            return self.fail(here, Broken::Order(s.order()));
        };
        let pages = order.pages();
        self.ensure(idx & (pages - 1) == 0, here, Broken::Misaligned(order))?;
        let all = map.run(idx, pages);
        self.ensure(!all.is_empty(), here, Broken::Outside(order))?;
        self.ensure(!map.block_is_absent(idx), here, Broken::Absent)?;
        let mut poisoned = None;
        for (i, f) in (idx..).zip(all) {
            let inside = i == idx || f.state().kind() == Kind::Tail;
            let head = self.zone.pfn(idx);
            self.ensure(inside, Some(i), Broken::Overlap { head })?;
            if f.is_poisoned() {
                poisoned = Some(i);
            }
        }
        let n = i64::from(pages);
        match s.kind() {
            Kind::Free => {
                self.ensure(poisoned.is_none(), poisoned, Broken::Poison)?;
                self.free(idx, head, order, s, seen)?;
            }
            Kind::Cached => {
                self.ensure(poisoned.is_none(), poisoned, Broken::Poison)?;
                let listed = self.follows(idx, head, Kind::Cached, order)
                    || self.is_first_cached(idx, order.get());
                self.ensure(listed, here, Broken::Unlisted(order))?;
                seen.cached_blocks += 1;
                seen.cached += n;
            }
            Kind::Allocated => seen.allocated += n,
            Kind::BeingFreed => self.ensure(false, here, Broken::BeingFreed)?,
            Kind::Guard => {
                let buddy = map.frame(idx ^ pages).state();
                let merged = !buddy.is(Kind::Free, order.get());
                self.ensure(merged, here, Broken::Unmerged(order))?;
                seen.guards += n;
            }
            Kind::Bad => seen.bad += n,
            Kind::Poisoned => {
                self.ensure(poisoned.is_some(), here, Broken::Poison)?;
                seen.poisoned += n;
            }
            Kind::Reserved | Kind::Tail | Kind::Held => {}
        }
        Ok(())
    }

    fn free(
        &self,
        idx: u32,
        head: &Frame,
        order: Order,
        state: State,
        seen: &mut Seen,
    ) -> Result<(), Invalid> {
        let map = &self.zone.map;
        let (here, o, list) = (Some(idx), order.get(), state.migrate_type());
        let listed =
            self.zone.areas.first(o, list) == here || self.follows(idx, head, Kind::Free, order);
        self.ensure(listed, here, Broken::Unlisted(order))?;
        let mut at = idx;
        while !self.carried && at < idx.saturating_add(order.pages()) {
            let block = map.block_type(at);
            self.ensure(block == list, here, Broken::Label { list, block })?;
            at = at.saturating_add(PAGEBLOCK_PAGES);
        }
        // Neighbouring whole pageblocks may have been relabelled without a merge (§3.8, §4.9).
        let buddy = map.frame(idx ^ order.pages()).state();
        let merged = o >= PAGEBLOCK_ORDER || !buddy.is(Kind::Free, o);
        self.ensure(merged, here, Broken::Unmerged(order))?;
        if state.is_reported() {
            let may = self.least_reported.is_some_and(|least| order >= least);
            self.ensure(may, here, Broken::Reported(order))?;
            seen.reported += i64::from(order.pages());
        }
        let types = seen.free.get_mut(usize::from(o));
        if let Some(n) = types.and_then(|types| types.get_mut(list as usize)) {
            *n += 1;
        }
        Ok(())
    }

    /// Returns whether the frame's back link leads to a frame of the same kind that links back to
    /// it. The back link of a list's first frame is meaningless.
    fn follows(&self, idx: u32, frame: &Frame, kind: Kind, order: Order) -> bool {
        let before = frame.prev();
        before != idx
            && self
                .zone
                .map
                .get(before.into())
                .is_some_and(|f| f.next() == idx && f.state().is(kind, order.get()))
    }

    fn is_first_cached(&self, idx: u32, order: u8) -> bool {
        self.zone.cpus.iter().any(|slot| {
            let pageset = slot.pageset.lock();
            (0..LISTS).any(|i| list_order(i) == order && pageset.list(i).first() == Some(idx))
        })
    }

    fn counters(&self, seen: &Seen) -> Result<(), Invalid> {
        let z = self.zone;
        let of_type = |t: MigrateType| {
            let list = seen.free.iter().enumerate();
            list.map(|(o, types)| pages(types.get(t as usize).copied().unwrap_or(0), o)).sum()
        };
        let all: i64 = MigrateType::ALL.into_iter().map(of_type).sum();
        let parts: i64 = z.cpus.iter().map(|c| i64::from(c.diff())).sum();
        let free = z.nr_free.load(Relaxed).saturating_add(parts);
        self.count(Tally::Free, free, all - of_type(MigrateType::Isolate))?;
        if !self.carried {
            let (highatomic, cma) = (&z.free_highatomic, &z.free_cma);
            let highatomic = highatomic.load(Relaxed) as i64;
            self.count(Tally::FreeHighatomic, highatomic, of_type(MigrateType::HighAtomic))?;
            let parts: i64 = z.cpus.iter().map(|c| i64::from(c.cma_diff())).sum();
            let cma = cma.load(Relaxed).saturating_add(parts);
            self.count(Tally::FreeCma, cma, of_type(MigrateType::Cma))?;
        }
        let in_use = seen.cached + seen.allocated + seen.guards + seen.bad + seen.poisoned;
        self.count(Tally::Managed, z.managed.load(Relaxed) as i64, all + in_use)?;
        let safety = &z.safety;
        for (of, counter, is) in [
            (Tally::Guards, &safety.guards, seen.guards),
            (Tally::Bad, &safety.bad, seen.bad),
            (Tally::Poisoned, &safety.poisoned, seen.poisoned),
            (Tally::Reported, &z.report.reported, seen.reported),
        ] {
            self.count(of, counter.load(Relaxed) as i64, is)?;
        }
        Ok(())
    }

    fn pageblocks(&self) -> Result<(), Invalid> {
        let map = &self.zone.map;
        let (mut idx, mut isolated, mut highatomic) = (0, 0, 0);
        while idx < map.len() {
            let frames = PAGEBLOCK_PAGES.min(map.len() - idx);
            let in_use = |f: &Frame| {
                f.is_poisoned() && !matches!(f.state().kind(), Kind::Poisoned | Kind::Reserved)
            };
            let tainted = map.run(idx, frames).iter().any(in_use);
            let absent = map.block_is_absent(idx);
            let right = absent || map.is_tainted(idx, 0) || !tainted;
            self.ensure(right, Some(idx), Broken::Taint)?;
            match map.block_type(idx) {
                MigrateType::Isolate if !absent => isolated += 1,
                MigrateType::HighAtomic if !absent => highatomic += i64::from(PAGEBLOCK_PAGES),
                _ => {}
            }
            idx += frames;
        }
        self.count(Tally::Isolated, self.zone.isolated_blocks.load(Relaxed) as i64, isolated)?;
        let says = self.zone.reserved_highatomic.load(Relaxed) as i64;
        // With carried types, the reserve releases blocks by the lists that their pages are on.
        if self.carried || says >= highatomic {
            return Ok(());
        }
        self.count(Tally::ReservedHighatomic, says, highatomic)
    }

    fn marks(&self) -> Result<(), Invalid> {
        let z = self.zone;
        let [min, low, high, promo] = z.watermarks.marks();
        self.ensure(min <= low && low <= high && high <= promo, None, Broken::Watermarks)?;
        let never = z.grouping_disabled.load(Relaxed);
        let right = !z.is_populated()
            || z.watermarks.cached_mark_is(self.mark, z.most_withheld(), never)
                && (!z.is_packed() || z.near_mark().is_right());
        self.ensure(right, None, Broken::CachedMark)
    }
}

#[cfg(test)]
mod tests;
