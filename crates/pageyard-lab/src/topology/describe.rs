//! A description as it stands in a file, or as a program builds it.

use serde::Deserialize;

use super::machine::TopologyError;

/// A machine as it is described; [`check`](Description::check) makes a [`Topology`] of it.
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
    /// What errors call it: the file, or any name.
    #[serde(skip)]
    pub name: String,
    /// Clock of the CPUs in MHz.
    pub clock_mhz: Option<u32>,
    /// Memory comes and goes by sections: every range must be aligned to them.
    #[serde(default)]
    pub hotplug: bool,
    /// The nodes, numbered from 0 in this order.
    #[serde(default, rename = "node")]
    pub nodes: Vec<Node>,
    /// The caches.
    #[serde(default, rename = "cache")]
    pub caches: Vec<Cache>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its memory; none: a node without memory.
    #[serde(default)]
    pub memory: Vec<Memory>,
    /// Memory of it that is in use already and never becomes free.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// So much of its memory, from the top, is the zone MOVABLE: a size.
    pub movable: Option<String>,
    /// Its CPUs, as a list; none: a node without CPUs.
    #[serde(default)]
    pub cpus: String,
    /// How far it is to each node, by number, as firmware tells it: 10 to itself, more to others.
    /// All nodes say it, or none.
    #[serde(default)]
    pub distances: Vec<u8>,
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Memory {
    /// Split into zones as on x86: DMA below 16 MiB, DMA32 below 4 GiB, NORMAL above.
    Auto(String),
    /// All of it in one zone.
    Zoned {
        /// The addresses.
        range: String,
        /// The zone.
        zone: Zone,
    },
}

/// A zone's name in a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zone {
    /// What the oldest devices reach.
    Dma,
    /// What 32-bit devices reach.
    Dma32,
    /// Everything else.
    Normal,
    /// For movable pages only.
    Movable,
}

/// A last-level cache, and the smaller ones below it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The CPUs, as a list.
    pub cpus: String,
    /// Size of the last level.
    pub last_level: String,
    /// How many CPUs share one; the list then names several caches of this kind. Unless given, all
    /// CPUs of the list share one.
    pub sharers: Option<u32>,
    /// Data and unified caches that each CPU has besides, all levels together: a size.
    pub private: Option<String>,
}

impl Description {
    /// An empty machine of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Description { name: name.into(), ..Self::default() }
    }

    /// With one more node.
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// With one more cache.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.caches.push(cache);
        self
    }

    /// With memory that comes and goes by sections.
    pub fn hotplug(mut self) -> Self {
        self.hotplug = true;
        self
    }

    /// From the text of a TOML file; `name` is what errors call it.
    ///
    /// # Errors
    /// The text is not TOML, or says something that a description cannot say; with its place.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, TopologyError> {
        let description: Description = toml::from_str(text).map_err(|e| TopologyError {
            file: name.into(),
            entry: e.span().map_or("the file".into(), |span| {
                let before = text.bytes().take(span.start);
                format!("line {}", 1 + before.filter(|&b| b == b'\n').count())
            }),
            what: e.message().to_owned(),
        })?;
        Ok(Description { name: name.into(), ..description })
    }
}

impl Node {
    /// A node with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// With memory at these addresses, such as `"4G..20G"`, split into zones as on x86.
    pub fn memory(mut self, range: impl Into<String>) -> Self {
        self.memory.push(Memory::Auto(range.into()));
        self
    }

    /// With memory at these addresses in one zone.
    pub fn zoned(mut self, range: impl Into<String>, zone: Zone) -> Self {
        self.memory.push(Memory::Zoned { range: range.into(), zone });
        self
    }

    /// With memory at these addresses in use already.
    pub fn reserved(mut self, range: impl Into<String>) -> Self {
        self.reserved.push(range.into());
        self
    }

    /// With so much of its memory, from the top, in the zone MOVABLE.
    pub fn movable(mut self, size: impl Into<String>) -> Self {
        self.movable = Some(size.into());
        self
    }

    /// With these CPUs, such as `"0-3,8"`.
    pub fn cpus(mut self, list: impl Into<String>) -> Self {
        self.cpus = list.into();
        self
    }

    /// With these distances to all nodes.
    pub fn distances(mut self, distances: &[u8]) -> Self {
        self.distances = distances.to_vec();
        self
    }
}

impl Cache {
    /// A last-level cache of this size that these CPUs share.
    pub fn new(cpus: impl Into<String>, last_level: impl Into<String>) -> Self {
        Cache { cpus: cpus.into(), last_level: last_level.into(), ..Self::default() }
    }
}
