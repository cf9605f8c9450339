//! Spec §4.1–4.5, §4.9: which pageblock serves a request when its own type has no free block.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Chosen, Y, o};
use pageyard::MigrateType::{HighAtomic, Movable, Reclaimable, Unmovable};
use pageyard::policy::{StaticPolicy, TypeChecked};
use pageyard::{Event, Gfp, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const UNMOVABLE: Gfp = Gfp::KERNEL;
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const RECLAIMABLE: Gfp = Gfp::KERNEL.union(Gfp::RECLAIMABLE);

const CHECKED: Chosen = &<TypeChecked>::RULES;

fn claims(y: &Y<'_>) -> [u64; 4] {
    let s = y.zone_stats(ZONE).unwrap();
    assert_eq!(s.type_check_failures, 0);
    [s.claims_whole, s.claims_part, s.claims_refused, s.steals]
}

#[test]
fn s4_4_504_compatible_pages_let_an_unmovable_page_claim_a_movable_block() {
    // One free order-3 block, the rest in use by owners that cannot move.
    let s = State::new(4096).free(512, 3).used(520..1024, false);
    s.run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(0), UNMOVABLE), Ok(Pfn(512)));
        assert_eq!(claims(y), [0, 1, 0, 0]);
        let v = normal(y);
        assert_eq!(v.label(512), Unmovable);
        assert_eq!(v.free(2, Unmovable), [516], "the remainder has the request's type");
    });
}

/// A RECLAIMABLE page is wanted; the unmovable block has `free` pages free.
fn reclaimable_from_unmovable(free: u64) -> [u64; 4] {
    let mut s = State::new(4096).label(1, Unmovable).used(512 + free..1024, false);
    let mut at = 512;
    while at < 512 + free {
        let order = ((512 + free - at).ilog2() as u8).min(8).min(at.trailing_zeros() as u8);
        s = s.free(at, order);
        at += 1 << order;
    }
    s.run_under(CHECKED, |y| {
        let pfn = y.alloc(o(0), RECLAIMABLE).unwrap();
        let label = y.block_type(pfn).unwrap();
        let c = claims(y);
        assert_eq!(label, if c[1] == 1 { Reclaimable } else { Unmovable });
        c
    })
}

#[test]
fn s4_4_200_free_pages_are_too_few_and_256_are_enough() {
    assert_eq!(reclaimable_from_unmovable(256), [0, 1, 0, 0]);
    // 200 = 128 + 64 + 8: refused at three orders, then a page of the smallest is stolen.
    assert_eq!(reclaimable_from_unmovable(200), [0, 0, 3, 1]);
    assert_eq!(reclaimable_from_unmovable(255)[1], 0);
}

#[test]
fn s4_4_movable_marks_are_alike_for_a_movable_request() {
    // An order-4 page is wanted of an unmovable block with 100 free and 160 driver-movable pages.
    let with = |marked: u64| {
        State::new(4096)
            .label(1, Unmovable)
            .free(512, 6)
            .free(576, 5)
            .free(608, 2)
            .used(612..612 + marked, true)
            .used(612 + marked..1024, false)
    };
    with(160).run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(4), MOVABLE), Ok(Pfn(576)), "the smallest sufficient of its own");
        assert_eq!(claims(y), [0, 1, 0, 0]);
        assert_eq!(normal(y).label(512), Movable);
    });
    with(155).run_under(CHECKED, |y| {
        y.alloc(o(4), MOVABLE).unwrap();
        assert_eq!(claims(y), [0, 0, 2, 1], "100 + 155 < 256: refused at orders 6 and 5");
    });
}

#[test]
fn s4_4_movable_pages_are_incompatible_with_other_types() {
    // 64 are free; the rest is in use, some of it by owners that can move.
    let with = |movable: u64| {
        let s = State::new(4096).free(512, 6).used(576..576 + movable, true);
        s.used(576 + movable..1024, false).run_under(CHECKED, |y| {
            assert_eq!(y.alloc(o(0), UNMOVABLE), Ok(Pfn(512)));
            claims(y)
        })
    };
    assert_eq!(with(256), [0, 1, 0, 0], "64 free and 192 alike");
    assert_eq!(with(257), [0, 0, 1, 1]);
}

#[test]
fn s4_4_each_frame_of_a_larger_block_counts_by_its_mark() {
    // 128 free, one movable order-7 block: 256 together.
    let s =
        State::new(4096).label(1, Unmovable).free(512, 7).block(640, 7, true).block(768, 8, false);
    s.run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(4), MOVABLE), Ok(Pfn(512)));
        assert_eq!(claims(y), [0, 1, 0, 0]);
    });
}

#[test]
fn s4_4_cached_and_reserved_frames_are_alike_for_others_in_a_movable_block() {
    // 8 free, 248 cached, 256 reserved; nothing is marked movable.
    let cached: Vec<u64> = (520..768).collect();
    let s = State::new(4096).limits(1, 1000, 1000).free(512, 3).cached(0, 1, &cached);
    s.run_under(CHECKED, |y| {
        y.alloc(o(1), UNMOVABLE).unwrap();
        assert_eq!(claims(y), [0, 1, 0, 0]);
        assert_eq!(normal(y).cached(0, 1), cached, "cached pages stay on their list");
    });
}

#[test]
fn s4_2_movable_requests_do_not_claim_small_blocks() {
    // All of the block is free or movable, but in pieces below order 4.
    let mut s = State::new(4096).label(1, Unmovable);
    for p in (512..1024).step_by(16) {
        s = s.free(p, 3).block(p + 8, 3, true);
    }
    s.run_under(CHECKED, |y| {
        y.alloc(o(0), MOVABLE).unwrap();
        assert_eq!(claims(y), [0, 0, 0, 1]);
        assert_eq!(y.zone_stats(ZONE).unwrap().boosts, 0);
    });
}

#[test]
fn s4_1_the_order_of_fallbacks() {
    // A whole free block of each other type: which one is taken?
    let taken = |gfp, a, b| {
        State::new(4096).label(0, a).label(2, b).free(0, 9).free(1024, 9).run_under(CHECKED, |y| {
            y.hooks().watch();
            y.alloc(o(0), gfp).unwrap();
            y.hooks()
                .events()
                .into_iter()
                .find_map(|e| match e {
                    Event::Fallback { from, claimed, found, .. } => {
                        assert!(claimed && found == o(9));
                        Some(from)
                    }
                    _ => None,
                })
                .unwrap()
        })
    };
    assert_eq!(taken(UNMOVABLE, Movable, Reclaimable), Reclaimable);
    assert_eq!(taken(MOVABLE, Unmovable, Reclaimable), Reclaimable);
    assert_eq!(taken(RECLAIMABLE, Movable, Unmovable), Unmovable);
}

#[test]
fn s4_4_an_order_10_block_is_claimed_with_both_its_pageblocks() {
    State::new(4096).free(1024, 10).run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(4), RECLAIMABLE), Ok(Pfn(1024)));
        let v = normal(y);
        assert_eq!((v.label(1024), v.label(1536)), (Reclaimable, Reclaimable));
        assert_eq!(v.free(9, Reclaimable), [1536]);
        assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 1008);
    });
}

#[test]
fn s4_4_a_pageblock_across_the_zone_s_edge_is_refused_after_the_boost() {
    let m = common::Machine::new().zone(ZoneKind::Normal, 300..4096);
    m.run_under(CHECKED, |y| {
        // Allocate all whole blocks, then everything beyond the first pageblock.
        let whole: Vec<Pfn> =
            std::iter::from_fn(|| y.alloc(o(9), MOVABLE | Gfp::MEMALLOC).ok()).collect();
        assert_eq!(whole.len(), 7);
        let before = y.zone_stats(ZONE).unwrap();
        let pfn = y.alloc(o(4), UNMOVABLE | Gfp::MEMALLOC).unwrap();
        let after = y.zone_stats(ZONE).unwrap();
        assert!(pfn.0 < 512);
        assert_eq!(y.block_type(pfn), Some(Movable), "stolen, not claimed");
        assert_eq!(after.claims_part, before.claims_part);
        assert!(after.boosts > before.boosts);
    });
}

#[test]
fn s4_5_a_steal_takes_the_smallest_block_and_keeps_the_rests_type() {
    let s = State::new(4096).label(1, Reclaimable).free(512, 6).free(580, 2).used(600..1024, false);
    s.run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(0), UNMOVABLE), Ok(Pfn(580)));
        assert_eq!(claims(y), [0, 0, 2, 1]);
        let v = normal(y);
        assert_eq!((v.free(0, Reclaimable), v.free(1, Reclaimable)), (&[581][..], &[582][..]));
        assert_eq!(v.label(580), Reclaimable);
        assert_eq!(y.zone_stats(ZONE).unwrap().mismatches, 1);
    });
}

/// §4.3's example: a refill of 31 reclaimable pages with only single unmovable pages free.
#[test]
fn s4_3_a_refill_that_steals_once_goes_on_stealing() {
    let mut s = State::new(8192).label(1, Unmovable).used(612..1024, false).limits(31, 1000, 1000);
    for p in (512..612).step_by(2) {
        s = s.free(p, 0).used(p + 1..p + 2, false);
    }
    let s = s.set(|z| (z.watermarks, z.nr_free) = ([0, 0, 3000, 4000], 8000));
    s.run_under(CHECKED, |y| {
        y.alloc(o(0), RECLAIMABLE).unwrap();
        assert_eq!(claims(y), [0, 0, 1, 31], "one claim refused, one boost");
        assert_eq!(y.zone_info(ZONE).unwrap().boost, 512);
        let v = normal(y);
        // The pages are in the order taken; the first one went to the caller.
        assert_eq!(v.cached(0, 2), (514..574).step_by(2).collect::<Vec<_>>());
        // The refusal is remembered during one refill only: the next refill tries to claim again
        // and is refused again.
        y.alloc_bulk_each(31, RECLAIMABLE, |_| ()).unwrap();
        assert_eq!(claims(y)[2], 2);
        assert_eq!(y.zone_info(ZONE).unwrap().boost, 1024);
    });
}

#[test]
fn s4_4_highatomic_blocks_are_never_claimed_or_stolen_from() {
    let s = State::new(4096).label(1, HighAtomic).free(512, 9);
    s.run_under(CHECKED, |y| {
        // (The counter of free highatomic pages keeps ordinary requests away before that.)
        for gfp in [UNMOVABLE, MOVABLE, RECLAIMABLE] {
            // (Without NORETRY the reserved block would be given back in the end.)
            let gfp = gfp | Gfp::MEMALLOC | Gfp::NORETRY;
            assert!(y.alloc(o(0), gfp).is_err());
        }
        assert_eq!(claims(y), [0; 4]);
    });
}

#[test]
fn s4_9_conversion_moves_free_blocks_ascending_to_the_tails_and_leaves_used_pages() {
    // Unmovable order-0 list: 4000; block 1 is movable with free pages 700, 600, 650.
    let s = State::new(4096)
        .label(7, Unmovable)
        .free(512, 7)
        .free(700, 0)
        .free(600 + 52, 0)
        .free(680, 0)
        .used(640..652, false)
        .used(681..700, false)
        .free(4000, 0);
    s.run_under(CHECKED, |y| {
        assert_eq!(y.alloc(o(5), UNMOVABLE), Ok(Pfn(512)));
        let v = normal(y);
        assert_eq!(v.free(0, Unmovable), [4000, 652, 680, 700]);
        assert_eq!(v.allocated.len(), 1 + 12 + 19);
        assert!(v.free(0, Movable).is_empty());
    });
}

#[test]
fn s2_4_without_grouping_everything_is_claimed_as_unmovable() {
    let s = State::new(4096).free(512, 0).used(513..1024, true).set(|z| z.grouping_disabled = true);
    s.run_under(CHECKED, |y| {
        y.alloc(o(0), RECLAIMABLE).unwrap();
        assert_eq!(claims(y), [0, 1, 0, 0]);
        assert_eq!(y.block_type(Pfn(512)), Some(Unmovable));
    });
}
