//! A validated machine, and errors in descriptions.

use std::fmt;

use pageyard::tuning::CacheSlice;
use pageyard::{CpuId, NodeId};

use super::file::prefix;

/// Maximum number of CPUs.
pub const MOST_CPUS: u32 = 1024;
/// Distance from a node to itself (ACPI).
pub(crate) const LOCAL: u8 = 10;

/// The position of a CPU in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its socket.
    pub socket: u16,
    /// Its node.
    pub node: u16,
    /// The group of cores that shares the CPU's last-level cache, numbered across the machine.
    pub complex: u16,
    /// Its core, numbered across the machine: hardware threads of a core share it.
    pub core: u16,
}

/// A validated machine.
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
    /// Bytes of memory of the whole machine.
    pub(crate) memory: u64,
    /// Bandwidth of one node's memory in bytes per second, if known.
    pub(crate) bandwidth: Option<u64>,
    /// Bandwidth of the link between two sockets in bytes per second, each way, if known.
    pub(crate) link: Option<u64>,
    /// Whether the threads of a core slow each other down.
    pub(crate) siblings: bool,
    /// Bytes of one last-level cache that are available to programs.
    pub(crate) in_effect: u64,
}

/// An error in a machine description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The file, or the name of a machine that was built in code.
    pub file: String,
    /// The entry, empty for the whole file.
    pub entry: String,
    /// What is wrong with it, and the fix.
    pub what: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.file, prefix(&self.entry), self.what)
    }
}

impl std::error::Error for SpecError {}

impl MachineSpec {
    /// Returns the machine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the clock of the CPUs in MHz.
    pub fn clock_mhz(&self) -> u32 {
        self.clock_mhz
    }

    /// Returns the position of each CPU, by CPU number.
    pub fn cpus(&self) -> &[Place] {
        &self.cpus
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Returns the distances between nodes, row by row: 10 from a node to itself, more to others.
    pub fn distances(&self) -> &[u8] {
        &self.distances
    }

    /// Returns the size of one last-level cache in bytes.
    pub fn last_level(&self) -> u64 {
        self.last_level
    }

    /// Models a host that is shared with others: programs get only `bytes` of each last-level
    /// cache. The cache sizes reported to the allocator do not change.
    #[must_use]
    pub fn with_last_level_in_effect(self, bytes: u64) -> Self {
        MachineSpec { in_effect: bytes.min(self.last_level), ..self }
    }

    /// Returns the size of one core's other data and unified caches in bytes.
    pub fn private(&self) -> u64 {
        self.private
    }

    /// Returns the memory of the whole machine in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the bandwidth of one node's memory in bytes per second, if known.
    pub fn bandwidth(&self) -> Option<u64> {
        self.bandwidth
    }

    /// Returns the bandwidth of the link between two sockets in bytes per second, each way, if
    /// known.
    pub fn link(&self) -> Option<u64> {
        self.link
    }

    /// Returns whether the threads of a core slow each other down.
    pub fn siblings(&self) -> bool {
        self.siblings
    }

    /// Returns the CPUs of a node, by number.
    pub fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        let cpus = (0..).map(CpuId).zip(&self.cpus);
        cpus.filter(move |(_, p)| p.node == node.0).map(|(cpu, _)| cpu)
    }

    /// Returns a CPU's share of its caches, for the last-level rule (§5.13).
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

    /// Returns the distance between two nodes.
    pub(crate) fn distance(&self, from: u16, to: u16) -> u8 {
        let at = usize::from(from) * usize::from(self.nodes) + usize::from(to);
        self.distances.get(at).copied().unwrap_or(LOCAL)
    }
}
