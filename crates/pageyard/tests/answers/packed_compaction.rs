//! How far a compaction of the packed engine goes: one pageblock, then twice as many each time.

use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    CompactResult, Defences, Gfp, Hooked, NodeId, Observer, Order, Pfn, Platform, Priority,
    Reclaim, Relocation, Yard, ZoneKind,
};

use crate::common::{Chosen, Lock, Machine, leaked};

const ZONE: ZoneKind = ZoneKind::Normal;
const BLOCK: u64 = 512;
/// Pages in use in each pageblock.
const USED: u64 = 4;

/// Moves blocks, except those at some offsets into some pageblocks; `locked` ones are unevictable.
struct Mover {
    stays: fn(u64, u64) -> bool,
    locked: fn(u64, u64) -> bool,
}

impl Platform for Mover {}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        let stays = (self.stays)(from.0 / BLOCK, from.0 % BLOCK);
        if stays { Relocation::Refused } else { Relocation::Moved }
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        (self.locked)(pfn.0 / BLOCK, pfn.0 % BLOCK)
    }
}

type Y = Yard<'static, Hooked<Lock, Mover, Chosen>>;

/// A zone of this many pageblocks.
fn empty(blocks: u64, mover: Mover) -> &'static Y {
    leaked(&Machine::normal(blocks * BLOCK), mover, &<Packed as StaticPolicy>::RULES)
}

/// Allocates the first pages of a pageblock.
fn fill(y: &Y, block: u64, pages: u64, gfp: Gfp) {
    for pfn in block * BLOCK..block * BLOCK + pages {
        y.alloc_at(Pfn(pfn), Order::ZERO, gfp).unwrap();
    }
}

/// A zone of this many pageblocks with movable pages at the start of each.
fn sparse(blocks: u64, stays: fn(u64, u64) -> bool) -> &'static Y {
    let y = empty(blocks, Mover { stays, locked: |_, _| false });
    (0..blocks).for_each(|block| fill(y, block, USED, Gfp::HIGHUSER_MOVABLE));
    y
}

fn compact_all(y: &Y) -> u64 {
    y.compact_all();
    assert_eq!(y.validate(), Ok(()));
    y.compact_stats().moved
}

fn compact(y: &Y, priority: Priority) -> (CompactResult, u64) {
    let result = y.compact_zone(ZONE, Some(Order::HUGE), priority).unwrap();
    assert_eq!(y.validate(), Ok(()));
    (result, y.compact_stats().moved)
}

#[test]
fn the_priority_limits_the_batches_of_a_request() {
    use Priority::{Async, SyncFull, SyncLight};
    // One page of each pageblock stays, so that none becomes whole. One pageblock takes the others' pages.
    for (priority, blocks) in [(Async, 8), (SyncLight, 64), (SyncFull, 79)] {
        let y = sparse(80, |_, offset| offset == USED - 1);
        let moved = blocks * (USED - 1);
        assert_eq!(compact(y, priority), (CompactResult::Complete, moved), "{priority:?}");
    }
}

#[test]
fn a_request_ends_with_the_batch_that_serves_it() {
    // Batches of one pageblock, of two and of four that stay, then one of eight. The first pageblock takes
    // the others' pages.
    let y = sparse(80, |block, offset| block < 8 && offset == USED - 1);
    let moved = 7 * (USED - 1) + 8 * USED;
    assert_eq!(compact(y, Priority::SyncFull), (CompactResult::Success, moved));
}

#[test]
fn proactive_compaction_ends_with_the_batch_that_reaches_its_mark() {
    let y = sparse(160, |_, _| false);
    assert_eq!(y.fragmentation_score(NodeId(0)), 99);
    y.set_knob("compaction_proactiveness", "15").unwrap();
    y.trigger_proactive_compaction();
    assert!(y.compact_background(NodeId(0)).worked);
    // Each batch makes five in a hundred pageblocks whole.
    assert_eq!(y.compact_stats().moved, 3 * 8 * USED);
    assert!(y.fragmentation_score(NodeId(0)) <= 85);
}

#[test]
fn pageblocks_with_unevictable_blocks_stay_if_the_setting_says_so() {
    for (allowed, stay) in [("1", false), ("0", true)] {
        let locked = |block, offset| block < 8 && offset == 0;
        let y = empty(80, Mover { stays: |_, _| false, locked });
        (0..80).for_each(|block| fill(y, block, USED, Gfp::HIGHUSER_MOVABLE));
        y.set_knob("compact_unevictable_allowed", allowed).unwrap();
        // If the first eight stay, the next one is emptied.
        assert_eq!(compact(y, Priority::SyncFull), (CompactResult::Success, USED));
        let is_used = |pfn| y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::KERNEL).is_err();
        let all_stay = (0..8).all(|block| is_used(block * BLOCK));
        assert_eq!(all_stay, stay, "allowed: {allowed}");
    }
}

/// Of types other than movable, any pageblock may hold movable blocks alone.
#[test]
fn pageblocks_that_cannot_be_emptied_do_not_hide_others_of_their_type() {
    let y = empty(24, Mover { stays: |_, _| false, locked: |_, _| false });
    (0..16).for_each(|block| fill(y, block, USED, Gfp::KERNEL));
    for pfn in (8 * BLOCK..16 * BLOCK).filter(|pfn| pfn % BLOCK < USED) {
        y.set_movable(Pfn(pfn), Order::ZERO, true).unwrap();
    }
    fill(y, 16, USED, Gfp::HIGHUSER_MOVABLE);
    assert_eq!(y.pageblocks(ZONE).unwrap()[0], 16);
    assert_eq!(compact_all(y), 8 * USED);
}

/// The first batch drains all CPUs, which may already free the request's block.
#[test]
fn a_request_ends_with_the_drain_that_serves_it() {
    let y = empty(8, Mover { stays: |_, _| true, locked: |_, _| false });
    (0..7).for_each(|block| fill(y, block, USED, Gfp::HIGHUSER_MOVABLE));
    // The CPU refills from the last pageblock.
    let page = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    y.free(page, Order::ZERO).unwrap();
    assert_eq!(page.0 / BLOCK, 7);
    assert_eq!(compact(y, Priority::SyncFull), (CompactResult::Success, 0));
}

#[test]
fn pageblocks_whose_blocks_all_stay_do_not_end_the_search() {
    let y = sparse(80, |block, _| block < 8);
    assert_eq!(compact(y, Priority::SyncFull), (CompactResult::Success, 8 * USED));
}

/// A block for which there is no place ends the search. What moved before it counts.
#[test]
fn pages_that_move_before_the_room_ends_count() {
    let y = empty(16, Mover { stays: |_, _| false, locked: |block, _| block == 1 });
    y.set_knob("compact_unevictable_allowed", "0").unwrap();
    y.alloc_at(Pfn(0), Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    y.alloc_at(Pfn(8), Order::new(3).unwrap(), Gfp::HIGHUSER_MOVABLE).unwrap();
    // Every second page of the only other pageblock with free pages.
    for pfn in (BLOCK..2 * BLOCK).step_by(2) {
        y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    (2..16).for_each(|block| fill(y, block, BLOCK, Gfp::KERNEL));
    // The zone is too near to HIGH to isolate a pageblock, and no request waits for one.
    assert_eq!(compact_all(y), 0);
    y.set_knob("min_free_kbytes", "64").unwrap();
    y.set_knob("watermark_boost_factor", "0").unwrap();
    assert_eq!(compact_all(y), 1);
}

/// A run for a request looks at 64 pageblocks at most, and an asynchronous one at eight. One more stays in the test:
/// that from which the CPU is served is not looked at.
#[test]
fn the_next_run_goes_on_behind_pageblocks_that_stay() {
    let many: fn(u64, u64) -> bool = |block, _| block < 65;
    for (priority, stays) in [(Priority::SyncLight, many), (Priority::Async, |block, _| block < 9)]
    {
        let y = sparse(96, stays);
        assert_eq!(compact(y, priority), (CompactResult::Complete, 0), "{priority:?}");
        let mut before = 0;
        for _ in 0..3 {
            let (result, moved) = compact(y, priority);
            assert_eq!(result, CompactResult::Success, "{priority:?}");
            assert!(moved > before, "{priority:?}: {moved}");
            before = moved;
            // The next run is for a block that there is not.
            while y.alloc(Order::HUGE, Gfp::KERNEL & !Gfp::DIRECT_RECLAIM).is_ok() {}
        }
    }
}

/// All free pages may be in the first pageblock that is tried, which leaves nothing to move to. They are room for
/// the blocks of others.
#[test]
fn room_that_is_in_one_pageblock_serves_the_others() {
    for half_used in [0, 7, 15] {
        let y = empty(16, Mover { stays: |_, _| false, locked: |_, _| false });
        let used = |pfn: &u64| pfn / BLOCK != half_used || pfn.is_multiple_of(2);
        for pfn in (0..16 * BLOCK).filter(used) {
            y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        }
        y.set_knob("min_free_kbytes", "64").unwrap();
        let result = y.compact_zone(ZONE, Order::new(1), Priority::SyncLight);
        assert_eq!(result, Some(CompactResult::Success), "{half_used}");
        assert_eq!(y.compact_stats().moved, 2);
        y.validate().unwrap();
    }
}

/// The first run of a pageblock has three blocks of four pages each in use, the second one five single pages.
#[test]
fn the_run_of_the_fewest_pages_is_made_whatever_its_blocks() {
    let y = empty(16, Mover { stays: |_, _| false, locked: |_, _| false });
    for pfn in [0, 4, 8] {
        y.alloc_at(Pfn(pfn), Order::new(2).unwrap(), Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    for pfn in 16..21 {
        y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    // Places for both, but no other run that can be made.
    for pfn in (32..16 * BLOCK).filter(|pfn| *pfn < BLOCK || pfn % 8 < 4) {
        y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::KERNEL).unwrap();
    }
    let result = y.compact_zone(ZONE, Order::new(4), Priority::SyncLight);
    assert_eq!((result, y.compact_stats().moved), (Some(CompactResult::Success), 5));
}

/// Requests of other types have their pageblocks there; only `compact_memory` empties these.
#[test]
fn proactive_compaction_empties_movable_pageblocks_alone() {
    let y = empty(24, Mover { stays: |_, _| false, locked: |_, _| false });
    (0..16).for_each(|block| fill(y, block, USED, Gfp::KERNEL));
    for pfn in (0..16 * BLOCK).filter(|pfn| pfn % BLOCK < USED) {
        y.set_movable(Pfn(pfn), Order::ZERO, true).unwrap();
    }
    (16..18).for_each(|block| fill(y, block, USED, Gfp::HIGHUSER_MOVABLE));
    y.set_knob("compaction_proactiveness", "100").unwrap();
    y.trigger_proactive_compaction();
    assert!(y.compact_background(NodeId(0)).worked);
    let moved = y.compact_stats().moved;
    assert!((1..=2 * USED).contains(&moved), "{moved}");
    assert_eq!(y.validate(), Ok(()));
}
