//! Every allocation of this program is a request to one yard, which is full and fragmented. It
//! calls shrinkers and relocators, which call back, and compaction moves the movable blocks.
//! Holding a yard lock while it allocates, frees or calls out ends this program: debug builds abort
//! and name the lock (`held.rs`); in release builds it is a deadlock, and the watchdog names the
//! step.
//!
//! A program of its own: its global allocator is the yard.

#![allow(unsafe_code)] // a global allocator, and a relocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pageyard::{Gfp, Order, PAGE_SIZE, ReclaimJob, Relocation};
use pageyard_host::{
    Block, Builder, HostYard, HugePages, Limits, Movable, Moving, PageAlloc, Registration,
    Relocator, Shrinker, SystemFiles, ThreadCache, Worker, report_locks,
};

static PAGES: PageAlloc<System> = PageAlloc::new(System);

/// Whether allocations go to the yard.
static ARMED: AtomicBool = AtomicBool::new(false);

/// Rounds every request up to two pages, so that one that the yard cannot serve compacts.
struct Everything;

fn rounded(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(2 * PAGE_SIZE as usize), layout.align()).unwrap()
}

// SAFETY: blocks from `PAGES` are freed there with the layout that allocated them. All other blocks
// are the system's, which ignores the size.
unsafe impl GlobalAlloc for Everything {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        match ARMED.load(Relaxed) {
            // SAFETY: the caller's contract, for a layout that is no smaller.
            true => unsafe { PAGES.alloc(rounded(layout)) },
            // SAFETY: the caller's contract.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // Not to the system directly, because debug builds check held locks at a free as well.
        // SAFETY: see the implementation.
        unsafe { PAGES.dealloc(start, rounded(layout)) }
    }
}

#[global_allocator]
static EVERYTHING: Everything = Everything;

/// The current step, for the watchdog's message.
static STEP: Mutex<&str> = Mutex::new("start");

fn step(name: &'static str, body: impl FnOnce()) {
    *STEP.lock().unwrap() = name;
    ARMED.store(true, Relaxed);
    body();
    ARMED.store(false, Relaxed);
}

/// Ends the steps, even if one panics.
struct End<'d>(&'d AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        ARMED.store(false, Relaxed);
        self.0.store(true, Relaxed);
    }
}

/// Ends the process if a step hangs.
fn watch(done: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !done.load(Relaxed) {
        if Instant::now() > end {
            // Not a macro, because libtest captures its output.
            let step = STEP.try_lock().map_or("?", |step| *step);
            let text = [b"deadlock in step: ", step.as_bytes(), b"\n"];
            let _ = text.iter().try_for_each(|t| std::io::stderr().write_all(t));
            report_locks();
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static DEEPEST: AtomicU64 = AtomicU64::new(0);

/// The body of each callback: it allocates, and sometimes calls every public method that takes a
/// lock of the yard's upkeep.
fn call_back(yard: &'static HostYard) {
    DEEPEST.fetch_max(DEPTH.get().into(), Relaxed);
    std::hint::black_box(vec![1u8; 100]);
    if !CALLS.fetch_add(1, Relaxed).is_multiple_of(16) || DEPTH.get() > 2 {
        return;
    }
    DEPTH.set(DEPTH.get() + 1);
    std::hint::black_box(format!("{:?} {:?}", yard.status(), yard.limits()));
    drop(yard.register_shrinker(|_: &ReclaimJob| 0));
    drop(yard.on_pressure(|_| ()));
    drop(yard.alloc_movable(Order::ZERO, Gfp::NOWAIT));
    let _ = yard.set_limits(yard.limits());
    DEPTH.set(DEPTH.get() - 1);
}

struct Busybody(&'static HostYard);

impl Shrinker for Busybody {
    fn count(&self) -> u64 {
        call_back(self.0);
        1
    }

    fn shrink(&self, _: &ReclaimJob) -> u64 {
        call_back(self.0);
        0
    }
}

// SAFETY: it owns nothing.
unsafe impl Relocator for Busybody {
    fn relocate(&self, _: &Moving) -> Relocation {
        call_back(self.0);
        Relocation::Refused
    }
}

const QUIET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

/// Movable blocks at the start.
const MOVABLE: usize = 4000;

/// Allocates everything, the first part as movable blocks, then frees every other page. Few free
/// pages are adjacent, pageblocks are half used, and a request for two pages compacts.
fn fill(
    yard: &'static HostYard,
    blocks: &mut Vec<Block<'static>>,
    movable: &mut Vec<Movable<'static>>,
) {
    let gfp = QUIET.union(Gfp::MEMALLOC);
    movable.extend((0..2 * MOVABLE).map(|_| yard.alloc_movable(Order::ZERO, gfp).unwrap()));
    while let Ok(block) = yard.alloc(Order::ZERO, gfp) {
        blocks.push(block);
    }
    blocks.sort_unstable_by_key(Block::pfn);
    let mut n = 0;
    let mut every_other = || {
        n += 1;
        n % 2 == 0
    };
    blocks.retain(|_| every_other());
    movable.retain(|_| every_other());
    yard.drain();
}

/// Calls that allocate, register or take a lock of the upkeep, each as an armed step.
fn steps(
    yard: &'static HostYard,
    movable: &mut Vec<Movable<'static>>,
    kept: &mut Vec<Registration>,
    worker: &mut Worker<'static>,
) {
    step("movable blocks come", || {
        (0..100).for_each(|_| movable.extend(yard.alloc_movable(Order::ZERO, QUIET)));
    });
    step("allocate", || (0..20u8).for_each(|n| _ = std::hint::black_box(vec![n; 5000])));
    step("register shrinkers", || {
        // Closures with data to free.
        let register = |value: Box<u64>| yard.register_shrinker(move |_: &ReclaimJob| *value);
        (0..20).for_each(|_| kept.push(register(Box::new(0))));
    });
    step("register listeners", || {
        (0..20).for_each(|_| kept.push(yard.on_pressure(|_| ())));
    });
    step("end the registrations", || kept.clear());
    step("compact", || yard.compact());
    step("the worker's step", || _ = worker.step());
    step("statistics", || {
        std::hint::black_box((yard.stats(), yard.status(), yard.zoneinfo(), yard.vmstat()));
    });
    step("movable blocks go", || movable.truncate(MOVABLE));
}

/// A single test, because the allocator is process-wide.
#[test]
fn nothing_allocates_or_calls_out_under_a_lock() {
    let builder = Builder::new(64 << 20)
        .huge_pages(HugePages::Never)
        .thread_cache(ThreadCache::Off)
        .system(SystemFiles::none())
        .tick(None);
    let yard: &'static HostYard = Box::leak(Box::new(builder.build().unwrap()));
    PAGES.install(yard).unwrap();
    let done = AtomicBool::new(false);
    let (mut blocks, mut movable) = (Vec::with_capacity(20_000), Vec::with_capacity(20_000));
    let mut kept = Vec::with_capacity(1000);
    let mut worker = yard.worker().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| watch(&done));
        let _end = End(&done);
        fill(yard, &mut blocks, &mut movable);
        steps(yard, &mut movable, &mut kept, &mut worker);
        assert!(yard.status().moved > 0, "compaction moved no block");
        step("register a shrinker and a relocator that call back", || {
            yard.register_shrinker(Busybody(yard)).keep();
            yard.register_relocator(Busybody(yard)).keep();
        });
        steps(yard, &mut movable, &mut kept, &mut worker);
        step("lower the limit", || {
            // Hold back everything that is free, so that the yard is full.
            let used = yard.status().used;
            for hard in (used..1 << 14).rev().step_by(512).chain([used]) {
                let _ = yard.set_limits(Limits { hard: Some(hard), soft: None });
            }
        });
        CALLS.store(0, Relaxed);
        steps(yard, &mut movable, &mut kept, &mut worker);
        assert!(CALLS.swap(0, Relaxed) > 100, "no request reached the callbacks");
        step("no limit", || _ = yard.set_limits(Limits::default()));
    });
    drop((blocks, movable));
    yard.validate().unwrap();
    assert_eq!(DEEPEST.load(Relaxed), 0, "a callback's own requests call no other callback");
}
