//! `pageyard reproduce` as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn reproduce(args: &[&str]) -> Output {
    Command::new(crate::PROGRAM).arg("reproduce").args(args).output().expect("the program starts")
}

fn json(args: &[&str]) -> Value {
    let out = reproduce(args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn the_list_names_every_experiment_once() {
    let out = reproduce(&["list"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
    for name in ["bulk-free", "hygiene", "auto-tuning", "recalculate", "regression"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{text}");
    }
}

#[test]
fn the_list_writes_no_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("list.json");
    for option in ["-o", "--html", "--svg"] {
        let out = reproduce(&["list", option, file.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2), "{option}");
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains("list.json: list writes no file"), "{said}");
        assert!(!file.exists());
    }
}

/// Without valgrind the second one cannot run. The first one is written all the same.
#[test]
fn what_ran_before_an_error_is_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("out.json");
    let out = Command::new(crate::PROGRAM)
        .args(["reproduce", "recalculate", "fast-path", "--small", "-o"])
        .arg(&file)
        .env("PATH", folder.path())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("valgrind"), "{said}");
    let reports: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 1);
    assert_eq!(reports[0]["experiment"], "recalculate");
}

#[test]
fn an_unknown_experiment_is_an_error_that_names_the_known() {
    let out = reproduce(&["bulk-free,bulkfree"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty(), "nothing ran before the mistake was seen");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("unknown experiment bulkfree; expected one of bulk-free, "), "{said}");
}

/// A.5: an allocator computes the pagesets, and batches of 7 cost more than batches of 63.
#[test]
fn a_5_limits_computed_too_early() {
    let all = json(&["recalculate", "--small", "--json"]);
    let report = &all[0];
    let tables = report["tables"].as_array().unwrap();
    for (column, counts) in [(0, [256.0, 512.0, 256.0]), (1, [256.0, 0.0, 768.0])] {
        let ours = &tables[0]["columns"][column]["ours"];
        assert_eq!(ours, &serde_json::json!(counts), "batch/high 1/0, 7/42, 63/378");
    }
    assert_eq!(tables[1]["rows"], serde_json::json!(["7/42", "63/378"]));
    assert!(tables[1]["world"].as_str().unwrap().starts_with("simulated 2x20, seed 1"));
    for column in tables[1]["columns"].as_array().unwrap() {
        let ours: Vec<f64> = serde_json::from_value(column["ours"].clone()).unwrap();
        assert!(ours[1] < ours[0], "{column}");
    }
}
