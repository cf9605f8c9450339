//! The worker of a yard: which thread it is, when it works, how it stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use pageyard::ReclaimJob;
use pageyard_host::{GiveBack, HostYard, Level};

use super::{MIB, builder, fill, forever, until};

#[test]
fn an_embedders_own_thread_is_the_worker() {
    let yard = builder(64 * MIB).tick(None).build().unwrap();
    assert!(!yard.status().worker);
    drop(fill(&yard, 10_000));
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| yard.worker().unwrap().run(&stop));
        assert!(until(|| yard.status().worker));
        assert!(yard.worker().is_none(), "only one worker at a time");
        assert!(until(|| yard.resident().unwrap() < 500));
        stop.store(true, SeqCst);
        yard.wake_worker();
    });
    assert!(!yard.status().worker);
    let mut worker = yard.worker().unwrap();
    assert!(worker.step() <= Duration::from_secs(1));
}

/// The thread of a yard's own worker holds the claim before it first runs. Once, a caller that
/// asked for the worker then became it, and the yard had no worker afterwards.
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

/// A step above the soft limit calls each shrinker once, then rests for at least 75 ms.
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

/// Dropping a yard waits for its worker, which uses data that the yard's callbacks own.
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
    let calm = || {
        worker.step();
        yard.pressure() == Level::Calm
    };
    assert!(until(calm));
    assert_eq!(told.load(Relaxed), 2);
}

/// Dropping a yard waits for its callbacks, except inside a callback: another worker's callback may
/// be waiting for this one.
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
            // Wait until both callbacks hold a yard: then neither worker can stop.
            both.wait();
            drop(yard);
            dropped.fetch_add(1, Relaxed);
        })
        .keep();
        std::mem::forget(fill(yard, 6000));
    }
    assert!(until(|| dropped.load(Relaxed) == 2), "the two workers wait for each other");
}
