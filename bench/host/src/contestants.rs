//! The contestants. Each allocates blocks of 2^order pages. The project's own use their defaults,
//! the others the configuration of their crates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use pageyard::policy::{Linux612, Packed, Policy, StaticPolicy};
use pageyard::{Gfp, Order};
use pageyard_bench::contestants::{BuddySlab, BuddySystem, Contestant, FrameCore, FrameDepot};
use pageyard_host::{Block, Builder, HostLock, HostYard, ThreadCache, cpu};

use crate::frames::{Bitmap, Frames};
use crate::pages::Pages;

/// Bytes of each yard.
const SIZE: u64 = 1 << 30;

/// A yard of this project, on the engine of the policy.
pub struct Yard<P: Policy + 'static>(&'static HostYard<P>);

impl<P: StaticPolicy + Send + Sync> Yard<P> {
    pub fn new(front: ThreadCache) -> Yard<P> {
        let yard = Builder::new(SIZE).thread_cache(front).build_with().expect("memory is left");
        Yard(Box::leak(Box::new(yard)))
    }
}

impl<P: StaticPolicy + Send + Sync> Pages for Yard<P> {
    type Block = Block<'static, P>;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Block<'static, P> {
        let order = Order::new(ORDER).expect("an order");
        self.0.alloc(order, Gfp::HIGHUSER_MOVABLE).expect("memory is left")
    }

    #[inline(always)]
    fn start(block: &Block<'static, P>) -> NonNull<u8> {
        block.as_ptr()
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Block<'static, P>) {
        drop(block);
    }

    fn shared_locks(&self) -> Option<u64> {
        let zones: Vec<_> = self.0.zones().collect();
        let mut sum = 0;
        for zone in zones {
            for &cpu in self.0.cpus() {
                let stats = self.0.cpu_stats(zone, pageyard::CpuId(cpu))?;
                sum += stats.refills + stats.empty_refills + stats.drains.iter().sum::<u64>();
                sum += stats.direct_allocs + stats.direct_frees;
            }
        }
        Some(sum)
    }
}

/// Any allocator with Rust's allocator interface.
pub struct Heap<A>(pub A);

const fn layout(order: u8) -> Layout {
    match Layout::from_size_align(4096 << order, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("no such layout"),
    }
}

impl<A: GlobalAlloc + Sync + 'static> Pages for Heap<A> {
    type Block = Owned;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Owned {
        // SAFETY: the size is not 0.
        Owned(NonNull::new(unsafe { self.0.alloc(layout(ORDER)) }).expect("there is memory"))
    }

    #[inline(always)]
    fn start(block: &Owned) -> NonNull<u8> {
        block.0
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Owned) {
        // SAFETY: the block was allocated here, with this layout.
        unsafe { self.0.dealloc(block.0.as_ptr(), layout(ORDER)) };
    }
}

/// A block by its address, freed by its owner.
pub struct Owned(NonNull<u8>);

// SAFETY: the memory has one owner.
unsafe impl Send for Owned {}

/// The system: one mapping per block.
pub struct Mappings;

impl Pages for Mappings {
    type Block = Owned;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Owned {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: requests a new mapping.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), 4096 << ORDER, access, how, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "there is memory");
        Owned(NonNull::new(start.cast()).expect("an address"))
    }

    #[inline(always)]
    fn start(block: &Owned) -> NonNull<u8> {
        block.0
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Owned) {
        // SAFETY: the block is a mapping of this size.
        unsafe { libc::munmap(block.0.as_ptr().cast(), 4096 << ORDER) };
    }
}

/// The minimum cost of per-CPU lists: an array of the running CPU, behind a lock that is only
/// tried. For pairs only.
pub struct Floor(Vec<Padded>);

#[repr(align(128))]
struct Padded(lock_api::Mutex<HostLock, Vec<Owned>>);

impl Floor {
    pub fn new() -> Floor {
        let one = |_| {
            let full = [(); 8].map(|()| Heap(System).take::<9>());
            Padded(lock_api::Mutex::new(Vec::from(full)))
        };
        Floor((0..1024).map(one).collect())
    }
}

impl Pages for Floor {
    type Block = Owned;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Owned {
        let list = self.0[cpu::current() as usize & 1023].0.try_lock();
        list.and_then(|mut list| list.pop()).unwrap_or_else(|| Heap(System).take::<9>())
    }

    #[inline(always)]
    fn start(block: &Owned) -> NonNull<u8> {
        block.0
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Owned) {
        match self.0[cpu::current() as usize & 1023].0.try_lock() {
            Some(mut list) if list.len() < list.capacity() => list.push(block),
            _ => Heap(System).give::<9>(block),
        }
    }
}

/// What a buffer pool does by itself: a list of its free frames of 16 KiB under a mutex. It knows one
/// size, and returns nothing to the system.
pub struct FreeList(Mutex<Vec<Owned>>);

impl FreeList {
    const FRAMES: usize = 1 << 15;

    pub fn new() -> FreeList {
        FreeList(Mutex::new((0..Self::FRAMES).map(|_| Heap(System).take::<2>()).collect()))
    }
}

impl Pages for FreeList {
    type Block = Owned;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Owned {
        self.0.lock().expect("no panic").pop().expect("a free frame")
    }

    #[inline(always)]
    fn start(block: &Owned) -> NonNull<u8> {
        block.0
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Owned) {
        self.0.lock().expect("no panic").push(block);
    }
}

/// Code that works with any contestant.
pub trait Visitor {
    fn visit<P: Pages>(self, pages: &'static P, peer: bool);
}

/// The names of all contestants: the project's own first, page-frame allocators last.
pub const NAMES: [&str; 16] = [
    "pageyard",
    "pageyard-bare",
    "linux612",
    "linux612-bare",
    "list-floor",
    "mutex-list",
    "glibc",
    "jemalloc",
    "mimalloc",
    "snmalloc",
    "mmap",
    FrameDepot::NAME,
    FrameCore::NAME,
    BuddySlab::NAME,
    BuddySystem::NAME,
    Bitmap::NAME,
];

/// The contestants that return frame numbers, for kernels.
const FRAMES: [&str; 5] =
    [FrameDepot::NAME, FrameCore::NAME, BuddySlab::NAME, BuddySystem::NAME, Bitmap::NAME];

/// Whether this is a peer that programs can use.
pub fn is_peer(name: &str) -> bool {
    let ours = ["pageyard", "pageyard-bare", "linux612", "linux612-bare", "list-floor"];
    !ours.contains(&name) && !is_of_frames(name)
}

/// Whether the contestant returns frame numbers.
pub fn is_of_frames(name: &str) -> bool {
    FRAMES.contains(&name)
}

/// The patterns that a contestant supports.
pub fn does(name: &str) -> fn(&str) -> bool {
    match name {
        "list-floor" => |pattern| ["pair-4k", "pair-4k-2t"].contains(&pattern),
        "mutex-list" => |pattern| pattern.contains("16k"),
        // Patterns that do not write to memory.
        _ if is_of_frames(name) => |pattern| {
            let writes = ["kept", "pair-4k-touch", "fault1", "fault1-2t", "held-2m"];
            !writes.contains(&pattern)
        },
        _ => |_| true,
    }
}

/// Creates a contestant and visits it. Returns `None` if the name is unknown.
pub fn with(name: &str, visitor: impl Visitor) -> Option<()> {
    fn keep<T>(made: T) -> &'static T {
        Box::leak(Box::new(made))
    }
    let peer = is_peer(name);
    match name {
        "pageyard" => visitor.visit(keep(Yard::<Packed>::new(ThreadCache::Auto)), peer),
        "pageyard-bare" => visitor.visit(keep(Yard::<Packed>::new(ThreadCache::Off)), peer),
        "linux612" => visitor.visit(keep(Yard::<Linux612>::new(ThreadCache::Auto)), peer),
        "linux612-bare" => visitor.visit(keep(Yard::<Linux612>::new(ThreadCache::Off)), peer),
        "list-floor" => visitor.visit(keep(Floor::new()), peer),
        "mutex-list" => visitor.visit(keep(FreeList::new()), peer),
        "glibc" => visitor.visit(&Heap(System), peer),
        "jemalloc" => visitor.visit(&Heap(tikv_jemallocator::Jemalloc), peer),
        "mimalloc" => visitor.visit(&Heap(mimalloc::MiMalloc), peer),
        "snmalloc" => visitor.visit(&Heap(snmalloc_rs::SnMalloc), peer),
        "mmap" => visitor.visit(&Mappings, peer),
        FrameDepot::NAME => visitor.visit(keep(Frames(FrameDepot::new())), peer),
        FrameCore::NAME => visitor.visit(keep(Frames(FrameCore::new())), peer),
        BuddySlab::NAME => visitor.visit(keep(Frames(BuddySlab::new())), peer),
        BuddySystem::NAME => visitor.visit(keep(Frames(BuddySystem::new())), peer),
        Bitmap::NAME => visitor.visit(keep(Frames(Bitmap::new())), peer),
        _ => return None,
    }
    Some(())
}
