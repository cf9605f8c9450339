//! Entry points and settings of the exploration.
//!
//! - `cargo test -p pageyard-pairs` explores a sample of all cases, from a seed that it prints.
//! - `PAGEYARD_PAIRS=all cargo test -p pageyard-pairs pairs_` explores all pairs (an hour or two),
//!   and with `triples_` all triples of each group (hours). `PAGEYARD_PAIRS=20` explores one in 20.
//! - `PAGEYARD_POINTS=all` also stops at plain loads and stores.
//! - `PAGEYARD_SEED=7` selects another sample.
//! - `PAGEYARD_CASE=offline/Linux612/online/contig@17 cargo test -p pageyard-pairs pairs` replays
//!   one case. With a part of a name and no point, it explores all cases whose names contain that
//!   part.

use pageyard::policy::*;

use crate::explore::{Extent, Tally, explore, replay};
use crate::ops::ops;
use crate::states::states;

/// Returns the value of an environment variable.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}; give a number, as 7")))
}

/// Returns the extent that the environment requests, or this one by default.
pub(crate) fn extent(one_in: u64, points: usize) -> Extent {
    let all = std::env::var("PAGEYARD_PAIRS").is_ok_and(|v| v == "all");
    let asked = if all { Some(1) } else { number("PAGEYARD_PAIRS") };
    Extent {
        seed: number("PAGEYARD_SEED").unwrap_or(1),
        one_in: asked.unwrap_or(one_in),
        points: if asked.is_some() { usize::MAX } else { points },
        plain: std::env::var("PAGEYARD_POINTS").is_ok_and(|v| v == "all"),
        ..Extent::all()
    }
}

/// Prints the results and panics if something failed.
pub(crate) fn close(what: &str, extent: &Extent, tally: &Tally) {
    println!("{what}, seed {}: {tally}", extent.seed);
    assert!(tally.failed.is_empty(), "{what}: {tally}");
}

fn pairs<P: StaticPolicy + Sync>() {
    let (mut extent, mut tally) = (extent(200, 4), Tally::default());
    match std::env::var("PAGEYARD_CASE") {
        Ok(name) if name.contains('@') => {
            if let Some(Err(why)) = replay::<P>(&name) {
                panic!("{name}: {why}");
            }
            return;
        }
        Ok(part) => extent = Extent { part, plain: extent.plain, ..Extent::all() },
        Err(_) => {}
    }
    explore(&ops::<P>(), 2, |_, _| true, &extent, &mut tally);
    close(P::NAME, &extent, &tally);
}

/// Explores all points of all pairs of these operations in one state, whatever sample is requested.
fn every_pair<P: StaticPolicy + Sync>(state: &str, names: &[&str]) {
    let (extent, mut tally) = (Extent::all(), Tally::default());
    let wanted = |s: &str, op: &str| s == state && names.contains(&op);
    explore(&ops::<P>(), 2, wanted, &extent, &mut tally);
    let what = format!("{} in {state}", names.join(", "));
    let tried = (names.len() as u64).pow(2) - tally.meaningless;
    assert!(tried > 0 && tally.interleavings > 0, "{what}: {tally}");
    close(&what, &extent, &tally);
}

/// Pairs that gave one page to two owners, or corrupted a counter, in earlier versions of the core.
#[test]
fn previously_failing_pairs() {
    let pairs: [(&str, &[&str]); 7] = [
        ("offline", &["online"]),
        ("offline", &["online", "isolate"]),
        ("online", &["offline", "contig"]),
        ("online", &["offline", "alloc-3-atomic"]),
        ("deferred", &["init-section", "poison"]),
        ("fragmented", &["compact-all", "poison"]),
        ("cma", &["make-cma", "contig"]),
    ];
    for (state, names) in pairs {
        every_pair::<Linux612>(state, names);
    }
}

/// Marks of faulty frames, which frees and reports on the packed engine read without the zone lock.
/// Bugs found here: a free that did not check a mark both before and after it freed the frame; a
/// report that returned a frame which was marked meanwhile; a route that lost its taint for a
/// moment.
#[test]
fn marks_on_the_packed_engine() {
    let names = [
        "free-poisoned",
        "unpoison-used",
        "free-same-direct",
        "free-0",
        "poison-same",
        "poison",
        "report-blocks",
        "report-poisoned",
        "free-poisoned-alloc",
    ];
    every_pair::<Packed>("fresh", &names);
}

/// Pageblocks that are set apart, for CMA and as highatomic reserve, beside calls that isolate, relabel
/// and take them.
#[test]
fn pageblocks_set_apart_on_the_packed_engine() {
    let names = [
        "make-cma",
        "cma-alloc",
        "cma-free",
        "isolate",
        "unisolate",
        "contig-block",
        "alloc-0-movable",
        "free-same-direct",
        "alloc-3-atomic",
        "unreserve",
    ];
    every_pair::<Packed>("cma", &names);
    every_pair::<Packed>("highatomic", &names);
}

/// Groups of operations that share state. Where the third operation runs, the second has read what
/// the first is about to change, or the other way round. Each group has its states and operations.
const SHARED: [(&str, &[&str], &[&str]); 6] = [
    (
        "ranges",
        &["offline", "online"],
        &["online", "offline", "contig", "free-contig", "isolate", "poison", "unpoison", "alloc-0"],
    ),
    (
        "reserved memory",
        &["reserved"],
        &["release", "isolate", "contig", "poison", "alloc-0", "alloc-10", "drain-all"],
    ),
    (
        "labels",
        &["cma", "fresh"],
        &["make-cma", "cma-alloc", "cma-free", "contig", "isolate", "unisolate", "unreserve"],
    ),
    (
        "lists of a CPU",
        &["fresh"],
        &[
            "alloc-0",
            "free-0",
            "drain-all",
            "disable-pcp",
            "cpu-dead",
            "cpu-up",
            "cache-slice",
            "min-free",
        ],
    ),
    (
        "a frame",
        &["fresh"],
        &[
            "free-same",
            "free-same-direct",
            "free-poisoned",
            "poison-used",
            "alloc-0",
            "drain-all",
            "split",
        ],
    ),
    (
        "sections that are initialised",
        &["deferred"],
        &["init-section", "finish-deferred", "poison", "alloc-10", "unpoison"],
    ),
];

fn triples<P: StaticPolicy + Sync>() {
    // The packed engine initialises all memory at the start.
    let deferred = P::RULES.engine == Engine::Exact;
    let groups = SHARED.into_iter().filter(|(_, states, _)| deferred || states != &["deferred"]);
    for (what, states, names) in groups {
        let (extent, mut tally) = (extent(20, 3), Tally::default());
        let wanted = |state: &str, op: &str| states.contains(&state) && names.contains(&op);
        explore(&ops::<P>(), 3, wanted, &extent, &mut tally);
        assert!(tally.interleavings > 0, "{what}: no triple is in the sample");
        close(what, &extent, &tally);
    }
}

#[test]
fn triples_as_linux612() {
    triples::<Linux612>();
}

#[test]
fn triples_with_guards_and_checks() {
    triples::<Guarded<3, PageChecked>>();
}

/// Checks that `SHARED` names existing operations and states.
#[test]
fn triples_name_operations() {
    let known = ops::<Linux612>();
    let states = states::<Linux612>();
    for (what, of, names) in SHARED {
        let no_op = names.iter().find(|n| known.iter().all(|op| op.name != **n));
        assert_eq!(no_op, None, "{what}");
        let no_state = of.iter().find(|n| states.iter().all(|s| s.name != **n));
        assert_eq!(no_state, None, "{what}");
    }
}

#[test]
fn pairs_as_linux612() {
    pairs::<Linux612>();
}

#[test]
fn pairs_on_the_packed_engine() {
    pairs::<Packed>();
}

#[test]
fn triples_on_the_packed_engine() {
    triples::<Packed>();
}

#[test]
fn pairs_as_an_older_kernel() {
    pairs::<Linux61>();
}

#[test]
fn pairs_with_two_passes_and_single_pages() {
    pairs::<TwoPassBulkFree<NoHighOrder<Vanilla<Base>>>>();
}

#[test]
fn pairs_with_guards_and_checks() {
    pairs::<Guarded<3, PageChecked>>();
}

#[test]
fn pairs_with_filled_memory() {
    pairs::<Poisoned>();
}
