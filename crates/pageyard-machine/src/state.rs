//! Scheduling: CPUs with their clocks, tasks, and the queue of due events.
//!
//! Time is virtual, in whole picoseconds. A task runs on the host until it reaches an operation
//! that other tasks could observe while another CPU is due earlier. It then returns to the queue,
//! and the earliest task continues. The seed breaks ties.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::cache::Caches;
use crate::channels::Channels;
use crate::costs::Costs;
use crate::cpu::{CpuState, NONE, Spent};
use crate::lines::Lines;
use crate::lock_state::{LockName, LockState};
use crate::options::{LockKind, Options, Stalls};
use crate::rng::{Rng, mix};
use crate::schedule::Schedule;
use crate::spec::MachineSpec;
use crate::threads::Threads;

/// What the machine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing runs: locks are plain flags, and nothing costs time.
    Idle,
    /// Locks that are taken receive a name.
    Naming,
    Running,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// Runs on its CPU.
    Running,
    /// Waits in its CPU's queue.
    Queued,
    /// Sleeps until its entry in the event queue is due.
    Sleeping,
    /// Waits for a wake-up.
    Waiting,
    /// Spins for this lock.
    Spinning(usize),
    Done,
}

#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) cpu: u32,
    pub(crate) doing: Doing,
    pub(crate) daemon: bool,
    /// Number of locks the task holds.
    pub(crate) held: u32,
    /// Whether the task has already yielded at the schedule's current point.
    pub(crate) pointed: bool,
    /// Incremented to invalidate the task's entry in the event queue.
    serial: u16,
    pub(crate) rng: Rng,
}

/// The alarm of a background thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarm {
    pub(crate) ringing: bool,
    /// The task that sleeps until the alarm rings.
    pub(crate) task: u32,
}

/// An event and the time at which it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Due {
    time: u64,
    /// Seeded; decides between events that are due at the same time.
    tie: u16,
    /// The task's [`serial`](TaskState::serial) when the event was queued; the event is void if the
    /// task's serial has changed.
    serial: u16,
    task: u32,
}

impl Ord for Due {
    /// Reverses the order, so that [`BinaryHeap`] yields the earliest event first.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |d: &Due| (d.time, u64::from(d.tie) << 32 | u64::from(d.task), d.serial);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Distinguishes this machine's locks from another's; never 0.
    pub(crate) number: u32,
    pub(crate) spec: MachineSpec,
    pub(crate) costs: Costs,
    pub(crate) lock_kind: LockKind,
    pub(crate) stalls: Option<Stalls>,
    pub(crate) look_ahead: u64,
    seed: u64,
    pub(crate) rng: Rng,
    /// The task that runs on the host, and its CPU.
    pub(crate) task: u32,
    pub(crate) cpu: u32,
    /// When the next other event is due.
    horizon: u64,
    order: BinaryHeap<Due>,
    /// Already removed from the order; continues next.
    next: Option<Due>,
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) tasks: Vec<TaskState>,
    free_tasks: Vec<u32>,
    spawned: u64,
    /// Number of tasks whose end the run waits for.
    pub(crate) live: usize,
    pub(crate) locks: Vec<LockState>,
    pub(crate) naming: Option<LockName>,
    others: u32,
    pub(crate) caches: Caches,
    pub(crate) lines: Lines,
    pub(crate) channels: Channels,
    pub(crate) threads: Threads,
    /// The first frame of each node's memory, and the node.
    pub(crate) homes: Vec<(u64, u16)>,
    /// When counting began.
    pub(crate) since: u64,
    /// The alarms of each node's background threads.
    pub(crate) alarms: Vec<Alarm>,
    /// If present, the schedule decides which task runs, not time.
    pub(crate) schedule: Option<Schedule>,
    /// Number of task switches on the host.
    pub(crate) switches: u64,
}

impl State {
    pub(crate) fn new(
        number: u32,
        spec: &MachineSpec,
        options: &Options,
        homes: Vec<(u64, u16)>,
        frames: u64,
    ) -> Self {
        State {
            phase: Phase::Idle,
            number,
            costs: options.costs.clone(),
            lock_kind: options.lock,
            stalls: options.stalls,
            look_ahead: options.look_ahead_ns * 1000,
            seed: options.seed,
            rng: Rng::new(mix(options.seed ^ 0x10c4)),
            task: NONE,
            cpu: 0,
            horizon: u64::MAX,
            order: BinaryHeap::with_capacity(spec.cpus.len()),
            next: None,
            cpus: spec.cpus.iter().map(|&place| CpuState::new(place)).collect(),
            tasks: Vec::new(),
            free_tasks: Vec::new(),
            spawned: 0,
            live: 0,
            locks: Vec::new(),
            naming: None,
            others: 0,
            lines: Lines::default(),
            caches: Caches::new(spec, frames, options.descriptor.into()),
            channels: Channels::new(spec),
            threads: Threads::new(spec),
            homes,
            since: 0,
            alarms: vec![Alarm { ringing: false, task: NONE }; usize::from(spec.nodes) * 2],
            schedule: None,
            switches: 0,
            spec: spec.clone(),
        }
    }

    // --- time ---

    #[inline]
    pub(crate) fn clock(&self) -> u64 {
        self.cpus[self.cpu as usize].clock
    }

    #[inline]
    pub(crate) fn charge(&mut self, what: Spent, ps: u64) {
        let cpu = &mut self.cpus[self.cpu as usize];
        cpu.clock += ps;
        cpu.spent[what as usize] += ps;
    }

    /// Charges the CPU's own instructions, which the core's other threads slow down.
    #[inline]
    pub(crate) fn charge_own(&mut self, what: Spent, ps: u64) {
        self.charge(what, self.own(ps));
    }

    /// Whether no other task is due before the running task, allowing it to run `slack` ahead.
    #[inline]
    pub(crate) fn is_in_order(&self, slack: u64) -> bool {
        self.schedule.is_some() || self.clock() <= self.horizon.saturating_add(slack)
    }

    fn due(&self, time: u64, task: u32) -> Due {
        let tie = mix(self.seed ^ time ^ u64::from(task) << 48) >> 32;
        let serial = self.tasks[task as usize].serial;
        Due { time, tie: tie as u16, serial, task }
    }

    /// Queues a task's event at a time.
    pub(crate) fn push(&mut self, time: u64, task: u32) {
        self.horizon = self.horizon.min(time);
        self.order.push(self.due(time, task));
    }

    /// Returns the running task to the queue. It must then suspend itself.
    pub(crate) fn yield_cpu(&mut self) {
        let mine = self.due(self.clock(), self.task);
        // One replacement instead of a pop and a push. The task is late, so the queue is not empty.
        if let Some(mut first) = self.order.peek_mut() {
            self.next = Some(std::mem::replace(&mut *first, mine));
        }
    }

    /// Returns the task that runs next, or `None` if nothing is due.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.schedule.is_some() {
            return self.next_scheduled();
        }
        loop {
            let due = self.next.take().or_else(|| self.order.pop())?;
            if self.tasks[due.task as usize].serial != due.serial {
                continue;
            }
            if self.tasks[due.task as usize].doing == Doing::Sleeping {
                // When all tasks have ended, sleeping daemons are not woken.
                if self.live > 0 {
                    self.make_ready(due.task, due.time);
                }
                continue;
            }
            debug_assert_eq!(self.tasks[due.task as usize].doing, Doing::Running);
            self.enter(due.task);
            self.horizon = self.order.peek().map_or(u64::MAX, |d| d.time);
            return Some(due.task);
        }
    }

    fn enter(&mut self, task: u32) {
        self.switches += 1;
        self.task = task;
        self.cpu = self.tasks[task as usize].cpu;
    }

    /// Lets the schedule choose among the tasks that can run.
    fn next_scheduled(&mut self) -> Option<u32> {
        let can = |t: &TaskState| t.doing == Doing::Running;
        let ready: Vec<u32> =
            (0..self.tasks.len() as u32).filter(|&t| can(&self.tasks[t as usize])).collect();
        let holds = self.tasks.get(self.task as usize).is_some_and(|t| t.held > 0);
        let task = self.schedule.as_mut()?.choose(&ready, self.task, holds)?;
        self.enter(task);
        Some(task)
    }

    /// A point at which a schedule decides: the task stops here once, so that others can go first.
    /// Returns whether the task must suspend itself.
    #[inline]
    pub(crate) fn point(&mut self) -> bool {
        if self.schedule.is_none() {
            return false;
        }
        let task = &mut self.tasks[self.task as usize];
        task.pointed = !task.pointed;
        task.pointed
    }

    // --- hardware threads of a core ---

    /// Records that a CPU has a task, or none.
    fn set_task(&mut self, cpu: u32, task: u32) {
        self.threads.set_task(&mut self.cpus, &self.costs, cpu, task);
    }

    /// Records that a CPU begins or stops spinning.
    pub(crate) fn set_spinning(&mut self, cpu: u32, spins: bool) {
        self.cpus[cpu as usize].spins = spins;
        self.threads.slow_down(&mut self.cpus, &self.costs, cpu);
    }

    /// Returns how long the running CPU takes for instructions that take `ps` on an otherwise idle
    /// core.
    #[inline]
    pub(crate) fn own(&self, ps: u64) -> u64 {
        self.cpus[self.cpu as usize].own(ps)
    }

    // --- tasks ---

    /// Creates a task that is ready to run on a CPU.
    pub(crate) fn spawn(&mut self, cpu: u32, daemon: bool) -> u32 {
        self.spawned += 1;
        let rng = Rng::new(mix(self.seed.wrapping_add(self.spawned << 20)));
        let mut state = TaskState {
            cpu,
            doing: Doing::Waiting,
            daemon,
            held: 0,
            pointed: false,
            serial: 0,
            rng,
        };
        let task = match self.free_tasks.pop() {
            Some(task) => {
                state.serial = self.tasks[task as usize].serial.wrapping_add(1);
                self.tasks[task as usize] = state;
                task
            }
            None => {
                self.tasks.push(state);
                self.tasks.len() as u32 - 1
            }
        };
        self.live += usize::from(!daemon);
        let now = if self.task == NONE { self.cpus[cpu as usize].clock } else { self.clock() };
        self.make_ready(task, now);
        task
    }

    /// Makes a task that slept or waited ready to run.
    pub(crate) fn make_ready(&mut self, task: u32, at: u64) {
        let t = &mut self.tasks[task as usize];
        let (scheduled, urgent) = (self.schedule.is_some(), t.daemon);
        let cpu = &mut self.cpus[t.cpu as usize];
        if scheduled {
            t.doing = Doing::Running;
            return;
        }
        if cpu.task != NONE {
            t.doing = Doing::Queued;
            if urgent {
                cpu.queue.push_front(task);
                cpu.resched = true;
            } else {
                cpu.queue.push_back(task);
            }
            return;
        }
        t.doing = Doing::Running;
        let number = t.cpu;
        let idle = at.saturating_sub(cpu.clock);
        cpu.spent[Spent::Idle as usize] += idle;
        let wakeup = if at == 0 { 0 } else { self.costs.wakeup };
        cpu.spent[Spent::Switch as usize] += wakeup;
        cpu.clock += idle + wakeup;
        cpu.slice_start = cpu.clock;
        let clock = cpu.clock;
        self.set_task(number, task);
        self.push(clock, task);
    }

    /// Takes the running task off its CPU, and lets the next queued task run.
    pub(crate) fn leave_cpu(&mut self) {
        if self.schedule.is_some() {
            return;
        }
        let cpu = &mut self.cpus[self.cpu as usize];
        cpu.resched = false;
        let next = cpu.queue.pop_front();
        self.set_task(self.cpu, next.unwrap_or(NONE));
        let Some(task) = next else { return };
        let cpu = &mut self.cpus[self.cpu as usize];
        cpu.clock += self.costs.context_switch;
        cpu.spent[Spent::Switch as usize] += self.costs.context_switch;
        cpu.slice_start = cpu.clock;
        let clock = cpu.clock;
        self.tasks[task as usize].doing = Doing::Running;
        self.push(clock, task);
    }

    /// Whether another task of this CPU should run now.
    #[inline]
    pub(crate) fn should_preempt(&self) -> bool {
        let cpu = &self.cpus[self.cpu as usize];
        !cpu.queue.is_empty()
            && (cpu.resched || cpu.clock - cpu.slice_start >= self.costs.time_slice)
            && self.tasks[self.task as usize].held == 0
            && self.schedule.is_none()
    }

    /// Moves the running task to the end of its CPU's queue. It must then suspend itself.
    pub(crate) fn preempt(&mut self) {
        self.tasks[self.task as usize].doing = Doing::Queued;
        self.cpus[self.cpu as usize].queue.push_back(self.task);
        self.leave_cpu();
    }

    /// Puts the running task to sleep until `time`. It must then suspend itself.
    pub(crate) fn sleep_until(&mut self, time: u64) {
        if self.schedule.is_some() {
            // No time passes under a schedule, but once all tasks have ended, a sleeping daemon is
            // not woken.
            if self.live == 0 {
                self.tasks[self.task as usize].doing = Doing::Waiting;
            }
            return;
        }
        self.tasks[self.task as usize].doing = Doing::Sleeping;
        let time = time.max(self.clock());
        self.push(time, self.task);
        self.leave_cpu();
    }

    /// Stops the running task until it is woken. It must then suspend itself.
    pub(crate) fn wait(&mut self) -> u32 {
        self.tasks[self.task as usize].doing = Doing::Waiting;
        self.leave_cpu();
        self.task
    }

    /// Wakes a task if it sleeps or waits.
    pub(crate) fn wake(&mut self, task: u32) {
        let now = self.clock();
        let t = &mut self.tasks[task as usize];
        match t.doing {
            Doing::Sleeping => t.serial = t.serial.wrapping_add(1),
            Doing::Waiting => {}
            _ => return,
        }
        self.make_ready(task, now);
    }

    /// Moves the running task to another CPU. It must then suspend itself.
    pub(crate) fn migrate(&mut self, to: u32) {
        let now = self.clock();
        self.tasks[self.task as usize].doing = Doing::Waiting;
        self.leave_cpu();
        self.tasks[self.task as usize].cpu = to;
        self.make_ready(self.task, now);
    }

    /// Ends the running task.
    pub(crate) fn finish(&mut self) {
        let task = &mut self.tasks[self.task as usize];
        assert_eq!(task.held, 0, "a task ended while holding a lock");
        task.doing = Doing::Done;
        self.live -= usize::from(!task.daemon);
        self.leave_cpu();
        // Under a schedule, numbers identify tasks and are not reused.
        if self.schedule.is_none() {
            self.free_tasks.push(self.task);
        }
        self.task = NONE;
    }

    /// Advances all clocks to the latest one.
    pub(crate) fn align(&mut self) {
        let now = self.cpus.iter().map(|c| c.clock).max().unwrap_or(0);
        for cpu in &mut self.cpus {
            cpu.spent[Spent::Idle as usize] += now - cpu.clock;
            cpu.clock = now;
        }
    }

    /// Resets the scheduler when a run begins, ends, or is abandoned.
    pub(crate) fn clear(&mut self) {
        self.order.clear();
        self.next = None;
        self.tasks.clear();
        self.free_tasks.clear();
        self.task = NONE;
        self.live = 0;
        self.horizon = u64::MAX;
        self.threads.clear(&mut self.cpus, &self.costs);
        for cpu in &mut self.cpus {
            cpu.queue.clear();
            cpu.resched = false;
        }
        for alarm in &mut self.alarms {
            alarm.task = NONE;
        }
        for lock in &mut self.locks {
            lock.owner = NONE;
            lock.waiters.clear();
        }
    }

    pub(crate) fn next_other(&mut self) -> LockName {
        self.others += 1;
        LockName::Other(self.others - 1)
    }
}
