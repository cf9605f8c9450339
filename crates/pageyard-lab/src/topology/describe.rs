//! The description of a machine, as read from a file or built by a program.

use pageyard_machine::spec::parse;
use serde::Deserialize;

use super::machine::TopologyError;

/// An unchecked description of a machine. [`check`](Description::check) turns it into a
/// `Topology`.
///
/// ```
/// use pageyard_lab::topology::{Cache, Description, Node};
///
/// let topology = Description::new("small")
///     .node(Node::new().memory("1M..3G").memory("4G..8G").cpus("0-3"))
///     .node(Node::new().memory("8G..12G").cpus("4-7"))
///     .cache(Cache::new("0-3", "8M"))
///     .cache(Cache::new("4-7", "8M"))
///     .check()?;
/// assert_eq!(topology.cpus().len(), 8);
/// # Ok::<(), pageyard_lab::topology::TopologyError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name used in error messages: the file name, or any other name.
    #[serde(skip)]
    pub name: String,
    /// CPU clock in MHz.
    pub clock_mhz: Option<u32>,
    /// Whether memory goes online and offline by sections. Every range must then be aligned to
    /// sections.
    #[serde(default)]
    pub hotplug: bool,
    /// The nodes, numbered from 0 in this order.
    #[serde(default, rename = "node")]
    pub nodes: Vec<Node>,
    /// The last-level caches.
    #[serde(default, rename = "cache")]
    pub caches: Vec<Cache>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The node's memory. Empty for a node without memory.
    #[serde(default)]
    pub memory: Vec<Memory>,
    /// Address ranges of the node's memory that are in use from the start and never become free.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// Size of the zone MOVABLE, taken from the top of the node's memory.
    pub movable: Option<String>,
    /// The node's CPUs as a CPU list. Empty for a node without CPUs.
    #[serde(default)]
    pub cpus: String,
    /// The distance to each node, by node number, as firmware reports it: 10 to the node itself,
    /// more to other nodes. Either all nodes have distances or none does.
    #[serde(default)]
    pub distances: Vec<u8>,
}

/// A range of memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Memory {
    /// Addresses that are split into zones as on x86: DMA below 16 MiB, DMA32 below 4 GiB, NORMAL
    /// above.
    Auto(String),
    /// Addresses that lie in one zone.
    Zoned {
        /// The address range.
        range: String,
        /// The zone.
        zone: Zone,
    },
}

/// A zone as a description names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zone {
    /// Memory that the oldest devices can address.
    Dma,
    /// Memory that 32-bit devices can address.
    Dma32,
    /// All other memory.
    Normal,
    /// Memory for movable pages only.
    Movable,
}

/// A last-level cache, and the smaller caches below it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The CPUs as a CPU list.
    pub cpus: String,
    /// Size of the last-level cache.
    pub last_level: String,
    /// How many CPUs share one cache; the list then names several caches of this kind. By default,
    /// all CPUs of the list share one cache.
    pub sharers: Option<u32>,
    /// Total size of each CPU's other data and unified caches, all levels together.
    pub private: Option<String>,
}

impl Description {
    /// Creates a description without nodes or caches.
    pub fn new(name: impl Into<String>) -> Self {
        Description { name: name.into(), ..Self::default() }
    }

    /// Adds a node.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds a cache.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.caches.push(cache);
        self
    }

    /// Makes memory go online and offline by sections.
    pub fn hotplug(mut self) -> Self {
        self.hotplug = true;
        self
    }

    /// Parses the text of a TOML file. Error messages call the file `name`.
    ///
    /// # Errors
    /// Fails if the text is not TOML or has an unknown entry. The error names the line.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, TopologyError> {
        let description: Description = parse(text).map_err(|(entry, what)| TopologyError {
            file: name.into(),
            entry,
            what,
        })?;
        Ok(Description { name: name.into(), ..description })
    }
}

impl Node {
    /// Creates a node without memory or CPUs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds memory at these addresses, such as `"4G..20G"`, split into zones as on x86.
    pub fn memory(mut self, range: impl Into<String>) -> Self {
        self.memory.push(Memory::Auto(range.into()));
        self
    }

    /// Adds memory at these addresses to one zone.
    pub fn zoned(mut self, range: impl Into<String>, zone: Zone) -> Self {
        self.memory.push(Memory::Zoned { range: range.into(), zone });
        self
    }

    /// Marks memory at these addresses as in use.
    pub fn reserved(mut self, range: impl Into<String>) -> Self {
        self.reserved.push(range.into());
        self
    }

    /// Puts memory of this size, from the top of the node's memory, into the zone MOVABLE.
    pub fn movable(mut self, size: impl Into<String>) -> Self {
        self.movable = Some(size.into());
        self
    }

    /// Sets the CPUs, such as `"0-3,8"`.
    pub fn cpus(mut self, list: impl Into<String>) -> Self {
        self.cpus = list.into();
        self
    }

    /// Sets the distances to all nodes.
    pub fn distances(mut self, distances: &[u8]) -> Self {
        self.distances = distances.to_vec();
        self
    }
}

impl Cache {
    /// Creates a last-level cache of this size, shared by these CPUs.
    pub fn new(cpus: impl Into<String>, last_level: impl Into<String>) -> Self {
        Cache { cpus: cpus.into(), last_level: last_level.into(), ..Self::default() }
    }
}
