//! Checks of a model, shared by the test files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pageyard_loom::models;

/// Asserts that the model holds in all executions with at most this many preemptions.
pub fn holds(name: &str, preemptions: Option<usize>, body: fn()) {
    let n = models::all(preemptions, body);
    println!("{name}: {n} executions");
    assert!(n > 1);
}

/// Asserts that a planted bug is found: the model panics with this text.
pub fn finds(name: &str, says: &str, body: fn()) {
    let found = catch_unwind(AssertUnwindSafe(|| models::all(Some(3), body)));
    let panic = found.expect_err("the bug is found");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let why = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
    println!("{name}, planted: {}", why.lines().next().unwrap_or(""));
    assert!(why.contains(says), "{name}: another panic than {says:?}: {why}");
}
