//! Blocks at a place that the caller chooses.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, frames, o};
use pageyard::MigrateType::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use pageyard::{AllocError, CpuId, Gfp, Pfn, Place, PlaceError, ZoneKind};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const NONE: PlaceError = PlaceError::Alloc(AllocError::NoMemory);

#[test]
fn at_a_frame_inside_a_larger_free_block() {
    State::new(1024).free(0, 10).run(|y: &Y<'_>| {
        y.alloc_at(Pfn(300), o(2), MOVABLE).unwrap();
        let v = normal(y);
        assert_eq!(v.allocated[&300], (2, false));
        let mut left: Vec<_> = v.all_free().map(|f| (f.0, f.1)).collect();
        left.sort_unstable();
        let around = [(0, 8), (256, 5), (288, 3), (296, 2), (304, 4), (320, 6), (384, 7), (512, 9)];
        assert_eq!(left, around);
        assert_eq!(v.zone.nr_free, 1020, "one net change (§4.7)");
        y.free(Pfn(300), o(2)).unwrap();
        y.drain_all(None);
        assert_eq!(normal(y).free(10, Movable), [0]);
    });
}

#[test]
fn at_a_frame_in_every_other_state() {
    let s = State::new(1536).block(0, 3, false).free(256, 8).cached(0, 1, &[128]);
    let s = s.label(1, HighAtomic).free(512, 9).label(2, Cma).free(1024, 9);
    s.limits(31, 100, 100).run(|y: &Y<'_>| {
        let at = |pfn, order, gfp| y.alloc_at(Pfn(pfn), o(order), gfp);
        assert_eq!(at(0, 0, MOVABLE), Err(PlaceError::InUse(Pfn(0))));
        assert_eq!(at(5, 0, MOVABLE), Err(PlaceError::InUse(Pfn(5))), "inside a block");
        assert_eq!(at(100, 0, MOVABLE), Err(PlaceError::Reserved(Pfn(100))));
        assert_eq!(at(128, 0, MOVABLE), Ok(()), "cached: drained");
        assert_eq!(at(128, 0, MOVABLE), Err(PlaceError::InUse(Pfn(128))));
        assert_eq!(at(0, 9, MOVABLE), Err(PlaceError::InUse(Pfn(0))));
        assert_eq!(at(3, 1, MOVABLE), Err(PlaceError::Misaligned(Pfn(3))));
        assert_eq!(at(1536, 0, MOVABLE), Err(PlaceError::Foreign(Pfn(1536))));
        assert_eq!(at(600, 0, MOVABLE), Err(PlaceError::Withheld(Pfn(600), HighAtomic)));
        assert_eq!(at(1100, 0, Gfp::KERNEL), Err(PlaceError::Withheld(Pfn(1100), Cma)));
        assert_eq!(at(1100, 0, MOVABLE), Ok(()));
        y.isolate(frames(1024..1536), Cma).unwrap();
        assert_eq!(at(1200, 0, MOVABLE), Err(PlaceError::Withheld(Pfn(1200), Isolate)));
        let both = Gfp::MOVABLE | Gfp::RECLAIMABLE;
        assert_eq!(at(300, 0, both), Err(PlaceError::Alloc(AllocError::BadType)));
        y.hooks().on(9);
        let unknown = AllocError::UnknownCpu(CpuId(9));
        assert_eq!(at(300, 0, MOVABLE), Err(PlaceError::Alloc(unknown)));
    });
}

#[test]
fn at_a_frame_only_above_the_min_mark_s7_4() {
    let s = State::new(512).free(0, 9);
    let s = |min| s.clone().set(|z| z.watermarks = [min, 600, 700, 800]);
    s(504).run(|y: &Y<'_>| assert_eq!(y.alloc_at(Pfn(8), o(3), MOVABLE), Err(NONE)));
    s(503).run(|y: &Y<'_>| assert_eq!(y.alloc_at(Pfn(8), o(3), MOVABLE), Ok(())));
}

#[test]
fn whole_pageblocks_take_the_request_s_type_others_keep_theirs() {
    let two = State::new(1536).label(1, Reclaimable).free(0, 9).free(512, 9).free(1024, 9);
    two.run(|y: &Y<'_>| {
        y.alloc_at(Pfn(0), o(10), Gfp::KERNEL).unwrap();
        let v = normal(y);
        assert_eq!((v.label(0), v.label(512)), (Unmovable, Unmovable));
        assert_eq!((v.allocated[&0], v.zone.nr_free), ((10, false), 512));
    });
    two.run(|y: &Y<'_>| {
        y.alloc_at(Pfn(512), o(8), Gfp::KERNEL).unwrap();
        assert_eq!(normal(y).label(512), Reclaimable);
    });
    two.run(|y: &Y<'_>| {
        y.alloc_at(Pfn(0), o(9), Gfp::KERNEL).unwrap();
        let v = normal(y);
        assert_eq!((v.label(0), v.label(512)), (Unmovable, Reclaimable), "its own");
    });
}

#[test]
fn aligned_beyond_its_size() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        let mut got = Vec::new();
        for order in [0u8, 1, 3, 5, 9, 10] {
            for align in [1u64, 64, 1024, 4096] {
                let pfn = y.alloc_with(o(order), Gfp::KERNEL, Place { align, below: None });
                let pfn = pfn.unwrap_or_else(|e| panic!("order {order}, align {align}: {e}"));
                assert_eq!(pfn.0 % align.max(1 << order), 0, "order {order}, align {align}");
                got.push((pfn, o(order)));
                if align == 4096 {
                    let (pfn, order) = got.pop().unwrap();
                    y.free(pfn, order).unwrap();
                }
            }
        }
        y.free_batch(&got).unwrap();
        let bad = y.alloc_with(o(0), Gfp::KERNEL, Place { align: 6, below: None });
        assert_eq!(bad, Err(PlaceError::BadAlign(6)));
        let none = Place { align: 1 << 40, below: None };
        assert_eq!(y.alloc_with(o(0), Gfp::KERNEL, none), Ok(Pfn(0)));
        assert_eq!(y.alloc_with(o(0), Gfp::KERNEL, none), Err(NONE));
    });
}

#[test]
fn requests_below_an_address_until_exhaustion() {
    let m = Machine::new().zone(ZoneKind::Dma32, 0..4096).zone(ZoneKind::Normal, 4096..16384);
    m.run(|y: &Y<'_>| {
        y.set_min_free_kbytes(0).unwrap();
        let below = |limit| Place { align: 1, below: Some(Pfn(limit)) };
        let high = y.alloc_with(o(0), Gfp::KERNEL, below(1 << 40)).unwrap();
        assert!(high.0 >= 4096, "no limit at all: the preferred zone serves");
        let mut got = 0;
        while let Ok(pfn) = y.alloc_with(o(3), Gfp::KERNEL | Gfp::HIGH, below(1003)) {
            assert!(pfn.0 + 8 <= 1003 && pfn.0 % 8 == 0, "{pfn}");
            got += 1;
        }
        assert!(got > 100 && got <= 125, "{got} of 125 blocks of 8 pages");
        let none = y.alloc_with(o(0), Gfp::KERNEL, below(0));
        assert_eq!(none, Err(NONE));
    });
}

#[test]
fn a_search_takes_from_its_own_type_first_and_drains_before_it_fails() {
    let s = State::new(1536).label(0, Movable).label(1, Unmovable).label(2, Isolate);
    let s = s.free(0, 0).free(520, 3).used(1..512, true).free(1024, 9);
    s.cached(0, 0, &[600]).limits(31, 100, 100).run(|y: &Y<'_>| {
        let aligned = |gfp| y.alloc_with(o(0), gfp, Place { align: 4, below: None });
        assert_eq!(aligned(Gfp::KERNEL), Ok(Pfn(520)));
        assert_eq!(aligned(Gfp::KERNEL), Ok(Pfn(524)));
        assert_eq!(aligned(Gfp::KERNEL), Ok(Pfn(0)), "stolen");
        assert_eq!(normal(y).label(0), Movable);
        assert_eq!(aligned(Gfp::KERNEL), Ok(Pfn(600)), "drained");
        assert_eq!(aligned(Gfp::KERNEL), Err(NONE), "isolated pages are never allocated");
    });
}

/// §4.5: no type is mixed in a preferred zone while a lower one has a block of the request's type.
#[test]
fn a_search_takes_its_own_type_in_a_lower_zone_before_it_steals() {
    let m = Machine::new().zone(ZoneKind::Dma32, 0..4096).zone(ZoneKind::Normal, 4096..8192);
    m.run(|y: &Y<'_>| {
        y.alloc_at(Pfn(0), o(0), MOVABLE).unwrap();
        y.alloc_at(Pfn(512), o(9), Gfp::KERNEL).unwrap();
        y.free(Pfn(512), o(9)).unwrap();
        let aligned = Place { align: 2, below: None };
        assert_eq!(y.alloc_with(o(0), Gfp::KERNEL, aligned), Ok(Pfn(512)));
    });
}
