//! Tasks: where they are spawned, and what they can do.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use pageyard::{CpuId, NodeId, Order, Pfn};

use crate::cache::LINE;
use crate::channel::PART;
use crate::cpu::Spent;
use crate::fiber;
use crate::lock::SimLock;
use crate::state::State;
use crate::stop::Stop;
use crate::traffic::Touch;

type Program<'env> = Box<dyn FnOnce(&Task<'_, 'env>) + 'env>;

/// Where the tasks of a run are spawned. Tasks may borrow data that lives for `'env`.
pub struct Scope<'env> {
    pub(crate) state: Rc<RefCell<State>>,
    /// Tasks without a fiber yet.
    pub(crate) spawned: RefCell<Vec<(u32, Program<'env>)>>,
    pub(crate) stacks: RefCell<Vec<DefaultStack>>,
    pub(crate) stack: usize,
    pub(crate) stop: Stop,
}

impl<'env> Scope<'env> {
    /// Spawns a task on a CPU.
    ///
    /// # Panics
    /// Panics if there is no such CPU.
    pub fn spawn(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.add(cpu, false, Box::new(program));
    }

    /// Spawns a task that the run does not wait for, such as a kernel thread. When all other tasks
    /// have ended, it continues until it sleeps or waits, and no further. A woken daemon preempts
    /// the tasks of its CPU.
    ///
    /// # Panics
    /// Panics if there is no such CPU.
    pub fn spawn_daemon(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.add(cpu, true, Box::new(program));
    }

    pub(crate) fn add(&self, cpu: CpuId, daemon: bool, program: Program<'env>) {
        let mut state = self.state.borrow_mut();
        assert!((cpu.0 as usize) < state.cpus.len(), "the machine has no CPU {}", cpu.0);
        let task = state.spawn(cpu.0, daemon);
        self.spawned.borrow_mut().push((task, program));
    }

    pub(crate) fn stack(&self) -> DefaultStack {
        let pooled = self.stacks.borrow_mut().pop();
        pooled.unwrap_or_else(|| DefaultStack::new(self.stack).expect("memory for a task's stack"))
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("spawned", &self.spawned.borrow().len()).finish()
    }
}

/// The running task. All times are virtual.
#[derive(Debug)]
pub struct Task<'s, 'env> {
    pub(crate) scope: &'s Scope<'env>,
}

impl<'env> Task<'_, 'env> {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.scope.state.borrow_mut())
    }

    /// Lets tasks that are due earlier run first. Unless `strictly`, the task may stay ahead of
    /// them by the look-ahead.
    fn catch_up(&self, strictly: bool) {
        while self.with(|s| s.must_wait(strictly)) {
            fiber::suspend();
        }
    }

    /// Suspends until no other task is due earlier: the CPU is busy until then.
    pub(crate) fn end(&self) {
        while self.with(|s| s.is_late()) {
            fiber::suspend();
        }
    }

    /// Returns the task's CPU.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.with(|s| s.cpu))
    }

    /// Returns the time on the task's CPU, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.with(|s| s.clock()) / 1000
    }

    /// Works for `ns` nanoseconds outside the allocator. Other tasks may use the CPU when the time
    /// slice ends.
    pub fn think(&self, ns: u64) {
        let slice = self.with(|s| s.costs.time_slice);
        let most = if self.with(|s| s.spec.siblings) { PART.min(slice) } else { slice };
        self.in_parts(ns, most, |s, part, _| s.charge_own(Spent::Think, part));
    }

    /// Works for `ns` nanoseconds outside the allocator, while `bytes` bytes arrive evenly from a
    /// node's memory. This takes longer if the demand exceeds the bandwidth of that memory or of
    /// the link to it. On a machine that does not state its bandwidth, this is
    /// [`think`](Task::think).
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn work(&self, ns: u64, bytes: u64, node: NodeId) {
        let nodes = self.with(|s| s.spec.nodes);
        assert!(node.0 < nodes, "the machine has no node {}", node.0);
        // Rounding leaves a remainder of the bytes, which goes with the last part.
        let mut left = bytes;
        let most = self.with(|s| s.costs.time_slice).min(PART);
        self.in_parts(ns, most, |s, part, last| {
            let even = u128::from(bytes) * u128::from(part) / u128::from((ns * 1000).max(1));
            let bytes = if last { left } else { even as u64 };
            left -= bytes;
            s.work(part, bytes, node.0);
        });
    }

    /// Does `ns` nanoseconds of work in parts. Between parts, other tasks may use the CPU after a
    /// time slice, and the state of the core's other threads is read again. `part` receives whether
    /// it is the last one.
    fn in_parts(&self, ns: u64, most: u64, mut part: impl FnMut(&mut State, u64, bool)) {
        let (mut left, most) = (ns * 1000, most.max(1));
        while left > 0 {
            let step = left.min(most);
            left -= step;
            self.with(|s| part(s, step, left == 0));
            // At the end nothing has happened that other tasks could observe.
            if left > 0 {
                self.catch_up(false);
            }
        }
    }

    /// Takes a lock, works for `ns` nanoseconds, and releases it.
    pub fn hold(&self, lock: &SimLock, ns: u64) {
        lock.take(true);
        self.with(|s| s.charge_own(Spent::Think, ns * 1000));
        lock.release();
    }

    /// Accesses the contents of a block's pages. The cost depends on where the lines are.
    pub fn touch(&self, pfn: Pfn, order: Order, how: Touch) {
        self.catch_up(false);
        self.with(|s| s.touch_pages(pfn, order, how));
    }

    /// Accesses the first `bytes` bytes of a page.
    pub fn touch_bytes(&self, pfn: Pfn, bytes: u64) {
        self.catch_up(false);
        self.with(|s| s.touch_lines(pfn, bytes.div_ceil(LINE), Touch::Use));
    }

    /// Sleeps until `ns`, leaving the CPU to other tasks. Returns at once if that time has passed.
    pub fn sleep_until(&self, ns: u64) {
        if ns <= self.now() {
            return;
        }
        self.catch_up(false);
        self.with(|s| s.sleep_until(ns * 1000));
        fiber::suspend();
    }

    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.sleep_until(self.now() + ns);
    }

    /// Lets everything that is due earlier happen first. Call this before reading state that other
    /// tasks change, except for locks and queues.
    pub fn sync(&self) {
        self.catch_up(true);
        if self.with(|s| s.point()) {
            fiber::suspend();
            self.with(|s| s.point());
        }
    }

    /// Gives up here, for good, if the run is to [stop](crate::Options::stop). For tasks that work for
    /// long without waiting for others, since a run stops only between tasks.
    #[inline]
    pub fn check_stop(&self) {
        while self.scope.stop.is_requested() {
            fiber::suspend();
        }
    }

    /// Moves to another CPU.
    ///
    /// # Panics
    /// Panics if there is no such CPU.
    pub fn migrate(&self, to: CpuId) {
        self.catch_up(true);
        self.with(|s| {
            assert!((to.0 as usize) < s.cpus.len(), "the machine has no CPU {}", to.0);
            s.migrate(to.0);
        });
        fiber::suspend();
    }

    /// Returns a random number below `n`, from the task's own stream.
    pub fn random(&self, n: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.below(n))
    }

    /// Returns an exponentially distributed random number with this mean.
    pub fn random_exponential(&self, mean: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.exponential(mean))
    }

    /// Returns a log-normally distributed random number
    /// ([`Rng::log_normal`](crate::Rng::log_normal)).
    pub fn random_log_normal(&self, median: u64, p99: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.log_normal(median, p99))
    }

    /// Spawns another task, which may begin from now on.
    ///
    /// # Panics
    /// Panics if there is no such CPU.
    pub fn spawn(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.catch_up(true);
        self.scope.add(cpu, false, Box::new(program));
    }

    /// Like [`Scope::spawn_daemon`].
    ///
    /// # Panics
    /// Panics if there is no such CPU.
    pub fn spawn_daemon(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.catch_up(true);
        self.scope.add(cpu, true, Box::new(program));
    }

    /// Stops until woken. First passes the task's number to `line_up`, which registers it with the
    /// waker.
    pub(crate) fn wait(&self, line_up: impl FnOnce(u32)) {
        let me = self.with(|s| s.wait());
        line_up(me);
        fiber::suspend();
    }

    pub(crate) fn wake(&self, task: u32) {
        self.with(|s| s.wake(task));
    }

    /// Charges the transfer of a line that `cpu` wrote.
    pub(crate) fn fetch_from(&self, cpu: u32) {
        self.with(|s| {
            let cost = s.fetch(cpu, s.cpu, s.clock());
            s.charge(Spent::Think, cost);
        });
    }
}

impl State {
    /// Whether the running task is further ahead of other tasks than allowed. If so, it has been
    /// queued.
    fn is_late(&mut self) -> bool {
        let late = !self.is_in_order(self.look_ahead);
        if late {
            self.yield_cpu();
        }
        late
    }

    /// Whether the running task must suspend itself for other tasks. If so, it has been queued.
    fn must_wait(&mut self, strictly: bool) -> bool {
        if self.schedule.is_some() {
            return false;
        }
        if self.should_preempt() {
            self.preempt();
            return true;
        }
        let late = !self.is_in_order(if strictly { 0 } else { self.look_ahead });
        if late {
            self.yield_cpu();
        }
        late
    }
}
