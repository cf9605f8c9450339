//! The per-CPU lists: free pages cached for one CPU, refilled from the zone and drained to it in
//! bulk (spec §5).

use crate::base::frame::{Frame, Kind, Map, Owned, Pageblock, State};
use crate::base::gfp::AllocFlags;
use crate::base::list::List;
use crate::base::stats::{Counter, DrainReason};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, Order, PAGEBLOCK_ORDER, ZoneId};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::high::{HighChange, HighReason};
use crate::embedder::hooks::Observer;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{BelowHigh, BulkFree, Decay, Proposals};
use crate::pcp::pageset::{Pageset, list_index, list_order, lists_used, next_list};
use crate::pcp::tuning::{Pressure, Tuning, clamp};
use crate::zone::area::End;
use crate::zone::at::{At, Locked};
use crate::zone::mobility::Source;
use crate::zone::run::Run;

impl Pageset {
    /// Allocates a block from the list, if it has one.
    #[inline(always)]
    pub(crate) fn pop<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        order: u8,
        t: MigrateType,
    ) -> Option<u32> {
        loop {
            let (idx, frame) = self.list(list_index(order, t)).pop_head(&at.zone.map)?;
            self.tuning.note_taken(&at.rules().pcp, order);
            if !at.passes_alloc_check(idx, order) {
                // The block stays out of use; try the next one (§5.7).
                continue;
            }
            frame.set_allocated(State::new(Kind::Allocated, order, t));
            at.slot.counters.allocs.add(order, t);
            return Some(idx);
        }
    }

    /// Allocates a block from the list, refilling it if it is empty (§5.7).
    #[inline]
    pub(crate) fn take<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32> {
        loop {
            if let Some(idx) = self.pop(at, order, t) {
                return Some(idx);
            }
            self.refill(at, order, t, flags);
            if !at.rules().safety.checks_pages() {
                return self.pop(at, order, t);
            }
            // After a refill of only bad pages, refill again.
            if self.list(list_index(order, t)).is_empty() {
                return None;
            }
        }
    }

    /// Refills an empty list from the zone under a single lock (§5.7, §5.8).
    #[cold]
    #[inline(never)]
    fn refill<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
    ) {
        let owns = at.policy.owns_blocks() && order < PAGEBLOCK_ORDER;
        if owns && self.split_own(at, order, t) {
            return;
        }
        let was = self.tuning.high;
        let pressure = at.zone.pressure();
        let wanted = self.tune(&at.rules().pcp, |t| t.nr_alloc(&at.rules().pcp, order, pressure));
        self.note_high(at, was, HighReason::Refill);
        let own = List::new();
        let room =
            if owns { self.tuning.room_for_blocks(&at.rules().pcp, pressure) as u32 } else { 0 };
        let list = self.list(list_index(order, t));
        let map = &at.zone.map;
        let mut source = Source::Own;
        let mut blocks = 0;
        let Some(zone) = at.lock_for(flags) else { return };
        if owns {
            blocks =
                (zone.take_own(order, t, (wanted as u32) << order, room, &own) >> order) as i32;
        }
        // Without free CMA pages, the request's own free list comes first (§4.3).
        let own_first = owns || at.zone.supply().cma == 0;
        while blocks < wanted {
            let run = if own_first && source == Source::Own {
                zone.rmqueue_run(order, t, (wanted - blocks) as u32)
            } else {
                None
            };
            let run = match run {
                Some(run) => run,
                None => match zone.rmqueue_cold(order, t, &mut source, flags) {
                    Some(idx) => Run::one(idx, order),
                    None => break,
                },
            };
            list_run(list, map, run, State::new(Kind::Cached, order, t));
            blocks += run.blocks as i32;
        }
        let counters = &zone.slot.counters;
        if blocks > 0 {
            counters.refills.add(1);
            counters.refilled_pages.add((blocks as u64) << order);
        } else {
            counters.empty_refills.add(1);
        }
        drop(zone);
        self.tuning.count += blocks << order;
        if owns && !own.is_empty() {
            self.list_own(at, &own, order, t);
        }
        if let Some(order) = Order::new(order) {
            let (zone, wanted, blocks) = (at.zone.kind, wanted as u32, blocks as u32);
            at.hooks.event(at.cpu, Event::Refill { zone, order, wanted, blocks });
        }
    }

    /// Frees a block of pageblock type `t` to its list. At or above `high`, drains blocks to the
    /// zone (§5.9). Returns what is left to drain: the caller releases the lists, then calls
    /// [`drain_rest`](At::drain_rest).
    #[inline]
    pub(crate) fn put<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        idx: u32,
        order: u8,
        t: MigrateType,
    ) -> Option<Rest> {
        self.push(at, idx, at.zone.map.frame(idx), order, t);
        let rules = &at.rules().pcp;
        let was = self.tuning.high;
        let pressure = at.zone.pressure();
        let (free_high, high) = self.tune(&at.rules().pcp, |t| {
            let free_high = t.note_free(rules, order);
            (free_high, t.nr_high(rules, free_high, pressure))
        });
        self.note_high(at, was, pressure.reason(rules, free_high));
        if self.tuning.count < high {
            return None;
        }
        self.give_back(at, high, free_high, list_index(order, t))
    }

    /// Frees a block to its list if that only takes a push and a count. Returns `false`, with
    /// nothing changed, if the caller must use [`put`](Pageset::put) instead. `OWNED`: no other
    /// thread can free the block concurrently.
    #[inline(always)]
    pub(crate) fn push_fast<C: Config, const OWNED: bool>(
        &mut self,
        at: &At<'_, '_, C>,
        block: Owned<'_>,
        order: u8,
    ) -> bool {
        // Read under the list's lock: code that poisons frames relies on it.
        let Some(t) = at.zone.map.pageblock(block.idx).and_then(Pageblock::listed_type) else {
            return false;
        };
        if at.zone.pressure() != Pressure::default()
            || !OWNED && !block.frame.begin_free(block.seen)
        {
            return false;
        }
        let quiet = self.tuning.free_quietly(&at.rules().pcp, order, self.room);
        if quiet {
            // Reported before the push: once on the list, the block may be allocated again. With
            // safety checks at free, `prepare_free` has already reported it.
            if !at.rules().safety.checks_pages() {
                at.note_free(block.idx, order);
            }
            self.push(at, block.idx, block.frame, order, t);
        } else if !OWNED {
            block.frame.roll_back_free();
        }
        quiet
    }

    /// Like [`push_fast`](Pageset::push_fast), for a block whose free has already been reported.
    #[inline(always)]
    pub(crate) fn push_reported<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        idx: u32,
        frame: &Frame,
        order: u8,
    ) -> bool {
        let Some(t) = at.zone.map.pageblock(idx).and_then(Pageblock::listed_type) else {
            return false;
        };
        let quiet = at.zone.pressure() == Pressure::default()
            && self.tuning.free_quietly(&at.rules().pcp, order, self.room);
        if quiet {
            self.push(at, idx, frame, order, t);
        }
        quiet
    }

    /// Pushes a block on its list. The caller updates the tuning.
    #[inline(always)]
    pub(crate) fn push<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        idx: u32,
        frame: &Frame,
        order: u8,
        t: MigrateType,
    ) {
        frame.set_state(at.cached_state(idx, order, t));
        self.list(list_index(order, t)).push_head(&at.zone.map, idx, frame);
        at.slot.counters.frees.add(order, t);
    }

    /// Reports the change of `high` in two steps: first to its limits (§5.4), then to its new
    /// value.
    #[inline(always)]
    fn note_high<C: Config>(&self, at: &At<'_, '_, C>, was: i32, reason: HighReason) {
        let limits = self.tuning.limits;
        let within = clamp(was, limits.high_min, limits.high_max);
        at.trace_high(was, &self.tuning, within, HighReason::Limits);
        at.trace_high(within, &self.tuning, self.tuning.high, reason);
    }

    #[cold]
    #[inline(never)]
    fn give_back<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        high: i32,
        free_high: bool,
        index: usize,
    ) -> Option<Rest> {
        let n = self.tune(&at.rules().pcp, |t| t.nr_free(&at.rules().pcp, high, free_high));
        let reason = if free_high { DrainReason::FreeHigh } else { DrainReason::High };
        let batch = self.tuning.limits.batch.max(1);
        let first = if at.rules().pcp.chunked_drain { n.min(batch) } else { n };
        self.bulk_free(at, first, index, reason);
        if first < n {
            return Some(Rest { pages: n - first, start: index, reason });
        }
        at.note_above_high();
        None
    }

    /// Drains about `n` pages to the zone under a single lock, from the cold ends of the lists,
    /// starting with list `start` (§5.12).
    #[inline(never)]
    pub(crate) fn bulk_free<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        n: i32,
        start: usize,
        reason: DrainReason,
    ) {
        at.flush_queue();
        self.bulk_free_here(at, n, start, reason);
    }

    /// [`bulk_free`](Self::bulk_free), inlined into the caller, and without regard to queued blocks.
    #[inline(always)]
    fn bulk_free_here<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        n: i32,
        start: usize,
        reason: DrainReason,
    ) {
        let before = self.tuning.count;
        let n = n.min(before);
        if n <= 0 {
            return;
        }
        let zone = match at.rules().bulk_free {
            BulkFree::SinglePass | BulkFree::BlockByBlock if at.policy.owns_blocks() => {
                let gathered = List::new();
                self.gather_merged(at, n, start, &gathered);
                let zone = at.lock_alone();
                while let Some(idx) = gathered.last() {
                    let order = at.zone.map.frame(idx).state().order();
                    free_tail_run(&zone, &gathered, idx, order, i32::MAX);
                }
                zone
            }
            BulkFree::SinglePass | BulkFree::BlockByBlock => {
                let zone = at.lock_alone();
                self.single_pass(&zone, n, start);
                zone
            }
            BulkFree::TwoPass => {
                let gathered = List::new();
                self.gather(at, n, start, &gathered);
                let zone = at.lock_alone();
                while let Some((idx, frame)) = gathered.pop_head(&at.zone.map) {
                    zone.free_from_pcp(idx, frame.state().order());
                }
                zone
            }
        };
        let pages = (before - self.tuning.count).max(0) as u32;
        zone.slot.counters.count_drain(reason, pages.into());
        drop(zone);
        at.hooks.event(at.cpu, Event::BulkFree { zone: at.zone.kind, reason, pages });
    }

    #[inline(always)]
    fn single_pass<C: Config>(&mut self, zone: &Locked<'_, '_, C>, n: i32, start: usize) {
        let mut left = n;
        let mut index = start;
        // All lists but the last are left empty, so one visit to each is enough.
        for _ in 0..lists_used(zone.rules()) {
            if left <= 0 {
                break;
            }
            let order = list_order(index);
            let before = left;
            while left > 0
                && let Some(idx) = self.list(index).last()
            {
                left = free_tail_run(zone, self.list(index), idx, order, left);
            }
            self.tuning.count -= before - left;
            index = next_list(zone.rules(), index);
        }
    }

    /// The first pass of the older two-pass bulk free (§5.12a): unlinks and gathers pages before
    /// the zone lock is taken.
    fn gather<C: Config>(&mut self, at: &At<'_, '_, C>, n: i32, start: usize, gathered: &List) {
        let map = &at.zone.map;
        let lists = lists_used(at.rules());
        let mut left = n;
        let mut index = (start + lists - 1) % lists;
        // Not reset between lists: the more empty lists were skipped, the more blocks the next one
        // gives.
        let mut take = 0;
        while left > 0 && self.tuning.count > 0 {
            for _ in 0..lists {
                index = next_list(at.rules(), index);
                take += 1;
                if !self.list(index).is_empty() {
                    break;
                }
            }
            if take == lists as i32 {
                // All other lists are empty: take everything still wanted from this one.
                take = left;
            }
            let order = list_order(index);
            while left > 0 && take > 0 {
                let Some(idx) = self.list(index).pop_tail(map) else { break };
                let (idx, order) = self.merge_own(at, idx, order, left);
                if <C::Hooks as Observer>::SEES_TOUCHES {
                    at.hooks.touch(at.zone.pfn(idx));
                }
                gathered.push_tail(map, idx);
                left -= 1 << order;
                self.tuning.count -= 1 << order;
                take -= 1;
            }
        }
    }
}

/// Frees the blocks at a list's end, from its last one at `idx` on, as far as they follow each other in
/// memory and until `left` pages are freed. Returns how many pages are left to free.
#[inline(always)]
fn free_tail_run<C: Config>(
    zone: &Locked<'_, '_, C>,
    list: &List,
    idx: u32,
    order: u8,
    mut left: i32,
) -> i32 {
    let rules = zone.rules();
    let joins = matches!(rules.bulk_free, BulkFree::SinglePass) && !rules.carried_types;
    let mut run = Run::empty_at(idx, order);
    list.pop_tail_while(&zone.zone.map, |idx, frame| {
        // Merged blocks of all orders are on one list.
        let fits = !zone.policy.owns_blocks() || frame.state().order() == order;
        let more = left > 0 && fits && (joins || run.blocks == 0) && run.extend(idx);
        if more {
            left -= 1 << order;
            // A carried type is read again when the block is freed.
            if !rules.carried_types {
                frame.set_state(State::TAIL);
            }
        }
        more
    });
    if run.blocks == 1 {
        zone.free_from_pcp(idx, order);
    } else {
        zone.free_run(run);
    }
    left
}

/// Puts the blocks of a run on a list. Outlined so that the loops do not compete for registers with
/// the locals of `refill`.
#[inline(never)]
pub(super) fn list_run(list: &List, map: &Map<'_>, run: Run, state: State) {
    let Run { first, blocks, order, .. } = run;
    for frame in map.run(first, blocks << order).iter().step_by(1 << order) {
        frame.set_state(state);
    }
    list.push_tail_run(map, first, blocks, 1 << order);
}

impl<C: Config> Locked<'_, '_, C> {
    /// Frees a block from a per-CPU list to the zone.
    #[inline]
    fn free_from_pcp(&self, idx: u32, order: u8) {
        let map = &self.zone.map;
        // While blocks are isolated, a carried type could bring an isolated page back into use.
        let carried = self.rules().carried_types && self.zone.isolated_blocks.load(Relaxed) == 0;
        let t = if carried { map.frame(idx).state().migrate_type() } else { map.block_type(idx) };
        self.free_one(idx, order, t, End::Head);
        self.zone.counters.pages_returned.add(1 << order);
        if let Some(order) = Order::new(order) {
            let pfn = self.zone.pfn(idx);
            self.hooks.event(self.cpu, Event::Drain { pfn, order, migrate_type: t });
        }
    }
}

/// What a chunked drain has left (B.4).
pub(crate) struct Rest {
    pages: i32,
    start: usize,
    reason: DrainReason,
}

impl<C: Config> At<'_, '_, C> {
    /// Drains the rest a batch at a time, and releases both locks in between. Ends early if the lists
    /// are busy, or if the caller runs on another CPU now (B.4).
    #[cold]
    #[inline(never)]
    pub(crate) fn drain_rest(&self, rest: Rest) {
        let mut left = rest.pages;
        while left > 0 && self.hooks.cpu() == self.cpu {
            let Some(mut pageset) = self.slot.pageset.try_lock() else { break };
            let n = left.min(pageset.tuning.limits.batch.max(1));
            pageset.bulk_free(self, n, rest.start, rest.reason);
            left -= n;
        }
        self.note_above_high();
    }

    fn note_above_high(&self) {
        if !matches!(self.rules().pcp.below_high, BelowHigh::Ignored) {
            self.zone.note_above_high();
        }
    }

    /// Folds the CPU's parts of the zone's counters (§9.2), from which on a remote pageset expires if it
    /// is not used (§5.15).
    pub(crate) fn fold(&self) {
        let has_parts = self.slot.diff() != 0 || self.slot.cma_diff() != 0;
        if has_parts && self.lock().fold_all() {
            self.slot.expire.store(3, Relaxed);
        }
    }

    /// Runs one tick of the statistics worker for this CPU and zone (§5.14, §5.15, §9.2): fold,
    /// decay, expiry, in this order. Returns whether another tick is needed.
    pub(crate) fn tick(&self) -> bool {
        self.fold();
        self.flush_queue();
        let mut todo = self.decay();
        let drained = todo > 0;
        while todo > 0 {
            // Both locks are released between batches, to limit how long other CPUs wait.
            let mut pageset = self.slot.pageset.lock();
            let by_batches = matches!(self.rules().pcp.decay, Decay::Eighth);
            let n = if by_batches { todo.min(pageset.tuning.limits.batch.max(1)) } else { todo };
            pageset.bulk_free(self, n, 0, DrainReason::Decay);
            todo -= n;
        }
        let mut pageset = self.slot.pageset.lock();
        let again = drained || pageset.tuning.high > pageset.tuning.limits.high_min;
        let expire = self.slot.expire.load(Relaxed);
        if expire == 0 || pageset.tuning.count == 0 {
            return again;
        }
        if self.slot.node.load(Relaxed) == u32::from(self.zone.node.0) {
            self.slot.expire.store(0, Relaxed);
            return again;
        }
        self.slot.expire.store(expire - 1, Relaxed);
        if expire == 1 {
            let n = pageset.tuning.count.min(pageset.tuning.limits.batch);
            pageset.bulk_free(self, n, 0, DrainReason::Expire);
        }
        true
    }

    /// Decays `high` by one tick (§5.14). Returns how many pages to drain.
    fn decay(&self) -> i32 {
        let mut pageset = self.slot.pageset.lock();
        let was = pageset.tuning.high;
        let todo = pageset.tune(&self.rules().pcp, |t| t.decay(&self.rules().pcp));
        self.slot.counters.ticks.add(1);
        self.trace_high(was, &pageset.tuning, pageset.tuning.high, HighReason::Decay);
        todo
    }

    /// Reports a change of `high`. Guarded by a constant: otherwise the counters would be read even
    /// if no hook observes the event.
    #[inline(always)]
    pub(super) fn trace_high(&self, from: i32, tuning: &Tuning, to: i32, reason: HighReason) {
        if <C::Hooks as Observer>::SEES_TUNING && from != to {
            let counters = &self.slot.counters;
            let change = HighChange {
                from,
                to,
                count: tuning.count,
                refills: counters.refills.get(),
                drains: counters.drains.iter().map(Counter::get).sum(),
                reason,
            };
            let zone = ZoneId { node: self.zone.node, kind: self.zone.kind };
            self.hooks.event(self.cpu, Event::High { zone, change });
        }
    }

    /// Drains a CPU's lists of this zone (§5.16). The pages are accounted to the draining CPU.
    #[inline(never)]
    pub(crate) fn drain(&self, owner: CpuId) {
        self.flush_queue();
        self.drain_lists(owner);
    }

    /// Outlined: the frees of queued blocks do not fit on the stack below its frame, so it leaves those
    /// that are queued meanwhile.
    #[inline(never)]
    fn drain_lists(&self, owner: CpuId) {
        let Some(slot) = self.zone.slot(owner) else { return };
        loop {
            let mut pageset = slot.pageset.lock();
            let count = pageset.tuning.count;
            if count <= 0 {
                return;
            }
            let most = pageset.tuning.limits.batch << self.rules().pcp.scale_max;
            let n = count.min(most.max(1));
            pageset.bulk_free_here(self, n, 0, DrainReason::Drain);
            // Without progress the count is wrong: a block was freed twice (`free_owned`).
            if n == count || pageset.tuning.count == count {
                return;
            }
        }
    }
}
