//! Compaction rules at their boundaries (spec §7.4–7.8), on heaps built page by page.
#![allow(unsafe_code)] // a lock

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;
use pageyard::{CompactResult, Gfp, MigrateType, NodeId, Order, Pfn, Priority, ZoneKind};

use crate::actor::{Actor, Y};
use crate::common::owners::{self, Owners};
use crate::common::view::view;
use crate::common::{LINUX612, Machine, frames, leaked, o};

const ZONE: ZoneKind = ZoneKind::Normal;
const NODE: NodeId = NodeId(0);
const PAGES: u64 = 8192;
const USER: Gfp = Gfp::HIGHUSER_MOVABLE;

/// A page of a heap.
enum Page {
    Free,
    /// Its owner can move it.
    Moves,
    Stays,
}
use Page::{Free, Moves, Stays};

/// A zone without reserves whose pages are as `page` says.
fn heap(page: impl Fn(u64) -> Page) -> (&'static Y, &'static Actor) {
    heap_of(&Machine::normal(PAGES), page)
}

fn heap_of(machine: &Machine, page: impl Fn(u64) -> Page) -> (&'static Y, &'static Actor) {
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = leaked(machine, actor, LINUX612);
    assert!(actor.yard.set(y).is_ok());
    y.set_min_free_kbytes(0).unwrap();
    let gfp = Gfp::MOVABLE | Gfp::HIGHMEM | Gfp::MEMALLOC | Gfp::NOWARN;
    let mut all: Vec<Pfn> = std::iter::from_fn(|| y.alloc(o(0), gfp).ok()).collect();
    assert_eq!(all.len() as u64, machine.usable.iter().map(|r| r.end.0 - r.start.0).sum::<u64>());
    all.sort();
    for pfn in all {
        match page(pfn.0) {
            Free => y.free(pfn, o(0)).unwrap(),
            Moves => {
                y.set_movable(pfn, o(0), true).unwrap();
                actor.state().owned.insert(pfn, o(0));
            }
            Stays => {}
        }
    }
    y.drain_all(None);
    actor.state().log.clear();
    (y, actor)
}

/// The upper half has a free page beside each one in use.
fn room_above(pfn: u64) -> Page {
    if pfn.is_multiple_of(2) { Free } else { Stays }
}

/// The numbers after a name in the log lines of an event.
fn numbers(actor: &Actor, event: &str, name: &str) -> Vec<u64> {
    let log = actor.state().log.clone();
    let value = |line: &str| {
        let rest = line.split_once(&format!("{name}: "))?.1;
        let rest = rest.strip_prefix("Pfn(0x").map_or((rest, 10), |hex| (hex, 16));
        let end = rest.0.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.0.len());
        u64::from_str_radix(&rest.0[..end], rest.1).ok()
    };
    log.lines().filter(|l| l.contains(event)).filter_map(value).collect()
}

/// The frames whose owners were asked to move them.
fn asked(actor: &Actor) -> Vec<u64> {
    let log = actor.state().log.clone();
    let from = |line: &str| line.strip_prefix("relocate ")?.split(' ').next()?.parse().ok();
    log.lines().filter_map(from).collect()
}

fn moved(actor: &Actor) -> usize {
    actor.state().log.lines().filter(|l| l.starts_with("relocate") && l.ends_with("Moved")).count()
}

fn free_pages(y: &Y) -> u64 {
    y.drain_all(None);
    y.zone_info(ZONE).unwrap().free_exact
}

/// Pageblocks 0 and 4 can be emptied; those between have no movable pages.
fn two_sources(pfn: u64) -> Page {
    match pfn / 512 {
        0 | 4 if pfn.is_multiple_of(2) => Moves,
        0 | 4 => Free,
        1..8 => Stays,
        _ => room_above(pfn),
    }
}

#[test]
fn s7_4_patient_runs_start_where_the_last_one_stopped() {
    let (y, actor) = heap(two_sources);
    let run = |priority| y.compact_zone(ZONE, Some(o(9)), priority).unwrap();
    assert_eq!(run(Priority::SyncLight), CompactResult::Success);
    // Allocate the block, so that the next run has work to do.
    y.alloc(o(9), Gfp::MEMALLOC).unwrap();
    assert_eq!(run(Priority::SyncLight), CompactResult::Success);
    assert_eq!(numbers(actor, "Begin", "migrate")[0], 0);
    assert_eq!(y.alloc(o(9), Gfp::MEMALLOC).map(|p| p.0), Ok(4 * 512));
    actor.state().log.clear();
    run(Priority::SyncLight);
    assert_eq!(numbers(actor, "Begin", "migrate"), [5 * 512]);
    actor.state().log.clear();
    run(Priority::SyncFull);
    assert_eq!(numbers(actor, "Begin", "migrate"), [0]);
}

#[test]
fn s7_8_background_runs_start_where_the_last_one_stopped() {
    let (y, actor) = heap(two_sources);
    for _ in 0..2 {
        assert_eq!(
            y.compact_zone(ZONE, Some(o(9)), Priority::SyncLight),
            Some(CompactResult::Success)
        );
        y.alloc(o(9), Gfp::MEMALLOC).unwrap();
    }
    actor.state().log.clear();
    y.request_compaction(NODE, o(9), ZONE);
    assert!(y.compact_background(NODE).worked);
    assert_eq!(numbers(actor, "Begin", "migrate"), [5 * 512]);
}

/// Where the runs of a request start: the asynchronous ones, then a synchronous one.
fn starts(page: fn(u64) -> Page, asynchronous: u32) -> Vec<u64> {
    let (y, actor) = heap(page);
    actor.state().mood.stays = 1 << 40;
    for n in 0..=asynchronous {
        let priority = if n < asynchronous { Priority::Async } else { Priority::SyncLight };
        let done = y.compact_for(o(9), USER, priority).unwrap();
        if done.captured.is_none() && done.result == CompactResult::Success {
            y.alloc(o(9), USER | Gfp::MEMALLOC).unwrap();
        }
    }
    numbers(actor, "Begin", "migrate")
}

#[test]
fn s7_4_patient_runs_skip_what_asynchronous_ones_passed_in_step() {
    // Two pageblocks without movable pages, then one that can be emptied.
    let page = |pfn: u64| match pfn / 512 {
        0 | 1 => Stays,
        2 if pfn.is_multiple_of(2) => Moves,
        2 => Free,
        3..8 => Stays,
        _ => room_above(pfn),
    };
    assert_eq!(starts(page, 1), [0, 1024]);
    // After a page refused to move, an asynchronous run has not seen what follows. (Page 0
    // refuses.)
    let page = |pfn: u64| match pfn / 512 {
        0 | 4 | 6 if pfn.is_multiple_of(2) => Moves,
        0 | 4 | 6 => Free,
        1..8 => Stays,
        _ => room_above(pfn),
    };
    assert_eq!(starts(page, 2), [0, 4 * 512, 0]);
}

#[test]
fn s7_4_an_asynchronous_request_leaves_a_block_of_which_one_page_stays() {
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 | 1 if pfn.is_multiple_of(2) => Moves,
        0 | 1 => Free,
        2..8 => Stays,
        _ => room_above(pfn),
    });
    // Of these pages, only page 0 refuses.
    actor.state().mood.stays = 1 << 40;
    let done = y.compact_for(o(9), USER, Priority::Async).unwrap();
    assert_eq!(done.captured, Some(Pfn(512)));
    let first: Vec<u64> = asked(actor).into_iter().filter(|&p| p < 512).collect();
    assert_eq!(first, (0..64).step_by(2).collect::<Vec<_>>(), "32 pages and no more");
}

#[test]
fn s7_4_a_run_that_may_take_no_free_page_ends() {
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 if pfn.is_multiple_of(2) => Moves,
        0 => Free,
        _ => Stays,
    });
    y.set_min_free_kbytes(4 * 4096).unwrap();
    let result = y.compact_zone(ZONE, None, Priority::SyncFull);
    assert_eq!((result, moved(actor)), (Some(CompactResult::Complete), 0));
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 | 8 if pfn.is_multiple_of(2) => Moves,
        0 | 8 => Free,
        _ => Stays,
    });
    y.set_min_free_kbytes(4 * 4096).unwrap();
    let result = y.compact_zone(ZONE, None, Priority::SyncFull);
    assert_eq!((result, moved(actor)), (Some(CompactResult::Contended), 0));
}

#[test]
fn s7_4_a_place_that_fails_is_replaced() {
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 if pfn.is_multiple_of(2) => Moves,
        0 => Free,
        1..8 => Stays,
        _ if pfn % 8 < 4 => Free,
        _ => Stays,
    });
    actor.state().mood.poisons = true;
    let result = y.compact_zone(ZONE, Some(o(9)), Priority::SyncLight);
    assert_eq!(result, Some(CompactResult::Success));
    let stats = y.compact_stats();
    assert_eq!((moved(actor), stats.moved, stats.not_moved), (256, 256, 0));
    assert_eq!(y.out_of_use(ZONE).unwrap().poisoned, 1);
    y.validate().unwrap();
}

#[test]
fn s7_4_a_panic_of_the_owner_leaves_no_block_behind() {
    let (y, actor) = heap(two_sources);
    let free = free_pages(y);
    actor.panic_at(Pfn(6));
    let run = catch_unwind(AssertUnwindSafe(|| y.compact_zone(ZONE, None, Priority::SyncFull)));
    assert!(run.is_err());
    assert_eq!(free_pages(y), free);
    y.validate().unwrap();
}

#[test]
fn s7_4_a_panic_of_the_owner_frees_the_largest_place_too() {
    let (y, actor) = heap(|pfn| match pfn {
        600..640 | 6144..7168 | 8190 => Free,
        0 | 2 | 7680.. => Moves,
        _ => Stays,
    });
    // The request may not use CMA pages, but pages may move there.
    y.make_cma(frames(6144..7168)).unwrap();
    y.make_cma(frames(7680..8192)).unwrap();
    assert_eq!(view(y, ZONE).free(10, MigrateType::Cma), [6144]);
    let free = free_pages(y);
    actor.panic_at(Pfn(0));
    let run =
        catch_unwind(AssertUnwindSafe(|| y.compact_for(o(9), Gfp::KERNEL, Priority::SyncFull)));
    assert!(run.is_err());
    let held = numbers(actor, "IsolateFreepages", "taken");
    assert_eq!(held.iter().sum::<u64>(), 1025, "{held:?}");
    assert_eq!(free_pages(y), free);
    y.validate().unwrap();
}

#[test]
fn s7_4_no_more_than_a_pageblock_is_held() {
    // Blocks of 256 pages find no target among single pages, however many are isolated.
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0..4 => Free,
        4..8 => Stays,
        _ => room_above(pfn),
    });
    for block in 0..8 {
        y.alloc_at(Pfn(block * 256), o(8), USER).unwrap();
        if block % 2 == 0 {
            y.set_movable(Pfn(block * 256), o(8), true).unwrap();
            actor.state().owned.insert(Pfn(block * 256), o(8));
        }
    }
    actor.state().log.clear();
    assert_eq!(
        y.compact_zone(ZONE, Some(o(9)), Priority::SyncLight),
        Some(CompactResult::Complete)
    );
    let held: u64 = numbers(actor, "IsolateFreepages", "taken").iter().sum();
    assert_eq!((moved(actor), held), (0, 512));
}

#[test]
fn s7_4_holes_of_exactly_one_pageblock_are_gathered() {
    // A block of 256 pages with a hole beside it, and above it as many single pages and holes.
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 => Free,
        1..15 => Stays,
        _ if pfn.is_multiple_of(2) => Moves,
        _ => Free,
    });
    y.alloc_at(Pfn(0), o(8), USER).unwrap();
    y.set_movable(Pfn(0), o(8), true).unwrap();
    actor.state().owned.insert(Pfn(0), o(8));
    y.drain_all(None);
    y.compact_all();
    let free = y.free_blocks(ZONE).unwrap();
    assert_eq!((free[9], free[..9].iter().sum::<u64>()), (1, 0), "{free:?}");
    y.validate().unwrap();
}

#[test]
fn s7_5_orders_up_to_three_need_room_above_the_low_mark_no_more() {
    let (y, _) = heap(room_above);
    // MIN, LOW and HIGH differ.
    let set = |kb| {
        y.set_min_free_kbytes(kb).unwrap();
        y.zone_info(ZONE).unwrap().watermarks
    };
    let free = y.zone_info(ZONE).unwrap().free_exact;
    let suits = |order: u8| y.could_compact(o(order), ZONE, |_| 0);
    // The largest reserve that lets order 3 compact.
    let kb = (0..).step_by(4).find(|&kb| set(kb)[0] + 16 >= free).unwrap() - 4;
    let marks = set(kb);
    assert!(marks[0] + 16 < free && marks[1] > free, "{marks:?}, {free} free");
    assert!(suits(3) && !suits(4));
}

#[test]
fn s7_5_zones_that_may_not_serve_the_request_do_not_count() {
    let m = Machine::new().zone(ZONE, 0..PAGES).zone(ZoneKind::Movable, PAGES..2 * PAGES);
    m.run(|y| {
        let normal = Gfp::KERNEL | Gfp::MEMALLOC;
        while y.alloc(o(0), normal).is_ok() {}
        let suits = |highest| y.could_compact(o(3), highest, |_| 0);
        assert!(suits(ZoneKind::Movable) && !suits(ZONE));
    });
}

#[test]
fn s7_5_the_fragmentation_index_is_for_costly_orders() {
    let (y, _) = heap(room_above);
    y.set_knob("extfrag_threshold", "1000").unwrap();
    let result = |order| y.compact_for(o(order), USER, Priority::Async).unwrap().result;
    assert_eq!([result(4), result(3)], [CompactResult::Skipped, CompactResult::Complete]);
}

#[test]
fn s7_4_the_search_looks_at_33_blocks_of_a_list() {
    let (y, _) = heap(|pfn| if pfn == 1 { Moves } else { Stays });
    // The search starts at the list's tail: 32 pages that are too low, then one in the upper
    // quarter.
    let high = 14 * 512 + 4;
    for pfn in (0..32).map(|n| if n == 0 { 0 } else { 1024 + 2 * n }).chain([high]) {
        y.free_direct(Pfn(pfn), o(0)).unwrap();
    }
    let result = y.compact_zone(ZONE, Some(o(1)), Priority::SyncLight);
    assert_eq!(result, Some(CompactResult::Success));
    let scanned = y.compact_stats().free_scanned;
    assert!(scanned <= 512, "{scanned} frames: the scanner began above the block");
}

/// The n-th attempt to lock the zone fails, as if another CPU held the lock.
#[test]
fn s7_4_asynchronous_runs_end_where_the_lock_is_taken() {
    let run = |nth, priority| {
        let m = Machine::normal(PAGES);
        m.run_with(Owners::willing(), LINUX612, |y: &owners::Y<'_, Fickle>| {
            owners::fragment(y, 1, &[0], 50);
            TRIES.set(nth);
            let done = y.compact_for(Order::HUGE, USER, priority).unwrap();
            TRIES.set(u32::MAX);
            (done.result, y.hooks().asked.load(Relaxed) > 0)
        })
    };
    assert_eq!(run(0, Priority::Async), (CompactResult::Contended, false), "the search");
    assert_eq!(run(1, Priority::Async), (CompactResult::Contended, false), "the scanner");
    assert_eq!(run(2, Priority::Async), (CompactResult::Contended, true), "the next search");
    assert_eq!(run(0, Priority::SyncLight), (CompactResult::Success, true));
}

thread_local! {
    /// Attempts to lock that succeed before one fails.
    static TRIES: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// A lock of which one attempt fails.
struct Fickle(spin::mutex::SpinMutex<()>);

// SAFETY: exclusion is the inner lock's; a failed attempt acquires nothing.
unsafe impl RawMutex for Fickle {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Fickle(spin::mutex::SpinMutex::new(()));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        RawMutex::lock(&self.0);
    }

    fn try_lock(&self) -> bool {
        let left = TRIES.get();
        if left != u32::MAX {
            TRIES.set(left.wrapping_sub(1));
        }
        left != 0 && RawMutex::try_lock(&self.0)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, so the inner one is held.
        unsafe { RawMutex::unlock(&self.0) };
    }
}

#[test]
fn s7_5_urgent_requests_count_half_of_the_reserve() {
    let (y, _) = heap(|pfn| if pfn < 512 { Free } else { Stays });
    y.set_min_free_kbytes(4 * 700).unwrap();
    let result = |gfp| y.compact_for(o(3), gfp, Priority::SyncLight).unwrap().result;
    assert_eq!(result(USER), CompactResult::Skipped);
    assert_eq!(result(USER | Gfp::HIGH), CompactResult::Success);
}

#[test]
fn s7_6_after_the_longest_deferral_everything_is_scanned_again() {
    // Nothing can move, so after the first run all pageblocks are marked to be skipped.
    let (y, _) = heap(room_above);
    let mut scans = Vec::new();
    for _ in 0..200 {
        let before = y.compact_stats().migrate_scanned;
        let done = y.compact_for(o(9), USER, Priority::SyncLight).unwrap();
        if done.result != CompactResult::Deferred {
            scans.push(y.compact_stats().migrate_scanned > before);
        }
    }
    assert_eq!(scans, [true, false, false, false, false, false, true, true]);
}

#[test]
fn s7_8_background_compaction_serves_types_that_stay() {
    // The lowest pageblock is CMA, which the requests that are served here may not use.
    let (y, _) = heap(|pfn: u64| match pfn / 512 {
        0 | 1 if pfn.is_multiple_of(2) => Moves,
        0 | 1 => Free,
        2..8 => Stays,
        _ => room_above(pfn),
    });
    y.make_cma(frames(0..512)).unwrap();
    y.request_compaction(NODE, o(9), ZONE);
    assert!(y.compact_background(NODE).worked);
    assert_eq!(view(y, ZONE).free(9, MigrateType::Cma), [0]);
    assert_eq!(view(y, ZONE).free(9, MigrateType::Movable), [512]);
}

#[test]
fn s7_1_background_compaction_leaves_what_is_reserved_for_the_zones_of_the_request() {
    let m = Machine::normal(PAGES).zone(ZoneKind::Movable, PAGES..2 * PAGES);
    for (highest, woken) in [(ZONE, true), (ZoneKind::Movable, false)] {
        let (y, actor) = heap_of(&m, |pfn| match pfn {
            PAGES.. => Free,
            _ if pfn.is_multiple_of(100) => Free,
            _ => Stays,
        });
        // 82 pages are free, and 256 are reserved from requests that may use the other zone.
        assert_eq!(y.zone_info(ZONE).unwrap().lowmem_reserve[3], PAGES / 32);
        y.request_compaction(NODE, o(1), highest);
        assert_eq!(actor.state().log.contains("wake_compaction"), woken, "{highest}");
    }
}

#[test]
fn s7_8_proactive_compaction_starts_above_its_mark() {
    // About half of the free memory is in whole pageblocks.
    for (above, worked) in [(0, false), (1, true)] {
        let (y, _) = heap(|pfn: u64| match pfn / 512 {
            0..3 => Free,
            _ if pfn.is_multiple_of(4) => Free,
            _ => Moves,
        });
        let score = y.fragmentation_score(NODE);
        assert!((20..90).contains(&score), "{score}");
        // high = max(100 - proactiveness, 5) + 10
        let proactiveness = 110 - score + above;
        y.set_knob("compaction_proactiveness", &proactiveness.to_string()).unwrap();
        y.trigger_proactive_compaction();
        assert_eq!(y.compact_background(NODE).worked, worked, "{score}");
    }
}

/// The owners of larger blocks are asked again with another place too.
#[test]
fn s7_4_a_place_for_a_larger_block_that_fails_is_replaced() {
    let (y, actor) = heap(|pfn: u64| match pfn / 512 {
        0 => Free,
        1..8 => Stays,
        _ if pfn % 8 < 4 => Free,
        _ => Stays,
    });
    for pair in (0..512).step_by(4).map(Pfn) {
        y.alloc_at(pair, o(1), USER).unwrap();
        y.set_movable(pair, o(1), true).unwrap();
        actor.state().owned.insert(pair, o(1));
    }
    actor.state().log.clear();
    actor.state().mood.poisons = true;
    let result = y.compact_zone(ZONE, Some(o(9)), Priority::SyncLight);
    assert_eq!(result, Some(CompactResult::Success));
    let stats = y.compact_stats();
    assert_eq!((moved(actor), stats.moved, stats.not_moved), (128, 256, 0));
    assert_eq!(y.out_of_use(ZONE).unwrap().poisoned, 1);
    y.validate().unwrap();
}
