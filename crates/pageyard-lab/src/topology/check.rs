//! Converts a description to what an allocator needs, or finds the entry at fault.

use std::ops::Range;

use pageyard::tuning::CacheSlice;
use pageyard::{NodeId, PAGE_SIZE, Pfn, ZoneKind, ZoneSpec};
use pageyard_machine::format::exact_size;
use pageyard_machine::size;

use super::describe::{Cache, Description, Memory, Node, Zone};
use super::machine::{MOST_CPUS, MOST_NODES, MOST_RANGES, Topology, TopologyError};
use super::text::{numbers, range};

/// Ends of the zones DMA and DMA32 on x86 (§1.2).
const DMA_END: u64 = 16 << 20;
const DMA32_END: u64 = 4 << 30;
/// Bytes of a section, the unit in which memory goes online and offline (§1.1).
const SECTION: u64 = 128 << 20;
/// Limit of addresses, exclusive: 52 bits.
const MOST_ADDRESS: u64 = 1 << 52;
/// Default distance from a node to itself.
const LOCAL: u8 = 10;
/// Default distance from a node to another.
const REMOTE: u8 = 20;

/// A part of a node's memory in one zone, by address.
#[derive(Clone)]
struct Part {
    node: usize,
    kind: ZoneKind,
    span: Range<u64>,
    /// The text in the description.
    text: String,
}

struct Checker<'d> {
    of: &'d Description,
}

impl Description {
    /// Checks the description and converts it to a topology.
    ///
    /// # Errors
    /// Fails with the first invalid entry, and its fix.
    pub fn check(&self) -> Result<Topology, TopologyError> {
        let of = self;
        let c = Checker { of };
        if of.nodes.is_empty() {
            return Err(c.error("the machine", "has no node; add a [[node]]".into()));
        }
        if of.nodes.len() > MOST_NODES {
            let what = format!("{} nodes; expected at most {MOST_NODES}", of.nodes.len());
            return Err(c.error("the machine", what));
        }
        let counts: [fn(&Node) -> usize; 2] = [|n| n.memory.len(), |n| n.reserved.len()];
        for (what, count) in ["memory", "reserved"].into_iter().zip(counts) {
            let ranges: usize = of.nodes.iter().map(count).sum();
            if ranges > MOST_RANGES {
                let what = format!("{ranges} ranges of {what}; expected at most {MOST_RANGES}");
                return Err(c.error("the machine", what));
            }
        }
        let mut parts = Vec::new();
        for (n, node) in of.nodes.iter().enumerate() {
            parts.extend(c.memory(n, node)?);
        }
        if parts.is_empty() {
            let what = "no node has memory; give one memory = [\"1M..2G\"]".into();
            return Err(c.error("the machine", what));
        }
        c.no_overlaps(&parts)?;
        let zones = c.zones(&parts)?;
        let reserved = c.reserved(&parts)?;
        let cpus = c.cpus()?;
        let pfns = |r: &Range<u64>| Pfn(r.start / PAGE_SIZE)..Pfn(r.end / PAGE_SIZE);
        Ok(Topology {
            name: of.name.clone(),
            zones,
            usable: parts.iter().map(|p| pfns(&p.span)).collect(),
            reserved: reserved.iter().map(pfns).collect(),
            distances: c.distances()?,
            caches: c.caches(cpus.len())?,
            cpus,
            nodes: of.nodes.len(),
            clock_mhz: of.clock_mhz,
        })
    }
}

impl Checker<'_> {
    fn error(&self, entry: impl Into<String>, what: String) -> TopologyError {
        TopologyError { file: self.of.name.clone(), entry: entry.into(), what }
    }

    fn node_error(&self, n: usize, what: String) -> TopologyError {
        self.error(format!("node {n}"), what)
    }

    fn range(&self, n: usize, text: &str) -> Result<Range<u64>, TopologyError> {
        let r = range(text).map_err(|e| self.node_error(n, e))?;
        let unit = if self.of.hotplug { SECTION } else { PAGE_SIZE };
        for at in [r.start, r.end] {
            if !at.is_multiple_of(unit) {
                let why = if self.of.hotplug { " (the section size of hotplug)" } else { "" };
                let what = format!(
                    "memory {text}: {} is not a multiple of {}{why}",
                    exact_size(at),
                    exact_size(unit)
                );
                return Err(self.node_error(n, what));
            }
        }
        if r.end > MOST_ADDRESS {
            let what = format!("memory {text} ends above {}", exact_size(MOST_ADDRESS));
            return Err(self.node_error(n, what));
        }
        Ok(r)
    }

    /// Returns a node's memory by zone.
    fn memory(&self, n: usize, node: &Node) -> Result<Vec<Part>, TopologyError> {
        let mut parts = Vec::new();
        for memory in &node.memory {
            match memory {
                Memory::Zoned { range: text, zone } => {
                    let span = self.range(n, text)?;
                    parts.push(Part { node: n, kind: kind(*zone), span, text: text.clone() });
                }
                Memory::Auto(text) => {
                    let span = self.range(n, text)?;
                    let zones = [
                        (ZoneKind::Dma, 0..DMA_END),
                        (ZoneKind::Dma32, DMA_END..DMA32_END),
                        (ZoneKind::Normal, DMA32_END..MOST_ADDRESS),
                    ];
                    for (kind, zone) in zones {
                        let span = span.start.max(zone.start)..span.end.min(zone.end);
                        if span.start < span.end {
                            parts.push(Part { node: n, kind, span, text: text.clone() });
                        }
                    }
                }
            }
        }
        if let Some(text) = &node.movable {
            self.make_movable(n, text, &mut parts)?;
        }
        Ok(parts)
    }

    /// Moves the topmost part of a node's memory into the zone MOVABLE.
    fn make_movable(
        &self,
        n: usize,
        text: &str,
        parts: &mut Vec<Part>,
    ) -> Result<(), TopologyError> {
        let fault = |what: String| self.node_error(n, format!("movable = {text}: {what}"));
        let mut left = size(text).map_err(&fault)?;
        let unit = if self.of.hotplug { SECTION } else { PAGE_SIZE };
        if !left.is_multiple_of(unit) {
            return Err(fault(format!("not a multiple of {}", exact_size(unit))));
        }
        let all: u64 = parts.iter().map(|p| p.span.end - p.span.start).sum();
        if left > all {
            return Err(fault(format!("the node has only {}", exact_size(all))));
        }
        parts.sort_by_key(|p| p.span.start);
        let mut moved = Vec::new();
        while left > 0
            && let Some(mut top) = parts.pop()
        {
            let from = top.span.end.saturating_sub(left).max(top.span.start);
            left -= top.span.end - from;
            moved.push(Part { kind: ZoneKind::Movable, span: from..top.span.end, ..top.clone() });
            top.span.end = from;
            if top.span.start < top.span.end {
                parts.push(top);
            }
        }
        parts.extend(moved);
        Ok(())
    }

    fn no_overlaps(&self, parts: &[Part]) -> Result<(), TopologyError> {
        let mut sorted: Vec<_> = parts.iter().collect();
        sorted.sort_by_key(|p| p.span.start);
        for pair in sorted.windows(2) {
            if let [a, b] = pair
                && a.span.end > b.span.start
            {
                let what = format!(
                    "memory {} overlaps memory {} of node {}; give each address to one of them",
                    b.text, a.text, a.node
                );
                return Err(self.node_error(b.node, what));
            }
        }
        Ok(())
    }

    /// Returns one zone for each node and kind, from its first to its last part.
    fn zones(&self, parts: &[Part]) -> Result<Vec<ZoneSpec>, TopologyError> {
        let mut zones: Vec<ZoneSpec> = Vec::new();
        for p in parts {
            let span = Pfn(p.span.start / PAGE_SIZE)..Pfn(p.span.end / PAGE_SIZE);
            let node = NodeId(p.node as u16);
            match zones.iter_mut().find(|z| z.node == node && z.kind == p.kind) {
                Some(z) => z.span = z.span.start.min(span.start)..z.span.end.max(span.end),
                None => zones.push(ZoneSpec { kind: p.kind, node, span }),
            }
        }
        zones.sort_by_key(|z| z.span.start);
        for pair in zones.windows(2) {
            if let [a, b] = pair
                && a.span.end > b.span.start
            {
                let what = format!(
                    "its zone {} is inside zone {} of node {}; zones must not be interleaved",
                    b.kind, a.kind, a.node.0
                );
                return Err(self.node_error(b.node.0.into(), what));
            }
        }
        zones.sort_by_key(|z| (z.node.0, z.kind as u8));
        Ok(zones)
    }

    fn reserved(&self, parts: &[Part]) -> Result<Vec<Range<u64>>, TopologyError> {
        let mut out = Vec::new();
        for (n, node) in self.of.nodes.iter().enumerate() {
            for text in &node.reserved {
                let r = range(text).map_err(|e| self.node_error(n, format!("reserved: {e}")))?;
                let fault =
                    |what: String| Err(self.node_error(n, format!("reserved {text}: {what}")));
                if !r.start.is_multiple_of(PAGE_SIZE) || !r.end.is_multiple_of(PAGE_SIZE) {
                    return fault("not a multiple of 4K".into());
                }
                let inside: u64 = parts
                    .iter()
                    .filter(|p| p.node == n)
                    .map(|p| p.span.end.min(r.end).saturating_sub(p.span.start.max(r.start)))
                    .sum();
                if inside != r.end - r.start {
                    return fault("not within the node's memory".into());
                }
                out.push(r);
            }
        }
        Ok(out)
    }

    fn cpus(&self) -> Result<Vec<NodeId>, TopologyError> {
        let mut found: Vec<Option<usize>> = Vec::new();
        for (n, node) in self.of.nodes.iter().enumerate() {
            for cpu in numbers(&node.cpus).map_err(|e| self.node_error(n, e))? {
                let at = cpu as usize;
                if found.len() <= at {
                    found.resize(at + 1, None);
                }
                if let Some(other) = found[at].replace(n) {
                    let what = format!("CPU {cpu} is already on node {other}");
                    return Err(self.node_error(n, what));
                }
            }
        }
        if found.is_empty() {
            let what = "no node has CPUs; give one cpus = \"0-3\"".into();
            return Err(self.error("the machine", what));
        }
        let last = found.len() - 1;
        let of = |(cpu, node): (usize, Option<usize>)| {
            let gap = || {
                let what = format!(
                    "not on any node, but CPU {last} exists; number CPUs from 0 without \
                     gaps"
                );
                self.error(format!("CPU {cpu}"), what)
            };
            node.map(|n| NodeId(n as u16)).ok_or_else(gap)
        };
        found.into_iter().enumerate().map(of).collect()
    }

    /// Returns the distances row by row. As in the kernel, they need not be symmetric.
    fn distances(&self) -> Result<Vec<u8>, TopologyError> {
        let nodes = &self.of.nodes;
        if nodes.iter().all(|n| n.distances.is_empty()) {
            let of = |at| if at / nodes.len() == at % nodes.len() { LOCAL } else { REMOTE };
            return Ok((0..nodes.len() * nodes.len()).map(of).collect());
        }
        let mut out = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            if node.distances.len() != nodes.len() {
                let what = format!(
                    "{} distances for {} nodes; give one for each node, itself included, or none \
                     anywhere",
                    node.distances.len(),
                    nodes.len()
                );
                return Err(self.node_error(n, what));
            }
            for (m, &d) in node.distances.iter().enumerate() {
                let what = if n == m && d != LOCAL {
                    format!("distance to itself is {d}; it must be {LOCAL}")
                } else if n != m && d < LOCAL {
                    format!(
                        "distance to node {m} is {d}; it must be more than {LOCAL}, the \
                         distance to itself"
                    )
                } else if n != m && d == LOCAL {
                    format!(
                        "distance to node {m} is {d}; it must be more than the distance to \
                         itself"
                    )
                } else {
                    continue;
                };
                return Err(self.node_error(n, what));
            }
            out.extend(&node.distances);
        }
        Ok(out)
    }

    /// Returns each CPU's share of its caches; 0 if the description does not have them.
    fn caches(&self, cpus: usize) -> Result<Vec<CacheSlice>, TopologyError> {
        let mut slices: Vec<Option<CacheSlice>> = vec![None; cpus];
        for (i, cache) in self.of.caches.iter().enumerate() {
            let fault = |what: String| self.error(format!("cache {i}"), what);
            let (list, slice) = slice(cache).map_err(fault)?;
            for cpu in list {
                let Some(slot) = slices.get_mut(cpu as usize) else {
                    return Err(fault(format!("CPU {cpu} is not on any node")));
                };
                if slot.replace(slice).is_some() {
                    return Err(fault(format!("CPU {cpu} already has a last-level cache")));
                }
            }
        }
        Ok(slices.into_iter().map(Option::unwrap_or_default).collect())
    }
}

fn slice(cache: &Cache) -> Result<(Vec<u32>, CacheSlice), String> {
    let list = numbers(&cache.cpus)?;
    let all = list.len() as u32;
    let sharers = cache.sharers.unwrap_or(all);
    if all == 0 || sharers == 0 || !all.is_multiple_of(sharers) {
        return Err(format!("{sharers} sharers do not divide its {all} CPUs"));
    }
    let last_level = size(&cache.last_level)? / u64::from(sharers);
    let private = cache.private.as_deref().map_or(Ok(0), size)?;
    let all_levels = last_level.saturating_add(private);
    Ok((list, CacheSlice { last_level, all_levels }))
}

fn kind(zone: Zone) -> ZoneKind {
    match zone {
        Zone::Dma => ZoneKind::Dma,
        Zone::Dma32 => ZoneKind::Dma32,
        Zone::Normal => ZoneKind::Normal,
        Zone::Movable => ZoneKind::Movable,
    }
}

const _: () = assert!(MOST_CPUS as usize <= 1 << 16 && MOST_NODES <= 1 << 16);
