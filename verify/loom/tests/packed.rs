//! The packed engine's protocols hold, and each planted bug is found. These bounds finish within
//! seconds; with `PAGEYARD_SCHEDULES` set, as `scripts/interleavings.sh` does, within minutes.

mod common;

use common::{finds, holds};
use pageyard_loom::packed::{self as m, Bug};

const LOST: &str = "is in no index";
const TWICE: &str = "two owners";

/// The bound on preemptions of a model that takes seconds with `most` of them: `most` for
/// `scripts/interleavings.sh`, one less in CI.
fn large(most: usize) -> Option<usize> {
    let all = std::env::var_os("PAGEYARD_SCHEDULES").is_some();
    Some(if all { most } else { most - 1 })
}

#[test]
fn frees_index_their_pageblock() {
    holds("free and adopt", Some(3), || m::free_and_adopt(Bug::No));
    holds("free and take", Some(3), || m::free_and_take(Bug::No));
    holds("empty and free", Some(3), || m::empty_and_free(Bug::No));
    holds("move in index", large(2), || m::move_in_index(Bug::No));
    finds("a release without a count", LOST, || m::free_and_adopt(Bug::NoReleaseCount));
    finds("a free without a check", LOST, || m::empty_and_free(Bug::NoPutCheck));
    finds("empty without a recount", LOST, || m::empty_and_free(Bug::NoRecount));
    finds("no second look", LOST, || m::move_in_index(Bug::NoSecondLook));
}

#[test]
fn takers_return_what_they_cannot_use() {
    holds("overlap", Some(3), || m::overlap(Bug::No));
    holds("overlap and free", large(3), || m::overlap_and_free(Bug::No));
    finds("frames returned without the index", LOST, || m::overlap(Bug::BareReturn));
}

#[test]
fn pageblocks_become_whole_once() {
    holds("last two words", large(3), || m::last_two_words(Bug::No));
    holds("seal, claim and late look", large(2), || m::seal_claim_and_late_look(Bug::No));
}

#[test]
#[ignore = "takes minutes: scripts/interleavings.sh runs it"]
fn a_thief_of_frames_stops_a_pageblock_from_becoming_whole() {
    holds("seal and thief", Some(1), || m::seal_and_thief(Bug::No));
    finds("no rollback", "", || m::seal_and_thief(Bug::NoRollback));
}

#[test]
fn whole_pageblocks_have_one_owner() {
    holds("claim and free", Some(3), || m::claim_and_free(Bug::No));
    holds("pair and half", Some(3), || m::pair_and_half(Bug::No));
    finds("half a pair", TWICE, || m::pair_and_half(Bug::HalfPair));
}

#[test]
fn isolation_loses_nothing() {
    holds("isolate and free", Some(3), || m::isolate_and_free(Bug::No));
    holds("isolate and seal", large(3), || m::isolate_and_seal(Bug::No));
    holds("isolate and claim", Some(3), || m::isolate_and_claim(Bug::No));
    holds("isolate and end", Some(3), || m::isolate_and_end(Bug::No));
    holds("isolate whole and end", Some(3), || m::isolate_whole_and_end(Bug::No));
    holds("isolate and move", Some(3), || m::isolate_and_move(Bug::No));
    holds("isolate and take", Some(3), || m::isolate_and_take(Bug::No));
}

#[test]
fn broken_isolation_is_found() {
    finds("no second look", LOST, || m::isolate_and_end(Bug::NoSecondLook));
    finds("a route set late", "a frame of an isolated", || m::isolate_and_move(Bug::LateRoute));
    finds("no recheck", "taken after the isolation", || m::isolate_and_take(Bug::NoRecheck));
    finds("isolation of what another has", "", || m::isolate_and_claim(Bug::NoOwnership));
}

#[test]
fn searches_hide_no_free_block() {
    holds("search and free", Some(3), || m::search_and_free(Bug::No));
    let hidden = "a free block that requests do not find";
    finds("no taking back", hidden, || m::search_and_free(Bug::NoTakingBack));
}

#[test]
fn magazines_and_states_have_one_owner() {
    holds("stack", None, || m::stack(Bug::No));
    finds("no tag", TWICE, || m::stack(Bug::NoTag));
    holds("free twice", Some(3), || m::free_twice(Bug::No));
    finds("a free in two steps", "two frees succeeded", || m::free_twice(Bug::NoExchange));
}
