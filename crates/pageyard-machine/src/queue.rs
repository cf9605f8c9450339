//! Locks in virtual time: who acquires one, when, and at what cost.

use crate::cpu::{NONE, Spent};
use crate::lock::SimLock;
use crate::lock_state::{LockName, LockState, Waiter};
use crate::options::LockKind;
use crate::shared::Outcome;
use crate::state::{Doing, State};

/// Lines transferred along with a zone lock from the CPU that held it before: the list heads of an
/// order, and the zone's counters.
const ZONE_LINES: u64 = 2;

impl State {
    /// Returns the lock's number; registers new locks.
    #[inline]
    fn id(&mut self, lock: &SimLock) -> usize {
        match lock.number(self.number) {
            Some(id) => id,
            None => {
                let name = self.next_other();
                self.register(lock, name)
            }
        }
    }

    pub(crate) fn register(&mut self, lock: &SimLock, name: LockName) -> usize {
        self.locks.push(LockState::new(name));
        lock.register(self.number, self.locks.len() - 1);
        self.locks.len() - 1
    }

    /// Names a lock that is taken in the naming phase.
    pub(crate) fn name(&mut self, lock: &SimLock) {
        if let Some(name) = self.naming
            && lock.number(self.number).is_none()
        {
            self.register(lock, name);
        }
    }

    /// Whether the task must let others go first at an operation on a lock.
    #[inline]
    fn must_yield(&mut self, id: usize) -> bool {
        if self.point() {
            return true;
        }
        // A CPU's own lists are private except for rare drains, so the CPU may run ahead a little.
        let slack = if self.locks[id].owner_cpu == self.cpu { self.look_ahead } else { 0 };
        if !self.is_in_order(slack) {
            self.yield_cpu();
            return true;
        }
        false
    }

    /// Acquires a lock for the running task.
    #[inline]
    pub(crate) fn take(&mut self, lock: &SimLock, block: bool) -> Outcome {
        let id = self.id(lock);
        if self.must_yield(id) {
            return Outcome::Later;
        }
        if self.should_preempt() {
            self.preempt();
            return Outcome::Later;
        }
        let (task, cpu, now) = (self.task, self.cpu, self.clock());
        let lock = &mut self.locks[id];
        if lock.owner != NONE || (lock.free_at > now && !block) {
            return self.find_busy(id, block);
        }
        // The lock is being released, or its home CPU ran ahead and holds it at this time.
        let wait = lock.free_at.saturating_sub(now);
        if wait > 0 {
            lock.note_wait(wait);
        }
        let (kind, own) = (lock.wait_kind(), lock.own_kind());
        let last = lock.last;
        lock.owner = task;
        lock.last = cpu;
        lock.acquired += 1;
        self.charge(kind, wait);
        self.charge(own, self.costs.lock);
        let mut lines = 0;
        if last != cpu && last != NONE {
            let way = self.way(last, cpu);
            self.locks[id].contention.passed[way.index()] += 1;
            let way = self.fetch(last, cpu, self.clock());
            self.charge(own, way);
            lines = if self.locks[id].is_zone() { way * ZONE_LINES } else { 0 };
        }
        self.tasks[task as usize].held += 1;
        self.locks[id].since = self.clock();
        self.charge(Spent::Alloc, lines);
        self.cpus[cpu as usize].event_seen = false;
        self.cpus[cpu as usize].freed = false;
        if self.stalls.is_some() {
            let stall = self.stall();
            self.charge(Spent::Stall, stall);
        }
        Outcome::Taken
    }

    #[cold]
    fn find_busy(&mut self, id: usize, block: bool) -> Outcome {
        let (task, cpu) = (self.task, self.cpu);
        let lock = &mut self.locks[id];
        assert!(lock.owner != task, "a task waits for a lock that it holds: {:?}", lock.name);
        if !block {
            lock.contention.refused += 1;
            let from = lock.last;
            let cost = self.costs.lock + self.fetch(from, cpu, self.clock());
            self.charge(Spent::Alloc, cost);
            return Outcome::Refused;
        }
        lock.waiters.push_back(Waiter { task, cpu });
        self.tasks[task as usize].doing = Doing::Spinning(id);
        if self.schedule.is_some() {
            // Once released, any task may acquire it: this task retries when it continues.
            self.tasks[task as usize].pointed = true;
            return Outcome::Later;
        }
        self.set_spinning(cpu, true);
        Outcome::Parked
    }

    /// Returns how long a task that has just acquired a lock is stalled.
    fn stall(&mut self) -> u64 {
        match self.stalls {
            Some(stalls) if self.rng.happens(stalls.of, stalls.in_all) => stalls.ns * 1000,
            _ => 0,
        }
    }

    /// Releases a lock held by the running task. [`Parked`](Outcome::Parked): it was passed to the
    /// next waiter.
    #[inline]
    pub(crate) fn release(&mut self, lock: &SimLock) -> Outcome {
        let id = self.id(lock);
        // A block freed directly to the zone, past the per-CPU lists, produces no event.
        let event_seen = &mut self.cpus[self.cpu as usize].event_seen;
        if !std::mem::replace(event_seen, true) && self.locks[id].is_zone() {
            self.cpus[self.cpu as usize].freed = true;
            self.charge_own(Spent::Alloc, self.costs.zone_free + self.costs.link);
        }
        if self.must_yield(id) {
            return Outcome::Later;
        }
        self.charge(self.locks[id].own_kind(), self.costs.unlock);
        self.tasks[self.task as usize].held -= 1;
        let (cpu, now) = (self.cpu, self.clock());
        let freed = self.cpus[cpu as usize].freed;
        let lock = &mut self.locks[id];
        let held = now - lock.since;
        lock.note_hold(held, freed);
        lock.last = cpu;
        lock.free_at = now;
        lock.owner = NONE;
        if lock.waiters.is_empty() {
            return Outcome::Taken;
        }
        if self.schedule.is_some() {
            for w in std::mem::take(&mut self.locks[id].waiters) {
                self.tasks[w.task as usize].doing = Doing::Running;
            }
            return Outcome::Taken;
        }
        self.pass_lock(id);
        Outcome::Parked
    }

    /// Passes a released lock to one of its waiters.
    fn pass_lock(&mut self, id: usize) {
        let (cpu, now) = (self.cpu, self.clock());
        let next = match self.lock_kind {
            LockKind::Queued => 0,
            LockKind::TestAndSet => self.nearest_wins(id),
        };
        let Some(waiter) = self.locks[id].waiters.remove(next) else { return };
        let way = self.way(cpu, waiter.cpu);
        let passage = self.fetch(cpu, waiter.cpu, now);
        let mut cost = self.costs.handover + passage;
        if self.lock_kind == LockKind::TestAndSet {
            cost += self.costs.tas_waiter * self.locks[id].waiters.len() as u64;
        }
        self.set_spinning(waiter.cpu, false);
        let theirs = &mut self.cpus[waiter.cpu as usize];
        // A CPU that ran ahead to its own lists may have requested it after the release.
        let (asked, granted) = (theirs.clock, theirs.clock.max(now + cost));
        let waited = granted - asked;
        let lock = &mut self.locks[id];
        let kind = lock.wait_kind();
        theirs.clock = granted;
        theirs.spent[kind as usize] += waited;
        lock.note_wait(waited);
        lock.contention.passed[way.index()] += 1;
        lock.acquired += 1;
        lock.owner = waiter.task;
        lock.last = waiter.cpu;
        lock.since = granted;
        let task = &mut self.tasks[waiter.task as usize];
        task.doing = Doing::Running;
        task.held += 1;
        // The lines that the lock protects are transferred after it.
        let lines = if kind == Spent::ZoneWait { ZONE_LINES * passage } else { 0 };
        let stall = self.stall();
        let theirs = &mut self.cpus[waiter.cpu as usize];
        theirs.event_seen = false;
        theirs.freed = false;
        theirs.clock += lines + stall;
        theirs.spent[Spent::Alloc as usize] += lines;
        theirs.spent[Spent::Stall as usize] += stall;
        self.push(granted + lines + stall, waiter.task);
    }

    /// Chooses the waiter that acquires the lock: nearer CPUs are more likely.
    fn nearest_wins(&mut self, id: usize) -> usize {
        let cpu = self.cpu;
        let waiters = &self.locks[id].waiters;
        let weights: Vec<u64> = waiters
            .iter()
            .map(|w| (1 << 30) / self.way(cpu, w.cpu).latency(&self.costs).max(1))
            .collect();
        let mut draw = self.rng.below(weights.iter().sum());
        for (i, w) in weights.iter().enumerate() {
            if draw < *w {
                return i;
            }
            draw -= w;
        }
        0
    }
}
