//! A machine that can be, and what may be wrong with a description of one.

use std::fmt;

use pageyard::tuning::CacheSlice;
use pageyard::{CpuId, NodeId};

/// So many CPUs at most.
pub const MOST_CPUS: u32 = 1024;
/// From a node to itself (ACPI).
pub(crate) const LOCAL: u8 = 10;

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
