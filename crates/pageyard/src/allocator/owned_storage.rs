//! Allocator maps on the heap (feature `alloc`).

use core::fmt;

use heap::vec::Vec;
use lock_api::RawMutex;

use crate::allocator::init_error::InitError;
use crate::allocator::layout::{Layout, Needs, Storage};
use crate::base::frame::{Frame, Pageblock};
use crate::base::heap::reserve;
use crate::packed::owned_storage::Parts;
use crate::zone::node::{CpuZones, Node};
use crate::zone::state::{PerCpu, Zone};

/// The maps of one allocator on the heap (§8.1). Needs feature `alloc`.
///
/// The allocator borrows its maps, and its zones borrow from the other maps. One `OwnedStorage`
/// therefore serves one [`Yard`](crate::Yard) and must outlive it: declare it first, as in the
/// example. [`leak`](OwnedStorage::leak) extends its life to that of the program.
///
/// ```
/// use pageyard::{Bare, CpuId, Gfp, Knobs, Layout, NodeId, Order, OwnedStorage, Pfn, Yard};
/// use pageyard::{ZoneKind, ZoneSpec};
///
/// type Lock = spin::mutex::SpinMutex<()>;
///
/// let span = Pfn(0x100000)..Pfn(0x104000);
/// let layout = Layout {
///     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
///     usable: &[span],
///     reserved: &[],
///     cpus: &[NodeId(0)],
///     distances: &[],
///     knobs: Knobs::default(),
/// };
/// let mut maps = OwnedStorage::new(&layout)?;
/// let yard: Yard<'_, Bare<Lock, ()>> = Yard::new(&layout, maps.storage(), ())?;
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Must not implement `Drop`: `storage` borrows it for all of `'a`, so a destructor would not
// compile.
pub struct OwnedStorage<'a, R: RawMutex> {
    frames: Vec<Frame>,
    blocks: Vec<Pageblock>,
    zones: Vec<Zone<'a, R>>,
    slots: Vec<PerCpu<R>>,
    nodes: Vec<Node<'a, R>>,
    cpu_zones: Vec<CpuZones<'a, R>>,
    packed: Parts<R>,
}

impl<'a, R: RawMutex> OwnedStorage<'a, R> {
    /// Allocates the maps of an allocator with this layout, on the exact engine.
    ///
    /// # Errors
    /// [`InitError`] if the layout is invalid; [`InitError::NoMemory`], with the name of the map,
    /// if the heap has no room for it.
    pub fn new(layout: &Layout<'_>) -> Result<Self, InitError> {
        Self::for_needs(&layout.needs::<R>()?)
    }

    /// Allocates as many entries as `needs` specifies, ignoring its `bytes`. Useful if maps come
    /// from several places: set a count to 0 and replace that slice of the
    /// [`storage`](OwnedStorage::storage).
    ///
    /// ```
    /// # use pageyard::{Frame, Needs, OwnedStorage, Storage};
    /// # type Lock = spin::mutex::SpinMutex<()>;
    /// static FRAMES: [Frame; 1024] = [const { Frame::new() }; 1024];
    ///
    /// let needs = Needs { blocks: 2, zones: 1, slots: 1, nodes: 1, cpu_zones: 1, ..Needs::NONE };
    /// let mut rest = OwnedStorage::<Lock>::for_needs(&needs)?;
    /// let storage = Storage { frames: &FRAMES, ..rest.storage() };
    /// # assert_eq!((storage.frames.len(), storage.blocks.len()), (1024, 2));
    /// # Ok::<(), pageyard::InitError>(())
    /// ```
    ///
    /// # Errors
    /// [`InitError::NoMemory`], with the name of the map, if the heap has no room for it.
    pub fn for_needs(needs: &Needs) -> Result<Self, InitError> {
        // Reserve all memory before writing any of it.
        let mut maps = OwnedStorage {
            frames: reserve("frame descriptors", needs.frames)?,
            blocks: reserve("pageblock entries", needs.blocks)?,
            zones: reserve("zones", needs.zones)?,
            slots: reserve("CPU slots", needs.slots)?,
            nodes: reserve("nodes", needs.nodes)?,
            cpu_zones: reserve("CPU zones", needs.cpu_zones)?,
            packed: Parts::new(&needs.packed.get())?,
        };
        maps.frames.resize_with(needs.frames, Frame::new);
        maps.blocks.resize_with(needs.blocks, Pageblock::new);
        maps.zones.resize_with(needs.zones, Zone::new);
        maps.slots.resize_with(needs.slots, PerCpu::new);
        maps.nodes.resize_with(needs.nodes, Node::new);
        maps.cpu_zones.resize_with(needs.cpu_zones, CpuZones::new);
        Ok(maps)
    }

    /// Borrows the maps for one allocator, for the rest of their life.
    pub fn storage(&'a mut self) -> Storage<'a, R> {
        Storage {
            frames: &self.frames,
            blocks: &self.blocks,
            zones: &mut self.zones,
            slots: &mut self.slots,
            nodes: &mut self.nodes,
            cpu_zones: &mut self.cpu_zones,
            packed: self.packed.storage().into(),
        }
    }

    /// Leaks the maps: they stay allocated until the program ends, so their allocator can be kept
    /// in a static.
    ///
    /// ```
    /// # use pageyard::{Bare, Knobs, Layout, NodeId, OwnedStorage, Pfn, Yard, ZoneKind, ZoneSpec};
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
    /// let maps = OwnedStorage::new(&layout)?.leak();
    /// let yard: Yard<'static, Bare<Lock, ()>> = Yard::new(&layout, maps, ())?;
    /// # Ok::<(), pageyard::InitError>(())
    /// ```
    pub fn leak(self) -> Storage<'a, R> {
        Storage {
            frames: self.frames.leak(),
            blocks: self.blocks.leak(),
            zones: self.zones.leak(),
            slots: self.slots.leak(),
            nodes: self.nodes.leak(),
            cpu_zones: self.cpu_zones.leak(),
            packed: self.packed.leak().into(),
        }
    }
}

impl<R: RawMutex> fmt::Debug for OwnedStorage<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, blocks) = (self.frames.len(), self.blocks.len());
        let mut text = f.debug_struct("OwnedStorage");
        text.field("frames", &frames).field("blocks", &blocks).finish_non_exhaustive()
    }
}
