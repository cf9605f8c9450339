//! Pinned memory keeps the system's page behind each address, so that what the kernel or a device
//! refers to stays what the program sees. The reference here is a pipe (`vmsplice`): it holds the
//! pages themselves, as a registered buffer does, and reading it shows what they contain.
//!
//! Every way by which a yard discards or moves pages is in `WAYS` or has a test of its own. Each is
//! tried on an unpinned yard too, where it must be noticed. Forks are in `tests/fork.rs`.

#![allow(unsafe_code)] // system calls, a relocator, the core

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{Gfp, Order, PAGE_SIZE, Relocation, SECTION_PAGES};
use pageyard_host::{
    Backing, Block, Builder, GiveBack, HostLock, HostYard, HugePages, Limits, Moving, PageAlloc,
    RawYard, Relocator, SystemFiles, ThreadCache,
};

const SIZE: u64 = 256 << 20;

/// A reference to a page, as the kernel keeps it for a registered buffer.
struct Registered {
    pipe: File,
    _end: File,
}

impl Registered {
    fn new(block: &Block<'_, impl StaticPolicy>) -> Registered {
        let mut ends = [0; 2];
        // SAFETY: the array has room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: the descriptors were just returned, so nothing else owns them.
        let [pipe, end] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
        let page =
            libc::iovec { iov_base: block.as_ptr().as_ptr().cast(), iov_len: PAGE_SIZE as usize };
        // SAFETY: the page is mapped; it is only read, when the pipe is.
        let n = unsafe { libc::vmsplice(end.as_raw_fd(), &page, 1, 0) };
        assert_eq!(n, PAGE_SIZE as isize);
        Registered { pipe, _end: end }
    }

    /// Returns the byte that fills the page.
    fn byte(mut self) -> u8 {
        let mut page = [0; PAGE_SIZE as usize];
        self.pipe.read_exact(&mut page).unwrap();
        assert!(page.iter().all(|&b| b == page[0]));
        page[0]
    }
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// A yard that nothing but the test uses.
fn builder(pinned: bool, backing: Backing) -> Builder {
    Builder::new(SIZE)
        .pinned(pinned)
        .backing(backing)
        .huge_pages(HugePages::Never)
        .system(SystemFiles::none())
        .thread_cache(ThreadCache::Off)
        .tick(None)
}

type Way<P> = fn(&HostYard<P>);

/// What a yard does with memory that is free, which may discard its pages.
fn ways<P: StaticPolicy + Send + Sync + 'static>() -> [(&'static str, Way<P>); 4] {
    [
        ("report_free_pages, by which the worker gives idle memory back", |yard| {
            for zone in yard.zones() {
                // SAFETY: only free blocks are reported.
                unsafe { yard.core() }.report_free_pages(zone, Order::ZERO, u64::MAX);
            }
        }),
        ("the hard limit", |yard| {
            let limits = Limits { hard: Some(SIZE / PAGE_SIZE / 8), soft: None };
            assert_eq!(yard.set_limits(limits), Ok(true));
            yard.set_limits(Limits::default()).unwrap();
        }),
        ("offline and online", |yard| {
            let start = yard.zone_info(yard.zones().next().unwrap()).unwrap().start.0;
            for n in 0..SIZE / PAGE_SIZE / SECTION_PAGES {
                let first = start + n * SECTION_PAGES;
                let section = pageyard::Pfn(first)..pageyard::Pfn(first + SECTION_PAGES);
                // The last one cannot go without the reserves.
                if yard.offline(section.clone()).is_ok() {
                    yard.online(section).unwrap();
                }
            }
        }),
        ("the worker's steps", |yard| {
            let mut worker = yard.worker().unwrap();
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            // The rate allows nothing in the first step. A yard that gives nothing back says why.
            let most = SIZE / PAGE_SIZE / 2;
            while yard.status().given_back < most && yard.status().keeps.is_none() {
                let _ = worker.step();
                assert!(std::time::Instant::now() < end, "{:?}", yard.status());
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }),
    ]
}

/// Registers a page of a block, frees it, lets the yard do something, allocates and writes the same
/// memory again. Returns whether the registration sees what was written.
fn keeps_registered<P: StaticPolicy + Send + Sync + 'static>(
    builder: &Builder,
    way: Way<P>,
) -> bool {
    let yard: HostYard<P> = builder.build_with().unwrap();
    // All memory, of which most is freed; the rest keeps the yard in use as it is.
    let take = || yard.alloc(Order::MAX, Gfp::KERNEL | Gfp::NOWARN).ok();
    let mut blocks: Vec<_> = std::iter::from_fn(take).collect();
    blocks.iter_mut().for_each(|b| b.fill(1));
    let registered: Vec<_> = blocks.iter().map(|b| (b.pfn(), Registered::new(b))).collect();
    drop(blocks);
    yard.drain();
    way(&yard);
    let mut blocks: Vec<_> = std::iter::from_fn(take).collect();
    blocks.iter_mut().for_each(|b| b.fill(2));
    let mut same = true;
    for (pfn, page) in registered {
        if blocks.iter().any(|b| b.pfn() == pfn) {
            same &= page.byte() == 2;
        }
    }
    same
}

fn keeps_pages<P: StaticPolicy + Send + Sync + 'static>(engine: &str) {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        for (name, way) in ways::<P>() {
            let at_once = GiveBack { after: std::time::Duration::ZERO, ..GiveBack::default() };
            let unpinned = builder(false, backing).give_back(Some(at_once));
            assert!(!keeps_registered(&unpinned, way), "{engine}, {backing:?}, {name}: no effect");
            let pinned = builder(true, backing);
            assert!(keeps_registered(&pinned, way), "{engine}, {backing:?}, {name}");
        }
    }
}

#[test]
fn registered_pages_of_a_pinned_yard_survive_everything_that_discards() {
    keeps_pages::<Packed>("packed");
}

#[test]
fn registered_pages_survive_on_the_exact_engine() {
    keeps_pages::<Linux612>("exact");
}

/// Blocks that can move, every other one free, so that compaction has a reason to move them.
/// Returns whether all are where they were after `compact`.
fn stay(builder: &Builder, compact: Way<Packed>) -> bool {
    let yard = builder.build().unwrap();
    let take = || yard.alloc_movable(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok();
    let mut all: Vec<_> = std::iter::from_fn(take).collect();
    let mut n = 0;
    all.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    let places: Vec<_> = all.iter().map(|m| m.lock().pfn()).collect();
    compact(&yard);
    yard.validate().unwrap();
    all.iter().zip(places).all(|(m, place)| m.lock().pfn() == place)
}

#[test]
fn movable_blocks_of_a_pinned_yard_stay_in_place() {
    let small = |pinned| builder(pinned, Backing::Anonymous).give_back(None);
    let ways: [(&str, Way<Packed>); 3] = [
        ("compact", |yard| yard.compact()),
        ("a contiguous range", |yard| drop(yard.alloc_range(4096, 1, Gfp::KERNEL))),
        ("the worker", |yard| {
            yard.drain();
            yard.set_knob("compaction_proactiveness", "100").unwrap();
            let mut worker = yard.worker().unwrap();
            (0..3).for_each(|_| _ = worker.step());
        }),
    ];
    for (name, way) in ways {
        assert!(!stay(&small(false), way), "{name}: no effect");
        assert!(stay(&small(true), way), "{name}");
    }
}

/// Counts how often it is called.
struct Counts(Arc<AtomicU64>);

// SAFETY: it moves nothing.
unsafe impl Relocator for Counts {
    fn relocate(&self, _: &Moving) -> Relocation {
        self.0.fetch_add(1, Relaxed);
        Relocation::Refused
    }
}

#[test]
fn relocators_of_a_pinned_yard_are_not_called() {
    for pinned in [false, true] {
        let yard = builder(pinned, Backing::Anonymous).build().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        yard.register_relocator(Counts(calls.clone())).keep();
        let take = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN | Gfp::MOVABLE).ok();
        let blocks: Vec<_> = std::iter::from_fn(take).collect();
        for block in blocks.iter().step_by(2) {
            // SAFETY: the relocator never moves it.
            unsafe { yard.core() }.set_movable(block.pfn(), Order::ZERO, true).unwrap();
        }
        let (_kept, freed): (Vec<_>, Vec<_>) =
            blocks.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
        drop(freed);
        yard.compact();
        assert_eq!(calls.load(Relaxed) == 0, pinned);
    }
}

#[test]
fn a_pinned_region_is_not_collapsed_later() {
    let build = |pinned| {
        let builder = builder(pinned, Backing::Anonymous).prefault(true);
        builder.build_raw::<Packed, HostLock, ()>(()).unwrap()
    };
    let refuses = |yard: &RawYard| {
        let error = yard.region().set_huge_pages(HugePages::Collapse).err();
        error.is_some_and(|e| e.kind() == std::io::ErrorKind::Unsupported)
    };
    assert!(refuses(&build(true)) && !refuses(&build(false)));
    // It stays pinned for the next yard on the region, and can be pinned for it.
    let region = build(true).into_region();
    let plain = builder(false, Backing::Anonymous);
    assert!(
        plain.build_on::<_, HostLock, _>(Packed::POLICY, region, ()).unwrap().region().is_pinned()
    );
    let region = plain.region().unwrap();
    let pinned = builder(true, Backing::Anonymous);
    assert!(
        pinned.build_on::<_, HostLock, _>(Packed::POLICY, region, ()).unwrap().region().is_pinned()
    );
}

#[test]
fn a_pinned_yard_says_that_it_returns_nothing() {
    let yard = builder(true, Backing::Anonymous).build().unwrap();
    assert!(yard.is_pinned());
    let _ = yard.worker().unwrap().step();
    assert_eq!(yard.status().keeps.as_deref(), Some("the memory is pinned"));
    let how = GiveBack::default();
    let error = builder(true, Backing::Anonymous).give_back(Some(how)).build().unwrap_err();
    assert!(error.to_string().starts_with("give_back: pinned memory"), "{error}");
}

#[test]
fn the_memory_of_a_yard_is_all_of_its_blocks() {
    let yard = builder(true, Backing::Memfd).build().unwrap();
    let all = yard.memory();
    let block = yard.alloc(order(3), Gfp::KERNEL).unwrap();
    let offset = block.as_ptr().addr().get() - all.cast::<u8>().addr().get();
    assert_eq!((all.len() as u64, offset as u64), (SIZE, yard.offset(&block)));
    assert!(!yard.holds(all.cast::<u8>().as_ptr().wrapping_add(all.len())));
}

/// What a hard limit keeps stays resident too.
#[test]
fn all_of_a_pinned_yard_is_resident_beside_a_limit() {
    let limited = builder(true, Backing::Anonymous).prefault(true).hard_limit(SIZE / 2);
    let yard = limited.build().unwrap();
    assert_eq!(yard.status().kept, SIZE / PAGE_SIZE / 2);
    assert_eq!(yard.stats().resident, yard.resident().unwrap());
}

/// The program's own memory must be a copy in the child of a fork. Pinned memory reads as zeros
/// there, and a file's is shared: both processes would write to one heap.
#[test]
fn only_memory_that_a_fork_copies_is_a_global_allocator() {
    let alloc = PageAlloc::new(std::alloc::System);
    let install = |pinned, backing| {
        let yard = Box::leak(Box::new(builder(pinned, backing).build().unwrap()));
        alloc.install(yard).is_ok()
    };
    assert!(!install(true, Backing::Anonymous));
    assert!(!install(false, Backing::Memfd));
    assert!(install(false, Backing::Anonymous));
}
