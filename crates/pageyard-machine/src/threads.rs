//! Hardware threads of a core: which of them are busy, and how much they slow each other down.

use crate::costs::Costs;
use crate::cpu::{ALONE, CpuState, NONE};
use crate::spec::MachineSpec;

/// The state of the threads of all cores.
#[derive(Debug)]
pub(crate) struct Threads {
    /// The CPUs of each core; empty if threads do not slow each other down.
    of_core: Vec<Vec<u32>>,
    /// Number of threads with a task, by core.
    busy: Vec<u16>,
    /// Number of cores that have a thread with a task.
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

    /// Records that a CPU has a task, or none.
    pub(crate) fn set_task(&mut self, cpus: &mut [CpuState], costs: &Costs, cpu: u32, task: u32) {
        let state = &mut cpus[cpu as usize];
        let before = std::mem::replace(&mut state.task, task);
        if (before == NONE) == (task == NONE) {
            return;
        }
        let busy = &mut self.busy[usize::from(state.place.core)];
        if task == NONE {
            *busy -= 1;
            self.active -= u64::from(*busy == 0);
        } else {
            self.active += u64::from(*busy == 0);
            *busy += 1;
        }
        self.slow_down(cpus, costs, cpu);
    }

    /// Updates how much slower the threads of a CPU's core are from now on: each other thread adds
    /// its part.
    pub(crate) fn slow_down(&self, cpus: &mut [CpuState], costs: &Costs, cpu: u32) {
        let threads = &self.of_core[usize::from(cpus[cpu as usize].place.core)];
        if threads.len() < 2 {
            return;
        }
        for &me in threads {
            let mut slow = ALONE;
            for &other in threads.iter().filter(|&&t| t != me) {
                let other = &cpus[other as usize];
                let part = if other.spins { costs.smt_spin } else { costs.smt_work };
                slow += if other.task == NONE { 0 } else { part.saturating_sub(ALONE) };
            }
            cpus[me as usize].slow = slow;
        }
    }

    /// Returns the number of cores with a task, at least 1.
    pub(crate) fn active_cores(&self) -> u64 {
        self.active.max(1)
    }

    /// Returns the number of threads of a core with a task, at least 1.
    pub(crate) fn busy_threads(&self, core: u16) -> u64 {
        u64::from(self.busy[usize::from(core)].max(1))
    }

    /// Removes the tasks of all CPUs.
    pub(crate) fn clear(&mut self, cpus: &mut [CpuState], costs: &Costs) {
        for cpu in 0..cpus.len() as u32 {
            cpus[cpu as usize].spins = false;
            self.set_task(cpus, costs, cpu, NONE);
        }
        for cpu in 0..cpus.len() as u32 {
            self.slow_down(cpus, costs, cpu);
        }
    }
}
