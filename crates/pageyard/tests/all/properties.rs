//! Random operations on random machines under many policies, checked against a naive model. While
//! no thread is inside the yard:
//!
//! 1. no frame is in two blocks, whether free, cached or owned;
//! 2. every block is aligned to its size, within usable memory, and touches no reserved frame;
//! 3. what the yard says is owned is exactly what its callers own;
//! 4. free + cached + owned pages = managed pages, zone by zone;
//! 5. the free counter with its CPU parts equals the lists without ISOLATE; so do the highatomic
//!    counter and the number of free blocks per order; a pageset's count equals its lists;
//! 6. no CPU part exceeds its threshold;
//! 7. below the order of a pageblock no two free buddies stay unmerged;
//! 8. with the hygiene rules every free block is on the list of its pageblocks' type;
//! 9. after everything was freed and drained, memory has coalesced into what it was at the start;
//! 10. a snapshot restored gives the same snapshot, and a yard that behaves the same from then on;
//! 11. rules that are a value do what the same rules known to the compiler do.
//!
//! `PROPTEST_CASES=1000 cargo test -p pageyard --test all properties` runs more cases than the
//! default.

use crate::common;

use std::ops::Range;

use common::check::free_in_pageblocks;
use common::ops::{Op, Session, config, machine, op};
use common::view::{View, view};
use common::{Chosen, Machine, Stage, Y, all_records};
use pageyard::policy::*;
use pageyard::{MigrateType, Pfn, Record, ZoneId, ZoneKind};
use proptest::collection::vec;
use proptest::test_runner::TestRunner;

type Records = Vec<(ZoneId, Vec<Record>)>;

fn free_frames(y: &Y<'_>) -> Vec<Vec<(u64, u8)>> {
    y.zone_ids().map(|k| free_in_pageblocks(&view(y, k))).collect()
}

/// Invariants 1 to 9.
fn keeps_its_invariants(rules: Chosen, machine: &Machine, ops: &[Op]) {
    machine.run_under(rules, |y| {
        let before = free_frames(y);
        let mut s = Session::new(y, machine);
        s.check();
        for op in ops {
            s.apply(op);
        }
        s.check();
        s.finish();
        assert_eq!(free_frames(y), before, "everything was freed, but not all of it merged");
        for kind in y.zone_ids() {
            assert_eq!(y.zone_info(kind).unwrap().cached, 0, "{kind}: drained");
        }
        if rules.type_checks && !rules.carried_types {
            for kind in y.zone_ids() {
                let failures = y.zone_stats(kind).unwrap().type_check_failures;
                assert_eq!(failures, 0, "{kind}: lists of the wrong type (§4.8)");
            }
        }
    });
}

/// Invariant 11: the answers of the operations, and the state that they leave.
fn outcome<P: Policy>(policy: P, machine: &Machine, ops: &[Op]) -> (Vec<Option<Pfn>>, Records) {
    machine.run_on_under(Stage::default(), policy, |y: &Y<'_, P>| {
        let mut s = Session::new(y, machine);
        ops.iter().for_each(|op| s.apply(op));
        (s.answers.clone(), all_records(y))
    })
}

/// Invariant 10. (Not for carried types: a snapshot does not say which type a cached page carries.)
fn survives_a_snapshot(rules: Chosen, machine: &Machine, ops: &[Op], more: &[Op]) {
    machine.run_under(rules, |y| {
        let mut s = Session::new(y, machine);
        ops.iter().for_each(|op| s.apply(op));
        let snapshot = all_records(y);
        let twin = Machine { knobs: y.knobs(), ..machine.clone() };
        twin.restored(rules, &snapshot, |z| {
            assert_eq!(all_records(z), snapshot, "restored as it was");
            z.hooks().on(pageyard::Platform::cpu(y.hooks()).0);
            let mut t = Session::new(z, &twin);
            t.owned = s.owned.clone();
            s.answers.clear();
            for op in more {
                s.apply(op);
                t.apply(op);
                assert_eq!(s.answers, t.answers, "after {op:?}");
            }
            assert_eq!(all_records(z), all_records(y), "the same from then on");
        });
    });
}

/// Tests a property with random machines and operations; `first` is the number of first operations.
fn for_all(first: Range<usize>, property: fn(&Machine, &[Op], &[Op])) {
    let mut runner = TestRunner::new(config());
    let all = (machine(), vec(op(), first), vec(op(), 1..40));
    let tried = runner.run(&all, |(machine, first, more)| {
        property(&machine, &first, &more);
        Ok(())
    });
    tried.unwrap_or_else(|e| {
        panic!(
            "{e}
{runner}"
        )
    });
}

macro_rules! invariants_under {
    ($($test:ident: $policy:ty;)*) => {$(
        #[test]
        fn $test() {
            for_all(1..120, |machine, ops, _| {
                keeps_its_invariants(&<$policy>::RULES, machine, ops);
            });
        }
    )*};
}

invariants_under! {
    invariants_under_linux612: TypeChecked<Linux612>;
    invariants_under_base: Base;
    invariants_under_step1: Step1;
    invariants_under_step3: TypeChecked<Step3>;
    invariants_under_step5: Step5;
    invariants_under_step7: Step7;
    invariants_under_step8: Step8;
    invariants_under_step9: Step9;
    invariants_under_step10: Step10;
    invariants_under_linux61: Linux61;
    invariants_under_vanilla: Vanilla;
    invariants_under_two_passes: TypeChecked<TwoPassBulkFree>;
    invariants_under_no_high_order: NoHighOrder;
    invariants_under_owned_blocks: TypeChecked<OwnedBlocks>;
    invariants_under_owned_blocks_and_vanilla: OwnedBlocks<TwoPassBulkFree<Vanilla<Base>>>;
    invariants_under_a_composition: TwoPassBulkFree<NoHighOrder<Vanilla<Base>>>;
    invariants_under_linux618: TypeChecked<Linux618>;
    invariants_under_steered: Steered;
    invariants_under_defrag_mode: DefragMode<Linux619>;
    invariants_under_another_composition: TypeChecked<TwoPassBulkFree<Step7>>;
}

macro_rules! snapshots_under {
    ($($test:ident: $policy:ty;)*) => {$(
        #[test]
        fn $test() {
            for_all(1..80, |machine, ops, more| {
                survives_a_snapshot(&<$policy>::RULES, machine, ops, more);
            });
        }
    )*};
}

snapshots_under! {
    snapshots_under_linux612: Linux612;
    snapshots_under_base: Base;
    snapshots_under_step9: Step9;
    snapshots_under_two_passes: TwoPassBulkFree;
    snapshots_under_no_high_order: NoHighOrder;
    snapshots_under_linux618: Linux618;
    snapshots_under_defrag_mode: DefragMode;
}

macro_rules! values_are_types {
    ($($test:ident: $policy:ty;)*) => {$(
        #[test]
        fn $test() {
            for_all(1..120, |machine, ops, _| {
                let known = outcome(<$policy>::POLICY, machine, ops);
                assert_eq!(outcome(&<$policy>::RULES, machine, ops), known);
            });
        }
    )*};
}

// The compiler makes a copy of the core for each: so the oldest rules, the newest, and what neither has.
values_are_types! {
    linux612_is_its_rules: Linux612;
    defrag_mode_is_its_rules: DefragMode<Linux619>;
    owned_blocks_is_its_rules: OwnedBlocks;
    a_composition_is_its_rules: TypeChecked<TwoPassBulkFree<NoHighOrder<Vanilla<Base>>>>;
}

#[test]
fn isolated_blocks_are_not_counted() {
    // Tests the model of invariant 5 on a state that requests cannot reach.
    let s = common::state::State::new(1024).label(1, MigrateType::Isolate).free(0, 9).free(512, 9);
    s.run(|y: &Y<'_>| {
        common::check::check(y, &s.machine, &common::check::Owned::new());
        let v: View = view(y, ZoneKind::Normal);
        assert_eq!(v.free(9, MigrateType::Isolate), [512]);
        assert_eq!(y.zone_info(ZoneKind::Normal).unwrap().free_exact, 512);
    });
}
