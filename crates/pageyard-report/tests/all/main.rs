//! Tests of the reports, on allocators of the core's tests.

#[path = "../../../pageyard/tests/all/common/mod.rs"]
mod common;

mod hostile;
mod owner;
mod text;
mod verdicts;
