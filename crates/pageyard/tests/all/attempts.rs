//! Spec §2.7–2.10: the attempts of a request that may not reclaim, told apart by their side
//! effects.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, o};
use pageyard::MigrateType::{Movable, Unmovable};
use pageyard::{AllocError, CpuId, Gfp, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);

/// No free block at all, and every attempt reaches the per-CPU list. Of all marks only
/// NO_WATERMARKS passes at 0 free pages, so the counter claims pages that no list has.
fn nothing_on_the_lists() -> State {
    State::new(1024)
        .set(|z| z.nr_free = 1000)
        .limits(7, 1000, 1000)
        .cpu(0, |c| c.tuning.free_count = 800)
}

#[test]
fn s2_10_a_request_without_reclaim_makes_exactly_three_attempts() {
    nothing_on_the_lists().run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(0), Gfp::empty()), Err(AllocError::NoMemory));
        assert_eq!(y.pageset(ZONE, CPU).unwrap().free_count, 800 >> 3, "halved each time");
        let s = y.cpu_stats(ZONE, CPU).unwrap();
        assert_eq!((s.empty_refills, s.refills), (3, 0));
        let z = y.zone_stats(ZONE).unwrap();
        assert_eq!((z.failures, z.pages_taken), (1, 0));
    });
}

#[test]
fn s5_7_an_uncached_order_halves_no_count() {
    nothing_on_the_lists().run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(4), Gfp::empty()), Err(AllocError::NoMemory));
        assert_eq!(y.pageset(ZONE, CPU).unwrap().free_count, 800);
    });
}

#[test]
fn s2_8_nofragment_adds_a_fourth_walk_over_the_zones() {
    // The first attempt walks twice: with NOFRAGMENT, then without.
    nothing_on_the_lists().set(|z| z.nofragment = true).run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(0), Gfp::empty()), Err(AllocError::NoMemory));
        assert_eq!(y.pageset(ZONE, CPU).unwrap().free_count, 800 >> 4);
    });
}

#[test]
fn s2_10_reclaim_is_woken_before_restart_and_before_retry() {
    nothing_on_the_lists().run(|y: &Y<'_>| {
        assert!(y.alloc(o(2), Gfp::NOWAIT).is_err());
        assert_eq!(y.hooks().wakes(), [(o(2), ZONE); 2]);
        assert!(y.alloc(o(2), Gfp::empty()).is_err());
        assert!(y.hooks().wakes().is_empty(), "only with KSWAPD");
    });
}

/// 2000 free pages of the request's type; MIN 1000, LOW 2500, HIGH 4000.
fn marks() -> State {
    let mut s = State::new(4096).label(0, Unmovable).label(1, Unmovable);
    s = s.label(2, Unmovable).label(3, Unmovable);
    for p in 0..3 {
        s = s.free(p * 512, 9);
    }
    s.free(1536, 8).free(1792, 7).free(1920, 6).free(1984, 4).set(|z| {
        z.watermarks = [1000, 2500, 4000, 5500];
    })
}

#[test]
fn s2_7_s2_9_the_first_attempt_tests_low_and_the_later_ones_min() {
    marks().run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok(), "2000 are above MIN");
        assert_eq!(y.hooks().wakes().len(), 1, "but not above LOW");
    });
    marks().set(|z| z.watermarks = [1000, 1500, 1800, 2500]).run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok());
        assert!(y.hooks().wakes().is_empty());
    });
}

/// Order-4 blocks until a request fails; how many pages are left.
fn left_after(gfp: Gfp) -> u64 {
    marks().run(|y: &Y<'_>| {
        while y.alloc(o(4), gfp).is_ok() {}
        y.zone_info(ZONE).unwrap().free_exact
    })
}

#[test]
fn s3_7_reserves_available_to_each_kind_of_request() {
    let expect = |mark: u64| {
        let mut left = 2000;
        while left - 15 > mark {
            left -= 16;
        }
        left
    };
    assert_eq!(left_after(Gfp::KERNEL), expect(1000));
    assert_eq!(left_after(Gfp::NOWAIT), expect(1000), "NON_BLOCK alone lowers nothing");
    assert_eq!(left_after(Gfp::ATOMIC), expect(375), "half of MIN, less a quarter");
    assert_eq!(left_after(Gfp::ATOMIC | Gfp::NOMEMALLOC), expect(500), "HIGH alone: half");
    assert_eq!(left_after(Gfp::HIGH | Gfp::KERNEL), expect(500));
    assert_eq!(left_after(Gfp::ATOMIC | Gfp::MEMALLOC), 0, "no watermark");
    assert_eq!(left_after(Gfp::KERNEL | Gfp::MEMALLOC), 0);
    let contradiction = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOMEMALLOC;
    assert_eq!(left_after(contradiction), expect(500), "NOMEMALLOC wins");
}

#[test]
fn s2_8_a_failed_high_mark_sets_below_high_once() {
    marks().run(|y: &Y<'_>| {
        assert!(!y.zone_info(ZONE).unwrap().below_high);
        y.alloc(o(4), Gfp::KERNEL).unwrap();
        assert!(y.zone_info(ZONE).unwrap().below_high);
    });
    // A request that finds no large enough block sets it too (§2.8 step 5).
    let s = State::new(4096).free(0, 8).free(512, 8).free(1024, 8);
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(10), Gfp::KERNEL).is_err());
        assert!(y.zone_info(ZONE).unwrap().below_high);
    });
}

/// One free whole movable block, and free pages of another movable block with little in use.
fn mixed(nofragment: bool) -> State {
    State::new(4096)
        .free(512, 3)
        .used(520..524, true)
        .free(1024, 9)
        .set(|z| z.nofragment = nofragment)
        .limits(1, 0, 0)
}

#[test]
fn s2_7_nofragment_claims_whole_blocks_only() {
    // Whole blocks are looked at first anyway; with none left, the partly free block must wait
    // for the second walk.
    mixed(true).run(|y: &Y<'_>| {
        y.alloc(o(9), Gfp::HIGHUSER_MOVABLE).unwrap();
        y.alloc(o(0), Gfp::KERNEL).unwrap();
        let s = y.cpu_stats(ZONE, CPU).unwrap();
        assert_eq!(s.empty_refills, 1, "the walk with NOFRAGMENT found nothing");
    });
    mixed(false).run(|y: &Y<'_>| {
        y.alloc(o(9), Gfp::HIGHUSER_MOVABLE).unwrap();
        y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(y.cpu_stats(ZONE, CPU).unwrap().empty_refills, 0);
    });
}

#[test]
fn s2_7_nofragment_belongs_to_requests_that_prefer_normal() {
    let m = Machine::new()
        .zone(ZoneKind::Dma32, 0..8192)
        .zone(ZoneKind::Normal, 8192..16384)
        .zone(ZoneKind::Movable, 16384..24576);
    m.run(|y: &Y<'_>| {
        for kind in y.zone_ids() {
            let v = common::view::view(y, kind);
            assert_eq!(v.zone.nofragment, kind.kind == ZoneKind::Normal, "{kind}");
        }
    });
}

#[test]
fn s2_8_no_watermarks_still_takes_nothing_from_highatomic_blocks() {
    use pageyard::MigrateType::HighAtomic;
    let s = State::new(4096)
        .label(0, HighAtomic)
        .set(|z| (z.reserved_highatomic, z.watermarks) = (512, [600, 700, 800, 900]))
        .free(0, 9);
    s.run(|y: &Y<'_>| {
        // The later attempts of NOWAIT have NON_BLOCK, but 512 is not above the mark of 600. The
        // flags that replace MEMALLOC's ignore the mark but may not use the reserve.
        let gfp = Gfp::NOWAIT | Gfp::MEMALLOC;
        assert!(y.alloc(o(0), gfp).is_err());
        assert_eq!(normal(y).free(9, HighAtomic), [0]);
    });
    let s = s.set(|z| z.watermarks = [400, 450, 500, 550]);
    s.run(|y: &Y<'_>| {
        let modest = Gfp::NOWAIT | Gfp::NOMEMALLOC;
        assert!(y.alloc(o(0), modest).is_err(), "reserved pages do not count");
        assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok(), "the last attempt uses the reserve");
        assert_eq!(normal(y).free(4, HighAtomic), [16], "the remainder stays reserved");
        assert!(normal(y).free(4, Movable).is_empty());
    });
    s.run(|y: &Y<'_>| {
        // A request that may reclaim, and reclaims nothing, releases the reserved block (§2.10).
        assert!(y.alloc(o(0), Gfp::KERNEL).is_ok());
        assert!(normal(y).free(4, HighAtomic).is_empty());
    });
}
