//! The example `guest_memory`: guests on a yard's memory with a device in a second process, every
//! page compared in both; and planted mistakes, which the comparison must find.

use std::process::{Command, Output};

use crate::example::example;

fn check(more: &[&str]) -> (Output, String) {
    let mut command = Command::new(example("guest_memory", "guest_memory"));
    command.args(["check", "--mib", "8", "--requests", "500", "--guests", "3"]).args(more);
    let output = command.output().unwrap();
    let text = format!("{output:?}");
    (output, text)
}

/// Asserts that a planted mistake is found and named.
fn fails(plant: &str, says: &str) {
    let (output, text) = check(&["--plant", plant]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{text}");
}

#[test]
fn guests_share_memory_only_with_their_device() {
    let (output, text) = check(&[]);
    assert!(output.status.success(), "{text}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("given back while a guest works") && said.contains("5 guests"), "{text}");
}

#[test]
fn another_guests_write_is_detected() {
    fails("dirty", "is not zero at its start");
}

#[test]
fn a_hole_in_used_memory_is_detected() {
    fails("punch", "does not hold what was written");
}

#[test]
fn a_wrong_device_mapping_is_detected() {
    fails("offset", "guest 2: page");
}

#[test]
fn both_configurations_measure_the_same() {
    let mut command = Command::new(example("guest_memory", "guest_memory"));
    command.args(["measure", "--mib", "8", "--requests", "200", "--rounds", "1", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let guests = all["guests"].as_array().unwrap();
    for kind in ["yard", "yard-4k", "memfd-huge", "memfd"] {
        assert_eq!(guests.iter().filter(|g| g["kind"] == kind).count(), 3, "{kind}");
    }
}
