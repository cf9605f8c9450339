//! The units of the allocator: frame numbers, orders, types, zones. They are newtypes, so a frame
//! number cannot be used where a count is meant.

use core::fmt;
use core::ops::Range;

/// Bytes in a base page (spec §0.2).
pub const PAGE_SIZE: u64 = 4096;

/// The highest order of a block: 2^10 pages, 4 MiB (spec §1.1).
pub const MAX_ORDER: u8 = 10;

/// The order of a pageblock, the unit of mobility grouping: 512 pages, 2 MiB (spec §1.1).
pub const PAGEBLOCK_ORDER: u8 = 9;

/// Pages in a pageblock.
pub const PAGEBLOCK_PAGES: u32 = 1 << PAGEBLOCK_ORDER;

/// Returns the first index of a pageblock.
#[inline]
pub(crate) const fn block_start(idx: u32) -> u32 {
    idx & !(PAGEBLOCK_PAGES - 1)
}

/// Returns one past the last index of a pageblock. No map is so large that this could wrap.
#[inline]
pub(crate) const fn block_end(idx: u32) -> u32 {
    block_start(idx).saturating_add(PAGEBLOCK_PAGES)
}

/// Iterates over the first indices of these pageblocks.
#[inline]
pub(crate) fn each_block(blocks: Range<u32>) -> impl Iterator<Item = u32> {
    blocks.step_by(PAGEBLOCK_PAGES as usize)
}

/// Pages in a section (128 MiB): the unit of deferred initialisation and of hotplug (§1.1).
pub const SECTION_PAGES: u64 = 32768;

/// Orders above this one are costly to serve (spec §1.1).
pub const COSTLY_ORDER: u8 = 3;

/// A page frame number: physical address divided by [`PAGE_SIZE`].
///
/// ```
/// use pageyard::Pfn;
///
/// let pfn = Pfn::containing(0x1234_5678);
/// assert_eq!((pfn, pfn.address()), (Pfn(0x1_2345), 0x1234_5000));
/// assert_eq!(Pfn::from_address(0x1234_5678), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pfn(pub u64);

impl Pfn {
    /// Returns the physical address, in bytes, of the frame's first byte (§0.2). Addresses have 64
    /// bits: for frame numbers of 2^52 and above, which no zone contains, the result wraps.
    ///
    /// ```
    /// # use pageyard::Pfn;
    /// assert_eq!(Pfn(0x100).address(), 0x10_0000);
    /// ```
    pub const fn address(self) -> u64 {
        self.0.wrapping_mul(PAGE_SIZE)
    }

    /// Returns the frame that contains the physical address `address`, in bytes (§0.2). The address
    /// may be anywhere in the frame; [`from_address`](Pfn::from_address) accepts only its first
    /// byte.
    ///
    /// ```
    /// # use pageyard::Pfn;
    /// assert_eq!(Pfn::containing(0x10_0fff), Pfn(0x100));
    /// ```
    pub const fn containing(address: u64) -> Self {
        Pfn(address / PAGE_SIZE)
    }

    /// Returns the frame whose first byte has the physical address `address`, in bytes, or `None`
    /// if the address is not a multiple of [`PAGE_SIZE`] (§0.2). The inverse of
    /// [`address`](Pfn::address).
    ///
    /// ```
    /// # use pageyard::Pfn;
    /// assert_eq!(Pfn::from_address(0x10_0000), Some(Pfn(0x100)));
    /// assert_eq!(Pfn::from_address(0x10_0001), None);
    /// ```
    pub const fn from_address(address: u64) -> Option<Pfn> {
        if address.is_multiple_of(PAGE_SIZE) { Some(Pfn::containing(address)) } else { None }
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pfn({:#x})", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The size of a block: 2^order base pages, order 0 to [`MAX_ORDER`].
///
/// ```
/// use pageyard::Order;
///
/// let order = Order::for_bytes(10_000).unwrap();
/// assert_eq!((order.get(), order.pages()), (2, 4));
/// assert_eq!(Order::new(11), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Order(u8);

impl Order {
    /// One page.
    pub const ZERO: Order = Order(0);
    /// The largest block.
    pub const MAX: Order = Order(MAX_ORDER);
    /// A huge page: one pageblock.
    pub const HUGE: Order = Order(PAGEBLOCK_ORDER);

    /// Returns `order` as an `Order`, or `None` if it exceeds [`MAX_ORDER`] (spec §2.7: such a
    /// request is refused).
    pub const fn new(order: u8) -> Option<Order> {
        if order <= MAX_ORDER { Some(Order(order)) } else { None }
    }

    /// Returns the smallest order whose blocks hold `bytes` bytes, or `None` if `bytes` exceeds the
    /// largest block, 4 MiB (§1.1). An object of 0 bytes takes one page.
    ///
    /// ```
    /// # use pageyard::Order;
    /// assert_eq!(Order::for_bytes(64 << 10), Order::new(4));
    /// assert_eq!(Order::for_bytes(5 << 20), None);
    /// ```
    pub const fn for_bytes(bytes: u64) -> Option<Order> {
        Order::holding(bytes.div_ceil(PAGE_SIZE))
    }

    /// Returns the smallest order whose blocks hold `pages` pages, or `None` if `pages` exceeds the
    /// largest block.
    pub const fn holding(pages: u64) -> Option<Order> {
        let mut o = 0;
        while o <= MAX_ORDER {
            if 1 << o >= pages {
                return Some(Order(o));
            }
            o += 1;
        }
        None
    }

    /// Returns the order as a number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of pages in a block of this order.
    pub const fn pages(self) -> u32 {
        1 << self.0
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the pages of a pageblock are used for (spec §1.4). The numbers are the kernel's, except for
/// `Isolate`, which is last there and has no fixed number.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// assert_eq!(yard.block_type(page), Some(MigrateType::Unmovable));
/// assert_eq!(MigrateType::Unmovable.name(), "Unmovable");
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MigrateType {
    /// Pages that cannot be moved: kernel memory.
    Unmovable = 0,
    /// Pages whose owner can move them to another frame.
    Movable = 1,
    /// Pages that cannot move but can be reclaimed: caches.
    Reclaimable = 2,
    /// Blocks reserved for urgent requests of order 1 and above (§3.8).
    HighAtomic = 3,
    /// Blocks of a contiguous-memory area: movable pages only.
    Cma = 4,
    /// Blocks from which no request allocates (§4.11).
    Isolate = 5,
}

/// Number of migrate types.
pub const TYPES: usize = 6;

/// Number of types that per-CPU lists and magazines have: unmovable, movable, reclaimable.
pub(crate) const CACHED_TYPES: usize = 3;

impl MigrateType {
    /// All types, by number.
    pub const ALL: [MigrateType; TYPES] = [
        MigrateType::Unmovable,
        MigrateType::Movable,
        MigrateType::Reclaimable,
        MigrateType::HighAtomic,
        MigrateType::Cma,
        MigrateType::Isolate,
    ];

    /// Returns whether the type has per-CPU lists. Blocks of these three types merge with each
    /// other (§1.4).
    pub const fn is_mergeable(self) -> bool {
        (self as u8) < MigrateType::HighAtomic as u8
    }

    /// Returns the types whose blocks may serve a request of this type, in order (§4.1).
    pub(crate) const fn fallbacks(self) -> [MigrateType; 2] {
        match self {
            MigrateType::Unmovable => [MigrateType::Reclaimable, MigrateType::Movable],
            MigrateType::Movable => [MigrateType::Reclaimable, MigrateType::Unmovable],
            _ => [MigrateType::Unmovable, MigrateType::Movable],
        }
    }

    /// Returns whether only some requests may use pageblocks of the type: those of CMA areas (§4.12) and
    /// the highatomic reserve (§3.8).
    pub(crate) const fn is_set_apart(self) -> bool {
        matches!(self, MigrateType::HighAtomic | MigrateType::Cma)
    }

    /// Returns the type with this number, or `None`.
    pub const fn from_number(n: u8) -> Option<MigrateType> {
        if n < TYPES as u8 { Some(MigrateType::from_bits(n as u32)) } else { None }
    }

    /// Returns the type for the three bits in descriptors and pageblocks. They are never out of
    /// range there.
    pub(crate) const fn from_bits(n: u32) -> MigrateType {
        match n & 7 {
            0 => MigrateType::Unmovable,
            1 => MigrateType::Movable,
            2 => MigrateType::Reclaimable,
            3 => MigrateType::HighAtomic,
            4 => MigrateType::Cma,
            _ => MigrateType::Isolate,
        }
    }

    /// Returns the kernel's name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            MigrateType::Unmovable => "Unmovable",
            MigrateType::Movable => "Movable",
            MigrateType::Reclaimable => "Reclaimable",
            MigrateType::HighAtomic => "HighAtomic",
            MigrateType::Cma => "CMA",
            MigrateType::Isolate => "Isolate",
        }
    }
}

impl fmt::Display for MigrateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The zones of a node, from the scarcest addresses up (spec §1.2).
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::ZoneKind;
///
/// assert!(yard.zone_info(ZoneKind::Normal).is_some() && yard.zone_info(ZoneKind::Dma).is_none());
/// assert_eq!(ZoneKind::Normal.name(), "Normal");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Addresses that the oldest devices reach (x86: below 16 MiB).
    Dma = 0,
    /// Addresses that 32-bit devices reach.
    Dma32 = 1,
    /// Everything else.
    Normal = 2,
    /// Memory that holds movable pages only.
    Movable = 3,
    /// Memory of devices: requests never allocate from it.
    Device = 4,
}

/// Number of zone kinds.
pub const ZONE_KINDS: usize = 5;

impl ZoneKind {
    /// All kinds, by number.
    pub const ALL: [ZoneKind; ZONE_KINDS] =
        [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Device];

    /// Returns the kernel's name of the zone kind.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma => "DMA",
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::Movable => "Movable",
            ZoneKind::Device => "Device",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The number of a memory node.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// // Requests that prefer a node are served by others if it has no memory left.
/// let page = yard.alloc_on(NodeId(0), Order::ZERO, Gfp::KERNEL)?;
/// assert_eq!(yard.zone_of(page).unwrap().node, NodeId(0));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct NodeId(pub u16);

/// One zone of one node. A method that takes `impl Into<ZoneId>` interprets a [`ZoneKind`] alone as
/// that zone of node 0.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let normal = ZoneId { node: NodeId(0), kind: ZoneKind::Normal };
/// assert!(yard.zone_ids().eq([normal]));
/// assert_eq!(ZoneId::from(ZoneKind::Normal), normal);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId {
    /// The zone's node.
    pub node: NodeId,
    /// The kind of the zone.
    pub kind: ZoneKind,
}

impl From<ZoneKind> for ZoneId {
    fn from(kind: ZoneKind) -> Self {
        ZoneId { node: NodeId(0), kind }
    }
}

impl From<(NodeId, ZoneKind)> for ZoneId {
    fn from((node, kind): (NodeId, ZoneKind)) -> Self {
        ZoneId { node, kind }
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of node {}", self.kind, self.node.0)
    }
}

/// The number of a CPU, counted from 0 without gaps.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// assert!(yard.is_up(CpuId(0)) && !yard.is_up(CpuId(1)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct CpuId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_rejects_impossible_blocks() {
        assert_eq!(Order::new(10), Some(Order::MAX));
        assert_eq!(Order::new(11), None);
        assert_eq!(Order::holding(0), Some(Order::ZERO));
        assert_eq!(Order::holding(513), Order::new(10));
        assert_eq!(Order::holding(1025), None);
    }

    #[test]
    fn order_for_bytes_rounds_up_to_a_block() {
        const MIB: u64 = 1 << 20;
        for (bytes, order) in [
            (0, Some(0)),
            (1, Some(0)),
            (4096, Some(0)),
            (4097, Some(1)),
            (2 * MIB, Some(9)),
            (2 * MIB + 1, Some(10)),
            (4 * MIB, Some(10)),
            (4 * MIB + 1, None),
            (u64::MAX, None),
        ] {
            assert_eq!(Order::for_bytes(bytes).map(Order::get), order, "{bytes}");
        }
    }

    #[test]
    fn frames_and_addresses_convert_both_ways() {
        const MIB: u64 = 1 << 20;
        for (address, containing, exact) in [
            (0, 0, true),
            (1, 0, false),
            (4095, 0, false),
            (4096, 1, true),
            (4097, 1, false),
            (4 * MIB, 1024, true),
            (4 * MIB + 1, 1024, false),
            (u64::MAX, (1 << 52) - 1, false),
        ] {
            let pfn = Pfn(containing);
            assert_eq!(Pfn::containing(address), pfn, "{address}");
            assert_eq!(Pfn::from_address(address), exact.then_some(pfn), "{address}");
            assert_eq!(pfn.address(), address & !(PAGE_SIZE - 1), "{address}");
        }
        assert_eq!(Pfn(1 << 52).address(), 0, "it wraps");
    }

    #[test]
    fn types_convert_to_numbers_and_back() {
        for t in MigrateType::ALL {
            assert_eq!(MigrateType::from_number(t as u8), Some(t));
            assert_eq!(MigrateType::from_bits(t as u32), t);
        }
        assert_eq!(MigrateType::from_number(6), None);
    }
}
