//! Whole requests under many schedules: another thread may run at every lock operation, every event
//! and every access to an atomic of the core.

// The core with shuttle's atomics, under its own name.
extern crate pageyard_shuttle as pageyard;

#[path = "../../../../crates/pageyard/tests/all/common/mod.rs"]
mod common;

mod packed;
mod requests;
mod schedules;
mod stage;
