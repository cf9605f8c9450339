//! A workload by name: what makes its plans, and how it is judged.

use pageyard::{CpuId, NodeId};
use pageyard_machine::MachineSpec;

use super::actor::Plan;
use super::error::WorkloadError;
use super::params::{Param, Params};

/// Where a plan is to run, as far as it may know.
#[derive(Clone, Debug)]
pub struct Site {
    /// The node of each CPU.
    pub cpus: Vec<NodeId>,
    /// How many nodes there are.
    pub nodes: u16,
    /// Base pages of memory.
    pub pages: u64,
}

impl Site {
    pub(super) fn new(spec: &MachineSpec, memory: Option<u64>) -> Site {
        Site {
            cpus: spec.cpus().iter().map(|p| NodeId(p.node)).collect(),
            nodes: spec.nodes(),
            pages: memory.unwrap_or(spec.memory()) / pageyard::PAGE_SIZE,
        }
    }

    /// How many CPUs there are.
    pub fn count(&self) -> u64 {
        self.cpus.len() as u64
    }

    /// The CPUs of a node.
    pub fn cpus_of(&self, node: NodeId) -> Vec<CpuId> {
        (0..).map(CpuId).zip(&self.cpus).filter(|c| *c.1 == node).map(|c| c.0).collect()
    }
}

/// One run of a workload, or one of several that make up a result: a label for its metrics, empty
/// where there is but one, and what to do.
pub type Point = (String, Box<dyn Plan>);

/// Whether a workload is judged by how long it takes or by how much it does in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Score {
    /// By its time.
    Time,
    /// By its work ([`Actor::done`](super::Actor::done)) in a second, in units of this name.
    Rate(&'static str),
    /// By what it measures itself.
    Own,
}

/// A workload that can be run by name.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// How it is judged.
    pub score: Score,
    /// Makes the plans, one for each point.
    pub(super) plan: fn(&Params, &Site) -> Result<Vec<Point>, WorkloadError>,
}
