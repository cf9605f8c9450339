//! What happens in the background: memory goes back when it is idle, shrinkers and relocators are
//! asked, limits hold, pressure is told. Tests that wait do so for a state, for a minute at most.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use pageyard::{ContigError, Gfp, HotplugError, Order, Pfn, ReclaimJob, Relocation, SECTION_PAGES};
use pageyard_host::{
    Backing, Block, Builder, Cause, GiveBack, HostYard, HugePages, HugeSize, Level, LimitError,
    Limits, Moving, Relocator, SystemFiles, Watching,
};

const MIB: u64 = 1 << 20;
const QUIET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn builder(size: u64) -> Builder {
    Builder::new(size).huge_pages(HugePages::Never).system(SystemFiles::none())
}

/// Until it holds; whether it did within a minute.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A yard that lives as long as the process, as shrinkers that keep its blocks want it.
fn forever(builder: Builder) -> &'static HostYard {
    Box::leak(Box::new(builder.build().unwrap()))
}

fn fill(yard: &HostYard, pages: u64) -> Vec<Block<'_>> {
    let one = |_| {
        let mut block = yard.alloc(order(0), QUIET).unwrap();
        block[0] = 1;
        block
    };
    (0..pages).map(one).collect()
}

#[test]
fn idle_memory_is_returned_and_refaulted() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let yard = builder(256 * MIB).backing(backing).build().unwrap();
        let blocks = fill(&yard, 50_000);
        assert!(yard.resident().unwrap() >= 50_000);
        drop(blocks);
        assert!(until(|| yard.resident().unwrap() <= 2500), "95%: {:?}", yard.status());
        assert!(until(|| yard.status().given_back >= 47_500), "{:?}", yard.status());
        let status = yard.status();
        assert!(status.worker && status.keeps.is_none());
        assert!(until(|| yard.status().target < 1000), "{:?}", yard.status());
        // What comes again is zero, and whole.
        let blocks = fill(&yard, 50_000);
        assert!(blocks.iter().all(|b| b[0] == 1));
        assert!(yard.status().fetched >= 40_000);
    }
}

#[test]
fn memory_in_use_is_never_returned() {
    let how = GiveBack { after: Duration::from_millis(1), ..GiveBack::default() };
    let yard: HostYard = builder(128 * MIB)
        .give_back(Some(how))
        .tick(Some(Duration::from_millis(5)))
        .build()
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 1..=2u64 {
            let (yard, stop) = (&yard, &stop);
            s.spawn(move || {
                let mut held: Vec<(Block<'_>, u64)> = Vec::new();
                let mut draw = thread;
                while !stop.load(SeqCst) {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let n = (draw >> 40) as u8 % 11;
                    if let Ok(mut block) = yard.alloc(order(n), QUIET) {
                        let at = (draw >> 20) as usize % (block.len() / 8) * 8;
                        block[at..at + 8].copy_from_slice(&draw.to_le_bytes());
                        held.push((block, draw));
                    }
                    while held.len() > (draw >> 50) as usize % 12 {
                        let (block, draw) = held.swap_remove(0);
                        let at = (draw >> 20) as usize % (block.len() / 8) * 8;
                        assert_eq!(block[at..at + 8], draw.to_le_bytes());
                    }
                }
            });
        }
        let worked = until(|| {
            yard.wake_worker();
            let status = yard.status();
            status.given_back > 200_000 && status.fetched > 1000
        });
        stop.store(true, SeqCst);
        assert!(worked, "{:?}", yard.status());
    });
}

#[test]
fn the_floor_is_kept_and_a_disabled_give_back_is_reported() {
    let how = GiveBack { floor: 32 * MIB, ..GiveBack::default() };
    let yard = builder(128 * MIB).give_back(Some(how)).prefault(true).build().unwrap();
    assert!(until(|| yard.resident().unwrap() <= 8192 + 1024));
    for _ in 0..5 {
        yard.wake_worker();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(yard.resident().unwrap() >= 8192);
    let keeps = |b: Builder| {
        let yard = b.build().unwrap();
        let says = || yard.status().keeps.unwrap();
        assert!(until(|| says() != "no worker has begun"));
        says()
    };
    assert_eq!(keeps(builder(16 * MIB).give_back(None)), "disabled");
    assert_eq!(keeps(builder(16 * MIB).prefault(true)), "all memory is prefaulted");
}

#[test]
fn an_embedders_own_thread_is_the_worker() {
    let yard = builder(64 * MIB).tick(None).build().unwrap();
    assert!(!yard.status().worker);
    drop(fill(&yard, 10_000));
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| yard.worker().unwrap().run(&stop));
        assert!(until(|| yard.status().worker));
        assert!(yard.worker().is_none(), "one at a time");
        assert!(until(|| yard.resident().unwrap() < 500));
        stop.store(true, SeqCst);
        yard.wake_worker();
    });
    assert!(!yard.status().worker);
    let mut worker = yard.worker().unwrap();
    assert!(worker.step() <= Duration::from_secs(1));
}

/// The end of the clock is not reached by adding.
/// The thread of a yard's own worker has the claim before it first runs. A caller that asked for the
/// worker then became it, and left the yard without one.
#[test]
fn the_yards_own_thread_is_the_worker_from_the_start() {
    for _ in 0..20 {
        let yard = builder(32 * MIB).tick(Some(Duration::from_millis(1))).build().unwrap();
        assert!(yard.status().worker && yard.worker().is_none());
        assert!(until(|| yard.status().ticks > 0));
    }
}

#[test]
fn a_worker_that_never_ticks_works() {
    let how = GiveBack { after: Duration::ZERO, ..GiveBack::default() };
    for every in [Duration::from_nanos(u64::MAX), Duration::MAX] {
        let yard = builder(64 * MIB).tick(Some(every)).give_back(Some(how)).build().unwrap();
        drop(fill(&yard, 3000));
        yard.drain();
        assert!(until(|| yard.status().given_back > 1024), "{:?}", yard.status());
        assert_eq!(yard.status().ticks, 0);
    }
}

/// A cache that gives up its blocks when asked.
struct Cache {
    blocks: Arc<Mutex<Vec<Block<'static>>>>,
    asked: Arc<AtomicU64>,
}

impl Cache {
    fn new() -> Cache {
        Cache { blocks: Arc::default(), asked: Arc::default() }
    }

    fn share(&self) -> Cache {
        Cache { blocks: self.blocks.clone(), asked: self.asked.clone() }
    }
}

impl pageyard_host::Shrinker for Cache {
    fn count(&self) -> u64 {
        self.blocks.try_lock().map_or(0, |b| b.len() as u64)
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        self.asked.fetch_add(1, Relaxed);
        let Ok(mut blocks) = self.blocks.try_lock() else { return 0 };
        let keep = blocks.len().saturating_sub(job.pages as usize);
        blocks.split_off(keep).len() as u64
    }
}

#[test]
fn a_shrinker_yields_to_requests() {
    let yard = forever(builder(64 * MIB).give_back(None).tick(None));
    let cache = Cache::new();
    let registered = yard.register_shrinker(cache.share());
    while let Ok(block) = yard.alloc(order(0), QUIET & !Gfp::RECLAIM) {
        cache.blocks.lock().unwrap().push(block);
    }
    let full = cache.blocks.lock().unwrap().len();
    assert!(full > 15_000);
    // Without reclaim there is none; with it there is, as long as the cache has something.
    assert!(yard.alloc(order(0), QUIET & !Gfp::RECLAIM).is_err());
    let blocks = fill(yard, 5000);
    assert!(cache.blocks.lock().unwrap().len() <= full - 4000);
    assert!(yard.status().shrunk_directly >= 4000 && yard.status().shrunk == 0);
    drop(registered);
    let asked = cache.asked.load(Relaxed);
    let mut rest = Vec::new();
    while let Ok(block) = yard.alloc(order(0), QUIET) {
        rest.push(block);
    }
    assert_eq!(cache.asked.load(Relaxed), asked, "not after its end");
    drop((blocks, rest));
}

#[test]
fn background_reclaim_keeps_memory_free() {
    let yard = forever(builder(64 * MIB).give_back(None));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    let high = yard.zones().map(|z| yard.zone_info(z).unwrap().watermarks[2]).sum::<u64>();
    let free = || yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    // A user that never waits: only the worker can make room.
    let done = until(|| {
        for _ in 0..200 {
            if let Ok(block) = yard.alloc(order(0), Gfp::NOWAIT) {
                cache.blocks.lock().unwrap().push(block);
            }
        }
        yard.status().shrunk > 1000
    });
    assert!(done, "{:?}", yard.status());
    assert!(until(|| free() >= high), "{} of {high}", free());
    assert_eq!(yard.status().shrunk_directly, 0);
}

#[test]
fn the_soft_limit_is_kept_by_shrinkers_and_reported() {
    let yard = forever(builder(64 * MIB).soft_limit(16 * MIB).give_back(None));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    let tell = told.clone();
    let listener = yard.on_pressure(move |e| tell.lock().unwrap().push(e.clone()));
    cache.blocks.lock().unwrap().extend(fill(yard, 6000));
    assert!(until(|| yard.status().used <= 4096), "{:?}", yard.status());
    assert!(until(|| yard.pressure() == Level::Calm));
    let told = told.lock().unwrap();
    let first = told.first().unwrap();
    assert_eq!((first.level, first.before), (Level::Moderate, Level::Calm));
    assert_eq!((first.causes.as_slice(), first.soft), (&[Cause::SoftLimit][..], Some(4096)));
    assert!(first.used > 4096);
    assert_eq!(told.last().unwrap().level, Level::Calm);
    drop(listener);
}

#[test]
fn the_hard_limit_holds_and_its_reserve_is_for_critical_requests() {
    let yard = builder(64 * MIB).hard_limit(16 * MIB).tick(None).build().unwrap();
    assert_eq!(yard.status().kept, (64 - 16) * 256);
    let mut held = Vec::new();
    let mut take = |gfp| {
        let before = held.len() as u64;
        while let Ok(block) = yard.alloc(order(0), gfp) {
            held.push(block);
        }
        held.len() as u64 - before
    };
    let min = yard.zones().map(|z| yard.zone_info(z).unwrap().watermarks[0]).sum::<u64>();
    let ordinary = take(QUIET);
    assert!(ordinary <= 4096 - min && ordinary + min + 64 >= 4096, "{ordinary} and {min}");
    assert!(take(QUIET | Gfp::HIGH) > 0, "urgent ones go on");
    assert!(take(QUIET | Gfp::MEMALLOC) > 0, "whoever frees memory goes to the end");
    assert_eq!(held.len(), 4096);
    assert_eq!(yard.status().used, 4096);
    let mut worker = yard.worker().unwrap();
    worker.step();
    assert_eq!(yard.pressure(), Level::Critical);
    // More for all, and less for all.
    let (hard, soft) = (Some(8192), None);
    assert_eq!(yard.set_limits(Limits { hard, soft }), Ok(true));
    assert!(yard.alloc(order(0), QUIET).is_ok());
    assert_eq!(yard.set_limits(Limits { hard: Some(2048), soft }), Ok(false));
    assert!(yard.alloc(order(0), QUIET | Gfp::MEMALLOC).is_err());
    held.truncate(1000);
    yard.drain();
    worker.step();
    assert_eq!(yard.status().kept, 14_336);
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    assert_eq!(yard.status().kept, 0);
    worker.step();
    assert_eq!(yard.pressure(), Level::Calm);
    drop(held);
    yard.drain();
    assert!((0..8).map(|_| yard.alloc(order(10), QUIET)).all(|b| b.is_ok()));
    let few = Limits { hard: Some(10), soft: None };
    assert!(matches!(yard.set_limits(few), Err(LimitError::Hard { given: 10, .. })));
    assert_eq!(yard.limits(), Limits::default());
}

#[test]
fn movable_blocks_keep_their_contents() {
    let yard = builder(64 * MIB).give_back(None).tick(None).build().unwrap();
    let mut all = Vec::new();
    while let Ok(block) = yard.alloc_movable(order(0), QUIET & !Gfp::RECLAIM) {
        block.lock()[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
        all.push((all.len() as u64, block));
    }
    // Every eighth page stays: no large block is free.
    all.retain(|(n, _)| n % 8 == 0);
    yard.drain();
    let mut large = Vec::new();
    while let Ok(block) = yard.alloc(order(9), QUIET & !Gfp::RECLAIM) {
        large.push(block);
    }
    assert!(large.len() < 3, "those that were kept as a reserve, if any: {}", large.len());
    // One that somebody looks at stays where it is.
    let (first, rest) = all.split_first().unwrap();
    let pinned = first.1.lock();
    let at = pinned.pfn();
    yard.compact();
    let block = yard.alloc(order(9), QUIET);
    assert!(block.is_ok(), "{:?}", yard.status());
    drop(large);
    assert_eq!(pinned.pfn(), at);
    assert!(yard.status().moved > 0);
    for (n, block) in rest {
        assert_eq!(block.lock()[..8], n.to_le_bytes());
    }
    drop(pinned);
    drop((block, all));
    yard.drain();
    let free = yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    assert_eq!(free, 16_384);
}

/// Owns blocks of two pages by number, with the key of each in its last word.
struct Numbered(&'static Mutex<HashMap<Pfn, u64>>);

#[allow(unsafe_code)]
// SAFETY: a block is copied and renumbered under the lock by which its owner finds it.
unsafe impl Relocator for Numbered {
    fn relocate(&self, block: &Moving) -> Relocation {
        let Ok(mut pages) = self.0.try_lock() else { return Relocation::Busy };
        if block.order() != order(1) {
            return Relocation::Refused;
        }
        let Some(key) = pages.remove(&block.from()) else { return Relocation::Refused };
        // SAFETY: only the owner of the lock accesses the block, whose last word is the key.
        let keys = unsafe {
            block.copy();
            let last = |at: NonNull<u8>| at.cast::<u64>().add(1023).read();
            (last(block.old()), last(block.new_place()))
        };
        assert_eq!(keys, (key, key));
        pages.insert(block.to(), key);
        Relocation::Moved
    }
}

#[test]
#[allow(unsafe_code)]
fn a_relocator_moves_the_blocks_it_owns_by_number() {
    let yard = forever(builder(64 * MIB).give_back(None).tick(None));
    let pages: &'static Mutex<HashMap<_, _>> = Box::leak(Box::default());
    yard.register_relocator(Numbered(pages)).keep();
    let movable = (QUIET & !Gfp::RECLAIM) | Gfp::MOVABLE;
    let mut key = 0u64;
    let mut freed = Vec::new();
    while let Ok(mut block) = yard.alloc(order(1), movable) {
        key += 1;
        if !key.is_multiple_of(8) {
            freed.push(block);
            continue;
        }
        block[8184..].copy_from_slice(&key.to_ne_bytes());
        let (pfn, size) = block.into_raw();
        // SAFETY: the relocator owns the block.
        unsafe { yard.core() }.set_movable(pfn, size, true).unwrap();
        pages.lock().unwrap().insert(pfn, key);
    }
    drop(freed);
    yard.compact();
    assert!(yard.status().moved > 250, "{:?}", yard.status());
    // No block is lost, and each had its contents.
    let pages = pages.lock().unwrap();
    assert_eq!(pages.len() as u64, key / 8);
    assert_eq!(yard.status().used, key / 8 * 2);
    let large: Vec<_> =
        std::iter::from_fn(|| yard.alloc(order(9), QUIET & !Gfp::RECLAIM).ok()).collect();
    assert!(large.len() > 20, "{}", large.len());
}

/// A step above the soft limit calls each shrinker once, and rests for 75 ms at least.
#[test]
fn a_worker_sleeps_between_its_steps() {
    let yard = forever(builder(16 * MIB).soft_limit(MIB).give_back(None).tick(None));
    let _blocks = fill(yard, 300);
    let calls = Arc::new(AtomicU64::new(0));
    let called = calls.clone();
    let shrink = move |_: &ReclaimJob| {
        called.fetch_add(1, Relaxed);
        0
    };
    let _registered = yard.register_shrinker(shrink);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let begun = Instant::now();
        s.spawn(|| yard.worker().unwrap().run(&stop));
        let worked = until(|| calls.load(Relaxed) >= 5);
        let (calls, rests) = (calls.load(Relaxed), begun.elapsed().as_millis() as u64 / 75);
        stop.store(true, SeqCst);
        yard.wake_worker();
        assert!(worked);
        // A tick may be due in between.
        assert!(calls <= 2 + rests + rests / 10, "{calls} steps for {rests} rests");
    });
}

/// Dropping a yard waits for its worker, which uses what the yard's callbacks own.
#[test]
fn a_dropped_yard_has_no_worker_left() {
    for _ in 0..20 {
        let yard: HostYard = builder(16 * MIB).build().unwrap();
        let owned = Arc::new(());
        let held = owned.clone();
        let shrink = move |_: &ReclaimJob| Arc::strong_count(&held) as u64 / 1000;
        yard.register_shrinker(shrink).keep();
        assert!(until(|| yard.status().worker));
        drop(yard);
        assert_eq!(Arc::strong_count(&owned), 1);
    }
}

#[test]
fn a_memfd_yard_is_shared_with_another_mapping() {
    use std::os::unix::fs::FileExt;
    let yard = builder(16 * MIB).backing(Backing::Memfd).build().unwrap();
    let mut block = yard.alloc(order(1), QUIET).unwrap();
    block[4096..4100].copy_from_slice(b"page");
    #[allow(unsafe_code)]
    // SAFETY: it is only read, or written where this test borrows nothing.
    let fd = unsafe { yard.fd() }.unwrap();
    let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
    let mut seen = [0; 4];
    file.read_exact_at(&mut seen, yard.offset(&block) + 4096).unwrap();
    assert_eq!(&seen, b"page");
    let at = yard.offset(&block);
    let (pfn, order) = block.into_raw();
    file.write_all_at(b"from elsewhere", at).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: given up just now.
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
    assert!(wrong.to_string().contains("not a multiple"), "a mistake is not hidden: {wrong}");
    #[allow(unsafe_code)]
    // SAFETY: nothing is done with it.
    let has_file = unsafe { yard.fd() }.is_some();
    assert!(has_file);
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
fn a_group_near_its_limit_calls_shrinkers() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        // Whole or not at all: the worker reads it meanwhile.
        let new = dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, dir.path().join(name)).unwrap();
    };
    write("memory.max", "1000000\n");
    write("memory.current", "100000\n");
    let files = SystemFiles {
        pressure: Some("/nowhere".into()),
        group: Some(dir.path().into()),
        group_root: dir.path().into(),
    };
    let yard = forever(builder(64 * MIB).system(files));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    cache.blocks.lock().unwrap().extend(fill(yard, 8000));
    assert!(until(|| yard.status().worker));
    let status = yard.status();
    assert_eq!(status.group, Watching::File(dir.path().into()));
    assert!(matches!(status.stalls, Watching::Not(why) if why.contains("/nowhere")));
    assert_eq!((status.level, status.shrunk), (Level::Calm, 0));
    write("memory.current", "990000\n");
    assert!(until(|| yard.pressure() == Level::Critical));
    assert!(until(|| yard.status().shrunk > 4000 && yard.resident().unwrap() < 6000));
    write("memory.current", "100000\n");
    assert!(until(|| yard.pressure() == Level::Calm));
}

/// How many pages a step of the worker asks the shrinkers for.
#[test]
fn shrinkers_are_asked_for_a_share_of_used_memory() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("memory.max", "1000000\n");
    write("memory.current", "100000\n");
    let files = SystemFiles {
        pressure: None,
        group: Some(dir.path().into()),
        group_root: dir.path().into(),
    };
    let builder = builder(64 * MIB).system(files).soft_limit(32 * MIB).give_back(None);
    let yard = forever(builder.tick(None).thread_cache(pageyard_host::ThreadCache::Off));
    let asked: Arc<Mutex<Vec<u64>>> = Arc::default();
    let jobs = asked.clone();
    yard.register_shrinker(move |job: &ReclaimJob| {
        jobs.lock().unwrap().push(job.pages);
        0
    })
    .keep();
    let mut worker = yard.worker().unwrap();
    let mut step = || {
        worker.step();
        std::mem::take(&mut *asked.lock().unwrap())
    };
    let mut blocks = fill(yard, 6420);
    blocks.truncate(6400);
    assert!(step().is_empty());
    let cached = || yard.stats().zones.iter().map(|z| z.cached).sum::<u64>();
    assert!(cached() > 0);
    write("memory.current", "990000\n");
    assert_eq!(step(), [400], "a 16th, where the group is about to be killed");
    assert_eq!(cached(), 0, "the CPUs' lists are drained");
    assert_eq!(yard.pressure(), Level::Critical);
    write("memory.current", "950000\n");
    assert_eq!(step(), [100], "a 64th");
    // What is over the soft limit, where that is more.
    blocks.extend(fill(yard, 2000));
    assert_eq!(step(), [208]);
    write("memory.current", "990000\n");
    assert_eq!(step(), [525]);
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

#[cfg(feature = "prometheus")]
#[test]
fn a_text_for_prometheus() {
    // Without pages that the thread keeps, which are in use too.
    let yard = builder(64 * MIB).tick(None).thread_cache(pageyard_host::ThreadCache::Off);
    let yard = yard.build().unwrap();
    let blocks = fill(&yard, 10);
    let mut text = String::new();
    yard.stats().write_prometheus(&mut text).unwrap();
    assert!(text.contains("\npageyard_used_bytes 40960\n"), "{text}");
    assert!(text.contains("\npageyard_zone_failures_total{node=\"0\",zone=\"Normal\"} 0\n"));
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("pageyard_") && value.parse::<u64>().is_ok(), "{line}");
        let bare = name.split('{').next().unwrap();
        assert!(text.contains(&format!("# TYPE {bare} ")), "{bare}");
    }
    drop(blocks);
}

#[test]
fn sections_go_offline_and_online() {
    let yard = builder(256 * MIB).tick(None).give_back(None).build().unwrap();
    let managed = || yard.zones().map(|z| yard.zone_info(z).unwrap().managed).sum::<u64>();
    let all = managed();
    let blocks = fill(&yard, 60_000);
    let resident = yard.resident().unwrap();
    let second = second_section();
    assert!(matches!(yard.offline(second.clone()), Err(HotplugError::Refused(_))), "it is in use");
    assert_eq!(managed(), all);
    // What may be moved is no hindrance.
    drop(blocks);
    let mut movable: Vec<_> =
        (0..200).map(|_| yard.alloc_movable(order(5), QUIET).unwrap()).collect();
    for (n, m) in movable.iter_mut().enumerate() {
        m.lock()[77] = n as u8;
    }
    yard.offline(second.clone()).unwrap();
    assert_eq!(managed(), all - SECTION_PAGES);
    assert!(yard.resident().unwrap() < resident - 20_000);
    yard.validate().unwrap();
    for (n, m) in movable.iter().enumerate() {
        let bytes = m.lock();
        assert!(bytes[77] == n as u8 && !second.contains(&bytes.pfn()));
    }
    assert!(matches!(yard.offline(second.clone()), Err(HotplugError::Hole(_))));
    yard.online(second.clone()).unwrap();
    assert_eq!(managed(), all);
    assert!(matches!(yard.online(second), Err(HotplugError::Present(_))));
    drop(movable);
    assert!(fill(&yard, 60_000).iter().all(|b| b[0] == 1));
    yard.set_knob("watermark_scale_factor", "100").unwrap();
    assert!(yard.set_knob("watermark_scale_factor", "0").is_err());
    yard.validate().unwrap();
}

/// The second section of a yard.
fn second_section() -> std::ops::Range<Pfn> {
    let first = pageyard_host::Region::FIRST.0 + SECTION_PAGES;
    Pfn(first)..Pfn(first + SECTION_PAGES)
}

#[test]
fn a_hard_limit_does_not_count_memory_that_is_offline() {
    let yard = builder(256 * MIB).tick(None).give_back(None).build().unwrap();
    let section = second_section();
    let limits = Limits { hard: Some(8192), soft: None };
    let most = || {
        let mut held = Vec::new();
        while let Ok(block) = yard.alloc(order(0), QUIET | Gfp::MEMALLOC) {
            held.push(block);
        }
        held.len()
    };
    yard.offline(section.clone()).unwrap();
    assert_eq!(yard.set_limits(limits), Ok(true));
    assert_eq!(most(), 8192, "a section is offline");
    // What comes is kept, and what was kept may go.
    yard.online(section.clone()).unwrap();
    assert_eq!(most(), 8192, "it is back");
    assert_eq!(yard.status().kept, 2 * SECTION_PAGES - 8192);
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    yard.offline(section).unwrap();
    assert_eq!(yard.status().kept, 0);
}

#[test]
fn offlining_from_a_relocator_is_rejected() {
    struct Nested {
        yard: &'static HostYard,
        seen: Arc<Mutex<Vec<HotplugError>>>,
    }
    #[allow(unsafe_code)]
    // SAFETY: nothing is moved.
    unsafe impl Relocator for Nested {
        fn relocate(&self, _: &Moving) -> Relocation {
            let section = second_section();
            let nested = [self.yard.offline(section.clone()), self.yard.online(section)];
            self.seen.lock().unwrap().extend(nested.into_iter().filter_map(Result::err));
            Relocation::Refused
        }
    }
    let yard = forever(builder(256 * MIB).tick(None).give_back(None));
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    yard.register_relocator(Nested { yard, seen: seen.clone() }).keep();
    let inside = |b: &Block<'_>| second_section().contains(&b.pfn());
    let blocks: Vec<_> = std::iter::from_fn(|| yard.alloc(order(10), QUIET).ok()).collect();
    let block = blocks.into_iter().find(inside).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: the block stays where it is.
    unsafe { yard.core() }.set_movable(block.pfn(), block.order(), true).unwrap();
    // A thread of its own, since it once waited for itself.
    let offline = std::thread::spawn(move || yard.offline(second_section()));
    assert!(until(|| offline.is_finished()), "it waits for itself");
    assert!(offline.join().unwrap().is_err());
    let busy = HotplugError::Refused(ContigError::Busy(second_section().start));
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|e| *e == busy), "{seen:?}");
    drop(block);
}

/// The guard keeps the lock for good, and the owner does not wait for it.
#[test]
fn a_movable_block_whose_guard_is_forgotten_can_be_dropped() {
    let yard = forever(builder(64 * MIB).tick(None));
    let used = yard.status().used;
    let movable = yard.alloc_movable(order(3), QUIET).unwrap();
    std::mem::forget(movable.lock());
    yard.compact();
    assert_eq!(yard.status().moved, 0, "it stays where the guard's bytes are");
    assert_eq!(yard.status().used, used + 8);
    let dropped = std::thread::spawn(move || drop(movable));
    assert!(until(|| dropped.is_finished()), "the drop waits for the guard");
    dropped.join().unwrap();
    yard.drain();
    assert_eq!(yard.status().used, used);
    yard.compact();
    yard.validate().unwrap();
}

/// A count that allocates on a full yard asks for no other count.
#[test]
fn a_shrinkers_own_allocation_does_not_call_shrinkers() {
    thread_local! {
        static DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    struct Greedy(&'static HostYard, Arc<AtomicU64>);
    impl Greedy {
        fn allocate(&self) {
            let depth = DEPTH.replace(DEPTH.get() + 1);
            self.1.fetch_max(depth.into(), Relaxed);
            if depth < 10 {
                drop(self.0.alloc(order(0), QUIET));
            }
            DEPTH.set(depth);
        }
    }
    impl pageyard_host::Shrinker for Greedy {
        fn count(&self) -> u64 {
            self.allocate();
            1
        }
        fn shrink(&self, _: &ReclaimJob) -> u64 {
            self.allocate();
            0
        }
    }
    let yard = forever(builder(16 * MIB).tick(None));
    let deepest = Arc::<AtomicU64>::default();
    let mut held = Vec::new();
    while let Ok(block) = yard.alloc(order(0), QUIET | Gfp::MEMALLOC) {
        held.push(block);
    }
    yard.register_shrinker(Greedy(yard, deepest.clone())).keep();
    assert!(yard.alloc(order(0), QUIET).is_err());
    assert!(yard.alloc(order(3), QUIET).is_err());
    yard.worker().unwrap().step();
    assert_eq!(deepest.load(Relaxed), 0);
}

#[test]
fn a_panicking_shrinker_does_not_affect_the_request() {
    struct Wrong(bool);
    impl pageyard_host::Shrinker for Wrong {
        fn count(&self) -> u64 {
            assert!(!self.0, "planted: count");
            100
        }
        fn shrink(&self, _: &ReclaimJob) -> u64 {
            panic!("planted: shrink")
        }
    }
    let yard = forever(builder(16 * MIB).tick(None));
    yard.register_shrinker(Wrong(true)).keep();
    yard.register_shrinker(Wrong(false)).keep();
    let mut held = Vec::new();
    while let Ok(block) = yard.alloc(order(0), QUIET) {
        held.push(block);
    }
    // The thread is no reclaimer afterwards: the reserves are not its.
    assert!(yard.alloc(order(0), QUIET).is_err());
    let free = yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    assert!(free > 0, "the reserves");
    // Nor is the worker's, which goes on.
    let mut worker = yard.worker().unwrap();
    worker.step();
    assert!(yard.alloc(order(0), QUIET).is_err());
    held.truncate(1000);
    assert!(yard.alloc(order(0), QUIET).is_ok());
    yard.drain();
    yard.validate().unwrap();
}

#[test]
fn a_panicking_listener_does_not_end_the_worker() {
    let yard = forever(builder(64 * MIB).soft_limit(16 * MIB).give_back(None).tick(None));
    yard.on_pressure(|_| panic!("planted: listener")).keep();
    let told = Arc::<AtomicU64>::default();
    let tell = told.clone();
    yard.on_pressure(move |_| _ = tell.fetch_add(1, Relaxed)).keep();
    let mut worker = yard.worker().unwrap();
    let blocks = fill(yard, 6000);
    worker.step();
    assert_eq!((told.load(Relaxed), yard.pressure()), (1, Level::Moderate));
    drop(blocks);
    yard.drain();
    worker.step();
    assert_eq!((told.load(Relaxed), yard.pressure()), (2, Level::Calm));
}

/// Its count is the default, and each call gives up a little.
#[test]
fn a_shrinker_of_unknown_count_is_called_until_it_frees_enough() {
    let yard = forever(builder(64 * MIB).tick(None).give_back(None));
    let mut held = Vec::new();
    while let Ok(block) = yard.alloc(order(0), QUIET | Gfp::MEMALLOC) {
        held.push(block);
    }
    let (held, calls) = (Arc::new(Mutex::new(held)), Arc::<AtomicU64>::default());
    let (cache, counts) = (held.clone(), calls.clone());
    yard.register_shrinker(move |_: &ReclaimJob| {
        counts.fetch_add(1, Relaxed);
        let mut cache = cache.lock().unwrap();
        let left = cache.len() - 32;
        cache.truncate(left);
        32
    })
    .keep();
    let block = yard.alloc(order(0), QUIET);
    assert!(block.is_ok() && calls.load(Relaxed) > 1, "{calls:?} calls: {:?}", block.err());
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

/// A drop waits for callbacks, but not from within one: another worker's callback may be waiting for
/// this one.
#[test]
fn two_workers_dropping_each_others_yard_both_terminate() {
    let yard = || builder(64 * MIB).soft_limit(16 * MIB).give_back(None).build().unwrap();
    let yards: [Arc<Mutex<Option<HostYard>>>; 2] =
        std::array::from_fn(|_| Arc::new(Mutex::new(Some(yard()))));
    let (both, dropped) = (Arc::new(Barrier::new(2)), Arc::<AtomicU64>::default());
    for (mine, other) in [(0, 1), (1, 0)] {
        let (other, both, dropped) = (yards[other].clone(), both.clone(), dropped.clone());
        let slot = yards[mine].lock().unwrap();
        let yard = slot.as_ref().unwrap();
        yard.on_pressure(move |_| {
            both.wait();
            let yard = other.lock().unwrap().take();
            // Until both have one: then neither worker can end.
            both.wait();
            drop(yard);
            dropped.fetch_add(1, Relaxed);
        })
        .keep();
        std::mem::forget(fill(yard, 6000));
    }
    assert!(until(|| dropped.load(Relaxed) == 2), "they wait for each other");
}

/// The block stays where it was, and the pass goes on and gives its places back.
#[test]
fn a_panicking_relocator_leaks_nothing() {
    struct Wrong(Arc<AtomicU64>);
    #[allow(unsafe_code)]
    // SAFETY: nothing is moved.
    unsafe impl Relocator for Wrong {
        fn relocate(&self, _: &Moving) -> Relocation {
            self.0.fetch_add(1, Relaxed);
            panic!("planted: relocator")
        }
    }
    let yard = forever(builder(64 * MIB).tick(None).give_back(None));
    let asked = Arc::<AtomicU64>::default();
    yard.register_relocator(Wrong(asked.clone())).keep();
    let mut blocks: Vec<_> =
        std::iter::from_fn(|| yard.alloc(order(0), QUIET | Gfp::MOVABLE).ok()).collect();
    let mut n = 0;
    blocks.retain(|_| {
        n += 1;
        n % 8 == 0
    });
    for block in &blocks {
        #[allow(unsafe_code)]
        // SAFETY: the block stays where it is.
        unsafe { yard.core() }.set_movable(block.pfn(), block.order(), true).unwrap();
    }
    let held = blocks.len() as u64;
    yard.compact();
    assert!(asked.load(Relaxed) > 0);
    yard.validate().unwrap();
    assert_eq!(yard.status().used, held);
    drop(blocks);
    yard.drain();
    assert_eq!(yard.status().used, 0);
    yard.validate().unwrap();
}

/// Pages of the mapping that holds an address that the system may take at any time (`LazyFree`).
fn lazy_pages(address: *const u8) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let range = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |n| usize::from_str_radix(n, 16).ok();
        Some(hex(from)?..hex(to)?)
    };
    let holds = |line: &&str| range(line).is_some_and(|r| r.contains(&address.addr()));
    let lines = text.lines().skip_while(|line| !holds(line));
    let mut sizes = lines.filter_map(|line| line.strip_prefix("LazyFree:")?.strip_suffix(" kB"));
    sizes.next().unwrap().trim().parse::<u64>().unwrap() / 4
}

#[test]
fn lazily_freed_pages_are_reclaimed_before_allocation() {
    type Held = Box<dyn std::any::Any>;
    fn blocks(yard: &'static HostYard, n: u8, count: usize) -> Held {
        Box::new((0..count).map(|_| yard.alloc(order(n), QUIET).unwrap()).collect::<Vec<_>>())
    }
    fn bulk(yard: &'static HostYard) -> Held {
        let mut blocks = Vec::new();
        assert_eq!(yard.alloc_bulk(12_000, QUIET, &mut blocks), Ok(12_000));
        Box::new(blocks)
    }
    fn range(yard: &'static HostYard) -> Held {
        Box::new(yard.alloc_range(10_000, 1, QUIET).unwrap())
    }
    let how = GiveBack { lazily: true, after: Duration::ZERO, ..GiveBack::default() };
    let yard = forever(builder(64 * MIB).give_back(Some(how)).tick(None));
    let mut worker = yard.worker().unwrap();
    let mut give_back = || {
        let blocks = fill(yard, 12_000);
        let at = blocks[0].as_ptr().as_ptr();
        drop(blocks);
        yard.drain();
        let mut given = || {
            worker.step();
            lazy_pages(at) > 8000
        };
        assert!(until(&mut given), "{:?}", yard.status());
        at
    };
    // In every way there is, and without a write to any of them.
    let ways: [(u64, &dyn Fn() -> Held); 4] = [
        (12_000, &|| blocks(yard, 0, 12_000)),
        (12 << 10, &|| blocks(yard, 10, 12)),
        (12_000, &|| bulk(yard)),
        (10_000, &|| range(yard)),
    ];
    for (n, (pages, take)) in ways.into_iter().enumerate() {
        let at = give_back();
        let held = take();
        let (left, free) = (lazy_pages(at), 16_384 - pages);
        assert!(left <= free, "way {n}: the system may take {left} pages, of {free} that are free");
        drop(held);
    }
    // And what is to be zero is zero.
    give_back();
    let zeros = QUIET | Gfp::ZERO;
    let blocks: Vec<_> = (0..10_000).map(|_| yard.alloc(order(0), zeros).unwrap()).collect();
    assert!(blocks.iter().all(|b| b.iter().all(|&byte| byte == 0)));
}
