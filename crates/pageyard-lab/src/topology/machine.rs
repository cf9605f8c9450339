//! A machine that can be, and what may be wrong with a description of one.

use std::fmt;
use std::ops::Range;

use pageyard::tuning::CacheSlice;
use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneSpec};
use pageyard_trace::printable;

/// CPUs are numbered below this, as in traces.
pub const MOST_CPUS: u32 = 4096;
/// So many nodes at most, as the kernel's largest build has.
pub const MOST_NODES: usize = 1024;

/// Ranges of memory at most, and as many that are reserved: each is held against all others.
pub const MOST_RANGES: usize = 1 << 12;
/// A machine that can be.
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

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    /// The file, or the name of what was built.
    pub file: String,
    /// The entry: a node, a cache, a line.
    pub entry: String,
    /// What is wrong with it, and what would mend it.
    pub what: String,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [file, entry, what] = [&self.file, &self.entry, &self.what].map(|t| printable(t));
        write!(f, "{file}: {entry}: {what}")
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// What an allocator of the whole machine is made from.
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

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many nodes there are; some may have no memory, some no CPUs.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The zones, by node and kind.
    pub fn zones(&self) -> &[ZoneSpec] {
        &self.zones
    }

    /// Where there is memory.
    pub fn usable(&self) -> &[Range<Pfn>] {
        &self.usable
    }

    /// Where it is in use already.
    pub fn reserved(&self) -> &[Range<Pfn>] {
        &self.reserved
    }

    /// The node of each CPU.
    pub fn cpus(&self) -> &[NodeId] {
        &self.cpus
    }

    /// How far it is from each node to each, row by row: 10 to itself, more to others.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// Each CPU's share of its caches; 0 where the description says nothing of them.
    pub fn caches(&self) -> &[CacheSlice] {
        &self.caches
    }

    /// Clock of the CPUs in MHz, where it is known.
    pub fn clock_mhz(&self) -> Option<u32> {
        self.clock_mhz
    }
}
