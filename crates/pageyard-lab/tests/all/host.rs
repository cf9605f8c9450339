//! Workloads on this host: each runs on threads and real memory, and frees everything (a run that
//! loses a page is an error). Durations are not checked.

use pageyard_lab::replay;
use pageyard_lab::result::{RunResult, World};
use pageyard_lab::workload::{self, Host, HostOptions, RECIPES, WorkloadError};

use crate::small::small;

/// Small forms that run on two CPUs, or on one if the workload can.
fn options(name: &str, policies: &[&str]) -> HostOptions {
    let few: &[(&str, &str)] = match name {
        "page_fault1" => &[("processes", "1,all")],
        "sctp" | "unix" | "memcached" => &[("pairs", "1")],
        "hackbench" => &[("groups", "1"), ("loops", "5")],
        "kbuild" | "deferred" => &[("objects", "1"), ("work", "100"), ("warm", "1")],
        "thp" => &[("rounds", "1")],
        _ => &[],
    };
    let few = few.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    HostOptions {
        policies: policies.iter().map(|p| replay::by_name(p).unwrap()).collect(),
        seed: 7,
        iterations: 1,
        set: small(name).into_iter().chain(few).collect(),
    }
}

fn open(mib: u64) -> Host {
    let mut told = (0, 0);
    let mut host = Host::open(Some(mib << 20)).unwrap();
    host.populate(&mut |at, all| told = (at, all)).unwrap();
    assert_eq!(told, (mib << 20, mib << 20));
    host
}

fn run(host: &mut Host, name: &str, options: &HostOptions) -> Vec<RunResult> {
    let recipe = workload::by_name(name).unwrap();
    host.run(&recipe, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn value(result: &RunResult, metric: &str) -> f64 {
    let found = result.metrics.iter().find(|m| m.name == metric);
    found.unwrap_or_else(|| panic!("{}: no metric {metric}", result.workload)).samples[0]
        .unwrap_or_else(|| panic!("{metric}: nothing was counted"))
}

#[test]
fn every_workload_runs_and_frees_everything() {
    let mut host = open(512);
    for recipe in RECIPES {
        let results = run(&mut host, recipe.name, &options(recipe.name, &["Linux612", "Packed"]));
        assert_eq!(results.len(), 2);
        for result in results {
            assert_eq!(result.world, World::Host(host.description().to_owned()));
            assert_eq!(result.parameters["host.memory"], (512u64 << 20).to_string());
            assert!(!result.metrics.is_empty());
            for metric in &result.metrics {
                assert!(
                    metric.samples[0].is_none_or(f64::is_finite),
                    "{}: {metric:?}",
                    recipe.name
                );
                let missed = metric.name == "miss" || metric.name.starts_with("miss-");
                assert!(!missed, "no caches are modelled here");
            }
        }
    }
}

#[test]
fn policies_take_turns_and_every_iteration_is_a_sample() {
    let mut host = open(64);
    let mut options = options("page_fault1", &["Base", "Linux612"]);
    options.iterations = 3;
    options.set.push(("processes".into(), "all".into()));
    let recipe = workload::by_name("page_fault1").unwrap();
    let mut told = Vec::new();
    let results = host.run(&recipe, &options, &mut |at, all| told.push((at, all))).unwrap();
    assert_eq!(told, (0..=6).map(|n| (n, 6)).collect::<Vec<_>>());
    for result in &results {
        assert!(result.metrics.iter().all(|m| m.samples.len() == 3));
        assert_eq!(result.metrics[0].name, "rate");
        assert!(value(result, "rate") > 0.0);
        assert_eq!(value(result, "failed"), 0.0);
        // Each process uses 3,000 pages and their tables: more than the lists of 64 MiB hold.
        assert!(value(result, "zone_pages") > 0.0 && value(result, "hold_alloc_avg") > 0.0);
        assert!(value(result, "hold_free_avg") > 0.0);
    }
}

#[test]
fn sent_blocks_are_freed_on_the_other_cpu() {
    let mut host = open(64);
    let recipe = workload::by_name("unix").unwrap();
    match host.run(&recipe, &options("unix", &["Linux612"]), &mut |_, _| {}) {
        Ok(results) => assert!(value(&results[0], "remote") > 50.0),
        // A host with one CPU cannot run pairs.
        Err(WorkloadError::BadParameter { .. }) => {}
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_recording_is_executed_by_its_cpus() {
    let mut host = open(256);
    let result = &run(&mut host, "trace", &options("trace", &["Linux612"]))[0];
    assert_eq!(value(result, "failed"), 0.0);
    assert!(value(result, "time") > 0.0 && value(result, "hits") > 50.0);
}

#[test]
fn invalid_memory_sizes_are_errors() {
    let told = |memory| Host::open(Some(memory)).unwrap_err().to_string();
    let text = told(1 << 50);
    assert!(text.starts_with("memory ") && text.ends_with("reduce --memory"), "{text}");
    let text = told(4096);
    assert!(text.starts_with("this host: size 4096 bytes: expected at least"), "{text}");
}

/// Memory of a few GiB takes seconds.
#[test]
fn invalid_options_are_errors_before_memory_is_populated() {
    let mut host = Host::open(Some(64 << 20)).unwrap();
    let recipe = workload::by_name("page_fault1").unwrap();
    let mut wrong = options("page_fault1", &["Base"]);
    wrong.set.push(("processes".into(), "100000".into()));
    let error = host.run(&recipe, &wrong, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.starts_with("page_fault1: processes=100000: expected a whole number from 1"));
    let simulated = options("page_fault1", &["Vanilla<Base>"]);
    let error = host.run(&recipe, &simulated, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, WorkloadError::MachineOnly { .. }), "{error}");
    let mut populated = 0;
    host.populate(&mut |at, _| populated = at).unwrap();
    assert_eq!(populated, 64 << 20, "nothing was populated so far");
    host.populate(&mut |_, _| panic!("populated twice")).unwrap();
    run(&mut host, "page_fault1", &options("page_fault1", &["Base"]));
}
