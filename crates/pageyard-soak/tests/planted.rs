//! A former defect of the thread cache: a page with two owners, or lost.
//!
//! A program of its own: the switch for the defect is process-wide.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use pageyard_host::planted::FILL_READS_LIMIT_AGAIN;
use pageyard_soak::{Found, Plan, soak};

#[test]
fn a_fill_that_rereads_its_limit_is_detected() {
    FILL_READS_LIMIT_AGAIN.store(true, Relaxed);
    // A phase in which thread caches are refilled and drained under pressure continuously. It finds
    // the defect within about ten CPU seconds.
    let plan = Plan { seed: 890, only: Some(1), phases: 500, ..Plan::new(u64::MAX) };
    let report = soak(&plan, &mut |_| ControlFlow::Continue(())).unwrap();
    let found = report.found.expect("it is found").found;
    assert!(matches!(found, Found::HandedOut { .. } | Found::NotEmpty { .. }), "{found}");
}

/// The features of pageyard-host in a build of the whole workspace, by these edges of `cargo tree`.
fn features(edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--workspace", "--locked", "--offline", "--prefix", "none"]);
    let out = tree.args(["--format", "{p} {f}", "--edges", edges]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let host = text.lines().filter_map(|l| l.strip_prefix("pageyard-host v"));
    let of = |l: &str| l.trim_end_matches(" (*)").rsplit(' ').next().unwrap_or("").to_owned();
    let all: Vec<String> = host.map(of).collect();
    assert!(!all.is_empty(), "{text}");
    all.iter().flat_map(|l| l.split(',')).map(str::to_owned).collect()
}

#[test]
fn only_tests_are_compiled_with_the_defect() {
    assert!(features("normal,build,dev").contains("planted"));
    assert!(!features("normal,build").contains("planted"));
}
