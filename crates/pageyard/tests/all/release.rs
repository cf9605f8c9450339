//! Memory that is reserved at the start and released later (spec §8.1, §8.3).

use crate::common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::any::any_hooks;
use common::by_thread::{CPU, by_thread};
use common::check::{Owned, check};
use common::view::{normal, view};
use common::{Chosen, LINUX612, Lock, Machine, Stage, Y, frames, o};
use pageyard::policy::{InitOnFree, Linux612, StaticPolicy};
use pageyard::{
    CpuId, Defences, FreeError, Gfp, Hooked, HotplugError, MigrateType, NodeId, Observer, Order,
    OwnedStorage, Pfn, Platform, PoisonError, Reclaim, ReleaseError, SECTION_PAGES, Yard, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const ALL: Gfp = Gfp::ATOMIC.union(Gfp::MEMALLOC).union(Gfp::NOWARN);

/// The machine once everything is released.
fn whole(machine: &Machine) -> Machine {
    Machine { reserved: Vec::new(), ..machine.clone() }
}

fn managed(y: &Y<'_>) -> u64 {
    y.zone_info(NORMAL).unwrap().managed
}

/// §8.1: released frames become free in aligned blocks at the tails of the lists, and merge with
/// neighbours.
#[test]
fn s8_1_released_memory_is_free_and_merged() {
    let machine = Machine::normal(8192).reserved(700..2900).reserved(4096..5120);
    machine.run(|y: &Y<'_>| {
        assert_eq!((managed(y), y.zone_info(NORMAL).unwrap().present), (8192 - 3224, 8192));
        assert_eq!(y.poison_frame(Pfn(700)), Err(PoisonError::Reserved));
        y.release(frames(1024..2048)).unwrap();
        y.release(frames(4096..5120)).unwrap();
        let largest = normal(y).free(10, MigrateType::Movable).to_vec();
        assert_eq!(
            largest[largest.len() - 2..],
            [1024, 4096],
            "behind the blocks that were free before"
        );
        y.release(frames(700..1024)).unwrap();
        y.release(frames(2048..2900)).unwrap();
        assert_eq!(managed(y), 8192);
        check(y, &whole(&machine), &Owned::new());
        assert_eq!(normal(y).free(10, MigrateType::Movable).len(), 8, "merged with the rest");
        assert_eq!(y.validate(), Ok(()));
    });
}

/// §8.3: values derived from managed pages are as if the memory had been free from the start. The
/// first computation of `min_free_kbytes` knows no watermarks yet (§3.1), so the marks differ a
/// little.
#[test]
fn s8_3_everything_is_recomputed() {
    let machine = Machine::normal(1 << 16).zone(ZoneKind::Dma32, 1 << 16..(1 << 16) + 512);
    let machine = machine.cpus(&[0, 0]);
    let marks = |y: &Y<'_>| y.zone_info(NORMAL).unwrap().watermarks;
    let state = |y: &Y<'_>| {
        let threshold = y.stat_threshold(NORMAL, CpuId(1));
        let limits = y.pageset(NORMAL, CpuId(1)).unwrap().limits;
        let low = y.zone_info(ZoneKind::Dma32).unwrap();
        (managed(y), low.lowmem_reserve, threshold, limits.batch)
    };
    let (at_once, at_once_marks) = machine.run(|y: &Y<'_>| (state(y), marks(y)));
    machine.clone().reserved(1000..1 << 16).run(|y: &Y<'_>| {
        let before = (state(y), marks(y));
        assert!(y.zone_info(NORMAL).unwrap().grouping_disabled, "too little memory (§2.4)");
        y.release(frames(1000..1 << 16)).unwrap();
        let after = state(y);
        assert_eq!(after, at_once);
        assert!(before.0.0 < after.0 && before.0.2 < after.2 && before.0.3 < after.3);
        for (mark, (is, at_once)) in marks(y).into_iter().zip(at_once_marks).enumerate() {
            assert!(is.abs_diff(at_once) * 100 <= at_once, "mark {mark}: {is}, not {at_once}");
            assert!(before.1[mark] * 2 < is, "mark {mark}: {is} after {}", before.1[mark]);
        }
        assert!(!y.zone_info(NORMAL).unwrap().grouping_disabled, "enough memory now (§2.4)");
    });
}

/// A range may span zones, and all memory may be reserved at first.
#[test]
fn a_range_may_span_zones() {
    let machine = Machine::new().zone(ZoneKind::Dma32, 0..2048).zone(NORMAL, 2048..4096);
    let machine = machine.reserved(0..4096);
    machine.run(|y: &Y<'_>| {
        assert!(y.alloc(Order::ZERO, ALL).is_err());
        y.release(frames(2040..2056)).unwrap();
        for kind in [ZoneKind::Dma32, NORMAL] {
            assert_eq!(y.zone_info(kind).unwrap().free_exact, 8, "{kind}");
        }
        let pages: Vec<Pfn> = std::iter::from_fn(|| y.alloc(Order::ZERO, ALL).ok()).collect();
        assert_eq!(pages.len(), 16);
        pages.into_iter().for_each(|p| y.free(p, Order::ZERO).unwrap());
        y.drain_all(None);
        y.release(frames(0..2040)).unwrap();
        y.release(frames(2056..4096)).unwrap();
        check(y, &whole(&machine), &Owned::new());
    });
}

/// The error names the first wrong frame and the reason, and nothing changes.
#[test]
fn a_range_with_one_wrong_frame_is_rejected_as_a_whole() {
    let machine = Machine::new().span(NORMAL, 1000..8192).usable(1000..3000).usable(4000..8192);
    let machine = machine.reserved(1500..1600).reserved(2900..4100).reserved(5000..6000);
    machine.run(|y: &Y<'_>| {
        let before = normal(y);
        let refused = |r| y.release(frames(r)).unwrap_err();
        assert_eq!(refused(1500..1500), ReleaseError::EmptyRange);
        #[allow(clippy::reversed_empty_ranges)]
        let backward = refused(1600..1500);
        assert_eq!(backward, ReleaseError::EmptyRange);
        assert_eq!(refused(999..1001), ReleaseError::OutsideZone(Pfn(999)));
        assert_eq!(refused(u64::MAX - 1..u64::MAX), ReleaseError::OutsideZone(Pfn(u64::MAX - 1)));
        assert_eq!(refused(1000..1001), ReleaseError::NotReserved(Pfn(1000)));
        assert_eq!(refused(1500..1601), ReleaseError::NotReserved(Pfn(1600)), "partly reserved");
        assert_eq!(refused(2900..4100), ReleaseError::Hole(Pfn(3000)), "partly a hole");
        let page = y.alloc_at(Pfn(1100), Order::ZERO, ALL);
        assert_eq!(page, Ok(()));
        assert_eq!(refused(1100..1101), ReleaseError::NotReserved(Pfn(1100)), "in use");
        y.free(Pfn(1100), Order::ZERO).unwrap();
        y.drain_all(None);
        assert_eq!(normal(y).all_free().count(), before.all_free().count());
        assert_eq!(managed(y), before.zone.managed, "nothing was released");

        y.release(frames(1510..1520)).unwrap();
        assert_eq!(refused(1500..1600), ReleaseError::AlreadyReleased(Pfn(1510)));
        y.alloc_at(Pfn(1515), Order::ZERO, ALL).unwrap();
        assert_eq!(refused(1515..1516), ReleaseError::AlreadyReleased(Pfn(1515)), "in use");
        assert_eq!(y.free(Pfn(1500), Order::ZERO), Err(FreeError::Reserved));
        assert_eq!(y.free(Pfn(1515), Order::ZERO), Ok(()));
    });
}

/// A section goes offline once nothing in it is reserved, and returns as ordinary memory.
#[test]
fn a_section_goes_offline_after_its_release() {
    const S: u64 = SECTION_PAGES;
    let machine = Machine::normal(2 * S).reserved(S + 5..S + 600);
    machine.run(|y: &Y<'_>| {
        let section = || frames(S..2 * S);
        assert!(matches!(y.offline(section()), Err(HotplugError::Refused(_))));
        y.release(frames(S + 5..S + 600)).unwrap();
        y.offline(section()).unwrap();
        assert_eq!(y.release(frames(S + 5..S + 6)), Err(ReleaseError::Hole(Pfn(S + 5))));
        y.online(section()).unwrap();
        assert_eq!(y.release(frames(S + 5..S + 6)), Err(ReleaseError::NotReserved(Pfn(S + 5))));
        check(y, &whole(&machine), &Owned::new());
    });
}

/// With deferred initialisation, reserved memory can be released once it has finished (§8.2).
#[test]
fn s8_2_release_after_a_deferred_start() {
    const S: u64 = SECTION_PAGES;
    let machine = Machine::normal(3 * S).reserved(100..200).reserved(2 * S - 100..2 * S + 100);
    let layout = machine.layout();
    let mut maps = OwnedStorage::<Lock>::new(&layout).unwrap();
    struct Defers;
    impl Platform for Defers {
        const DEFERS: bool = true;
    }
    impl Reclaim for Defers {}
    impl Observer for Defers {}
    impl Defences for Defers {}
    let y: Yard<'_, Hooked<Lock, Defers>> =
        Yard::deferred(&layout, maps.storage(), Defers).unwrap();
    assert_eq!(y.release(frames(100..200)), Err(ReleaseError::Deferred));
    assert!(y.finish_deferred());
    y.release(frames(100..200)).unwrap();
    y.release(frames(2 * S - 100..2 * S + 100)).unwrap();
    check(&y, &whole(&machine), &Owned::new());
}

/// A snapshot does not distinguish reserved memory from holes.
#[test]
fn memory_of_a_restored_zone_is_not_released() {
    let machine = Machine::normal(4096).reserved(100..200);
    let records = machine.run(|y: &Y<'_>| {
        let mut records = Vec::new();
        y.snapshot(NORMAL, |r| records.push(r));
        records
    });
    let layout = machine.layout();
    let mut maps = OwnedStorage::<Lock>::new(&layout).unwrap();
    let mut y: Y<'_, Linux612> = Yard::blank(&layout, maps.storage(), Stage::default()).unwrap();
    y.restore(NORMAL, records).unwrap();
    assert_eq!(y.release(frames(100..200)), Err(ReleaseError::Hole(Pfn(100))));
}

/// If a hook panics, the frames that it did not fill stay reserved, and a later call releases them.
#[test]
fn a_panicking_hook_leaves_the_rest_reserved() {
    #[derive(Default)]
    struct Fills(AtomicU32);
    impl Platform for Fills {}
    impl Reclaim for Fills {}
    impl Observer for Fills {}
    impl Defences for Fills {
        fn zero(&self, _: Pfn, _: Order) -> bool {
            assert_ne!(self.0.fetch_sub(1, Relaxed), 1, "the hook panics");
            true
        }
    }
    const RULES: Chosen = &InitOnFree::<Linux612>::RULES;
    let machine = Machine::normal(4096).reserved(1000..3000);
    let fills = Fills::default();
    machine.run_on_under(any_hooks(&fills), RULES, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        // 1000..3000 are blocks of orders 3, 4, 10, 9, 8, ...
        fills.0.store(3, Relaxed);
        let panics = catch_unwind(AssertUnwindSafe(|| y.release(frames(1000..3000))));
        assert!(panics.is_err());
        assert_eq!(y.zone_info(NORMAL).unwrap().managed, 4096 - 2000 + 24);
        assert_eq!(y.validate(), Ok(()));
        y.release(frames(1024..3000)).unwrap();
        check(y, &whole(&machine), &Owned::new());
        assert!(view(y, NORMAL).allocated.is_empty());
    });
    // Memory released before the panic counts for the watermarks (§8.3).
    let machine = Machine::normal(65_536).reserved(1024..60_000);
    machine.run_on_under(any_hooks(&fills), RULES, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        let before = y.zone_info(NORMAL).unwrap();
        fills.0.store(50, Relaxed);
        let release = || y.release(frames(1024..60_000));
        assert!(catch_unwind(AssertUnwindSafe(release)).is_err());
        let after = y.zone_info(NORMAL).unwrap();
        assert_eq!(after.managed, before.managed + 49 * 1024);
        assert!(after.watermarks[0] > before.watermarks[0], "{:?}", after.watermarks);
    });
}

/// Releases run concurrently with requests, contiguous ranges, hotplug and each other. No page is
/// lost or allocated twice.
#[test]
fn release_runs_beside_requests_and_hotplug() {
    const S: u64 = SECTION_PAGES;
    let rounds = if cfg!(miri) { 1 } else { 5 };
    for round in 0..rounds {
        let reserved = 1024 + 64 * round..20_000;
        let machine = Machine::normal(2 * S).cpus(&[0; 4]).reserved(reserved.clone());
        machine.run_on_under(by_thread(), LINUX612, |y: &Yard<'_, Hooked<Lock, _, _>>| {
            let start = Barrier::new(4);
            let released = AtomicU32::new(0);
            std::thread::scope(|s| {
                for cpu in 0..2 {
                    let (start, released, reserved) = (&start, &released, reserved.clone());
                    s.spawn(move || {
                        CPU.set(cpu);
                        start.wait();
                        for pfn in reserved.step_by(50) {
                            // Both threads try each piece; one succeeds.
                            let end = (pfn + 50).min(20_000);
                            match y.release(frames(pfn..end)) {
                                Ok(()) => _ = released.fetch_add((end - pfn) as u32, Relaxed),
                                Err(e) => {
                                    assert_eq!(e, ReleaseError::AlreadyReleased(Pfn(pfn)))
                                }
                            }
                        }
                    });
                }
                s.spawn(|| {
                    CPU.set(2);
                    start.wait();
                    for i in 0..2000u32 {
                        let order = o([0, 0, 3, 9, 10][i as usize % 5]);
                        let taken = y.alloc(order, ALL);
                        if i % 100 == 0 {
                            let range = frames(1024..2048);
                            if y.alloc_contig(range.clone(), MigrateType::Movable, ALL).is_ok() {
                                y.free_contig(range).unwrap();
                            }
                        }
                        taken.into_iter().for_each(|p| y.free(p, order).unwrap());
                    }
                });
                s.spawn(|| {
                    CPU.set(3);
                    start.wait();
                    for _ in 0..20 {
                        if y.offline(frames(S..2 * S)).is_ok() {
                            y.online(frames(S..2 * S)).unwrap();
                        }
                    }
                });
            });
            let pages = reserved.end - reserved.start;
            assert_eq!(u64::from(released.load(Relaxed)), pages, "each frame once");
            y.drain_all(None);
            check(y, &whole(&machine), &Owned::new());
            assert_eq!(y.validate(), Ok(()));
            assert_eq!(y.node_of(CpuId(3)), Some(NodeId(0)));
        });
    }
}
