//! What random steps come to: cases that never get anywhere would find nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    /// How often something came about: whether random steps get that far at all.
    pub(super) static REACHED: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

/// What random steps must come to.
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

/// It came about.
pub(super) fn reached(what: &'static str) {
    REACHED.with_borrow_mut(|r| *r.entry(what).or_default() += 1);
}
