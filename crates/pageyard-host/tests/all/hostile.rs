//! Calls every public function with invalid and extreme arguments: the extremes of all numbers,
//! each flag alone and all at once, frames and ranges that do not exist. Each call succeeds or
//! returns an error, and afterwards the yard is valid and empty. Each row runs in its own process
//! with little memory, so that a function that aborts or hangs is named.

#![allow(unsafe_code)] // allocators, a relocator, and blocks by number

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use allocator_api2::alloc::{Allocator, Global};
use pageyard::policy::Packed;
use pageyard::{
    CpuId, Gfp, KNOBS, Knobs, NodeId, Order, PAGE_SIZE, Pfn, Relocation, ZoneId, ZoneKind,
};
use pageyard_host::{
    Backing, Builder, GiveBack, GroupMemory, HostLock, HostYard, HugePages, HugeSize, InYard,
    Limits, Moving, PageAlloc, RawYard, Region, Relocator, SystemFiles, ThreadCache, Topology,
    Watch, Watched, clock, cpu, topology,
};

#[path = "../../../pageyard/tests/all/common/public.rs"]
mod public;

use public::{functions, functions_under};

const SIZE: u64 = 16 << 20;

/// A row: functions, and code that calls them.
type Row = (&'static [&'static str], fn());

const ROWS: &[Row] = &[
    (&["HugeSize::bytes"], sizes),
    (
        &[
            "Builder::new",
            "Builder::of_available",
            "Builder::backing",
            "Builder::fallback",
            "Builder::hard_limit",
            "Builder::soft_limit",
            "Builder::give_back",
            "Builder::system",
            "Builder::publish",
            "Builder::nodes",
            "Builder::cpus",
            "Builder::huge_pages",
            "Builder::prefault",
            "Builder::deferred",
            "Builder::knobs",
            "Builder::tick",
            "Builder::thread_cache",
            "Builder::region",
            "Builder::build_raw",
            "Builder::build_on",
            "Builder::build",
            "Builder::build_with",
            "Builder::build_with_policy",
        ],
        builder,
    ),
    (
        &[
            "HostYard::alloc",
            "HostYard::alloc_on",
            "Block::pfn",
            "Block::order",
            "Block::as_ptr",
            "Block::into_raw",
            "HostYard::offset",
            "HostYard::holds",
            "HostYard::from_raw",
        ],
        blocks,
    ),
    (&["HostYard::alloc_bulk", "HostYard::free_bulk"], bulk),
    (
        &[
            "HostYard::alloc_aligned",
            "HostYard::alloc_range",
            "PageRange::frames",
            "PageRange::as_ptr",
            "PageRange::offset",
        ],
        places,
    ),
    (&["HostYard::free_raw", "HostYard::core"], frees),
    (&["HostYard::alloc_movable", "Movable::lock", "Movable::order", "Pinned::pfn"], movable),
    (
        &[
            "HostYard::register_relocator",
            "HostYard::register_shrinker",
            "HostYard::on_pressure",
            "Registration::keep",
            "HostYard::compact",
            "Moving::from",
            "Moving::to",
            "Moving::order",
            "Moving::old",
            "Moving::new_place",
            "Moving::copy",
        ],
        registrations,
    ),
    (&["HostYard::limits", "HostYard::set_limits", "HostYard::pressure"], limits),
    (&["HostYard::knobs", "HostYard::set_knob"], knobs),
    (&["HostYard::offline", "HostYard::online"], sections),
    (&["HostYard::poison_frame", "HostYard::unpoison_frame", "HostYard::out_of_use"], poison),
    (
        &[
            "HostYard::zones",
            "HostYard::zone_info",
            "HostYard::zone_stats",
            "HostYard::cpu_stats",
            "HostYard::cpus",
            "HostYard::stats",
            "HostYard::status",
            "HostYard::thread_cache_stats",
            "HostYard::thread_cache_threads",
            "HostYard::resident",
            "HostYard::buddyinfo",
            "HostYard::pagetypeinfo",
            "HostYard::zoneinfo",
            "HostYard::vmstat",
            "HostYard::validate",
            "HostYard::drain",
            "HostYard::tick",
            "HostYard::fd",
            "HostYard::is_here",
        ],
        looks,
    ),
    (
        &[
            "HostYard::worker",
            "HostYard::wake_worker",
            "Worker::step",
            "Worker::wait",
            "Worker::run",
        ],
        worker,
    ),
    (
        &[
            "RawYard::alloc",
            "RawYard::alloc_on",
            "RawYard::free",
            "RawYard::free_owned",
            "RawYard::free_batch",
            "RawYard::free_batch_owned",
            "RawYard::words",
            "RawYard::core",
            "RawYard::region",
            "RawYard::cpus",
            "RawYard::map_bytes",
            "RawYard::tick",
            "RawYard::into_region",
            "RawYard::watch_zone_locks",
            "Words::all",
            "Words::touch",
            "HostPlatform::embedder",
        ],
        raw,
    ),
    (
        &[
            "Region::new",
            "Region::backed",
            "Region::backing",
            "Region::fd",
            "Region::first",
            "Region::pages",
            "Region::frames",
            "Region::address",
            "Region::frame",
            "Region::set_huge_pages",
            "Region::populate",
            "Region::prefer_node",
            "Region::resident",
        ],
        region,
    ),
    (&["PageAlloc::new", "PageAlloc::install", "PageAlloc::is_of_yard", "InYard::new"], allocators),
    (
        &[
            "cpu::current",
            "cpu::is_registered",
            "cpu::allowed",
            "cpu::bind",
            "clock::now",
            "clock::thread",
            "HostLock::new",
            "held::report_locks",
        ],
        machine,
    ),
    (
        &[
            "topology::list",
            "topology::available_memory",
            "Topology::detect",
            "Topology::detect_in",
            "Topology::node_of",
            "Topology::distance",
            "SystemFiles::detect",
            "SystemFiles::none",
            "GroupMemory::read",
            "page::read_stats",
        ],
        system,
    ),
];

/// Public functions without a row, and why.
const EXEMPT: [(&str, &str); 1] =
    [("YardStats::write_prometheus", "of a feature; its one argument is a writer")];

/// Zero, powers of two and their neighbours where behaviour changes, and the extremes of all types.
fn numbers() -> Vec<u64> {
    let near = |n: u64| [n.wrapping_sub(1), n, n.wrapping_add(1)];
    let powers = [0, 4, 8, 9, 10, 12, 15, 16, 22, 24, 31, 32, 40, 50, 52, 63].map(|n| 1u64 << n);
    let mut all: Vec<u64> = powers.into_iter().flat_map(near).collect();
    all.extend(near(0));
    all.extend([i64::MAX as u64, u64::from(u32::MAX) - 1, SIZE, SIZE / PAGE_SIZE]);
    all.sort_unstable();
    all.dedup();
    all
}

/// The same numbers, and the ends of a yard's frames.
fn frames() -> Vec<Pfn> {
    let (first, pages) = (Region::FIRST.0, SIZE / PAGE_SIZE);
    let near = [first, first + 512, first + pages].into_iter().flat_map(|n| [n - 1, n, n + 1]);
    numbers().into_iter().chain(near).map(Pfn).collect()
}

fn ranges() -> Vec<Range<Pfn>> {
    let frames = frames();
    frames.iter().flat_map(|&a| frames.iter().map(move |&b| a..b)).collect()
}

fn orders() -> impl Iterator<Item = Order> {
    (0..=u8::MAX).filter_map(Order::new)
}

/// Each flag alone, all flags but one, and all of them.
fn gfps() -> Vec<Gfp> {
    let single = (0..32).map(|n| 1u32 << n);
    let plain = Gfp::KERNEL.bits() | Gfp::ZERO.bits();
    let bits = single.clone().flat_map(|bit| [bit, bit | plain, !bit]).chain([0, u32::MAX]);
    bits.map(Gfp::from_bits_retain).collect()
}

/// A few flag sets, for functions with other arguments.
fn some_gfps() -> [Gfp; 5] {
    [0, u32::MAX, Gfp::KERNEL.bits(), Gfp::ATOMIC.bits(), 1 << 31 | 0xdc0]
        .map(Gfp::from_bits_retain)
}

fn yard() -> HostYard {
    Builder::new(SIZE).backing(Backing::Memfd).tick(None).build().unwrap()
}

/// Yards with and without a thread cache, which has its own paths for known-zero pages.
fn yards() -> [HostYard; 3] {
    let caches = [ThreadCache::Auto, ThreadCache::Off, ThreadCache::Blocks { pages: 126, huge: 1 }];
    caches.map(|cache| {
        Builder::new(SIZE).backing(Backing::Memfd).tick(None).thread_cache(cache).build().unwrap()
    })
}

/// Asserts that everything was freed and that the yard is valid.
fn whole(yard: &HostYard) {
    yard.drain();
    yard.validate().unwrap();
    for zone in yard.zones().filter_map(|z| yard.zone_info(z)) {
        assert_eq!((zone.free_exact, zone.cached), (zone.managed, 0), "pages were lost");
    }
}

fn sizes() {
    assert_eq!([HugeSize::M2, HugeSize::G1].map(HugeSize::bytes), [2 << 20, 1 << 30]);
}

fn builder() {
    let built = |builder: Builder| {
        if let Ok(yard) = builder.build() {
            drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
            whole_if_limitless(&yard);
        }
    };
    let plain = || Builder::new(SIZE).tick(None);
    for n in numbers() {
        built(Builder::new(n).tick(None));
        built(plain().hard_limit(n));
        built(plain().soft_limit(n));
        built(plain().hard_limit(n).soft_limit(n));
        built(plain().nodes([n as u16]));
        built(plain().nodes([n as u16, n as u16]));
        built(plain().cpus([n as u32]));
        built(plain().cpus([0, n as u32, n as u32]));
        built(plain().thread_cache(ThreadCache::Blocks { pages: n as u32, huge: 0 }));
        built(plain().thread_cache(ThreadCache::Blocks { pages: 0, huge: n as u32 }));
        built(Builder::new(SIZE).tick(Some(Duration::from_nanos(n))));
        built(Builder::new(SIZE).tick(Some(Duration::from_secs(n))));
        for rate in [None, Some(n)] {
            let after = Duration::from_nanos(n);
            for floor in [0, n] {
                let how = GiveBack { after, floor, rate, lazily: n % 2 == 0 };
                built(Builder::new(SIZE).give_back(Some(how)));
            }
        }
        let k = Knobs::default();
        for knobs in [
            Knobs { min_free_kbytes: n, user_min_free_kbytes: Some(n), ..k },
            Knobs { watermark_scale_factor: n, ..k },
            Knobs { watermark_boost_factor: n, ..k },
            Knobs { lowmem_reserve_ratio: [n; 5], ..k },
            Knobs { percpu_pagelist_high_fraction: n as u32, ..k },
            Knobs { compaction_proactiveness: n, extfrag_threshold: n, ..k },
            Knobs { shuffle_seed: Some(n), stat_interval: n, ..k },
            Knobs { foreign_lowmem: n, min_unmapped_ratio: n, min_slab_ratio: n, ..k },
        ] {
            built(plain().knobs(knobs));
        }
    }
    built(Builder::new(SIZE).tick(Some(Duration::MAX)));
    built(plain().nodes([]));
    built(plain().cpus([]));
    built(plain().publish(false).system(SystemFiles::none()).prefault(true).deferred(true));
    for percent in 0..=u8::MAX {
        let some = Builder::of_available(percent);
        assert_eq!(some.is_ok(), (1..=100).contains(&percent));
    }
    let backings = [Backing::Anonymous, Backing::Memfd]
        .into_iter()
        .chain([HugeSize::M2, HugeSize::G1].map(Backing::HugeTlb));
    for backing in backings {
        for huge in [HugePages::Advise, HugePages::System, HugePages::Never, HugePages::Collapse] {
            built(plain().backing(backing).huge_pages(huge));
            built(plain().backing(backing).huge_pages(huge).fallback(true).prefault(true));
        }
    }
    for n in numbers() {
        let region = Builder::new(n).region();
        if let Ok(region) = region {
            // On a region whose size differs from the builder's.
            let on = plain().build_on::<Packed, HostLock, ()>(region, ());
            drop(on.map(RawYard::into_region));
        }
        drop(Builder::new(n).build_raw::<Packed, HostLock, ()>(()));
        drop(Builder::new(n).build_with_policy(&<Packed as pageyard::policy::StaticPolicy>::RULES));
    }
}

/// Asserts that the yard is valid, and empty unless a limit holds pages back.
fn whole_if_limitless(yard: &HostYard) {
    yard.validate().unwrap();
    if yard.limits() == Limits::default() && yard.worker().is_some() {
        whole(yard);
    }
}

fn blocks() {
    yards().iter().for_each(blocks_of);
}

fn blocks_of(yard: &HostYard) {
    let nodes = || numbers().into_iter().map(|n| NodeId(n as u16));
    for gfp in gfps() {
        for order in [0, 3, 9].into_iter().filter_map(Order::new) {
            if let Ok(mut block) = yard.alloc(order, gfp) {
                let zeros = block.iter().all(|&b| b == 0);
                assert!(zeros || !gfp.contains(Gfp::ZERO), "{:#x}", gfp.bits());
                block.fill(0xff);
                assert!(block.order() == order && yard.holds(block.as_ptr().as_ptr()));
                assert!(yard.offset(&block) < SIZE);
                let pfn = block.pfn();
                let raw = block.into_raw();
                assert_eq!(raw, (pfn, order));
                // SAFETY: its ownership was given up above.
                drop(unsafe { yard.from_raw(raw.0, raw.1) }.unwrap());
            }
        }
    }
    for gfp in some_gfps() {
        for order in orders() {
            drop(yard.alloc(order, gfp));
            nodes().for_each(|node| drop(yard.alloc_on(node, order, gfp)));
        }
    }
    for n in numbers() {
        assert!(!yard.holds(std::ptr::without_provenance(n as usize)));
    }
    let outside =
        |pfn: &Pfn| !(Region::FIRST.0..Region::FIRST.0 + SIZE / PAGE_SIZE).contains(&pfn.0);
    for pfn in frames().into_iter().filter(outside) {
        // SAFETY: frames outside the yard yield no block.
        assert!(orders().all(|order| unsafe { yard.from_raw(pfn, order) }.is_none()));
    }
    whole(yard);
}

fn bulk() {
    yards().iter().for_each(bulk_of);
}

fn bulk_of(yard: &HostYard) {
    for n in numbers() {
        for gfp in some_gfps() {
            let mut got = Vec::new();
            if let Ok(n_got) = yard.alloc_bulk(n as usize, gfp, &mut got) {
                assert!(n_got as u64 <= n.min(SIZE / PAGE_SIZE) && n_got == got.len());
            }
            yard.free_bulk(got);
        }
    }
    for gfp in gfps() {
        let mut got = Vec::new();
        let _ = yard.alloc_bulk(40, gfp, &mut got);
        let zeros = got.iter().all(|b| b.iter().all(|&b| b == 0));
        assert!(zeros || !gfp.contains(Gfp::ZERO), "{:#x}", gfp.bits());
        got.iter_mut().for_each(|b| b.fill(0xff));
    }
    // A block of another yard.
    let other = self::yard();
    yard.free_bulk(other.alloc(Order::ZERO, Gfp::KERNEL));
    whole(&other);
    whole(yard);
}

fn places() {
    let yard = yard();
    for gfp in some_gfps() {
        for align in numbers() {
            for order in orders() {
                if let Ok(block) = yard.alloc_aligned(order, align, gfp) {
                    assert_eq!(block.as_ptr().addr().get() as u64 % align, 0);
                }
            }
            for pages in numbers() {
                if let Ok(range) = yard.alloc_range(pages, align, gfp) {
                    let Range { start, end } = range.frames();
                    assert_eq!((end.0 - start.0, start.0 % align), (pages, 0));
                    assert!(range.offset() < SIZE && yard.holds(range.as_ptr().as_ptr()));
                }
            }
        }
    }
    whole(&yard);
}

fn frees() {
    let yard = yard();
    for pfn in frames() {
        for order in orders() {
            // SAFETY: nothing is allocated, so nothing can be freed.
            assert!(unsafe { yard.free_raw(pfn, order) }.is_err());
        }
    }
    // SAFETY: the core is only read.
    assert_eq!(unsafe { yard.core() }.zones(), yard.zones().count());
    whole(&yard);
}

fn movable() {
    let yard = yard();
    for gfp in gfps() {
        for order in [0, 4, 10].into_iter().filter_map(Order::new) {
            if let Ok(movable) = yard.alloc_movable(order, gfp) {
                let mut bytes = movable.lock();
                let zeros = bytes.iter().all(|&b| b == 0);
                assert!(zeros || !gfp.contains(Gfp::ZERO), "{:#x}", gfp.bits());
                bytes.fill(0xff);
                assert!(bytes.pfn() >= Region::FIRST && movable.order() == order);
            }
        }
    }
    whole(&yard);
}

/// Refuses every block after reading it.
struct Refuses(Arc<AtomicU64>, bool);

// SAFETY: it never reports a block as moved.
unsafe impl Relocator for Refuses {
    fn relocate(&self, m: &Moving) -> Relocation {
        self.0.fetch_add(1, Relaxed);
        assert!(m.from() != m.to() && m.old() != m.new_place() && m.order() == Order::ZERO);
        // SAFETY: the blocks are this test's, and no thread writes to them.
        unsafe { m.copy() };
        if self.1 { Relocation::Busy } else { Relocation::Refused }
    }
}

fn registrations() {
    let yard = yard();
    for busy in [true, false] {
        let asked = Arc::new(AtomicU64::new(0));
        let registration = yard.register_relocator(Refuses(asked.clone(), busy));
        let take = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::MOVABLE).unwrap().into_raw().0;
        let all: Vec<Pfn> = (0..1000).map(|_| take()).collect();
        // SAFETY: the blocks' ownership was given up, and each becomes a block again once.
        unsafe {
            all.iter().for_each(|&p| yard.core().set_movable(p, Order::ZERO, true).unwrap());
            all.iter().step_by(2).for_each(|&p| drop(yard.from_raw(p, Order::ZERO)));
            yard.compact();
            all.iter().skip(1).step_by(2).for_each(|&p| drop(yard.from_raw(p, Order::ZERO)));
        }
        assert!(asked.load(Relaxed) > 0);
        drop(registration);
    }
    // Impossible answers, to a request that finds no memory.
    for n in numbers() {
        let shrinker = yard.register_shrinker(move |_: &pageyard::ReclaimJob| n);
        let mut all = Vec::new();
        let _ = yard.alloc_bulk(usize::MAX >> 20, Gfp::KERNEL, &mut all);
        while let Ok(block) = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN) {
            all.push(block);
        }
        drop((all, shrinker));
    }
    whole(&yard);
    yard.on_pressure(|_| {}).keep();
    whole(&yard);
}

fn limits() {
    let yard = yard();
    let limit = || numbers().into_iter().map(Some).chain([None]);
    for hard in limit() {
        for soft in limit() {
            if yard.set_limits(Limits { hard, soft }).is_ok() {
                assert_eq!(yard.limits(), Limits { hard, soft });
            }
            drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
            let _ = yard.pressure();
        }
    }
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    whole(&yard);
}

fn knobs() {
    let yard = yard();
    let mut values: Vec<String> = numbers().iter().map(u64::to_string).collect();
    for odd in ["", " ", "-1", "-9223372036854775809", "1e9", "0x10", "%s%n", "Node", "\n1\n", "é"]
    {
        values.push(odd.into());
    }
    values.push("9".repeat(1 << 16));
    values.push("9 ".repeat(1 << 10));
    let long = "a".repeat(1 << 16);
    for name in KNOBS.iter().map(|k| k.name).chain(["", "%s%n", "\u{1b}[2J", &long]) {
        for value in &values {
            let _ = yard.set_knob(name, value);
            drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
        }
        yard.knobs().check().unwrap();
    }
    whole(&yard);
}

fn sections() {
    let yard = yard();
    for range in ranges() {
        let was = yard.offline(range.clone());
        if range.start >= range.end || was.is_ok() {
            let _ = yard.online(range);
        } else {
            assert!(
                yard.online(range).is_err(),
                "the range is already online, or not part of the yard"
            );
        }
    }
    whole(&yard);
}

fn poison() {
    let yard = yard();
    for pfn in frames() {
        assert!(yard.unpoison_frame(pfn).is_err());
        if yard.poison_frame(pfn).is_ok() {
            assert!(yard.poison_frame(pfn).is_err() && yard.out_of_use() == 1);
            yard.unpoison_frame(pfn).unwrap();
        }
    }
    assert_eq!(yard.out_of_use(), 0);
    whole(&yard);
}

fn looks() {
    let yard = yard();
    for n in numbers() {
        for kind in ZoneKind::ALL {
            let zone = ZoneId { node: NodeId(n as u16), kind };
            let there = yard.zones().any(|z| z == zone);
            assert_eq!(yard.zone_info(zone).is_some(), there);
            assert_eq!(yard.zone_stats(zone).is_some(), there);
            for cpu in numbers() {
                let known = yard.cpu_stats(zone, CpuId(cpu as u32)).is_some();
                assert!(!known || there);
            }
        }
    }
    assert!(yard.is_here() && !yard.cpus().is_empty() && yard.resident().is_ok());
    // SAFETY: the file is not used.
    assert!(unsafe { yard.fd() }.is_some());
    let texts = [yard.buddyinfo(), yard.pagetypeinfo(), yard.zoneinfo(), yard.vmstat()];
    assert!(texts.iter().all(|t| t.contains("Normal") || t.contains("nr_free_pages")));
    let _ = (yard.stats(), yard.status(), yard.thread_cache_stats(), yard.thread_cache_threads());
    std::thread::scope(|s| s.spawn(|| yard.tick()).join()).unwrap();
    whole(&yard);
}

fn worker() {
    let yard = yard();
    let mut worker = yard.worker().unwrap();
    assert!(yard.worker().is_none(), "only one worker at a time");
    for n in numbers() {
        // Woken in advance, so that it does not sleep that long.
        yard.wake_worker();
        worker.wait(Duration::from_nanos(n));
        yard.wake_worker();
        worker.wait(Duration::new(n, 999_999_999));
        worker.step();
    }
    yard.wake_worker();
    worker.wait(Duration::MAX);
    worker.run(&AtomicBool::new(true));
    drop(worker);
    whole(&yard);
}

struct Ignores;

impl Watch for Ignores {
    fn waited(_: u64, _: u64) {}
    fn held(_: u64) {}
}

fn raw() {
    type Raw = RawYard<Packed, HostLock, ()>;
    let yard: Raw = Builder::new(SIZE).build_raw(()).unwrap();
    for gfp in gfps() {
        for order in orders() {
            if let Ok(pfn) = yard.alloc(order, gfp) {
                let words = yard.words(pfn, order).unwrap();
                let zeros = words.all().iter().all(|w| w.load(Relaxed) == 0);
                assert!(zeros || !gfp.contains(Gfp::ZERO), "{:#x}", gfp.bits());
                words.touch(u64::from(order.pages()) * PAGE_SIZE);
                yard.free(pfn, order).unwrap();
            }
        }
    }
    for n in numbers() {
        let node = NodeId(n as u16);
        if let Ok(pfn) = yard.alloc_on(node, Order::ZERO, Gfp::KERNEL) {
            yard.words(pfn, Order::ZERO).unwrap().touch(n);
            yard.free_owned(pfn, Order::ZERO).unwrap();
        }
    }
    for pfn in frames() {
        for order in orders() {
            assert!(yard.free(pfn, order).is_err() && yard.free_owned(pfn, order).is_err());
            assert!(yard.free_batch(&[(pfn, order); 70]).is_err());
            assert!(yard.free_batch_owned(&[(pfn, order); 2]).is_err());
            if let Some(words) = yard.words(pfn, order) {
                words.touch(u64::MAX);
            }
        }
    }
    yard.core().validate().unwrap();
    assert!(!yard.cpus().is_empty() && yard.map_bytes() > 0);
    let () = yard.core().hooks().embedder();
    std::thread::scope(|s| s.spawn(|| yard.tick()).join()).unwrap();
    assert_eq!(yard.region().pages(), yard.into_region().pages());
    let watched: RawYard<Packed, Watched<Ignores>, ()> = Builder::new(SIZE).build_raw(()).unwrap();
    watched.watch_zone_locks();
}

fn region() {
    let backings = [Backing::Anonymous, Backing::Memfd]
        .into_iter()
        .chain([HugeSize::M2, HugeSize::G1].map(Backing::HugeTlb));
    for n in numbers() {
        drop(Region::new(n));
        backings.clone().for_each(|backing| drop(Region::backed(n, backing)));
    }
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let region = Region::backed(SIZE / PAGE_SIZE, backing).unwrap();
        assert_eq!((region.backing(), region.first()), (backing, Region::FIRST));
        assert_eq!(region.frames(), region.first()..Pfn(region.first().0 + region.pages()));
        // SAFETY: the file is not used.
        assert_eq!(unsafe { region.fd() }.is_some(), backing == Backing::Memfd);
        for pfn in frames() {
            for pages in numbers() {
                let end = pfn.0.checked_add(pages);
                let inside =
                    pfn >= region.first() && end.is_some_and(|e| e <= region.frames().end.0);
                // (Frames behind the last page are outside.)
                let inside = inside && pfn < region.frames().end;
                assert_eq!(region.address(pfn, pages).is_some(), inside, "{pfn:?} {pages}");
            }
        }
        for n in numbers() {
            assert_eq!(region.frame(std::ptr::without_provenance(n as usize)), None);
        }
        for huge in [HugePages::Advise, HugePages::System, HugePages::Never, HugePages::Collapse] {
            let _ = region.set_huge_pages(huge);
        }
        for range in ranges() {
            let inside = range.start >= region.first() && range.end <= region.frames().end;
            let all = region.populate(&range);
            assert!(inside || range.start >= range.end || all.is_err(), "{range:?}");
            for node in [0, 1, 63, 64, 1023, 1024, u16::MAX] {
                let done = region.prefer_node(&range, NodeId(node));
                assert!(inside || range.start >= range.end || done.is_err(), "{range:?}");
            }
        }
        region.resident().unwrap();
    }
}

fn allocators() {
    let yard: &'static HostYard = Box::leak(Box::new(yard()));
    let pages: PageAlloc<System> = PageAlloc::new(System);
    pages.install(yard).unwrap();
    assert!(pages.install(yard).is_err());
    let own = InYard::new(yard, Global);
    for size in numbers() {
        assert!(!pages.is_of_yard(std::ptr::without_provenance(size as usize)));
        for align in (0..63).map(|n| 1usize << n) {
            let Ok(layout) = Layout::from_size_align(size as usize, align) else { continue };
            if let Ok(block) = own.allocate_zeroed(layout) {
                // SAFETY: it was just allocated with this layout.
                unsafe {
                    assert!(block.as_ref().iter().take(1 << 23).all(|&b| b == 0));
                    own.deallocate(block.cast(), layout);
                }
            }
            if size == 0 {
                continue; // not for such an allocator
            }
            // SAFETY: the layout is not empty; blocks are freed with the layout that allocated
            // them.
            unsafe {
                for start in [pages.alloc(layout), pages.alloc_zeroed(layout)] {
                    if start.is_null() {
                        continue;
                    }
                    assert_eq!(start.addr() % align, 0);
                    start.write(1);
                    // To another size with the same alignment.
                    let larger = pages.realloc(start, layout, 5000);
                    let (start, size) =
                        if larger.is_null() { (start, layout.size()) } else { (larger, 5000) };
                    assert_eq!(start.read(), 1);
                    pages.dealloc(start, Layout::from_size_align(size, align).unwrap());
                }
            }
        }
    }
    whole(yard);
}

fn machine() {
    let _ = (cpu::is_registered(), clock::now(), clock::thread(), HostLock::new());
    pageyard_host::report_locks();
    // On its own thread, which stays bound to one CPU afterwards.
    let bound = std::thread::spawn(|| {
        let all = cpu::allowed().unwrap();
        for n in numbers() {
            let cpu = n as u32;
            assert_eq!(cpu::bind(&[cpu]).is_ok(), all.contains(&cpu), "{cpu}");
            assert!(cpu::current() < 1 << 16);
        }
        assert!(cpu::bind(&[]).is_err() && cpu::bind(&[u32::MAX; 1000]).is_err());
    });
    bound.join().unwrap();
}

fn system() {
    let all: Vec<u32> = numbers().into_iter().map(|n| n as u32).collect();
    assert_eq!(topology::list([u32::MAX, 0, u32::MAX]), "4294967295,0,4294967295");
    assert_eq!(topology::list([]), "");
    let descending = all.iter().rev().copied();
    assert!(topology::list(descending).len() > topology::list(all.iter().copied()).len());
    assert!(topology::available_memory().is_some());
    let here = Topology::detect().unwrap();
    for n in numbers() {
        let cpu = here.cpus.iter().any(|c| c.number == n as u32);
        assert_eq!(here.node_of(n as u32).is_some(), cpu);
        for m in numbers() {
            let _ = here.distance(n as u16, m as u16);
        }
    }
    let paths = ["", "/", "/nowhere", "/proc/self/mem", "/proc/self/fd", "\u{0}", ".."];
    for a in paths.map(Path::new) {
        for b in paths.map(Path::new) {
            let _ = Topology::detect_in(a, b);
            let _ = GroupMemory::read(a, b);
        }
    }
    let _ = (SystemFiles::detect(), SystemFiles::none());
    for n in numbers() {
        // This process publishes nothing, and no other process is read.
        if n as u32 == 0 || n as u32 > 1 << 22 {
            assert!(pageyard_host::read_stats(n as u32).is_err());
        }
    }
    assert!(pageyard_host::read_stats(std::process::id()).is_err());
}

#[test]
fn every_public_function_has_a_row() {
    let mut declared = functions_under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(declared.len() > 130, "{}: the form of the sources has changed", declared.len());
    let rows: BTreeSet<String> = ROWS.iter().flat_map(|r| r.0).map(|f| f.to_string()).collect();
    let exempt: BTreeSet<String> = EXEMPT.iter().map(|(f, _)| f.to_string()).collect();
    let all: BTreeSet<String> = rows.union(&exempt).cloned().collect();
    let missing = |declared: &BTreeSet<String>| -> Vec<String> {
        declared.difference(&all).cloned().collect()
    };
    assert_eq!(missing(&declared), [""; 0], "functions without a row");
    assert_eq!(all.difference(&declared).collect::<Vec<_>>(), [""; 0], "rows without a function");
    // Functions without one are found.
    let new =
        "impl<P: StaticPolicy> HostYard<P> {\n    pub fn melt(&self) {}\n}\npub fn melted() {}\n";
    declared.extend(functions("cpu", new));
    assert_eq!(missing(&declared), ["HostYard::melt", "cpu::melted"]);
}

const ROW: &str = "PAGEYARD_HOSTILE_ROW";

/// Runs one row in this process, with little memory and time.
#[test]
fn a_row() {
    let Some(row) = std::env::var(ROW).ok().and_then(|n| n.parse::<usize>().ok()) else { return };
    let limit = |what, n| {
        let most = libc::rlimit { rlim_cur: n, rlim_max: n };
        // SAFETY: the structure lives until the call returns.
        assert_eq!(unsafe { libc::setrlimit(what, &raw const most) }, 0);
    };
    limit(libc::RLIMIT_AS, 1 << 30);
    limit(libc::RLIMIT_CPU, 300);
    // Not a measurement: ends a row that waits for ever. SAFETY: the signal ends the process.
    unsafe { libc::alarm(900) };
    ROWS[row].1();
    println!("done with row {row}");
}

fn run_row(row: usize) -> Result<(), String> {
    let mut command = pageyard_unmet::command(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile::a_row", "--nocapture"]).env(ROW, row.to_string());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.contains(&format!("done with row {row}")) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?}: {}\n{said}\n{error}", ROWS[row].0, output.status))
}

#[test]
fn invalid_and_extreme_arguments_are_errors_or_served() {
    let failed: Vec<String> = (0..ROWS.len()).filter_map(|row| run_row(row).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
