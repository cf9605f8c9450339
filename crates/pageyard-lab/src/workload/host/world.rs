//! The threads that run a plan, and their shared state.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;

use pageyard::policy::Policy;
use pageyard::{CpuId, Gfp, MAX_ORDER, NodeId, Order, PAGEBLOCK_ORDER};
use pageyard_host::{RawYard, Watched, clock, cpu};
use pageyard_machine::Rng;

use super::super::actor::{Actor, BarrierId, Block, Job, Parcel, PipeId, Plan, Stage, ZoneView};
use super::super::seats::lock;
use super::spin;
use super::times::{self, Moves, Times, ZoneLocks};
use super::wait::{Alarm, Barrier, Pipe};

/// A yard whose zone locks are measured.
pub(super) type HostYard<P> = RawYard<P, Watched<ZoneLocks>, Moves>;

/// The allocator, independent of its policy.
pub(super) trait Pages: Sync {
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block>;
    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block>;
    fn free(&self, block: Block);
    fn free_list(&self, blocks: &[Block]);
    /// Accesses the first `bytes` bytes of a block.
    fn touch(&self, block: Block, bytes: u64);
    fn free_memory(&self) -> Free;
    /// Returns the number of pages on free lists in blocks of at least a huge page.
    fn free_huge_pages(&self) -> u64;
    fn zones(&self) -> Vec<ZoneView>;
    /// Runs a tick for all CPUs.
    fn tick(&self);
}

/// Free memory, in pages.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Free {
    pub(super) all: u64,
    pub(super) cached: u64,
}

impl<P: Policy + Sync> Pages for HostYard<P> {
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block> {
        Some((HostYard::alloc(self, order, gfp).ok()?, order))
    }

    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block> {
        Some((HostYard::alloc_on(self, node, order, gfp).ok()?, order))
    }

    fn free(&self, (pfn, order): Block) {
        HostYard::free(self, pfn, order).expect("a workload frees what it owns");
    }

    fn free_list(&self, blocks: &[Block]) {
        self.free_batch(blocks).expect("a workload frees what it owns");
    }

    fn touch(&self, (pfn, order): Block, bytes: u64) {
        self.words(pfn, order).expect("a workload uses what it owns").touch(bytes);
    }

    fn free_memory(&self) -> Free {
        let core = self.core();
        let mut free = Free::default();
        for zone in core.zone_ids() {
            let Some(info) = core.zone_info(zone) else { continue };
            free.all += info.free_exact + info.cached;
            free.cached += info.cached;
        }
        free
    }

    fn free_huge_pages(&self) -> u64 {
        let blocks = self.core().zone_ids().filter_map(|zone| self.core().free_blocks(zone));
        let huge = usize::from(PAGEBLOCK_ORDER)..=usize::from(MAX_ORDER);
        blocks.map(|blocks| huge.clone().map(|o| blocks[o] << o).sum::<u64>()).sum()
    }

    fn zones(&self) -> Vec<ZoneView> {
        ZoneView::all(self.core())
    }

    fn tick(&self) {
        HostYard::tick(self);
    }
}

/// The shared state of all actors of a run.
pub(super) struct World<'w> {
    pages: &'w dyn Pages,
    /// The system's CPU for each of the plan's CPUs.
    cpus: &'w [u32],
    seed: u64,
    /// The clock at the start of the run.
    start: u64,
    pipes: Vec<Pipe>,
    barriers: Vec<Barrier>,
    alarm: Alarm,
    /// The panic payload of the first thread that failed.
    failure: Mutex<Option<Box<dyn Any + Send>>>,
    /// Number of actors created so far.
    actors: AtomicU64,
    pub(super) work: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Pages that actors hold; exact only while none of them runs.
    pub(super) in_use: AtomicI64,
    /// The largest number of pages on per-CPU lists that was sampled.
    pub(super) peak: AtomicU64,
    /// The clock at the start of the stage's first actor, and at the end of the last.
    began: AtomicU64,
    ended: AtomicU64,
    times: Mutex<Times>,
}

impl<'w> World<'w> {
    pub(super) fn new(
        pages: &'w dyn Pages,
        cpus: &'w [u32],
        seed: u64,
        plan: &dyn Plan,
    ) -> World<'w> {
        World {
            pages,
            cpus,
            seed,
            start: clock::now(),
            pipes: plan.pipes().into_iter().map(Pipe::new).collect(),
            barriers: plan.barriers().into_iter().map(Barrier::new).collect(),
            alarm: Alarm::default(),
            failure: Mutex::default(),
            actors: AtomicU64::new(0),
            work: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            in_use: AtomicI64::new(0),
            peak: AtomicU64::new(0),
            began: AtomicU64::new(u64::MAX),
            ended: AtomicU64::new(0),
            times: Mutex::default(),
        }
    }

    /// Resets the counters at the start of the measured stage.
    pub(super) fn begin(&self) {
        self.work.store(0, Relaxed);
        self.failed.store(0, Relaxed);
        self.peak.store(0, Relaxed);
        *lock(&self.times) = Times::default();
    }

    /// Samples the number of pages on per-CPU lists.
    pub(super) fn look(&self) {
        self.peak.fetch_max(self.pages.free_memory().cached, Relaxed);
    }

    /// Ticks once per second, and samples the per-CPU lists a hundred times as often, until the run
    /// ends.
    pub(super) fn watch(&self, over: &std::sync::mpsc::Receiver<()>) {
        const LOOK: Duration = Duration::from_millis(10);
        let mut looks = 0u32;
        while over.recv_timeout(LOOK) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            self.look();
            looks += 1;
            if looks.is_multiple_of(100) {
                self.pages.tick();
                // Unbind from the CPU of the last tick.
                let _ = cpu::bind(self.cpus);
            }
        }
    }

    fn fail(&self, with: Box<dyn Any + Send>) {
        lock(&self.failure).get_or_insert(with);
        self.alarm.raise();
        self.pipes.iter().for_each(Pipe::ring);
        self.barriers.iter().for_each(Barrier::ring);
    }

    /// Runs an actor to completion on the calling thread.
    fn play<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        cpu: CpuId,
        job: Job<'env>,
        gate: Option<Arc<Barrier>>,
    ) {
        let bound = cpu::bind(&[self.cpus[cpu.0 as usize]]);
        let number = self.actors.fetch_add(1, Relaxed);
        let actor = HostActor {
            scope,
            world: self,
            cpu: Cell::new(cpu),
            rng: RefCell::new(Rng::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            in_use: Cell::new(0),
            work: Cell::new(0),
            failed: Cell::new(0),
        };
        times::take();
        let done = catch_unwind(AssertUnwindSafe(|| {
            bound.expect("a thread may run where its process may");
            if let Some(gate) = gate {
                gate.meet(&self.alarm);
            }
            self.began.fetch_min(clock::now(), Relaxed);
            let busy = clock::thread();
            job(&actor);
            clock::thread() - busy
        }));
        let mut times = times::take();
        times.busy = *done.as_ref().unwrap_or(&0);
        self.ended.fetch_max(clock::now(), Relaxed);
        lock(&self.times).add(&times);
        self.work.fetch_add(actor.work.get(), Relaxed);
        self.failed.fetch_add(actor.failed.get(), Relaxed);
        self.in_use.fetch_add(actor.in_use.get(), Relaxed);
        if let Err(with) = done {
            self.fail(with);
        }
    }
}

/// Collects the actors of a stage, so that all begin at once.
struct Start<'env>(RefCell<Vec<(CpuId, Job<'env>)>>);

impl<'env> Stage<'env> for Start<'env> {
    fn spawn(&self, cpu: CpuId, job: Job<'env>) {
        self.0.borrow_mut().push((cpu, job));
    }
}

/// Runs a stage to completion and returns its times.
///
/// # Panics
/// Propagates a panic of a thread.
pub(super) fn stage<'env>(
    world: &'env World<'env>,
    start: impl FnOnce(&dyn Stage<'env>),
) -> std::io::Result<Times> {
    let jobs = Start(RefCell::default());
    start(&jobs);
    let jobs = jobs.0.into_inner();
    let gate = Arc::new(Barrier::new(jobs.len()));
    world.began.store(u64::MAX, Relaxed);
    thread::scope(|scope| -> std::io::Result<()> {
        for (cpu, job) in jobs {
            let at = gate.clone();
            let play = move || world.play(scope, cpu, job, Some(at));
            if let Err(e) = thread::Builder::new().spawn_scoped(scope, play) {
                // The threads already started wait at the gate.
                world.fail(Box::new("too few threads"));
                gate.ring();
                return Err(e);
            }
        }
        Ok(())
    })?;
    if let Some(with) = lock(&world.failure).take() {
        resume_unwind(with);
    }
    let mut times = std::mem::take(&mut *lock(&world.times));
    times.elapsed = world.ended.load(Relaxed).saturating_sub(world.began.load(Relaxed));
    Ok(times)
}

/// A thread that runs a job.
struct HostActor<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    world: &'env World<'env>,
    cpu: Cell<CpuId>,
    rng: RefCell<Rng>,
    in_use: Cell<i64>,
    work: Cell<u64>,
    failed: Cell<u64>,
}

impl HostActor<'_, '_> {
    fn note(&self, pages: i64) {
        self.in_use.set(self.in_use.get() + pages);
    }

    fn noted(&self, got: Option<Block>) -> Option<Block> {
        match got {
            Some((_, order)) => self.note(order.pages().into()),
            None => self.failed.set(self.failed.get() + 1),
        }
        got
    }
}

impl<'scope, 'env> Actor<'env> for HostActor<'scope, 'env> {
    fn cpu(&self) -> CpuId {
        self.cpu.get()
    }

    fn now(&self) -> u64 {
        clock::now() - self.world.start
    }

    fn think(&self, ns: u64) {
        spin::work(ns);
    }

    fn sleep_until(&self, ns: u64) {
        let left = ns.saturating_sub(self.now());
        if left > 0 {
            thread::sleep(Duration::from_nanos(left));
        }
    }

    // On a host, locks protect the state that other actors change.
    fn sync(&self) {}

    fn migrate(&self, to: CpuId) {
        cpu::bind(&[self.world.cpus[to.0 as usize]])
            .expect("a thread may run where its process may");
        self.cpu.set(to);
    }

    fn random(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn random_exponential(&self, mean: u64) -> u64 {
        self.rng.borrow_mut().exponential(mean)
    }

    fn random_log_normal(&self, median: u64, p99: u64) -> u64 {
        self.rng.borrow_mut().log_normal(median, p99)
    }

    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block> {
        self.noted(self.world.pages.alloc(order, gfp))
    }

    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block> {
        self.noted(self.world.pages.alloc_on(node, order, gfp))
    }

    fn free(&self, block: Block) {
        self.world.pages.free(block);
        self.note(-i64::from(block.1.pages()));
    }

    fn free_list(&self, blocks: &[Block]) {
        self.world.pages.free_list(blocks);
        self.note(-blocks.iter().map(|b| i64::from(b.1.pages())).sum::<i64>());
    }

    fn touch(&self, block: Block, bytes: u64) {
        self.world.pages.touch(block, bytes);
    }

    fn send(&self, pipe: PipeId, parcel: Parcel) {
        if let Err(parcel) = self.world.pipes[pipe.0].send(parcel, &self.world.alarm) {
            self.free_list(&parcel);
        }
    }

    fn receive(&self, pipe: PipeId) -> Option<Parcel> {
        self.world.pipes[pipe.0].receive(&self.world.alarm)
    }

    fn close(&self, pipe: PipeId) {
        self.world.pipes[pipe.0].close();
    }

    fn meet(&self, barrier: BarrierId) {
        self.world.barriers[barrier.0].meet(&self.world.alarm);
    }

    fn spawn(&self, cpu: CpuId, job: Job<'env>) {
        let (scope, world) = (self.scope, self.world);
        let play = move || world.play(scope, cpu, job, None);
        thread::Builder::new().spawn_scoped(scope, play).expect("a thread of the system's");
    }

    fn free_pages(&self) -> u64 {
        self.world.pages.free_memory().all
    }

    fn free_huge_pages(&self) -> u64 {
        self.world.pages.free_huge_pages()
    }

    fn zones(&self) -> Vec<ZoneView> {
        self.world.pages.zones()
    }

    fn zone_free(&self) -> u64 {
        let free = self.world.pages.free_memory();
        free.all - free.cached
    }

    fn done(&self, work: u64) {
        self.work.set(self.work.get() + work);
    }
}
