//! Spec §1.6–1.10: merging, placement, splitting, and blocks that never merge.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, o};
use pageyard::MigrateType::{HighAtomic, Movable, Reclaimable};
use pageyard::{Gfp, Pfn, ZoneKind};

/// A movable request. Only orders that per-CPU lists do not keep, or keep disabled, are used here.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

#[test]
fn s1_7_a_free_merges_as_far_as_its_buddies_are_free() {
    let s = State::new(1024).free(1, 0).free(2, 1).free(8, 3).used(0..1, false).used(4..5, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(0), o(0)).unwrap();
        let v = normal(y);
        assert_eq!(v.free(2, Movable), [0], "0+1, then +2..4; 4..8 is in use");
        assert_eq!(v.free(3, Movable), [8]);
        assert_eq!(y.free_blocks(ZoneKind::Normal).unwrap()[..4], [0, 0, 1, 1]);
    });
}

#[test]
fn s1_7_a_merging_pageblock_relabels_its_buddy() {
    // Block A (order 9, RECLAIMABLE) is free, its buddy B (MOVABLE) is freed.
    let s = State::new(2048).label(0, Reclaimable).free(0, 9).block(512, 9, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(512), o(9)).unwrap();
        let v = normal(y);
        assert_eq!(v.free(10, Movable), [0]);
        assert_eq!((v.label(0), v.label(512)), (Movable, Movable));
        assert!(v.free(9, Reclaimable).is_empty());
        assert_eq!(y.zone_stats(ZoneKind::Normal).unwrap().merges_relabelled, 1);
    });
}

#[test]
fn s1_7_highatomic_pageblocks_stay_apart() {
    let s = State::new(2048)
        .label(0, HighAtomic)
        .set(|z| z.reserved_highatomic = 512)
        .free(0, 9)
        .block(512, 9, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(512), o(9)).unwrap();
        let v = normal(y);
        assert_eq!(v.free(9, HighAtomic), [0]);
        assert_eq!(v.free(9, Movable), [512]);
        let info = y.zone_info(ZoneKind::Normal).unwrap();
        assert_eq!((info.free_exact, info.free_highatomic), (1024, 512));
    });
}

/// Page 5 is freed while 4 is in use; the pair 4,5 has the partner 6,7 (§1.8).
fn page_5(free: &[(u64, u8)], used: &[u64]) -> Vec<u64> {
    let mut s = State::new(1024).free(100, 0).used(4..6, false);
    for &(pfn, order) in free {
        s = s.free(pfn, order);
    }
    for &p in used {
        s = s.used(p..p + 1, false);
    }
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(5), o(0)).unwrap();
        normal(y).free(0, Movable).to_vec()
    })
}

#[test]
fn s1_8_page_5_goes_to_the_tail_when_6_and_7_are_free() {
    assert_eq!(page_5(&[(6, 1)], &[]), [100, 5]);
}

#[test]
fn s1_8_page_5_goes_to_the_head_when_6_or_7_is_in_use() {
    assert_eq!(page_5(&[], &[6, 7]), [5, 100]);
    assert_eq!(page_5(&[(7, 0)], &[6]), [5, 100, 7]);
    assert_eq!(page_5(&[(6, 0)], &[7]), [5, 100, 6]);
}

#[test]
fn s1_8_page_4_merges_with_5_and_goes_to_the_tail_for_its_partner_at_0() {
    let s = State::new(1024).free(100, 1).free(5, 0).free(0, 2).used(4..5, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(4), o(0)).unwrap();
        assert_eq!(normal(y).free(1, Movable), [100, 4]);
    });
    // The partner is in use: head.
    let s = State::new(1024).free(100, 1).free(5, 0).used(4..5, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(4), o(0)).unwrap();
        assert_eq!(normal(y).free(1, Movable), [4, 100]);
    });
}

#[test]
fn s1_8_orders_9_and_10_always_go_to_the_head() {
    // The buddy 512 of the block is in use; the pair's partner 1024 (order 10) is free.
    let s = State::new(4096).free(3072, 9).free(1024, 10).block(0, 9, false).block(512, 9, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(0), o(9)).unwrap();
        assert_eq!(normal(y).free(9, Movable), [0, 3072]);
    });
    // Order 8 under the same circumstances: tail.
    let s = State::new(4096).free(3072, 8).free(512, 9).block(0, 8, false).block(256, 8, false);
    s.run(|y: &Y<'_>| {
        y.free_direct(Pfn(0), o(8)).unwrap();
        assert_eq!(normal(y).free(8, Movable), [3072, 0]);
    });
}

#[test]
fn s1_9_a_split_keeps_the_lower_half_in_ascending_order() {
    let s = State::new(1024).free(512, 6);
    s.run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(4), GFP), Ok(Pfn(512)));
        let v = normal(y);
        assert_eq!(v.free(5, Movable), [544]);
        assert_eq!(v.free(4, Movable), [528]);
        for want in [528, 544, 560] {
            assert_eq!(y.alloc(o(4), GFP), Ok(Pfn(want)));
        }
        assert!(y.alloc(o(4), GFP).is_err());
    });
}

#[test]
fn s1_9_split_halves_go_to_the_head_of_their_lists() {
    let s = State::new(1024).free(0, 4).free(512, 6);
    s.run(|y: &Y<'_>| {
        // An order-5 request breaks the order-6 block; its upper half stays.
        assert_eq!(y.alloc(o(5), GFP), Ok(Pfn(512)));
        // The next request splits that half, whose remainder goes before the order-4 block at 0.
        assert_eq!(y.alloc(o(4), GFP), Ok(Pfn(0)));
        assert_eq!(y.alloc(o(4), GFP), Ok(Pfn(544)));
        assert_eq!(normal(y).free(4, Movable), [560]);
    });
}

#[test]
fn s1_10_order_10_is_freed_under_each_halfs_type() {
    let s = State::new(2048).label(0, HighAtomic).block(0, 10, false);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(0), o(10)).unwrap();
        let v = normal(y);
        assert_eq!((v.free(9, HighAtomic), v.free(9, Movable)), (&[0][..], &[512][..]));
    });
    let s = State::new(2048).label(0, Reclaimable).block(0, 10, false);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(0), o(10)).unwrap();
        let v = normal(y);
        assert_eq!(v.free(10, Movable), [0], "both are mergeable: the second half's type wins");
        assert_eq!(v.label(0), Movable);
    });
}

#[test]
fn s1_5_buddies_across_a_hole_or_a_reserved_frame_never_merge() {
    // Frames 6 and 7 are a hole, frame 9 is reserved.
    let m =
        Machine::new().span(ZoneKind::Normal, 0..1024).usable(0..6).usable(8..1024).reserved(9..10);
    m.run(|y: &Y<'_>| {
        let v = normal(y);
        assert_eq!((v.free(2, Movable), v.free(1, Movable)), (&[0, 12][..], &[4, 10][..]));
        assert_eq!(v.free(0, Movable), [8]);
        assert_eq!(v.zone.present, 1022);
        assert_eq!(v.zone.managed, 1021);
    });
}

#[test]
fn s1_6_buddies_across_a_zone_edge_never_merge() {
    // The boundary at 256 cuts an order-9 pair; the zones are adjacent in memory.
    let m = Machine::new().zone(ZoneKind::Dma, 0..256).zone(ZoneKind::Normal, 256..1024);
    m.run(|y: &Y<'_>| {
        let dma = common::view::view(y, ZoneKind::Dma);
        assert_eq!(dma.free(8, Movable), [0]);
        let v = normal(y);
        assert_eq!((v.free(8, Movable), v.free(9, Movable)), (&[256][..], &[512][..]));
        assert_eq!(dma.zone.managed + v.zone.managed, 1024);
    });
}

#[test]
fn s8_1_initial_memory_is_freed_in_maximal_blocks_ascending_at_the_tail() {
    Machine::normal(4096 + 512).run(|y: &Y<'_>| {
        let v = normal(y);
        assert_eq!(v.free(10, Movable), [0, 1024, 2048, 3072]);
        assert_eq!(v.free(9, Movable), [4096]);
        assert!(v.blocks.values().all(|&t| t == Movable));
        assert_eq!(v.zone.nr_free, 4608, "every CPU's part starts at 0");
    });
}
