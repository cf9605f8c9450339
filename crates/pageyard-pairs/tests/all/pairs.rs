//! The exploration.
//!
//! `cargo test -p pageyard-pairs` tries a sample of all cases, from a seed that it prints.
//! `PAGEYARD_PAIRS=all cargo test -p pageyard-pairs` tries all (an hour or two);
//! `PAGEYARD_PAIRS=20`: one in 20. `PAGEYARD_POINTS=all` stops at plain loads and stores too.
//! `PAGEYARD_SEED=7` takes another sample.
//! `PAGEYARD_CASE=offline/Linux612/online/contig@17 cargo test -p pageyard-pairs pairs` replays one
//! case; with a part of a name, without a point, it tries all cases whose names have that part.

use pageyard::policy::*;

use crate::explore::{Extent, Tally, explore, replay};
use crate::ops::ops;

/// What a variable says.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}; give a number, as 7")))
}

/// The sample that is asked for, if none then this one.
fn extent(one_in: u64, points: usize) -> Extent {
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

/// Panics where something failed.
fn close(what: &str, extent: &Extent, tally: &Tally) {
    println!("{what}, seed {}: {tally}", extent.seed);
    assert!(tally.failed.is_empty(), "{what}: {tally}");
}

fn pairs<P: Policy + Sync>() {
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

#[test]
fn pairs_as_linux612() {
    pairs::<Linux612>();
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
