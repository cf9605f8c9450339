//! Performs the plan on an allocator, operation by operation, in the recorded order.

use pageyard::policy::{Engine, Policy};
use pageyard::{Config, CpuId, CpuStats, DrainReason, Gfp, Order, Yard, ZoneKind, unusable_index};
use pageyard_machine::unpriced;

use super::counts::Idle;
use super::deferral::Deferred;
use super::error::ReplayError;
use super::figures::{Figures, Matching};
use super::lists::is_cached;
use super::machine::{Machine, id_of};
use super::magazines::Magazines;
use super::map::FrameMap;
use super::observer::Observer;
use super::plan::{Op, OpKind, ZONE_BITS, unpack_gfp};
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
    pub(super) silents: Vec<u32>,
    pub(super) silent: Option<(u16, usize, u8)>,
    pub(super) idle: Idle,
    /// On the packed engine, which has no events of refills and drains.
    magazines: Option<Magazines>,
    ticks: Ticks,
    pub(super) waiting: Waiting,
    pub(super) figures: Figures,
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
                .then(|| unpriced(|| Magazines::new(yard))),
            ticks: Ticks::new(setting.first_ns, yard.knobs().stat_interval, phases, seed),
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
    pub(super) fn caches(&self, order: u8) -> bool {
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

    /// Brings the number of idle pages up to date after an operation.
    #[inline(always)]
    pub(super) fn follow_idle(&mut self, cpu: u32) {
        self.idle.now += self.observer.cached.take();
        if let Some(magazines) = &mut self.magazines {
            self.idle.now = unpriced(|| magazines.after(self.yard, cpu as usize));
        }
    }

    /// Recounts the pages of all magazines after operations of several CPUs.
    fn count_magazines(&mut self) {
        if let Some(magazines) = &mut self.magazines {
            self.idle.now = unpriced(|| magazines.recount(self.yard));
        }
    }

    /// Recounts the pages on all lists, because some changes bypass the running count.
    pub(super) fn count_idle(&mut self) {
        if self.magazines.is_some() {
            return self.count_magazines();
        }
        let (yard, cpus) = (self.yard, self.machine.cpus.len() as u32);
        let on_lists = |zone| {
            let sets = (0..cpus).filter_map(move |cpu| yard.pageset(id_of(zone), CpuId(cpu)));
            sets.map(|tuning| i64::from(tuning.count)).sum::<i64>()
        };
        self.idle.now = unpriced(|| self.machine.zones.iter().map(on_lists).sum());
    }

    /// Returns the figures. Reading them costs no simulated time.
    pub(super) fn finish(self) -> Figures {
        unpriced(|| self.read_figures())
    }

    fn read_figures(self) -> Figures {
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
