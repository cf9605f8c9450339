//! Guards (spec §11.6, §1.5, §1.7d), faults on purpose (§11.7, §2.7), and everything of §11 at once.

use crate::common;

use common::any::any_hooks;
use common::check::{Owned, check, free_in_pageblocks};
use common::ops::{Session, op};
use common::view::view;
use common::{LINUX612, Lock, Machine, Y, all_records, o};
use pageyard::policy::*;
use pageyard::{
    AllocError, Defences, FaultPlan, Faults, FreeError, Gfp, Hooked, NodeId, Observer, Order, Pfn,
    Place, PlaceError, Platform, Reclaim, RestoreError, Yard, ZoneKind,
};
use proptest::prelude::*;

const N: ZoneKind = ZoneKind::Normal;

#[test]
fn s1_7_s11_6_small_remainders_become_guards_and_merge_again() {
    let m = Machine::normal(8192);
    m.run_under(&<TypeChecked<Guarded<3>>>::RULES, |y| {
        let before = free_in_pageblocks(&view(y, N));
        // Bypass the per-CPU lists, so that exactly one block is split.
        let pcp = y.disable_pcp(N).unwrap();
        let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let v = view(y, N);
        let guards: Vec<(u64, u8)> = v.guards.iter().map(|(&p, &o)| (p - p % 8, o)).collect();
        assert_eq!(guards, [(p.0, 0), (p.0, 1), (p.0, 2)], "orders below 3 of the split");
        assert!(v.all_free().all(|f| f.1 >= 3));
        assert_eq!(y.out_of_use(N).unwrap().guards, 7);
        assert_eq!(y.zone_info(N).unwrap().free_exact, 8192 - 8, "guards are not counted");
        check(y, &m, &Owned::from([(p, Order::ZERO)]));

        // Guards can be neither freed nor allocated.
        assert_eq!(y.free(Pfn(p.0 + 1), Order::ZERO), Err(FreeError::DoubleFree));
        assert_eq!(y.free(Pfn(p.0 + 3), Order::ZERO), Err(FreeError::DoubleFree));
        let q = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert_ne!(p.0 >> 3, q.0 >> 3);
        y.free(q, Order::ZERO).unwrap();

        y.free(p, Order::ZERO).unwrap();
        assert_eq!(y.out_of_use(N).unwrap().guards, 0);
        assert_eq!(y.zone_info(N).unwrap().free_exact, 8192);
        assert_eq!(free_in_pageblocks(&view(y, N)), before);
        drop(pcp);
        check(y, &m, &Owned::new());
        assert_eq!(y.zone_stats(N).unwrap().type_check_failures, 0);
    });
}

#[test]
fn s11_6_requests_as_large_as_guards_leave_none_below_them() {
    Machine::normal(8192).run_under(&<Guarded<3>>::RULES, |y| {
        let pcp = y.disable_pcp(N).unwrap();
        let p = y.alloc(o(2), Gfp::KERNEL).unwrap();
        assert_eq!(view(y, N).guards.into_iter().collect::<Vec<_>>(), [(p.0 ^ 4, 2)]);
        let q = y.alloc(o(5), Gfp::KERNEL).unwrap();
        assert_eq!(y.out_of_use(N).unwrap().guards, 4);
        y.free(q, o(5)).unwrap();
        y.free(p, o(2)).unwrap();
        assert_eq!(y.out_of_use(N).unwrap().guards, 0);
        drop(pcp);
    });
}

#[test]
fn guards_survive_a_snapshot() {
    let m = Machine::normal(8192);
    m.run_under(&<Guarded<4>>::RULES, |y| {
        let p = y.alloc(o(1), Gfp::KERNEL).unwrap();
        let state = all_records(y);
        m.restored(&<Guarded<4>>::RULES, &state, |again| {
            assert_eq!(all_records(again), state);
            again.free(p, o(1)).unwrap();
            again.drain_all(None);
            check(again, &m, &Owned::new());
            assert_eq!(again.zone_info(N).unwrap().free_exact, 8192);
        });
        m.blank(|again: &mut Y<'_>| {
            let refused = again.restore(N, state[0].1.iter().copied());
            assert!(matches!(refused, Err(RestoreError { .. })), "no guards in this policy");
        });
    });
}

/// A plan's answers to the same thousand requests.
fn answers(plan: FaultPlan, order: u8, gfp: Gfp) -> Vec<bool> {
    let faults = Faults::new(plan);
    let hits: Vec<bool> = (0..1000).map(|_| faults.hit(o(order), gfp)).collect();
    assert_eq!(faults.injected(), hits.iter().filter(|&&h| h).count() as u64);
    hits
}

fn count(plan: FaultPlan, order: u8, gfp: Gfp) -> usize {
    answers(plan, order, gfp).into_iter().filter(|&h| h).count()
}

const ALWAYS: FaultPlan = FaultPlan { per_mille: 1000, ..FaultPlan::NONE };

#[test]
fn s11_7_small_and_exempt_requests_do_not_fail() {
    let order1 = |plan, gfp| count(plan, 1, gfp);
    assert_eq!(order1(FaultPlan::NONE, Gfp::ATOMIC), 0);
    assert_eq!(order1(ALWAYS, Gfp::ATOMIC), 1000);
    assert_eq!(count(ALWAYS, 0, Gfp::ATOMIC), 0, "min-order is 1");
    assert_eq!(count(FaultPlan { min_order: o(0), ..ALWAYS }, 0, Gfp::ATOMIC), 1000);
    assert_eq!(count(FaultPlan { min_order: o(3), ..ALWAYS }, 2, Gfp::ATOMIC), 0);
    for (gfp, plan) in [
        (Gfp::ATOMIC | Gfp::NOFAIL, FaultPlan { skip_nofail: false, ..ALWAYS }),
        (Gfp::ATOMIC | Gfp::HIGHMEM, FaultPlan { skip_highmem: false, ..ALWAYS }),
        (Gfp::KERNEL, FaultPlan { skip_direct_reclaim: false, ..ALWAYS }),
    ] {
        assert_eq!((order1(ALWAYS, gfp), order1(plan, gfp)), (0, 1000), "{gfp:?}");
    }
}

#[test]
fn s11_7_interval_times_and_space_limit_the_faults() {
    let hits = answers(FaultPlan { interval: 7, ..ALWAYS }, 1, Gfp::ATOMIC);
    for (i, hit) in hits.into_iter().enumerate() {
        assert_eq!(hit, i % 7 == 6, "request {i}");
    }
    assert_eq!(count(FaultPlan { interval: 0, ..ALWAYS }, 1, Gfp::ATOMIC), 1000);
    let hits = answers(FaultPlan { times: 3, ..ALWAYS }, 1, Gfp::ATOMIC);
    assert_eq!(hits[..4], [true, true, true, false]);
    assert_eq!(hits.into_iter().filter(|&h| h).count(), 3);
    // 100 pages, 8 per request: twelve requests pass, and the thirteenth finds only 4 left.
    let hits = answers(FaultPlan { space: 100, ..ALWAYS }, 3, Gfp::ATOMIC);
    assert_eq!(hits.iter().position(|&h| h), Some(12), "weight 2^order");
    assert!(hits[12..].iter().all(|&h| h));
    // A request passes only if the space exceeds its weight: 16 > 8 passes, 8 > 8 does not.
    let hits = answers(FaultPlan { space: 16, ..ALWAYS }, 3, Gfp::ATOMIC);
    assert_eq!(hits.iter().position(|&h| h), Some(1));
}

#[test]
fn s11_7_the_same_seed_fails_the_same_requests() {
    let plan = |seed| FaultPlan { per_mille: 250, seed, ..FaultPlan::NONE };
    for seed in [0, 1, 2, u64::MAX] {
        let hits = answers(plan(seed), 1, Gfp::ATOMIC);
        assert_eq!(hits, answers(plan(seed), 1, Gfp::ATOMIC));
        assert_ne!(hits, answers(plan(seed.wrapping_add(1)), 1, Gfp::ATOMIC));
        let n = hits.iter().filter(|&&h| h).count();
        assert!((200..300).contains(&n), "{n} of 1000 at 250 per mille");
    }
}

/// A platform with faults.
struct Faulty(Faults);

impl Platform for Faulty {}
impl Reclaim for Faulty {}
impl Observer for Faulty {}

impl Defences for Faulty {
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        self.0.hit(order, gfp)
    }
}

#[test]
fn s2_7_s11_7_injected_failures_have_no_side_effects() {
    let m = Machine::normal(8192);
    let plan = FaultPlan { times: 5, min_order: Order::ZERO, ..ALWAYS };
    // A reference to hooks forwards the fault hook.
    let platform = Faulty(Faults::new(plan));
    m.run_on_under(any_hooks(&platform), LINUX612, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        let before = all_records(y);
        assert_eq!(y.alloc(Order::ZERO, Gfp::ATOMIC), Err(AllocError::NoMemory));
        let mut slots = [None; 8];
        assert_eq!(y.alloc_bulk(Gfp::ATOMIC, &mut slots), Ok(0));
        assert_eq!(y.alloc_bulk_each(8, Gfp::ATOMIC, |_| {}), Ok(0));
        // A request on a given node and a bulk request for one page fail likewise.
        assert_eq!(y.alloc_on(NodeId(0), Order::ZERO, Gfp::ATOMIC), Err(AllocError::NoMemory));
        assert_eq!(y.alloc_bulk(Gfp::ATOMIC, &mut slots[..1]), Ok(0));
        assert_eq!(platform.0.injected(), 5);
        assert_eq!(all_records(y), before);
        assert!(y.alloc(Order::ZERO, Gfp::ATOMIC).is_ok());
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(12),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Random operations with guards and the poison pattern, while frames are poisoned: frames are
    /// conserved at every step. After the poisoned frames are unpoisoned, all memory is free.
    #[test]
    fn s11_frames_are_conserved_with_guards_and_poison(
        ops in proptest::collection::vec(op(), 1..120),
        poison in proptest::collection::vec(0u64..8192, 0..20),
    ) {
        let m = Machine::normal(8192).cpus(&[0, 0, 1]);
        m.run_under(&<TypeChecked<Guarded<3, Poisoned>>>::RULES, |y| {
            let start = free_in_pageblocks(&view(y, N));
            let mut s = Session::new(y, &m);
            let mut marked = std::collections::BTreeSet::new();
            for (i, op) in ops.iter().enumerate() {
                s.apply(op);
                if let Some(&p) = poison.get(i) {
                    assert_eq!(y.poison_frame(Pfn(p)).is_ok(), marked.insert(p));
                    s.check();
                }
            }
            s.finish();
            assert_eq!(y.out_of_use(N).unwrap().poisoned, marked.len() as u64);
            for &p in &marked {
                y.unpoison_frame(Pfn(p)).unwrap();
            }
            s.check();
            assert_eq!(y.out_of_use(N).unwrap().pages(), 0);
            assert_eq!(free_in_pageblocks(&view(y, N)), start);
        });
    }

    /// The same with injected failures: callers own exactly the blocks that were allocated.
    #[test]
    fn s11_7_frames_are_conserved_when_requests_fail(
        requests in proptest::collection::vec((0u8..11, any::<bool>()), 1..400),
        seed: u64,
    ) {
        let m = Machine::normal(8192);
        let plan = FaultPlan { per_mille: 300, min_order: Order::ZERO, seed, ..FaultPlan::NONE };
        let platform = Faulty(Faults::new(plan));
        m.run_on_under(any_hooks(&platform), &<Guarded<5>>::RULES, |y: &Yard<'_, Hooked<Lock, _, _>>| {
            let mut owned = Owned::new();
            for (order, free) in requests {
                if free && let Some((p, order)) = owned.pop_first() {
                    y.free(p, order).unwrap();
                } else if let Ok(p) = y.alloc(o(order), Gfp::ATOMIC) {
                    owned.insert(p, o(order));
                }
            }
            check(y, &m, &owned);
            while let Some((p, order)) = owned.pop_first() {
                y.free(p, order).unwrap();
            }
            y.drain_all(None);
            check(y, &m, &owned);
            assert_eq!(y.zone_info(N).unwrap().free_exact, 8192);
        });
    }
}

#[test]
fn s11_6_a_block_at_a_chosen_place_leaves_guards() {
    let m = Machine::normal(8192);
    m.run_under(&<TypeChecked<Guarded<3>>>::RULES, |y| {
        y.alloc_at(Pfn(300), Order::ZERO, Gfp::KERNEL).unwrap();
        let guards: Vec<_> = view(y, N).guards.into_iter().collect();
        assert_eq!(guards, [(296, 2), (301, 0), (302, 1)]);
        assert_eq!(y.zone_info(N).unwrap().free_exact, 8192 - 8);
        check(y, &m, &Owned::from([(Pfn(300), Order::ZERO)]));
        y.free(Pfn(300), Order::ZERO).unwrap();
        y.drain_all(None);
        assert_eq!(y.out_of_use(N).unwrap().guards, 0);
        check(y, &m, &Owned::new());
    });
}

#[test]
fn s2_7_s11_7_placed_requests_fail_at_their_entry() {
    let plan = FaultPlan { times: 3, min_order: Order::ZERO, ..ALWAYS };
    let platform = Faulty(Faults::new(plan));
    Machine::normal(8192).run_on_under(
        any_hooks(&platform),
        LINUX612,
        |y: &Yard<'_, Hooked<Lock, _, _>>| {
            let none = Err(PlaceError::Alloc(AllocError::NoMemory));
            let before = all_records(y);
            assert_eq!(y.alloc_at(Pfn(300), Order::ZERO, Gfp::ATOMIC), none);
            let with = |align| {
                let place = Place { align, below: None };
                y.alloc_with(Order::ZERO, Gfp::ATOMIC, place).map(|_| ())
            };
            assert_eq!((with(1), with(64)), (none, none));
            assert_eq!((platform.0.injected(), all_records(y)), (3, before), "once each");
            assert_eq!((with(1), with(64)), (Ok(()), Ok(())));
        },
    );
}
