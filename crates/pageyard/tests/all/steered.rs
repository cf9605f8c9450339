//! Steering: requests that are not movable claim pageblocks where such pages are already, and background
//! compaction keeps pageblocks free there.

use crate::common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use common::any::Shared;
use common::interpose::{Interposed, at_each_point};
use common::owners::{self, Owners, Random, all_is_well, put, take};
use common::state::State;
use common::{Chosen, LINUX612, Machine, Reused, Y, frames, o};
use lock_api::RawMutex;
use pageyard::policy::{StaticPolicy, Steered};
use pageyard::{Gfp, MigrateType, NodeId, Pfn, Record, Relocation, ZoneKind};

const STEERED: Chosen = &<Steered>::RULES;
const REGION: u64 = 1 << 18;
const ALL: Gfp = Gfp::MEMALLOC.union(Gfp::NOWARN);

/// The regions with pageblocks that are not movable.
fn tainted(y: &Y<'_>) -> BTreeSet<u64> {
    let zone = y.zone_info(ZoneKind::Normal).unwrap();
    let blocks = (zone.start.0..zone.start.0 + zone.spanned).step_by(512);
    let stays = |&pfn: &u64| y.block_type(Pfn(pfn)) != Some(MigrateType::Movable);
    blocks.filter(stays).map(|pfn| pfn / REGION).collect()
}

/// Every second pageblock of three regions and a half is free, in random order. `n` requests of this
/// order and these flags follow.
fn after(rules: Chosen, n: usize, order: u8, gfp: Gfp) -> BTreeSet<u64> {
    // The zone begins inside a region.
    let machine = Machine::new().zone(ZoneKind::Normal, REGION / 2..4 * REGION);
    machine.run_under(rules, |y| {
        let movable = Gfp::HIGHUSER_MOVABLE | ALL;
        let all: Vec<Pfn> = std::iter::from_fn(|| y.alloc(o(9), movable).ok()).collect();
        let mut free: Vec<Pfn> = all.into_iter().filter(|p| p.0 & 512 == 0).collect();
        let mut random = Random(7);
        (1..free.len()).rev().for_each(|i| free.swap(i, random.below(i + 1)));
        free.iter().for_each(|&p| y.free_direct(p, o(9)).unwrap());
        for _ in 0..n {
            y.alloc(o(order), gfp | ALL).unwrap();
        }
        y.validate().unwrap_or_else(|e| panic!("{e}"));
        tainted(y)
    })
}

#[test]
fn requests_that_are_not_movable_stay_in_tainted_regions() {
    for gfp in [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE] {
        assert_eq!(after(LINUX612, 100, 9, gfp).len(), 4);
        // 128 pageblocks are free in the first region, and 256 in each of the others.
        assert_eq!(after(STEERED, 100, 9, gfp).len(), 1);
        assert_eq!(after(STEERED, 300, 9, gfp).len(), 2, "a full region is followed by one other");
        assert_eq!(after(STEERED, 20_000, 0, gfp).len(), 1, "single pages");
    }
    assert_eq!(after(STEERED, 100, 9, Gfp::HIGHUSER_MOVABLE).len(), 0);
}

#[test]
fn what_no_tainted_region_has_is_claimed_elsewhere() {
    // All 896 free pageblocks are used in the end.
    assert_eq!(after(STEERED, 890, 9, Gfp::KERNEL).len(), 4);
}

/// Three regions of movable pageblocks in use.
fn regions() -> State {
    State::new(3 * REGION)
}

#[test]
fn a_tainted_region_is_found_wherever_it_is() {
    for (region, gfp) in [(0, Gfp::KERNEL), (1, Gfp::KERNEL), (2, Gfp::KERNEL | Gfp::RECLAIMABLE)] {
        let label = (region * REGION / 512) as usize;
        let s = regions().label(label, MigrateType::Reclaimable);
        // The first on the list is in another region.
        let s =
            (0..3).rev().fold(s, |s, n| s.free(n * REGION + 1024, 9).free(n * REGION + 4096, 9));
        s.run_under(STEERED, |y| {
            let got = y.alloc(o(0), gfp).unwrap();
            assert_eq!(got.0 / REGION, region);
        });
    }
}

#[test]
fn a_request_gets_no_less_than_it_asks_for() {
    let s = regions().label(0, MigrateType::Unmovable).free(1024, 9).free(REGION, 10);
    s.run_under(STEERED, |y| {
        assert_eq!(y.alloc(o(10), Gfp::KERNEL), Ok(Pfn(REGION)));
    });
}

#[test]
fn movable_requests_are_not_steered() {
    let s = regions().label(0, MigrateType::Unmovable).label(512, MigrateType::Unmovable);
    s.free(REGION, 9).free(0, 9).run_under(STEERED, |y| {
        assert_eq!(y.alloc(o(9), Gfp::HIGHUSER_MOVABLE), Ok(Pfn(REGION)), "the first on the list");
    });
}

type Owned<'a> = owners::Y<'a>;

/// Free pageblocks.
fn whole<R: RawMutex>(y: &owners::Y<'_, R>) -> u64 {
    let mut whole = 0;
    y.snapshot(ZoneKind::Normal, |record| {
        if let Record::Free { order, .. } = record
            && order.get() >= 9
        {
            whole += 1 << (order.get() - 9);
        }
    });
    whole
}

/// A region in use by small movable blocks with free ones between them, so that no pageblock is free.
/// Some pageblocks are nearly empty, but have a page that does not move; one has only two movable
/// blocks.
fn fragmented<R: RawMutex>(y: &owners::Y<'_, R>, first: Gfp) {
    take(y, 9, first | ALL, false).unwrap();
    let all: Vec<Pfn> =
        std::iter::from_fn(|| take(y, 4, Gfp::HIGHUSER_MOVABLE | ALL, true)).collect();
    for &p in &all {
        let (pageblock, nth) = (p.0 / 512, p.0 % 512 / 16);
        match pageblock % 10 {
            3 if nth == 0 => y.set_movable(p, o(4), false).unwrap(),
            3 => assert!(put(y, p)),
            5 if pageblock == EMPTIEST && nth > 1 => assert!(put(y, p)),
            _ if nth % 4 == 3 => assert!(put(y, p)),
            _ => {}
        }
    }
    y.drain_all(None);
    assert!(whole(y) <= 1);
}

const EMPTIEST: u64 = 25;

#[test]
fn background_compaction_empties_two_pageblocks_of_a_tainted_region() {
    let machine = Machine::normal(REGION / 8);
    let run = |rules, owners| {
        machine.run_with(owners, rules, |y: &Owned<'_>| {
            fragmented(y, Gfp::KERNEL);
            let before = whole(y);
            y.compact_background(NodeId(0));
            y.hooks().verify();
            all_is_well(y, &machine);
            let after = (whole(y), y.hooks().moved.load(Relaxed));
            // There is nothing more to do.
            y.compact_background(NodeId(0));
            assert_eq!((whole(y), y.hooks().moved.load(Relaxed)), after);
            (before, after.0, after.1)
        })
    };
    assert_eq!(run(LINUX612, Owners::willing()), (1, 1, 0));
    assert_eq!(run(STEERED, Owners::willing()), (1, 2, 32), "the pageblock with the fewest pages");
    // What does not move stays, and the next pageblock is tried.
    let one_refuses = |p: Pfn, _| match p.0 / 512 {
        EMPTIEST => Relocation::Refused,
        _ => Relocation::Moved,
    };
    let (before, after, moved) = run(STEERED, Owners::answering(one_refuses));
    assert!(before == 1 && after == 2 && moved > 32, "{after}, {moved}");
    let refusing = || Owners::answering(|_, _| Relocation::Refused);
    assert_eq!(run(STEERED, refusing()), (1, 1, 0));
}

/// Runs `other` at each point of an evacuation. Where it returns a type, the emptiest pageblock must
/// have that type in the end.
fn evacuated_with(other: fn(&owners::Y<'static, Interposed>) -> Option<MigrateType>) {
    thread_local! { static WANTED: Cell<Option<MigrateType>> = const { Cell::new(None) } }
    let m = Reused::under(STEERED, Machine::normal(1 << 14));
    let points = at_each_point(
        || {
            WANTED.set(None);
            let y: owners::Y<'static, Interposed> =
                Shared::new(Owners::willing(), |hooks| m.next(hooks));
            fragmented(&y, Gfp::KERNEL);
            y
        },
        |y| _ = y.compact_background(NodeId(0)),
        move |y| WANTED.set(other(y)),
        |y| {
            if let Some(t) = WANTED.get() {
                assert_eq!(y.block_type(emptiest().start), Some(t));
            }
        },
    );
    assert!(points > 4, "{points}");
}

fn emptiest() -> Range<Pfn> {
    frames(EMPTIEST * 512..EMPTIEST * 512 + 512)
}

#[test]
fn evacuation_keeps_a_type_that_changes_meanwhile() {
    evacuated_with(|y| {
        y.isolate(emptiest(), MigrateType::Movable).ok()?;
        y.unisolate(emptiest(), MigrateType::Reclaimable).unwrap();
        Some(MigrateType::Reclaimable)
    });
}

/// A contiguous range that is refused does not end evacuation's isolation, so evacuation does not end
/// that of the next caller.
#[test]
fn evacuation_ends_no_other_isolation() {
    evacuated_with(|y| {
        y.alloc_contig(emptiest(), MigrateType::Movable, Gfp::KERNEL).err()?;
        y.isolate(emptiest(), MigrateType::Movable).ok()?;
        Some(MigrateType::Isolate)
    });
}

#[test]
fn other_regions_are_not_evacuated() {
    let machine = Machine::normal(REGION / 8);
    machine.run_with(Owners::willing(), STEERED, |y: &Owned<'_>| {
        fragmented(y, Gfp::HIGHUSER_MOVABLE);
        let before = whole(y);
        y.compact_background(NodeId(0));
        assert_eq!((whole(y), y.hooks().moved.load(Relaxed)), (before, 0));
    });
}
