//! Tests of the lab from outside, in one program. Tests that set process limits are a separate
//! program (`tests/limits.rs`).

mod conform;
mod corpus;
mod host;
mod hygiene;
mod kbuild;
mod owner;
mod page_owner;
mod perfetto;
mod record;
mod record_compaction;
mod recorded;
mod replay;
mod replay_compaction;
mod replay_pressure;
mod replay_trace;
mod reproduce;
mod show;
mod small;
mod tables;
mod topology;
mod why;
mod workload;

use std::ops::Range;
use std::path::{Path, PathBuf};

use pageyard::{Hooked, Hooks, Knobs, Layout, NodeId, Pfn, Yard, ZoneKind, ZoneSpec};
use pageyard_lab::{Lock, Memory};

/// The folder of the whole repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Calls `f` with a yard of one NORMAL zone, all of it usable, and one CPU.
fn with_yard<H: Hooks, T>(
    frames: Range<u64>,
    hooks: H,
    f: impl FnOnce(&Yard<'_, Hooked<Lock, H>>) -> T,
) -> T {
    let span = Pfn(frames.start)..Pfn(frames.end);
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &[NodeId(0)],
        distances: &[],
        knobs: Knobs::default(),
    };
    let memory = Memory::for_layout(&layout).unwrap();
    let mut rooms = memory.rooms();
    f(&Yard::new(&layout, memory.storage(&mut rooms), hooks).unwrap())
}

/// A file or folder in `samples`.
fn sample(name: &str) -> PathBuf {
    repository().join("samples").join(name)
}
