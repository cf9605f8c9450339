//! A workload that can be selected by name: how its plans are created, and how it is scored.

use std::collections::BTreeMap;

use pageyard::{CpuId, NodeId};
use pageyard_machine::MachineSpec;

use super::actor::Plan;
use super::error::WorkloadError;
use super::params::{Param, Params};

/// Where a plan runs, as far as the plan may know.
#[derive(Clone, Debug)]
pub struct Site {
    /// The node of each CPU.
    pub cpus: Vec<NodeId>,
    /// The core of each CPU, numbered across the machine: hardware threads of a core share it.
    pub cores: Vec<u16>,
    /// Number of nodes.
    pub nodes: u16,
    /// Base pages of memory.
    pub pages: u64,
}

impl Site {
    pub(super) fn new(spec: &MachineSpec, memory: Option<u64>) -> Site {
        Site {
            cpus: spec.cpus().iter().map(|p| NodeId(p.node)).collect(),
            cores: spec.cpus().iter().map(|p| p.core).collect(),
            nodes: spec.nodes(),
            pages: spec.memory_of(memory.unwrap_or(spec.memory())) / pageyard::PAGE_SIZE,
        }
    }

    /// Returns the number of CPUs.
    pub fn count(&self) -> u64 {
        self.cpus.len() as u64
    }

    /// Returns the CPUs of a node.
    pub fn cpus_of(&self, node: NodeId) -> Vec<CpuId> {
        (0..).map(CpuId).zip(&self.cpus).filter(|c| *c.1 == node).map(|c| c.0).collect()
    }

    /// Sorts CPUs in the order in which a scheduler fills an idle machine, and returns the number of
    /// cores among them: one thread of each core first, its siblings last, and the nodes in turn.
    pub fn spread(&self, cpus: &mut [CpuId]) -> usize {
        // Of each CPU, how many of these CPUs precede it on its core, and how many cores precede
        // its own on its node among the CPUs with the same number of preceding siblings.
        let mut threads = BTreeMap::new();
        let mut taken = BTreeMap::new();
        let mut rank = BTreeMap::new();
        cpus.sort_unstable();
        for &cpu in &*cpus {
            let (node, core) = (self.cpus[cpu.0 as usize], self.cores[cpu.0 as usize]);
            let thread: &mut u32 = threads.entry(core).or_default();
            let place: &mut u32 = taken.entry((*thread, node)).or_default();
            rank.insert(cpu, (*thread, *place, node));
            *thread += 1;
            *place += 1;
        }
        cpus.sort_by_key(|cpu| rank[cpu]);
        threads.len()
    }
}

/// One run of a workload, or one of several that make up a result: a label for its metrics, empty
/// if there is only one run, and the plan.
pub type Point = (String, Box<dyn Plan>);

/// How a workload is scored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Score {
    /// By its duration.
    Time,
    /// By its work ([`Actor::done`](super::Actor::done)) per second, in units of this name.
    Rate(&'static str),
    /// By its own measurements.
    Own,
}

/// A workload that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// How it is scored.
    pub score: Score,
    /// Creates the plans, one for each point.
    pub(super) plan: fn(&Params, &Site) -> Result<Vec<Point>, WorkloadError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU whose sibling is busy comes after all idle cores, whatever its number.
    #[test]
    fn siblings_are_filled_last_and_nodes_in_turn() {
        let site = |text| Site::new(&MachineSpec::shipped(text).unwrap(), None);
        let site = site("2x56");
        let mut all: Vec<CpuId> = (0..224).map(CpuId).collect();
        assert_eq!(site.spread(&mut all), 112);
        let cores: std::collections::BTreeSet<_> =
            all[..112].iter().map(|c| site.cores[c.0 as usize]).collect();
        assert_eq!(cores.len(), 112);
        let nodes: Vec<u16> = all[..6].iter().map(|c| site.cpus[c.0 as usize].0).collect();
        assert_eq!(nodes, [0, 1, 0, 1, 0, 1]);
        // Numbered with siblings side by side.
        let pairs = Site { cpus: vec![NodeId(0); 4], cores: vec![0, 0, 1, 1], nodes: 1, pages: 0 };
        let mut all: Vec<CpuId> = (0..4).map(CpuId).collect();
        assert_eq!(pairs.spread(&mut all), 2);
        assert_eq!(all, [0, 2, 1, 3].map(CpuId));
    }
}
