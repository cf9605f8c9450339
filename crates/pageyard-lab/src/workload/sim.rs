//! Workloads on the simulated machine.

use std::cell::{Cell, RefCell};

use pageyard::policy::{Engine, Policy};
use pageyard::tuning::Limits;
use pageyard::{CpuId, Gfp, Knobs, MAX_ORDER, NodeId, Order, PAGE_SIZE, PAGEBLOCK_ORDER};
use pageyard_machine::{
    Costs, Machine, MachineSpec, Memory, Options, Pipe, Scope, SimLock, Stop, Task, Touch,
    WaitQueue, unpriced,
};

use super::actor::{Actor, BarrierId, Block, Job, Measure, Parcel, PipeId, Plan, Stage, ZoneView};
use super::age::Ageing;
use super::error::WorkloadError;
use super::metrics::{self, Counts, Observed, Waits};
use super::recipe::{Score, Site};
use super::watch::{Course, Recorder, Recording, Watch, WatchedYard};
use crate::policies::Choice;
use crate::result::SharedLines;

/// One run.
#[derive(Clone, Copy)]
pub(super) struct Setting<'s> {
    pub(super) spec: &'s MachineSpec,
    pub(super) memory: Option<u64>,
    pub(super) descriptor: u32,
    pub(super) site: &'s Site,
    pub(super) age: u8,
    pub(super) seed: u64,
    pub(super) score: Score,
    pub(super) costs: &'s Costs,
    pub(super) limits: Option<Limits>,
    pub(super) stop: &'s Stop,
    pub(super) plan: &'s dyn Plan,
    /// Where to record a track, if one is requested.
    pub(super) recording: Option<&'s Recording>,
}

/// Memory for descriptors, kept from run to run: on a large machine, allocating it takes longer
/// than the run. The packed engine has no descriptors.
#[derive(Default)]
pub(super) struct Room(Option<Memory>);

/// Runs a plan under a policy.
pub(super) fn run(
    setting: &Setting<'_>,
    choice: &Choice,
    room: &mut Room,
) -> Result<(Vec<Measure>, Option<SharedLines>), WorkloadError> {
    let &Setting {
        spec,
        memory,
        descriptor,
        seed,
        score,
        costs,
        limits,
        stop,
        plan,
        recording,
        ..
    } = setting;
    let ageing = Ageing::new(setting.site, setting.age);
    let deferred = plan.deferred();
    if deferred {
        // Deferred initialisation needs fresh descriptors from the system.
        room.0 = None;
    }
    let costs = costs.clone();
    let stop = stop.clone();
    let options = Options { seed, memory, descriptor, deferred, costs, stop, ..Options::default() };
    let machine = Machine::new(spec, options);
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let packed;
    let memory = match (choice.rules.engine, &mut room.0) {
        (Engine::Packed, _) => {
            packed = Memory::for_layout_on(Engine::Packed, &layout)?;
            &packed
        }
        (Engine::Exact, Some(memory)) => &*memory,
        (Engine::Exact, empty) => empty.insert(Memory::for_layout(&layout)?),
    };
    let mut rooms = memory.rooms();
    let watch = Watch::default();
    let yard =
        machine.yard_with_policy(&layout, memory.storage(&mut rooms), &watch, &choice.rules)?;
    if let Some(limits) = plan.limits().or(limits) {
        for zone in yard.zone_ids() {
            yard.set_pcp_limits(zone, limits);
        }
    }
    choice.settings.apply(&yard)?;
    let course = recording.map(|r| Course::new(r, &machine, &yard, &watch));
    let locks = (0..plan.lru_locks()).map(|n| machine.lock(n as u32)).collect();
    let world = World::new(&yard, plan, locks, course.as_ref());

    if setting.age != 0 {
        stage(&machine, &yard, &world, |stage| ageing.start(stage))?;
    }
    stage(&machine, &yard, &world, |stage| plan.prepare(stage))?;
    stage(&machine, &yard, &world, |stage| plan.setup(stage))?;
    machine.reset_stats();
    world.begin();
    let before = Counts::of(&yard);
    stage(&machine, &yard, &world, |stage| plan.run(stage))?;
    world.end();
    let stats = machine.stats();
    let observed = Observed {
        stats: &stats,
        before,
        after: Counts::of(&yard),
        work: world.work.get(),
        failed: world.failed.get(),
        peak_pages: world.peak.get().max(0) as u64,
        waits: Some(world.waits.take()),
        engine: choice.rules.engine,
    };
    let mut measures = metrics::of(&observed, score);
    stage(&machine, &yard, &world, |stage| plan.finish(stage))?;
    stage(&machine, &yard, &world, |stage| ageing.end(stage))?;
    yard.drain_all(None);
    let (missing, in_use) = (world.free_at_start - world.pages.free_pages(), world.in_use.get());
    if missing != 0 || in_use != 0 {
        return Err(WorkloadError::Leak { missing, in_use });
    }
    // The plan's own results follow its score, if it has one, and precede the explanatory metrics.
    let at = usize::from(score != Score::Own);
    measures.splice(at..at, plan.measures());
    Ok((measures, metrics::lines(&stats)))
}

/// Runs a stage to completion.
fn stage<'env, 'a: 'env>(
    machine: &Machine,
    yard: &'env WatchedYard<'a>,
    world: &'env World<'env>,
    start: impl FnOnce(&Start<'_, 'env>),
) -> Result<(), WorkloadError> {
    machine.run(|scope| {
        start(&Start { scope, world });
        scope.spawn_ticks(yard);
    })?;
    Ok(())
}

/// The allocator, independent of its policy.
trait Pages {
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block>;
    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block>;
    fn free(&self, block: Block);
    fn free_list(&self, blocks: &[Block]);
    /// Returns the number of pages on the zones' free lists in blocks of at least this order.
    fn free_pages_from(&self, order: u8) -> u64;
    fn zones(&self) -> Vec<ZoneView>;
    fn free_pages(&self) -> i64 {
        self.free_pages_from(0) as i64
    }
    /// Returns the number of operations between two samples of what CPUs keep.
    fn sample_every(&self) -> u32;
    /// Returns the pages that CPUs keep: those that left the zones' free memory and are not in use.
    fn kept(&self, free_at_start: i64, in_use: i64) -> i64;
}

impl Pages for WatchedYard<'_> {
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block> {
        Some((WatchedYard::alloc(self, order, gfp).ok()?, order))
    }

    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block> {
        Some((WatchedYard::alloc_on(self, node, order, gfp).ok()?, order))
    }

    fn free(&self, (pfn, order): Block) {
        WatchedYard::free(self, pfn, order).expect("a workload frees what it owns");
    }

    fn free_list(&self, blocks: &[Block]) {
        self.free_batch(blocks).expect("a workload frees what it owns");
    }

    fn free_pages_from(&self, order: u8) -> u64 {
        let blocks = self.zone_ids().filter_map(|z| self.free_blocks(z));
        let pages = |b: [u64; MAX_ORDER as usize + 1]| {
            (0..).zip(b).filter(|(o, _)| *o >= order).map(|(o, n)| n << o).sum::<u64>()
        };
        unpriced(|| blocks.map(pages).sum())
    }

    fn zones(&self) -> Vec<ZoneView> {
        unpriced(|| ZoneView::all(self))
    }

    fn sample_every(&self) -> u32 {
        (SAMPLE_EVERY_OF_CPU * self.cpus()).max(SAMPLE_EVERY)
    }

    fn kept(&self, free_at_start: i64, in_use: i64) -> i64 {
        if self.policy().rules().engine == Engine::Exact {
            return free_at_start - self.free_pages() - in_use;
        }
        // The packed engine would count all bits.
        let of = |zone| (0..self.cpus()).filter_map(move |cpu| self.cpu_stats(zone, CpuId(cpu)));
        unpriced(|| self.zone_ids().flat_map(of).map(|s| s.cached_pages()).sum())
    }
}

/// Number of requests and frees between two samples of what CPUs keep, at least, and for each CPU: on
/// the packed engine all CPUs' counters are added up. Sampling takes no virtual time.
const SAMPLE_EVERY: u32 = 64;
const SAMPLE_EVERY_OF_CPU: u32 = 4;

/// The shared state of all actors of a run.
struct World<'w> {
    pages: &'w dyn Pages,
    pipes: Vec<Pipe<Parcel>>,
    barriers: Vec<Barrier>,
    lru_locks: Vec<SimLock>,
    work: Cell<u64>,
    failed: Cell<u64>,
    free_at_start: i64,
    /// Pages that actors hold.
    in_use: Cell<i64>,
    sample_every: u32,
    unsampled: Cell<u32>,
    /// The largest number of pages that CPUs and depots kept.
    peak: Cell<i64>,
    /// Durations of single-page requests.
    waits: RefCell<Waits>,
    course: Option<&'w dyn Recorder>,
}

impl<'w> World<'w> {
    fn new(
        pages: &'w dyn Pages,
        plan: &dyn Plan,
        lru_locks: Vec<SimLock>,
        course: Option<&'w (impl Recorder + 'w)>,
    ) -> World<'w> {
        World {
            pages,
            pipes: plan.pipes().into_iter().map(Pipe::new).collect(),
            barriers: plan.barriers().into_iter().map(Barrier::new).collect(),
            lru_locks,
            work: Cell::new(0),
            failed: Cell::new(0),
            free_at_start: pages.free_pages(),
            in_use: Cell::new(0),
            sample_every: pages.sample_every(),
            unsampled: Cell::new(0),
            peak: Cell::new(0),
            waits: RefCell::default(),
            course: course.map(|c| c as _),
        }
    }

    /// Resets the counters at the start of the measured stage.
    fn begin(&self) {
        self.work.set(0);
        self.failed.set(0);
        self.peak.set(0);
        self.waits.take();
        self.course.inspect(|c| c.begin());
    }

    /// Ends the measured stage.
    fn end(&self) {
        self.sample();
        self.course.inspect(|c| c.end());
    }

    fn note(&self, pages: i64) {
        self.in_use.set(self.in_use.get() + pages);
        let unsampled = self.unsampled.get() + 1;
        self.unsampled.set(unsampled % self.sample_every);
        if unsampled == self.sample_every {
            self.sample();
        }
    }

    fn sample(&self) {
        let kept = self.pages.kept(self.free_at_start, self.in_use.get());
        self.peak.set(self.peak.get().max(kept));
    }

    fn noted(&self, got: Option<Block>) -> Option<Block> {
        match got {
            Some((_, order)) => self.note(order.pages().into()),
            None => self.failed.set(self.failed.get() + 1),
        }
        got
    }
}

struct Barrier {
    all: usize,
    here: Cell<usize>,
    waiting: WaitQueue,
}

impl Barrier {
    fn new(all: usize) -> Barrier {
        Barrier { all, here: Cell::new(0), waiting: WaitQueue::new() }
    }
}

struct Start<'s, 'env> {
    scope: &'s Scope<'env>,
    world: &'env World<'env>,
}

impl<'env> Stage<'env> for Start<'_, 'env> {
    fn spawn(&self, cpu: CpuId, job: Job<'env>) {
        let world = self.world;
        self.scope.spawn(cpu, move |task| job(&SimActor { task, world }));
    }
}

struct SimActor<'t, 's, 'env> {
    task: &'t Task<'s, 'env>,
    world: &'env World<'env>,
}

impl SimActor<'_, '_, '_> {
    /// Makes a request, and notes its duration. A task may request for long without waiting, so a
    /// run that is to end early ends here too.
    fn request(
        &self,
        order: Order,
        alloc: impl FnOnce(&dyn Pages) -> Option<Block>,
    ) -> Option<Block> {
        let asked = self.task.now();
        let got = alloc(self.world.pages);
        let now = self.task.now();
        if order == Order::ZERO {
            self.world.waits.borrow_mut().note(now.saturating_sub(asked));
        }
        self.world.course.inspect(|c| c.answered(asked, now, got));
        self.task.check_stop();
        self.world.noted(got)
    }
}

impl<'env> Actor<'env> for SimActor<'_, '_, 'env> {
    fn cpu(&self) -> CpuId {
        self.task.cpu()
    }

    fn now(&self) -> u64 {
        self.task.now()
    }

    fn think(&self, ns: u64) {
        self.task.think(ns);
    }

    fn work(&self, ns: u64, bytes: u64, node: NodeId) {
        self.task.work(ns, bytes, node);
    }

    fn sleep_until(&self, ns: u64) {
        self.task.sleep_until(ns);
    }

    fn sync(&self) {
        self.task.sync();
    }

    fn migrate(&self, to: CpuId) {
        self.task.migrate(to);
    }

    fn random(&self, n: u64) -> u64 {
        self.task.random(n)
    }

    fn random_exponential(&self, mean: u64) -> u64 {
        self.task.random_exponential(mean)
    }

    fn random_log_normal(&self, median: u64, p99: u64) -> u64 {
        self.task.random_log_normal(median, p99)
    }

    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block> {
        self.request(order, |pages| pages.alloc(order, gfp))
    }

    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block> {
        self.request(order, |pages| pages.alloc_on(node, order, gfp))
    }

    fn free(&self, block: Block) {
        self.world.pages.free(block);
        self.world.course.inspect(|c| c.freed(self.task.now(), &[block]));
        self.world.note(-i64::from(block.1.pages()));
    }

    fn free_list(&self, blocks: &[Block]) {
        self.world.pages.free_list(blocks);
        self.world.course.inspect(|c| c.freed(self.task.now(), blocks));
        self.world.note(-blocks.iter().map(|b| i64::from(b.1.pages())).sum::<i64>());
    }

    fn touch(&self, (pfn, order): Block, bytes: u64) {
        let size = u64::from(order.pages()) * PAGE_SIZE;
        if bytes >= size {
            self.task.touch(pfn, order, Touch::Use);
            return;
        }
        let mut left = bytes;
        let mut page = pfn;
        while left > 0 {
            let part = left.min(PAGE_SIZE);
            self.task.touch_bytes(page, part);
            left -= part;
            page.0 += 1;
        }
    }

    fn send(&self, pipe: PipeId, parcel: Parcel) {
        if let Err(parcel) = self.world.pipes[pipe.0].send(self.task, parcel) {
            self.free_list(&parcel);
        }
    }

    fn receive(&self, pipe: PipeId) -> Option<Parcel> {
        self.world.pipes[pipe.0].receive(self.task)
    }

    fn close(&self, pipe: PipeId) {
        self.world.pipes[pipe.0].close(self.task);
    }

    fn meet(&self, barrier: BarrierId) {
        let barrier = &self.world.barriers[barrier.0];
        self.task.sync();
        barrier.here.set(barrier.here.get() + 1);
        if barrier.here.get() < barrier.all {
            barrier.waiting.wait(self.task);
        } else {
            barrier.here.set(0);
            barrier.waiting.wake_all(self.task);
        }
    }

    fn spawn(&self, cpu: CpuId, job: Job<'env>) {
        let world = self.world;
        self.task.spawn(cpu, move |task| job(&SimActor { task, world }));
    }

    fn free_pages(&self) -> u64 {
        (self.world.free_at_start - self.world.in_use.get()) as u64
    }

    fn free_huge_pages(&self) -> u64 {
        self.world.pages.free_pages_from(PAGEBLOCK_ORDER)
    }

    fn zones(&self) -> Vec<ZoneView> {
        self.world.pages.zones()
    }

    fn hold_lru(&self, lock: usize, ns: u64) {
        self.task.hold(&self.world.lru_locks[lock], ns);
    }

    fn zone_free(&self) -> u64 {
        self.world.pages.free_pages_from(0)
    }

    fn done(&self, work: u64) {
        self.world.work.set(self.world.work.get() + work);
    }
}
