//! Plants bugs and checks that they are found. They are in the atomics and locks below the core,
//! where every protocol can be broken without a change of its source, and in operations.

use lock_api::Mutex;
use pageyard::Gfp;
use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard_pairs_atomics::Fault;

use crate::explore::{Extent, Tally, explore};
use crate::ops::{Op, ops};
use crate::schedule::{Bug, Lock};
use crate::world::Block;

/// Returns what pairs of the named operations find of a bug, in one state.
fn found<P: StaticPolicy + Sync>(bug: Bug, state: &str, names: &[&str], ops: &[Op<P>]) -> String {
    let mut tally = Tally::default();
    let wanted = |s: &str, op: &str| s == state && names.contains(&op);
    // If a lock does not exclude, the accesses that it protects are plain ones.
    let plain = bug == Bug::Impatient;
    explore(ops, 2, wanted, &Extent { bug, plain, ..Extent::all() }, &mut tally);
    tally.to_string()
}

/// Checks that the bug is found with this message, and that nothing is found without it.
fn finds(bug: Bug, state: &str, names: &[&str], words: &str) {
    finds_under::<Linux612>(bug, state, names, words);
}

/// The same under any policy.
fn finds_under<P: StaticPolicy + Sync>(bug: Bug, state: &str, names: &[&str], words: &str) {
    let found_of = |bug| found::<P>(bug, state, names, &ops());
    assert!(found_of(bug).contains(words), "{}", found_of(bug));
    assert!(!found_of(Bug::None).contains("times:"), "{}", found_of(Bug::None));
}

fn torn(file: &'static str) -> Bug {
    Bug::Atomics(Fault::Torn(file))
}

/// A busy flag that two threads hold at once.
#[test]
fn a_busy_flag_that_does_not_exclude_is_detected() {
    finds(
        Bug::Atomics(Fault::Forced("src/base/busy.rs")),
        "offline",
        &["online"],
        "on a list of order 10, but not of it",
    );
}

/// A free that checks whether the block is allocated, and takes it in a separate step.
#[test]
fn a_free_that_does_not_exclude_others_is_detected() {
    let names = ["free-same", "free-same-direct", "free-same-batch"];
    finds(
        torn("src/base/frame.rs"),
        "fresh",
        &names,
        "blocks on all per-CPU lists: the counter says 2, but there are 1",
    );
}

/// Two threads take the same section to initialise it.
#[test]
fn a_section_initialised_twice_is_detected() {
    let words = "linked to another frame than the one before";
    finds(torn("src/ranges/deferred.rs"), "deferred", &["init-section"], words);
}

/// The free path does not see that a pageblock has a poisoned frame.
#[test]
fn a_free_that_ignores_poison_is_detected() {
    let blind = Bug::Atomics(Fault::Blind("src/base/frame.rs", 0x40));
    finds(blind, "fresh", &["free-poisoned", "alloc-0"], "poisoned, but free or on a list");
}

#[test]
fn a_lock_that_one_cpu_ignores_is_detected() {
    finds(Bug::Impatient, "fresh", &["alloc-4", "free-4"], "was handed out, and is part of");
}

/// On the packed engine: states, words and the set of whole pageblocks that are changed in two
/// steps, and a lock of a CPU that a drain ignores.
#[test]
fn races_on_the_packed_engine_are_detected() {
    let frees = ["free-same", "free-same-direct", "free-same-batch"];
    let state = torn("src/packed/storage.rs");
    finds_under::<Packed>(state, "fresh", &frees, "the frames do not add up");
    let whole = Bug::Atomics(Fault::Forced("src/packed/set.rs"));
    let handed_out = "was handed out, and is part of";
    finds_under::<Packed>(whole, "fresh", &["alloc-9-movable", "alloc-10"], handed_out);
    let drains = ["drain-all", "free-many"];
    finds_under::<Packed>(Bug::Impatient, "cached", &drains, "in a magazine is in use elsewhere");
}

/// Operations that are themselves wrong.
#[test]
fn wrong_operations_are_detected() {
    static ONE: Mutex<Lock, ()> = Mutex::new(());
    static OTHER: Mutex<Lock, ()> = Mutex::new(());
    let op = |name, run| Op { name, setup: |_| true, run };
    let wrong: [(Op<Linux612>, &str); 5] = [
        (op("loses", |h| _ = h.y.alloc(pageyard::Order::ZERO, Gfp::KERNEL)), "free pages"),
        (
            op("owns-twice", |h| {
                if h.alloc(0, Gfp::KERNEL)
                    && let Some((pfn, order)) = h.lift(0)
                {
                    let block = Block { order, owner: h.me, movable: false };
                    (0..2).for_each(|_| h.world().own(pfn, block, 0));
                }
            }),
            "was handed out, and is part of",
        ),
        (
            op("frees-twice", |h| {
                if h.alloc(0, Gfp::KERNEL) {
                    h.with(0, "free", |p, order| h.y.free(p, order).and(h.y.free(p, order)));
                }
            }),
            "the block is already free",
        ),
        (
            op("locks", |_| {
                let _one = ONE.lock();
                drop(OTHER.lock());
            }),
            "deadlock",
        ),
        (
            op("locks-the-other-way", |_| {
                let _other = OTHER.lock();
                drop(ONE.lock());
            }),
            "deadlock",
        ),
    ];
    let names: Vec<&str> = wrong.iter().map(|(op, _)| op.name).collect();
    let (ops, words): (Vec<_>, Vec<_>) = wrong.into_iter().unzip();
    for (name, words) in names.iter().zip(words) {
        let names: &[&str] =
            if words == "deadlock" { &["locks", "locks-the-other-way"] } else { &[name] };
        let found = found(Bug::None, "fresh", names, &ops);
        assert!(found.contains(words), "{name}: {found}");
    }
}
