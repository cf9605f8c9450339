//! Isolation as a bit beside the type (Linux 6.17): a pageblock gets its own type back.

use crate::common;

use common::state::State;
use common::view::{normal, view};
use common::{Chosen, LINUX612, Machine, Stage, Y, all_records, frames};
use pageyard::MigrateType::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use pageyard::policy::{IsolateBit, StaticPolicy};
use pageyard::{Gfp, IsolateError, MigrateType, Pfn, SECTION_PAGES, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const BIT: Chosen = &<IsolateBit>::RULES;
const TYPES: [MigrateType; 4] = [Unmovable, Movable, Reclaimable, HighAtomic];

/// Four free pageblocks, one of each type that is not CMA, between others in use: free neighbours
/// would merge, and have one type then.
fn one_of_each() -> State {
    let s = (0..4).fold(State::new(4096), |s, b| s.label(2 * b, TYPES[b]));
    let s = (0..4).map(|b| b * 1024).fold(s, |s, at| s.free(at, 9).block(at + 512, 9, true));
    s.set(|z| z.reserved_highatomic = 512)
}

fn labels(y: &Y<'_>) -> Vec<MigrateType> {
    let v = normal(y);
    (0..4).map(|b| v.label(b * 1024)).collect()
}

#[test]
fn each_pageblock_gets_its_own_type_back_whatever_the_caller_names() {
    let after = |rules| {
        one_of_each().run_under(rules, |y| {
            let before = all_records(y);
            y.isolate(frames(0..4096), Movable).unwrap();
            assert_eq!((labels(y), y.zone_info(ZONE).unwrap().free), (vec![Isolate; 4], 0));
            y.unisolate(frames(0..4096), Reclaimable).unwrap();
            y.validate().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(normal(y).zone.nr_free, 2048);
            (labels(y), all_records(y) == before)
        })
    };
    assert_eq!(after(LINUX612).0, [Reclaimable; 4]);
    assert_eq!(after(BIT), (TYPES.to_vec(), true), "and nothing else has changed");
}

#[test]
fn a_refused_isolation_loses_no_type() {
    let refused = |rules| {
        let s = State::new(4608).label(0, Unmovable).label(4, Reclaimable).label(8, Unmovable);
        let s = s.free(0, 9).block(512, 9, true).block(1024, 9, true).block(1536, 9, true);
        s.free(2048, 9).used(2560..2561, false).free(4096, 9).run_under(rules, |y| {
            // The last pageblock and the first five are isolated before the sixth refuses.
            let refused = Err(IsolateError::Unmovable(Pfn(2560)));
            assert_eq!(y.isolate(frames(0..4608), Movable), refused);
            [0, 2048, 4096].map(|p| normal(y).label(p))
        })
    };
    assert_eq!(refused(LINUX612), [Movable; 3]);
    assert_eq!(refused(BIT), [Unmovable, Reclaimable, Unmovable]);
}

#[test]
fn a_contiguous_range_loses_no_type() {
    for t in [Unmovable, Reclaimable, Movable] {
        one_of_each().run_under(BIT, |y| {
            for at in (0..4096).step_by(1024) {
                let range = || frames(at + 100..at + 200);
                y.alloc_contig(range(), t, Gfp::KERNEL).unwrap();
                assert_eq!(labels(y), TYPES);
                y.free_contig(range()).unwrap();
            }
            y.drain_all(None);
            y.validate().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((labels(y), normal(y).zone.nr_free), (TYPES.to_vec(), 2048));
        });
    }
}

/// The reserve's size follows the pageblocks that are reserved: it stays when an isolation ends, and
/// shrinks when the memory goes.
#[test]
fn an_isolated_highatomic_pageblock_stays_in_the_reserve() {
    let reserved = |y: &Y<'_>| y.zone_info(ZONE).unwrap().reserved_highatomic;
    one_of_each().run_under(BIT, |y| {
        y.isolate(frames(3072..3584), Movable).unwrap();
        assert_eq!(reserved(y), 512);
        y.unisolate(frames(3072..3584), Movable).unwrap();
        assert_eq!((reserved(y), y.zone_info(ZONE).unwrap().free_highatomic), (512, 512));
    });

    // A page that cannot move makes the removal fail after the first pageblock is isolated.
    for (busy, left) in [(true, 1024), (false, 512)] {
        let pages = 2 * SECTION_PAGES;
        // One reserved pageblock in each section.
        let s = State::new(pages).label(0, HighAtomic).label(64, HighAtomic);
        let s = s.set(|z| z.reserved_highatomic = 1024);
        let s = (0..pages >> 9).fold(s, |s, block| match block {
            1 if busy => s.used(512..1024, false),
            _ => s.free(block << 9, 9),
        });
        s.run_under(BIT, |y| {
            assert_eq!(y.offline(frames(0..SECTION_PAGES)).is_err(), busy);
            assert_eq!(reserved(y), left, "busy: {busy}");
            y.validate().unwrap_or_else(|e| panic!("{e}"));
        });
    }
}

#[test]
fn sections_that_come_online_are_movable() {
    const S: u64 = SECTION_PAGES;
    let m = Machine::new().span(ZONE, 0..2 * S).usable(0..S);
    m.run_on_under(Stage::default(), BIT, |y: &Y<'_>| {
        y.online(frames(S..2 * S)).unwrap();
        assert!((S..2 * S).step_by(512).all(|p| view(y, ZONE).label(p) == Movable));
    });
}

#[test]
fn a_snapshot_keeps_the_types_of_isolated_pageblocks() {
    one_of_each().run_under(BIT, |y| {
        y.isolate(frames(0..4096), Movable).unwrap();
        let snapshot = all_records(y);
        let m = Machine::normal(4096);
        m.restored(BIT, &snapshot, |z| {
            assert_eq!(all_records(z), snapshot);
            z.unisolate(frames(0..4096), Movable).unwrap();
            assert_eq!(labels(z), TYPES);
        });
    });
}

#[test]
fn a_reserved_pageblock_that_becomes_cma_leaves_the_reserve() {
    for rules in [LINUX612, BIT] {
        let s = State::new(1024).label(0, HighAtomic).free(0, 9).block(512, 9, true);
        s.set(|z| z.reserved_highatomic = 512).run_under(rules, |y| {
            y.make_cma(frames(0..512)).unwrap();
            let info = y.zone_info(ZONE).unwrap();
            assert_eq!((info.reserved_highatomic, info.free_highatomic), (0, 0));
        });
    }
}

#[test]
fn an_isolated_pageblock_can_still_become_cma() {
    let s = State::new(1024).label(0, Reclaimable).free(0, 9).block(512, 9, true);
    s.run_under(BIT, |y| {
        y.make_cma(frames(0..512)).unwrap();
        assert_eq!(normal(y).label(0), Cma);
        y.isolate(frames(0..1024), Cma).unwrap();
        y.unisolate(frames(0..1024), Unmovable).unwrap();
        assert_eq!((normal(y).label(0), normal(y).label(512)), (Cma, Movable));
    });
}
