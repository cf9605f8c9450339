//! A yard is this program's global allocator, and every allocation inside one of the yard's methods
//! calls back into the yard: with plenty of memory, with none, and with single free pages only.
//!
//! If a thread waits for a lock that it holds, debug builds abort and name the lock (`held.rs`); a
//! watchdog catches all other hangs.
//!
//! A program of its own: its global allocator is the yard.

#![allow(unsafe_code)] // an allocator, and a signal handler

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock};

use pageyard::{Gfp, Order, Pfn, ReclaimJob, SECTION_PAGES};
use pageyard_host::{
    Block, Builder, HostYard, Limits, PageAlloc, PressureEvent, SystemFiles, ThreadCache,
    report_locks,
};

/// Seconds that one operation may take on any machine.
const PATIENCE: u32 = 300;

type Yard = &'static HostYard;

/// The yard as an allocator. Each request during an operation of its thread calls back.
struct CallsBack(PageAlloc<System>);

thread_local! {
    static CALLS_BACK: Cell<bool> = const { Cell::new(false) };
}

static YARD: OnceLock<Yard> = OnceLock::new();
static CALLS: AtomicUsize = AtomicUsize::new(0);

fn call_back() {
    if !CALLS_BACK.replace(false) {
        return;
    }
    if let Some(yard) = YARD.get() {
        CALLS.fetch_add(1, Relaxed);
        use_a_little(yard);
    }
    CALLS_BACK.set(true);
}

/// Calls that an allocation may cause, in this thread or through a shrinker. Without reclaim, since
/// each allocation would call hundreds of shrinkers.
fn use_a_little(yard: Yard) {
    for n in [0, 1, 3] {
        drop(yard.alloc(order(n), Gfp::NOWAIT));
    }
    drop(yard.alloc_movable(Order::ZERO, Gfp::NOWAIT));
    yard.thread_cache_stats();
    yard.thread_cache_threads();
    yard.drain();
    yard.limits();
}

// SAFETY: the inner allocator's contract.
unsafe impl GlobalAlloc for CallsBack {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        call_back();
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        call_back();
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(start, layout) }
    }
}

#[global_allocator]
static PAGES: CallsBack = CallsBack(PageAlloc::new(System));

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// The current operation, for the watchdog's message.
static NOW: AtomicPtr<&str> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn hangs(_: libc::c_int) {
    let say = |text: &str| {
        // SAFETY: `text.len()` bytes of a string.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    };
    // SAFETY: the pointer is null or points to a static string.
    let what = unsafe { NOW.load(Relaxed).as_ref() };
    say("hangs: ");
    say(what.copied().unwrap_or("before the first operation"));
    say("\n");
    report_locks();
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

type Operation = (&'static str, fn(Yard));

/// Every method of a yard that takes a lock, allocates or calls a callback.
const OPERATIONS: &[Operation] = &[
    ("a thread's first block", |yard| {
        std::thread::spawn(move || {
            CALLS_BACK.set(true);
            drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
            CALLS_BACK.set(false);
        })
        .join()
        .unwrap();
    }),
    ("thread_cache_threads of 100", |yard| {
        let (begun, end) = (Barrier::new(101), Barrier::new(101));
        std::thread::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
                    begun.wait();
                    end.wait();
                });
            }
            begun.wait();
            CALLS_BACK.set(true);
            assert!(yard.thread_cache_threads().len() >= 100);
            assert!(yard.thread_cache_stats().threads >= 100);
            CALLS_BACK.set(false);
            end.wait();
        });
    }),
    ("alloc", |yard| {
        for n in [0, 3, 9] {
            drop(yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN));
        }
    }),
    ("alloc_on", |yard| {
        drop(yard.alloc_on(pageyard::NodeId(0), Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
    }),
    ("alloc_bulk", |yard| {
        let mut all = Vec::new();
        yard.alloc_bulk(1000, Gfp::KERNEL | Gfp::NOWARN, &mut all).unwrap();
        yard.free_bulk(all);
    }),
    ("alloc_aligned", |yard| {
        for align in [1 << 14, 8 << 20, 1 << 40] {
            drop(yard.alloc_aligned(Order::ZERO, align, Gfp::KERNEL | Gfp::NOWARN));
        }
    }),
    ("alloc_range", |yard| {
        drop(yard.alloc_range(1100, 1, Gfp::KERNEL | Gfp::NOWARN));
    }),
    ("movable blocks", |yard| {
        let take = |_| yard.alloc_movable(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN);
        let mut all: Vec<_> = (0..300).map_while(|n| take(n).ok()).collect();
        all.iter().for_each(|m| m.lock()[0] = 1);
        let mut n = 0;
        all.retain(|_| {
            n += 1;
            n % 3 > 0
        });
        yard.compact();
        drop(yard.alloc(order(9), Gfp::KERNEL | Gfp::NOWARN));
        assert!(all.iter().all(|m| m.lock()[0] == 1));
    }),
    ("shrinkers that use the yard", |yard| {
        let add = |_| {
            yard.register_shrinker(move |_: &ReclaimJob| {
                use_a_little(yard);
                yard.status();
                0
            })
        };
        // Enough that the list of them fills a page, and thus comes from the yard.
        let all: Vec<_> = (0..175).map(add).collect();
        CALLS_BACK.set(false);
        drop(yard.alloc(order(9), Gfp::KERNEL | Gfp::NOWARN | Gfp::NORETRY));
        CALLS_BACK.set(true);
        drop(all);
    }),
    ("on_pressure, worker", |yard| {
        let told = yard.on_pressure(move |_: &PressureEvent| {
            use_a_little(yard);
            yard.status();
        });
        let mut worker = yard.worker().unwrap();
        for _ in 0..3 {
            worker.step();
        }
        drop(told);
    }),
    ("tick", |yard| yard.tick()),
    ("drain", |yard| yard.drain()),
    ("set_limits", |yard| {
        let limits = Limits { hard: Some(12_000), soft: Some(10_000) };
        yard.set_limits(limits).unwrap();
        yard.set_limits(Limits::default()).unwrap();
    }),
    ("offline, online", |yard| {
        let start = yard.zone_info(yard.zones().next().unwrap()).unwrap().start;
        let sections = start..Pfn(start.0 + SECTION_PAGES);
        if yard.offline(sections.clone()).is_ok() {
            yard.online(sections).unwrap();
        }
    }),
    ("poison_frame", |yard| {
        let start = yard.zone_info(yard.zones().next().unwrap()).unwrap().start;
        yard.poison_frame(start).unwrap();
        let _ = yard.unpoison_frame(start);
    }),
    ("texts", |yard| {
        drop((yard.buddyinfo(), yard.pagetypeinfo(), yard.zoneinfo(), yard.vmstat()));
        drop((yard.stats(), yard.status(), yard.knobs(), format!("{yard:?}")));
        yard.set_knob("min_free_kbytes", "512").unwrap();
        yard.resident().unwrap();
        yard.out_of_use();
    }),
];

fn used(yard: Yard) -> u64 {
    let of = |zone| {
        let info = yard.zone_info(zone).unwrap();
        info.managed - info.free_exact - info.cached
    };
    yard.zones().map(of).sum()
}

fn run(state: &str, yard: Yard) {
    for (name, operation) in OPERATIONS {
        NOW.store((&raw const *name).cast_mut(), Relaxed);
        // SAFETY: takes a number.
        unsafe { libc::alarm(PATIENCE) };
        let before = CALLS.load(Relaxed);
        CALLS_BACK.set(true);
        operation(yard);
        CALLS_BACK.set(false);
        let calls = CALLS.load(Relaxed) - before;
        println!("{state}: {name}: {calls} calls back");
    }
    // SAFETY: takes a number.
    unsafe { libc::alarm(0) };
}

#[test]
fn the_yard_may_be_used_from_nested_allocations() {
    let how = ThreadCache::Blocks { pages: 4, larger: 0, huge: 0 };
    // Two sections.
    let builder = Builder::new(2 * SECTION_PAGES * 4096).thread_cache(how);
    let builder = builder.tick(None).give_back(None).system(SystemFiles::none()).publish(false);
    let yard: Yard = Box::leak(Box::new(builder.build().unwrap()));
    // SAFETY: the handler writes, and ends the process.
    unsafe { libc::signal(libc::SIGALRM, hangs as *const () as libc::sighandler_t) };
    PAGES.0.install(yard).unwrap();
    YARD.set(yard).unwrap();

    run("plenty", yard);
    assert!(CALLS.load(Relaxed) > 400, "the yard's methods allocate");

    // What the program itself keeps in the yard.
    yard.drain();
    let kept = used(yard);

    // With its final capacity, so that it does not grow later.
    let mut all: Vec<Block<'_>> = Vec::with_capacity(2 * SECTION_PAGES as usize);
    let take = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok();
    all.extend(std::iter::from_fn(take));
    run("full", yard);

    let mut n = 0;
    all.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    run("in pieces", yard);

    drop(all);
    yard.drain();
    yard.validate().unwrap();
    assert_eq!(used(yard), kept, "everything was freed");
}
