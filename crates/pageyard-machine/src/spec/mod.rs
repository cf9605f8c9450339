//! Hardware as data: sockets, cores and their threads, caches, nodes and how far they are apart.
//!
//! ```toml
//! clock_mhz = 2000
//! sockets = 2
//! cores = 56              # per socket
//! threads = 2             # per core; default 1
//! complex = 8             # cores that share a last-level cache; default: all of a socket
//! last_level = "32M"      # of each complex
//! private = "544K"        # other data and unified caches of each core, together
//! nodes = 2               # default: one per socket
//! memory = "512G"         # of the whole machine, in equal parts on all nodes
//! bandwidth = "152G"      # of each node's memory, in bytes a second; default: as much as is asked
//! link = "119G"           # of each link between two sockets, each way; default: as much as is asked
//! siblings = true         # the threads of a core slow each other down (costs.rs); default: they do not
//! distances = [[10, 21], [21, 10]]  # from each node to each; default: 10 and 20
//! ```
//!
//! CPUs are numbered as Linux numbers them on most servers: the first threads of all cores, socket
//! by socket, then the second ones.

mod describe;
mod detect;
mod size;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pageyard::tuning::CacheSlice;
use pageyard::{CpuId, NodeId};

pub use describe::Description;
pub use size::size;

/// The longest description in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// The text of a file that has at most `most` bytes; a device such as `/dev/zero` has no end.
///
/// # Errors
/// The file cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = io::read_to_string(File::open(path)?.take(most + 1))?;
    if text.len() as u64 > most {
        let what = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

/// So many CPUs at most.
pub const MOST_CPUS: u32 = 1024;
/// From a node to itself (ACPI).
pub(crate) const LOCAL: u8 = 10;

/// Machines that come with the crate: name and TOML.
pub const SHIPPED: [(&str, &str); 8] = [
    ("desktop", include_str!("../../machines/desktop.toml")),
    ("1x36", include_str!("../../machines/1x36.toml")),
    ("2x20", include_str!("../../machines/2x20.toml")),
    ("2x32", include_str!("../../machines/2x32.toml")),
    ("2x56", include_str!("../../machines/2x56.toml")),
    ("2x64", include_str!("../../machines/2x64.toml")),
    ("2x96", include_str!("../../machines/2x96.toml")),
    ("8x64", include_str!("../../machines/8x64.toml")),
];

/// Where a CPU is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its socket.
    pub socket: u16,
    /// Its node.
    pub node: u16,
    /// The group of cores that shares its last-level cache, numbered through the machine.
    pub complex: u16,
    /// Its core, numbered through the machine: hardware threads of a core share it.
    pub core: u16,
}

/// A machine that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineSpec {
    pub(crate) name: String,
    pub(crate) clock_mhz: u32,
    pub(crate) cpus: Vec<Place>,
    pub(crate) nodes: u16,
    pub(crate) distances: Vec<u8>,
    /// Bytes of one last-level cache.
    pub(crate) last_level: u64,
    /// Bytes of one core's other data and unified caches.
    pub(crate) private: u64,
    /// Bytes of the whole machine.
    pub(crate) memory: u64,
    /// Bytes a second that one node's memory moves, where it is known.
    pub(crate) bandwidth: Option<u64>,
    /// Bytes a second that the link between two sockets moves each way, where it is known.
    pub(crate) link: Option<u64>,
    /// Threads of a core slow each other down.
    pub(crate) siblings: bool,
    /// Bytes of one last-level cache that programs get.
    pub(crate) in_effect: u64,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The file, or the name of what was built.
    pub file: String,
    /// The entry.
    pub entry: String,
    /// What is wrong with it, and what would mend it.
    pub what: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file, self.entry, self.what)
    }
}

impl std::error::Error for SpecError {}

impl MachineSpec {
    /// One of the [`SHIPPED`] by name, `detected` for the machine at hand, or a TOML file. A file of
    /// that name wins.
    ///
    /// # Errors
    /// The file cannot be read, or what it says cannot be.
    pub fn open(path: &Path) -> Result<Self, SpecError> {
        let name = path.to_string_lossy();
        if !path.exists() {
            if name == "detected" {
                return Self::detect();
            }
            if let Some((name, text)) = SHIPPED.iter().find(|s| s.0 == name) {
                return Description::from_toml(name, text)?.check();
            }
        }
        let text = read_text(path, MOST_TEXT).map_err(|e| {
            let names: Vec<_> = SHIPPED.iter().map(|s| s.0).collect();
            let what = format!("{e}; give a TOML file, `detected`, or one of {}", names.join(", "));
            SpecError { file: name.to_string(), entry: "the file".into(), what }
        })?;
        Description::from_toml(&name, &text)?.check()
    }

    /// One of the [`SHIPPED`].
    ///
    /// # Errors
    /// There is none of that name.
    pub fn shipped(name: &str) -> Result<Self, SpecError> {
        Self::open(Path::new(name))
    }

    /// The machine at hand, as `/sys` describes it.
    ///
    /// # Errors
    /// What of `/sys` cannot be read or understood.
    pub fn detect() -> Result<Self, SpecError> {
        Self::detect_in(Path::new("/sys/devices/system"), Path::new("/proc/cpuinfo"))
    }

    /// The machine that copies of `/sys/devices/system` and `/proc/cpuinfo` describe.
    ///
    /// # Errors
    /// As [`detect`](MachineSpec::detect).
    pub fn detect_in(system: &Path, cpuinfo: &Path) -> Result<Self, SpecError> {
        detect::detect(system, cpuinfo)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Clock of the CPUs in MHz.
    pub fn clock_mhz(&self) -> u32 {
        self.clock_mhz
    }

    /// Where each CPU is, by number.
    pub fn cpus(&self) -> &[Place] {
        &self.cpus
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// How far the nodes are from each other, row by row: 10 to itself, more to others.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// Bytes of one last-level cache.
    pub fn last_level(&self) -> u64 {
        self.last_level
    }

    /// The same machine on a host that others share: programs get so many bytes of each last-level
    /// cache. What the allocator is told of caches does not change.
    #[must_use]
    pub fn with_last_level_in_effect(self, bytes: u64) -> Self {
        MachineSpec { in_effect: bytes.min(self.last_level), ..self }
    }

    /// Bytes of one core's other data and unified caches.
    pub fn private(&self) -> u64 {
        self.private
    }

    /// Bytes of memory of the whole machine.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Bytes a second that one node's memory moves, where it is known.
    pub fn bandwidth(&self) -> Option<u64> {
        self.bandwidth
    }

    /// Bytes a second that the link between two sockets moves each way, where it is known.
    pub fn link(&self) -> Option<u64> {
        self.link
    }

    /// Whether the threads of a core slow each other down.
    pub fn siblings(&self) -> bool {
        self.siblings
    }

    /// The CPUs of a node, by number.
    pub fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        let cpus = (0..).map(CpuId).zip(&self.cpus);
        cpus.filter(move |(_, p)| p.node == node.0).map(|(cpu, _)| cpu)
    }

    /// A CPU's share of its caches, for the last-level rule (§5.13).
    pub fn cache_slice(&self, cpu: CpuId) -> Option<CacheSlice> {
        let place = self.cpus.get(cpu.0 as usize)?;
        let sharers = |same: fn(&Place, &Place) -> bool| {
            self.cpus.iter().filter(|p| same(p, place)).count().max(1) as u64
        };
        let last_level = self.last_level / sharers(|a, b| a.complex == b.complex);
        let private = self.private / sharers(|a, b| a.core == b.core);
        Some(CacheSlice { last_level, all_levels: last_level + private })
    }

    pub(crate) fn complexes(&self) -> usize {
        self.cpus.iter().map(|p| usize::from(p.complex) + 1).max().unwrap_or(0)
    }

    pub(crate) fn sockets(&self) -> usize {
        self.cpus.iter().map(|p| usize::from(p.socket) + 1).max().unwrap_or(0)
    }

    pub(crate) fn cores(&self) -> usize {
        self.cpus.iter().map(|p| usize::from(p.core) + 1).max().unwrap_or(0)
    }

    /// The distance from node to node.
    pub(crate) fn distance(&self, from: u16, to: u16) -> u8 {
        let at = usize::from(from) * usize::from(self.nodes) + usize::from(to);
        self.distances.get(at).copied().unwrap_or(LOCAL)
    }
}
