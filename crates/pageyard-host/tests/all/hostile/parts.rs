//! Calls of the parts below a yard, of allocators on it, and of what is no yard's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use allocator_api2::alloc::{Allocator, Global};
use pageyard::policy::Packed;
use pageyard::{Gfp, NodeId, Order, PAGE_SIZE, Pfn};
use pageyard_host::{
    Backing, Builder, GroupMemory, HostLock, HostYard, HugePages, HugeSize, InYard, PageAlloc,
    RawYard, Region, SystemFiles, Topology, Watch, Watched, clock, cpu, topology,
};

use super::arguments::*;

struct Ignores;

impl Watch for Ignores {
    fn waited(_: u64, _: u64) {}
    fn held(_: u64) {}
}

pub(super) fn raw() {
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

pub(super) fn region() {
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
        let memory = region.memory();
        assert!(!region.is_pinned() && memory.len() as u64 == SIZE);
        assert_eq!(region.frame(memory.cast().as_ptr()), Some(region.first()));
    }
}

pub(super) fn allocators() {
    let shared = Box::leak(Box::new(yard()));
    let yard: &'static HostYard =
        Box::leak(Box::new(Builder::new(SIZE).tick(None).build().unwrap()));
    let pages: PageAlloc<System> = PageAlloc::new(System);
    assert!(pages.install(shared).is_err());
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

pub(super) fn machine() {
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

pub(super) fn system() {
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
    assert!(!pageyard_host::publishers().unwrap().pids.contains(&std::process::id()));
}
