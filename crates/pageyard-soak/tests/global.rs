//! A yard as the allocator of the soak itself, with the owner of each of its pages recorded, while
//! its pressure changes, and threads tick and drain it.
//!
//! A program of its own: its global allocator is the yard.

#![allow(unsafe_code)] // an allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use pageyard::{Gfp, Order, PAGE_SIZE};
use pageyard_host::{Block, Builder, HostYard, PageAlloc, Region, ThreadCache};
use pageyard_soak::{Plan, soak};

const SIZE: u64 = 64 << 20;
const PAGES: usize = (SIZE / PAGE_SIZE) as usize;
const GFP: Gfp = Gfp::NOWAIT.union(Gfp::NOWARN);

/// The allocator, with a shadow map of the yard's pages: 0, or the number of the request that owns
/// it.
struct Watched {
    pages: PageAlloc<System>,
    owners: [AtomicU64; PAGES],
    requests: AtomicU64,
    /// The address of the first page.
    base: AtomicUsize,
    /// The last page with a wrong owner in the map, and how often that occurred.
    wrong: [AtomicU64; 2],
}

#[global_allocator]
static HEAP: Watched = Watched {
    pages: PageAlloc::new(System),
    owners: [const { AtomicU64::new(0) }; PAGES],
    requests: AtomicU64::new(1),
    base: AtomicUsize::new(0),
    wrong: [const { AtomicU64::new(0) }; 2],
};

impl Watched {
    fn pages(&self, start: *mut u8, bytes: usize) -> &[AtomicU64] {
        if start.is_null() || !self.pages.is_of_yard(start) {
            return &[];
        }
        let first = (start.addr() - self.base.load(Relaxed)) / PAGE_SIZE as usize;
        let pages = bytes.div_ceil(PAGE_SIZE as usize).next_power_of_two();
        &self.owners[first..first + pages]
    }

    fn note(&self, page: &AtomicU64) {
        let at = std::ptr::from_ref(page).addr() - self.owners.as_ptr().addr();
        self.wrong[0].store((at / size_of::<AtomicU64>()) as u64, Relaxed);
        self.wrong[1].fetch_add(1, Relaxed);
    }

    fn take(&self, start: *mut u8, bytes: usize) {
        let pages = self.pages(start, bytes);
        let request = self.requests.fetch_add(u64::from(!pages.is_empty()), Relaxed);
        pages.iter().filter(|p| p.swap(request, Relaxed) != 0).for_each(|p| self.note(p));
    }

    fn give(&self, start: *mut u8, bytes: usize) {
        let pages = self.pages(start, bytes);
        let Some(first) = pages.first().map(|p| p.load(Relaxed)) else { return };
        let wrong = |p: &&AtomicU64| first == 0 || p.swap(0, Relaxed) != first;
        pages.iter().filter(wrong).for_each(|p| self.note(p));
    }
}

fn bytes(layout: Layout) -> usize {
    layout.size().max(layout.align())
}

// SAFETY: every call is forwarded to the inner allocator, which keeps the contract.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let start = unsafe { self.pages.alloc(layout) };
        self.take(start, bytes(layout));
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let start = unsafe { self.pages.alloc_zeroed(layout) };
        self.take(start, bytes(layout));
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.give(start, bytes(layout));
        // SAFETY: the caller's contract.
        unsafe { self.pages.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.give(start, bytes(layout));
        // SAFETY: the caller's contract.
        let new = unsafe { self.pages.realloc(start, layout, size) };
        match new.is_null() {
            true => self.take(start, bytes(layout)),
            false => self.take(new, size.max(layout.align())),
        }
        new
    }
}

fn install() -> &'static HostYard {
    let front = ThreadCache::Blocks { pages: 126, larger: 20, huge: 0 };
    let yard = Builder::new(SIZE).thread_cache(front).tick(None).build().unwrap();
    let yard: &'static HostYard = Box::leak(Box::new(yard));
    let block = yard.alloc(Order::ZERO, GFP).unwrap();
    let offset = (block.pfn().0 - Region::FIRST.0) * PAGE_SIZE;
    HEAP.base.store(block.as_ptr().addr().get() - offset as usize, Relaxed);
    drop(block);
    HEAP.pages.install(yard).unwrap();
    yard
}

/// Allocates most of the yard, past the global allocator, and frees it.
fn swing(yard: &'static HostYard) {
    let mut all: Vec<Block<'static>> = Vec::with_capacity(PAGES);
    for order in [10, 5, 0].into_iter().filter_map(Order::new) {
        while let Ok(block) = yard.alloc(order, GFP) {
            HEAP.take(block.as_ptr().as_ptr(), block.len());
            all.push(block);
        }
    }
    for block in all {
        HEAP.give(block.as_ptr().as_ptr(), block.len());
        drop(block);
    }
}

/// Number of short phases; set `PAGEYARD_SOAK_PHASES` for more.
fn phases() -> u64 {
    std::env::var("PAGEYARD_SOAK_PHASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

#[test]
fn a_soak_runs_under_the_global_allocator() {
    let yard = install();
    let over = AtomicBool::new(false);
    let repeat = |f: &dyn Fn()| {
        while !over.load(Relaxed) {
            f();
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    let report = std::thread::scope(|s| {
        let helpers = [
            s.spawn(|| repeat(&|| yard.tick())),
            s.spawn(|| repeat(&|| yard.tick())),
            s.spawn(|| repeat(&|| yard.drain())),
            s.spawn(|| repeat(&|| swing(yard))),
        ];
        let plan =
            Plan { size: 64 << 20, phases: phases(), length: 20, seed: 5, ..Plan::new(u64::MAX) };
        let report = soak(&plan, &mut |_| ControlFlow::Continue(()));
        over.store(true, Relaxed);
        // The end of a scope does not wait for frees at thread exit; joining does.
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        report.unwrap()
    });
    assert_eq!(report.found, None);
    let [page, times] = [0, 1].map(|n| HEAP.wrong[n].load(Relaxed));
    assert_eq!(times, 0, "page {page} of the program's allocator has two owners");
    // Everything still allocated belongs to this program and is recorded.
    yard.drain();
    yard.validate().unwrap();
    let owned = HEAP.owners.iter().filter(|p| p.load(Relaxed) != 0).count() as u64;
    assert_eq!(yard.status().used, owned);
    assert!(HEAP.requests.load(Relaxed) > 10_000, "{}", HEAP.requests.load(Relaxed));
    assert!(yard.thread_cache_stats().presses > 0);
    // A page that is allocated while it has an owner is detected.
    let page = vec![0u8; PAGE_SIZE as usize];
    assert!(HEAP.pages.is_of_yard(page.as_ptr()));
    HEAP.take(page.as_ptr().cast_mut(), page.len());
    assert_eq!(HEAP.wrong[1].load(Relaxed), 1);
}
