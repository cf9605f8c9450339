//! Spec §4.7, §9.2: the CPUs' parts of the free counter, and when they are folded into it.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, o};
use pageyard::{CpuId, Event, Gfp, MigrateType, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// The counter and the CPU's part.
fn parts(y: &Y<'_>) -> (i64, i32) {
    let v = normal(y);
    (v.zone.nr_free, v.cpus[0].diff)
}

fn threshold_18() -> State {
    State::new(4096).free(1024, 10).cpu(0, |c| c.threshold = 18)
}

#[test]
fn s9_2_the_nineteenth_page_folds_all_nineteen() {
    threshold_18().run(|y: &Y<'_>| {
        for n in 1..=18 {
            y.alloc(o(0), GFP).unwrap();
            assert_eq!(parts(y), (1024, -n));
        }
        y.alloc(o(0), GFP).unwrap();
        assert_eq!(parts(y), (1024 - 19, 0));
        let info = y.zone_info(ZONE).unwrap();
        assert_eq!((info.free, info.free_exact), (1005, 1005));
    });
}

#[test]
fn s4_7_a_split_counts_as_one_net_change() {
    // Taking one page out of an order-10 block is −1, not −1024 + 1023: it stays pending.
    threshold_18().run(|y: &Y<'_>| {
        y.alloc(o(4), GFP).unwrap();
        assert_eq!(parts(y), (1024, -16));
        y.alloc(o(4), GFP).unwrap();
        assert_eq!(parts(y), (992, 0));
    });
}

#[test]
fn s4_7_a_whole_claim_counts_twice() {
    // −1024 under the old type is pushed at once, then +1008 under the new one.
    threshold_18().run(|y: &Y<'_>| {
        y.alloc(o(4), Gfp::KERNEL).unwrap();
        assert_eq!(parts(y), (1008, 0));
    });
    let s = State::new(4096).free(1024, 10).cpu(0, |c| c.threshold = 1020);
    s.run(|y: &Y<'_>| {
        y.alloc(o(4), Gfp::KERNEL).unwrap();
        assert_eq!(parts(y), (0, 1008), "−1024 exceeds 1020, +1008 does not");
    });
}

#[test]
fn s1_7_a_free_counts_once_under_its_own_size_however_far_it_merges() {
    let s = State::new(4096)
        .cpu(0, |c| c.threshold = 18)
        .free(1025, 0)
        .free(1026, 1)
        .free(1028, 2)
        .free(1032, 3)
        .used(1024..1025, false);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(1024), o(0)).unwrap();
        assert_eq!(parts(y), (15, 1));
        assert_eq!(y.free_blocks(ZONE).unwrap()[4], 1);
    });
}

#[test]
fn s9_2_a_tick_folds_what_is_pending() {
    threshold_18().run(|y: &Y<'_>| {
        y.alloc(o(0), GFP).unwrap();
        assert_eq!(normal(y).cpus[0].expire, 0);
        y.tick(CpuId(0));
        assert_eq!(parts(y), (1023, 0));
    });
}

#[test]
fn s3_6_watermarks_see_the_counter_without_its_parts() {
    // 17 pages are allocated, but the counter still says 1024: 1024 − 0 > 1010.
    let s = threshold_18().set(|z| z.watermarks = [1010; 4]);
    s.run(|y: &Y<'_>| {
        for _ in 0..19 {
            y.alloc(o(0), GFP).unwrap();
        }
        assert_eq!(parts(y), (1005, 0));
        assert!(y.alloc(o(0), GFP).is_err());
    });
}

#[test]
fn s9_3_thresholds_follow_cpus_and_size() {
    Machine::normal(110_560).cpus(&[0, 0, 0, 0]).run(|y: &Y<'_>| {
        let v = normal(y);
        assert!(v.cpus.iter().all(|c| c.threshold == 18 && c.diff == 0));
    });
}

/// buddyinfo and pagetypeinfo (§9.4) show what the lists hold.
#[test]
fn s9_4_free_blocks_by_type_are_those_of_the_lists() {
    let s = State::new(4096).free(1024, 10).free(512, 3).label(0, pageyard::MigrateType::Unmovable);
    s.free(8, 3).run(|y: &Y<'_>| {
        let by_type = y.free_blocks_by_type(ZONE).unwrap();
        assert_eq!(by_type.0[3], [1, 1, 0, 0, 0, 0]);
        assert_eq!(by_type.0[10], [0, 1, 0, 0, 0, 0]);
        assert_eq!((by_type.blocks(), by_type.pages()), (3, 1024 + 16));
        let blocks = y.free_blocks(ZONE).unwrap();
        for (row, n) in by_type.0.iter().zip(blocks) {
            assert_eq!(row.iter().sum::<u64>(), n);
        }
    });
}

/// §9.1, §9.5: base pages that leave and rejoin the free lists are counted, and each block removed
/// emits an event.
#[test]
fn s9_5_blocks_removed_from_free_lists_are_counted_and_reported() {
    State::new(4096).free(1024, 10).run(|y: &Y<'_>| {
        y.hooks().watch();
        let told = || -> Vec<Event> {
            let events = y.hooks().events().into_iter();
            events.filter(|e| matches!(e, Event::ZoneLocked { .. } | Event::Free { .. })).collect()
        };
        let pages = || {
            let stats = y.zone_stats(ZONE).unwrap();
            (stats.pages_taken, stats.pages_returned)
        };
        let (taken, returned) = pages();
        // Order 5 comes from the zone and goes back to it.
        let (order, migrate_type) = (o(5), MigrateType::Movable);
        let pfn = y.alloc(order, GFP).unwrap();
        assert_eq!(told(), [Event::ZoneLocked { pfn, order, migrate_type, refill: false }]);
        assert_eq!(pages(), (taken + 32, returned));
        y.free(pfn, order).unwrap();
        assert_eq!(told(), [Event::Free { pfn, order }]);
        assert_eq!(pages(), (taken + 32, returned + 32));
        // Orders up to 3 are kept on the CPU's lists.
        let order = o(2);
        let pfn = y.alloc(order, GFP).unwrap();
        assert!(told().contains(&Event::ZoneLocked { pfn, order, migrate_type, refill: true }));
        y.free(pfn, order).unwrap();
        assert_eq!(told(), [Event::Free { pfn, order }]);
    });
}
