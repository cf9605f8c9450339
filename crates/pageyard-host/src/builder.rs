//! What a yard is made from.

use std::ops::Range;
use std::time::Duration;

use lock_api::RawMutex;
use pageyard::policy::Policy;
use pageyard::{Knobs, NodeId, PAGE_SIZE, Pfn, Platform, ZoneKind, ZoneSpec};

use crate::error::{BuildError, of};
use crate::front::FrontCache;
use crate::maps::LayoutParts;
use crate::memory::{HugePages, LARGEST, Region, system_page};
use crate::raw_yard::RawYard;
use crate::topology::{Topology, list};
use crate::yard::HostYard;

/// Where addresses end on the machines there are: 47 bits of them.
const MOST: u64 = 1 << 46;
/// How much is populated at once.
const STEP: u64 = (256 << 20) / PAGE_SIZE;

/// Options of a yard. What is not said is decided by the machine.
#[derive(Clone, Debug)]
pub struct Builder {
    size: u64,
    nodes: Option<Vec<u16>>,
    cpus: Option<Vec<u32>>,
    huge_pages: HugePages,
    prefault: bool,
    deferred: bool,
    knobs: Knobs,
    tick: Option<Duration>,
    front: FrontCache,
}

impl Builder {
    /// A yard of so many bytes, rounded up to pages.
    pub fn new(size: u64) -> Self {
        Builder {
            size,
            nodes: None,
            cpus: None,
            huge_pages: HugePages::default(),
            prefault: false,
            deferred: false,
            knobs: Knobs::default(),
            tick: Some(Duration::from_secs(1)),
            front: FrontCache::Auto,
        }
    }

    /// The nodes, by the system's numbers, from which memory comes in equal parts, each a zone of
    /// its own. By default all that have memory.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = u16>) -> Self {
        self.nodes = Some(nodes.into_iter().collect());
        self
    }

    /// The CPUs, by the system's numbers, that get lists of their own; a thread that runs elsewhere
    /// shares one of theirs. By default all that are online. The fewer, the longer their lists.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// How the memory is backed.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// All memory is taken from the system now, not when it is first written.
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Only the first part of each zone is initialised now; the rest when requests want it, or by
    /// [`init_section`](pageyard::Yard::init_section) and
    /// [`finish_deferred`](pageyard::Yard::finish_deferred). A yard of much memory begins at once
    /// then, and until it is finished its descriptors take no memory that is not in use.
    pub fn deferred(mut self, deferred: bool) -> Self {
        self.deferred = deferred;
        self
    }

    /// The allocator's settings to start with.
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = knobs;
        self
    }

    /// How often a thread of a [`HostYard`]'s own folds statistics and shortens unused lists; once a
    /// second by default. `None`: no thread, and [`HostYard::tick`] is the caller's to call. A
    /// [`RawYard`] never has one.
    pub fn tick(mut self, interval: Option<Duration>) -> Self {
        self.tick = interval;
        self
    }

    /// What each thread of a [`HostYard`] keeps ready without a lock. A [`RawYard`] has no such
    /// cache.
    pub fn front_cache(mut self, front: FrontCache) -> Self {
        self.front = front;
        self
    }

    fn checked_cpus(&self, topology: &Topology) -> Result<Vec<u32>, BuildError> {
        let online = || topology.cpus.iter().map(|c| c.number);
        let Some(wanted) = &self.cpus else { return Ok(online().collect()) };
        for &cpu in wanted {
            if topology.node_of(cpu).is_none() {
                return Err(BuildError::Cpu { cpu, online: list(online()) });
            }
        }
        let mut cpus = wanted.clone();
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() { Err(BuildError::NoCpus) } else { Ok(cpus) }
    }

    fn checked_nodes(&self, topology: &Topology) -> Result<Vec<u16>, BuildError> {
        let known = || topology.nodes.iter().filter(|n| n.memory > 0).map(|n| n.number);
        let nodes: Vec<u16> = match &self.nodes {
            None => known().collect(),
            Some(nodes) => nodes.clone(),
        };
        if let Some(&node) = nodes.iter().find(|&&n| !known().any(|k| k == n)) {
            return Err(BuildError::Node { node, known: list(known().map(u32::from)) });
        }
        let twice = nodes.iter().enumerate().any(|(i, n)| nodes[..i].contains(n));
        if nodes.is_empty() || twice { Err(BuildError::Nodes) } else { Ok(nodes) }
    }

    /// Frames of each node's part of so many pages, in multiples of the largest block but for the
    /// last one.
    fn parts(pages: u64, first: Pfn, nodes: usize) -> Vec<Range<Pfn>> {
        let block = LARGEST / PAGE_SIZE;
        let end = first.0 + pages;
        let share = pages / nodes as u64 / block * block;
        let starts = (0..nodes as u64).map(|n| first.0 + n * share);
        let last = nodes as u64 - 1;
        let part = |(n, start)| Pfn(start)..Pfn(if n == last { end } else { start + share });
        (0..).zip(starts).map(part).collect()
    }

    /// Memory for a yard of this size and on these nodes. It can be used for one after the other
    /// ([`build_on`](Builder::build_on), [`RawYard::into_region`]).
    ///
    /// # Errors
    /// What is wrong with the options, or what the system refuses.
    pub fn region(&self) -> Result<Region, BuildError> {
        let topology = Topology::detect()?;
        let nodes = self.checked_nodes(&topology)?;
        if system_page() != PAGE_SIZE {
            return Err(BuildError::SystemPage(system_page()));
        }
        let least = LARGEST * nodes.len() as u64;
        if !(least..=MOST).contains(&self.size) {
            let (given, most, nodes) = (self.size, MOST, nodes.len());
            return Err(BuildError::Size { given, least, most, nodes });
        }
        let region = of("size", Region::new(self.size.div_ceil(PAGE_SIZE)))?;
        of("huge_pages", region.set_huge_pages(self.huge_pages))?;
        if topology.nodes.len() > 1 {
            let parts = Self::parts(region.pages(), region.first(), nodes.len());
            for (part, &node) in parts.iter().zip(&nodes) {
                of("nodes", region.prefer_node(part, NodeId(node)))?;
            }
        }
        if self.prefault {
            let end = region.frames().end.0;
            for at in (region.first().0..end).step_by(STEP as usize) {
                of("prefault", region.populate(&(Pfn(at)..Pfn((at + STEP).min(end)))))?;
            }
        }
        Ok(region)
    }

    fn on<P: Policy, R: RawMutex, E: Platform>(
        &self,
        region: Region,
        exclusive: bool,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        let topology = Topology::detect()?;
        let cpus = self.checked_cpus(&topology)?;
        let nodes = self.checked_nodes(&topology)?;
        let parts = Self::parts(region.pages(), region.first(), nodes.len());
        let zones = parts.iter().zip(&nodes).map(|(span, &node)| ZoneSpec {
            kind: ZoneKind::Normal,
            node: NodeId(node),
            span: span.clone(),
        });
        let last = cpus.last().map_or(0, |&c| c);
        let homes = (0..=last).map(|c| topology.node_of(c).unwrap_or(NodeId(nodes[0])));
        let plan = LayoutParts {
            zones: zones.collect(),
            usable: parts.into(),
            cpus: homes.collect(),
            distances: distances(&topology).into(),
            knobs: self.knobs,
        };
        RawYard::new(plan, self.deferred, region, cpus, &topology, exclusive, embedder)
    }

    /// A yard by frame number.
    ///
    /// # Errors
    /// What is wrong with the options, or what the system refuses.
    pub fn build_raw<P: Policy, R: RawMutex, E: Platform>(
        &self,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        self.on(self.region()?, false, embedder)
    }

    /// A yard by frame number on memory that there is already, whatever is in it; its size counts.
    ///
    /// # Errors
    /// What is wrong with the options.
    pub fn build_on<P: Policy, R: RawMutex, E: Platform>(
        &self,
        region: Region,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        self.on(region, false, embedder)
    }

    /// A yard of owned blocks.
    ///
    /// # Errors
    /// What is wrong with the options, or what the system refuses.
    pub fn build<P: Policy + Send + Sync + 'static>(&self) -> Result<HostYard<P>, BuildError> {
        if self.tick == Some(Duration::ZERO) {
            return Err(BuildError::Tick);
        }
        if !self.front.is_possible() {
            return Err(BuildError::FrontCache);
        }
        let raw = self.on(self.region()?, true, ())?;
        of("tick", HostYard::new(raw, self.tick, self.front))
    }
}

/// From node to node, for all numbers up to the last; nothing where that is only one, or the
/// firmware does not tell.
fn distances(topology: &Topology) -> Vec<u8> {
    let count = topology.nodes.iter().map(|n| n.number + 1).max().unwrap_or(1);
    if count == 1 {
        return Vec::new();
    }
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    let far = |(a, b)| match topology.distance(a, b) {
        _ if a == b => 10,
        Some(d) => d.max(11),
        None => 20,
    };
    pairs.map(far).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_blocks() {
        let first = Pfn(1 << 20);
        let parts = Builder::parts(10_000, first, 2);
        assert_eq!(parts, [first..Pfn(first.0 + 4096), Pfn(first.0 + 4096)..Pfn(first.0 + 10_000)]);
        assert_eq!(Builder::parts(1500, first, 1), [first..Pfn(first.0 + 1500)]);
    }
}
