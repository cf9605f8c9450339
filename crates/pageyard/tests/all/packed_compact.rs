//! Compaction on the packed engine.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use crate::common::any::{AnyHooks, On};
use pageyard::policy::Packed;
use pageyard::*;

type Moving = On<'static, Mover, AnyHooks<'static>, spin::mutex::SpinMutex<()>, Packed>;
type Answer = Box<dyn Fn(Pfn, Pfn) -> Relocation>;

/// Of a request that tries as hard as it can without the out-of-memory hook.
const PATIENT: Gfp = Gfp::RETRY_MAYFAIL.union(Gfp::NOWARN);

/// Answers for the owners of movable blocks, and records what it was asked to move.
struct Mover {
    relocate: Answer,
    is_locked: Box<dyn Fn(Pfn) -> bool>,
    cpu: Rc<Cell<u32>>,
    moves: RefCell<Vec<(Pfn, Pfn)>>,
}

impl Mover {
    /// One that moves every block.
    fn new() -> Self {
        Mover::with(|_, _| Relocation::Moved)
    }

    /// One that refuses to move the blocks that stay.
    fn refusing(stays: impl Fn(Pfn) -> bool + 'static) -> Self {
        Mover::with(move |from, _| match stays(from) {
            true => Relocation::Refused,
            false => Relocation::Moved,
        })
    }

    fn with(relocate: impl Fn(Pfn, Pfn) -> Relocation + 'static) -> Self {
        Mover {
            relocate: Box::new(relocate),
            is_locked: Box::new(|_| false),
            cpu: Rc::default(),
            moves: RefCell::default(),
        }
    }
}

impl Platform for Mover {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        self.moves.borrow_mut().push((from, to));
        (self.relocate)(from, to)
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        (self.is_locked)(pfn)
    }
}

fn yard(mib: u64, mover: Mover) -> Moving {
    let usable = [1 << 32..(1 << 32) + (mib << 20)];
    On::new(mover, |hooks| Yard::from_memory_map(&usable, &[], 2, hooks).unwrap())
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn take_all(yard: &Moving, n: u8, gfp: Gfp) -> Vec<Pfn> {
    let gfp = gfp | Gfp::MEMALLOC | Gfp::NOWARN;
    std::iter::from_fn(|| yard.alloc(order(n), gfp).ok()).collect()
}

/// Allocates all memory as movable pages, then frees those that do not stay.
fn leave(yard: &Moving, stays: impl Fn(u64) -> bool) -> Vec<Pfn> {
    leave_of(yard, Gfp::HIGHUSER_MOVABLE, stays)
}

/// Like [`leave`], with pages that were requested by these flags.
fn leave_of(yard: &Moving, gfp: Gfp, stays: impl Fn(u64) -> bool) -> Vec<Pfn> {
    let all = take_all(yard, 0, gfp);
    let (left, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|pfn| stays(pfn.0 - (1 << 20)));
    go.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    left
}

#[test]
fn compaction_empties_sparse_pageblocks() {
    let yard = yard(64, Mover::new());
    let mut left = leave(&yard, |n| n % 8 == 3 || n >= 12_000);
    let huge = || {
        let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
        blocks[9] + 2 * blocks[10]
    };
    let before = huge();
    yard.compact_all();
    yard.validate().unwrap();
    let moves = yard.hooks().moves.take();
    assert_eq!(yard.compact_stats().moved, moves.len() as u64);
    for (from, to) in moves {
        let place = left.iter_mut().find(|pfn| **pfn == from).expect("a page in use moved");
        *place = to;
    }
    assert!(huge() > before + 15, "{} of {before} and more", huge());
    left.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    yard.validate().unwrap();
    assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().free_exact, 64 << 8);
}

#[test]
fn compaction_leaves_locked_blocks() {
    let locked: fn(Pfn) -> bool = |pfn| pfn.0 % 512 < 128;
    let relocate = move |from, _| {
        assert!(!locked(from), "a locked block is moved");
        Relocation::Moved
    };
    for (wanted, stays) in [(None, 8), (Some(order(4)), 2)] {
        let yard = yard(64, Mover { is_locked: Box::new(locked), ..Mover::with(relocate) });
        yard.set_knob("compact_unevictable_allowed", "0").unwrap();
        leave(&yard, |n| n % stays == 0);
        yard.compact_zone(ZoneKind::Normal, wanted, Priority::SyncLight).unwrap();
        // A locked block keeps its pageblock, or a part of it, as it is.
        assert_eq!(yard.hooks().moves.borrow().is_empty(), wanted.is_none());
        yard.validate().unwrap();
    }
}

#[test]
fn compaction_ends_no_isolation_but_its_own() {
    // Of whole pageblocks, and of a part of each.
    ends_no_isolation_but_its_own(8, None);
    ends_no_isolation_but_its_own(2, Order::new(4));
}

fn ends_no_isolation_but_its_own(stays: u64, wanted: Option<Order>) {
    let place: Rc<RefCell<Weak<Moving>>> = Rc::default();
    let isolated = Rc::new(Cell::new(None));
    let (here, mine) = (place.clone(), isolated.clone());
    let relocate = move |from: Pfn, _: Pfn| {
        let yard = here.borrow().upgrade().expect("the yard is alive");
        let range = from..Pfn(from.0 + 1);
        if mine.get().is_none() {
            // Ends compaction's isolation, then isolates the pageblock itself.
            yard.unisolate(range.clone(), MigrateType::Movable).unwrap();
            if yard.isolate(range, MigrateType::Movable).is_ok() {
                mine.set(Some(from));
            }
        }
        Relocation::Busy
    };
    let yard = Rc::new(yard(64, Mover::with(relocate)));
    *place.borrow_mut() = Rc::downgrade(&yard);
    leave(&yard, |n| n % stays == 0);
    yard.compact_zone(ZoneKind::Normal, wanted, Priority::SyncLight).unwrap();
    let pfn = isolated.get().expect("a pageblock was isolated");
    assert_eq!(yard.block_type(pfn), Some(MigrateType::Isolate));
    yard.unisolate(pfn..Pfn(pfn.0 + 1), MigrateType::Movable).unwrap();
    yard.validate().unwrap();
}

#[test]
fn compaction_of_a_zone_joins_half_used_pageblocks() {
    let yard = yard(64, Mover::new());
    // 500 pages stay in use, in two pageblocks.
    leave(&yard, |n| n < 1000 && n % 2 == 1);
    let whole = || yard.free_blocks(ZoneKind::Normal).unwrap()[9..].iter().sum::<u64>();
    let before = whole();
    yard.compact_all();
    let moved = yard.hooks().moves.borrow().len();
    assert!((244..=256).contains(&moved), "one pageblock is emptied: {moved} moves");
    assert_eq!(whole(), before + 1);
    yard.compact_all();
    assert_eq!(yard.hooks().moves.borrow().len(), moved, "no half-used pageblocks are left");
    yard.validate().unwrap();
}

/// Found by a review: compaction for a request moved nothing out of pageblocks that were half used, and the
/// request ended in the out-of-memory hook.
#[test]
fn s2_10_a_request_of_a_low_order_compacts_half_used_pageblocks() {
    for (n, rest) in (1..=3).flat_map(|n| [(n, 0), (n, 1)]) {
        let yard = yard(64, Mover::new());
        leave(&yard, |n| n % 2 == rest);
        assert!(yard.alloc(order(n), Gfp::NOWAIT).is_err(), "no block of this order is free");
        yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN).unwrap();
        let moved = yard.hooks().moves.borrow().len();
        assert!(moved <= 1 << n, "no more pages than a block has: {moved}");
        yard.validate().unwrap();
    }
}

/// Of 256 pageblocks that are half used, 128 hold an unmovable page and stay.
#[test]
fn s2_10_a_request_of_a_low_order_passes_over_pageblocks_that_stay() {
    let yard = yard(512, Mover::new());
    let left = leave(&yard, |n| n % 2 == 0);
    for page in left.into_iter().filter(|page| page.0 % 512 == 0).take(128) {
        yard.set_movable(page, Order::ZERO, false).unwrap();
    }
    yard.alloc(order(1), Gfp::KERNEL | Gfp::NOWARN).unwrap();
    yard.validate().unwrap();
}

/// A search for half-used pageblocks leaves no place behind all sparse ones, where the next run would begin.
#[test]
fn s7_4_a_refused_run_for_a_low_order_hides_no_sparse_pageblock() {
    let refuses = Rc::new(Cell::new(true));
    let answer = refuses.clone();
    let yard = yard(512, Mover::refusing(move |_| answer.get()));
    leave(&yard, |n| n % if n < 8 * 512 { 4 } else { 2 } == 0);
    yard.compact_for(order(2), Gfp::KERNEL | Gfp::NOWARN, Priority::SyncLight).unwrap();
    refuses.set(false);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(5)), Priority::SyncLight);
    assert_eq!(done, Some(CompactResult::Success));
    yard.validate().unwrap();
}

/// Leaves every second page in use, in pageblocks of the type that the flags ask for: one page of each does
/// not move.
fn leave_mixed(yard: &Moving, gfp: Gfp) {
    for page in leave_of(yard, gfp, |n| n % 2 == 0) {
        yard.set_movable(page, Order::ZERO, page.0 % 512 != 0).unwrap();
    }
}

/// Found by a review: one unmovable page kept its pageblock as it was, and such requests failed.
#[test]
fn s7_4_requests_compact_beside_pages_that_stay() {
    for (n, gfp) in
        (1..PAGEBLOCK_ORDER).flat_map(|n| [(n, Gfp::HIGHUSER_MOVABLE), (n, Gfp::KERNEL)])
    {
        let yard = yard(64, Mover::new());
        leave_mixed(&yard, gfp);
        let types = yard.pageblocks(ZoneKind::Normal);
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncLight);
        assert_eq!(done, Some(CompactResult::Success));
        let moved = yard.hooks().moves.borrow().len();
        assert!((1..=1 << (n - 1)).contains(&moved), "half of a block of order {n}: {moved}");
        assert_eq!(yard.pageblocks(ZoneKind::Normal), types);
        yard.validate().unwrap();
        for _ in 0..20 {
            yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        }
        yard.validate().unwrap();
    }
}

#[test]
fn s7_4_the_fewest_pages_move() {
    let yard = yard(64, Mover::new());
    let stays = |n| match n % 512 / 16 {
        0 | 1 => true,
        5 => n % 16 == 0,
        _ => n % 2 == 0,
    };
    leave(&yard, stays);
    yard.alloc(order(4), Gfp::KERNEL | PATIENT).unwrap();
    assert_eq!(yard.hooks().moves.borrow().len(), 1);
}

/// Owners refuse to move the blocks of the best run in each pageblock, and all in the first pageblocks.
#[test]
fn s7_4_blocks_that_owners_keep_are_passed_over() {
    for n in [1, 4, 7] {
        let refuses = move |from: Pfn| from.0 % 512 < 2 << n || from.0 < (1 << 20) + 16 * 512;
        let yard = yard(64, Mover::refusing(refuses));
        leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// A run that ended where nothing moved is followed by one that begins behind that place.
#[test]
fn s7_4_the_next_run_goes_on_behind_pageblocks_that_stay() {
    let refuses = |from: Pfn| from.0 < (1 << 20) + 140 * 512;
    let (stays, made) = (CompactResult::Complete, CompactResult::Success);
    // A low order is sought in the whole zone at once.
    for (n, results) in [(5, &[stays, stays, made][..]), (1, &[made])] {
        let yard = yard(512, Mover::refusing(refuses));
        leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
        for &result in results {
            let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncLight);
            assert_eq!(
                done,
                Some(result),
                "order {n} {:?} {:?}",
                yard.compact_stats(),
                yard.free_blocks(ZoneKind::Normal)
            );
        }
        yard.validate().unwrap();
    }
}

/// No run is sought inside a block that is as large, which would need the run that is wanted.
#[test]
fn s7_4_blocks_as_large_as_the_run_stay() {
    for (n, large) in [(4, 4), (4, 8), (1, 1), (1, 6)] {
        let yard = yard(64, Mover::new());
        let all = take_all(&yard, large, Gfp::HIGHUSER_MOVABLE);
        // The second half of the pageblocks, but for the first ones, is in single pages. Every second one of
        // these is free.
        let first = (1 << 20) + 8 * 512;
        for block in all.into_iter().filter(|b| b.0 % 512 >= 256 && b.0 >= first) {
            yard.free(block, order(large)).unwrap();
        }
        leave(&yard, |n| n % 2 == 0);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        assert!(yard.hooks().moves.borrow().len() <= 1 << (n - 1));
        yard.validate().unwrap();
    }
}

/// A request that gives up soon moves nothing out of other types' pageblocks.
#[test]
fn s7_4_an_impatient_request_compacts_pageblocks_of_its_type() {
    let gfps = [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL];
    for (of, other) in [(gfps[0], gfps[1]), (gfps[1], gfps[0])] {
        let yard = yard(64, Mover::new());
        leave_mixed(&yard, of);
        let compact = |gfp: Gfp| {
            let done = yard.compact_for(order(4), gfp | Gfp::NOWARN, Priority::Async).unwrap();
            (done.result == CompactResult::Success, yard.hooks().moves.take().len())
        };
        assert_eq!(compact(other), (false, 0));
        let (served, moved) = compact(of);
        assert!(served && (1..=8).contains(&moved), "{moved}");
        yard.validate().unwrap();
    }
}

/// What is compacted for a background request is there when it is asked for.
#[test]
fn s7_8_background_compaction_makes_blocks_beside_pages_that_stay() {
    let yard = yard(64, Mover::new());
    leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
    let gfp = Gfp::NOWAIT | Gfp::NOWARN;
    assert!(yard.alloc(order(5), gfp).is_err());
    yard.request_compaction(NodeId(0), order(5), ZoneKind::Normal);
    assert!(yard.compact_background(NodeId(0)).worked);
    yard.alloc(order(5), gfp).unwrap();
    yard.validate().unwrap();
}

/// Nothing defers an impatient request after a failure, so it looks at a part of a large zone alone; the
/// next one goes on behind it.
#[test]
fn s7_4_impatient_requests_look_at_a_part_of_the_zone_each() {
    let locked: fn(Pfn) -> bool = |pfn| pfn.0 < (1 << 20) + 1100 * 512;
    let yard = yard(2 * 1200, Mover { is_locked: Box::new(locked), ..Mover::new() });
    yard.set_knob("compact_unevictable_allowed", "0").unwrap();
    leave(&yard, |n| n % 2 == 0);
    let request = || yard.alloc(order(5), Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY | Gfp::NOWARN);
    // It compacts twice.
    request().unwrap_err();
    request().unwrap();
    yard.validate().unwrap();
}

/// Owners who refuse to move anything are asked for a bounded number of pages by each request.
#[test]
fn s7_4_a_request_of_a_low_order_tries_a_part_of_a_large_zone() {
    let yard = yard(2 * 1200, Mover::refusing(|_| true));
    leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
    let compact = || yard.compact_zone(ZoneKind::Normal, Some(order(3)), Priority::SyncLight);
    compact().unwrap();
    let asked = yard.hooks().moves.take();
    let mut of_block = BTreeMap::<u64, usize>::new();
    asked.iter().for_each(|(pfn, _)| *of_block.entry(pfn.0 / 512).or_default() += 1);
    assert!(of_block.len() >= 1190, "a few runs of each: {}", of_block.len());
    assert!(asked.len() < 1200 * 8 + 1024 * 512, "{}", asked.len());
    let thorough = of_block.iter().filter(|&(_, &asked)| asked > 2 * 4 * 4).map(|(block, _)| block);
    assert_eq!(thorough.clone().count(), 1024, "all runs of these");
    compact().unwrap();
    let next: BTreeSet<_> =
        yard.hooks().moves.borrow().iter().map(|(pfn, _)| pfn.0 / 512).collect();
    assert!(next.len() >= 1190);
}

/// Whether a costly request is worth a compaction, and the score, follow from the free blocks, which are not
/// all counted for them.
#[test]
fn s7_5_s7_8_fragmentation_follows_from_the_free_blocks() {
    let layouts: [fn(u64) -> bool; 4] = [
        |n| n % 2 == 0 || n > 12_000,
        |n| n % 8 == 0,
        |n| n % 16 == 7 || n % 1024 >= 512,
        |n| n % 128 == 0 || n < 9000,
    ];
    let mut answers = [0, 0];
    for stays in layouts {
        for threshold in [0, 300, 500, 800, 930, 980, 990, 1000] {
            for n in 4..8 {
                let yard = yard(64, Mover::refusing(|_| true));
                leave_of(&yard, Gfp::KERNEL, stays);
                yard.set_knob("extfrag_threshold", &threshold.to_string()).unwrap();
                let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
                let lacks = (0..=threshold).contains(&fragmentation_index(&blocks, order(n)));
                let done = yard.compact_for(order(n), Gfp::KERNEL, Priority::SyncLight);
                let result = done.unwrap().result;
                let is_skipped = result == CompactResult::Skipped;
                let has_block = blocks[n as usize..].iter().any(|&n| n > 0);
                assert_eq!(has_block, result == CompactResult::Success, "{n} {result:?}");
                assert!(has_block || is_skipped == lacks, "{n} {threshold} {result:?} {blocks:?}");
                answers[usize::from(lacks)] += 1;
                let score = compact::zone_score(&blocks);
                let present = yard.zone_info(ZoneKind::Normal).unwrap().present;
                let score = compact::node_score([(present, score)].into_iter());
                assert_eq!(yard.fragmentation_score(NodeId(0)), score);
            }
        }
    }
    assert!(answers[0] > 20 && answers[1] > 20, "{answers:?}");
}

/// Of a zone where no pageblock is more than half free, proactive compaction makes one with huge pages.
#[test]
fn s7_8_proactive_compaction_joins_half_used_pageblocks() {
    let yard = yard(64, Mover::new());
    leave(&yard, |n| n % 2 == 0);
    assert_eq!(yard.fragmentation_score(NodeId(0)), 99);
    yard.trigger_proactive_compaction();
    assert!(yard.compact_background(NodeId(0)).worked);
    let score = yard.fragmentation_score(NodeId(0));
    assert!(score <= 80, "the score at which it stops: {score}");
    let moved = yard.hooks().moves.borrow().len();
    assert!(moved <= 2048, "it stops there: {moved}");
    yard.validate().unwrap();
}

/// One pageblock is emptied into another, for a request that takes its time.
#[test]
fn s7_4_a_request_for_a_huge_page_joins_half_used_pageblocks() {
    let gfp = Gfp::HIGHUSER_MOVABLE | PATIENT;
    for n in [9, 10] {
        let yard = yard(128, Mover::new());
        leave(&yard, |n| n % 8 != 7);
        assert!(yard.alloc(order(n), gfp | Gfp::NORETRY).is_err());
        assert_eq!(yard.hooks().moves.take().len(), 0);
        yard.alloc(order(n), gfp).unwrap();
        let moved = yard.hooks().moves.borrow().len();
        assert!((448..4000).contains(&moved), "{moved}");
        yard.validate().unwrap();
    }
}

// Found by a review of the compaction of runs.

/// A run whose first frame is free is as good as another.
#[test]
fn s7_4_runs_begin_with_free_frames_too() {
    for n in 1..PAGEBLOCK_ORDER {
        let yard = yard(64, Mover::new());
        leave(&yard, |n| n % 2 == 1);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        assert!(yard.hooks().moves.borrow().len() <= 1 << (n - 1));
    }
}

/// The cheapest runs of each pageblock stay, whatever their number.
#[test]
fn s7_4_many_runs_that_stay_hide_no_other() {
    for n in 1..=5 {
        let refuses = move |from: Pfn| (from.0 % 512) >> n < 8;
        let yard = yard(64, Mover::refusing(refuses));
        leave(&yard, |frame| match (frame % 512) >> n < 8 {
            true => frame % (1 << n) == 0,
            false => frame % 2 == 0,
        });
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// A block that has no place, as all free memory is in smaller pieces, ends no compaction.
#[test]
fn s7_4_a_block_without_a_place_stays_alone() {
    for n in [2, 3, 4, 6] {
        let yard = yard(64, Mover::new());
        // Each pageblock begins with a pair of pages as one block, then a free page, then one in use.
        for pair in take_all(&yard, 1, Gfp::HIGHUSER_MOVABLE) {
            if pair.0 % 512 != 0 {
                yard.free(pair, order(1)).unwrap();
            }
        }
        leave(&yard, |frame| if frame % 512 < 4 { frame % 512 == 3 } else { frame % 4 != 3 });
        assert!(yard.alloc(order(1), Gfp::NOWAIT).is_err());
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// Pageblocks that hold something unmovable are no attempts.
#[test]
fn s7_4_pageblocks_that_cannot_be_emptied_hide_no_others() {
    for (count, mib) in [(9, 128), (100, 512), (200, 512)] {
        let yard = yard(mib, Mover::new());
        let mixed = |frame: u64| frame / 512 < count;
        let left = leave(&yard, |frame| match mixed(frame) {
            true => frame % 5 < 2,
            false => frame % 4 != 3,
        });
        for page in left.into_iter().filter(|page| mixed(page.0 - (1 << 20)) && page.0 % 512 < 5) {
            yard.set_movable(page, Order::ZERO, false).unwrap();
        }
        yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// All of a zone is all of it, wherever an earlier run ended.
#[test]
fn s10_compact_memory_begins_at_no_place() {
    let refuses = Rc::new(Cell::new(true));
    let answer = refuses.clone();
    let yard = yard(512, Mover::refusing(move |_| answer.get()));
    leave(&yard, |n| n % 8 == 0);
    for _ in 0..2 {
        yard.compact_zone(ZoneKind::Normal, Some(order(9)), Priority::SyncLight).unwrap();
    }
    refuses.set(false);
    yard.compact_all();
    let free = yard.free_blocks(ZoneKind::Normal).unwrap();
    assert_eq!(free[9] + 2 * free[10], 256 - 32);
}

/// Owners may have asked for the zone or the node.
#[test]
fn s7_4_blocks_stay_in_their_zone() {
    let usable = [0..64 << 20, 1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
    let gfp = Gfp::DMA32 | Gfp::MOVABLE;
    let pages: Vec<_> = (0..4000).map(|_| yard.alloc(Order::ZERO, gfp).unwrap()).collect();
    for &page in pages.iter().filter(|page| page.0 % 4 != 0) {
        yard.free(page, Order::ZERO).unwrap();
    }
    yard.compact_all();
    let moves = yard.hooks().moves.take();
    assert!(moves.len() > 100, "{}", moves.len());
    for (from, to) in moves {
        assert!(to.0 < 1 << 20, "{from} moved to {to}");
    }
    yard.validate().unwrap();
}

/// CPUs refill from all pageblocks: they are drained first.
#[test]
fn s7_4_pageblocks_from_which_cpus_refill_are_compacted() {
    let cpu = Rc::new(Cell::new(0));
    let usable = [1 << 32..(1 << 32) + (16 << 20)];
    let mover = Mover { cpu: cpu.clone(), ..Mover::new() };
    let yard: Moving =
        On::new(mover, |hooks| Yard::from_memory_map(&usable, &[], 8, hooks).unwrap());
    leave(&yard, |n| n % 2 == 0);
    for n in 0..8 {
        cpu.set(n);
        for gfp in [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL] {
            yard.alloc(Order::ZERO, gfp).unwrap();
        }
    }
    for n in [2, 4] {
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
    }
    yard.validate().unwrap();
}

/// In a small zone all memory is of one type.
#[test]
fn s7_4_zones_without_grouping_are_compacted() {
    for blocks in [4, 5, 6] {
        let usable = [1 << 32..(1 << 32) + (blocks << 21)];
        let yard: Moving =
            On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
        for page in leave(&yard, |n| n % 16 < 6) {
            yard.set_movable(page, Order::ZERO, true).unwrap();
        }
        yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// Where nothing moves, pageblocks keep their types.
#[test]
fn s4_1_compaction_changes_no_types() {
    let yard = yard(64, Mover::with(|_, _| Relocation::Refused));
    let gfps = [Gfp::KERNEL, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE];
    let take = |gfp: Gfp| yard.alloc(order(8), gfp | Gfp::MEMALLOC | Gfp::NOWARN).ok();
    let blocks: Vec<_> = gfps.into_iter().cycle().map_while(take).collect();
    for &block in &blocks {
        yard.set_movable(block, order(8), true).unwrap();
    }
    for &block in blocks.iter().step_by(2) {
        yard.free(block, order(8)).unwrap();
    }
    yard.drain_all(None);
    let types = yard.pageblocks(ZoneKind::Normal).unwrap();
    assert!(types[0] > 0 && types[1] > 0, "{types:?}");
    for n in [9, 10] {
        yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncFull).unwrap();
        assert_eq!(yard.pageblocks(ZoneKind::Normal), Some(types));
    }
    yard.compact_all();
    assert_eq!(yard.pageblocks(ZoneKind::Normal), Some(types));
}

/// Between MIN and LOW a request would take its pages from a lower zone, where no block of the order is.
#[test]
fn s7_4_a_zone_below_low_compacts_into_itself() {
    let usable = [64 << 20..128 << 20, 1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
    let info = |kind| yard.zone_info(kind).unwrap();
    let (low, high): (Vec<_>, Vec<_>) =
        take_all(&yard, 0, Gfp::HIGHUSER_MOVABLE).into_iter().partition(|page| page.0 < 1 << 20);
    for page in low {
        match page.0 % 2 {
            0 => yard.free(page, Order::ZERO).unwrap(),
            _ => yard.set_movable(page, Order::ZERO, false).unwrap(),
        }
    }
    let [min, low, ..] = info(ZoneKind::Normal).watermarks;
    for page in high.into_iter().filter(|page| page.0 % 4 == 1).take((min + low) as usize / 2) {
        yard.free(page, Order::ZERO).unwrap();
    }
    yard.drain_all(None);
    assert!(info(ZoneKind::Normal).free_exact < low && info(ZoneKind::Dma32).free_exact > low);
    for priority in [Priority::SyncLight, Priority::SyncFull] {
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(2)), priority);
        assert_eq!(done, Some(CompactResult::Success));
    }
    yard.alloc(order(2), Gfp::KERNEL | PATIENT).unwrap();
    yard.validate().unwrap();
}

// Found by a review of searches and of what a compaction in vain costs.

/// What is isolated meanwhile is not free, so a compaction that nobody waits for leaves others enough, also for
/// one whose claim boosts the marks.
#[test]
fn s7_8_proactive_compaction_withholds_no_page_below_the_high_mark() {
    for (mib, free) in [(32, 1792), (64, 3584), (128, 8000), (64, 8000)] {
        let lowest = Rc::new(Cell::new(u64::MAX));
        let place: Rc<RefCell<Weak<Moving>>> = Rc::default();
        let (seen, here) = (lowest.clone(), place.clone());
        let yard = Rc::new(yard(
            mib,
            Mover::with(move |_, _| {
                let yard = here.borrow().upgrade().expect("the yard is alive");
                seen.set(seen.get().min(yard.zone_info(ZoneKind::Normal).unwrap().free_exact));
                Relocation::Moved
            }),
        ));
        *place.borrow_mut() = Rc::downgrade(&yard);
        let all = take_all(&yard, 0, Gfp::HIGHUSER_MOVABLE);
        let sparse = all.iter().filter(|pfn| pfn.0 % 8 != 0).take(free);
        sparse.for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.drain_all(None);
        yard.trigger_proactive_compaction();
        _ = yard.compact_background(NodeId(0));
        yard.compact_all();
        let high = yard.zone_info(ZoneKind::Normal).unwrap().watermarks[2];
        let boosted = high + high * 15_000 / 10_000;
        assert!(lowest.get() >= boosted, "{} of {boosted}", lowest.get());
        assert_eq!(lowest.get() < u64::MAX, free > 2000, "with too little to spare nothing moves");
        yard.validate().unwrap();
    }
}

/// An impatient request tries pageblocks of its type alone. A patient one begins where another one ended.
#[test]
fn s7_4_patient_requests_begin_at_pageblocks_that_impatient_ones_passed() {
    for (n, gfp) in [(1, Gfp::KERNEL), (3, Gfp::KERNEL), (5, Gfp::KERNEL | Gfp::RETRY_MAYFAIL)] {
        let yard = yard(4096, Mover::refusing(|pfn| pfn.0 >= (1 << 20) + 250 * 512));
        leave(&yard, |n| n % 2 == 0);
        for _ in 0..6 {
            yard.alloc(order(n), gfp | Gfp::NOWARN).unwrap();
        }
        yard.validate().unwrap();
    }
}

/// Owners of the first half of memory move nothing.
#[test]
fn s2_10_a_request_of_a_low_order_tries_all_of_a_zone() {
    for n in [1, 3] {
        let yard = yard(4096, Mover::refusing(|pfn| pfn.0 < (1 << 20) + 1500 * 512));
        leave(&yard, |n| n % 2 == 0);
        for _ in 0..4 {
            yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN).unwrap();
        }
    }
}

/// No search finds pageblocks from which CPUs refill.
#[test]
fn s7_4_huge_pages_are_made_of_pageblocks_from_which_cpus_refill() {
    let usable = [1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 8, hooks).unwrap());
    leave(&yard, |n| n >= 8 * 512 || n % 8 == 0);
    for cpu in 0..8 {
        yard.hooks().cpu.set(cpu);
        yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    yard.hooks().cpu.set(0);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(9)), Priority::SyncFull);
    assert_eq!(done, Some(CompactResult::Success));
    yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).unwrap();
    yard.validate().unwrap();
}

/// Pageblocks that cannot be emptied are not all looked at by each impatient request.
#[test]
fn s7_4_impatient_requests_look_at_few_sparse_pageblocks() {
    let looked: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
    let seen = looked.clone();
    let is_locked = move |pfn: Pfn| {
        seen.borrow_mut().insert(pfn.0 / 512);
        pfn.0 % 512 == 508
    };
    let yard = yard(2400, Mover { is_locked: Box::new(is_locked), ..Mover::new() });
    yard.set_knob("compact_unevictable_allowed", "0").unwrap();
    leave(&yard, |n| n % 4 == 0);
    let request = || yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY | Gfp::NOWARN);
    request().unwrap_err();
    let first = looked.take();
    assert!((1..=2 * 64).contains(&first.len()), "{}", first.len());
    // The next one goes on behind them.
    request().unwrap_err();
    assert!(looked.take().is_disjoint(&first));
}

/// A zone that can spare one pageblock at a time: only the owners in one pageblock move their pages.
#[test]
fn s7_4_a_zone_with_little_to_spare_passes_over_no_pageblock() {
    for (n, from, stride, moves) in [(3, 20, 2, 25), (9, 24, 8, 29)] {
        let first = 1 << 20;
        let yard = yard(64, Mover::refusing(move |pfn| (pfn.0 - first) / 512 != moves));
        leave(&yard, |n| n < from * 512 || n % stride == 0);
        let [_, _, high, _] = yard.zone_info(ZoneKind::Normal).unwrap().watermarks;
        let free = yard.zone_info(ZoneKind::Normal).unwrap().free_exact;
        assert!((high..high * 5 / 2 + 1024).contains(&free), "{free} of {high}");
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncFull);
        assert_eq!(done, Some(CompactResult::Success), "order {n}");
        yard.validate().unwrap();
    }
}
