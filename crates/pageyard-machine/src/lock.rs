//! The simulated lock, as the core uses it.

use std::cell::Cell;

use crate::fiber;
use crate::shared::{self, Outcome};

/// A lock in virtual time. It finds the running machine through a thread-local. If none runs, the
/// lock is a plain flag, so start-up and checks between runs take no time.
///
/// # Panics
/// Panics when waiting for a lock while no machine runs, which would wait forever, and when a lock
/// of one machine is used in a run of another.
#[derive(Debug)]
pub struct SimLock {
    /// The machine that registered it, and its number there; 0: not registered.
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
                    assert!(!before, "a lock was held before the run");
                    return true;
                }
                Some(Outcome::Refused) => return false,
                Some(Outcome::Later) => fiber::suspend(),
                Some(Outcome::Parked) => {
                    fiber::suspend();
                    // The releasing task has made this task the owner.
                    return true;
                }
                None => return self.acquire_outside_run(block),
            }
        }
    }

    /// Takes the lock while no machine runs.
    #[cold]
    fn acquire_outside_run(&self, block: bool) -> bool {
        shared::with_naming(|state| state.name(self));
        let held = self.held.replace(true);
        assert!(!(held && block), "waiting for a lock that no running task can release");
        !held
    }

    #[inline]
    pub(crate) fn release(&self) {
        loop {
            match shared::with_running(|state| state.release(self)) {
                Some(Outcome::Later) => fiber::suspend(),
                // Passed to the next waiter: it stays held.
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

    /// Returns the lock's number on a machine, if it is registered there.
    #[inline]
    pub(crate) fn number(&self, machine: u32) -> Option<usize> {
        let known = self.machine.get();
        if known == machine {
            return Some(self.id.get() as usize);
        }
        assert!(known == 0, "this lock belongs to another machine; create a new yard");
        None
    }

    pub(crate) fn register(&self, machine: u32, id: usize) {
        self.machine.set(machine);
        self.id.set(id as u32);
    }
}
