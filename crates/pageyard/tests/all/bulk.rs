//! Spec §6.1: bulk requests for single pages.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, o};
use pageyard::{CpuId, Gfp, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

#[test]
fn s6_1_empty_slots_are_filled_and_others_left_alone() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let theirs = Some(Pfn(7));
        let mut slots = [theirs, None, theirs, None, None, theirs];
        assert_eq!(y.alloc_bulk(GFP, &mut slots), Ok(6));
        assert_eq!((slots[0], slots[2], slots[5]), (theirs, theirs, theirs));
        assert!(slots.iter().all(Option::is_some));
        assert_eq!(normal(y).allocated.len(), 3);
        let before = common::all_records(y);
        assert_eq!(y.alloc_bulk(GFP, &mut slots), Ok(6), "nothing to do");
        assert_eq!(y.alloc_bulk(GFP, &mut []), Ok(0));
        assert_eq!(y.alloc_bulk_each(0, GFP, |_| ()), Ok(0));
        assert_eq!(common::all_records(y), before);
    });
}

#[test]
fn s6_1_the_mark_is_low_plus_the_whole_request() {
    // 4000 pages in large blocks. LOW 1000, HIGH 3990.
    let free = || {
        let mut s = State::new(8192).limits(10, 1000, 1000);
        for p in (0..3584).step_by(512) {
            s = s.free(p, 9);
        }
        s.free(3584, 8).free(3840, 7).free(3968, 5).set(|z| z.watermarks = [500, 1000, 3990, 4500])
    };
    let got = |n: usize| {
        free().run(|y: &Y<'_>| {
            let n = y.alloc_bulk(GFP, &mut vec![None; n]).unwrap();
            (n, y.zone_info(ZONE).unwrap().below_high)
        })
    };
    assert_eq!(got(2999), (2999, false), "4000 > 1000 + 2999; HIGH is not tested");
    assert_eq!(
        got(3000),
        (1, false),
        "the full request counts; then one page, by alloc: its HIGH \
         test holds at 4000"
    );
    // Filled slots count as requested.
    free().run(|y: &Y<'_>| {
        let mut slots = vec![None; 3000];
        slots[..2000].fill(Some(Pfn(7)));
        assert_eq!(y.alloc_bulk(GFP, &mut slots), Ok(2001));
    });
}

#[test]
fn s6_1_a_bulk_request_halves_no_free_count_but_a_single_one_does() {
    let s = State::new(4096).free(0, 2).limits(10, 1000, 1000).cpu(0, |c| c.tuning.free_count = 80);
    let left = |slots: &mut [Option<Pfn>]| {
        s.run(|y: &Y<'_>| {
            y.alloc_bulk(GFP, slots).unwrap();
            y.pageset(ZONE, CPU).unwrap().free_count
        })
    };
    assert_eq!(left(&mut [None; 2]), 80);
    assert_eq!(left(&mut [None]), 40, "one slot: a complete request");
    assert_eq!(
        left(&mut [Some(Pfn(7)), None]),
        40,
        "one page needed after the leading filled slots"
    );
    assert_eq!(left(&mut [None, Some(Pfn(7))]), 80, "two slots from the first empty one on");
}

#[test]
fn s6_1_a_shortage_returns_the_number_of_pages_allocated() {
    let s = State::new(4096).free(0, 1).free(4, 0).limits(1, 1000, 1000).set(|z| z.nr_free = 900);
    s.run(|y: &Y<'_>| {
        let mut slots = [None, Some(Pfn(7)), None, None, None, None];
        assert_eq!(y.alloc_bulk(GFP, &mut slots), Ok(4));
        assert!(slots[4..].iter().all(Option::is_none));
        assert_eq!(y.alloc_bulk(GFP, &mut slots), Ok(4), "nothing left");
    });
    s.run(|y: &Y<'_>| {
        let mut got = Vec::new();
        assert_eq!(y.alloc_bulk_each(9, GFP, |p| got.push(p.0)), Ok(3));
        assert_eq!(got, [4, 0, 1]);
    });
}

#[test]
fn s6_1_claims_boost_without_waking_reclaim() {
    let s = State::new(4096)
        .label(1, pageyard::MigrateType::Reclaimable)
        .free(512, 1)
        .used(514..1024, false)
        .set(|z| (z.watermarks, z.nr_free) = ([0, 0, 1000, 2000], 4000));
    s.run(|y: &Y<'_>| {
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut [None; 2]), Ok(2));
        let info = y.zone_info(ZONE).unwrap();
        assert!(info.boost > 0 && !info.boosted);
        assert!(y.hooks().wakes().is_empty());
    });
}

#[test]
fn every_page_is_prepared_once() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        y.hooks().watch();
        let mut slots = [None; 20];
        y.alloc_bulk(GFP, &mut slots).unwrap();
        let pages: Vec<Pfn> = slots.into_iter().flatten().collect();
        assert_eq!(y.hooks().prepared(), pages);
        let one = y.alloc(o(2), GFP).unwrap();
        assert_eq!(y.hooks().prepared(), [one]);
    });
}

/// §6.1: a bulk request with ACCOUNT gets one page per call.
#[test]
fn s6_1_charged_pages_are_allocated_one_at_a_time() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let charged = GFP | Gfp::ACCOUNT;
        assert_eq!(y.alloc_bulk(charged, &mut [None; 5]), Ok(1));
        assert_eq!(y.alloc_bulk_each(5, charged, |_| ()), Ok(1));
        assert_eq!(y.alloc_bulk(GFP, &mut [None; 5]), Ok(5));
    });
}
