//! Flags without a meaning change nothing. In particular, memory requested as zeroed is zero.

#![allow(unsafe_code)] // an allocator, and the core of a yard

use std::alloc::{GlobalAlloc, Layout, System};
use std::slice;

use allocator_api2::alloc::{Allocator, Global};
use pageyard::policy::Packed;
use pageyard::{Gfp, MigrateType, Order, PAGE_SIZE, Place};
use pageyard_host::{Builder, HostLock, HostYard, InYard, PageAlloc, RawYard, ThreadCache};

/// Each bit without a name, all of them, and all bits except those that choose zone and type.
fn hostile() -> Vec<Gfp> {
    let named = Gfp::from_bits_retain(0x7f_fdff);
    let unnamed = named.complement();
    let single = (0..32).map(|n| Gfp::from_bits_retain(1 << n)).filter(|f| unnamed.contains(*f));
    let choice = Gfp::DMA | Gfp::DMA32 | Gfp::HIGHMEM | Gfp::MOVABLE | Gfp::RECLAIMABLE;
    // Excludes NOFAIL, because such a request would wait for memory.
    let all = choice.union(Gfp::NOFAIL).complement();
    single.chain([Gfp::empty(), unnamed, all]).map(|f| f | Gfp::KERNEL | Gfp::ZERO).collect()
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Asserts that memory is zero, then overwrites it.
fn use_zeros(bytes: &mut [u8], what: &str, gfp: Gfp) {
    assert!(bytes.iter().all(|&b| b == 0), "{what} with {:#x}: not zeros", gfp.bits());
    bytes.fill(0xff);
}

/// Allocates all memory once, and fills it.
fn dirty(yard: &HostYard) {
    let take = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok();
    let mut all: Vec<_> = std::iter::from_fn(take).collect();
    all.iter_mut().for_each(|b| b.fill(0xff));
    drop(all);
    yard.drain();
}

#[test]
fn zeroed_blocks_are_zero_with_any_flags() {
    for front in [ThreadCache::Auto, ThreadCache::Off] {
        let builder = Builder::new(16 << 20).thread_cache(front).tick(None);
        let yard = builder.build().unwrap();
        dirty(&yard);
        // Twice: memory that the first request wrote must not count as known-zero for the second.
        for gfp in hostile().into_iter().flat_map(|gfp| [gfp, Gfp::KERNEL | Gfp::ZERO]) {
            for n in [0, 3, 9] {
                use_zeros(&mut yard.alloc(order(n), gfp).unwrap(), "alloc", gfp);
            }
            let near = pageyard::NodeId(0);
            use_zeros(&mut yard.alloc_on(near, order(0), gfp).unwrap(), "alloc_on", gfp);
            let mut many = Vec::new();
            assert_eq!(yard.alloc_bulk(100, gfp, &mut many), Ok(100));
            many.iter_mut().for_each(|b| use_zeros(b, "alloc_bulk", gfp));
            drop(many);
            let align = 64 << 10;
            use_zeros(&mut yard.alloc_aligned(order(0), align, gfp).unwrap(), "alloc_aligned", gfp);
            use_zeros(&mut yard.alloc_range(600, 1, gfp).unwrap(), "alloc_range", gfp);
            let movable = yard.alloc_movable(order(1), gfp).unwrap();
            use_zeros(&mut movable.lock(), "alloc_movable", gfp);
            // SAFETY: the block is new, and its ownership passes to a `Block`.
            let core = unsafe {
                let pfn = yard.core().alloc(order(2), gfp).unwrap();
                yard.from_raw(pfn, order(2))
            };
            use_zeros(&mut core.unwrap(), "core", gfp);
        }
        yard.drain();
        yard.validate().unwrap();
    }
}

/// These paths choose the flags themselves; memory that other requests wrote must still be zeroed.
#[test]
fn fresh_memory_is_reported_only_for_zeroed_requests() {
    for gfp in hostile() {
        let yard = Builder::new(16 << 20).tick(None).build().unwrap();
        let yard: &'static HostYard = Box::leak(Box::new(yard));
        let pages: PageAlloc<System> = PageAlloc::new(System);
        pages.install(yard).unwrap();
        // All memory, past the thread cache, and not requested as zeroed.
        let take = || yard.alloc(order(3), gfp.difference(Gfp::ZERO) | Gfp::NOWARN).ok();
        let mut all: Vec<_> = std::iter::from_fn(take).collect();
        all.iter_mut().for_each(|b| b.fill(0xff));
        drop(all);
        for bytes in [4096, 3 * 4096, 1 << 20] {
            let layout = Layout::from_size_align(bytes, 8).unwrap();
            // SAFETY: the layout is not empty; the block is as large, is used as bytes, and is
            // freed with its layout.
            unsafe {
                let start = pages.alloc_zeroed(layout);
                assert!(pages.is_of_yard(start));
                use_zeros(slice::from_raw_parts_mut(start, bytes), "PageAlloc", gfp);
                pages.dealloc(start, layout);
                let own = InYard::new(yard, Global);
                let mut block = own.allocate_zeroed(layout).unwrap();
                use_zeros(block.as_mut(), "InYard", gfp);
                own.deallocate(block.cast(), layout);
            }
        }
    }
}

#[test]
fn zeroed_frames_are_zero_with_any_flags() {
    type Raw = RawYard<Packed, HostLock, ()>;
    let yard: Raw = Builder::new(16 << 20).build_raw(()).unwrap();
    let core = yard.core();
    for gfp in hostile() {
        let check = |pfn, order, what: &str| {
            let words = yard.words(pfn, order).unwrap();
            let zeros =
                words.all().iter().all(|w| w.load(std::sync::atomic::Ordering::Relaxed) == 0);
            assert!(zeros, "{what} with {:#x}: not zeros", gfp.bits());
            words.touch(u64::from(order.pages()) * PAGE_SIZE);
            yard.free(pfn, order).unwrap();
        };
        for n in [0, 3, 9] {
            check(yard.alloc(order(n), gfp).unwrap(), order(n), "alloc");
            check(yard.alloc_on(pageyard::NodeId(0), order(n), gfp).unwrap(), order(n), "alloc_on");
            let place = Place { align: 1 << 10, below: None };
            let at = core.alloc_with(order(n), gfp, place).unwrap();
            check(at, order(n), "alloc_with");
            core.alloc_at(at, order(n), gfp).unwrap();
            check(at, order(n), "alloc_at");
        }
        let mut many = [None; 70];
        // Only one page if each page is charged.
        assert!(core.alloc_bulk(gfp, &mut many).unwrap() > 0);
        many.iter().flatten().for_each(|&pfn| check(pfn, Order::ZERO, "alloc_bulk"));
        let mut each = Vec::new();
        assert!(core.alloc_bulk_each(70, gfp, |pfn| each.push(pfn)).unwrap() > 0);
        each.into_iter().for_each(|pfn| check(pfn, Order::ZERO, "alloc_bulk_each"));
        let all = yard.region().frames();
        let gfp = gfp | Gfp::COMP;
        let t = MigrateType::Unmovable;
        let first = core.alloc_contig_pages(512, 512, all, t, gfp).unwrap();
        check(first, order(9), "alloc_contig_pages");
    }
}
