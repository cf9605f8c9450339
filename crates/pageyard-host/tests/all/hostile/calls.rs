//! Calls of yards, of builders, and of what yards hand out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    CpuId, Gfp, KNOBS, Knobs, NodeId, Order, PAGE_SIZE, Pfn, Relocation, ZoneId, ZoneKind,
};
use pageyard_host::{
    Backing, Builder, FragmentCache, GiveBack, HostLock, HostYard, HugePages, HugeSize, Limits,
    Moving, RawYard, Region, Relocator, SystemFiles, ThreadCache,
};

use super::arguments::*;

pub(super) fn sizes() {
    assert_eq!([HugeSize::M2, HugeSize::G1].map(HugeSize::bytes), [2 << 20, 1 << 30]);
}

pub(super) fn builder() {
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
        for [pages, larger, huge] in [[n as u32, 0, 0], [0, n as u32, 0], [0, 0, n as u32]] {
            built(plain().thread_cache(ThreadCache::Blocks { pages, larger, huge }));
        }
        built(Builder::new(SIZE).tick(Some(Duration::from_nanos(n))));
        built(Builder::new(SIZE).tick(Some(Duration::from_secs(n))));
        for rate in [None, Some(n)] {
            let after = Duration::from_nanos(n);
            for floor in [0, n] {
                for least in [Order::HUGE, Order::new((n % 11) as u8).unwrap()] {
                    let how = GiveBack { after, floor, rate, lazily: n % 2 == 0, least };
                    let builder = Builder::new(SIZE).huge_pages(HugePages::Never);
                    built(builder.give_back(Some(how)));
                }
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
            built(plain().backing(backing).huge_pages(huge).pinned(true).prefault(true));
            built(plain().backing(backing).huge_pages(huge).fallback(true).prefault(true));
        }
    }
    for n in numbers() {
        let region = Builder::new(n).region();
        if let Ok(region) = region {
            // On a region whose size differs from the builder's.
            let on = plain().build_on::<_, HostLock, _>(Packed::POLICY, region, ());
            drop(on.map(RawYard::into_region));
        }
        drop(Builder::new(n).build_raw::<Packed, HostLock, ()>(()));
        drop(Builder::new(n).build_with_policy(&Packed::RULES));
    }
}

/// Asserts that the yard is valid, and empty unless a limit holds pages back.
fn whole_if_limitless(yard: &HostYard) {
    // The yard's own worker may be inside the allocator, where it drains or ticks; what it breaks for a
    // moment is whole again soon.
    let valid = (0..1000).any(|_| {
        yard.validate().is_ok() || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            false
        }
    });
    assert!(valid, "{:?}", yard.validate());
    if yard.limits() == Limits::default() && yard.worker().is_some() {
        whole(yard);
    }
}

pub(super) fn blocks() {
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

pub(super) fn bulk() {
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

pub(super) fn places() {
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

pub(super) fn owned() {
    let yard = Arc::new(yard());
    for gfp in some_gfps() {
        for order in orders() {
            let Ok(mut block) = yard.alloc_owned(order, gfp) else { continue };
            block.fill(0xff);
            assert!(block.order() == order && Arc::ptr_eq(block.yard(), &yard));
            let place = (block.pfn(), block.as_ptr());
            let block = block.into_block(&yard).unwrap();
            assert_eq!((block.pfn(), block.as_ptr()), place);
            drop(block.into_owned(&yard).unwrap());
        }
        for pages in numbers() {
            for align in [0, 1, 3, 512, u64::MAX] {
                let Ok(range) = yard.alloc_range_owned(pages, align, gfp) else { continue };
                assert!(yard.holds(range.as_ptr().as_ptr()) && range.offset() < SIZE);
                assert!(range.frames().start.0 % align == 0 && Arc::ptr_eq(range.yard(), &yard));
                drop(range.into_range(&yard).unwrap().into_owned(&yard).unwrap());
            }
        }
    }
    assert_eq!(Arc::strong_count(&yard), 1);
    whole(&yard);
}

pub(super) fn fragments() {
    let yard = Arc::new(yard());
    for gfp in gfps() {
        let mut cache = FragmentCache::new(&yard, gfp);
        for align in [1, 64, 4096] {
            for bytes in [1, 4096, 32_768] {
                let Ok(mut fragment) = cache.alloc(bytes, align) else { continue };
                let zeros = fragment.iter().all(|&b| b == 0);
                assert!(zeros || !gfp.contains(Gfp::ZERO), "{:#x}", gfp.bits());
                fragment.fill(0xff);
            }
        }
    }
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
    let mut held = Vec::new();
    for bytes in numbers() {
        for align in numbers() {
            held.extend(cache.alloc(bytes as usize, align as usize));
            held.truncate(100);
        }
    }
    drop((held, cache));
    whole(&yard);
}

pub(super) fn frees() {
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

pub(super) fn movable() {
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

pub(super) fn registrations() {
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

pub(super) fn limits() {
    let yard = yard();
    let limit = || numbers().into_iter().map(Some).chain([None]);
    for hard in limit() {
        for soft in limit() {
            if yard.set_limits(Limits { hard, soft }).is_ok() {
                assert_eq!(yard.limits(), Limits { hard, soft });
            }
            drop(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN));
            let _ = yard.pressure();
            let usable = yard.usable();
            assert!(usable.bytes <= usable.size && usable.size == SIZE, "{usable}");
            let limits = Limits::of_bytes(hard, soft);
            assert!(limits.hard_bytes() <= hard && limits.soft_bytes() <= soft);
        }
    }
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    whole(&yard);
}

pub(super) fn knobs() {
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

pub(super) fn sections() {
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

pub(super) fn poison() {
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

pub(super) fn looks() {
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
    assert!(yard.memory().len() as u64 == SIZE && !yard.is_pinned());
    // SAFETY: the file is not used.
    assert!(unsafe { yard.fd() }.is_some());
    let texts = [yard.buddyinfo(), yard.pagetypeinfo(), yard.zoneinfo(), yard.vmstat()];
    assert!(texts.iter().all(|t| t.contains("Normal") || t.contains("nr_free_pages")));
    let _ = (yard.stats(), yard.status(), yard.thread_cache_stats(), yard.thread_cache_threads());
    std::thread::scope(|s| s.spawn(|| yard.tick()).join()).unwrap();
    whole(&yard);
}

pub(super) fn worker() {
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
