//! How far a compaction of the packed engine goes: eight sparse pageblocks at a time.

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

/// Moves blocks, except those at some offsets into some pageblocks.
struct Mover {
    stays: fn(u64, u64) -> bool,
}

impl Platform for Mover {}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        let stays = (self.stays)(from.0 / BLOCK, from.0 % BLOCK);
        if stays { Relocation::Refused } else { Relocation::Moved }
    }
}

type Y = Yard<'static, Hooked<Lock, Mover, Chosen>>;

/// A zone of this many pageblocks with movable pages at the start of each.
fn sparse(blocks: u64, stays: fn(u64, u64) -> bool) -> &'static Y {
    let rules = &<Packed as StaticPolicy>::RULES;
    let y = leaked(&Machine::normal(blocks * BLOCK), Mover { stays }, rules);
    for pfn in (0..blocks * BLOCK).filter(|pfn| pfn % BLOCK < USED) {
        y.alloc_at(Pfn(pfn), Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    y
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
    let y = sparse(80, |block, offset| block < 8 && offset == USED - 1);
    let moved = 8 * (USED - 1) + 8 * USED;
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
