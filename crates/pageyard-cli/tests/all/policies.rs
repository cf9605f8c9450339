//! `pageyard policies`, and policies and settings on the command line.

use std::fs;

use crate::{err, out, pageyard, sample};

/// The table of docs/policies.md has exactly the policies that the program lists.
#[test]
fn the_policies_chapter_lists_every_policy() {
    let chapter = include_str!("../../../../docs/policies.md");
    let section = chapter.split("\n## All policies\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|l| l.strip_prefix("| `")?.split(" |").next());
    let mut in_chapter: Vec<String> = cells
        .flat_map(|cell| cell.split('`').filter(|name| name.starts_with(char::is_alphanumeric)))
        .map(|name| name.split('<').next().unwrap().to_owned())
        .collect();
    let o = pageyard(&["policies", "--json"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let all: Vec<serde_json::Value> = serde_json::from_slice(&o.stdout).unwrap();
    let mut listed: Vec<_> = all.iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect();
    in_chapter.sort();
    listed.sort();
    assert_eq!(in_chapter, listed);
    assert!(all.iter().all(|p| !p["about"].as_str().unwrap().contains(['[', '`'])));

    let o = pageyard(&["policies"]);
    let text = out(&o);
    assert!(listed.iter().all(|name| text.contains(&format!("\n{name}\n")) || name == "Linux612"));
    assert!(text.starts_with("Linux612\n    Linux 6.12 as it stands"), "{text}");
}

#[test]
fn compositions_with_settings_are_columns() {
    let kbuild = sample("kbuild.pgy");
    let kbuild = kbuild.to_str().unwrap();
    let policies = "guarded<3,Vanilla<base>>,Linux612+high=400";
    let o = pageyard(&["replay", kbuild, "--seeds", "1", "--policy", policies, "--json"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let report: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    let names = [0, 1].map(|i| report["policies"][i]["policy"].as_str().unwrap().to_owned());
    assert_eq!(names, ["Guarded<3, Vanilla<Base>>", "Linux612+high=400"]);

    let args = ["run", "page_fault1", "--on", "machine:desktop", "--policy", "Linux612"];
    let o = pageyard(&[&args[..], &["--memory", "1G", "--knob", "high=100", "--json"]].concat());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let results: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert_eq!(results[0]["policy"], "Linux612+high=100");
    let metrics = results[0]["metrics"].as_array().unwrap();
    let peak = metrics.iter().find(|m| m["name"] == "peak_pcp").unwrap();
    let o = pageyard(&[&args[..], &["--memory", "1G", "--json"]].concat());
    let results: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    let metrics = results[0]["metrics"].as_array().unwrap();
    let without = metrics.iter().find(|m| m["name"] == "peak_pcp").unwrap();
    let first = |m: &serde_json::Value| m["samples"][0].as_f64().unwrap();
    assert!(first(peak) < first(without), "{peak} {without}");
}

#[test]
fn invalid_policies_and_settings_are_errors() {
    let kbuild = sample("kbuild.pgy");
    let kbuild = kbuild.to_str().unwrap();
    for (option, value, says) in [
        ("--policy", "Linux7", "unknown policy Linux7; expected one of Linux612, Base"),
        ("--policy", "Vanilla<Base", "lacks the closing >"),
        ("--policy", "Linux612+high=-3", "expected a number of pages from 0 to"),
        ("--knob", "high", "expected NAME=VALUE"),
        ("--knob", "lists=3", "unknown knob"),
        ("--knob", "init_on_free=Y", "init_on_free"),
        ("--knob", "high_min=9000000", "is above high_max"),
    ] {
        let o = pageyard(&["replay", kbuild, "--seeds", "1", option, value]);
        assert_eq!(o.status.code(), Some(2), "{value}");
        assert!(err(&o).contains(says) && out(&o).is_empty(), "{value}: {}", err(&o));
    }
    let o = pageyard(&["run", "unix", "--on", "host", "--policy", "Vanilla<Base>"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("use --on machine:NAME, or one of Base, Step1"), "{}", err(&o));
}

#[test]
fn settings_that_change_nothing_are_named() {
    let small = ["--memory", "64M", "--set", "orders=1", "--set", "rounds=3", "--set", "blocks=64"];
    let micro = ["run", "micro", "--on", "machine:desktop", "--policy"];
    let run = |policy| pageyard(&[&micro[..], &[policy], &small].concat());
    let o = run("Linux612+high=400,Packed+high=400");
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let said =
        "pageyard: Packed+high=400: high changes nothing: the packed engine has no per-CPU lists\n";
    assert_eq!(err(&o), said);
    assert_eq!(err(&run("Packed+min_free_kbytes=2048")), "");
    // Once, whatever the number of cells.
    let folder = tempfile::tempdir().unwrap();
    let sweep = folder.path().join("lists.toml");
    let text = "policies = [\"Linux612\", \"Packed\"]\nseeds = [1, 2]\nknobs = { high = [400] }\n\
        [[workload]]\nname = \"micro\"\nmemory = \"64M\"\nmachines = [\"desktop\"]\n\
        set = { orders = 1, rounds = 3, blocks = 64 }\n";
    fs::write(&sweep, text).unwrap();
    let o = pageyard(&["sweep", sweep.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert_eq!(err(&o), said);
}
