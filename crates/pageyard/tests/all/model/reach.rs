//! Counts what random steps reach: cases that reach nothing would find nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    /// How often random steps reached each situation.
    pub(super) static REACHED: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

/// The situations that random steps must reach.
pub(super) const REACHES: [&str; 15] = [
    "a request served by another node",
    "a request refused",
    "many pages at once",
    "a chosen place",
    "a contiguous range",
    "a contiguous block",
    "an isolated range",
    "a CMA block",
    "memory that comes",
    "memory that goes",
    "a faulty frame in use",
    "a block moved",
    "a page reclaimed",
    "a setting changed",
    "a snapshot restored",
];

/// Counts a situation.
pub(super) fn reached(what: &'static str) {
    REACHED.with_borrow_mut(|r| *r.entry(what).or_default() += 1);
}
