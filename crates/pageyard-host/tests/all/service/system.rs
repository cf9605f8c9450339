//! Options, the file behind the memory, and published statistics.

use pageyard::Gfp;
use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard_host::{Backing, Builder, GiveBack, HostYard, HugePages, HugeSize};

use super::{MIB, QUIET, builder, fill, order, until};

#[test]
fn a_memfd_yard_is_shared_with_another_mapping() {
    use std::os::unix::fs::FileExt;
    let yard = builder(16 * MIB).backing(Backing::Memfd).build().unwrap();
    let mut block = yard.alloc(order(1), QUIET).unwrap();
    block[4096..4100].copy_from_slice(b"page");
    #[allow(unsafe_code)]
    // SAFETY: the file is only read, or written where this test holds no borrow.
    let fd = unsafe { yard.fd() }.unwrap();
    let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
    let mut seen = [0; 4];
    file.read_exact_at(&mut seen, yard.offset(&block) + 4096).unwrap();
    assert_eq!(&seen, b"page");
    let at = yard.offset(&block);
    let (pfn, order) = block.into_raw();
    file.write_all_at(b"from elsewhere", at).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: its ownership was given up above.
    let block = unsafe { yard.from_raw(pfn, order) }.unwrap();
    assert_eq!(&block[..14], b"from elsewhere");
    let mut range = yard.alloc_range(700, 1, QUIET | Gfp::ZERO).unwrap();
    range[699 * 4096..][..5].copy_from_slice(b"range");
    let mut seen = [0; 5];
    file.read_exact_at(&mut seen, range.offset() + 699 * 4096).unwrap();
    assert_eq!(&seen, b"range");
}

#[test]
fn invalid_options_are_named() {
    let told = |b: Builder| b.build().unwrap_err().to_string();
    let good = || builder(16 * MIB);
    assert!(told(good().hard_limit(1 << 40)).starts_with("hard_limit: "));
    assert!(told(good().soft_limit(1 << 40)).starts_with("soft_limit: "));
    let lazy = GiveBack { lazily: true, ..GiveBack::default() };
    assert!(told(good().backing(Backing::Memfd).give_back(Some(lazy))).starts_with("give_back: "));
    let slow = GiveBack { rate: Some(1), ..GiveBack::default() };
    assert!(told(good().give_back(Some(slow))).starts_with("give_back: "));
    let floor = GiveBack { floor: 1 << 40, ..GiveBack::default() };
    assert!(told(good().give_back(Some(floor))).starts_with("give_back: "));
    assert!(told(good().huge_pages(HugePages::Collapse)).starts_with("huge_pages: "));
    let huge = || Builder::new(1 << 40).backing(Backing::HugeTlb(HugeSize::M2));
    let text = told(huge());
    assert!(text.starts_with("backing: ") && text.contains("2 MiB"), "{text}");
    let odd = told(Builder::new(5 * MIB).backing(Backing::HugeTlb(HugeSize::M2)));
    assert!(odd.starts_with("backing: "), "{odd}");
    assert!(Builder::of_available(0).unwrap_err().to_string().starts_with("size: "));
    let part = Builder::of_available(1).unwrap().build();
    assert!(part.is_ok());
}

#[test]
fn an_allowed_fallback_is_used() {
    let huge = |bytes| Builder::new(bytes).backing(Backing::HugeTlb(HugeSize::G1)).fallback(true);
    let yard = huge(1 << 30).build().unwrap();
    let wrong = huge(256 * MIB).build().unwrap_err();
    assert!(wrong.to_string().contains("not a multiple"), "a wrong size is an error: {wrong}");
    #[allow(unsafe_code)]
    // SAFETY: the file is not used.
    let has_file = unsafe { yard.fd() }.is_some();
    assert!(has_file);
    // A file of small pages gives back idle memory.
    let is_small = huge(1 << 30).region().unwrap().backing() == Backing::Memfd;
    assert!(until(|| yard.status().keeps.is_none() == is_small), "{:?}", yard.status().keeps);
}

#[test]
fn huge_pages_are_collapsed_at_once_where_supported() {
    let b = Builder::new(32 * MIB).huge_pages(HugePages::Collapse).prefault(true);
    match b.clone().build() {
        Ok(yard) => {
            assert_eq!(yard.resident().unwrap(), 8192);
            let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let huge: u64 = text
                .lines()
                .filter_map(|l| l.strip_prefix("AnonHugePages:")?.trim().strip_suffix(" kB"))
                .filter_map(|n| n.trim().parse::<u64>().ok())
                .sum();
            assert!(huge >= 32 << 10, "{huge} kB");
        }
        Err(e) => {
            assert!(e.to_string().starts_with("huge_pages: "), "{e}");
            assert!(b.fallback(true).build().is_ok());
        }
    }
}

#[test]
fn statistics_are_published_and_written() {
    let yard = builder(64 * MIB).hard_limit(32 * MIB).build().unwrap();
    let blocks = fill(&yard, 100);
    let pid = std::process::id();
    let mine = |s: &pageyard_host::YardStats| s.hard_limit == Some(8192) && s.used >= 100;
    // Other tests' yards are published too.
    let all = || pageyard_host::read_stats(pid).unwrap_or_default();
    assert!(until(|| all().iter().any(mine)));
    let seen = all().into_iter().find(mine).unwrap();
    assert_eq!((seen.pid, seen.pages, seen.kept, seen.level.as_str()), (pid, 16_384, 8192, "calm"));
    let zone = &seen.zones[0];
    assert_eq!(zone.kind, "Normal");
    assert_eq!(zone.map.len(), 32, "a letter for each pageblock");
    assert_eq!(zone.pageblocks.iter().sum::<u64>(), 32);
    let allocs: u64 = zone.cpus.iter().map(|c| c.allocs).sum();
    assert!(allocs >= 100);
    assert_eq!(zone.cpus.len(), yard.cpus().len());
    for (text, wanted) in [
        (yard.buddyinfo(), "Node 0, zone   Normal"),
        (yard.pagetypeinfo(), "Unmovable"),
        (yard.zoneinfo(), "pages free"),
        (yard.vmstat(), "pgalloc_normal"),
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    drop(blocks);
    let silent = builder(16 * MIB).publish(false).soft_limit(5 * MIB).build().unwrap();
    assert!(until(|| silent.status().ticks > 1));
    assert!(!all().iter().any(|s| s.soft_limit == Some(1280)));
}

/// Requests by order include those that never reach the allocator behind the thread cache.
#[test]
fn requests_are_counted_by_order_through_the_thread_cache() {
    let yard = builder(64 * MIB).tick(None).build().unwrap();
    let pairs = |n: u64, order_of| {
        for _ in 0..n {
            yard.alloc(order(order_of), QUIET).unwrap();
        }
    };
    pairs(5000, 0);
    pairs(70, 3);
    pairs(40, 9);
    // A thread that frees in bulk, and ends.
    std::thread::scope(|s| {
        s.spawn(|| drop(fill(&yard, 1000)));
    });
    let kept = (fill(&yard, 200), yard.alloc(order(9), QUIET).unwrap());
    let stats = yard.stats();
    assert!(stats.thread_cache.on && stats.thread_cache.hits > 5000, "{stats:?}");
    let by_order = |small, large, huge| {
        let mut all = vec![0; 11];
        (all[0], all[3], all[9]) = (small, large, huge);
        all
    };
    assert_eq!(stats.allocs, by_order(6200, 70, 41));
    assert_eq!(stats.frees, by_order(6000, 70, 40));
    drop(kept);
    yard.drain();
    let stats = yard.stats();
    assert_eq!((stats.allocs, stats.thread_cache.pages), (stats.frees, 0));
}

/// Each page of a range is freed as a single page.
#[test]
fn ranges_count_as_single_pages_allocated_and_freed() {
    fn check<P: StaticPolicy + Send + Sync + 'static>() {
        let yard = builder(64 * MIB).tick(None).build_with::<P>().unwrap();
        let single = || (yard.stats().allocs[0], yard.stats().frees[0]);
        let ranges = [1, 3, 700, 5000].map(|pages| yard.alloc_range(pages, 1, QUIET).unwrap());
        assert_eq!(single(), (5704, 0), "{}", P::NAME);
        // Not a page of it is free where it was.
        assert!(yard.alloc_range(16_000, 1, QUIET).is_err());
        assert_eq!(single(), (5704, 0), "{}", P::NAME);
        drop(ranges);
        assert_eq!(single(), (5704, 5704), "{}", P::NAME);
    }
    check::<Packed>();
    check::<Linux612>();
}

/// A reader takes a counter that decreases for a restart of the program.
#[test]
fn request_counts_never_decrease_while_threads_work() {
    let yard = builder(64 * MIB).tick(None).build().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let requests = std::thread::scope(|s| {
        let work = || {
            let mut n = 0;
            while !done.load(relaxed) {
                n += fill(&yard, 150).len() as u64;
            }
            n
        };
        let threads = [(); 2].map(|()| s.spawn(work));
        let mut before = yard.stats();
        for _ in 0..300 {
            let now = yard.stats();
            let grow = |now: &[u64], before: &[u64]| now.iter().zip(before).all(|(n, b)| n >= b);
            assert!(grow(&now.allocs, &before.allocs), "{now:?}\n{before:?}");
            assert!(grow(&now.frees, &before.frees), "{now:?}\n{before:?}");
            before = now;
        }
        done.store(true, relaxed);
        threads.map(|t| t.join().unwrap()).iter().sum::<u64>()
    });
    let stats = yard.stats();
    assert_eq!((stats.allocs[0], stats.frees[0]), (requests, requests));
}

#[cfg(feature = "prometheus")]
#[test]
fn a_text_for_prometheus() {
    // Without pages that the thread caches, which count as in use.
    let yard = builder(64 * MIB).tick(None).thread_cache(pageyard_host::ThreadCache::Off);
    let yard = yard.build().unwrap();
    let blocks = fill(&yard, 10);
    let mut text = String::new();
    yard.stats().write_prometheus(&mut text).unwrap();
    assert!(text.contains("\npageyard_used_bytes 40960\n"), "{text}");
    assert!(text.contains("\npageyard_allocs_total{order=\"0\"} 10\n"), "{text}");
    assert!(text.contains("\npageyard_frees_total{order=\"0\"} 0\n"), "{text}");
    assert!(text.contains("\npageyard_thread_cache_hits_total 0\n"), "{text}");
    assert!(text.contains("\npageyard_zone_failures_total{node=\"0\",zone=\"Normal\"} 0\n"));
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("pageyard_") && value.parse::<u64>().is_ok(), "{line}");
        let bare = name.split('{').next().unwrap();
        assert!(text.contains(&format!("# TYPE {bare} ")), "{bare}");
    }
    drop(blocks);
}

/// Its offset would name bytes of another block in this yard's file.
#[test]
#[should_panic(expected = "the block is another yard's")]
fn an_offset_of_another_yards_block_is_rejected() {
    let yard = || builder(16 * MIB).backing(Backing::Memfd).build().unwrap();
    let (one, other): (HostYard, HostYard) = (yard(), yard());
    let block = other.alloc(order(0), QUIET).unwrap();
    one.offset(&block);
}
