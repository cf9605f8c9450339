//! Hardware threads of a core: which of them are busy, and how much they slow each other down.

use crate::spec::MachineSpec;
use crate::state::{NOBODY, State};

/// Instructions take as long as they do on a core alone.
pub(crate) const ALONE: u64 = 1000;

/// What the threads of a core do.
#[derive(Debug)]
pub(crate) struct Threads {
    /// The CPUs of each core; empty where they do not slow each other down.
    of_core: Vec<Vec<u32>>,
    /// By core: threads with a task.
    busy: Vec<u16>,
    /// Cores with one.
    active: u64,
}

impl Threads {
    pub(crate) fn new(spec: &MachineSpec) -> Threads {
        let mut of_core = vec![Vec::new(); spec.cores()];
        if spec.siblings {
            for (cpu, place) in (0..).zip(&spec.cpus) {
                of_core[usize::from(place.core)].push(cpu);
            }
        }
        Threads { of_core, busy: vec![0; spec.cores()], active: 0 }
    }
}

impl State {
    /// A CPU has a task now, or has none any more.
    pub(crate) fn set_task(&mut self, cpu: u32, task: u32) {
        let state = &mut self.cpus[cpu as usize];
        let before = std::mem::replace(&mut state.task, task);
        if (before == NOBODY) == (task == NOBODY) {
            return;
        }
        let core = usize::from(state.place.core);
        let busy = &mut self.threads.busy[core];
        if task == NOBODY {
            *busy -= 1;
            self.threads.active -= u64::from(*busy == 0);
        } else {
            self.threads.active += u64::from(*busy == 0);
            *busy += 1;
        }
        self.slow_down(core);
    }

    /// A CPU begins to spin, or ends.
    pub(crate) fn set_spinning(&mut self, cpu: u32, spins: bool) {
        let state = &mut self.cpus[cpu as usize];
        state.spins = spins;
        let core = usize::from(state.place.core);
        self.slow_down(core);
    }

    /// How much longer instructions of a core's threads take from now on: each other thread adds
    /// its part.
    fn slow_down(&mut self, core: usize) {
        let threads = &self.threads.of_core[core];
        if threads.len() < 2 {
            return;
        }
        let (work, spin) = (self.costs.smt_work, self.costs.smt_spin);
        for &me in threads {
            let mut slow = ALONE;
            for &other in threads.iter().filter(|&&t| t != me) {
                let other = &self.cpus[other as usize];
                let part = if other.spins { spin } else { work };
                slow += if other.task == NOBODY { 0 } else { part.saturating_sub(ALONE) };
            }
            self.cpus[me as usize].slow = slow;
        }
    }

    /// How long the running CPU's own instructions take that take so long on a core alone.
    #[inline]
    pub(crate) fn own(&self, ps: u64) -> u64 {
        match self.cpus[self.cpu as usize].slow {
            ALONE => ps,
            slow => ps * slow / ALONE,
        }
    }

    /// Cores with a task.
    pub(crate) fn active_cores(&self) -> u64 {
        self.threads.active.max(1)
    }

    /// Threads with a task of the running CPU's core.
    pub(crate) fn busy_threads(&self) -> u64 {
        let core = self.cpus[self.cpu as usize].place.core;
        u64::from(self.threads.busy[usize::from(core)].max(1))
    }

    /// No CPU has a task any more.
    pub(crate) fn no_tasks(&mut self) {
        for cpu in 0..self.cpus.len() as u32 {
            self.cpus[cpu as usize].spins = false;
            self.set_task(cpu, NOBODY);
        }
        for core in 0..self.threads.of_core.len() {
            self.slow_down(core);
        }
    }
}
