//! Reports of free memory on the packed engine (spec §9.9): whole pageblocks, each once.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::any::{Shared, SharedHooks, shared_hooks};
use pageyard::policy::Packed;
use pageyard::*;

type Lock = spin::mutex::SpinMutex<()>;

const MIB: u64 = 1 << 20;

fn info(yard: &Reporting) -> ZoneInfo {
    yard.zone_info(ZoneKind::Normal).unwrap()
}

/// A balloon that records the reports it gets.
#[derive(Default)]
struct Balloon {
    now: AtomicU64,
    refuses: AtomicBool,
    calls: Mutex<Vec<Vec<(Pfn, Order)>>>,
}

impl Platform for Balloon {
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
}
impl Observer for Balloon {}
impl Defences for Balloon {}
impl Reclaim for Balloon {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.calls.lock().unwrap().push(blocks.to_vec());
        !self.refuses.load(Relaxed)
    }
}

type Reporting = Shared<'static, Balloon, Lock, Packed>;

impl Balloon {
    fn yard(mib: u64) -> Reporting {
        let usable = [1 << 32..(1 << 32) + mib * MIB];
        let make = |hooks| Yard::from_memory_map(&usable, &[], 2, hooks).unwrap();
        Reporting::new(Balloon::default(), make)
    }

    fn told(&self) -> Vec<(Pfn, Order)> {
        std::mem::take(&mut *self.calls.lock().unwrap()).concat()
    }
}

fn reported(yard: &Reporting) -> (u64, u64, u64) {
    let r = yard.reported(ZoneKind::Normal).unwrap();
    (r.waiting, r.reported, r.retaken)
}

#[test]
fn s9_9_whole_pageblocks_are_reported_once_after_two_seconds() {
    const SECOND: u64 = 1_000_000_000;
    let yard = Balloon::yard(192);
    let at = |seconds: u64| {
        yard.hooks().now.store(seconds * SECOND, Relaxed);
        yard.report_free_blocks()
    };
    assert_eq!(at(1), Some(SECOND));
    assert_eq!(yard.hooks().told(), []);
    assert_eq!(at(2), Some(2 * SECOND), "32 blocks per pass");
    assert_eq!(at(4), None);
    let mut seen = yard.hooks().told();
    seen.sort_unstable();
    let all: Vec<_> = (0..48).map(|i| (Pfn((1 << 20) + i * 1024), Order::MAX)).collect();
    assert_eq!(seen, all);
    assert_eq!(at(100), None);
    assert_eq!(reported(&yard), (0, 48 * 1024, 0));
    assert_eq!(info(&yard).free_exact, 48 * 1024);
    yard.validate().unwrap();

    // Half of a pair of pageblocks is used and freed: only that half is reported again.
    let page = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(reported(&yard), (0, 48 * 1024 - 512, 512));
    yard.free(page, Order::ZERO).unwrap();
    yard.drain_all(None);
    assert_eq!(reported(&yard), (512, 48 * 1024 - 512, 512));
    assert_eq!(at(102), None);
    let (half, huge) = (Pfn(page.0 & !511), Order::HUGE);
    assert_eq!(yard.hooks().told(), [(half, huge)]);
    yard.validate().unwrap();
}

/// Found by a review: what became whole without a free was reported only after one.
#[test]
fn s9_9_pageblocks_that_become_whole_by_other_calls_are_reported() {
    const SECOND: u64 = 1_000_000_000;
    let yard = Balloon::yard(192);
    let mut now = 0;
    let mut waiting_after_reports = || {
        for _ in 0..4 {
            now += 3 * SECOND;
            yard.hooks().now.store(now, Relaxed);
            yard.report_free_blocks();
        }
        reported(&yard).0
    };
    assert_eq!(waiting_after_reports(), 0);
    let first = Pfn(1 << 20);
    yard.poison_frame(first).unwrap();
    yard.unpoison_frame(first).unwrap();
    assert_eq!(reported(&yard).0, 512);
    assert_eq!(waiting_after_reports(), 0);
    let range = first..Pfn(first.0 + 4096);
    yard.isolate(range.clone(), MigrateType::Movable).unwrap();
    yard.unisolate(range, MigrateType::Movable).unwrap();
    assert_eq!(reported(&yard).0, 4096);
    assert_eq!(waiting_after_reports(), 0);
    // Pages that depots keep, which a drain returns.
    let pages: Vec<_> = (0..1024).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    pages.into_iter().for_each(|p| yard.free(p, Order::ZERO).unwrap());
    waiting_after_reports();
    yard.drain_all(None);
    assert_ne!(reported(&yard).0, 0);
    assert_eq!(waiting_after_reports(), 0);
}

#[test]
fn s9_9_memory_that_arrives_is_reported() {
    const FIRST: u64 = 1 << 32;
    let reserved = [FIRST + 120 * MIB..FIRST + 128 * MIB];
    let usable = [FIRST..FIRST + 256 * MIB];
    let make = |hooks| Yard::from_memory_map(&usable, &reserved, 2, hooks).unwrap();
    let yard = Reporting::new(Balloon::default(), make);
    let frames =
        |from: u64, to: u64| Pfn((FIRST + from * MIB) >> 12)..Pfn((FIRST + to * MIB) >> 12);
    let at = |seconds: u64| {
        yard.hooks().now.store(seconds * 1_000_000_000, Relaxed);
        yard.report_free_blocks()
    };
    let mut seconds = 0;
    let mut report_all = || {
        while at(seconds).is_some() {
            seconds += 1;
        }
        yard.hooks().told().into_iter().map(|(_, order)| u64::from(order.pages())).sum::<u64>()
    };
    assert_eq!(report_all(), 248 << 8);
    yard.release(frames(120, 128)).unwrap();
    assert_eq!(report_all(), 8 << 8);
    yard.offline(frames(128, 256)).unwrap();
    report_all();
    yard.online(frames(128, 256)).unwrap();
    assert_eq!(report_all(), 128 << 8);
}

#[test]
fn s9_9_requests_prefer_memory_that_was_not_reported() {
    let yard = Balloon::yard(64);
    let zone = ZoneKind::Normal;
    assert_eq!(yard.report_free_pages(zone, Order::MAX, 4 * 1024), 4 * 1024);
    let told = yard.hooks().told();
    let held: Vec<Pfn> =
        (0..24).map(|_| yard.alloc(Order::HUGE, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let in_reported = |pfn: &&Pfn| told.iter().any(|&(first, _)| pfn.0 & !1023 == first.0);
    assert_eq!(held.iter().filter(in_reported).count(), 0);
    assert_eq!(reported(&yard), (0, 4 * 1024, 0));
    let more = [(); 3].map(|()| yard.alloc(Order::HUGE, Gfp::HIGHUSER_MOVABLE).unwrap());
    assert_eq!(reported(&yard), (0, 4 * 1024 - 3 * 512, 3 * 512));
    held.iter().chain(&more).for_each(|&pfn| yard.free(pfn, Order::HUGE).unwrap());
    yard.drain_all(None);
    yard.validate().unwrap();
    assert_eq!(reported(&yard).0, 27 * 512);
}

#[test]
fn s9_9_pairs_of_which_one_pageblock_was_reported_serve_the_largest_order() {
    let yard = Balloon::yard(64);
    yard.report_free_pages(ZoneKind::Normal, Order::MAX, u64::MAX);
    assert_eq!(reported(&yard), (0, 64 << 8, 0));
    // In each pair one page was allocated and freed: one half is unreported, the other still
    // reported.
    let usable = (1 << 20)..(1 << 20) + (64 << 8);
    for first in usable.step_by(1024) {
        yard.alloc_at(Pfn(first), Order::ZERO, Gfp::KERNEL).unwrap();
        yard.free(Pfn(first), Order::ZERO).unwrap();
    }
    yard.drain_all(None);
    assert_eq!(reported(&yard), (16 * 512, 16 * 512, 16 * 512));
    let large = [(); 8].map(|()| yard.alloc(Order::MAX, Gfp::HIGHUSER_MOVABLE).unwrap());
    assert_eq!(reported(&yard), (8 * 512, 8 * 512, 24 * 512));
    yard.validate().unwrap();
    large.iter().for_each(|&pfn| yard.free(pfn, Order::MAX).unwrap());
    assert_eq!(reported(&yard).1, 8 * 512);
    yard.validate().unwrap();
}

#[test]
fn s9_9_rejected_reports_change_nothing_and_the_minimum_of_free_pages_is_tracked() {
    let yard = Balloon::yard(64);
    let zone = ZoneKind::Normal;
    yard.hooks().refuses.store(true, Relaxed);
    let before = info(&yard);
    assert_eq!(yard.report_free_pages(zone, Order::ZERO, u64::MAX), 0);
    assert_eq!(yard.hooks().calls.lock().unwrap().len(), 1);
    assert_eq!((reported(&yard), info(&yard).free_exact), ((64 << 8, 0, 0), before.free_exact));
    // While blocks are being reported, they are not in the free counter.
    yard.take_lowest_free(zone).unwrap();
    let held = [(); 8].map(|()| yard.alloc(Order::MAX, Gfp::KERNEL).unwrap());
    held.iter().for_each(|&pfn| yard.free(pfn, Order::MAX).unwrap());
    yard.drain_all(None);
    assert_eq!(yard.take_lowest_free(zone).unwrap(), before.free_exact - 8 * 1024);
    yard.validate().unwrap();
}

/// A report hook that panics changes nothing.
#[test]
fn s9_9_blocks_return_after_a_panicking_report() {
    struct Panics;
    impl Platform for Panics {}
    impl Observer for Panics {}
    impl Defences for Panics {}
    impl Reclaim for Panics {
        const REPORT_ORDER: Option<Order> = Some(Order::HUGE);
        fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
            panic!("as planned")
        }
    }
    let usable = [1 << 32..(1 << 32) + 64 * MIB];
    type Y = Yard<'static, Hooked<Lock, SharedHooks<'static>, Packed>>;
    let yard = Y::from_memory_map(&usable, &[], 1, shared_hooks(Panics)).unwrap();
    let report = || yard.report_free_pages(ZoneKind::Normal, Order::MAX, 4096);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(report)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"as planned"));
    assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().free_exact, 64 << 8);
    assert_eq!(yard.reported(ZoneKind::Normal).unwrap().waiting, 64 << 8);
    yard.validate().unwrap();
}
