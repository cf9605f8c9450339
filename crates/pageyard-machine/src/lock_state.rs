//! The machine's state of a lock.

use std::collections::VecDeque;

use pageyard::{CpuId, ZoneId};

use crate::cache::LEVELS;
use crate::cpu::{NONE, Spent};
use crate::histogram::Histogram;

/// The purpose of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockName {
    /// A zone's free lists.
    Zone(ZoneId),
    /// One CPU's lists in a zone.
    Pageset(ZoneId, CpuId),
    /// A lock of the tasks' own, outside the allocator ([`Machine::lock`](crate::Machine::lock)).
    Task(u32),
    /// Any other lock, numbered in order of first use.
    Other(u32),
}

/// A waiting task and its CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) task: u32,
    pub(crate) cpu: u32,
}

/// A lock as the machine sees it.
#[derive(Debug)]
pub(crate) struct LockState {
    /// The task that holds it.
    pub(crate) owner: u32,
    /// The CPU that held it last.
    pub(crate) last: u32,
    /// The CPU whose lists it protects; that CPU may run ahead with it.
    pub(crate) owner_cpu: u32,
    /// The time at which it was acquired.
    pub(crate) since: u64,
    /// When its home CPU released it: in the future of other CPUs if the home CPU ran ahead.
    pub(crate) free_at: u64,
    pub(crate) acquired: u64,
    pub(crate) held: u64,
    pub(crate) longest_held: u64,
    pub(crate) name: LockName,
    pub(crate) waiters: VecDeque<Waiter>,
    pub(crate) contention: Box<Contention>,
}

/// Statistics of contention, and the details of zone locks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Contention {
    pub(crate) contended: u64,
    pub(crate) refused: u64,
    pub(crate) waited: u64,
    pub(crate) longest_wait: u64,
    pub(crate) passed: [u64; LEVELS],
    /// Holds in which blocks left the zone, and their total time.
    pub(crate) alloc_holds: (Histogram, u64),
    /// Holds in which blocks returned to the zone, or none moved, and their total time.
    pub(crate) free_holds: (Histogram, u64),
    pub(crate) waits: Histogram,
}

impl LockState {
    pub(crate) fn new(name: LockName) -> Self {
        let owner_cpu = if let LockName::Pageset(_, cpu) = name { cpu.0 } else { NONE };
        LockState {
            owner: NONE,
            last: NONE,
            owner_cpu,
            since: 0,
            free_at: 0,
            acquired: 0,
            held: 0,
            longest_held: 0,
            name,
            waiters: VecDeque::new(),
            contention: Box::default(),
        }
    }

    pub(crate) fn is_zone(&self) -> bool {
        matches!(self.name, LockName::Zone(_))
    }

    /// Returns the time category of waiting for it.
    pub(crate) fn wait_kind(&self) -> Spent {
        if self.is_zone() { Spent::ZoneWait } else { Spent::OtherWait }
    }

    /// Returns the time category of taking and releasing it.
    pub(crate) fn own_kind(&self) -> Spent {
        if matches!(self.name, LockName::Task(_)) { Spent::Think } else { Spent::Alloc }
    }

    /// Records a hold of `held` picoseconds; `freed` tells whether blocks went to the zone.
    #[inline]
    pub(crate) fn note_hold(&mut self, held: u64, freed: bool) {
        self.held += held;
        self.longest_held = self.longest_held.max(held);
        if self.is_zone() {
            let c = &mut *self.contention;
            let (holds, sum) = if freed { &mut c.free_holds } else { &mut c.alloc_holds };
            holds.note(held / 1000);
            *sum += held;
        }
    }

    /// Records a wait of `waited` picoseconds that ended with the acquisition of the lock.
    pub(crate) fn note_wait(&mut self, waited: u64) {
        let c = &mut *self.contention;
        c.contended += 1;
        c.waited += waited;
        c.longest_wait = c.longest_wait.max(waited);
        c.waits.note(waited / 1000);
    }

    pub(crate) fn forget(&mut self) {
        self.acquired = 0;
        self.held = 0;
        self.longest_held = 0;
        *self.contention = Contention::default();
    }
}
