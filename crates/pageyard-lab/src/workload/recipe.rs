//! A workload that can be selected by name: how its plans are created, and how it is scored.

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
    /// Number of nodes.
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

    /// Returns the number of CPUs.
    pub fn count(&self) -> u64 {
        self.cpus.len() as u64
    }

    /// Returns the CPUs of a node.
    pub fn cpus_of(&self, node: NodeId) -> Vec<CpuId> {
        (0..).map(CpuId).zip(&self.cpus).filter(|c| *c.1 == node).map(|c| c.0).collect()
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
