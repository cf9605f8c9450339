//! The lab, tested from outside, in one program. What sets limits of a process is a program of its own (`tests/limits.rs`).

mod conform;
mod corpus;
mod host;
mod hygiene;
mod owner;
mod page_owner;
mod record;
mod record_compaction;
mod replay;
mod show;
mod small;
mod tables;
mod topology;
mod workload;

use std::path::{Path, PathBuf};

/// The folder of the whole repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file or folder in `samples`.
fn sample(name: &str) -> PathBuf {
    repository().join("samples").join(name)
}
