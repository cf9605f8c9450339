//! The assignment of tasks to CPUs, for workloads in which a scheduler moves tasks and keeps one
//! task per CPU.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pageyard::CpuId;

use super::actor::Actor;

/// Locks plain data that actors share. A panic ends the run, so poisoned data is never read.
pub(super) fn lock<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CPU for each task, and CPUs that are free. Tasks that move swap seats.
#[derive(Debug)]
pub(super) struct Seats(Mutex<Vec<CpuId>>);

impl Seats {
    /// Assigns the `i`th CPU to task `i`; the remaining CPUs are free.
    pub(super) fn new(cpus: impl IntoIterator<Item = CpuId>) -> Seats {
        Seats(Mutex::new(cpus.into_iter().collect()))
    }

    /// Returns the CPU assigned to a task.
    pub(super) fn cpu(&self, task: usize) -> CpuId {
        lock(&self.0)[task]
    }

    /// Moves the actor to its task's assigned CPU, which another task's swap may have changed.
    pub(super) fn sit(&self, actor: &dyn Actor<'_>, task: usize) {
        let cpu = self.cpu(task);
        if cpu != actor.cpu() {
            actor.migrate(cpu);
        }
    }

    /// Swaps the seat of a task with the one that `draw`, a random number below 2^32, chooses.
    pub(super) fn swap(&self, actor: &dyn Actor<'_>, task: usize, draw: u64) {
        actor.sync();
        {
            let mut cpus = lock(&self.0);
            let other = ((draw * cpus.len() as u64) >> 32) as usize;
            cpus.swap(task, other);
        }
        self.sit(actor, task);
    }
}
