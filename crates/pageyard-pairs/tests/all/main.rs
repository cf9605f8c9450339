//! Every ordered pair of the core's operations: the first is stopped at each scheduling point in turn
//! while the second runs to its end on another CPU; then everything is given back and looked at.

// The core with atomics that report each access, under its own name.
extern crate pageyard_pairs as pageyard;

#[path = "../../../pageyard/tests/all/common/mod.rs"]
mod common;

mod complete;
mod explore;
mod ops;
mod pairs;
mod planted;
mod schedule;
mod states;
mod world;
