//! Every model holds, and each planted bug is found. Prints the number of executions (`--
//! --nocapture`); `LOOM_MAX_PREEMPTIONS=5` explores more.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{finds, holds};
use pageyard_loom::Planted::{No, Yes};
use pageyard_loom::models;

/// Loom's message when two threads use the same data concurrently.
const TWO_OWNERS: &str = "Causality violation: Concurrent write accesses to `UnsafeCell`";

#[test]
fn emptying_a_magazine_loses_no_block() {
    holds("magazine", None, || models::magazine(No, false));
    finds("magazine", TWO_OWNERS, || models::magazine(Yes, false));
}

#[test]
fn a_magazine_can_be_emptied_repeatedly() {
    holds("magazine, twice", Some(3), || models::magazine(No, true));
    assert!(models::AGAIN.load(Relaxed) > 0);
    finds("magazine, twice", TWO_OWNERS, || models::magazine(Yes, true));
}

#[test]
fn a_fill_is_consistent_while_limits_change() {
    holds("fill", None, || models::fill(No));
    finds("fill", "a block is lost, or has two owners", || models::fill(Yes));
}

#[test]
fn limits_follow_pressure() {
    holds("press", None, || models::press(No));
    finds("press", "a limit of another state", || models::press(Yes));
}

#[test]
fn a_statistics_reader_sees_a_consistent_text() {
    holds("page", Some(3), || models::page(No));
    finds("page", "half of a text", || models::page(Yes));
}

#[test]
fn background_reclaim_is_woken() {
    holds("lie down", None, || models::lie_down(No));
    finds("lie down", "asleep without a wake-up", || models::lie_down(Yes));
}

#[test]
fn requests_read_the_counter_at_a_mark() {
    holds("near mark", Some(3), || models::near_mark(No));
    finds("near mark", "requests do not see the mark", || models::near_mark(Yes));
}

#[test]
fn background_reclaim_sees_every_request() {
    holds("asked", None, || models::asked(No));
    finds("asked", "lost wake-up of", || models::asked(Yes));
}

#[test]
fn a_busy_flag_has_one_holder() {
    holds("turn", None, || models::turn(No));
    finds("turn", TWO_OWNERS, || models::turn(Yes));
}

#[test]
fn a_signal_is_never_lost() {
    holds("ring", None, || models::signal(No));
    finds("ring", "asleep after a lost signal", || models::signal(Yes));
}
