//! Spec §5.6: requests and frees bypass a per-CPU list whose lock is taken, and use the zone. §7.6:
//! asynchronous compaction stops when the zone lock is contended.
//!
//! Requests only ever *try* per-CPU lists and *lock* zones, so a lock whose `try_lock` fails makes all
//! lists busy.

use crate::common;

use common::by_thread::{ByThread, by_thread};
use common::interpose::{Interposed, REFUSES};
use common::owners::*;
use common::{Chosen, LINUX612, Machine, o};
use pageyard::{CompactResult, CpuId, Gfp, Hooked, Order, Priority, Yard, ZoneKind};

type Busy<'y> = Yard<'y, Hooked<Interposed, ByThread, Chosen>>;

fn with_busy_lists(f: impl for<'y> FnOnce(&Busy<'y>)) {
    Machine::normal(16384).run_on_under(by_thread(), LINUX612, |y: &Busy<'_>| {
        REFUSES.set(true);
        f(y);
        REFUSES.set(false);
    });
}

const ZONE: ZoneKind = ZoneKind::Normal;

#[test]
fn s5_6_requests_and_frees_bypass_a_busy_list() {
    with_busy_lists(|y| {
        let before = y.pageset(ZONE, CpuId(0)).unwrap();
        let p = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.free(p, o(0)).unwrap();
        let s = y.cpu_stats(ZONE, CpuId(0)).unwrap();
        assert_eq!((s.direct_allocs, s.direct_frees, s.refills), (1, 1, 0));
        assert_eq!(y.zone_stats(ZONE).unwrap().bypasses, 2);
        assert_eq!(y.pageset(ZONE, CpuId(0)).unwrap(), before, "a bypass leaves the tuning alone");
        assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 16384);
    });
}

#[test]
fn s5_6_uncached_orders_are_not_bypasses() {
    with_busy_lists(|y| {
        let p = y.alloc(o(4), Gfp::KERNEL).unwrap();
        y.free(p, o(4)).unwrap();
        assert_eq!(y.zone_stats(ZONE).unwrap().bypasses, 0);
    });
}

#[test]
fn s6_1_a_bulk_request_with_a_busy_list_gets_one_page() {
    with_busy_lists(|y| {
        let mut slots = [None; 8];
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut slots), Ok(1));
        assert!(slots[0].is_some() && slots[1..].iter().all(Option::is_none));
        assert_eq!(y.alloc_bulk_each(8, Gfp::KERNEL, |_| ()), Ok(1));
    });
}

#[test]
fn s6_2_a_batch_with_a_busy_list_is_freed_to_the_zone() {
    with_busy_lists(|y| {
        let batch: Vec<_> = (0..40)
            .map(|i| o(i % 5))
            .map(|ord| (y.alloc(ord, Gfp::KERNEL).unwrap(), ord))
            .collect();
        y.free_batch(&batch).unwrap();
        let info = y.zone_info(ZONE).unwrap();
        assert_eq!((info.free_exact, info.cached), (16384, 0));
    });
}

#[test]
fn s5_16_a_second_drainer_of_all_zones_returns_at_once() {
    // Draining all zones also takes a lock by `try_lock`. When that fails, nothing is drained.
    Machine::normal(16384).run_on_under(by_thread(), LINUX612, |y: &Busy<'_>| {
        let p = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.free(p, o(0)).unwrap();
        REFUSES.set(true);
        y.drain_all(None);
        assert!(y.zone_info(ZONE).unwrap().cached > 0);
        y.drain_all(Some(ZONE.into()));
        assert_eq!(y.zone_info(ZONE).unwrap().cached, 0, "draining one zone waits for the lock");
        REFUSES.set(false);
    });
}

#[test]
fn s7_6_asynchronous_compaction_stops_at_a_contended_zone_lock() {
    let m = Machine::normal(32_768);
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_, Interposed>| {
        fragment(y, 1, &[0], 50);
        let run = |priority| {
            REFUSES.set(true);
            let done = y.compact_for(Order::HUGE, Gfp::HIGHUSER_MOVABLE, priority).unwrap();
            REFUSES.set(false);
            done
        };
        let done = run(Priority::Async);
        assert_eq!((done.result, done.captured), (CompactResult::Contended, None));
        let s = y.compact_stats();
        assert_eq!((s.moved, s.free_scanned), (0, 0));
        assert!(s.migrate_scanned <= 512, "it stopped in the first pageblock: {s:?}");
        assert_eq!(y.deferral(ZONE).unwrap().shift, 0, "contention does not defer the zone");
        let done = run(Priority::SyncLight);
        assert_eq!(
            done.result,
            CompactResult::Success,
            "synchronous compaction waits for the lock"
        );
        done.captured.into_iter().for_each(|pfn| took(y, pfn, 9));
        all_is_well(y, &m);
    });
}
