//! Spec §3.3, §3.4: boosts, and which requests they make wake reclaim.

use crate::common;

use common::state::State;
use common::{Machine, Y, o};
use pageyard::MigrateType::Reclaimable;
use pageyard::{Gfp, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const GFP: Gfp = Gfp::KSWAPD_RECLAIM;

#[test]
fn s3_2_device_memory_has_a_share_of_the_minimum() {
    let m = Machine::new().zone(ZoneKind::Device, 0..24_576).zone(ZONE, 24_576..32_768);
    m.run(|y: &Y<'_>| {
        y.set_min_free_kbytes(4096).unwrap();
        let min = |zone| y.zone_info(zone).unwrap().watermarks[0];
        assert_eq!((min(ZoneKind::Device), min(ZONE)), (768, 256));
    });
}

/// Only single pages are free, in a reclaimable block that others use: an unmovable request is
/// refused a claim (one boost) and steals.
fn crowded() -> State {
    let mut s = State::new(4096)
        .label(1, Reclaimable)
        .used(600..1000, false)
        .set(|z| z.watermarks = [0, 0, 1000, 2000]);
    for p in (512..600).step_by(2) {
        s = s.free(p, 0).used(p + 1..p + 2, false);
    }
    // A counter far above every mark, so that boosts fail no request here.
    s.set(|z| z.nr_free = 4096)
}

fn boost(y: &Y<'_>) -> (u64, bool) {
    let info = y.zone_info(ZONE).unwrap();
    (info.boost, info.boosted)
}

#[test]
fn s3_4_a_refused_claim_boosts_and_wakes_reclaim_in_the_same_attempt() {
    crowded().run(|y: &Y<'_>| {
        y.alloc(o(0), GFP).unwrap();
        assert_eq!(boost(y), (512, false), "set, then cleared by the attempt that set it");
        assert_eq!(y.hooks().wakes(), [(o(0), ZONE)]);
        let s = y.zone_stats(ZONE).unwrap();
        assert_eq!((s.boosts, s.claims_refused, s.steals, s.claims_part), (1, 1, 1, 0));
    });
}

#[test]
fn s3_4_a_request_without_kswapd_boosts_but_neither_sets_nor_clears_the_flag() {
    crowded().run(|y: &Y<'_>| {
        y.alloc(o(0), Gfp::empty()).unwrap();
        assert_eq!(boost(y), (512, false));
        assert!(y.hooks().wakes().is_empty());
    });
    // The flag is pending: a request without KSWAPD leaves it, the next with KSWAPD clears it.
    crowded().set(|z| z.flags = 1).run(|y: &Y<'_>| {
        y.alloc(o(0), Gfp::empty()).unwrap();
        assert!(boost(y).1);
        y.alloc(o(0), GFP).unwrap();
        assert!(!boost(y).1);
        assert_eq!(y.hooks().wakes(), [(o(0), ZONE)]);
    });
}

#[test]
fn s3_4_a_failed_attempt_wakes_reclaim() {
    // The 1000 pages that the counter claims are on no list that the request may use.
    let s = State::new(4096).set(|z| (z.nr_free, z.flags) = (1000, 1));
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), GFP).is_err());
        assert!(!boost(y).1);
        assert!(y.hooks().wakes().is_empty(), "by its counter the zone is balanced (§7.1)");
    });
    let s = s.set(|z| z.boost = 9);
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), GFP).is_err());
        assert!(!boost(y).1);
        assert_eq!(y.hooks().wakes().len(), 3, "once for the flag, twice by the slow path");
        assert_eq!(boost(y).0, 9);
    });
}

#[test]
fn s3_4_boosts_add_up_to_the_cap() {
    crowded().run(|y: &Y<'_>| {
        // HIGH 1000 × 1.5
        for want in [512, 1024, 1500, 1500] {
            y.alloc(o(0), GFP).unwrap();
            assert_eq!(boost(y).0, want);
        }
    });
}

#[test]
fn s3_4_a_request_boosts_once_per_order_at_which_it_is_refused() {
    // Free blocks of orders 0, 2 and 4 in one crowded reclaimable block.
    let s = State::new(4096)
        .label(1, Reclaimable)
        .used(600..1000, false)
        .free(512, 0)
        .free(516, 2)
        .free(528, 4)
        .used(513..516, false)
        .set(|z| z.watermarks = [0, 0, 4000, 5000]);
    s.run(|y: &Y<'_>| {
        y.alloc(o(0), GFP).unwrap();
        assert_eq!(boost(y).0, 3 * 512);
        assert_eq!(y.zone_stats(ZONE).unwrap().claims_refused, 3);
    });
}

#[test]
fn s3_4_no_boost_without_factor_in_small_zones_or_without_a_high_mark() {
    let boosted = |s: State| {
        s.run(|y: &Y<'_>| {
            y.alloc(o(0), GFP).unwrap();
            assert!(y.hooks().wakes().is_empty());
            y.zone_info(ZONE).unwrap().boost
        })
    };
    let mut off = crowded();
    off.machine.knobs.watermark_boost_factor = 0;
    assert_eq!(boosted(off), 0);
    assert_eq!(boosted(crowded().set(|z| z.managed = 2047)), 0);
    assert_eq!(boosted(crowded().set(|z| z.watermarks = [0; 4])), 0);
}

#[test]
fn s3_4_a_whole_pageblock_changes_its_type_without_a_boost() {
    let s = State::new(4096).free(512, 9).set(|z| z.watermarks = [0, 0, 100, 200]);
    s.run(|y: &Y<'_>| {
        y.alloc(o(0), GFP).unwrap();
        assert_eq!(boost(y).0, 0);
        assert_eq!(y.zone_stats(ZONE).unwrap().claims_whole, 1);
    });
}

#[test]
fn s3_3_a_boost_raises_every_mark_and_a_recalculation_ends_it() {
    // 1024 free pages; without the boost all marks are far below.
    let s = State::new(8192).free(1024, 10).set(|z| z.boost = 1024);
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(4), Gfp::KERNEL).is_err(), "MIN is boosted too");
        y.set_watermark_scale_factor(10).unwrap();
        assert_eq!(boost(y).0, 0);
        assert!(y.alloc(o(4), Gfp::KERNEL).is_ok());
    });
}

#[test]
fn s3_7_an_urgent_single_page_is_tested_against_the_unboosted_min() {
    let s = State::new(8192).free(1024, 6).set(|z| z.boost = 1024);
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
        assert!(y.alloc(o(1), Gfp::ATOMIC).is_err(), "order 0 only");
        assert!(y.alloc(o(0), Gfp::ATOMIC).is_ok());
    });
}
