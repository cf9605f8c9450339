//! Tasks: where they begin, and what they can do.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use pageyard::{CpuId, NodeId, Order, Pfn};

use crate::cache::LINE;
use crate::channel::PART;
use crate::cpu::Spent;
use crate::fiber;
use crate::state::State;
use crate::traffic::Touch;

type Program<'env> = Box<dyn FnOnce(&Task<'_, 'env>) + 'env>;

/// Where tasks of a run begin. They may use what lives for `'env`.
pub struct Scope<'env> {
    pub(crate) state: Rc<RefCell<State>>,
    /// Tasks that have no fiber yet.
    pub(crate) spawned: RefCell<Vec<(u32, Program<'env>)>>,
    pub(crate) stacks: RefCell<Vec<DefaultStack>>,
    pub(crate) stack: usize,
}

impl<'env> Scope<'env> {
    /// A task on a CPU.
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn spawn(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.add(cpu, false, Box::new(program));
    }

    /// A task whose end nobody waits for, such as one of the kernel's threads: when all others have
    /// ended it goes on until it sleeps or waits, and not beyond. Where others run on its CPU, it
    /// takes their place as soon as it is woken.
    ///
    /// # Panics
    /// There is no such CPU.
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

    /// Lets others go first: all that are due earlier, but for what the task may run ahead.
    fn catch_up(&self, strictly: bool) {
        while self.with(|s| s.must_wait(strictly)) {
            fiber::suspend();
        }
    }

    /// Ends when it is over for others too: the CPU is busy until then.
    pub(crate) fn end(&self) {
        while self.with(|s| s.is_late()) {
            fiber::suspend();
        }
    }

    /// Its CPU.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.with(|s| s.cpu))
    }

    /// The time on its CPU, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.with(|s| s.clock()) / 1000
    }

    /// Works for so many nanoseconds outside the allocator. Others may use the CPU when the task's
    /// time slice is over.
    pub fn think(&self, ns: u64) {
        let slice = self.with(|s| s.costs.time_slice);
        let most = if self.with(|s| s.spec.siblings) { PART.min(slice) } else { slice };
        self.in_parts(ns, most, |s, part, _| s.charge_own(Spent::Think, part));
    }

    /// Works for so many nanoseconds outside the allocator, while so many bytes come from a node's
    /// memory, evenly. Takes longer where that memory, or the link from there, is asked for more
    /// than it moves; on a machine that does not say how much they move, as
    /// [`think`](Task::think).
    ///
    /// # Panics
    /// There is no such node.
    pub fn work(&self, ns: u64, bytes: u64, node: NodeId) {
        let nodes = self.with(|s| s.spec.nodes);
        assert!(node.0 < nodes, "the machine has no node {}", node.0);
        // What is left of the bytes goes with the last part.
        let mut left = bytes;
        let most = self.with(|s| s.costs.time_slice).min(PART);
        self.in_parts(ns, most, |s, part, last| {
            let even = u128::from(bytes) * u128::from(part) / u128::from((ns * 1000).max(1));
            let bytes = if last { left } else { even as u64 };
            left -= bytes;
            s.work(part, bytes, node.0);
        });
    }

    /// Does something that takes so long in parts: others may use the CPU after a time slice, and
    /// what the other threads of the core do is looked at anew. The last part is told so.
    fn in_parts(&self, ns: u64, most: u64, mut part: impl FnMut(&mut State, u64, bool)) {
        let (mut left, most) = (ns * 1000, most.max(1));
        while left > 0 {
            let step = left.min(most);
            left -= step;
            self.with(|s| part(s, step, left == 0));
            // At the end nothing has happened that others could see.
            if left > 0 {
                self.catch_up(false);
            }
        }
    }

    /// Uses the contents of a block's pages; what that costs depends on where they are.
    pub fn touch(&self, pfn: Pfn, order: Order, how: Touch) {
        self.catch_up(false);
        self.with(|s| s.touch_pages(pfn, order, how));
    }

    /// Uses the first so many bytes of a page.
    pub fn touch_bytes(&self, pfn: Pfn, bytes: u64) {
        self.catch_up(false);
        self.with(|s| s.touch_lines(pfn, bytes.div_ceil(LINE), Touch::Use));
    }

    /// Sleeps until a time; the CPU is for others. Returns at once where that has passed.
    pub fn sleep_until(&self, ns: u64) {
        self.catch_up(false);
        self.with(|s| s.sleep_until(ns * 1000));
        fiber::suspend();
    }

    /// Sleeps for so long.
    pub fn sleep(&self, ns: u64) {
        self.sleep_until(self.now() + ns);
    }

    /// Lets all that is due earlier happen first. To be called before a task looks at something
    /// that others change, other than through locks and queues.
    pub fn sync(&self) {
        self.catch_up(true);
        if self.with(|s| s.point()) {
            fiber::suspend();
            self.with(|s| s.point());
        }
    }

    /// Goes on on another CPU.
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn migrate(&self, to: CpuId) {
        self.catch_up(true);
        self.with(|s| {
            assert!((to.0 as usize) < s.cpus.len(), "the machine has no CPU {}", to.0);
            s.migrate(to.0);
        });
        fiber::suspend();
    }

    /// A random number below `n`, from a stream of the task's own.
    pub fn random(&self, n: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.below(n))
    }

    /// An exponentially distributed random number with this mean.
    pub fn random_exponential(&self, mean: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.exponential(mean))
    }

    /// A log-normally distributed random number ([`Rng::log_normal`](crate::Rng::log_normal)).
    pub fn random_log_normal(&self, median: u64, p99: u64) -> u64 {
        self.with(|s| s.tasks[s.task as usize].rng.log_normal(median, p99))
    }

    /// Another task, which may begin from now on.
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn spawn(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.catch_up(true);
        self.scope.add(cpu, false, Box::new(program));
    }

    /// As [`Scope::spawn_daemon`].
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn spawn_daemon(&self, cpu: CpuId, program: impl FnOnce(&Task<'_, 'env>) + 'env) {
        self.catch_up(true);
        self.scope.add(cpu, true, Box::new(program));
    }

    /// Stops until it is woken; what wakes it is told its name first.
    pub(crate) fn wait(&self, line_up: impl FnOnce(u32)) {
        let me = self.with(|s| s.wait());
        line_up(me);
        fiber::suspend();
    }

    pub(crate) fn wake(&self, task: u32) {
        self.with(|s| s.wake(task));
    }

    /// A line that another CPU wrote comes here.
    pub(crate) fn fetch_from(&self, cpu: u32) {
        self.with(|s| {
            let cost = s.fetch(cpu, s.cpu, s.clock());
            s.charge(Spent::Think, cost);
        });
    }
}

impl State {
    /// Whether the running task is ahead of others by more than it may; it has been put in line then.
    fn is_late(&mut self) -> bool {
        let late = !self.is_in_order(self.look_ahead);
        if late {
            self.give_way();
        }
        late
    }

    /// Whether the running task must suspend itself for others; it has been put in line then.
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
            self.give_way();
        }
        late
    }
}
