//! A yard as the global allocator of this program, with threads and forks.
//!
//! A program of its own: its global allocator is the yard.

#![allow(unsafe_code)] // a fork

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use pageyard::{Gfp, Order, ReclaimJob, Relocation};
use pageyard_host::{
    Block, Builder, HostYard, InYard, Moving, PageAlloc, Relocator, Shrinker, ThreadCache,
};

#[global_allocator]
static PAGES: PageAlloc<System> = PageAlloc::new(System);

fn yard() -> &'static HostYard {
    static YARD: OnceLock<&'static HostYard> = OnceLock::new();
    YARD.get_or_init(|| {
        let yard = Builder::new(256 << 20).build().unwrap();
        let yard = Box::leak(Box::new(yard));
        PAGES.install(yard).unwrap();
        yard
    })
}

/// Vectors of all sizes that grow, are filled, copied and checked.
fn work(seed: u64) -> u64 {
    let mut sum = 0;
    for n in 0..200 {
        let len = (seed * 7919 + n * 104_729) as usize % 300_000;
        let mut all: Vec<u32> = Vec::new();
        (0..len as u32).for_each(|i| all.push(i));
        let copy = all.clone();
        all.shrink_to_fit();
        assert!(all.iter().zip(0..).all(|(&a, b)| a == b) && all == copy);
        let zeros = vec![0u8; len];
        assert!(zeros.iter().all(|&b| b == 0));
        sum += u64::from(PAGES.is_of_yard(copy.as_ptr().cast()));
    }
    sum
}

#[test]
fn a_program_runs_on_the_global_allocator() {
    let before = vec![1u8; 1 << 20];
    let yard = yard();
    let held: u64 = std::thread::scope(|s| {
        let threads: Vec<_> = (1..=4).map(|n| s.spawn(move || work(n))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!(held > 600, "{held} of 800 vectors are in the yard");
    assert!(yard.thread_cache_stats().hits > 0);
    // Blocks of the fallback are freed to the fallback.
    assert!(before.iter().all(|&b| b == 1));
    drop(before);
    // More memory than the yard has.
    let all: Vec<Vec<u8>> = (0..400).map(|_| vec![1u8; 1 << 20]).collect();
    assert!(all.iter().any(|v| !PAGES.is_of_yard(v.as_ptr())));
    assert!(PAGES.install(yard).is_err());
}

#[test]
fn a_child_continues_without_the_yard() {
    let yard = yard();
    let copied = vec![7u8; 1 << 20];
    // SAFETY: the child allocates, which the yard leaves to the system after a fork, and exits.
    match unsafe { libc::fork() } {
        0 => {
            let own = vec![8u8; 100_000];
            let well = !PAGES.is_of_yard(own.as_ptr()) && copied.iter().all(|&b| b == 7);
            drop((own, copied));
            // SAFETY: takes a number.
            unsafe { libc::_exit(if well { 0 } else { 1 }) }
        }
        child => {
            let mut status = 1;
            // SAFETY: the pointer is to a local number.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert!(yard.thread_cache_stats().on);
}

#[test]
fn collections_can_use_their_own_yard() {
    let own = Builder::new(32 << 20).thread_cache(ThreadCache::Off).tick(None).build().unwrap();
    let mut rows = allocator_api2::vec::Vec::new_in(InYard::new(&own, Global));
    for n in 0..100_000u64 {
        rows.push(n);
    }
    assert!(own.holds(rows.as_ptr().cast()));
    assert!(rows.iter().zip(0..).all(|(&a, b)| a == b));
    rows.truncate(10);
    rows.shrink_to_fit();
    assert!(!own.holds(rows.as_ptr().cast()));
    drop(rows);
    let zone = own.zones().next().unwrap();
    let info = own.zone_info(zone).unwrap();
    assert_eq!(info.free_exact + info.cached, info.managed);
}

/// A fallback that serves parts of one of the yard's blocks.
struct Arena {
    next: AtomicPtr<u8>,
    given_back: AtomicUsize,
}

impl Arena {
    fn of(block: Block<'static>) -> Arena {
        let next = AtomicPtr::new(block.as_ptr().as_ptr());
        std::mem::forget(block);
        Arena { next, given_back: AtomicUsize::new(0) }
    }
}

// SAFETY: each call returns separate, page-aligned bytes of a block that is never freed; the tests
// request less than it has.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = layout.size().next_multiple_of(4096);
        let start = self.next.load(Relaxed);
        self.next.store(start.wrapping_add(bytes), Relaxed);
        start
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
        self.given_back.fetch_add(1, Relaxed);
    }
}

// SAFETY: as above.
unsafe impl Allocator for &Arena {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: no layout of the tests is empty.
        let start = NonNull::new(unsafe { GlobalAlloc::alloc(*self, layout) }).ok_or(AllocError)?;
        // Whole pages: more than requested.
        Ok(NonNull::slice_from_raw_parts(start, layout.size().next_multiple_of(4096)))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { GlobalAlloc::dealloc(*self, start.as_ptr(), layout) }
    }
}

/// If the fallback's memory were freed to the yard as a block, one page would have two owners.
#[test]
fn yard_pages_are_never_freed_to_the_fallback() {
    let own = Builder::new(16 << 20).tick(None).build().unwrap();
    let own: &'static HostYard = Box::leak(Box::new(own));
    let arena = || Arena::of(own.alloc(Order::new(6).unwrap(), Gfp::KERNEL).unwrap());
    let (pages, other) = (PageAlloc::new(arena()), arena());
    pages.install(own).unwrap();
    let in_yard = InYard::new(own, &other);
    let full: Vec<_> =
        std::iter::from_fn(|| own.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok()).collect();
    let small = Layout::from_size_align(100, 8).unwrap();
    // SAFETY: no layout is empty, and blocks are freed with the layout that allocated them.
    unsafe {
        for bytes in [4096, 5000, 4 << 12] {
            let layout = Layout::from_size_align(bytes, 8).unwrap();
            assert!(pages.alloc(layout).is_null(), "{bytes}");
            assert!(pages.alloc_zeroed(layout).is_null(), "{bytes}");
            assert!(in_yard.allocate(layout).is_err(), "{bytes}");
        }
        assert_eq!(other.given_back.load(Relaxed), 3, "the fallback got its blocks back");
        // Requests below a page or above the largest block use the fallback, wherever its memory
        // lies.
        for layout in [small, Layout::from_size_align((4 << 20) + 1, 8).unwrap()] {
            let start = pages.alloc(layout);
            assert!(pages.is_of_yard(start));
            pages.dealloc(start, layout);
            let block = in_yard.allocate(layout).unwrap();
            assert_eq!(block.len(), layout.size(), "a larger slice could be freed as a page");
            in_yard.deallocate(block.cast(), layout);
        }
        assert_eq!(other.given_back.load(Relaxed), 5);
        let start = pages.alloc(small);
        assert!(pages.realloc(start, small, 5000).is_null(), "the block stays in the fallback");
        pages.dealloc(start, small);
    }
    drop(full);
    own.drain();
    own.validate().unwrap();
}

/// Callbacks that panic when the yard calls them for an allocation.
struct Panics;

impl Shrinker for Panics {
    fn count(&self) -> u64 {
        panic!("a shrinker's count")
    }

    fn shrink(&self, _: &ReclaimJob) -> u64 {
        panic!("a shrinker")
    }
}

// SAFETY: it moves no block.
unsafe impl Relocator for Panics {
    fn relocate(&self, _: &Moving) -> Relocation {
        panic!("a relocator")
    }
}

#[test]
fn callbacks_that_panic_do_not_unwind_out_of_an_allocation() {
    let own = Builder::new(16 << 20).tick(None).build().unwrap();
    let own: &'static HostYard = Box::leak(Box::new(own));
    let pages = PageAlloc::new(System);
    pages.install(own).unwrap();
    own.register_shrinker(Panics).keep();
    let asked: &'static AtomicUsize = Box::leak(Box::default());
    let shrinker = |_: &ReclaimJob| {
        asked.fetch_add(1, Relaxed);
        panic!("a closure")
    };
    own.register_shrinker(shrinker).keep();
    own.register_relocator(Panics).keep();
    // Movable single pages, so that a larger request tries compaction.
    let take = || own.alloc(Order::ZERO, Gfp::MOVABLE | Gfp::NOWAIT).ok();
    let mut held: Vec<_> = std::iter::from_fn(take).collect();
    for block in &held {
        // SAFETY: the relocator owns the blocks, and refuses to move them.
        unsafe { own.core() }.set_movable(block.pfn(), Order::ZERO, true).unwrap();
    }
    let mut n = 0;
    held.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    own.drain();
    let layout = Layout::from_size_align(2 << 20, 8).unwrap();
    // SAFETY: the layout is not empty, and blocks are freed with the layout that allocated them.
    unsafe {
        for start in [pages.alloc(layout), pages.alloc_zeroed(layout)] {
            assert!(!start.is_null() && !pages.is_of_yard(start));
            pages.dealloc(start, layout);
        }
    }
    assert!(asked.load(Relaxed) > 0, "the request called the shrinkers");
    // The thread is no reclaimer any more, so it may not use the reserves.
    held.extend(std::iter::from_fn(take));
    assert!(own.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).is_err());
    drop(held);
    own.drain();
    own.validate().unwrap();
}
