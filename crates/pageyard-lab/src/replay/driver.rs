//! Performs the plan on an allocator, operation by operation, in the recorded order.

use pageyard::policy::{Engine, Policy};
use pageyard::{
    AllocError, Config, CpuId, CpuStats, DrainReason, Gfp, NodeId, Order, Pfn, Yard, ZoneKind,
    unusable_index,
};

use super::blaming::Blaming;
use super::counts::Idle;
use super::deferral::Deferred;
use super::error::ReplayError;
use super::figures::{Figures, Matching};
use super::lists::is_cached;
use super::machine::{Machine, MachineZone, id_of};
use super::magazines::Magazines;
use super::map::{FrameMap, Taken};
use super::observer::Observer;
use super::plan::{Op, OpKind, ZONE_BITS, unpack_gfp};
use super::restore::order_of;
use super::setting::Setting;
use super::tick::Ticks;
use super::vitals::of_yard;
use super::waiting::Waiting;

/// The CPU on which operations are performed.
pub(super) trait Seat {
    /// Performs the following operations on this CPU.
    fn go(&self, cpu: u32);
}

/// For hooks that get the CPU from the observer.
impl Seat for () {
    #[inline(always)]
    fn go(&self, _: u32) {}
}

/// Returns, by type, the flags that make a zone the first that a request tries (spec §2.3).
fn zone_flags(kind: ZoneKind) -> [Gfp; 3] {
    let zone = match kind {
        ZoneKind::Dma => Gfp::DMA,
        ZoneKind::Dma32 => Gfp::DMA32,
        ZoneKind::Normal => Gfp::empty(),
        ZoneKind::Movable | ZoneKind::Device => {
            return [Gfp::THISNODE | Gfp::HIGHMEM | Gfp::MOVABLE; 3];
        }
    };
    let zone = zone | Gfp::THISNODE;
    [zone, zone | Gfp::MOVABLE, zone | Gfp::RECLAIMABLE]
}

/// Drives the allocator through the plan.
pub(super) struct Driver<'y, 'a, C: Config, S> {
    pub(super) machine: &'y Machine,
    pub(super) yard: &'y Yard<'a, C>,
    seat: S,
    gfp: Vec<[Gfp; 3]>,
    pub(super) observer: &'y Observer,
    pub(super) map: FrameMap,
    /// Frames of a run of silent pages; `silent` has the CPU, zone and type of the run.
    silents: Vec<u32>,
    silent: Option<(u16, usize, u8)>,
    idle: Idle,
    /// On the packed engine, which has no events of refills and drains.
    magazines: Option<Magazines>,
    ticks: Ticks,
    waiting: Waiting,
    figures: Figures,
    pub(super) matching: Matching,
    /// Pages taken from a zone to move others to.
    pub(super) placed: u64,
    /// By zone.
    pub(super) deferred: Vec<Deferred>,
}

impl<'y, 'a, C: Config, S: Seat> Driver<'y, 'a, C, S> {
    pub(super) fn new(
        setting: &'y Setting<'_>,
        yard: &'y Yard<'a, C>,
        observer: &'y Observer,
        seat: S,
        phases: &[f64],
        seed: u64,
    ) -> Self {
        let machine = setting.machine;
        Driver {
            machine,
            yard,
            seat,
            gfp: machine.zones.iter().map(|z| zone_flags(z.kind)).collect(),
            observer,
            map: FrameMap::new(&setting.start.frames),
            silents: Vec::new(),
            silent: None,
            idle: Idle::default(),
            magazines: (yard.policy().rules().engine == Engine::Packed)
                .then(|| Magazines::new(yard)),
            ticks: Ticks::new(setting.first_ns, machine.stat_interval_s, phases, seed),
            waiting: Waiting::default(),
            figures: Figures::default(),
            matching: Matching::default(),
            placed: 0,
            deferred: vec![Deferred::default(); machine.zones.len()],
        }
    }

    /// Performs the whole plan.
    pub(super) fn drive(
        &mut self,
        setting: &Setting<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ReplayError> {
        self.count_idle();
        let mut gone = setting.start.gone.iter().peekable();
        setting.plan.for_each(setting.stop, |number, op| {
            while let Some(g) = gone.next_if(|g| g.op <= number) {
                self.vanish(g.slot, g.pages);
            }
            self.perform(op);
            if number & 0xfff == 0 {
                self.count_idle();
                progress(number);
            }
        })?;
        self.flush();
        // Requests still waiting were never served.
        self.figures.failed += self.waiting.len() as u64;
        if let Some(blame) = &self.observer.blame {
            self.waiting.frames().for_each(|frame| blame.given_up(frame));
        }
        Ok(())
    }

    /// Continues on another CPU.
    #[inline(always)]
    pub(super) fn go(&self, cpu: u32) {
        self.observer.cpu.set(cpu);
        self.seat.go(cpu);
    }

    /// Returns whether this policy keeps blocks of this order on its lists.
    fn caches(&self, order: u8) -> bool {
        order == 0 || self.yard.policy().rules().high_order_lists && is_cached(order)
    }

    pub(super) fn zone_of(&self, frame: u32) -> usize {
        self.machine.zone_of(self.machine.base() + u64::from(frame)).unwrap_or(0)
    }

    pub(super) fn flags(&self, zone: usize, migratetype: u8, gfp: u8) -> Gfp {
        let by_type = &self.gfp[zone];
        let kind = by_type.get(usize::from(migratetype)).copied().unwrap_or(by_type[1]);
        kind | Gfp::from_bits_retain(unpack_gfp(gfp) & !ZONE_BITS)
    }

    #[inline(always)]
    fn perform(&mut self, op: &Op) {
        let zone = self.zone_of(op.frame);
        if self.silent.is_some() {
            let run = op.kind == OpKind::Silent
                && op.order == 0
                && self.silent == Some((op.cpu, zone, op.migratetype));
            if run {
                return self.silents.push(op.frame);
            }
            self.flush();
        }
        self.idle.until(op.t_ns);
        self.observer.now.set(op.t_ns);
        if self.observer.course.is_due(op.t_ns) {
            self.observer.course.sample(op.t_ns, self.yard);
        }
        let failed = self.figures.failed;
        self.sample_timeline(op.t_ns);
        if self.magazines.is_some() {
            self.tick_all(op.t_ns);
        }
        let missed = self.ticks.since(op.cpu.into(), op.t_ns);
        self.go(op.cpu.into());
        if missed > 0 {
            self.tick(op.cpu, missed);
        }
        if let Some(blame) = &self.observer.blame {
            blame.asks(op, op.t_ns);
        }
        match op.kind {
            OpKind::Alloc => {
                self.alloc(zone, op);
                self.observer.other(op.cpu.into());
            }
            OpKind::Captured => {
                self.captured(zone, op);
                self.observer.other(op.cpu.into());
            }
            OpKind::Free | OpKind::FreeDirect => {
                self.observer.other(op.cpu.into());
                self.free(op);
            }
            OpKind::Silent if op.order == 0 => {
                self.silent = Some((op.cpu, zone, op.migratetype));
                self.silents.push(op.frame);
            }
            OpKind::Silent => self.alloc(zone, op),
            OpKind::DrainAll => {
                self.yard.drain_all(Some(id_of(&self.machine.zones[zone])));
            }
            OpKind::ReclaimBegins => self.reclaim(zone, true),
            OpKind::ReclaimEnds => self.reclaim(zone, false),
            OpKind::Refused => {
                self.observer.other(op.cpu.into());
                self.refused(zone, op);
            }
            OpKind::Migrated => {
                self.observer.other(op.cpu.into());
                self.migrated(op);
            }
        }
        let mut all = matches!(op.kind, OpKind::DrainAll);
        if !self.waiting.is_empty() {
            self.serve_waiting();
            self.go(op.cpu.into());
            all = true;
        }
        self.follow_idle(op.cpu.into());
        if all {
            self.count_magazines();
        }
        if self.figures.failed > failed {
            self.draw_failure(op);
        }
    }

    /// Adds a sample to the timeline, if one is written and it is due.
    fn sample_timeline(&self, t_ns: u64) {
        if let Some(timeline) = &mut *self.observer.timeline.borrow_mut()
            && timeline.is_due(t_ns)
        {
            timeline.sample(t_ns, &of_yard(self.machine, self.yard));
        }
    }

    /// Adds a request that failed to the timeline, if one is written.
    #[cold]
    fn draw_failure(&self, op: &Op) {
        if let Some(timeline) = &mut *self.observer.timeline.borrow_mut() {
            let cpu = op.cpu.into();
            timeline.instant_of("failed request", op.t_ns, cpu, None, op.order, op.migratetype);
        }
    }

    #[cold]
    fn tick(&mut self, cpu: u16, times: i64) {
        for _ in 0..times {
            self.yard.tick(CpuId(cpu.into()));
        }
    }

    /// Runs the ticks of all CPUs that are due, in turns. On the packed engine a tick also trims
    /// depots, which CPUs share: if a CPU made up for its own ticks only once it has an event, the
    /// depots would be trimmed again for the same time.
    fn tick_all(&mut self, t_ns: u64) {
        let mut due = 0..self.machine.cpus.len();
        let Some(first) = due.find(|&cpu| self.ticks.is_due(cpu, t_ns)) else { return };
        let cpus = first..self.machine.cpus.len();
        let mut missed: Vec<i64> = cpus.clone().map(|cpu| self.ticks.since(cpu, t_ns)).collect();
        while missed.iter().any(|&n| n > 0) {
            for (cpu, missed) in cpus.clone().zip(&mut missed).filter(|(_, missed)| **missed > 0) {
                *missed -= 1;
                self.go(cpu as u32);
                self.tick(cpu as u16, 1);
            }
        }
        self.count_magazines();
    }

    /// Starts or ends background reclaim in all zones of a node. Meanwhile the per-CPU lists shrink
    /// (spec §5.10).
    #[cold]
    fn reclaim(&mut self, zone: usize, active: bool) {
        let node = self.machine.zones[zone].node;
        for zone in self.machine.zones.iter().filter(|z| z.node == node) {
            self.yard.set_reclaim_active(id_of(zone), active);
        }
    }

    /// Repeats a request that failed in the kernel. If the policy has a block for it, the block is
    /// freed at once, because the trace has no owner for it. For a huge page it is only looked whether
    /// there is one: a refill would move it, and another one, to a list.
    #[cold]
    fn refused(&mut self, zone: usize, op: &Op) {
        let order = order_of(op.order);
        let flags = self.flags(zone, op.migratetype, op.gfp).difference(Gfp::THISNODE);
        if order >= Order::HUGE && self.has_block(zone, order) {
            return;
        }
        match self.yard.alloc(order, flags) {
            Ok(pfn) => {
                if self.caches(op.order) {
                    self.idle.now -= 1 << op.order;
                }
                self.blame_frees(pfn, op.order, true);
                let _ = self.yard.free_direct(pfn, order);
            }
            Err(_) => {
                self.figures.failed += 1;
                if let Some(blame) = &self.observer.blame {
                    blame.failed(zone);
                }
            }
        }
    }

    /// Returns whether a zone of this zone's node, up to this one, has a block above its MIN watermark.
    fn has_block(&self, zone: usize, order: Order) -> bool {
        let highest = &self.machine.zones[zone];
        let candidates = self.machine.zones.iter().filter(|z| z.node == highest.node);
        let mut candidates = candidates.filter(|z| z.kind <= highest.kind);
        candidates.any(|z| self.zone_has_block(z, order, z.watermarks[0]))
    }

    /// Returns the free pages of a zone that has a free block of this order.
    pub(super) fn free_with(&self, zone: &MachineZone, order: Order) -> Option<u64> {
        let blocks = self.yard.free_blocks(id_of(zone))?;
        let has_block = blocks.iter().skip(order.get().into()).any(|&n| n > 0);
        has_block.then(|| blocks.iter().enumerate().map(|(order, n)| n << order).sum())
    }

    /// Returns whether a zone has a block, and more than these pages beside it.
    fn zone_has_block(&self, zone: &MachineZone, order: Order, mark: u64) -> bool {
        self.free_with(zone, order).is_some_and(|free| free > mark + u64::from(order.pages()))
    }

    /// Serves waiting requests whose zones have free blocks again.
    #[cold]
    fn serve_waiting(&mut self) {
        for kind in self.waiting.kinds() {
            let zone = &self.machine.zones[kind.0];
            while let Some(op) = self.waiting.oldest(kind) {
                if self.free_with(zone, order_of(op.order)).is_none() {
                    break;
                }
                self.go(op.cpu.into());
                if let Some(blame) = &self.observer.blame {
                    blame.asks(&op, self.observer.now.get());
                }
                if !self.try_alloc(kind.0, &op) {
                    break; // the block is reserved or isolated
                }
                self.waiting.cancel(op.frame);
                self.matching.waited += 1;
            }
        }
        self.idle.now += self.observer.cached.take();
    }

    #[inline(always)]
    pub(super) fn alloc(&mut self, zone: usize, op: &Op) {
        if !self.waiting.is_empty() {
            // The trace never freed the block that still waits at this frame.
            self.cancel_request(op.frame);
        }
        if self.try_alloc(zone, op) || self.dip(zone, op) || self.compact(zone, op) {
            return;
        }
        let old = self.map.put_failed(op.frame);
        self.replaced(old);
        let waits = op.kind != OpKind::Silent
            && Gfp::from_bits_retain(unpack_gfp(op.gfp)).contains(Gfp::DIRECT_RECLAIM);
        if waits {
            self.waiting.push(zone, *op);
        } else {
            self.figures.failed += 1;
        }
        match &self.observer.blame {
            Some(blame) if waits => blame.waits(zone, op.frame),
            Some(blame) => blame.failed(zone),
            None => {}
        }
    }

    /// Allocates for a recorded block. Returns whether that succeeded.
    #[inline(always)]
    pub(super) fn try_alloc(&mut self, zone: usize, op: &Op) -> bool {
        let silent = op.kind == OpKind::Silent;
        let flags = self.flags(zone, op.migratetype, if silent { SILENT_GFP } else { op.gfp });
        // The kernel waited for reclaim until it had the block, and the pages that reclaim freed
        // appear before this event. So any free block may serve, whatever the watermarks.
        let has_waited = !silent && flags.contains(Gfp::DIRECT_RECLAIM);
        self.try_with(zone, op, if has_waited { despite_marks(flags) } else { flags })
    }

    /// Serves a request that could not wait, and that the kernel served, from up to half of the MIN
    /// watermark: the free pages here differ from the kernel's by some percent of it.
    #[cold]
    fn dip(&mut self, zone: usize, op: &Op) -> bool {
        let flags = self.flags(zone, op.migratetype, op.gfp);
        let recorded = &self.machine.zones[zone];
        op.kind != OpKind::Silent
            && !flags.contains(Gfp::DIRECT_RECLAIM)
            && self.zone_has_block(recorded, order_of(op.order), recorded.watermarks[0] / 2)
            && self.try_with(zone, op, despite_marks(flags))
    }

    #[inline(always)]
    fn try_with(&mut self, zone: usize, op: &Op, flags: Gfp) -> bool {
        let order = order_of(op.order);
        match self
            .alloc_in(zone, order, flags)
            .or_else(|e| self.elsewhere(zone, op, flags).ok_or(e))
        {
            Ok(pfn) => {
                if self.caches(op.order) {
                    self.idle.now -= 1 << op.order;
                }
                self.serve(op, pfn);
                true
            }
            Err(_) => false,
        }
    }

    /// Lets an allocated block stand for a recorded one.
    #[inline(always)]
    pub(super) fn serve(&mut self, op: &Op, pfn: Pfn) {
        let silent = op.kind == OpKind::Silent;
        let below_min = !silent && self.yard.is_pfmemalloc(pfn);
        self.matching.below_marks += u64::from(below_min);
        if op.migratetype == 1 {
            // The page goes to a user. It is on a reclaim list and can be moved.
            let _ = self.yard.set_movable(pfn, order_of(op.order), true);
        }
        if !silent {
            self.figures.alloc_blocks += 1;
            self.figures.alloc_pages += 1 << op.order;
        }
        let ours = (pfn.0 - self.machine.base()) as u32;
        if let Some(blame) = &self.observer.blame {
            blame.served(op.frame, self.observer.now.get(), ours);
            if below_min {
                blame.below_min(self.zone_of(ours), ours);
            }
        }
        let old = self.map.put(op.frame, ours, op.order);
        self.replaced(old);
    }

    /// Frees the previous block of a recorded frame that the trace allocates again without a free.
    #[inline(always)]
    fn replaced(&mut self, old: Option<(u32, u8)>) {
        if let Some((frame, order)) = old {
            self.matching.replaced += 1;
            let pfn = Pfn(self.machine.base() + u64::from(frame));
            self.blame_frees(pfn, order, true);
            let _ = self.yard.free_direct(pfn, order_of(order));
        }
    }

    /// Allocates from another zone of the node when the recorded zone has nothing left under this
    /// policy, if the request allows that.
    #[cold]
    fn elsewhere(&self, zone: usize, op: &Op, flags: Gfp) -> Option<Pfn> {
        let any_zone = op.kind == OpKind::Silent || unpack_gfp(op.gfp) & ZONE_BITS == 0;
        let flags = flags.difference(Gfp::DMA | Gfp::DMA32);
        if any_zone { self.alloc_in(zone, order_of(op.order), flags).ok() } else { None }
    }

    /// Allocates from the recorded zone's node, whatever the current CPU.
    #[inline(always)]
    fn alloc_in(&self, zone: usize, order: Order, flags: Gfp) -> Result<Pfn, AllocError> {
        let node = NodeId(self.machine.zones[zone].node);
        if self.machine.cpus[self.observer.cpu.get() as usize] == node.0 {
            self.yard.alloc(order, flags)
        } else {
            self.yard.alloc_on(node, order, flags)
        }
    }

    /// Removes the mapping of a recorded block, and splits the allocated block where it is larger.
    #[inline(always)]
    pub(super) fn take(&mut self, op: &Op) -> Taken {
        let (yard, base) = (self.yard, self.machine.base());
        self.map.take(self.machine, op.frame, op.order, |frame, from, into| {
            let _ = yard.split(Pfn(base + u64::from(frame)), order_of(from), order_of(into));
        })
    }

    #[inline(always)]
    fn free(&mut self, op: &Op) {
        self.matching.frees += 1;
        let taken = match self.take(op) {
            Taken::Unknown => self.map.take_moved(op.order).map_or(Taken::Unknown, Taken::Block),
            taken => taken,
        };
        let ours = match taken {
            Taken::Block(frame) => frame,
            Taken::Failed => {
                self.cancel_request(op.frame);
                return self.matching.of_failed += 1;
            }
            Taken::Unknown if self.cancel_enclosing_request(op) => {
                return self.matching.of_failed += 1;
            }
            Taken::Unknown => return self.matching.unmatched += 1,
        };
        if !self.free_block(ours, op) {
            self.matching.unmatched += 1;
        }
    }

    /// Frees an allocated block as an operation says. Returns whether that succeeded.
    #[inline(always)]
    pub(super) fn free_block(&mut self, ours: u32, op: &Op) -> bool {
        let pfn = Pfn(self.machine.base() + u64::from(ours));
        let order = order_of(op.order);
        let direct = op.kind == OpKind::FreeDirect;
        self.blame_frees(pfn, op.order, direct);
        let yard = self.yard;
        let done = if direct { yard.free_direct(pfn, order) } else { yard.free(pfn, order) };
        if done.is_err() {
            return false;
        }
        self.figures.free_blocks += 1;
        self.figures.free_pages += 1 << op.order;
        if !direct && self.caches(op.order) {
            self.idle.now += 1 << op.order;
        }
        true
    }

    /// Cancels the waiting request of a recorded block that is freed before it was served.
    #[cold]
    pub(super) fn cancel_request(&mut self, frame: u32) -> bool {
        let waited = self.waiting.cancel(frame);
        self.figures.failed += u64::from(waited);
        if let Some(blame) = &self.observer.blame {
            blame.given_up(frame);
        }
        waited
    }

    /// Tells the blame of a free to come whether it bypasses the lists.
    #[inline(always)]
    fn blame_frees(&self, pfn: Pfn, order: u8, direct: bool) {
        if let Some(blame) = &self.observer.blame {
            let off = || Blaming::bypasses(self.yard.block_type(pfn));
            blame.frees(direct || !self.caches(order) || off());
        }
    }

    /// Like [`Driver::cancel_request`], where the freed block is only a part of the requested one.
    #[cold]
    fn cancel_enclosing_request(&mut self, op: &Op) -> bool {
        let machine = self.machine;
        let larger = op.order + 1..=Order::MAX.get();
        let mut heads = larger.filter_map(|order| machine.align_down(op.frame, order));
        !self.waiting.is_empty() && heads.any(|head| self.cancel_request(head))
    }

    /// Performs a run of silent pages as a bulk request (spec §6.1).
    #[cold]
    fn flush(&mut self) {
        let Some((cpu, zone, migratetype)) = self.silent.take() else { return };
        self.go(cpu.into());
        if let Some(blame) = &self.observer.blame {
            blame.asks_in_bulk(cpu.into(), self.observer.now.get(), migratetype);
        }
        let frames = std::mem::take(&mut self.silents);
        let got = self.bulk(zone, migratetype, frames.len(), |driver, i, ours| {
            let old = driver.map.put(frames[i], ours, 0);
            driver.replaced(old);
        });
        for &frame in &frames[got..] {
            self.figures.failed += 1;
            if let Some(blame) = &self.observer.blame {
                blame.failed(zone);
            }
            let old = self.map.put_failed(frame);
            self.replaced(old);
        }
        self.silents = frames;
        self.silents.clear();
    }

    /// Removes pages that the trace never shows from a list.
    #[cold]
    fn vanish(&mut self, slot: usize, pages: usize) {
        self.flush();
        let cpus = self.machine.cpus.len();
        self.go((slot % cpus) as u32);
        if let Some(blame) = &self.observer.blame {
            blame.asks_in_bulk((slot % cpus) as u32, self.observer.now.get(), 0);
        }
        self.bulk(slot / cpus, 0, pages, |_, _, _| {});
    }

    /// Allocates `n` single pages with bulk requests. Returns the number of pages allocated.
    fn bulk(
        &mut self,
        zone: usize,
        migratetype: u8,
        n: usize,
        mut each: impl FnMut(&mut Self, usize, u32),
    ) -> usize {
        let yard = self.yard;
        let flags = self.flags(zone, migratetype, SILENT_GFP);
        let mut got: Vec<u32> = Vec::with_capacity(n);
        let base = self.machine.base();
        while got.len() < n {
            let before = got.len();
            let node = NodeId(self.machine.zones[zone].node);
            let _ =
                yard.alloc_bulk_each_on(node, n - before, flags, |p| got.push((p.0 - base) as u32));
            if got.len() == before {
                break;
            }
        }
        self.idle.now -= got.len() as i64;
        self.follow_idle(self.observer.cpu.get());
        if let Some(blame) = &self.observer.blame {
            got.iter().for_each(|&ours| blame.taken_silently(ours));
        }
        for (i, &ours) in got.iter().enumerate() {
            if migratetype == 1 {
                let _ = yard.set_movable(Pfn(base + u64::from(ours)), Order::ZERO, true);
            }
            each(self, i, ours);
        }
        got.len()
    }

    /// Brings the number of idle pages up to date after an operation.
    #[inline(always)]
    fn follow_idle(&mut self, cpu: u32) {
        self.idle.now += self.observer.cached.take();
        if let Some(magazines) = &mut self.magazines {
            self.idle.now = magazines.after(self.yard, cpu as usize);
        }
    }

    /// Recounts the pages of all magazines after operations of several CPUs.
    fn count_magazines(&mut self) {
        if let Some(magazines) = &mut self.magazines {
            self.idle.now = magazines.recount(self.yard);
        }
    }

    /// Recounts the pages on all lists, because some changes bypass the running count.
    pub(super) fn count_idle(&mut self) {
        if self.magazines.is_some() {
            return self.count_magazines();
        }
        let mut pages = 0;
        for zone in &self.machine.zones {
            for cpu in 0..self.machine.cpus.len() {
                let set = self.yard.pageset(id_of(zone), CpuId(cpu as u32));
                pages += set.map_or(0, |t| i64::from(t.count));
            }
        }
        self.idle.now = pages;
    }

    pub(super) fn finish(self) -> Figures {
        let mut f = self.figures;
        (f.idle_peak, f.idle_mean) = self.idle.figures(0);
        f.moved = self.observer.holds.borrow().moved;
        f.matching = Some(self.matching);
        f.tick_pages = Some(self.observer.tick_pages.get());
        let mut blocks = [0; 11];
        let (mut holds, mut mismatches, mut free_high) = (0, 0, (0, 0));
        let yard = self.yard;
        for zone in self.machine.zones.iter().map(id_of) {
            let Some(s) = yard.zone_stats(zone) else { continue };
            f.zone_pages += s.pages_taken;
            f.claims += s.claims_whole + s.claims_part;
            f.steals += s.steals;
            holds += s.lock_holds;
            mismatches += s.mismatches;
            let mut sum = CpuStats::default();
            for cpu in 0..self.machine.cpus.len() {
                if let Some(c) = yard.cpu_stats(zone, CpuId(cpu as u32)) {
                    sum.add(&c);
                }
            }
            free_high.0 += sum.drains[DrainReason::FreeHigh as usize];
            free_high.1 += sum.drained_pages[DrainReason::FreeHigh as usize];
            for (o, n) in yard.free_blocks(zone).unwrap_or_default().into_iter().enumerate() {
                blocks[o] += n;
            }
        }
        // No event of the recording shows these. The packed engine counts only what its magazines move.
        if self.magazines.is_none() {
            f.zone_pages -= self.placed;
        }
        f.lock_holds = Some(holds);
        f.mismatches = Some(mismatches);
        f.free_high_drains = Some(free_high.0);
        f.free_high_pages = Some(free_high.1);
        f.unusable_9 = Some(unusable_index(&blocks, Order::HUGE));
        if let Some(magazines) = &self.magazines {
            magazines.complete(yard, &mut f);
        }
        f
    }
}

/// Lets a request with these flags take any free block.
fn despite_marks(flags: Gfp) -> Gfp {
    flags.difference(Gfp::NOMEMALLOC) | Gfp::MEMALLOC
}

/// KSWAPD_RECLAIM and DIRECT_RECLAIM: the flags assumed for silent requests (kernel stacks).
const SILENT_GFP: u8 = 2 | 4;
