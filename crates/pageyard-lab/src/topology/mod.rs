//! Machines as data: nodes with their memory, CPUs, distances and caches.
//!
//! A [`Description`] comes from a TOML file or from a program. Checking it yields a [`Topology`],
//! which provides what [`pageyard::Layout`] needs. Errors name the file, the entry and the fix.
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
mod machine;
mod table;
mod text;
mod zonelist;

use std::path::Path;

use pageyard_machine::spec::description;

pub use describe::{Cache, Description, Memory, Node, Zone};
pub use machine::{MOST_CPUS, MOST_NODES, MOST_RANGES, Topology, TopologyError};

/// Machines that are included in the program: name and TOML.
pub const SHIPPED: [(&str, &str); 4] = [
    ("desktop", include_str!("../../topologies/desktop.toml")),
    ("two-nodes", include_str!("../../topologies/two-nodes.toml")),
    ("four-nodes", include_str!("../../topologies/four-nodes.toml")),
    ("eight-sockets", include_str!("../../topologies/eight-sockets.toml")),
];

impl Topology {
    /// Opens a file, or one of the [`SHIPPED`] machines by name. An existing file of that name
    /// takes precedence.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the description is not valid.
    pub fn open(path: &Path) -> Result<Self, TopologyError> {
        let name = path.to_string_lossy();
        let text = description(path, &SHIPPED, "").map_err(|what| TopologyError {
            file: name.to_string(),
            entry: String::new(),
            what,
        })?;
        Description::from_toml(&name, &text)?.check()
    }
}
