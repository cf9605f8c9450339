//! The example `direct_io`: registered buffers of io_uring and `O_DIRECT` on a pinned yard. On an
//! unpinned yard it must find wrong bytes.

use std::process::{Command, Output};

use crate::example::example;

fn run(options: &[&str]) -> Output {
    // On a disk: files in memory have no `O_DIRECT` on older systems.
    let folder = env!("CARGO_TARGET_TMPDIR");
    Command::new(example("direct_io", "direct_io.rs")).args(options).arg(folder).output().unwrap()
}

/// Whether this machine has io_uring and `O_DIRECT`; containers often refuse the former.
fn is_possible() -> bool {
    let ring = io_uring::IoUring::new(8);
    let refused = ring.err().map_or(String::new(), |e| format!(" (refused here: {e})"));
    pageyard_unmet::met(&format!("io_uring{refused}"), refused.is_empty())
}

#[test]
fn registered_buffers_of_a_pinned_yard_hold_what_was_written() {
    if !is_possible() {
        return;
    }
    let output = run(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("0 of 3072 frames"), "{output:?}");
}

#[test]
fn registered_buffers_of_an_unpinned_yard_go_stale() {
    if !is_possible() {
        return;
    }
    let output = run(&["--unpinned"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("build the yard with pinned"), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.starts_with("0 of"), "{output:?}");
}
