//! Free-page reporting (spec §9.9).

use crate::common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

use common::any::{On, Shared};
use common::check::{Owned, check};
use common::{LINUX612, Machine, o};
use pageyard::{
    Defences, Gfp, IsolateError, MigrateType, Observer, Order, Pfn, Platform, Reclaim, ZoneKind,
};

const SECOND: u64 = 1_000_000_000;

/// A balloon that records the reports it gets.
#[derive(Default)]
struct Balloon {
    clock: AtomicU64,
    deaf: AtomicBool,
    calls: Mutex<Vec<Vec<(Pfn, Order)>>>,
}

impl Platform for Balloon {
    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }
}

impl Reclaim for Balloon {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.calls.lock().unwrap().push(blocks.to_vec());
        !self.deaf.load(Relaxed)
    }
}

impl Observer for Balloon {}
impl Defences for Balloon {}

type Y<'a> = On<'a, Balloon>;

fn at(y: &Y<'_>, seconds: u64) -> Option<u64> {
    y.hooks().clock.store(seconds * SECOND, Relaxed);
    y.report_free_blocks()
}

/// The blocks of each report since the last call of this function.
fn told(y: &Y<'_>) -> Vec<Vec<(Pfn, Order)>> {
    std::mem::take(&mut *y.hooks().calls.lock().unwrap())
}

fn blocks(y: &Y<'_>) -> Vec<(Pfn, Order)> {
    let mut all: Vec<_> = told(y).into_iter().flatten().collect();
    all.sort_unstable();
    all
}

/// 48 blocks of order 10: 32 in one pass, the rest in the next.
fn machine() -> Machine {
    Machine::normal(49_152)
}

#[test]
fn s9_9_every_free_block_is_reported_once_after_two_seconds() {
    let m = machine();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        assert_eq!(at(y, 1), Some(SECOND));
        assert!(told(y).is_empty());
        assert_eq!(at(y, 2), Some(2 * SECOND));
        let mut seen = blocks(y);
        assert_eq!(seen.len(), 32);
        assert_eq!(at(y, 4), None);
        seen.extend(blocks(y));
        seen.sort_unstable();
        let all: Vec<_> = (0..48).map(|i| (Pfn(i * 1024), Order::MAX)).collect();
        assert_eq!(seen, all);
        assert_eq!(at(y, 100), None);
        assert!(told(y).is_empty(), "blocks returned by the hook are not reported again");
        check(y, &m, &Owned::new());

        // A block that was in use meanwhile is reported again.
        let pfn = y.alloc(Order::MAX, Gfp::KERNEL).unwrap();
        assert_eq!(at(y, 101), None, "an allocation triggers no report");
        y.free(pfn, Order::MAX).unwrap();
        assert_eq!(at(y, 102), Some(SECOND));
        assert_eq!(at(y, 103), None);
        assert_eq!(blocks(y), [(pfn, Order::MAX)]);
    });
}

#[test]
fn s9_9_smaller_blocks_are_not_reported() {
    let m = Machine::normal(32_768);
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        at(y, 2);
        at(y, 4);
        told(y);
        let pfn = y.alloc(o(4), Gfp::KERNEL).unwrap();
        let rest = y.alloc(o(8), Gfp::KERNEL).unwrap();
        y.free(rest, o(8)).unwrap();
        assert_eq!(at(y, 10), None);
        y.free(pfn, o(4)).unwrap();
        assert_eq!(at(y, 11), Some(SECOND), "the large block has merged again");
        assert_eq!(at(y, 12), None);
        assert_eq!(blocks(y).len(), 1);
    });
}

#[test]
fn s9_9_rejected_blocks_are_reported_again() {
    let m = machine();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        y.hooks().deaf.store(true, Relaxed);
        assert!(at(y, 2).is_some() && at(y, 4).is_some());
        assert_eq!(blocks(y).len(), 64, "48 blocks, some of them twice");
        y.hooks().deaf.store(false, Relaxed);
        assert!(at(y, 6).is_some());
        assert_eq!(at(y, 8), None);
        let mut seen = blocks(y);
        seen.dedup();
        assert_eq!(seen.len(), 48);
        check(y, &m, &Owned::new());
    });
}

/// 600 blocks of order 9 on one list: two calls of 32 in a pass, then two seconds of rest.
#[test]
fn s9_9_calls_and_their_number_are_limited() {
    // Reserved frames separate the pageblocks: 600 are free, and as many are half in use.
    let mut m = Machine::normal(1_200 * 512);
    for i in 0..600 {
        m = m.reserved(i * 1024..i * 1024 + 512);
    }
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let mut seen = Vec::new();
        let mut now = 2;
        while at(y, now).is_some() {
            let calls = told(y);
            assert!(calls.len() <= 3, "ceil(600 / 512) calls, and one for the rest");
            assert!(calls.iter().all(|c| c.len() <= 32));
            seen.extend(calls.into_iter().flatten());
            now += 2;
        }
        seen.extend(blocks(y));
        assert_eq!(seen.len(), 600);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 600, "no block was reported twice");
        assert_eq!(now / 2, 10, "64 blocks per pass");
        check(y, &m, &Owned::new());
    });
}

#[test]
fn s9_9_reporting_requires_ample_free_memory() {
    let m = Machine::normal(65_536);
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let low = y.zone_info(ZoneKind::Normal).unwrap().watermarks[1];
        let room = low + (32 << 9);
        let mut taken = Vec::new();
        while y.zone_info(ZoneKind::Normal).unwrap().free_exact > room {
            taken.push(y.alloc(Order::MAX, Gfp::KERNEL).unwrap());
        }
        assert_eq!(at(y, 2), None);
        assert!(told(y).is_empty());
        y.free(taken.pop().unwrap(), Order::MAX).unwrap();
        at(y, 4);
        assert!(blocks(y).len() >= 15, "reports end before the zone falls below its marks");
    });
}

#[test]
fn s9_9_reported_blocks_return_to_their_lists() {
    let m = machine();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let info = y.zone_info(ZoneKind::Normal).unwrap();
        at(y, 2);
        at(y, 4);
        let after = y.zone_info(ZoneKind::Normal).unwrap();
        assert_eq!(after.free_exact, info.free_exact);
        let stats = y.zone_stats(ZoneKind::Normal).unwrap();
        assert_eq!((stats.pages_taken, stats.pages_returned), (49_152, 49_152));
        assert_eq!(y.free(Pfn(0), Order::MAX), Err(pageyard::FreeError::DoubleFree));
        assert_eq!(y.block_type(Pfn(0)), Some(MigrateType::Movable));
    });
}

/// 24 blocks of order 10, fewer than one call takes; the rest of the memory is in smaller blocks.
fn few() -> Machine {
    (48..60).fold(Machine::normal(30 * 1024), |m, b| m.reserved(b * 512 + 256..b * 512 + 257))
}

#[test]
fn s9_9_a_few_rejected_blocks_are_reported_again() {
    let m = few();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        y.hooks().deaf.store(true, Relaxed);
        for pass in 1..4 {
            assert_eq!(at(y, 2 * pass), Some(2 * SECOND), "pass {pass}");
            assert_eq!(blocks(y).len(), 24);
        }
        y.hooks().deaf.store(false, Relaxed);
        assert_eq!(at(y, 8), None);
        assert_eq!(blocks(y).len(), 24);
        assert_eq!(at(y, 100), None);
        assert!(told(y).is_empty());
        check(y, &m, &Owned::new());
    });
}

/// §4.11: a pageblock that is freed again when its isolation ends is not reported.
#[test]
fn s9_9_the_end_of_isolation_triggers_no_report() {
    let m = few();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let pair = || common::frames(0..1024);
        y.isolate(pair(), MigrateType::Movable).unwrap();
        assert_eq!(at(y, 2), None);
        assert_eq!(blocks(y).len(), 23, "all but the isolated block");
        y.unisolate(pair(), MigrateType::Movable).unwrap();
        assert_eq!(at(y, 100), None);
        assert!(told(y).is_empty());
        // The next freed block triggers a report of these as well.
        let pfn = y.alloc(Order::MAX, Gfp::KERNEL).unwrap();
        y.free(pfn, Order::MAX).unwrap();
        at(y, 101);
        assert_eq!(at(y, 103), None);
        assert!(blocks(y).contains(&(Pfn(0), Order::MAX)));
        check(y, &m, &Owned::new());
    });
}

/// An embedder that asks for reports gets them at once, from the largest blocks down.
#[test]
fn s9_9_reporting_on_demand_is_immediate() {
    let m = machine();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let zone = ZoneKind::Normal;
        let state = || y.reported(zone).map(|r| (r.waiting, r.reported, r.retaken)).unwrap();
        // Movable requests, because reported blocks become movable: other types would claim other
        // blocks.
        let (all, gfp) = (49_152, Gfp::HIGHUSER_MOVABLE);
        // Of one large block a quarter is in use, a quarter is too small, and half is free.
        let kept = y.alloc(o(8), gfp).unwrap();
        assert_eq!(state(), (all - 512, 0, 0));
        assert_eq!(y.report_free_pages(zone, Order::MAX, 3000), 3 * 1024);
        assert!(blocks(y).iter().all(|&(_, o)| o == Order::MAX));
        assert_eq!(state(), (all - 512 - 3072, 3072, 0));
        assert_eq!(y.report_free_pages(zone, Order::MAX, u64::MAX), all - 1024 - 3072);
        assert_eq!(state().0, 512, "half of the block that is partly in use");
        assert_eq!(y.report_free_pages(zone, Order::ZERO, u64::MAX), 512);
        let calls = told(y);
        assert!(calls.iter().all(|c| c.len() <= 11), "at most a quarter of the free memory");
        assert_eq!(state(), (0, all - 512, 0));
        assert_eq!(y.report_free_pages(zone, Order::ZERO, u64::MAX), 0);
        assert!(told(y).is_empty());
        // Allocating part of a reported block takes it back.
        let rest = [(); 2].map(|()| y.alloc(o(8), gfp).unwrap());
        assert_eq!(state(), (0, all - 1024, 512));
        y.free(rest[1], o(8)).unwrap();
        assert_eq!(state(), (512, all - 1024, 512));
        // Blocks that merge wait for a report, but do not count as retaken.
        y.free(rest[0], o(8)).unwrap();
        y.free(kept, o(8)).unwrap();
        assert_eq!(state(), (1024, all - 1024, 512));
        check(y, &m, &Owned::new());
        // A refused report ends the call.
        y.hooks().deaf.store(true, Relaxed);
        assert_eq!(y.report_free_pages(zone, Order::ZERO, u64::MAX), 0);
        assert_eq!(told(y).len(), 1);
        assert_eq!(state(), (1024, all - 1024, 512));
        // Large requests, contiguous ranges, and isolation.
        let large = y.alloc(Order::MAX, gfp).unwrap();
        assert_eq!(state(), (1024, all - 2048, 1536), "refused blocks are last on their list");
        y.alloc_contig(common::frames(4096..4608), MigrateType::Movable, gfp).unwrap();
        let (waiting, reported, _) = state();
        assert_eq!(waiting + reported, all - 1024 - 512);
        y.free(large, Order::MAX).unwrap();
        y.isolate(common::frames(8192..9216), MigrateType::Movable).unwrap();
        y.unisolate(common::frames(8192..9216), MigrateType::Movable).unwrap();
        y.hooks().deaf.store(false, Relaxed);
        y.report_free_pages(zone, Order::ZERO, u64::MAX);
        assert_eq!(state().0, 0, "no page is counted twice or lost");
        assert_eq!(y.reported(ZoneKind::Dma), None);
    });
}

#[test]
fn s9_9_the_minimum_of_free_pages_is_tracked() {
    let m = machine();
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        let zone = ZoneKind::Normal;
        y.take_lowest_free(zone).unwrap();
        let free = y.zone_info(zone).unwrap().free;
        let held = [(); 8].map(|()| y.alloc(o(9), Gfp::KERNEL).unwrap());
        held.iter().for_each(|&pfn| y.free(pfn, o(9)).unwrap());
        y.drain_all(None);
        assert_eq!(y.take_lowest_free(zone).unwrap(), free - 8 * 512);
        assert_eq!(y.take_lowest_free(zone).unwrap(), free, "the minimum starts anew at each call");
        assert_eq!(y.take_lowest_free(ZoneKind::Dma), None);
    });
}

#[test]
fn s9_9_a_small_zone_keeps_blocks_for_its_requests() {
    let m = Machine::normal(2048);
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        assert_eq!(
            y.report_free_pages(ZoneKind::Normal, Order::ZERO, u64::MAX),
            0,
            "every block is half of the zone"
        );
        assert!(told(y).is_empty());
    });
    let m = Machine::normal(4096);
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        assert_eq!(y.report_free_pages(ZoneKind::Normal, Order::ZERO, u64::MAX), 4096);
        assert!(
            told(y).iter().all(|c| c.len() == 1),
            "one block per call: each is a quarter of the zone"
        );
    });
    let m = Machine::normal(16_384);
    m.run_with(Balloon::default(), LINUX612, |y: &Y<'_>| {
        assert_eq!(y.report_free_pages(ZoneKind::Normal, Order::ZERO, u64::MAX), 16_384);
        assert!(told(y).iter().all(|c| c.len() <= 3));
    });
}

/// A hook that does not return until it is told to.
struct Slow([Barrier; 2]);

impl Platform for Slow {
    fn now(&self) -> u64 {
        u64::MAX
    }
}

impl Reclaim for Slow {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        self.0.iter().for_each(|b| _ = b.wait());
        true
    }
}

impl Observer for Slow {}
impl Defences for Slow {}

/// §4.11: a block that the hook holds is neither free nor in use, in its second pageblock either.
#[test]
fn s4_11_a_block_that_is_being_reported_cannot_be_isolated() {
    let m = few();
    let slow = Slow([(); 2].map(|()| Barrier::new(2)));
    m.run_with(slow, LINUX612, |y: &Shared<'_, Slow>| {
        let slow = y.hooks();
        std::thread::scope(|s| {
            s.spawn(|| y.report_free_blocks());
            slow.0[0].wait();
            let refused = [0..512, 512..1024, 700..701]
                .map(|r: std::ops::Range<u64>| y.isolate(common::frames(r), MigrateType::Movable));
            slow.0[1].wait();
            let held = [0, 512, 700].map(|p| Err(IsolateError::Unmovable(Pfn(p))));
            assert_eq!(refused, held);
        });
        y.isolate(common::frames(512..1024), MigrateType::Movable).unwrap();
        y.unisolate(common::frames(512..1024), MigrateType::Movable).unwrap();
        check(y, &m, &Owned::new());
    });
}
