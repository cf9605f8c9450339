//! The allocators under comparison. Each manages [`FRAMES`] frames for [`CPUS`] CPUs, configured as
//! its documentation recommends. Allocators that keep records in the managed memory get a reserved
//! address range for them; no other page is touched.

// The peers' APIs are unsafe; this crate is not part of the library.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ptr::{NonNull, with_exposed_provenance_mut};

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_slab_allocator::BuddyAllocator;
use buddy_system_allocator::LockedFrameAllocator;
use frame_alloc::{
    CpuId as FrameCpu, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};
use pageyard::policy::{self, Linux612, StaticPolicy};
use pageyard::{
    CpuId, Defences, Gfp, Hooked, Hooks, Knobs, Layout as Memory, NodeId, Observer, Order,
    OwnedStorage, Pfn, Platform, Reclaim, Yard, ZoneKind, ZoneSpec,
};
use spin::mutex::SpinMutex;

/// Number of frames that each contestant manages: 1 GiB.
pub const FRAMES: usize = 1 << 18;
/// Number of CPUs that each contestant serves.
pub const CPUS: usize = 2;

pub(crate) const PAGE: usize = pageyard::PAGE_SIZE as usize;
/// Orders 0 to 10, as in Linux.
const ORDERS: usize = 11;
const BIGGEST: usize = PAGE << (ORDERS - 1);

/// An allocator of blocks of 2^order frames. Each allocator chooses how to encode a block as a
/// number. The patterns pass orders as constants, as most callers do.
pub trait Contestant: Sync + Sized {
    /// Name in tables.
    const NAME: &'static str;
    /// Creates the allocator with all frames free.
    fn new() -> Self;
    /// Allocates a block. The patterns never exhaust the memory.
    fn alloc(&self, order: u8) -> usize;
    /// Frees a block that was allocated with this order.
    fn free(&self, block: usize, order: u8);
}

/// Hooks that only report the current CPU.
#[derive(Debug)]
pub struct Machine;

impl Platform for Machine {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(crate::cpu())
    }
}

impl Reclaim for Machine {}
impl Observer for Machine {}
impl Defences for Machine {}

impl FrameCpu for Machine {
    #[inline(always)]
    fn current_cpu() -> usize {
        crate::cpu() as usize
    }
}

type Lock = SpinMutex<()>;

/// Flags of a page fault's request.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;
/// The first frame that pageyard manages.
pub(crate) const FIRST: u64 = 1 << 20;

/// Hooks for pageyard, with a name in tables.
pub trait Embedder: Hooks + Sync + 'static {
    /// Name in tables.
    const NAME: &'static str;
    /// Creates hooks for [`FRAMES`] frames.
    fn new() -> Self;
}

impl Embedder for Machine {
    const NAME: &'static str = "pageyard";

    fn new() -> Self {
        Machine
    }
}

/// Pageyard with one zone, any hooks and any policy.
#[derive(Debug)]
pub struct Ours<E: Embedder, P: StaticPolicy + 'static>(Yard<'static, Hooked<Lock, E, P>>);

/// Pageyard with its default configuration.
pub type Pageyard = Ours<Machine, Linux612>;

impl<E: Embedder, P: StaticPolicy + Sync + 'static> Contestant for Ours<E, P> {
    const NAME: &'static str = E::NAME;

    fn new() -> Self {
        let span = Pfn(FIRST)..Pfn(FIRST + FRAMES as u64);
        let layout = Memory {
            zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
            usable: &[span],
            reserved: &[],
            cpus: &[NodeId(0); CPUS],
            distances: &[],
            knobs: Knobs::default(),
        };
        // Kept until the program ends, as in a kernel.
        let needs = layout.needs_on::<Lock>(P::RULES.engine).expect("the layout is sound");
        let storage = OwnedStorage::for_needs(&needs).expect("memory for the maps").leak();
        Ours(Yard::new(&layout, storage, E::new()).expect("the storage fits"))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        let order = Order::new(order).expect("an order");
        self.0.alloc(order, GFP).expect("free memory").0 as usize
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        let order = Order::new(order).expect("an order");
        self.0.free(Pfn(block as u64), order).expect("an allocated block");
    }
}

/// The packed engine with zones, watermarks and hooks: a yard under the policy `Packed`.
#[derive(Debug)]
pub struct PackedYard(Ours<Machine, policy::Packed>);

impl Contestant for PackedYard {
    const NAME: &'static str = "packed-yard";

    fn new() -> Self {
        PackedYard(Ours::new())
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.alloc(order)
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.free(block, order);
    }
}

/// Pageyard with order and flags hidden from the compiler.
#[derive(Debug)]
pub struct PageyardOpaque(Pageyard);

impl Contestant for PageyardOpaque {
    const NAME: &'static str = "pageyard-opaque";

    fn new() -> Self {
        PageyardOpaque(Ours::new())
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        let order = black_box(Order::new(order).expect("an order"));
        let gfp = black_box(GFP);
        self.0.0.alloc(order, gfp).expect("free memory").0 as usize
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        let order = black_box(Order::new(order).expect("an order"));
        self.0.0.free(Pfn(block as u64), order).expect("an allocated block");
    }
}

/// Pageyard with `free_owned`, for types that own their block, so that no two CPUs free it
/// concurrently.
#[derive(Debug)]
pub struct PageyardOwned(Pageyard);

impl Contestant for PageyardOwned {
    const NAME: &'static str = "pageyard-owned";

    fn new() -> Self {
        PageyardOwned(Ours::new())
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.alloc(order)
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        let order = Order::new(order).expect("an order");
        self.0.0.free_owned(Pfn(block as u64), order).expect("an allocated block");
    }
}

/// The floor: a stack of blocks per order under one spin lock. It never splits or merges. No shared
/// allocator without per-CPU parts does less work.
#[derive(Debug)]
pub struct Floor(SpinMutex<[Vec<usize>; ORDERS]>);

impl Contestant for Floor {
    const NAME: &'static str = "floor";

    fn new() -> Self {
        Floor(SpinMutex::new(std::array::from_fn(|order| match order {
            0 => (0..FRAMES / 2).rev().collect(),
            3 | 9 => (FRAMES / 2..FRAMES * 3 / 4).step_by(1 << order).rev().collect(),
            _ => Vec::new(),
        })))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.lock()[usize::from(order)].pop().expect("free memory")
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.lock()[usize::from(order)].push(block);
    }
}

/// Address space for a peer that keeps its records in the managed memory.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the struct is only an address and a size.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn new(bytes: usize) -> Region {
        let layout = Layout::from_size_align(bytes, BIGGEST).expect("a sound layout");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Region { start, layout }
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the peer that uses it is dropped as well.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Identity-mapped memory.
#[derive(Debug)]
pub struct Identity;

// SAFETY: the region is one live allocation whose provenance was exposed.
unsafe impl Provenance for Identity {
    #[inline(always)]
    unsafe fn create(phys: usize) -> NonNull<u8> {
        NonNull::new(with_exposed_provenance_mut(phys)).expect("not null")
    }

    #[inline(always)]
    unsafe fn destroy<T>(ptr: NonNull<T>) -> usize {
        ptr.addr().get()
    }
}

const BASE: PageSize = PageSize::from_log2(PAGE.ilog2() as u8);
type Core = SummaryBuddyAllocator<ORDERS, Identity>;
type Depot = DepotAllocator<Core, Machine, CPUS>;

/// A peer together with its region.
struct Placed<A> {
    peer: A,
    _region: Region,
}

impl<A: PhysicalAllocator + RegionInit> Placed<A> {
    fn new(peer: A) -> Self {
        let region = Region::new(FRAMES * PAGE);
        // SAFETY: the peer owns the region, which lives as long and is mapped as `Identity` says.
        unsafe { peer.init_region(region.address(), FRAMES * PAGE) };
        Placed { peer, _region: region }
    }

    /// Retries failures while memory is left, as the peer's documentation requires.
    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        loop {
            if let Ok(block) = self.peer.allocate_physical(BASE, frames(order)) {
                return block;
            }
        }
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        // SAFETY: the patterns free each allocated block once, with the same order.
        unsafe { self.peer.deallocate_physical(BASE, frames(order), block) };
    }
}

#[inline(always)]
const fn frames(order: u8) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_add((1 << order) - 1)
}

/// `frame-alloc`: per-CPU magazines and a shared depot on top of its core.
pub struct FrameDepot(Placed<Depot>);

/// `frame-alloc`: its core, a lock-free buddy allocator.
pub struct FrameCore(Placed<Core>);

/// `buddy-slab-allocator`: its page allocator under a spin lock, as in its own wrapper.
pub struct BuddySlab {
    peer: SpinMutex<BuddyAllocator<PAGE>>,
    _region: Region,
}

/// `buddy_system_allocator`: its frame allocator with its own lock.
pub struct BuddySystem(LockedFrameAllocator<ORDERS>);

impl Contestant for FrameDepot {
    const NAME: &'static str = "frame-alloc-depot";

    fn new() -> Self {
        FrameDepot(Placed::new(Depot::new(BASE, Core::new(BASE))))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.alloc(order)
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.free(block, order);
    }
}

impl Contestant for FrameCore {
    const NAME: &'static str = "frame-alloc-core";

    fn new() -> Self {
        FrameCore(Placed::new(Core::new(BASE)))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.alloc(order)
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.free(block, order);
    }
}

impl Contestant for BuddySlab {
    const NAME: &'static str = "buddy-slab-allocator";

    fn new() -> Self {
        let region = Region::new(FRAMES * PAGE);
        let mut peer = BuddyAllocator::new();
        // SAFETY: the peer owns the region, which lives as long as the peer.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(region.start.as_ptr(), FRAMES * PAGE);
            peer.init(bytes).expect("the region is sound");
        }
        BuddySlab { peer: SpinMutex::new(peer), _region: region }
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.peer.lock().alloc_pages(1 << order, PAGE).expect("free memory")
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.peer.lock().dealloc_pages(block, 1 << order);
    }
}

impl Contestant for BuddySystem {
    const NAME: &'static str = "buddy_system_allocator";

    fn new() -> Self {
        let peer = LockedFrameAllocator::new();
        peer.lock().add_frame(BIGGEST / PAGE, BIGGEST / PAGE + FRAMES);
        BuddySystem(peer)
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.lock().alloc(1 << order).expect("free memory")
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.lock().dealloc(block, 1 << order);
    }
}

/// `bitmap-allocator`: a tree of bitmaps under a spin lock. It does not know the sizes of blocks.
pub struct Bitmap(SpinMutex<Box<BitAlloc1M>>);

impl Contestant for Bitmap {
    const NAME: &'static str = "bitmap-allocator";

    fn new() -> Self {
        let mut peer = Box::new(BitAlloc1M::DEFAULT);
        peer.insert(0..FRAMES);
        Bitmap(SpinMutex::new(peer))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        let mut peer = self.0.lock();
        let block = match order {
            0 => peer.alloc(),
            _ => peer.alloc_contiguous(None, 1 << order, order.into()),
        };
        block.expect("free memory")
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        let mut peer = self.0.lock();
        let freed = match order {
            0 => peer.dealloc(block),
            _ => peer.dealloc_contiguous(block, 1 << order),
        };
        assert!(freed, "an allocated block");
    }
}

/// A generic operation on each contestant type.
pub trait Visitor {
    /// Visits one contestant.
    fn visit<A: Contestant + 'static>(&mut self);
}
