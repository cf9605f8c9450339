//! The core's protocols hold, and each planted bug is found. Prints the number of executions (`--
//! --nocapture`); `LOOM_MAX_PREEMPTIONS=2` explores more where there are three threads.

mod common;

use common::{finds, holds};
use pageyard_loom::yard;
use pageyard_loom_atomics::Planted::{No, NoAcquire, NoWait, NoWaitUntold};

/// Loom's message when two holders of a lock are not ordered.
const TWO_HOLDERS: &str = "Causality violation: Concurrent write accesses to `UnsafeCell`";

#[test]
fn a_cpus_lists_may_be_drained_by_another() {
    holds("drain and take", None, || yard::drain_and_take(No));
    holds("drain and give", None, || yard::drain_and_give(No));
    holds("drain by two", Some(1), || yard::drain_by_two(No));
    finds("drain and give, without acquire", TWO_HOLDERS, || yard::drain_and_give(NoAcquire));
    finds("drain and take, without the lock", TWO_HOLDERS, || yard::drain_and_take(NoWait));
    finds("drain by two, without the lock", TWO_HOLDERS, || yard::drain_by_two(NoWait));
}

#[test]
fn a_cpu_may_go_offline() {
    holds("offline and drain", None, || yard::offline_and_drain(No));
    holds("offline and take", None, || yard::offline_and_take(No));
    finds("offline and drain, without the locks", TWO_HOLDERS, || yard::offline_and_drain(NoWait));
    finds("offline and take, without the locks", TWO_HOLDERS, || yard::offline_and_take(NoWait));
}

#[test]
fn no_counter_delta_is_lost() {
    holds("fold", None, || yard::fold(No));
    holds("fold by three", Some(1), || yard::fold_by_three(No));
    let lost = "a page or a count is lost";
    finds("fold, without the lock", lost, || yard::fold(NoWaitUntold));
    finds("fold by three, without the lock", lost, || yard::fold_by_three(NoWaitUntold));
}

#[test]
fn a_counter_reader_misses_at_most_pending_deltas() {
    holds("read", None, || yard::read(No));
    holds("fold and read", Some(1), || yard::fold_and_read(No));
    let off = "the counter is off by";
    finds("fold and read, without the lock", off, || yard::fold_and_read(NoWaitUntold));
}
