//! `pageyard reproduce` for experiments that count instructions by valgrind instead of simulating.

use std::process::{Command, Output};

use crate::{err, out};

fn pageyard(args: &[&str], path: Option<&str>) -> Output {
    let mut command = Command::new(crate::PROGRAM);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.args(args).output().unwrap()
}

#[test]
fn fast_path_counts_what_each_idea_saves() {
    if !pageyard_unmet::program("valgrind", "valgrind") {
        return;
    }
    let o = pageyard(&["reproduce", "fast-path", "--small", "--json"], None);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let report: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    let tables = report[0]["tables"].as_array().unwrap();
    assert!(tables.iter().all(|t| t["world"] == "counted by callgrind on this build"));
    let ours = |table: usize, pattern: usize, row: usize| {
        tables[table]["columns"][pattern]["ours"][row].as_f64().unwrap()
    };
    // In any build, the variant without these ideas executes more instructions.
    for pattern in 0..2 {
        for quantity in 0..2 {
            let (today, none) = (ours(quantity, pattern, 0), ours(quantity, pattern, 7));
            assert!(today > 0.0 && none > today, "{pattern}: {today}, {none}");
        }
    }
}

#[test]
fn missing_valgrind_is_reported_with_a_fix() {
    let empty = std::env::temp_dir().join(format!("pageyard-no-valgrind-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let o = pageyard(&["reproduce", "fast-path"], Some(empty.to_str().unwrap()));
    std::fs::remove_dir(&empty).unwrap();
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("apt-get install valgrind"), "{}", err(&o));
    assert_eq!(out(&o), "");
}

#[test]
fn sensitivity_requires_a_simulated_experiment() {
    let o = pageyard(&["reproduce", "fast-path", "--sensitivity"], None);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("without --sensitivity"), "{}", err(&o));
}

#[test]
fn the_hot_path_command_is_hidden_and_lists_its_names() {
    assert!(!out(&pageyard(&["--help"], None)).contains("hot-path"));
    let o = pageyard(&["hot-path", "tomorrow", "pair-4k", "10", "10"], None);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("unknown variant tomorrow; expected one of today"), "{}", err(&o));
    assert_eq!(
        pageyard(&["hot-path", "today", "pair-4k", "10", "10"], None).status.code(),
        Some(0)
    );
}
