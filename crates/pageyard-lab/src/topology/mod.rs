//! Machines as data: nodes, their memory and CPUs, how far they are apart, caches (issue 3.1).
//!
//! A [`Description`] comes from a TOML file or from a program; checking it yields a [`Topology`],
//! which has what [`pageyard::Layout`] needs. Errors name the file, the entry and the fix.
//!
//! ```toml
//! clock_mhz = 2600                 # optional
//! hotplug = false                  # true: all ranges aligned to sections of 128M
//!
//! [[node]]                         # numbered from 0 in order of appearance
//! memory = ["1M..3G", "4G..20G"]   # DMA, DMA32, NORMAL as on x86; or of one zone:
//!                                  # { range = "20G..36G", zone = "movable" }
//! reserved = ["1M..16M"]           # in use already
//! movable = "4G"                   # the topmost part is MOVABLE
//! cpus = "0-7,16-23"
//! distances = [10, 21]             # to each node; or for no node at all: 10 and 20
//!
//! [[cache]]
//! cpus = "0-7"
//! last_level = "32M"
//! sharers = 4                      # several caches of 4 CPUs each; default: one for all
//! private = "1M"                   # other data and unified caches of each CPU, together
//! ```

mod check;
mod describe;
mod json;
mod table;
mod text;
mod zonelist;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use pageyard::tuning::CacheSlice;
use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneSpec};
use pageyard_machine::spec::read_text;
use pageyard_trace::printable;

pub use describe::{Cache, Description, Memory, Node, Zone};
pub use pageyard_machine::size;

/// CPUs are numbered below this, as in traces.
pub const MOST_CPUS: u32 = 4096;
/// So many nodes at most, as the kernel's largest build has.
pub const MOST_NODES: usize = 1024;

/// Ranges of memory at most, and as many that are reserved: each is held against all others.
pub const MOST_RANGES: usize = 1 << 12;
/// The longest description in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// Machines that come with the program: name and TOML.
pub const SHIPPED: [(&str, &str); 4] = [
    ("desktop", include_str!("../../topologies/desktop.toml")),
    ("two-nodes", include_str!("../../topologies/two-nodes.toml")),
    ("four-nodes", include_str!("../../topologies/four-nodes.toml")),
    ("eight-sockets", include_str!("../../topologies/eight-sockets.toml")),
];

/// A machine that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    name: String,
    nodes: usize,
    zones: Vec<ZoneSpec>,
    usable: Vec<Range<Pfn>>,
    reserved: Vec<Range<Pfn>>,
    cpus: Vec<NodeId>,
    distances: Vec<u8>,
    caches: Vec<CacheSlice>,
    clock_mhz: Option<u32>,
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
    /// From a file, or one of the [`SHIPPED`] by name. A file of that name wins.
    ///
    /// # Errors
    /// The file cannot be read, or what it says cannot be.
    pub fn open(path: &Path) -> Result<Self, TopologyError> {
        let name = path.to_string_lossy();
        let shipped = SHIPPED.iter().find(|s| s.0 == name && !path.exists());
        if let Some((name, text)) = shipped {
            return Description::from_toml(name, text)?.check();
        }
        let text = read_text(path, MOST_TEXT).map_err(|e| {
            let names: Vec<_> = SHIPPED.iter().map(|s| s.0).collect();
            let what = format!("{e}; give a TOML file, or one of {}", names.join(", "));
            TopologyError { file: name.to_string(), entry: "the file".into(), what }
        })?;
        Description::from_toml(&name, &text)?.check()
    }

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
