//! Compaction on behalf of a request, and in the background (spec §7.4–7.8).

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::owners::*;
use common::{Chosen, LINUX612, Lock, Machine, Stage, o};
use pageyard::compact::Background;
use pageyard::policy::{PageChecked, StaticPolicy};
use pageyard::{
    CompactEvent, CompactResult, Defences, Gfp, Hooked, Hooks, MigrateType, NodeId, Observer,
    Order, Platform, Priority, Reclaim, Relocation, Yard, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const THP: Gfp = Gfp::HIGHUSER_MOVABLE;
const NODE: NodeId = NodeId(0);

fn machine() -> Machine {
    Machine::normal(32_768)
}

#[test]
fn s7_6_huge_pages_are_served_until_memory_runs_out() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let free = free_pages(y);
        let mut served = 0;
        loop {
            let done = y.compact_for(Order::HUGE, THP, Priority::SyncLight).unwrap();
            match (done.captured, done.result) {
                (Some(pfn), CompactResult::Success) => took(y, pfn, 9),
                (Some(_), other) => panic!("captured, but {other}"),
                (None, CompactResult::Success) => {
                    assert!(take(y, 9, THP, true).is_some(), "no other thread can take the block");
                }
                (None, CompactResult::Skipped) => break,
                (None, other) => assert_ne!(other, CompactResult::Complete),
            }
            served += 1;
            assert!(served < 1000);
        }
        all_is_well(y, &m);
        let info = y.zone_info(ZONE).unwrap();
        let needed = info.watermarks[1] + 2 * 512;
        assert!(served >= (free - needed) / 512, "{served} of {free} pages");
        let s = y.compact_stats();
        assert!(s.stall > 0 && s.success > 0 && s.isolated >= 2 * s.moved, "{s:?}");
        // The vmstat events agree (§9.1).
        let told = |name| y.vm_events().by_name(name);
        assert_eq!(told("compact_stall"), Some(s.stall));
        assert_eq!(told("compact_success"), Some(s.success));
        assert_eq!(told("compact_isolated"), Some(s.isolated));
        assert_eq!(told("compact_migrate_scanned"), Some(s.migrate_scanned));
    });
}

#[test]
fn s7_7_the_block_is_captured_when_it_merges() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        // Everything is in use except every other page of the upper half. The lowest order-4 block
        // has a single page in use.
        let mut all = Vec::new();
        while let Some(pfn) = take(y, 0, THP | Gfp::MEMALLOC, true) {
            all.push(pfn.0);
        }
        for pfn in all {
            if pfn > 16_384 && pfn % 2 == 1 || pfn < 16 && pfn != 5 {
                put(y, pageyard::Pfn(pfn));
            }
        }
        y.drain_all(None);
        let before = free_pages(y);
        let done = y.compact_for(o(4), THP, Priority::SyncLight).unwrap();
        assert_eq!(done.result, CompactResult::Success);
        assert_eq!(done.captured, Some(pageyard::Pfn(0)));
        took(y, pageyard::Pfn(0), 4);
        assert_eq!(free_pages(y), before - 16, "the single page moved and the block was captured");
        all_is_well(y, &m);
        assert_eq!(y.compact_stats().success, 1);
    });
}

/// Builds a heap in which a single move frees a block of this order, in a movable pageblock.
fn nearly(y: &Y<'_>, order: u8) {
    let mut all = Vec::new();
    while let Some(pfn) = take(y, 0, THP | Gfp::MEMALLOC, true) {
        all.push(pfn.0);
    }
    for pfn in all {
        if pfn > 16_384 && pfn % 2 == 1 || pfn < 1 << order && pfn != 1 {
            put(y, pageyard::Pfn(pfn));
        }
    }
    y.drain_all(None);
}

#[test]
fn s7_7_small_movable_blocks_are_not_captured_for_other_types() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        nearly(y, 3);
        let done = y.compact_for(o(3), Gfp::KERNEL, Priority::SyncLight).unwrap();
        assert_eq!(done.captured, None);
        assert_eq!(done.result, CompactResult::Success, "the pageblock can be claimed");
        all_is_well(y, &m);
    });
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        nearly(y, 9);
        let done = y.compact_for(o(9), Gfp::KERNEL, Priority::SyncLight).unwrap();
        assert_eq!(done.captured, Some(pageyard::Pfn(0)), "a whole pageblock is captured");
        took(y, pageyard::Pfn(0), 9);
        all_is_well(y, &m);
    });
}

#[test]
fn s11_2_a_block_with_a_bad_page_is_not_captured() {
    machine().run_with(Owners::willing(), &<PageChecked>::RULES, |y: &Y<'_>| {
        nearly(y, 9);
        y.hooks().bad.store(3, Relaxed);
        let done = y.compact_for(o(9), THP, Priority::SyncLight).unwrap();
        assert_eq!((done.captured, y.out_of_use(ZONE).unwrap().bad), (None, 512));
        let s = y.compact_stats();
        assert_eq!((s.stall, s.success + s.fail), (1, 1), "§9.1");
        all_is_well(y, &machine());
    });
}

/// Every compaction stall is counted as a success or as a failure.
#[test]
fn s9_1_every_stall_is_a_success_or_a_failure() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        nearly(y, 3);
        let done = y.compact_for(o(3), Gfp::KERNEL, Priority::SyncLight).unwrap();
        assert_eq!((done.captured, done.result), (None, CompactResult::Success));
        let s = y.compact_stats();
        assert_eq!((s.stall, s.success, s.fail), (1, 1, 0));
    });
    m.run_with(Owners::answering(|_, _| Relocation::Refused), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let done = y.compact_for(Order::HUGE, THP, Priority::SyncLight).unwrap();
        assert_eq!(done.result, CompactResult::Complete);
        let s = y.compact_stats();
        assert_eq!((s.stall, s.success, s.fail), (1, 0, 1));
    });
}

#[test]
fn s7_7_cma_and_isolated_blocks_are_not_captured() {
    let m = machine();
    let first = || common::frames(0..512);
    for t in [MigrateType::Cma, MigrateType::Isolate] {
        for order in [3, 9] {
            m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
                nearly(y, order);
                match t {
                    MigrateType::Cma => y.make_cma(first()).unwrap(),
                    _ => y.isolate(first(), MigrateType::Movable).unwrap(),
                }
                let done = y.compact_for(o(order), THP, Priority::SyncLight).unwrap();
                let v = common::view::view(y, ZONE);
                let merged = |f: (u64, u8, MigrateType)| f.0 == 0 && f.1 >= order && f.2 == t;
                assert!(
                    v.all_free().any(merged),
                    "order {order}: the block stays on its {t:?} list"
                );
                if let Some(pfn) = done.captured {
                    assert!(pfn.0 >= 512, "order {order}, {t:?}");
                    took(y, pfn, order);
                }
                all_is_well(y, &m);
            });
        }
    }
}

#[test]
fn s7_4_asynchronous_requests_migrate_only_from_blocks_of_their_type() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 2, &[0], 50);
        let done = y.compact_for(o(9), Gfp::KERNEL, Priority::Async).unwrap();
        assert_ne!(done.result, CompactResult::Success);
        assert_eq!(y.hooks().asked.load(Relaxed), 0);
        let done = y.compact_for(o(9), THP, Priority::Async).unwrap();
        assert_eq!(done.result, CompactResult::Success);
        done.captured.into_iter().for_each(|pfn| took(y, pfn, 9));
        all_is_well(y, &m);
    });
}

#[test]
fn s7_5_compaction_is_skipped_with_a_free_block_or_low_memory() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        let done = y.compact_for(Order::HUGE, THP, Priority::SyncFull).unwrap();
        assert_eq!((done.result, done.captured), (CompactResult::Success, None));
        fragment(y, 1, &[0], 3);
        let done = y.compact_for(Order::HUGE, THP, Priority::SyncFull).unwrap();
        assert_eq!(done.result, CompactResult::Skipped);
        let s = y.compact_stats();
        assert_eq!((s.migrate_scanned, s.free_scanned), (0, 0));
        let reclaimable = |pages| move |_| pages;
        assert!(!y.could_compact(Order::HUGE, ZONE, reclaimable(0)));
        assert!(
            y.could_compact(Order::HUGE, ZONE, reclaimable(9 * 4096)),
            "a ninth of the reclaimable pages counts"
        );
    });
}

#[test]
fn s7_5_a_low_fragmentation_index_means_low_memory() {
    let m = machine().knobs(|k| k.extfrag_threshold = 1000);
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let done = y.compact_for(Order::HUGE, THP, Priority::SyncLight).unwrap();
        assert_eq!(done.result, CompactResult::Skipped);
        let done = y.compact_for(o(3), THP, Priority::SyncLight).unwrap();
        assert_ne!(done.result, CompactResult::Skipped, "the index applies to costly orders only");
    });
}

#[test]
fn s7_6_a_failed_zone_is_deferred() {
    let m = machine();
    m.run_with(Owners::answering(|_, _| Relocation::Refused), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let run = |p| y.compact_for(Order::HUGE, THP, p).unwrap().result;
        assert_eq!(run(Priority::Async), CompactResult::Complete);
        assert_eq!(y.deferral(ZONE).unwrap().shift, 0, "asynchronous failures do not count");
        assert_eq!(run(Priority::SyncLight), CompactResult::Complete);
        let d = y.deferral(ZONE).unwrap();
        assert_eq!((d.considered, d.shift, d.order_failed), (0, 1, 0));
        assert_eq!(run(Priority::SyncLight), CompactResult::Deferred);
        assert_eq!(run(Priority::SyncFull), CompactResult::Complete, "SyncFull is never deferred");
        assert_eq!(y.deferral(ZONE).unwrap().shift, 2);
        let stalls = y.compact_stats().stall;
        for _ in 0..3 {
            assert_eq!(run(Priority::SyncLight), CompactResult::Deferred);
        }
        assert_eq!(y.compact_stats().stall, stalls);
        assert_eq!(run(Priority::SyncLight), CompactResult::Complete);
        all_is_well(y, &m);
    });
}

/// A run skips pageblocks that yielded nothing before, until the skip hints are forgotten.
#[test]
fn s7_4_skip_hints() {
    let m = machine();
    m.run_with(Owners::answering(|_, _| Relocation::Refused), LINUX612, |y: &Y<'_>| {
        // Immovable pages in use, everywhere.
        let mut all = Vec::new();
        while let Some(pfn) = take(y, 0, THP | Gfp::MEMALLOC, false) {
            all.push(pfn);
        }
        for pfn in all {
            if pfn.0 % 2 == 1 {
                put(y, pfn);
            }
        }
        y.drain_all(None);
        let scan = || {
            let before = y.compact_stats().migrate_scanned;
            y.compact_for(Order::HUGE, THP, Priority::Async).unwrap();
            y.compact_stats().migrate_scanned - before
        };
        assert!(scan() > 0);
        assert_eq!(scan(), 0);
        y.forget_skip_hints(NODE);
        assert!(scan() > 0, "the run scanned the whole zone");
        y.forget_skip_hints(NODE);
        y.forget_skip_hints(NODE);
        assert!(scan() > 0);
        assert_eq!(scan(), 0);
    });
}

#[test]
fn s7_4_events_describe_the_run() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        y.hooks().events.lock().unwrap().clear();
        let before = y.compact_stats();
        y.compact_for(Order::HUGE, THP, Priority::SyncLight).unwrap();
        let events = y.hooks().events.lock().unwrap().clone();
        assert!(matches!(events[0], CompactEvent::TryToCompact { order: Order::HUGE, .. }));
        assert!(matches!(
            events[1],
            CompactEvent::Suitable { result: CompactResult::Continue, .. }
        ));
        assert!(matches!(events[2], CompactEvent::Begin { .. }));
        let (mut taken, mut moved, mut scanned) = (0, 0, 0);
        for e in &events {
            match *e {
                CompactEvent::IsolateMigratepages { taken: n, scanned: s, .. } => {
                    assert!(n <= 32);
                    (taken, scanned) = (taken + u64::from(n), scanned + u64::from(s));
                }
                CompactEvent::Migratepages { migrated, .. } => moved += u64::from(migrated),
                _ => {}
            }
        }
        let s = y.compact_stats();
        assert_eq!(moved, s.moved - before.moved);
        assert_eq!(scanned, s.migrate_scanned - before.migrate_scanned);
        assert!(taken >= moved && moved > 0);
        assert!(matches!(
            events.iter().rev().find(|e| matches!(e, CompactEvent::End { .. })),
            Some(CompactEvent::End { result: CompactResult::Success, .. })
        ));
        assert!(matches!(events.last(), Some(CompactEvent::DeferReset { .. })));
    });
}

#[test]
fn s7_4_isolating_half_a_pageblock_makes_it_movable() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        // The top pageblock is unmovable and half free; below are movable pages with holes.
        let mut all = Vec::new();
        while let Some(pfn) = take(y, 0, THP | Gfp::MEMALLOC, true) {
            all.push(pfn);
        }
        all.iter().filter(|p| p.0 >= 32_256).for_each(|&p| assert!(put(y, p)));
        y.drain_all(None);
        let half = take(y, 8, Gfp::KERNEL | Gfp::MEMALLOC, false).unwrap();
        all.iter().filter(|p| p.0 < 8192 && p.0 % 2 == 1).for_each(|&p| assert!(put(y, p)));
        y.drain_all(None);
        assert_eq!(y.block_type(half), Some(MigrateType::Unmovable));
        y.compact_zone(ZONE, Some(o(9)), Priority::SyncFull);
        assert_eq!(y.block_type(half), Some(MigrateType::Movable));
        all_is_well(y, &m);
    });
}

fn asks_for(y: &Y<'_>, order: u8) -> bool {
    y.request_compaction(NODE, o(order), ZONE);
    !std::mem::take(&mut *y.hooks().wakes.lock().unwrap()).is_empty()
}

#[test]
fn s7_8_background_compaction_serves_its_request() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        assert!(!asks_for(y, 9), "there are enough free blocks");
        y.compact_background(NODE);
        fragment(y, 1, &[0], 50);
        assert!(!asks_for(y, 0));
        assert!(asks_for(y, 4) && asks_for(y, 9));
        let step = y.compact_background(NODE);
        assert_eq!(step, Background { worked: true, sleep: Some(500_000_000) });
        let s = y.compact_stats();
        assert!(huge_free(y) > 0 && s.daemon_wake == 2);
        assert_eq!(s.daemon_migrate_scanned, s.migrate_scanned);
        assert_eq!(s.daemon_free_scanned, s.free_scanned);
        assert_eq!((s.stall, s.success), (0, 0), "no request waited");
        assert!(!y.compact_background(NODE).worked, "no work is left");
        all_is_well(y, &m);
    });
}

#[test]
fn s7_8_background_compaction_is_deferred() {
    let m = machine();
    m.run_with(Owners::answering(|_, _| Relocation::Busy), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        assert!(asks_for(y, 9));
        y.compact_background(NODE);
        assert_eq!(y.deferral(ZONE).unwrap().shift, 1);
        let scanned = y.compact_stats().migrate_scanned;
        assert!(asks_for(y, 9));
        y.compact_background(NODE);
        assert_eq!(y.compact_stats().migrate_scanned, scanned, "deferred once");
    });
}

const MS: u64 = 1_000_000;

#[test]
fn s7_8_a_fragmented_node_is_compacted_proactively() {
    let m = machine();
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        assert!(y.fragmentation_score(NODE) > 90);
        let at = |ms| {
            y.hooks().clock.store(ms * MS, Relaxed);
            y.compact_background(NODE)
        };
        let sleeps = |ms| Background { worked: false, sleep: Some(ms * MS) };
        assert_eq!(at(1), sleeps(500));
        assert_eq!(at(301), sleeps(200), "200 ms of the interval are left");
        y.set_reclaim_active(ZONE, true);
        assert_eq!(at(501), sleeps(500), "no proactive compaction while kswapd is active");
        y.set_reclaim_active(ZONE, false);
        assert_eq!(at(1001), Background { worked: true, sleep: Some(500 * MS) });
        let score = y.fragmentation_score(NODE);
        assert!((75..=80).contains(&score), "it stops at 80 or below: {score}");
        assert_eq!(at(1501), sleeps(500), "it starts only above 90");
        all_is_well(y, &m);
    });
}

#[test]
fn s7_8_proactive_compaction_backs_off_without_improvement() {
    let m = machine();
    m.run_with(Owners::answering(|_, _| Relocation::Refused), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let at = |ms| {
            y.hooks().clock.store(ms * MS, Relaxed);
            y.compact_background(NODE)
        };
        at(1);
        assert_eq!(at(501), Background { worked: true, sleep: Some(32_000 * MS) });
        assert!(!at(1001).worked);
        y.trigger_proactive_compaction();
        assert_eq!(*y.hooks().wakes.lock().unwrap(), [NODE]);
        assert!(at(1002).worked, "triggered by a write to the knob");
    });
    let m = machine().knobs(|k| k.compaction_proactiveness = 0);
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        assert_eq!(y.compact_background(NODE).sleep, None);
        y.hooks().clock.store(3600 * 1000 * MS, Relaxed);
        assert!(!y.compact_background(NODE).worked);
    });
}

#[test]
fn s10_compaction_can_skip_unevictable_blocks() {
    let m = machine().knobs(|k| k.compact_unevictable_allowed = false);
    m.run_with(Owners::willing().unevictable(|_| true), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0, 3], 50);
        let asked = || y.hooks().asked.load(Relaxed);
        for how in [Priority::Async, Priority::SyncLight, Priority::SyncFull] {
            y.compact_for(Order::HUGE, THP, how).unwrap();
        }
        y.compact_zone(ZONE, None, Priority::SyncFull);
        assert!(asks_for(y, 9));
        y.compact_background(NODE);
        assert_eq!((asked(), huge_free(y)), (0, 0), "no block was asked to move");
        // A request for exactly these frames moves unevictable blocks too.
        y.alloc_contig(common::frames(0..512), MigrateType::Movable, Gfp::KERNEL).unwrap();
        assert!(asked() > 0);
        y.free_contig(common::frames(0..512)).unwrap();
        y.set_knob("compact_unevictable_allowed", "1").unwrap();
        let before = asked();
        y.compact_zone(ZONE, None, Priority::SyncFull);
        assert!(asked() > before && huge_free(y) > 1);
        all_is_well(y, &m);
    });
    // Every unevictable block stays, and the others still move.
    m.run_with(Owners::willing().unevictable(|p| p.0 < 8192), LINUX612, |y: &Y<'_>| {
        fragment(y, 1, &[0], 50);
        let low = |y: &Y<'_>| -> Vec<_> {
            y.hooks().owned().into_keys().filter(|p| p.0 < 8192).collect()
        };
        let before = low(y);
        y.compact_zone(ZONE, None, Priority::SyncFull);
        let after = low(y);
        assert!(before.iter().all(|p| after.contains(p)));
        assert!(huge_free(y) > 8, "{}", huge_free(y));
        all_is_well(y, &m);
    });
}

/// Hooks that move no block, and say so.
struct Fixed;

impl Platform for Fixed {}
impl Observer for Fixed {}
impl Defences for Fixed {}
impl Reclaim for Fixed {
    const RELOCATES: bool = false;
}

#[test]
fn s2_10_a_request_does_not_compact_where_no_block_can_move() {
    fn stalls<H: Hooks>(hooks: H) -> u64 {
        let m = machine();
        m.run_on_under(hooks, LINUX612, |y: &Yard<'_, Hooked<Lock, H, Chosen>>| {
            // Every other page is in use.
            let all = || y.alloc(Order::ZERO, THP | Gfp::MEMALLOC).ok();
            let pages: Vec<_> = std::iter::from_fn(all).collect();
            for pfn in pages.iter().filter(|p| p.0 % 2 == 1) {
                y.free(*pfn, Order::ZERO).unwrap();
            }
            assert!(y.alloc(Order::HUGE, THP).is_err());
            assert!(y.alloc(o(3), Gfp::KERNEL | Gfp::RETRY_MAYFAIL).is_err());
            y.compact_stats().stall
        })
    }
    assert_eq!(stalls(Fixed), 0);
    assert!(stalls(Stage::default()) > 0, "the default is that they may move");
}
