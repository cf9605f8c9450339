//! Spec §3.8: blocks kept for urgent requests of order 1 and above.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Y, o};
use pageyard::MigrateType::{HighAtomic, Movable, Reclaimable, Unmovable};
use pageyard::{Gfp, MigrateType, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;

/// Free memory is below LOW, so that an urgent request reaches the slow path and its reserve. Each
/// pageblock has one unmovable block of order 4; the rest is in use. (`managed` may exceed the
/// frames present.)
fn short(managed: u64) -> State {
    let mut s = State::new(managed);
    for block in 0..8usize {
        s = s.label(block, Unmovable);
    }
    for block in 0..8 {
        s = s.free(block * 512, 6).block(block * 512 + 64, 6, false);
    }
    s.set(|z| z.watermarks = [0, 600, 700, 800])
}

fn reserved(y: &Y<'_>) -> (u64, u64) {
    let i = y.zone_info(ZONE).unwrap();
    (i.reserved_highatomic, y.pageblocks(ZONE).unwrap()[HighAtomic as usize])
}

#[test]
fn s3_8_the_block_just_served_from_is_reserved_with_its_free_pages() {
    short(51_200).run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(4), Gfp::ATOMIC), Ok(Pfn(0)));
        assert_eq!(reserved(y), (512, 1));
        let v = normal(y);
        assert_eq!((v.label(0), v.free(4, HighAtomic)), (HighAtomic, &[16][..]));
        assert_eq!(y.zone_info(ZONE).unwrap().free_highatomic, 48);
        // The reserve serves the next request and does not grow: 1 % is one pageblock.
        assert_eq!(y.alloc(o(4), Gfp::ATOMIC), Ok(Pfn(16)));
        assert_eq!(reserved(y), (512, 1));
        // The reserve is used up, so other blocks serve the request, but the cap stops a second
        // reserve.
        y.alloc(o(5), Gfp::ATOMIC).unwrap();
        assert_eq!(y.alloc(o(5), Gfp::ATOMIC), Ok(Pfn(512)));
        assert_eq!(reserved(y), (512, 1));
    });
}

#[test]
fn s3_8_c_5_one_percent_rounded_up_and_nothing_below_a_pageblock() {
    let most = |managed: u64| {
        short(managed).run(|y: &Y<'_>| {
            for _ in 0..8 {
                // 64 pages each, so that no two come from one block.
                y.alloc(o(6), Gfp::ATOMIC).unwrap();
            }
            reserved(y).0
        })
    };
    assert_eq!(most(51_199), 0, "511 pages are too few");
    assert_eq!(most(51_200), 512);
    assert_eq!(most(51_300), 1024, "513 rounded up");
    assert_eq!(most(102_500), 1536);
}

#[test]
fn s2_9_requests_that_may_reserve() {
    let after = |gfp: Gfp, order| {
        short(51_200).run(|y: &Y<'_>| {
            y.alloc(o(order), gfp).unwrap();
            reserved(y).0
        })
    };
    assert_eq!(after(Gfp::ATOMIC, 1), 512, "also when the page came from a per-CPU list");
    assert_eq!(after(Gfp::ATOMIC, 0), 0, "order 0");
    assert_eq!(after(Gfp::NOWAIT, 4), 0, "without HIGH [6.12.54+]");
    assert_eq!(after(Gfp::HIGH | Gfp::KERNEL, 4), 0, "with DIRECT_RECLAIM");
    assert_eq!(after(Gfp::ATOMIC | Gfp::NOMEMALLOC, 4), 0);
}

/// Two reserved blocks: 16 pages free in the first, the second full.
fn two() -> State {
    State::new(102_400)
        .label(0, HighAtomic)
        .label(1, HighAtomic)
        .set(|z| z.reserved_highatomic = 1024)
        .block(0, 4, false)
        .free(16, 4)
        .used(512..1024, false)
}

#[test]
fn s3_8_unreserve_converts_a_block_with_a_free_page_to_the_requester_s_type() {
    two().run(|y: &Y<'_>| {
        assert!(y.unreserve_highatomic(Reclaimable, false));
        let v = normal(y);
        assert_eq!((v.label(0), v.free(4, Reclaimable)), (Reclaimable, &[16][..]));
        assert_eq!(reserved(y), (512, 1));
        let i = y.zone_info(ZONE).unwrap();
        assert_eq!((i.free_exact, i.free_highatomic), (16, 0));
        assert!(!y.unreserve_highatomic(Movable, false), "one block is kept");
        assert!(!y.unreserve_highatomic(Movable, true), "a full block cannot be found");
        assert_eq!(reserved(y), (512, 1));
    });
}

#[test]
fn s3_8_the_last_block_goes_only_by_force() {
    let s = two().set(|z| z.reserved_highatomic = 512);
    s.run(|y: &Y<'_>| {
        assert!(!y.unreserve_highatomic(Movable, false));
        assert!(y.unreserve_highatomic(Movable, true));
        assert_eq!(reserved(y).0, 0);
    });
}

#[test]
fn s3_8_larger_free_blocks_move_whole() {
    let s = State::new(102_400)
        .label(0, HighAtomic)
        .label(1, HighAtomic)
        .set(|z| z.reserved_highatomic = 1024)
        .free(0, 10);
    s.run(|y: &Y<'_>| {
        assert!(y.unreserve_highatomic(Movable, true));
        let v = normal(y);
        assert_eq!((v.free(10, Movable), v.label(512)), (&[0][..], Movable));
        assert_eq!(reserved(y), (0, 0));
    });
}

#[test]
fn s3_8_a_whole_pageblock_is_relabelled() {
    let s = State::new(51_200)
        .label(0, Unmovable)
        .free(0, 9)
        .set(|z| z.watermarks = [0, 600, 700, 800]);
    s.run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(9), Gfp::ATOMIC), Ok(Pfn(0)));
        assert_eq!(reserved(y), (512, 1));
        y.free_direct(Pfn(0), o(9)).unwrap();
        assert_eq!(normal(y).free(9, MigrateType::HighAtomic), [0]);
    });
}
