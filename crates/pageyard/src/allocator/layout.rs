//! The embedder's description of its memory: zones, usable and reserved ranges, CPUs, distances and
//! settings (spec §8.1). Everything is validated before anything is written.

use core::alloc::{Layout as Bytes, LayoutError};
use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::init_error::InitError;
use crate::allocator::knobs::Knobs;
use crate::base::frame::{Frame, Pageblock};
use crate::base::node_mask::MAX_NODES;
use crate::base::units::{MAX_ORDER, NodeId, PAGEBLOCK_PAGES, Pfn, SECTION_PAGES, ZoneKind};
use crate::embedder::policy::Engine;
use crate::packed;
use crate::zone::node::{CpuZones, LOCAL_DISTANCE, Node};
use crate::zone::state::{PerCpu, Zone};

/// One zone of a layout.
///
/// ```
/// use pageyard::{NodeId, Pfn, ZoneKind, ZoneSpec};
///
/// // 64 MiB at 4 GiB.
/// let first = Pfn::containing(0x1_0000_0000);
/// let zone = ZoneSpec {
///     kind: ZoneKind::Normal,
///     node: NodeId(0),
///     span: first..Pfn(first.0 + (64 << 20) / pageyard::PAGE_SIZE),
/// };
/// assert_eq!(zone.span.end.address(), 0x1_0400_0000);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneSpec {
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The zone's node.
    pub node: NodeId,
    /// Its frames as a half-open range, holes included.
    pub span: Range<Pfn>,
}

/// A machine's memory.
///
/// ```
/// use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneKind, ZoneSpec};
///
/// let span = Pfn(0x10_0000)..Pfn(0x10_4000);
/// let zone = ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span };
/// let layout = Layout {
///     usable: &[zone.span.clone()],
///     zones: &[zone],
///     reserved: &[],
///     cpus: &[NodeId(0); 2],
///     distances: &[],
///     knobs: Knobs::DEFAULT,
/// };
/// let needs = layout.needs::<spin::mutex::SpinMutex<()>>()?;
/// assert_eq!(needs.frames, 0x4000);
/// # Ok::<(), pageyard::InitError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout<'l> {
    /// The zones, in any order, without overlap. Nodes are numbered from 0. A node that no zone
    /// names has no memory; a node that no CPU names has no CPUs.
    pub zones: &'l [ZoneSpec],
    /// Ranges of memory, in any order, without overlap. Every other frame of a zone is a hole.
    pub usable: &'l [Range<Pfn>],
    /// Memory in use from the start, in any order. It becomes free only if it is
    /// [released](crate::Yard::release).
    pub reserved: &'l [Range<Pfn>],
    /// The node of each CPU, indexed by CPU number. The length is the number of CPUs.
    pub cpus: &'l [NodeId],
    /// Distances between nodes, row by row, as firmware reports them: 10 from a node to itself,
    /// more than 10 to another node. If empty, all other nodes are at distance 20. The table may
    /// cover more nodes than zones and CPUs name; its size then sets the number of nodes.
    pub distances: &'l [u8],
    /// The initial settings.
    pub knobs: Knobs,
}

/// Room that an allocator's maps need: the lengths of the slices of [`Storage`].
///
/// ```
/// # use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneKind, ZoneSpec};
/// # let zone = ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: Pfn(0)..Pfn(0x4000) };
/// # let layout = Layout {
/// #     usable: &[zone.span.clone()], zones: &[zone], reserved: &[], cpus: &[NodeId(0)],
/// #     distances: &[], knobs: Knobs::DEFAULT,
/// # };
/// let needs = layout.needs::<spin::mutex::SpinMutex<()>>()?;
/// assert_eq!((needs.zones, needs.cpu_zones), (1, 1));
/// // In one piece: see the crate `pageyard-carve`.
/// let region = needs.metadata::<spin::mutex::SpinMutex<()>>()?;
/// assert!(region.size() >= 16 * needs.frames);
/// # Ok::<(), pageyard::InitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Frame descriptors.
    pub frames: usize,
    /// Pageblock entries.
    pub blocks: usize,
    /// Zones.
    pub zones: usize,
    /// Per-CPU parts of zones ([`PerCpu`]): one per zone and CPU.
    pub slots: usize,
    /// Nodes.
    pub nodes: usize,
    /// Preferred zones of CPUs ([`CpuZones`]): one per CPU.
    pub cpu_zones: usize,
    /// The packed engine's parts of all zones together; none on the exact engine.
    pub packed: packed::YardNeeds,
    /// Total size of all maps, in bytes, without padding.
    pub bytes: usize,
}

impl Needs {
    /// No room.
    pub const NONE: Needs = Needs {
        frames: 0,
        blocks: 0,
        zones: 0,
        slots: 0,
        nodes: 0,
        cpu_zones: 0,
        packed: packed::YardNeeds::NONE,
        bytes: 0,
    };

    /// Returns the size and alignment, in bytes, of one region that holds all maps: zones, per-CPU
    /// parts, CPUs' preferred zones, nodes, frame descriptors, pageblock entries, then the packed
    /// engine's CPU parts, domains, magazines, words, index, labels, links, routes, states, in this
    /// order, each aligned. Ignores `bytes`, which does not include padding.
    ///
    /// # Errors
    /// [`InitError::MapsTooLarge`] if the region would exceed the largest object size of this
    /// target.
    ///
    /// ```
    /// # use pageyard::Needs;
    /// # type Lock = spin::mutex::SpinMutex<()>;
    /// let needs = Needs { frames: 1024, blocks: 2, zones: 1, slots: 1, nodes: 1, cpu_zones: 1, ..Needs::NONE };
    /// assert!(needs.metadata::<Lock>()?.size() >= 1024 * 16);
    /// # Ok::<(), pageyard::InitError>(())
    /// ```
    pub fn metadata<R: RawMutex>(&self) -> Result<Bytes, InitError> {
        let packed = self.packed.get();
        let place = |sum: Bytes, part: Result<Bytes, LayoutError>| Ok(sum.extend(part?)?.0);
        Bytes::array::<Zone<'_, R>>(self.zones)
            .and_then(|sum| place(sum, Bytes::array::<PerCpu<R>>(self.slots)))
            .and_then(|sum| place(sum, Bytes::array::<CpuZones<'_, R>>(self.cpu_zones)))
            .and_then(|sum| place(sum, Bytes::array::<Node<'_, R>>(self.nodes)))
            .and_then(|sum| place(sum, Bytes::array::<Frame>(self.frames)))
            .and_then(|sum| place(sum, Bytes::array::<Pageblock>(self.blocks)))
            .and_then(|sum| place(sum, Bytes::array::<packed::PerCpu<R>>(packed.cpus)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Domain>(packed.domains)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Magazine>(packed.magazines)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Words>(packed.blocks)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Words>(packed.blocks)))
            .and_then(|sum| place(sum, Bytes::array::<packed::IndexWord>(packed.index)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Label>(packed.blocks)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Link>(packed.magazines)))
            .and_then(|sum| place(sum, Bytes::array::<packed::Route>(packed.blocks)))
            .and_then(|sum| place(sum, Bytes::array::<packed::FrameState>(packed.states)))
            .map(|sum| sum.pad_to_align())
            .map_err(|_| InitError::MapsTooLarge)
    }

    /// Adds the needs of one zone on the packed engine, for an embedder that sums up the needs of
    /// zones before it has a [`Layout`]. [`Layout::needs_on`] does this for all zones. Adds nothing
    /// without the feature `packed`.
    ///
    /// ```
    /// use pageyard::{Needs, Pfn};
    ///
    /// let mut needs = Needs { zones: 1, slots: 2, nodes: 1, cpu_zones: 2, ..Needs::NONE };
    /// needs.add_packed(&(Pfn(0x10_0000)..Pfn(0x20_0000)), 2)?;
    /// assert_eq!(needs.packed.get().states, 0x10_0000);
    /// # Ok::<(), pageyard::packed::RegionError>(())
    /// ```
    ///
    /// # Errors
    /// [`RegionError`](packed::RegionError) if the span or the number of CPUs is out of range.
    pub fn add_packed(
        &mut self,
        span: &Range<Pfn>,
        cpus: usize,
    ) -> Result<(), packed::RegionError> {
        if cfg!(feature = "packed") {
            self.packed.add(zone_needs(span, cpus)?);
        }
        Ok(())
    }
}

/// Returns what the packed engine needs for a zone.
fn zone_needs(span: &Range<Pfn>, cpus: usize) -> Result<packed::Needs, packed::RegionError> {
    let frames = span.end.0.checked_sub(span.start.0).and_then(|frames| frames.try_into().ok());
    let frames = frames.ok_or(packed::RegionError::Frames)?;
    let cpus = u32::try_from(cpus).map_err(|_| packed::RegionError::TooManyCpus)?;
    packed::Needs::of_zone(span.start, frames, cpus)
}

/// Room for an allocator's maps, borrowed for the allocator's lifetime. Slices may be longer than
/// needed. Their previous contents do not matter.
///
/// ```
/// use pageyard::{CpuZones, Frame, Node, Pageblock, PerCpu, Storage, Zone};
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// let (frames, blocks) = ([const { Frame::new() }; 1024], [const { Pageblock::new() }; 2]);
/// let (mut zones, mut slots) = ([Zone::<Lock>::new()], [PerCpu::new()]);
/// let (mut nodes, mut cpu_zones) = ([Node::new()], [CpuZones::new()]);
/// let storage = Storage {
///     frames: &frames,
///     blocks: &blocks,
///     zones: &mut zones,
///     slots: &mut slots,
///     nodes: &mut nodes,
///     cpu_zones: &mut cpu_zones,
///     packed: pageyard::packed::YardStorage::EMPTY,
/// };
/// ```
#[derive(Debug)]
pub struct Storage<'a, R: RawMutex> {
    /// Frame descriptors.
    pub frames: &'a [Frame],
    /// Pageblock entries.
    pub blocks: &'a [Pageblock],
    /// Zones.
    pub zones: &'a mut [Zone<'a, R>],
    /// Per-CPU parts of zones.
    pub slots: &'a mut [PerCpu<R>],
    /// Nodes.
    pub nodes: &'a mut [Node<'a, R>],
    /// Preferred zones of CPUs.
    pub cpu_zones: &'a mut [CpuZones<'a, R>],
    /// The packed engine's parts; [`EMPTY`](packed::YardStorage::EMPTY) on the exact engine.
    pub packed: packed::YardStorage<'a, R>,
}

const ALIGN: u64 = 1 << MAX_ORDER;
/// Links are 32 bits wide with one value reserved for "none", and a block's end must not wrap.
const MOST_FRAMES: u64 = (1 << 32) - 4096;

fn overlaps(a: &Range<Pfn>, b: &Range<Pfn>) -> bool {
    a.start < b.end && b.start < a.end
}

impl ZoneSpec {
    pub(crate) fn base(&self) -> u64 {
        self.span.start.0 & !(ALIGN - 1)
    }

    /// Number of frames in the zone's map, including those between the aligned base and its start.
    pub(crate) fn frames(&self) -> usize {
        (self.span.end.0 - self.base()) as usize
    }

    pub(crate) fn blocks(&self) -> usize {
        self.frames().div_ceil(PAGEBLOCK_PAGES as usize)
    }
}

impl Layout<'_> {
    /// Returns the room that the maps of an allocator with this layout need, on the exact engine.
    ///
    /// # Errors
    /// [`InitError`] if the layout is invalid.
    pub fn needs<R: RawMutex>(&self) -> Result<Needs, InitError> {
        self.needs_on::<R>(Engine::Exact)
    }

    /// Returns the room that the maps of an allocator with this layout need, on either engine.
    ///
    /// ```
    /// use pageyard::policy::Engine;
    /// # use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneKind, ZoneSpec};
    /// # let span = Pfn(0x10_0000)..Pfn(0x20_0000);
    /// # let zone = ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span };
    /// # let layout = Layout {
    /// #     usable: &[zone.span.clone()], zones: &[zone], reserved: &[], cpus: &[NodeId(0); 2],
    /// #     distances: &[], knobs: Knobs::DEFAULT,
    /// # };
    /// # type Lock = spin::mutex::SpinMutex<()>;
    ///
    /// // 4 GiB: 16 bytes a frame, or less than two.
    /// assert!(layout.needs_on::<Lock>(Engine::Exact)?.bytes > 16 << 20);
    /// assert!(layout.needs_on::<Lock>(Engine::Packed)?.bytes < 2 << 20);
    /// # Ok::<(), pageyard::InitError>(())
    /// ```
    ///
    /// # Errors
    /// [`InitError`] if the layout is invalid.
    pub fn needs_on<R: RawMutex>(&self, engine: Engine) -> Result<Needs, InitError> {
        self.needs_within::<R>(engine, isize::MAX as u128)
    }

    /// Returns the size and alignment, in bytes, of one region that holds all maps of an allocator
    /// with this layout (§8.1). The `pageyard-carve` crate turns such a region into a [`Storage`].
    ///
    /// ```
    /// # use pageyard::{Knobs, Layout, NodeId, Pfn, ZoneKind, ZoneSpec};
    /// # type Lock = spin::mutex::SpinMutex<()>;
    /// # let span = Pfn(0)..Pfn(1024);
    /// # let layout = Layout {
    /// #     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
    /// #     usable: &[span],
    /// #     reserved: &[],
    /// #     cpus: &[NodeId(0)],
    /// #     distances: &[],
    /// #     knobs: Knobs::default(),
    /// # };
    /// let region = layout.metadata::<Lock>()?;
    /// println!("{} bytes, aligned to {}", region.size(), region.align());
    /// # assert!(region.size() >= layout.needs::<Lock>()?.bytes);
    /// # Ok::<(), pageyard::InitError>(())
    /// ```
    ///
    /// # Errors
    /// [`InitError`] if the layout is invalid.
    pub fn metadata<R: RawMutex>(&self) -> Result<Bytes, InitError> {
        self.needs::<R>()?.metadata::<R>()
    }

    /// Like [`needs`](Self::needs), for a target whose largest object size is `most` bytes.
    fn needs_within<R: RawMutex>(&self, engine: Engine, most: u128) -> Result<Needs, InitError> {
        self.validate()?;
        let mut packed = packed::YardNeeds::NONE;
        if cfg!(feature = "packed") && engine == Engine::Packed {
            for (i, zone) in self.zones.iter().enumerate() {
                packed.add(self.packed_needs(i, zone)?);
            }
        }
        // The packed engine has neither frame descriptors nor pageblock entries.
        let (mut frames, mut blocks) = (0u64, 0u64);
        for zone in self.zones.iter().filter(|_| engine == Engine::Exact) {
            frames = frames.saturating_add(zone.frames() as u64);
            blocks = blocks.saturating_add(zone.blocks() as u64);
        }
        let (frames, blocks) = (u128::from(frames), u128::from(blocks));
        let (zones, nodes, cpu_zones) = (self.zones.len(), self.nodes(), self.cpus.len());
        let slots = zones as u128 * cpu_zones as u128;
        let bytes = frames * size_of::<Frame>() as u128
            + blocks * size_of::<Pageblock>() as u128
            + zones as u128 * size_of::<Zone<'_, R>>() as u128
            + slots * size_of::<PerCpu<R>>() as u128
            + nodes as u128 * size_of::<Node<'_, R>>() as u128
            + cpu_zones as u128 * size_of::<CpuZones<'_, R>>() as u128
            + packed.get().bytes::<R>() as u128;
        if bytes > most {
            return Err(InitError::MapsTooLarge);
        }
        // The casts are lossless: no count exceeds the total in bytes.
        let (frames, blocks) = (frames as usize, blocks as usize);
        let (slots, bytes) = (slots as usize, bytes as usize);
        Ok(Needs { frames, blocks, zones, slots, nodes, cpu_zones, packed, bytes })
    }

    /// Returns what the packed engine needs for zone number `i`.
    pub(crate) fn packed_needs(
        &self,
        i: usize,
        zone: &ZoneSpec,
    ) -> Result<packed::Needs, InitError> {
        zone_needs(&zone.span, self.cpus.len()).map_err(|e| match e {
            packed::RegionError::Frames => InitError::ZoneTooLarge(i),
            _ => InitError::MapsTooLarge,
        })
    }

    /// Iterates over the nodes of all zones and CPUs, with repetitions.
    fn named(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.zones.iter().map(|z| z.node).chain(self.cpus.iter().copied())
    }

    /// Returns the number of nodes.
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

    /// Returns whether requests that prefer this zone start with NOFRAGMENT (§2.7). True for a NORMAL
    /// zone if there is only one node or the zone's node also has a populated DMA32 zone. Hotplug has
    /// the same rule by present pages, of which the zones of a blank allocator have none.
    pub(crate) fn starts_nofragment(&self, zone: &ZoneSpec, nodes: usize) -> bool {
        let dma32 = |z: &ZoneSpec| z.node == zone.node && z.kind == ZoneKind::Dma32;
        let populated = |z: &ZoneSpec| self.usable.iter().any(|r| overlaps(r, &z.span));
        zone.kind == ZoneKind::Normal
            && (nodes == 1 || self.zones.iter().any(|z| dma32(z) && populated(z)))
    }

    /// Returns the next run of frames of a zone, at or after `from`, that are usable and not
    /// reserved.
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

/// Returns how many frames two ranges share.
pub(crate) fn common(a: &Range<Pfn>, b: &Range<Pfn>) -> u64 {
    a.end.min(b.end).0.saturating_sub(a.start.max(b.start).0)
}

/// Returns the end of the section that contains a frame.
pub(crate) fn section_end(pfn: Pfn) -> Pfn {
    Pfn((pfn.0 / SECTION_PAGES).saturating_add(1).saturating_mul(SECTION_PAGES))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lock = spin::mutex::SpinMutex<()>;

    #[test]
    fn maps_larger_than_the_address_space_are_rejected() {
        // 1 TiB on a 32-bit target: 2^28 descriptors of 16 bytes.
        let span = |start: u64, end: u64| Pfn(start << 20)..Pfn(end << 20);
        let zone = |kind, span| ZoneSpec { kind, node: NodeId(0), span };
        let zones = [zone(ZoneKind::Normal, span(0, 100)), zone(ZoneKind::Movable, span(100, 256))];
        let layout = Layout {
            zones: &zones,
            usable: &[],
            reserved: &[],
            cpus: &[NodeId(0)],
            distances: &[],
            knobs: Knobs::default(),
        };
        let most = i32::MAX as u128;
        assert_eq!(layout.needs_within::<Lock>(Engine::Exact, most), Err(InitError::MapsTooLarge));
        // The first zone alone fits; the second alone does not.
        let first = Layout { zones: &zones[..1], ..layout };
        assert_eq!(first.needs_within::<Lock>(Engine::Exact, most).unwrap().frames, 100 << 20);
        let second = Layout { zones: &zones[1..], ..layout };
        assert_eq!(second.needs_within::<Lock>(Engine::Exact, most), Err(InitError::MapsTooLarge));
        let whole = layout.needs::<Lock>().unwrap();
        assert_eq!((whole.frames, whole.blocks), (256 << 20, 256 << 11));
        assert_eq!(layout.needs_within::<Lock>(Engine::Exact, whole.bytes as u128), Ok(whole));
        // Padding is less than one alignment per map.
        let region = layout.metadata::<Lock>().unwrap();
        assert_eq!((region.align(), region.size() % 128), (128, 0));
        assert!((whole.bytes..whole.bytes + 3 * 128).contains(&region.size()), "{region:?}");
        let absurd = Needs { frames: usize::MAX, ..whole };
        assert_eq!(absurd.metadata::<Lock>(), Err(InitError::MapsTooLarge));
        let less = whole.bytes as u128 - 1;
        assert_eq!(layout.needs_within::<Lock>(Engine::Exact, less), Err(InitError::MapsTooLarge));
    }
}
