//! What both files of tests do with a model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pageyard_loom::models;

/// It holds in all executions with at most so many preemptions.
pub fn holds(name: &str, preemptions: Option<usize>, body: fn()) {
    let n = models::all(preemptions, body);
    println!("{name}: {n} executions");
    assert!(n > 1);
}

/// What loom says of a bug.
pub fn finds(name: &str, body: fn()) {
    let found = catch_unwind(AssertUnwindSafe(|| models::all(Some(3), body)));
    let panic = found.expect_err("the bug is found");
    let why = panic.downcast_ref::<String>().map_or("", |s| s.lines().next().unwrap_or(""));
    println!("{name}, planted: {why}");
}
