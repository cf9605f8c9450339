//! What a review of the core found: each test names the rule that the core broke when the test
//! was written.

use crate::common;

use std::cell::Cell;
use std::panic::catch_unwind;

use common::state::State;
use common::view::{normal, view};
use common::{Machine, Maps, Stage, Y, o, records};
use pageyard::MigrateType::{HighAtomic, Isolate, Movable, Unmovable};
use pageyard::policy::{NoHighOrder, TwoPassBulkFree, Vanilla};
use pageyard::{
    CpuId, Event, Gfp, InitError, Layout, MigrateType, Order, Pfn, Place, Platform, Yard, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;

#[test]
fn s6_1_a_bulk_request_for_more_than_there_can_be_respects_the_watermarks() {
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
        assert!(normal(y).zone.ungrouped);
        y.platform().watch();
        y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap();
        let asked = y.platform().events().into_iter().find_map(|e| match e {
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
        assert_eq!(y.zone_stats(ZoneKind::Dma32).unwrap().failures, 2, "counted where preferred");
    });
}

#[test]
fn s6_3_the_page_that_stays_keeps_its_movable_mark() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let pfn = y.alloc(o(2), Gfp::HIGHUSER_MOVABLE).unwrap();
        y.set_movable(pfn, o(2), true).unwrap();
        y.free_shared(pfn, o(2)).unwrap();
        assert_eq!(normal(y).allocated[&pfn.0], (0, true));
    });
}

/// Blocks on lists that this policy never looks at could never leave them; a drain that waits
/// until the count is 0 would wait for ever.
#[test]
fn s5_2_restore_refuses_lists_that_the_policy_does_not_have() {
    let s = State::new(4096).limits(1, 100, 100).cached(0, 4, &[0, 2]);
    s.machine.blank(|y: &Y<'_, NoHighOrder>| {
        assert!(y.restore(ZONE, s.records()).is_err());
    });
    s.machine.blank(|y: &Y<'_, TwoPassBulkFree<NoHighOrder>>| {
        assert!(y.restore(ZONE, s.records()).is_err());
    });
}

#[test]
fn a_refused_restore_leaves_the_zone_blank() {
    let s = State::new(4096)
        .cpus(&[3])
        .set(|z| (z.nofragment, z.ungrouped) = (false, true))
        .cpu(0, |c| (c.threshold, c.expire, c.tuning.free_count) = (5, 3, 9))
        .free(0, 9);
    s.machine.blank(|y: &Y<'_>| {
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
                s.machine.blank(|y: &Y<'_>| {
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
fn s10_no_setting_that_is_accepted_overflows() {
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
                // Someone boosts, whatever the marks are.
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
fn s3_8_reserved_blocks_are_given_back_to_types_that_requests_have() {
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
    s.run(|y: &Y<'_, Vanilla>| {
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
    s.run(|y: &Y<'_, Vanilla>| {
        y.free(Pfn(0), o(0)).unwrap();
        assert!(y.unreserve_highatomic(Movable, true));
        y.drain_all(None);
        let on_lists = |v: &common::view::View| -> u64 {
            v.all_free().filter(|f| f.2 == HighAtomic).map(|f| 1 << f.1).sum()
        };
        assert_eq!(y.zone_info(ZONE).unwrap().free_highatomic, on_lists(&normal(y)));
    });
}

/// The same drift by way of a snapshot whose lists and labels differ: in a debug build the sum of
/// what is withheld (§3.6) overflows.
#[test]
fn a_snapshot_whose_lists_and_labels_differ_is_refused_or_harmless() {
    let s = State::new(4096)
        .limits(1, 100, 100)
        .label(0, MigrateType::Cma)
        .used(0..1, false)
        .free_as(1, 0, Movable)
        .label(1, HighAtomic)
        .free(512, 1)
        .set(|z| z.nr_free = 1000);
    let answer = catch_unwind(|| {
        s.machine.blank(|y: &Y<'_>| {
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

thread_local! {
    static HELD: Cell<i32> = const { Cell::new(0) };
    static RELEASED: Cell<u32> = const { Cell::new(0) };
}

/// A lock that knows how many of its kind this thread holds.
struct Counted(spin::mutex::SpinMutex<()>);

#[allow(unsafe_code)]
// SAFETY: exclusion is the inner lock's, to which every operation is handed on.
unsafe impl lock_api::RawMutex for Counted {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Counted(spin::mutex::SpinMutex::new(()));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        lock_api::RawMutex::lock(&self.0);
        HELD.set(HELD.get() + 1);
    }

    fn try_lock(&self) -> bool {
        let got = lock_api::RawMutex::try_lock(&self.0);
        HELD.set(HELD.get() + i32::from(got));
        got
    }

    unsafe fn unlock(&self) {
        HELD.set(HELD.get() - 1);
        RELEASED.set(RELEASED.get() + 1);
        // SAFETY: the caller holds the lock, so the inner one is held.
        unsafe { lock_api::RawMutex::unlock(&self.0) };
    }
}

/// Complains where a hook that may take its time is called with a lock held.
struct Hooks;

impl Platform for Hooks {
    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        assert_eq!(HELD.get(), 0, "prepare is called without any lock");
    }

    fn wake_reclaim(&self, _: pageyard::NodeId, _: Order, _: ZoneKind) {
        assert_eq!(HELD.get(), 0, "wake_reclaim is called without any lock");
    }
}

/// The contract of [`Platform`]: only `event` may be called with locks held.
#[test]
fn hooks_are_called_without_locks_by_single_requests() {
    Machine::normal(8192).run_on(Hooks, |y: &Yard<'_, Counted, Hooks>| {
        for i in 0..9000 {
            if let Ok(pfn) = y.alloc(o(0), Gfp::ATOMIC)
                && i % 9 == 0
            {
                y.free(pfn, o(0)).unwrap();
            }
        }
        assert!(y.alloc(o(5), Gfp::NOWAIT).is_err());
    });
}

#[test]
fn hooks_are_called_without_locks_by_bulk_requests_in_an_array() {
    Machine::normal(8192).run_on(Hooks, |y: &Yard<'_, Counted, Hooks>| {
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut [None; 8]), Ok(8));
    });
}

#[test]
fn hooks_are_called_without_locks_by_bulk_requests_as_a_list() {
    Machine::normal(8192).run_on(Hooks, |y: &Yard<'_, Counted, Hooks>| {
        let mut held = 0;
        y.alloc_bulk_each(8, Gfp::KERNEL, |_| held = held.max(HELD.get())).unwrap();
        assert_eq!(held, 0, "the caller's code may allocate, read counters, panic");
    });
}

#[test]
fn hooks_are_called_without_locks_by_placed_requests() {
    Machine::normal(8192).run_on(Hooks, |y: &Yard<'_, Counted, Hooks>| {
        for place in [
            Place { align: 64, ..Place::default() },
            Place { below: Some(Pfn(8000)), ..Place::default() },
        ] {
            y.alloc_with(o(3), Gfp::KERNEL, place).unwrap();
        }
    });
}

/// Nothing in a yard's storage says that it was used before.
#[test]
fn storage_may_be_used_again() {
    let m = Machine::normal(4096);
    let layout: Layout<'_> = m.layout();
    let needs = layout.needs::<common::Lock>().unwrap();
    let maps = Maps::new(&needs);
    let mut first = None;
    for _ in 0..2 {
        maps.lend(&needs, |storage| {
            let y: Y<'_> = Yard::new(&layout, storage, Stage::default()).unwrap();
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
/// writing the fraction that is there already computes nothing. (Found by comparing random
/// operations with the executable model of the real kernel.)
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

/// Complains where a block is said to come back when it may already be somebody else's.
struct Early;

impl Platform for Early {
    fn event(&self, _: CpuId, event: Event) {
        if matches!(event, Event::Free { .. }) {
            assert_eq!(RELEASED.get(), 0, "no lock was released since the free began");
        }
    }
}

/// `mm_page_free` is recorded before the page goes back (§9.5): another CPU's event for the same
/// frame can only come later.
#[test]
fn s9_5_a_free_is_told_before_the_block_is_on_a_list() {
    // Large enough for a list that takes single pages back without a drain.
    Machine::normal(1 << 18).run_on(Early, |y: &pageyard::Yard<'_, Counted, Early>| {
        for order in [0, 0, 5] {
            let pfn = y.alloc(o(order), Gfp::KERNEL).unwrap();
            RELEASED.set(0);
            y.free(pfn, o(order)).unwrap();
        }
    });
}
