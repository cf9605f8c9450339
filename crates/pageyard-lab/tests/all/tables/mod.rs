//! Tables of results: the published ones character by character, our own, and the inputs they
//! refuse.

mod aligned;
mod ours;
mod published;

use std::collections::BTreeMap;

use pageyard_lab::result::{Better, Metric, RunResult, World};
use pageyard_lab::table::{Form, Options, Report, Set, Source, align};

fn metric(name: &str, better: Better, samples: &[f64]) -> Metric {
    let samples = samples.iter().copied().map(Some).collect();
    Metric { name: name.into(), unit: String::new(), better, samples }
}

fn lower(name: &str, samples: &[f64]) -> Metric {
    metric(name, Better::Lower, samples)
}

fn result(policy: &str, metrics: Vec<Metric>) -> RunResult {
    RunResult {
        workload: "test".into(),
        parameters: BTreeMap::new(),
        policy: policy.into(),
        world: World::Host("this host".into()),
        seed: 1,
        version: "0.1.0".into(),
        metrics,
        lines: None,
        tracks: Vec::new(),
    }
}

/// One file per column, with one policy each: columns are named after files.
fn kernels(columns: &[(&str, Vec<Metric>)]) -> Set {
    let source = |(name, metrics): &(&str, Vec<Metric>)| Source {
        name: format!("results/{name}.json"),
        results: vec![result("kernel", metrics.clone())],
    };
    one(&columns.iter().map(source).collect::<Vec<_>>())
}

/// One file with one policy per column.
fn policies(columns: &[(&str, Vec<Metric>)]) -> Set {
    let results = columns.iter().map(|(name, metrics)| result(name, metrics.clone()));
    one(&[Source { name: "a.json".into(), results: results.collect() }])
}

fn one(sources: &[Source]) -> Set {
    let mut sets = align(sources).unwrap();
    assert_eq!(sets.len(), 1);
    sets.remove(0)
}

fn report(set: &Set, form: Form) -> Report {
    Report::new(std::slice::from_ref(set), &Options { form, ..Options::default() })
}

/// The table without its heading.
fn table(set: &Set, form: Form) -> String {
    report(set, form).tables[0].table.to_string()
}

fn simulated(policy: &str, seed: u64, samples: &[f64]) -> RunResult {
    let world = World::Simulated("two-nodes".into());
    RunResult { world, seed, ..result(policy, vec![lower("locks", samples)]) }
}

fn source(name: &str, results: Vec<RunResult>) -> Source {
    Source { name: name.into(), results }
}

/// Samples: each value, repeated the given number of times.
fn times(parts: &[(f64, usize)]) -> Vec<Metric> {
    let all: Vec<f64> = parts.iter().flat_map(|&(x, n)| std::iter::repeat_n(x, n)).collect();
    vec![lower("elapsed", &all)]
}

/// Samples that reproduce the figures of seed 1 on two sockets (A.1). They are not the author's.
fn cascadelake() -> Set {
    kernels(&[
        ("5.17.0-rc3-vanilla", times(&[(510., 4), (540., 5), (550., 1)])),
        ("5.17.0-rc3-mm-reverthighpcp-v1", times(&[(500., 2), (520., 4), (530., 3), (540., 1)])),
        ("5.17.0-rc3-mm-highpcpopt-v1", times(&[(500., 5), (510., 1), (520., 3), (530., 1)])),
    ])
}
