//! Spec §4.11: isolated pageblocks, and the end of isolation.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, frames, o};
use pageyard::MigrateType::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use pageyard::policy::{StaticPolicy, Vanilla};
use pageyard::{ContigError, CpuId, Gfp, IsolateError, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

#[test]
fn s4_11_the_example_of_the_two_halves() {
    State::new(2048).free(0, 10).free(1024, 10).run(|y: &Y<'_>| {
        y.isolate(frames(0..1024), Movable).unwrap();
        let v = normal(y);
        assert_eq!((v.free(9, Isolate), v.free(10, Movable)), (&[0, 512][..], &[1024][..]));
        assert_eq!((v.zone.isolated_blocks, v.zone.nr_free), (2, 1024));
        // Un-isolating one half moves it to the free list; un-isolating the other merges both, at
        // the tail.
        y.unisolate(frames(0..512), Movable).unwrap();
        let v = normal(y);
        assert_eq!((v.free(9, Movable), v.free(9, Isolate)), (&[0][..], &[512][..]));
        y.unisolate(frames(512..1024), Movable).unwrap();
        let v = normal(y);
        assert_eq!(v.free(10, Movable), [1024, 0]);
        assert_eq!((v.zone.isolated_blocks, v.zone.nr_free), (0, 2048));
    });
}

#[test]
fn s4_11_the_second_half_of_a_larger_free_block() {
    State::new(1024).free(0, 10).run(|y: &Y<'_>| {
        y.isolate(frames(512..1024), Movable).unwrap();
        let v = normal(y);
        assert_eq!((v.free(9, Movable), v.free(9, Isolate)), (&[0][..], &[512][..]));
        assert_eq!(v.zone.nr_free, 512);
    });
}

#[test]
fn s4_11_a_failure_restores_the_callers_type() {
    let four = (0..4).fold(State::new(2048), |s, b| s.label(b, Reclaimable));
    let four = four.free(0, 9).free(512, 9).free(1536, 9).used(1024 + 7..1024 + 8, false);
    four.run(|y: &Y<'_>| {
        let refused = Err(IsolateError::Unmovable(Pfn(1024)));
        assert_eq!(y.isolate(frames(0..2048), Movable), refused, "frame 1024 is reserved");
        let v = normal(y);
        let labels: Vec<_> = (0..4).map(|b| v.label(b * 512)).collect();
        assert_eq!(labels, [Movable, Movable, Reclaimable, Movable]);
        // 0 was un-isolated before 512, which then merged with it; 1536 was last.
        assert_eq!((v.free(10, Movable), v.free(9, Movable)), (&[0][..], &[1536][..]));
        assert_eq!((v.zone.isolated_blocks, v.zone.nr_free), (0, 1536));
    });
}

#[test]
fn s4_11_the_last_block_is_tested_before_inner_ones() {
    State::new(2048).free(0, 10).free(1024, 9).used(1536..1537, false).run(|y: &Y<'_>| {
        y.isolate(frames(512..1024), Movable).unwrap();
        // Block 1 would refuse too, but block 3 is tested first.
        let refused = y.isolate(frames(0..2048), Movable);
        assert_eq!(refused, Err(IsolateError::Unmovable(Pfn(1536))));
        assert_eq!(normal(y).label(512), Isolate, "the earlier isolation stays");
        let refused = y.isolate(frames(0..1536), Movable);
        assert_eq!(refused, Err(IsolateError::Isolated(Pfn(512))));
        assert_eq!(normal(y).label(512), Isolate);
        assert_eq!(normal(y).label(1024), Movable);
    });
}

#[test]
fn s4_11_blocks_that_prevent_isolation() {
    let isolate = |s: State| s.run(|y: &Y<'_>| y.isolate(frames(0..512), Movable));
    let base = || State::new(512).free(256, 8);
    assert_eq!(isolate(base().used(0..256, true)), Ok(()), "movable pages");
    let mixed = base().used(0..255, true).used(255..256, false);
    assert_eq!(isolate(mixed), Err(IsolateError::Unmovable(Pfn(255))));
    assert_eq!(isolate(base().used(0..255, true)), Err(IsolateError::Unmovable(Pfn(255))));
    let cached = base().used(0..255, true).cached(0, 0, &[255]);
    assert_eq!(isolate(cached), Ok(()), "a cached page");
    // The second half of a block in use does not prevent isolation; its head does.
    let large = State::new(1024).block(0, 10, false);
    let half =
        |r: std::ops::Range<u64>| large.run(|y: &Y<'_>| y.isolate(frames(r.clone()), Movable));
    assert_eq!(half(512..1024), Ok(()));
    assert_eq!(half(0..512), Err(IsolateError::Unmovable(Pfn(0))));
}

#[test]
fn s4_11_only_the_requested_part_is_tested() {
    let s = State::new(512).free(256, 8).used(0..256, false);
    s.run(|y: &Y<'_>| {
        assert_eq!(y.isolate(frames(255..512), Movable), Err(IsolateError::Unmovable(Pfn(255))));
        y.isolate(frames(256..512), Movable).unwrap();
        assert_eq!(normal(y).free(8, Isolate), [256]);
    });
}

#[test]
fn s4_11_cma_blocks_are_isolated_only_for_cma() {
    State::new(512).label(0, Cma).free(256, 8).used(0..256, false).run(|y: &Y<'_>| {
        let r = || frames(0..512);
        assert_eq!(y.isolate(r(), Movable), Err(IsolateError::Unmovable(Pfn(0))));
        y.isolate(r(), Cma).unwrap();
        assert_eq!(y.unisolate(r(), Cma), Ok(()));
        let v = normal(y);
        assert_eq!((v.label(0), v.free(8, Cma)), (Cma, &[256][..]));
    });
}

#[test]
fn s4_11_in_the_movable_zone_only_reserved_frames_prevent_isolation() {
    let m = Machine::new().zone(ZoneKind::Normal, 0..4096).zone(ZoneKind::Movable, 4096..8192);
    m.reserved(8191..8192).run(|y: &Y<'_>| {
        while y.alloc(o(0), MOVABLE).is_ok_and(|p| p.0 >= 4096) {}
        y.isolate(frames(4096..4608), Movable).unwrap();
        let refused = y.isolate(frames(7680..8192), Movable);
        assert_eq!(refused, Err(IsolateError::Unmovable(Pfn(8191))));
    });
}

/// A faulty frame passes there too. The range that it is in is busy then, and its memory stays online.
#[test]
fn s4_11_in_the_movable_zone_a_faulty_frame_does_not_prevent_isolation() {
    let m = Machine::new().zone(ZoneKind::Normal, 0..4096).zone(ZoneKind::Movable, 4096..8192);
    m.run(|y: &Y<'_>| {
        y.poison_frame(Pfn(4100)).unwrap();
        y.isolate(frames(4096..4608), Movable).unwrap();
        y.unisolate(frames(4096..4608), Movable).unwrap();
        let busy = y.alloc_contig(frames(4096..4608), Movable, Gfp::KERNEL);
        assert_eq!(busy, Err(ContigError::Busy(Pfn(4100))));
        assert_eq!(y.alloc_contig(frames(4608..5120), Movable, Gfp::KERNEL), Ok(()));
        y.poison_frame(Pfn(100)).unwrap();
        let refused = y.isolate(frames(0..512), Movable);
        assert_eq!(refused, Err(IsolateError::Unmovable(Pfn(100))), "elsewhere it does");
    });
}

#[test]
fn s4_11_invalid_ranges_and_types_are_rejected() {
    let m = Machine::new().zone(ZoneKind::Dma, 0..1024).zone(ZoneKind::Normal, 1280..4096);
    m.run(|y: &Y<'_>| {
        let isolate = |r, t| y.isolate(frames(r), t).unwrap_err();
        assert_eq!(isolate(512..512, Movable), IsolateError::EmptyRange);
        let backwards = Pfn(700)..Pfn(600);
        assert_eq!(y.isolate(backwards, Movable), Err(IsolateError::EmptyRange));
        assert_eq!(isolate(512..2048, Movable), IsolateError::OutsideZone(Pfn(1024)));
        assert_eq!(isolate(1024..2048, Movable), IsolateError::OutsideZone(Pfn(1024)));
        assert_eq!(isolate(1280..1400, Movable), IsolateError::ZoneEdge(Pfn(1024)));
        assert_eq!(isolate(1280..u64::MAX, Movable), IsolateError::OutsideZone(Pfn(4096)));
        for t in [HighAtomic, Isolate] {
            assert_eq!(isolate(0..512, t), IsolateError::BadType(t));
        }
        y.hooks().on(7);
        assert_eq!(isolate(0..512, Movable), IsolateError::UnknownCpu(CpuId(7)));
        assert_eq!(IsolateError::EmptyRange.errno(), -22);
        assert_eq!(IsolateError::ZoneEdge(Pfn(1024)).errno(), -16);
    });
}

/// Pages cached before the isolation may still be allocated. Drains and frees put pages of the
/// pageblock on its isolated lists, uncounted, single pages and runs alike; frees bypass the
/// per-CPU lists.
#[test]
fn s4_11_frees_into_an_isolated_block_stay_isolated() {
    let cached: Vec<u64> = (0..31).chain([40, 42]).rev().collect();
    let used = (31..40).chain([41]).fold(State::new(1024), |s, p| s.block(p, 0, true));
    let s = used.used(43..512, true).free(512, 9).limits(31, 100, 100).cached(0, 1, &cached);
    s.run(|y: &Y<'_>| {
        y.isolate(frames(0..512), Movable).unwrap();
        assert_eq!(y.alloc(o(0), MOVABLE), Ok(Pfn(42)), "from the per-CPU list");
        y.drain_all(Some(ZONE.into()));
        let v = normal(y);
        let on: Vec<_> = v.all_free().filter(|f| f.0 < 512).collect();
        let isolated = [(40, 0), (30, 0), (28, 1), (24, 2), (16, 3), (0, 4)];
        let mut sorted: Vec<_> = on.iter().map(|&(p, o, t)| (p, o, t)).collect();
        sorted.sort_by_key(|f| (f.1, std::cmp::Reverse(f.0)));
        assert_eq!(sorted, isolated.map(|(p, o)| (p, o, Isolate)));
        assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 512);
        for pfn in (31..40).chain(41..512) {
            y.free(Pfn(pfn), o(0)).unwrap();
        }
        let v = normal(y);
        assert_eq!(v.free(9, Isolate), [0]);
        assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
        // A batch goes there too, and no frame of the pageblock is allocated.
        let got: Vec<_> = std::iter::from_fn(|| y.alloc(o(0), MOVABLE).ok()).collect();
        assert!(got.len() > 256 && got.iter().all(|p| p.0 >= 512));
        assert!(y.alloc(o(0), Gfp::ATOMIC | Gfp::MEMALLOC).is_err(), "no reserve includes it");
    });
}

#[test]
fn s4_11_a_batch_with_isolated_pages_s6_2() {
    let s = State::new(1024).used(0..512, true).used(512..1024, true).limits(31, 100, 100);
    s.run(|y: &Y<'_>| {
        y.isolate(frames(0..512), Movable).unwrap();
        let batch: Vec<_> = (496..528).map(|p| (Pfn(p), o(0))).collect();
        y.free_batch(&batch).unwrap();
        let v = normal(y);
        assert_eq!(v.free(4, Isolate), [496]);
        assert_eq!((v.all_cached().count(), v.zone.nr_free), (16, 0));
    });
}

/// A policy whose cached pages carry their type must not put them back on that type's list.
#[test]
fn s4_10_carried_types_do_not_escape_isolation() {
    let s = State::new(1024).used(0..511, true).free(512, 9).limits(31, 100, 100);
    s.cached(0, 1, &[511]).run_under(&<Vanilla>::RULES, |y| {
        y.isolate(frames(0..512), Movable).unwrap();
        y.drain_all(Some(ZONE.into()));
        assert_eq!(normal(y).free(0, Isolate), [511]);
        y.free(Pfn(510), o(0)).unwrap();
        assert_eq!(normal(y).free(1, Isolate), [510]);
    });
}

#[test]
fn s4_11_highatomic_pages_leave_their_counter() {
    let s = State::new(1024).label(0, HighAtomic).free(256, 8).used(0..256, true).free(512, 9);
    s.set(|z| z.reserved_highatomic = 512).run(|y: &Y<'_>| {
        assert_eq!(y.zone_info(ZONE).unwrap().free_highatomic, 256);
        y.isolate(frames(0..512), Unmovable).unwrap();
        assert_eq!(y.zone_info(ZONE).unwrap().free_highatomic, 0);
        y.unisolate(frames(0..512), Unmovable).unwrap();
        let i = y.zone_info(ZONE).unwrap();
        assert_eq!((i.free_highatomic, i.free_exact), (0, 768));
        assert_eq!(normal(y).label(0), Unmovable);
    });
}
