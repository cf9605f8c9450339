//! Who runs on which CPU, where a scheduler moves tasks about and keeps one task to a CPU.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pageyard::CpuId;

use super::actor::Actor;

/// Plain data that actors share. Whoever panics ends the run, so what it left is never read.
pub(super) fn lock<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CPU for each task, and CPUs that are free. Tasks that move swap places.
#[derive(Debug)]
pub(super) struct Seats(Mutex<Vec<CpuId>>);

impl Seats {
    /// Task `i` sits on the `i`th of these; what is left over is free.
    pub(super) fn new(cpus: impl IntoIterator<Item = CpuId>) -> Seats {
        Seats(Mutex::new(cpus.into_iter().collect()))
    }

    /// Where a task is to run.
    pub(super) fn cpu(&self, task: usize) -> CpuId {
        lock(&self.0)[task]
    }

    /// Goes where the task is to run by now: another one may have taken its place.
    pub(super) fn sit(&self, actor: &dyn Actor<'_>, task: usize) {
        let cpu = self.cpu(task);
        if cpu != actor.cpu() {
            actor.migrate(cpu);
        }
    }

    /// Swaps places with anybody.
    pub(super) fn swap(&self, actor: &dyn Actor<'_>, task: usize) {
        let draw = actor.random(1 << 32);
        actor.sync();
        {
            let mut cpus = lock(&self.0);
            let other = ((draw * cpus.len() as u64) >> 32) as usize;
            cpus.swap(task, other);
        }
        self.sit(actor, task);
    }
}
