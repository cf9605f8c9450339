//! Start-up: an embedder describes its memory, hands over room for the maps, and gets an allocator
//! in which every usable frame is free (spec §8.1). Everything is validated before anything is
//! written.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::{Mutex, RawMutex};

use crate::area::End;
use crate::deferred::{Deferred, Late};
use crate::frame::{Frame, Map, Pageblock, State};
use crate::knob_error::KnobError;
use crate::knobs::Knobs;
use crate::ladder::Reclaimers;
use crate::node::{Home, LOCAL_DISTANCE, MAX_NODES, Node, rebuild_orders};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::tuning::Limits;
use crate::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, SECTION_PAGES,
    TYPES, ZoneKind,
};
use crate::vm_events::EventCounters;
use crate::watermark::HIGH;
use crate::yard::Yard;
use crate::zone::{At, CpuSlot, Zone};

/// One zone of a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneSpec {
    /// Which zone.
    pub kind: ZoneKind,
    /// Of which node.
    pub node: NodeId,
    /// Its frames, from the first to one past the last, holes included.
    pub span: Range<Pfn>,
}

/// A machine's memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'l> {
    /// The zones, in any order; no two overlap. Nodes are numbered from 0; a node that no zone
    /// names has no memory, one that no CPU names has no CPUs.
    pub zones: &'l [ZoneSpec],
    /// Where there is memory, in any order; no two ranges overlap. Everything else in the zones
    /// is a hole.
    pub usable: &'l [Range<Pfn>],
    /// Memory that is in use already and never becomes free, in any order.
    pub reserved: &'l [Range<Pfn>],
    /// The node of each CPU: as many as there are CPUs, by number.
    pub cpus: &'l [NodeId],
    /// How far the nodes are from each other, row by row, as firmware tells it: 10 from a node to
    /// itself, more to others. Empty: all others are equally far (20). Its rows say how many nodes
    /// there are, where zones and CPUs do not name them all.
    pub distances: &'l [u8],
    /// The settings to start with.
    pub knobs: Knobs,
}

/// How much room an allocator's maps need: lengths of the slices of [`Storage`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Frame descriptors.
    pub frames: usize,
    /// Pageblock entries.
    pub blocks: usize,
    /// Zones.
    pub zones: usize,
    /// CPU slots: one per zone and CPU.
    pub slots: usize,
    /// Nodes.
    pub nodes: usize,
    /// CPU homes: one per CPU.
    pub homes: usize,
    /// Bytes of all of them together.
    pub bytes: usize,
}

/// Room for an allocator's maps, handed over for as long as it lives. Slices may be longer than
/// needed. What they hold before does not matter.
#[derive(Debug)]
pub struct Storage<'a, R: RawMutex> {
    /// Frame descriptors.
    pub frames: &'a [Frame],
    /// Pageblock entries.
    pub blocks: &'a [Pageblock],
    /// Zones.
    pub zones: &'a mut [Zone<'a, R>],
    /// CPU slots.
    pub slots: &'a mut [CpuSlot<R>],
    /// Nodes.
    pub nodes: &'a mut [Node<'a, R>],
    /// CPU homes.
    pub homes: &'a mut [Home<'a, R>],
}

/// Why an allocator could not be made. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// The layout has no zone.
    NoZones,
    /// The layout has no CPU.
    NoCpus,
    /// Zone number `0` ends before it starts, or is empty.
    EmptyZone(usize),
    /// Zone number `0` has more than 2^32 - 4096 frames, or frame numbers of 2^52 or more.
    ZoneTooLarge(usize),
    /// Two zones, by number, overlap.
    ZonesOverlap(usize, usize),
    /// Two zones, by number, are of the same kind and node.
    SameKind(usize, usize),
    /// A node's number is not below [`MAX_NODES`].
    TooManyNodes(NodeId),
    /// There are `0` distances, which is not the square of a number of nodes that includes all that
    /// zones and CPUs name.
    DistanceCount(usize),
    /// The distance from one node to another is not 10 to itself, or not above 10 to another one.
    BadDistance(NodeId, NodeId),
    /// Usable range number `0` is empty or ends before it starts.
    EmptyRange(usize),
    /// Two usable ranges, by number, overlap.
    RangesOverlap(usize, usize),
    /// Usable range number `0` is not wholly inside zones.
    OutsideZones(usize),
    /// Reserved range number `0` ends before it starts.
    BadReserved(usize),
    /// A setting is out of its range.
    Knob(KnobError),
    /// A slice of the storage is shorter than [`Needs`] says.
    TooSmall {
        /// Which slice.
        what: &'static str,
        /// How many entries it needs.
        needed: usize,
        /// How many it has.
        given: usize,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InitError::NoZones => f.write_str("the layout has no zone"),
            InitError::NoCpus => f.write_str("the layout has no CPU"),
            InitError::EmptyZone(i) => write!(f, "zone {i} has no frames"),
            InitError::ZoneTooLarge(i) => {
                write!(f, "zone {i} is too large: at most 2^32 - 4096 frames, below frame 2^52")
            }
            InitError::ZonesOverlap(i, j) => write!(f, "zones {i} and {j} overlap"),
            InitError::SameKind(i, j) => {
                write!(f, "zones {i} and {j} are of the same kind and node")
            }
            InitError::TooManyNodes(n) => {
                write!(f, "node {}: nodes are numbered from 0 to {}", n.0, MAX_NODES - 1)
            }
            InitError::DistanceCount(n) => {
                write!(f, "{n} distances, but there must be one for each pair of nodes, or none")
            }
            InitError::BadDistance(a, b) => {
                write!(f, "the distance from node {} to node {} must be ", a.0, b.0)?;
                f.write_str(if a == b { "10" } else { "above 10" })
            }
            InitError::EmptyRange(i) => write!(f, "usable range {i} has no frames"),
            InitError::RangesOverlap(i, j) => write!(f, "usable ranges {i} and {j} overlap"),
            InitError::OutsideZones(i) => write!(f, "usable range {i} reaches outside the zones"),
            InitError::BadReserved(i) => write!(f, "reserved range {i} ends before it starts"),
            InitError::Knob(e) => e.fmt(f),
            InitError::TooSmall { what, needed, given } => {
                write!(f, "room for {given} {what}, but the layout needs {needed}")
            }
        }
    }
}

impl core::error::Error for InitError {}

const ALIGN: u64 = 1 << MAX_ORDER;
/// Links are 32 bits, one value is "none", and a block's end must not wrap.
const MOST_FRAMES: u64 = (1 << 32) - 4096;

fn overlaps(a: &Range<Pfn>, b: &Range<Pfn>) -> bool {
    a.start < b.end && b.start < a.end
}

impl ZoneSpec {
    fn base(&self) -> u64 {
        self.span.start.0 & !(ALIGN - 1)
    }

    /// Frames in the zone's map, those before its start included.
    fn frames(&self) -> usize {
        (self.span.end.0 - self.base()) as usize
    }

    fn blocks(&self) -> usize {
        self.frames().div_ceil(PAGEBLOCK_PAGES as usize)
    }
}

impl Layout<'_> {
    /// How much room the maps of an allocator with this layout need.
    ///
    /// # Errors
    /// [`InitError`] says what is wrong with the layout.
    pub fn needs<R: RawMutex>(&self) -> Result<Needs, InitError> {
        self.validate()?;
        let frames = self.zones.iter().map(ZoneSpec::frames).sum();
        let blocks = self.zones.iter().map(ZoneSpec::blocks).sum();
        let zones = self.zones.len();
        let slots = zones * self.cpus.len();
        let (nodes, homes) = (self.nodes(), self.cpus.len());
        let bytes = frames * size_of::<Frame>()
            + blocks * size_of::<Pageblock>()
            + zones * size_of::<Zone<'_, R>>()
            + slots * size_of::<CpuSlot<R>>()
            + nodes * size_of::<Node<'_, R>>()
            + homes * size_of::<Home<'_, R>>();
        Ok(Needs { frames, blocks, zones, slots, nodes, homes, bytes })
    }

    /// The nodes that zones and CPUs name.
    fn named(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.zones.iter().map(|z| z.node).chain(self.cpus.iter().copied())
    }

    /// How many nodes there are.
    fn nodes(&self) -> usize {
        let named = self.named().map(|n| usize::from(n.0) + 1).max().unwrap_or(0);
        named.max(self.distances.len().isqrt())
    }

    fn validate_nodes(&self) -> Result<(), InitError> {
        if let Some(n) = self.named().find(|n| usize::from(n.0) >= MAX_NODES) {
            return Err(InitError::TooManyNodes(n));
        }
        let nodes = self.nodes();
        if nodes > MAX_NODES {
            return Err(InitError::TooManyNodes(NodeId(nodes.min(1 << 15) as u16 - 1)));
        }
        if !self.distances.is_empty() && nodes * nodes != self.distances.len() {
            return Err(InitError::DistanceCount(self.distances.len()));
        }
        for (i, &d) in self.distances.iter().enumerate() {
            let (from, to) = (i / nodes.max(1), i % nodes.max(1));
            let holds = if from == to { d == LOCAL_DISTANCE } else { d > LOCAL_DISTANCE };
            if !holds {
                return Err(InitError::BadDistance(NodeId(from as u16), NodeId(to as u16)));
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), InitError> {
        if self.zones.is_empty() {
            return Err(InitError::NoZones);
        }
        if self.cpus.is_empty() {
            return Err(InitError::NoCpus);
        }
        self.knobs.check().map_err(InitError::Knob)?;
        self.validate_nodes()?;
        for (i, z) in self.zones.iter().enumerate() {
            if z.span.start >= z.span.end {
                return Err(InitError::EmptyZone(i));
            }
            if z.span.end.0 - z.base() > MOST_FRAMES || z.span.end.0 > 1 << 52 {
                return Err(InitError::ZoneTooLarge(i));
            }
            for (j, o) in self.zones.iter().enumerate().take(i) {
                if overlaps(&z.span, &o.span) {
                    return Err(InitError::ZonesOverlap(j, i));
                }
                if z.kind == o.kind && z.node == o.node {
                    return Err(InitError::SameKind(j, i));
                }
            }
        }
        for (i, r) in self.usable.iter().enumerate() {
            if r.start >= r.end {
                return Err(InitError::EmptyRange(i));
            }
            if let Some(j) = self.usable.iter().take(i).position(|o| overlaps(r, o)) {
                return Err(InitError::RangesOverlap(j, i));
            }
            let inside: u64 = self.zones.iter().map(|z| common(r, &z.span)).sum();
            if inside != r.end.0 - r.start.0 {
                return Err(InitError::OutsideZones(i));
            }
        }
        match self.reserved.iter().position(|r| r.start > r.end) {
            Some(i) => Err(InitError::BadReserved(i)),
            None => Ok(()),
        }
    }

    /// Whether requests that prefer the zone keep blocks apart at first (§2.7): of a NORMAL zone,
    /// where there is another zone of the node to turn to, or no other node.
    fn starts_nofragment(&self, zone: &ZoneSpec, nodes: usize) -> bool {
        let dma32 = |z: &ZoneSpec| z.node == zone.node && z.kind == ZoneKind::Dma32;
        let populated = |z: &ZoneSpec| self.usable.iter().any(|r| overlaps(r, &z.span));
        zone.kind == ZoneKind::Normal
            && (nodes == 1 || self.zones.iter().any(|z| dma32(z) && populated(z)))
    }

    /// The next run of frames of a zone that are usable and not reserved, at or after `from`.
    pub(crate) fn next_free(&self, span: &Range<Pfn>, from: Pfn) -> Option<Range<Pfn>> {
        let mut at = from.max(span.start);
        loop {
            let range = self
                .usable
                .iter()
                .filter(|r| r.end > at && r.start < span.end)
                .min_by_key(|r| r.start)?;
            at = at.max(range.start);
            match self.reserved.iter().filter(|r| r.start <= at && at < r.end).map(|r| r.end).max()
            {
                Some(end) => at = end,
                None if at < range.end.min(span.end) => {
                    let reserved = self.reserved.iter().filter(|r| r.start > at && r.start < r.end);
                    let end = reserved.map(|r| r.start).fold(range.end.min(span.end), Pfn::min);
                    return Some(at..end);
                }
                None => {}
            }
            if at >= span.end {
                return None;
            }
        }
    }
}

/// What a yard begins with.
#[allow(clippy::large_enum_variant)] // one of them, once
pub(crate) enum Start<'a> {
    /// No memory.
    Blank,
    /// All of it.
    Whole,
    /// One section of each node's last zone (§8.2).
    Deferred(Layout<'a>),
}

/// How many frames two ranges share.
fn common(a: &Range<Pfn>, b: &Range<Pfn>) -> u64 {
    a.end.min(b.end).0.saturating_sub(a.start.max(b.start).0)
}

impl<'a, R: RawMutex, E: Platform, P: Policy> Yard<'a, R, E, P> {
    /// An allocator in which every usable frame that is not reserved is free.
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage then.
    pub fn new(
        layout: &Layout<'_>,
        storage: Storage<'a, R>,
        platform: E,
    ) -> Result<Self, InitError> {
        let yard = Self::build(layout, storage, platform, Start::Whole)?;
        yard.recalculate();
        yard.regroup();
        Ok(yard)
    }

    /// Below a certain amount of memory, keeping types apart would only waste it (§2.4).
    pub(crate) fn regroup(&self) {
        let above: u64 = self
            .zones
            .iter()
            .map(|z| z.managed.load(Relaxed).saturating_sub(z.watermarks.effective(HIGH)))
            .sum();
        for zone in self.zones {
            let _lock = zone.lock.lock();
            zone.ungrouped.store(above < TYPES as u64 * u64::from(PAGEBLOCK_PAGES), Relaxed);
            zone.refresh_ample::<P>();
        }
    }

    /// An allocator with the layout's zones, no frame of which is memory yet: for
    /// [`restore`](Yard::restore). The layout's ranges are checked but not used.
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage then.
    pub fn blank(
        layout: &Layout<'_>,
        storage: Storage<'a, R>,
        platform: E,
    ) -> Result<Self, InitError> {
        Self::build(layout, storage, platform, Start::Blank)
    }

    pub(crate) fn build(
        layout: &Layout<'_>,
        storage: Storage<'a, R>,
        platform: E,
        start: Start<'a>,
    ) -> Result<Self, InitError> {
        let populated = !matches!(start, Start::Blank);
        let needs = layout.needs::<R>()?;
        let room = |what, needed, given| {
            if given < needed { Err(InitError::TooSmall { what, needed, given }) } else { Ok(()) }
        };
        room("frame descriptors", needs.frames, storage.frames.len())?;
        room("pageblock entries", needs.blocks, storage.blocks.len())?;
        room("zones", needs.zones, storage.zones.len())?;
        room("CPU slots", needs.slots, storage.slots.len())?;
        room("nodes", needs.nodes, storage.nodes.len())?;
        room("CPU homes", needs.homes, storage.homes.len())?;

        for (i, slot) in storage.slots.iter_mut().take(needs.slots).enumerate() {
            *slot = CpuSlot::new();
            if let Some(node) = layout.cpus.get(i % layout.cpus.len().max(1)) {
                slot.node.store(node.0.into(), Relaxed);
            }
        }
        let slots: &'a [CpuSlot<R>] = storage.slots;
        let (mut frames, mut blocks, mut slots) = (storage.frames, storage.blocks, slots);
        let ids = (0..needs.nodes).flat_map(|n| {
            ZoneKind::ALL.into_iter().rev().map(move |kind| (NodeId(n as u16), kind))
        });
        let specs = ids.filter_map(|id| layout.zones.iter().find(|z| (z.node, z.kind) == id));
        for (spec, zone) in specs.zip(storage.zones.iter_mut()) {
            let own;
            (own, frames) = frames.split_at(spec.frames().min(frames.len()));
            let own_blocks;
            (own_blocks, blocks) = blocks.split_at(spec.blocks().min(blocks.len()));
            let cpus;
            (cpus, slots) = slots.split_at(layout.cpus.len().min(slots.len()));
            let map = Map::new(own, own_blocks);
            let late = match &start {
                Start::Deferred(_) => layout.late_part(spec),
                Start::Blank | Start::Whole => None,
            };
            // Where memory is to come, frames are cleared on the way.
            match start {
                Start::Blank => map.clear(),
                Start::Whole | Start::Deferred(_) => map.clear_blocks(),
            }
            *zone = Zone {
                map,
                cpus,
                base: spec.base(),
                start: spec.span.start,
                spanned: spec.span.end.0 - spec.span.start.0,
                kind: spec.kind,
                node: spec.node,
                late: late.map(Late::new).unwrap_or_default(),
                ..Zone::new()
            };
            if populated {
                zone.set_pagesets::<P>(Limits::DISABLED);
            }
            zone.boost_factor.store(layout.knobs.watermark_boost_factor, Relaxed);
            zone.count_numa(layout.knobs.numa_stat);
            let nofragment = layout.starts_nofragment(spec, needs.nodes);
            zone.nofragment.store(nofragment, Relaxed);
        }
        sort_by_start(storage.zones.get_mut(..needs.zones).unwrap_or(&mut []));
        let zones: &'a [Zone<'a, R>] = storage.zones.get(..needs.zones).unwrap_or(&[]);
        if populated {
            for zone in zones {
                populate::<R, E, P>(zone, layout, &platform);
            }
        }

        for (i, node) in storage.nodes.iter_mut().take(needs.nodes).enumerate() {
            let id = NodeId(i as u16);
            let first = zones.iter().take_while(|z| z.node < id).count();
            let own = zones.iter().filter(|z| z.node == id).count();
            let distances = layout.distances.get(i * needs.nodes..).unwrap_or(&[]);
            let distances = distances.get(..needs.nodes).unwrap_or(&[]);
            *node = Node::new();
            node.set(id, zones.get(first..first + own).unwrap_or(&[]), distances);
            let cpus = layout.cpus.iter().filter(|&&n| n == id).count();
            node.cpus.store(cpus as u32, Relaxed);
        }
        let nodes: &'a [Node<'a, R>] = storage.nodes.get(..needs.nodes).unwrap_or(&[]);
        // Of a blank yard's zones nobody knows yet which will have memory.
        let serves = |z: &Zone<'a, R>| !populated || z.is_populated();
        rebuild_orders(nodes, |id| zones.iter().any(|z| z.node == id && serves(z)));
        let mut homes = storage.homes.iter_mut().take(needs.homes);
        for ((cpu, &node), home) in (0..).map(CpuId).zip(layout.cpus).zip(&mut homes) {
            home.set(cpu, node, |highest| {
                let order = nodes.get(usize::from(node.0))?.order();
                let near = order.filter_map(|n| nodes.get(usize::from(n.0)));
                near.flat_map(|n| n.zones_up_to(highest)).find(|z| serves(z))
            });
        }
        Ok(Yard {
            zones,
            nodes,
            homes: storage.homes.get(..needs.homes).unwrap_or(&[]),
            platform,
            cpus: layout.cpus.len() as u32,
            knobs: Mutex::new(layout.knobs),
            settings: Mutex::new(()),
            hotplug: Mutex::new(()),
            draining: Mutex::new(()),
            oom: Mutex::new(()),
            reclaimers: Reclaimers::default(),
            warned: AtomicU64::new(0),
            zonelist_changes: AtomicU64::new(0),
            events: EventCounters::default(),
            deferred: match start {
                Start::Deferred(layout) => Some(Deferred::new(layout)),
                Start::Blank | Start::Whole => None,
            },
            policy: PhantomData,
        })
    }
}

/// Frees a zone's usable memory, as much of it as is not initialised later.
fn populate<R: RawMutex, E: Platform, P: Policy>(
    zone: &Zone<'_, R>,
    layout: &Layout<'_>,
    platform: &E,
) {
    let span = zone.start..zone.end();
    let present: u64 = layout.usable.iter().map(|r| common(r, &span)).sum();
    zone.present.store(present, Relaxed);
    let Some(at) = zone.at::<E, P>(platform, CpuId(0)) else { return };
    let end = zone.late.start().unwrap_or(span.end);
    let all = !zone.late.is_deferred();
    if all {
        zone.map.set_states(0, zone.first_index(), State::RESERVED);
    }
    let mut from = span.start;
    while from < end {
        // One section after the other: its descriptors are in the caches when they are put on lists.
        let next = section_end(from).min(end);
        if all && let Some(idx) = zone.index_of(from) {
            let pages = next.0.wrapping_sub(from.0) as u32;
            zone.map.set_states(idx, pages, State::RESERVED);
        }
        at.init_frames(layout, from..next);
        from = next;
    }
    // No CPU is to start with a debt.
    let locked = at.lock();
    locked.fold(locked.slot.diff());
    drop(locked);
    if let Some(seed) = layout.knobs.shuffle_seed {
        zone.seed_shuffle(seed);
        if !zone.late.is_deferred() {
            at.shuffle();
        }
    }
}

/// Where the section that holds a frame ends.
pub(crate) fn section_end(pfn: Pfn) -> Pfn {
    Pfn((pfn.0 / SECTION_PAGES).saturating_add(1).saturating_mul(SECTION_PAGES))
}

impl<R: RawMutex, E: Platform, P: Policy> At<'_, '_, R, E, P> {
    /// Frees what is usable of a range of the zone's frames as naturally aligned blocks, as large
    /// as they go, ascending, to the tails of the lists (§8.1). How many pages that were.
    ///
    /// The range begins and ends with a section, or with the zone, so that no free block reaches
    /// over its edges; nobody else may work on it.
    pub(crate) fn init_frames(self, layout: &Layout<'_>, range: Range<Pfn>) -> u64 {
        let zone = self.zone;
        let runs = || {
            let mut from = range.start;
            let range = range.clone();
            core::iter::from_fn(move || {
                let run = layout.next_free(&range, from)?;
                from = run.end;
                Some(run)
            })
        };
        for r in layout.usable {
            label(zone, &(r.start.max(range.start)..r.end.min(range.end)));
        }
        let mut pages = 0;
        for run in runs() {
            let n = run.end.0.wrapping_sub(run.start.0);
            if let Some(idx) = zone.index_of(run.start) {
                zone.map.set_states(idx, n as u32, State::TAIL);
            }
            pages += n;
        }
        zone.managed.fetch_add(pages, Relaxed);
        let locked = self.lock();
        for run in runs() {
            let mut pfn = run.start;
            while pfn < run.end {
                let fits = (run.end.0 - pfn.0).ilog2() as u8;
                let order = (pfn.0.trailing_zeros() as u8).min(fits).min(MAX_ORDER);
                if let Some(idx) = zone.index_of(pfn) {
                    locked.free_block(idx, order);
                }
                pfn.0 += 1 << order;
            }
        }
        pages
    }
}

/// Every pageblock with memory in it starts movable (§8.1).
fn label<R: RawMutex>(zone: &Zone<'_, R>, range: &Range<Pfn>) {
    let start = range.start.max(zone.start);
    let end = range.end.min(zone.end());
    let mut pfn = start;
    while pfn < end {
        if let Some(idx) = zone.index_of(pfn) {
            zone.map.set_block_type(idx, MigrateType::Movable);
        }
        pfn = Pfn(((pfn.0 >> PAGEBLOCK_ORDER) + 1) << PAGEBLOCK_ORDER);
    }
}

/// Notes the order of the zones' starts in the zones themselves, so that the zone of a frame is
/// found by bisection.
fn sort_by_start<R: RawMutex>(zones: &mut [Zone<'_, R>]) {
    for nth in 0..zones.len() {
        let below = |i: usize| {
            let start = zones.get(i).map(|z| z.start);
            zones.iter().filter(|z| Some(z.start) < start).count()
        };
        let index = (0..zones.len()).find(|&i| below(i) == nth).unwrap_or(0);
        if let Some(zone) = zones.get_mut(nth) {
            zone.nth_by_start = index as u16;
        }
    }
}

impl<R: RawMutex, E: Platform, P: Policy> crate::zone::Locked<'_, '_, R, E, P> {
    /// Memory that was never free becomes so, at the tail (§8.1).
    pub(crate) fn free_block(&self, idx: u32, order: u8) {
        let map = &self.zone.map;
        let t = map.block_type(idx);
        if order == MAX_ORDER && t == map.block_type(idx + PAGEBLOCK_PAGES) {
            // The same as below, for most of all memory: nothing is left to merge with.
            self.fill(idx, order);
            self.account(1 << order, t);
            return self.list_free(idx, order, t, End::Tail);
        }
        let step = order.min(PAGEBLOCK_ORDER);
        for piece in 0..1u32 << (order - step) {
            let idx = idx + (piece << step);
            self.fill(idx, step);
            self.free_one(idx, step, self.zone.map.block_type(idx), End::Tail);
        }
    }
}
