//! Shrinkers under pressure and for requests, and the limits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{Gfp, ReclaimJob};
use pageyard_host::{
    Block, Builder, Cause, HostYard, Level, LimitError, Limits, SystemFiles, Watching,
};

use super::group::Group;
use super::{MIB, QUIET, builder, fill, forever, order, until};

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

/// Requests that must not wait depend on the worker, which gave up while the cache was locked.
#[test]
fn a_shrinker_that_has_pages_again_is_asked_by_the_worker() {
    let yard = forever(builder(64 * MIB).give_back(None));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    cache.blocks.lock().unwrap().extend(fill(yard, 8000));
    let take = || yard.alloc(order(0), Gfp::NOWAIT | Gfp::NOWARN);
    let node = yard.zone_info(yard.zones().next().unwrap()).unwrap().node;
    let locked = cache.blocks.lock().unwrap();
    let mut held = Vec::new();
    let gave_up = until(|| {
        held.extend(std::iter::from_fn(|| take().ok()));
        // SAFETY: the core is only read.
        #[allow(unsafe_code)]
        unsafe { yard.core() }.is_hopeless(node)
    });
    assert!(gave_up && yard.status().shrunk == 0);
    drop(locked);
    assert!(until(|| take().is_ok()), "{:?}", yard.status());
    // The worker counts blocks after they are free, when requests may have them already.
    assert!(until(|| yard.status().shrunk > 0), "{:?}", yard.status());
    assert_eq!(yard.status().shrunk_directly, 0);
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
    // Requests without reclaim fail; requests with it succeed as long as the cache has blocks.
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
    assert_eq!(cache.asked.load(Relaxed), asked, "not called after its registration ended");
    drop((blocks, rest));
}

#[test]
fn background_reclaim_keeps_memory_free() {
    let yard = forever(builder(64 * MIB).give_back(None));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    let high = yard.zones().map(|z| yard.zone_info(z).unwrap().watermarks[2]).sum::<u64>();
    let free = || yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    // A caller that never waits: only the worker can make room.
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
    assert_eq!(yard.pressure(), Level::Moderate, "not below the limit by its margin");
    cache.blocks.lock().unwrap().truncate(2000);
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
fn a_group_near_its_limit_calls_shrinkers() {
    let group = Group::new();
    let files = SystemFiles { pressure: Some("/nowhere".into()), ..group.files() };
    let yard = forever(builder(64 * MIB).system(files));
    let cache = Cache::new();
    yard.register_shrinker(cache.share()).keep();
    cache.blocks.lock().unwrap().extend(fill(yard, 8000));
    assert!(until(|| yard.status().worker));
    let status = yard.status();
    assert_eq!(status.group, Watching::File(group.path().into()));
    assert!(matches!(status.stalls, Watching::Not(why) if why.contains("/nowhere")));
    assert_eq!((status.level, status.shrunk), (Level::Calm, 0));
    group.uses(990_000);
    assert!(until(|| yard.pressure() == Level::Critical));
    assert!(until(|| yard.status().shrunk > 4000 && yard.resident().unwrap() < 6000));
    group.uses(100_000);
    assert!(until(|| yard.pressure() == Level::Calm));
}

/// How many pages a step of the worker asks the shrinkers for.
#[test]
fn shrinkers_are_asked_for_a_share_of_used_memory() {
    let group = Group::new();
    let builder = builder(64 * MIB).system(group.files()).soft_limit(32 * MIB).give_back(None);
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
    group.uses(990_000);
    assert_eq!(step(), [400], "a 16th, when the group is about to be killed");
    assert_eq!(cached(), 0, "the CPUs' lists are drained");
    assert_eq!(yard.pressure(), Level::Critical);
    group.uses(950_000);
    assert_eq!(step(), [100], "a 64th");
    // The excess over the soft limit less a 32nd, where the pressure ends, if that is more.
    blocks.extend(fill(yard, 2000));
    assert_eq!(step(), [464]);
    group.uses(990_000);
    assert_eq!(step(), [525]);
}

/// A count that allocates on a full yard calls no other count.
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
    // Afterwards the thread is no reclaimer, so it may not use the reserves.
    assert!(yard.alloc(order(0), QUIET).is_err());
    let free = yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    assert!(free > 0, "the reserves are free");
    // Nor is the worker's thread, and it still works.
    let mut worker = yard.worker().unwrap();
    worker.step();
    assert!(yard.alloc(order(0), QUIET).is_err());
    held.truncate(1000);
    assert!(yard.alloc(order(0), QUIET).is_ok());
    yard.drain();
    yard.validate().unwrap();
}

/// The shrinker's count is the default, and each call frees a little.
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

/// Each block that a limit takes is counted at once.
#[test]
fn what_a_limit_takes_is_not_in_use_meanwhile() {
    let yard: HostYard = Builder::new(1 << 30).tick(None).build().unwrap();
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|s| {
        let looks = s.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(yard.status().used);
            }
            most
        });
        for hard in [Some(1 << 16), None, Some(1 << 16)] {
            yard.set_limits(Limits { hard, soft: None }).unwrap();
        }
        done.store(true, Relaxed);
        looks.join().unwrap()
    });
    // One block, and the parts of a counter that are folded meanwhile.
    assert!(most < 4096, "{most} pages seemed to be in use");
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
    assert!(take(QUIET | Gfp::HIGH) > 0, "HIGH requests use part of the reserve");
    assert!(take(QUIET | Gfp::MEMALLOC) > 0, "MEMALLOC requests use all of the reserve");
    assert_eq!(held.len(), 4096);
    assert_eq!(yard.status().used, 4096);
    let mut worker = yard.worker().unwrap();
    worker.step();
    assert_eq!(yard.pressure(), Level::Critical);
    // Raise the limit, then lower it.
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
    // A second after the shortage.
    let calm = || {
        worker.step();
        yard.pressure() == Level::Calm
    };
    assert!(until(calm));
    drop(held);
    yard.drain();
    assert!((0..8).map(|_| yard.alloc(order(10), QUIET)).all(|b| b.is_ok()));
    let few = Limits { hard: Some(10), soft: None };
    assert!(matches!(yard.set_limits(few), Err(LimitError::Hard { given: 10, .. })));
    assert_eq!(yard.limits(), Limits::default());
}

/// No claim of a shrinker ends the worker, or counts for more than the yard holds.
#[test]
fn impossible_claims_of_a_shrinker_are_bounded() {
    let yard = builder(32 * MIB).soft_limit(MIB).tick(None).build().unwrap();
    yard.register_shrinker(|_: &ReclaimJob| u64::MAX).keep();
    let blocks: Vec<_> = (0..2000).map(|_| yard.alloc(order(0), Gfp::KERNEL).unwrap()).collect();
    let mut worker = yard.worker().unwrap();
    (0..3).for_each(|_| _ = worker.step());
    let mut largest = Vec::new();
    while let Ok(block) = yard.alloc(order(10), Gfp::KERNEL | Gfp::NOWARN) {
        largest.push(block);
    }
    let stats = yard.stats();
    assert!(stats.shrunk > 0 && stats.shrunk.is_multiple_of(32 * 256), "{}", stats.shrunk);
    drop(blocks);
}

#[test]
fn a_tick_takes_what_a_limit_still_lacks() {
    let yard = builder(64 * MIB).tick(None).give_back(None).build().unwrap();
    let all = || yard.alloc(order(0), QUIET).ok();
    let mut blocks: Vec<_> = std::iter::from_fn(all).collect();
    assert_eq!(yard.set_limits(Limits { hard: Some(32 << 8), soft: None }), Ok(false));
    blocks.truncate(16 << 8);
    let kept = yard.status().kept;
    std::thread::scope(|s| s.spawn(|| yard.tick()).join().unwrap());
    assert!(kept < 32 << 8, "{kept}");
    assert_eq!(yard.status().kept, 32 << 8);
}

/// One thread lifts a limit while another still takes pages out of circulation for it.
#[test]
fn a_limit_that_is_lifted_keeps_nothing() {
    let yard = builder(64 * MIB).tick(None).give_back(None).build().unwrap();
    let limit = Limits { hard: Some(8 << 8), soft: None };
    for wait in 0..500 {
        std::thread::scope(|s| {
            s.spawn(|| yard.set_limits(limit).unwrap());
            while yard.limits() != limit {
                std::hint::spin_loop();
            }
            (0..wait * 20).for_each(|_| std::hint::spin_loop());
            yard.set_limits(Limits::default()).unwrap();
        });
        assert_eq!((yard.limits(), yard.status().kept), (Limits::default(), 0));
    }
}

/// A limit that is set while the yard is full keeps single pages everywhere. They are movable.
fn a_limit_leaves_whole_blocks<P: StaticPolicy + Send + Sync + 'static>(gfp: Gfp) {
    let yard = builder(64 * MIB).tick(None).give_back(None).build_with::<P>().unwrap();
    let take =
        |n, gfp| std::iter::from_fn(|| yard.alloc(order(n), QUIET | gfp).ok()).collect::<Vec<_>>();
    let mut blocks = take(0, gfp);
    blocks.sort_by_key(|block| block.pfn());
    let mut n = 0;
    blocks.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    assert_eq!(yard.set_limits(Limits { hard: Some(32 << 8), soft: None }), Ok(true));
    drop(blocks);
    yard.compact();
    let whole = take(9, gfp).len();
    assert!(whole >= 8, "{}, {gfp:?}: {whole} blocks of 2 MiB; without compaction, none", P::NAME);
    assert_eq!(yard.status().kept, 32 << 8);
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    assert_eq!(yard.status().kept, 0);
    yard.validate().unwrap();
    yard.drain();
    let free = |zone| yard.zone_info(zone).unwrap().free_exact;
    assert_eq!(yard.zones().map(free).sum::<u64>(), 64 << 8);
}

#[test]
fn a_hard_limit_does_not_leave_a_yard_in_pieces() {
    a_limit_leaves_whole_blocks::<Packed>(Gfp::MOVABLE);
    a_limit_leaves_whole_blocks::<Packed>(Gfp::empty());
    // Linux moves nothing to pageblocks that are not movable.
    a_limit_leaves_whole_blocks::<Linux612>(Gfp::MOVABLE);
}
