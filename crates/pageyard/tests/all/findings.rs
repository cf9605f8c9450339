//! Regressions found by a review of the core: each test names the rule that the core broke when the
//! test was written.

use crate::common;

use std::panic::catch_unwind;

use common::state::State;
use common::view::{normal, view};
use common::{LINUX612, Machine, Maps, Stage, Y, o, records};
use pageyard::MigrateType::{HighAtomic, Isolate, Movable, Unmovable};
use pageyard::policy::{NoHighOrder, StaticPolicy, TwoPassBulkFree, Vanilla};
use pageyard::{CpuId, Event, Gfp, InitError, Layout, MigrateType, Pfn, Yard, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;

#[test]
fn s6_1_an_oversized_bulk_request_respects_the_watermarks() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let got = y.alloc_bulk_each(usize::MAX, Gfp::KERNEL, |_| ()).unwrap();
        assert_eq!(got, 1, "LOW + n cannot hold, so one page is tried as by alloc");
        let info = y.zone_info(ZONE).unwrap();
        assert!(info.free > info.watermarks[0]);
    });
}

#[test]
fn s2_4_without_grouping_every_request_is_unmovable() {
    // 1024 pages are too few for six types.
    Machine::normal(1024).run(|y: &Y<'_>| {
        assert!(normal(y).zone.grouping_disabled);
        y.hooks().watch();
        y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap();
        let asked = y.hooks().events().into_iter().find_map(|e| match e {
            Event::Alloc { migrate_type, .. } => Some(migrate_type),
            _ => None,
        });
        assert_eq!(asked, Some(Unmovable));
    });
}

#[test]
fn s2_5_a_zone_without_memory_is_not_preferred() {
    // NORMAL is empty, so DMA32 is preferred, and NOFRAGMENT is off: three walks, not four.
    let m = Machine::new().zone(ZoneKind::Dma32, 0..8192).span(ZoneKind::Normal, 8192..16384);
    m.run(|y: &Y<'_>| {
        y.set_min_free_kbytes(0).unwrap();
        while y.alloc(o(0), Gfp::KERNEL | Gfp::MEMALLOC).is_ok() {}
        let refills = || y.cpu_stats(ZoneKind::Dma32, CpuId(0)).unwrap().empty_refills;
        let before = refills();
        assert!(y.alloc(o(0), Gfp::empty() | Gfp::MEMALLOC).is_err());
        // LOW and MIN fail at 0 free pages; only NO_WATERMARKS reaches the lists.
        assert_eq!(refills() - before, 1);
        assert_eq!(
            y.zone_stats(ZoneKind::Dma32).unwrap().failures,
            2,
            "counted in the preferred zone"
        );
    });
}

#[test]
fn s6_3_the_remaining_page_keeps_its_movable_mark() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let pfn = y.alloc(o(2), Gfp::HIGHUSER_MOVABLE).unwrap();
        y.set_movable(pfn, o(2), true).unwrap();
        y.free_shared(pfn, o(2)).unwrap();
        assert_eq!(normal(y).allocated[&pfn.0], (0, true));
    });
}

/// Blocks on lists that this policy never uses could never leave them, and a drain that waits for a
/// count of 0 would never end.
#[test]
fn s5_2_restore_refuses_lists_that_the_policy_does_not_have() {
    let s = State::new(4096).limits(1, 100, 100).cached(0, 4, &[0, 2]);
    s.machine.blank_under(&<NoHighOrder>::RULES, |y| {
        assert!(y.restore(ZONE, s.records()).is_err());
    });
    s.machine.blank_under(&<TwoPassBulkFree<NoHighOrder>>::RULES, |y| {
        assert!(y.restore(ZONE, s.records()).is_err());
    });
}

#[test]
fn a_refused_restore_leaves_the_zone_blank() {
    let s = State::new(4096)
        .cpus(&[3])
        .set(|z| (z.nofragment, z.grouping_disabled) = (false, true))
        .cpu(0, |c| (c.threshold, c.expire, c.tuning.free_count) = (5, 3, 9))
        .free(0, 9);
    s.machine.blank(|y: &mut Y<'_>| {
        let before = records(y, ZONE);
        let mut bad = s.records();
        bad.push(bad[1]);
        assert!(y.restore(ZONE, bad).is_err(), "a pageblock appears twice");
        assert_eq!(records(y, ZONE), before);
    });
}

#[test]
fn a_restored_counter_of_any_size_can_be_read() {
    for nr_free in [i64::MIN, i64::MAX] {
        for diff in [-5, 5] {
            let s = State::new(4096)
                .cpu(0, |c| (c.diff, c.threshold) = (diff, 5))
                .set(|z| z.nr_free = nr_free);
            let answer = catch_unwind(|| {
                s.machine.blank(|y: &mut Y<'_>| {
                    if y.restore(ZONE, s.records()).is_ok() {
                        y.zone_info(ZONE);
                    }
                });
            });
            assert!(answer.is_ok(), "{nr_free} + {diff}");
        }
    }
}

#[test]
fn s10_no_accepted_setting_overflows() {
    let machines = [
        Machine::normal(8192).knobs(|k| k.foreign_lowmem = u64::MAX),
        Machine::normal(8192).knobs(|k| k.foreign_lowmem = u64::MAX / 4),
        Machine::normal(8192).knobs(|k| {
            k.user_min_free_kbytes = Some(u64::MAX);
            k.watermark_boost_factor = 1 << 31;
        }),
    ];
    for m in machines {
        let answer = catch_unwind(|| {
            if matches!(m.refusal(), Some(InitError::Knob(_))) {
                return;
            }
            m.run(|y: &Y<'_>| {
                // Fill memory, so that a request boosts the watermarks.
                let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
                y.alloc(o(0), Gfp::MEMALLOC | Gfp::HIGHUSER_MOVABLE).ok();
                while y.alloc(o(9), gfp | Gfp::MOVABLE).is_ok() {}
                y.alloc(o(0), gfp).ok();
            });
        });
        assert!(answer.is_ok(), "{:?}", m.knobs);
    }
}

#[test]
fn s3_8_reserved_blocks_are_returned_to_request_types() {
    for t in [HighAtomic, Isolate, MigrateType::Cma] {
        let s = State::new(4096)
            .label(1, HighAtomic)
            .set(|z| z.reserved_highatomic = 512)
            .free(512, 3)
            .used(520..1024, false);
        s.run(|y: &Y<'_>| {
            y.unreserve_highatomic(t, true);
            let v = normal(y);
            assert!(
                v.label(512) == HighAtomic && v.zone.reserved_highatomic == 512
                    || v.label(512).is_mergeable() && v.zone.reserved_highatomic == 0,
                "{t}: {:?}, {} reserved",
                v.label(512),
                v.zone.reserved_highatomic
            );
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 8, "{t}: no page is lost");
        });
    }
}

/// Under the policies that let cached pages carry their type, a page may be cached as unmovable
/// while its block is movable; a drain after a restore must still free it as unmovable.
#[test]
fn s4_10_a_snapshot_keeps_the_type_that_a_cached_page_carries() {
    let s = State::new(4096).limits(1, 100, 100).cached(0, 0, &[8]).used(9..10, false);
    s.run_under(&<Vanilla>::RULES, |y| {
        y.drain_all(None);
        assert_eq!(normal(y).free(0, Unmovable), [8], "it was on the unmovable list");
        assert!(normal(y).free(0, Movable).is_empty());
    });
}

/// A page that is cached under HIGHATOMIC outlives the reservation of its block (carried types
/// only): it merges with pages of another list, and the counter of free highatomic pages no
/// longer says what is on the highatomic lists. From there it falls below 0.
#[test]
fn s4_7_free_highatomic_counts_what_is_on_its_lists_with_carried_types_too() {
    let s = State::new(51_200)
        .limits(1, 100, 100)
        .label(0, HighAtomic)
        .set(|z| z.reserved_highatomic = 512)
        .used(0..1, false)
        .free(1, 0)
        .used(2..512, false);
    s.run_under(&<Vanilla>::RULES, |y| {
        y.free(Pfn(0), o(0)).unwrap();
        assert!(y.unreserve_highatomic(Movable, true));
        y.drain_all(None);
        let on_lists = |v: &common::view::View| -> u64 {
            v.all_free().filter(|f| f.2 == HighAtomic).map(|f| 1 << f.1).sum()
        };
        assert_eq!(y.zone_info(ZONE).unwrap().free_highatomic, on_lists(&normal(y)));
    });
}

/// The same drift through a snapshot whose lists and labels differ: in a debug build the sum of
/// withheld pages (§3.6) overflows.
#[test]
fn an_inconsistent_snapshot_is_rejected_or_harmless() {
    let s = State::new(4096)
        .limits(1, 100, 100)
        .label(0, MigrateType::Cma)
        .used(0..1, false)
        .free_as(1, 0, Movable)
        .label(1, HighAtomic)
        .free(512, 1)
        .set(|z| z.nr_free = 1000);
    let answer = catch_unwind(|| {
        s.machine.blank(|y: &mut Y<'_>| {
            if y.restore(ZONE, s.records()).is_err() {
                return;
            }
            // Counts one page as CMA, and merges to a block of two on the CMA list.
            y.free_direct(Pfn(0), o(0)).unwrap();
            y.alloc(o(1), Gfp::HIGHUSER_MOVABLE).unwrap();
            y.alloc(o(0), Gfp::KERNEL).ok();
        });
    });
    assert!(answer.is_ok());
}

/// A yard can be built in storage that another yard used before.
#[test]
fn storage_can_be_reused() {
    let m = Machine::normal(4096);
    let layout: Layout<'_> = m.layout();
    let needs = layout.needs::<common::Lock>().unwrap();
    let maps = Maps::new(&needs);
    let mut first = None;
    for _ in 0..2 {
        maps.lend(&needs, |storage| {
            let mut y: Y<'_> = Yard::with_policy(Stage::default(), LINUX612);
            y.init(&layout, storage).unwrap();
            let fresh = view(&y, ZONE);
            assert_eq!(first.get_or_insert(fresh.clone()), &fresh);
            for order in [0, 0, 9, 5] {
                y.alloc(o(order), Gfp::KERNEL).unwrap();
            }
            assert!(y.poison_frame(Pfn(m.layout().zones[0].span.start.0 + 77)).is_ok());
        });
    }
}

/// The limits follow the effective LOW (§5.4), boost included, but only when they are computed:
/// writing the current fraction again computes nothing. (Found by comparing random operations with
/// the executable model of the real kernel.)
#[test]
fn s5_4_the_same_fraction_again_changes_nothing() {
    let s = State::new(4096).limits(1, 100, 200).set(|z| z.boost = 3000);
    s.run(|y: &Y<'_>| {
        let limits = || y.pageset(ZONE, CpuId(0)).unwrap().limits;
        let before = limits();
        y.set_percpu_pagelist_high_fraction(0).unwrap();
        assert_eq!(limits(), before);
        y.set_percpu_pagelist_high_fraction(8).unwrap();
        assert_ne!(limits(), before);
    });
}
