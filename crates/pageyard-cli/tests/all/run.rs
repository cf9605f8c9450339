//! `pageyard run`, `workloads` and `machines` as a user sees them.

use std::process::Output;

use crate::{err, out, pageyard};

const SMALL: [&str; 12] = [
    "run",
    "unix",
    "--on",
    "machine:desktop",
    "--memory",
    "1G",
    "--set",
    "pairs=2",
    "--set",
    "writes=500",
    "--policy",
    "Base,Step3",
];

fn small(more: &[&str]) -> Output {
    pageyard(&[&SMALL[..], more].concat())
}

#[test]
fn a_simulated_run_is_labelled() {
    let o = small(&["--seed", "5"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    assert!(
        text.starts_with(
            "unix on the simulated machine desktop, 4 CPUs, fresh heap, seed 5, one run;"
        ),
        "{text}"
    );
    assert!(text.contains("rate, writes/s") && text.contains("Step3"), "{text}");
    assert!(err(&o).is_empty(), "no progress output without a terminal: {}", err(&o));
}

#[test]
fn the_same_seed_gives_the_same_json() {
    let json = small(&["--json", "--iterations", "2"]);
    assert_eq!(json.status.code(), Some(0), "{}", err(&json));
    let results: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(results[1]["policy"], "Step3");
    assert_eq!(results[0]["world"]["simulated"], "desktop");
    assert_eq!(results[0]["metrics"][0]["samples"].as_array().unwrap().len(), 2);

    let file = std::env::temp_dir().join(format!("pageyard-run-{}.json", std::process::id()));
    let o = small(&["-o", file.to_str().unwrap(), "--iterations", "2"]);
    let written = std::fs::read(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).is_empty(), "{}", out(&o));
    assert_eq!(written, json.stdout);
}

#[test]
fn the_packed_engine_is_a_column_and_its_busiest_line_is_named() {
    let args = SMALL.map(|a| if a == "Base,Step3" { "Base,Packed" } else { a });
    let o = pageyard(&args);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    let row = text.lines().find(|l| l.starts_with("busiest_line, %")).expect("a row");
    assert_eq!(row.split_whitespace().nth(2), Some("-"), "not priced under Base: {text}");
    assert!(text.contains("waiting for shared lines under Packed"), "{text}");
    assert!(text.contains("  the busiest line: "), "{text}");
}

#[test]
fn invalid_arguments_are_named() {
    for (more, says) in [
        (&["run", "unis"][..], "unknown workload unis; expected one of micro, "),
        (
            &["run", "unix", "--on", "hosts"],
            "expected host, or machine: and a name, such as machine:2x56",
        ),
        (&["run", "micro", "--on", "host", "--memory", "900T"], "reduce --memory"),
        (
            &["run", "micro", "--on", "host", "--descriptor", "64"],
            "--descriptor: a descriptor \
             always",
        ),
        (
            &["run", "micro", "--on", "host", "--record", "--json"],
            "--record: only simulated machines are recorded",
        ),
        (
            &["run", "micro", "--set", "blocks=64", "--set", "blocks=128"],
            "--set blocks: set twice; remove one of the values",
        ),
        (
            &["run", "micro", "--memory", "9223372036854775807"],
            "memory 8.0 EiB: a simulated machine has at most 64 TiB; reduce --memory",
        ),
        (&["run", "micro", "--record"], "--record: nothing shows what is recorded; add --json"),
        (
            &["run", "micro", "--policy", "Base,Step5,base"],
            "'--policy <P,P>': policy Base: named twice",
        ),
        (&["run", "unix", "--on", "machine:3x5"], "3x5"),
        (
            &["run", "unix", "--policy", "Step2"],
            "unknown policy Step2; expected one of Linux612, \
             Base, ",
        ),
        (&["run", "unix", "--set", "pairs"], "expected NAME=VALUE, such as pairs=16"),
        (&["run", "unix", "--set", "pairs=0"], "unix: pairs=0: expected a whole number from 1 to "),
        (&["run", "unix", "--descriptor", "32"], "expected 16 or 64"),
        (&["run"], "WORKLOAD"),
    ] {
        let o = pageyard(more);
        assert_eq!(o.status.code(), Some(2), "{more:?}: {}", err(&o));
        assert!(err(&o).contains(says), "{more:?}: {}", err(&o));
        assert!(out(&o).is_empty());
    }
}

#[test]
fn a_run_on_the_host_is_labelled() {
    let args =
        ["run", "page_fault1", "--on", "host", "--memory", "64M", "--policy", "Base,Linux612"];
    let set = ["--set", "pages=2000", "--iterations", "2"];
    let o = pageyard(&[&args[..], &set].concat());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    assert!(text.starts_with("page_fault1 on this host, "), "{text}");
    assert!(text.contains("means of 2 runs; times are real"), "{text}");
    assert!(text.contains("rate, pages/s") && !text.contains("miss"), "{text}");
    let o = pageyard(&[&args[..], &set, &["--json"]].concat());
    let results: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(results[1]["policy"], "Linux612");
    assert!(results[0]["world"]["host"].is_string(), "{results}");
    assert_eq!(results[0]["parameters"]["host.memory"], "67108864");
}

#[test]
fn workloads_and_machines_are_listed() {
    let text = out(&pageyard(&["workloads"]));
    for (name, param) in [("sctp", "pairs=64"), ("kbuild", "memory=local"), ("hygiene", "")] {
        let rest = text.split(&format!("\n{name} ")).nth(1);
        assert!(rest.is_some_and(|r| r.contains(param)), "{name}: {text}");
    }
    let text = out(&pageyard(&["machines"]));
    let line = text.lines().find(|l| l.starts_with("2x56 ")).unwrap_or_default();
    assert!(line.contains(" 224 "), "{text}");
    let all = |command| -> serde_json::Value {
        serde_json::from_str(&out(&pageyard(&[command, "--json"]))).unwrap()
    };
    let of = |all: &serde_json::Value, name: &str| {
        all.as_array().unwrap().iter().find(|x| x["name"] == name).unwrap().clone()
    };
    let machine = of(&all("machines"), "2x56");
    assert_eq!((&machine["cpus"], &machine["nodes"]), (&224.into(), &2.into()));
    let sctp = of(&all("workloads"), "sctp");
    let pairs = of(&sctp["parameters"], "pairs");
    assert_eq!(pairs["default"], "64");
}

/// Every size that the program prints can be copied into an option.
#[test]
fn printed_sizes_are_accepted() {
    let machines = out(&pageyard(&["machines"]));
    let desktop = machines.lines().find(|line| line.starts_with("desktop ")).unwrap();
    let words: Vec<&str> = desktop.split_whitespace().collect();
    let sizes: Vec<String> = words[3..9].chunks(2).map(|size| size.join(" ")).collect();
    assert!(sizes[0].ends_with(" GiB") && sizes[2].ends_with(" KiB"), "{desktop}");
    for size in [&sizes[0], "1.5 GiB"] {
        let set = ["--set", "orders=0", "--set", "rounds=3", "--set", "blocks=16"];
        let on = ["--on", "machine:desktop", "--policy", "Base", "--memory", size];
        let o = pageyard(&[&["run", "micro"][..], &set, &on].concat());
        assert_eq!(o.status.code(), Some(0), "{size}: {}", err(&o));
    }
    let o = pageyard(&["run", "micro", "--memory", "1.5 GiBs"]);
    assert!(err(&o).contains("`1.5 GiBs` is not a size; expected bytes, or 512K"), "{}", err(&o));
}

/// Not every plot is there for every workload, which is known when the run is over.
#[test]
fn results_are_not_lost_with_a_plot_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (plot, results) = (file("plot.svg"), file("results.json"));
    let o = small(&["--plot", "rounds", "--svg", &plot, "-o", &results]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("rounds"), "{}", err(&o));
    assert!(std::path::Path::new(&results).exists() && !std::path::Path::new(&plot).exists());
    let o = small(&["--plot", "rounds", "--svg", &plot]);
    assert!(o.status.code() == Some(2) && out(&o).contains("rate, writes/s"), "{}", out(&o));
}

#[test]
fn a_column_keeps_its_own_setting() {
    let columns = ["--policy", "Base+high=400,Base", "--knob", "high=100"];
    let o = pageyard(&[&SMALL[..10], &columns].concat());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    let head = text.lines().nth(1).unwrap();
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["Base+high=400", "Base+high=100"]);
}
