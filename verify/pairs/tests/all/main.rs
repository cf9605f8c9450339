//! Explores every ordered pair of the core's operations. The first operation stops at each
//! scheduling point in turn while the second runs to completion on another CPU. Then everything is
//! freed and checked.

// The core, compiled with atomics that report each access, under its own name.
extern crate pageyard_pairs as pageyard;

#[path = "../../../../crates/pageyard/tests/all/common/mod.rs"]
mod common;

mod complete;
mod explore;
mod ops;
mod packed;
mod pairs;
mod planted;
mod schedule;
mod states;
mod world;
