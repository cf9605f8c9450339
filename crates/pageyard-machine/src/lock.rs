//! The simulated lock: what the core holds, and what the machine knows about it.

use std::cell::Cell;
use std::collections::VecDeque;

use pageyard::{CpuId, ZoneId};

use crate::cache::LEVELS;
use crate::histogram::Histogram;
use crate::shared::{self, Outcome};
use crate::state::{NOBODY, Spent};

/// A lock in virtual time. It finds the machine that runs through a thread-local; where none runs
/// it is a flag, so that start-up and checks between runs take no time.
///
/// # Panics
/// Waiting for a lock while no machine runs would wait for ever, and so would using the locks of
/// one machine in a run of another.
#[derive(Debug)]
pub struct SimLock {
    /// Which machine knows it, and under which number; 0: none yet.
    machine: Cell<u32>,
    id: Cell<u32>,
    held: Cell<bool>,
}

impl SimLock {
    pub(crate) const fn new() -> SimLock {
        SimLock { machine: Cell::new(0), id: Cell::new(0), held: Cell::new(false) }
    }

    #[inline]
    pub(crate) fn take(&self, block: bool) -> bool {
        loop {
            match shared::with_running(|state| state.take(self, block)) {
                Some(Outcome::Taken) => {
                    let before = self.held.replace(true);
                    assert!(!before, "a lock is held since before the run");
                    return true;
                }
                Some(Outcome::Refused) => return false,
                Some(Outcome::Later) => crate::raw::suspend(),
                Some(Outcome::Parked) => {
                    crate::raw::suspend();
                    // Whoever released it has made this task its owner.
                    return true;
                }
                None => return self.take_outside(block),
            }
        }
    }

    /// No machine runs.
    #[cold]
    fn take_outside(&self, block: bool) -> bool {
        shared::with_naming(|state| state.name(self));
        let held = self.held.replace(true);
        assert!(!(held && block), "waiting for a lock that is held, and nobody runs to release it");
        !held
    }

    #[inline]
    pub(crate) fn release(&self) {
        loop {
            match shared::with_running(|state| state.release(self)) {
                Some(Outcome::Later) => crate::raw::suspend(),
                // Handed over: it stays held.
                Some(Outcome::Parked) => return,
                Some(_) => return self.held.set(false),
                None => {
                    self.held.set(false);
                    return;
                }
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.get()
    }

    /// Its number with a machine, if that knows it.
    #[inline]
    pub(crate) fn number(&self, machine: u32) -> Option<usize> {
        let known = self.machine.get();
        if known == machine {
            return Some(self.id.get() as usize);
        }
        assert!(known == 0, "this lock belongs to another machine; build the yard anew");
        None
    }

    pub(crate) fn register(&self, machine: u32, id: usize) {
        self.machine.set(machine);
        self.id.set(id as u32);
    }
}

/// What a lock is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockName {
    /// A zone's free lists.
    Zone(ZoneId),
    /// One CPU's lists in a zone.
    Pageset(ZoneId, CpuId),
    /// Any other, by the order in which they were first used.
    Other(u32),
}

/// One who waits.
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
    /// The CPU whose lists it protects: that one may run ahead with it.
    pub(crate) home: u32,
    /// Since when it is held.
    pub(crate) since: u64,
    /// When its home released it: in the future of others, where that ran ahead.
    pub(crate) free_at: u64,
    pub(crate) acquired: u64,
    pub(crate) held: u64,
    pub(crate) longest_held: u64,
    pub(crate) name: LockName,
    pub(crate) waiters: VecDeque<Waiter>,
    pub(crate) contention: Box<Contention>,
}

/// What is counted when somebody has to wait, and the details of zone locks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Contention {
    pub(crate) contended: u64,
    pub(crate) refused: u64,
    pub(crate) waited: u64,
    pub(crate) longest_wait: u64,
    pub(crate) passed: [u64; LEVELS],
    /// Holds in which blocks left the zone, or none moved; and their time.
    pub(crate) takes: (Histogram, u64),
    /// Holds in which blocks came back.
    pub(crate) gives: (Histogram, u64),
    pub(crate) waits: Histogram,
}

impl LockState {
    pub(crate) fn new(name: LockName) -> Self {
        let home = if let LockName::Pageset(_, cpu) = name { cpu.0 } else { NOBODY };
        LockState {
            owner: NOBODY,
            last: NOBODY,
            home,
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

    /// What waiting for it is.
    pub(crate) fn wait_kind(&self) -> Spent {
        if self.is_zone() { Spent::ZoneWait } else { Spent::OtherWait }
    }

    /// It was held for so long; `gave`: and blocks went to the zone.
    #[inline]
    pub(crate) fn note_hold(&mut self, held: u64, gave: bool) {
        self.held += held;
        self.longest_held = self.longest_held.max(held);
        if self.is_zone() {
            let c = &mut *self.contention;
            let (holds, sum) = if gave { &mut c.gives } else { &mut c.takes };
            holds.note(held / 1000);
            *sum += held;
        }
    }

    /// Somebody waited for so long and has it now.
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
