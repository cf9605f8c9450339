//! A machine's memory layout, as described to the allocator.

use std::ops::Range;

use pageyard::{Knobs, Layout, NodeId, PAGE_SIZE, Pfn, ZoneKind, ZoneSpec};

use crate::spec::MachineSpec;

const DMA: Range<u64> = 1 << 20..16 << 20;
const DMA32: Range<u64> = 16 << 20..2 << 30;
/// Start of memory above the device hole.
const HIGH: u64 = 4 << 30;
/// Nodes with less memory than this have only one zone.
const SMALL: u64 = 4 << 30;
/// Alignment of zone sizes: the largest block, or a section for large zones.
const BLOCK: u64 = 4 << 20;
const SECTION: u64 = 128 << 20;

/// The zones, nodes and CPUs of a machine, with its memory divided equally among the nodes.
///
/// The first node begins as on x86: DMA below 16 MiB, DMA32 below 2 GiB, and NORMAL from 4 GiB on.
/// All other memory is NORMAL, node after node. If nodes have less than 4 GiB, all memory is
/// NORMAL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineLayout {
    zones: Vec<ZoneSpec>,
    usable: Vec<Range<Pfn>>,
    cpus: Vec<NodeId>,
    distances: Vec<u8>,
}

fn pfns(bytes: Range<u64>) -> Range<Pfn> {
    Pfn(bytes.start / PAGE_SIZE)..Pfn(bytes.end / PAGE_SIZE)
}

impl MachineSpec {
    /// Returns the bytes that the machine has if it is to have `memory` bytes: on each node the same number
    /// of 4 MiB blocks, or of sections of 128 MiB from 1 GiB on; at least one block, not more than `memory`
    /// otherwise.
    ///
    /// ```
    /// let desktop = pageyard_machine::MachineSpec::shipped("desktop").unwrap();
    /// assert_eq!(desktop.memory_of(1151 << 20), 1024 << 20);
    /// ```
    pub fn memory_of(&self, memory: u64) -> u64 {
        let nodes = u64::from(self.nodes);
        let share = memory / nodes;
        let unit = if share >= 1 << 30 { SECTION } else { BLOCK };
        (share / unit * unit).max(BLOCK) * nodes
    }
}

impl MachineLayout {
    /// Creates the layout of a machine with `memory` bytes, or as many as it
    /// [can have](MachineSpec::memory_of).
    pub fn new(spec: &MachineSpec, memory: u64) -> Self {
        let share = spec.memory_of(memory) / u64::from(spec.nodes);
        let mut zones = Vec::new();
        let mut usable = Vec::new();
        let mut zone = |kind, node, bytes: Range<u64>| {
            zones.push(ZoneSpec { kind, node: NodeId(node), span: pfns(bytes.clone()) });
            usable.push(pfns(bytes));
        };
        let mut at = HIGH;
        for node in 0..spec.nodes {
            let mut normal = share;
            if node == 0 && share >= SMALL {
                zone(ZoneKind::Dma, node, DMA);
                zone(ZoneKind::Dma32, node, DMA32);
                normal -= DMA32.end;
            }
            zone(ZoneKind::Normal, node, at..at + normal);
            at += normal;
        }
        let cpus = spec.cpus.iter().map(|p| NodeId(p.node)).collect();
        MachineLayout { zones, usable, cpus, distances: spec.distances.clone() }
    }

    /// Returns the layout from which an allocator is initialised.
    pub fn layout(&self, knobs: Knobs) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &self.usable,
            reserved: &[],
            cpus: &self.cpus,
            distances: &self.distances,
            knobs,
        }
    }

    /// Returns the zones, by node and kind.
    pub fn zones(&self) -> &[ZoneSpec] {
        &self.zones
    }

    /// Returns the frame after the last one.
    pub fn end(&self) -> Pfn {
        self.zones.iter().map(|z| z.span.end).max().unwrap_or_default()
    }
}
