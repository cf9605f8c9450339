//! A checked machine, and the errors of a description.

use std::ops::Range;

use pageyard::tuning::CacheSlice;
use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneSpec};
use pageyard_machine::spec::prefix;
use pageyard_trace::printable;

/// Limit of CPU numbers, exclusive, as in traces.
pub const MOST_CPUS: u32 = 4096;
/// Maximum number of nodes, as in the kernel's largest configuration.
pub const MOST_NODES: usize = 1024;

/// Maximum number of memory ranges, and of reserved ranges. Each is checked against all others.
pub const MOST_RANGES: usize = 1 << 12;
/// A valid machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) zones: Vec<ZoneSpec>,
    pub(super) usable: Vec<Range<Pfn>>,
    pub(super) reserved: Vec<Range<Pfn>>,
    pub(super) cpus: Vec<NodeId>,
    pub(super) distances: Vec<u8>,
    pub(super) caches: Vec<CacheSlice>,
    pub(super) clock_mhz: Option<u32>,
}

/// An error in a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}{}", printable(.file), printable(&prefix(.entry)), printable(.what))]
pub struct TopologyError {
    /// The file, or the name of a description built by a program.
    pub file: String,
    /// The entry at fault: a node, a cache or a line. Empty for the whole file.
    pub entry: String,
    /// What is wrong with it, and the fix.
    pub what: String,
}

impl Topology {
    /// Returns the layout from which an allocator of the whole machine is built.
    pub fn layout(&self, knobs: Knobs) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &self.usable,
            reserved: &self.reserved,
            cpus: &self.cpus,
            distances: &self.distances,
            knobs,
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of nodes. Some may have no memory or no CPUs.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the zones, by node and kind.
    pub fn zones(&self) -> &[ZoneSpec] {
        &self.zones
    }

    /// Returns the ranges with memory.
    pub fn usable(&self) -> &[Range<Pfn>] {
        &self.usable
    }

    /// Returns the ranges that are in use from the start.
    pub fn reserved(&self) -> &[Range<Pfn>] {
        &self.reserved
    }

    /// Returns the node of each CPU.
    pub fn cpus(&self) -> &[NodeId] {
        &self.cpus
    }

    /// Returns the distances from each node to each node, row by row: 10 to the node itself, more
    /// to others.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// Returns each CPU's share of its caches; 0 if the description does not have them.
    pub fn caches(&self) -> &[CacheSlice] {
        &self.caches
    }

    /// Returns the CPU clock in MHz, if it is known.
    pub fn clock_mhz(&self) -> Option<u32> {
        self.clock_mhz
    }
}
