//! The simulated machine: construction, attaching an allocator, and running tasks.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pageyard::policy::{Engine, Policy, StaticPolicy};
use pageyard::{Hooks, InitError, Layout, NodeId, Storage, Yard, ZoneSpec};

use crate::cpu::Spent;
use crate::fiber::Fiber;
use crate::layout::MachineLayout;
use crate::lock::SimLock;
use crate::lock_state::{LockName, LockState};
use crate::options::Options;
use crate::platform::{SimPlatform, SimYard};
use crate::priced::Hooked;
use crate::schedule::Schedule;
use crate::shared::Current;
use crate::spec::MachineSpec;
use crate::state::{Doing, Phase, State};
use crate::stats::Stats;
use crate::task::{Scope, Task};

/// A run that did not end: tasks remain, but none of them will ever be ready to run, or the run was
/// [stopped](Options::stop).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// What each remaining task waits for. Empty if the run was stopped.
    pub tasks: Vec<String>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stop() {
            return f.write_str("stopped on request");
        }
        write!(f, "deadlock: {}", self.tasks.join("; "))
    }
}

impl std::error::Error for Stuck {}

impl Stuck {
    /// Returns whether the run was stopped, which is no deadlock.
    pub fn is_stop(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// A machine of virtual CPUs in virtual time.
///
/// ```
/// use pageyard::policy::Linux612;
/// use pageyard::{CpuId, Gfp, Knobs, Order};
/// use pageyard_machine::{Machine, MachineSpec, Memory, Options};
///
/// let spec = MachineSpec::shipped("desktop")?;
/// let machine = Machine::new(&spec, Options { memory: Some(64 << 20), ..Options::default() });
/// let layout = machine.memory_layout();
/// let layout = layout.layout(Knobs::default());
/// let memory = Memory::for_layout(&layout)?;
/// let mut rooms = memory.rooms();
/// let yard = machine.yard::<Linux612, ()>(&layout, memory.storage(&mut rooms), ())?;
/// machine.run(|s| {
///     for cpu in 0..4 {
///         let yard = &yard;
///         s.spawn(CpuId(cpu), move |task| {
///             for _ in 0..100 {
///                 let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
///                 task.think(500);
///                 yard.free(pfn, Order::ZERO).unwrap();
///             }
///         });
///     }
/// })?;
/// assert!(machine.stats().elapsed_ns > 50_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    options: Options,
    state: Rc<RefCell<State>>,
}

/// Number of machines created in this process; distinguishes the locks of different machines.
static MACHINES: AtomicU32 = AtomicU32::new(1);

impl Machine {
    /// Creates a machine on which nothing has run yet.
    pub fn new(spec: &MachineSpec, options: Options) -> Self {
        let memory = options.memory.unwrap_or(spec.memory);
        Machine::with_zones(spec, options, MachineLayout::new(spec, memory).zones())
    }

    /// Creates a machine with these zones, instead of those of
    /// [`memory_layout`](Machine::memory_layout).
    ///
    /// # Panics
    /// Panics if a zone is on a node that the hardware does not have.
    pub fn with_zones(spec: &MachineSpec, options: Options, zones: &[ZoneSpec]) -> Self {
        let known = zones.iter().all(|z| z.node.0 < spec.nodes);
        assert!(known, "the machine has {} nodes", spec.nodes);
        let number = MACHINES.fetch_add(1, Relaxed);
        let end = zones.iter().map(|z| z.span.end.0).max().unwrap_or(0);
        let mut homes: Vec<_> = zones.iter().map(|z| (z.span.start.0, z.node.0)).collect();
        homes.sort_unstable();
        let state = State::new(number, spec, &options, homes, end);
        Machine { spec: spec.clone(), options, state: Rc::new(RefCell::new(state)) }
    }

    /// Creates a machine on which a schedule, not time, decides which task runs.
    pub(crate) fn scheduled(spec: &MachineSpec, options: Options, schedule: Schedule) -> Self {
        let machine = Machine::new(spec, options);
        machine.state.borrow_mut().schedule = Some(schedule);
        machine
    }

    pub(crate) fn take_schedule(&self) -> Option<Schedule> {
        self.state.borrow_mut().schedule.take()
    }

    /// Returns the hardware description.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Returns the options that the machine was created with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the machine's memory layout, from which an allocator can be built.
    pub fn memory_layout(&self) -> MachineLayout {
        MachineLayout::new(&self.spec, self.options.memory.unwrap_or(self.spec.memory))
    }

    /// Returns the machine's platform, extended with the embedder's hooks.
    pub fn platform<E: Hooks>(&self, embedder: E) -> SimPlatform<E> {
        SimPlatform::new(self.state.clone(), embedder)
    }

    /// Creates an allocator over all memory. The machine names its locks and sets its cache slices
    /// (§5.13). With [`Options::deferred`], the storage must be fresh.
    ///
    /// # Errors
    /// Fails like [`Yard::new`].
    pub fn yard<'a, P: StaticPolicy, E: Hooks>(
        &self,
        layout: &Layout<'a>,
        storage: Storage<'a, SimLock>,
        embedder: E,
    ) -> Result<SimYard<'a, P, E>, InitError> {
        self.yard_with_policy(layout, storage, embedder, P::POLICY)
    }

    /// Like [`yard`](Machine::yard), for a policy that is a value, such as `&Rules`.
    ///
    /// # Errors
    /// Fails like [`Yard::new`].
    pub fn yard_with_policy<'a, P: Policy, E: Hooks>(
        &self,
        layout: &Layout<'a>,
        storage: Storage<'a, SimLock>,
        embedder: E,
        policy: P,
    ) -> Result<SimYard<'a, P, E>, InitError> {
        let mut platform = self.platform(embedder);
        platform.is_packed = policy.rules().engine == Engine::Packed;
        let mut yard = Yard::with_policy(platform, policy);
        if self.options.deferred {
            yard.init_deferred(layout, storage)?;
            while !yard.finish_deferred() {}
        } else {
            yard.init(layout, storage)?;
        }
        self.adopt(&yard);
        Ok(yard)
    }

    /// Names an allocator's locks and sets its cache slices (§5.13). Needed only for an allocator
    /// that [`yard`](Machine::yard) did not create.
    pub fn adopt<P: Policy, E: Hooks>(&self, yard: &SimYard<'_, P, E>) {
        let is_packed = yard.policy().rules().engine == Engine::Packed;
        for zone in yard.zone_ids() {
            self.name_locks(LockName::Zone(zone), || yard.pass_zone_lock(zone));
        }
        if is_packed {
            let state = &mut *self.state.borrow_mut();
            yard.for_each_shared(|shared| state.lines.add(shared));
            state.lines.grow();
            state.caches.share(state.lines.len());
        }
        for (cpu, _) in (0..).map(pageyard::CpuId).zip(&self.spec.cpus) {
            for zone in yard.zone_ids() {
                self.name_locks(LockName::Pageset(zone, cpu), || {
                    if is_packed {
                        yard.pass_cpu_lock(zone, cpu);
                    } else {
                        let _ = yard.pageset(zone, cpu);
                    }
                });
            }
            if let Some(slice) = self.spec.cache_slice(cpu) {
                yard.set_cache_slice(cpu, slice);
            }
        }
    }

    /// Assigns `name` to every unnamed lock that `f` takes.
    pub fn name_locks(&self, name: LockName, f: impl FnOnce()) {
        {
            let mut state = self.state.borrow_mut();
            assert_eq!(state.phase, Phase::Idle, "locks can be named only between runs");
            state.phase = Phase::Naming;
            state.naming = Some(name);
        }
        let over = Over(&self.state);
        let _current = Current::set(&self.state);
        f();
        drop(over);
    }

    /// Creates a lock of the tasks' own, outside the allocator ([`Task::hold`]).
    pub fn lock(&self, number: u32) -> SimLock {
        let lock = SimLock::new();
        self.state.borrow_mut().register(&lock, LockName::Task(number));
        lock
    }

    /// Runs tasks until all of them have ended, except for [daemons](Task::spawn_daemon). Time
    /// continues from the end of the last run.
    ///
    /// # Errors
    /// Returns [`Stuck`] if the remaining tasks wait for each other, or if the run was
    /// [stopped](Options::stop). The allocator must not be used afterwards.
    ///
    /// # Panics
    /// Propagates a task's panic.
    pub fn run<'env>(&self, start: impl FnOnce(&Scope<'env>)) -> Result<(), Stuck> {
        let scope = Scope {
            state: self.state.clone(),
            spawned: RefCell::default(),
            stacks: RefCell::default(),
            stack: self.options.stack,
            stop: self.options.stop.clone(),
        };
        // Fibers are dropped before what they borrow, and while nothing runs.
        let mut fibers: Vec<Option<Fiber<'_>>> = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            assert_eq!(state.phase, Phase::Idle, "the machine is already running");
            state.align();
            state.clear();
        }
        let current = Current::set(&self.state);
        let hooked = Hooked::set(!self.state.borrow().lines.is_empty());
        start(&scope);
        self.state.borrow_mut().phase = Phase::Running;
        let over = Over(&self.state);
        let stuck = loop {
            for (task, program) in scope.spawned.take() {
                let scope = &scope;
                let fiber = Fiber::new(scope.stack(), move || {
                    let task = Task { scope };
                    program(&task);
                    task.end();
                });
                let task = task as usize;
                if task >= fibers.len() {
                    fibers.resize_with(task + 1, || None);
                }
                fibers[task] = Some(fiber);
            }
            if scope.stop.is_requested() {
                break Err(Stuck { tasks: Vec::new() });
            }
            let next = self.state.borrow_mut().next();
            let Some(task) = next else {
                break self.check_stuck();
            };
            let fiber = &mut fibers[task as usize];
            if fiber.as_mut().is_some_and(Fiber::resume) {
                scope.stacks.borrow_mut().extend(fiber.take().map(Fiber::into_stack));
                self.state.borrow_mut().finish();
            }
        };
        drop(over);
        drop(fibers);
        drop(hooked);
        drop(current);
        let mut state = self.state.borrow_mut();
        state.align();
        state.clear();
        stuck
    }

    fn check_stuck(&self) -> Result<(), Stuck> {
        let state = self.state.borrow();
        if state.live == 0 {
            return Ok(());
        }
        let mut tasks = Vec::new();
        for (n, task) in state.tasks.iter().enumerate() {
            let who = format!("task {n} on CPU {}", task.cpu);
            match task.doing {
                Doing::Spinning(id) => {
                    let lock = &state.locks[id];
                    let (name, owner) = (lock.name, lock.owner);
                    tasks.push(format!("{who} waits for lock {name:?}, which task {owner} holds"));
                }
                Doing::Waiting if !task.daemon => tasks.push(format!("{who} waits to be woken")),
                _ => {}
            }
        }
        if tasks.is_empty() {
            tasks.push("no task waits, but the schedule does not end".into());
        }
        Err(Stuck { tasks })
    }

    /// Returns the statistics counted since the machine was created, or since the last
    /// [`reset_stats`](Machine::reset_stats).
    pub fn stats(&self) -> Stats {
        Stats::of(&self.state.borrow())
    }

    /// Returns the time that each CPU has spent spinning on zone locks since counting began, in
    /// picoseconds. Cheap enough for frequent sampling, and allowed while tasks run.
    pub fn zone_waits(&self) -> Vec<u64> {
        let state = self.state.borrow();
        state.cpus.iter().map(|c| c.spent[Spent::ZoneWait as usize]).collect()
    }

    /// Resets all statistics, so that a phase can be measured by itself.
    pub fn reset_stats(&self) {
        let mut state = self.state.borrow_mut();
        state.align();
        state.since = state.cpus.iter().map(|c| c.clock).max().unwrap_or(0);
        state.switches = 0;
        state.channels.waited = 0;
        for cpu in &mut state.cpus {
            cpu.spent = Default::default();
            cpu.lines = Default::default();
        }
        state.locks.iter_mut().for_each(LockState::forget);
        state.lines.forget();
    }

    /// Returns the virtual time in nanoseconds: that of the running task's CPU, or the end of the
    /// last run.
    pub fn now(&self) -> u64 {
        self.state.borrow().clock() / 1000
    }

    /// Returns a number below `n`. Under a schedule ([`explore`](crate::explore)) it is one of the
    /// schedule's choices, so that an embedder's hooks can fail in every possible way; otherwise it
    /// is random.
    pub fn choose(&self, n: u32) -> u32 {
        let state = &mut *self.state.borrow_mut();
        match &mut state.schedule {
            Some(schedule) => schedule.pick(n),
            None => state.rng.below(n.into()) as u32,
        }
    }

    /// Returns the node of a CPU.
    pub fn node_of(&self, cpu: pageyard::CpuId) -> Option<NodeId> {
        Some(NodeId(self.spec.cpus.get(cpu.0 as usize)?.node))
    }
}

/// Guard that returns the machine to [`Phase::Idle`] on every exit path, panics included.
struct Over<'m>(&'m Rc<RefCell<State>>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.phase = Phase::Idle;
        state.naming = None;
    }
}
