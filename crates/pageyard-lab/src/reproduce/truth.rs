//! The machine itself, held against this host: the same workloads on one and two real threads, and on
//! one and two CPUs of a machine that is as this host is detected to be, at costs calibrated here.
//! How a shared host schedules virtual CPUs is no part of the model: figures of the host are medians.

use pageyard_machine::calibrate::{apply, calibrate};
use pageyard_machine::{Costs, MachineSpec};

use super::{Claim, Column, Comparison, Experiment, Kind, Outcome, ReproduceError, Run, Scale};
use crate::replay;
use crate::result::RunResult;
use crate::workload::{self, Host, HostOptions};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "truth",
    summary: "the simulated machine beside real threads: rates, and holds of the zone's lock, within 25%",
    source: "measured here",
    simulated: false,
    run,
};

/// Bytes of memory on both sides.
const MEMORY: u64 = 1 << 30;
/// Runs on the host, at least: an odd number, so that one is the median.
const RUNS: u32 = 9;
/// How near is near.
const NEAR: f64 = 1.25;

/// A workload, and the parameters that make it one and two threads.
struct Case {
    name: &'static str,
    set: &'static [(&'static str, &'static str)],
    rows: &'static [&'static str],
}

const CASES: [Case; 2] = [
    Case {
        name: "page_fault1",
        set: &[("processes", "1,2"), ("pages", "16384"), ("cycles", "4")],
        rows: &["1", "2"],
    },
    Case {
        name: "batch",
        set: &[("processes", "2"), ("batches", "63,511"), ("pages", "16384"), ("cycles", "4")],
        rows: &["63", "511"],
    },
];

const METRICS: [(&str, &str, &str, Kind); 5] = [
    ("rate", "rate", "pages/s", Kind::Plain),
    ("against the first", "rate", "", Kind::Index),
    ("hold to take", "hold_alloc_avg", "us", Kind::Plain),
    ("hold to free", "hold_free_avg", "us", Kind::Plain),
    ("zone lock", "zone_lock", "%", Kind::Plain),
];

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    (run.tell)("calibrate", 0, 1);
    let costs = apply(&calibrate(), &Costs::default());
    let mut host = Host::open(Some(MEMORY), &mut |_, _| {})?;
    let machine = MachineSpec::detect()?;
    let policies = vec![replay::by_name("Linux612")?];
    let least = if run.options.scale == Scale::Small { 3 } else { RUNS };
    let mut outcome = Outcome::default();
    for Case { name, set, rows } in CASES {
        if machine.cpus().len() < 2 {
            outcome.notes.push("This host has one CPU: there is nothing to compare.".into());
            break;
        }
        let recipe = workload::by_name(name)?;
        let set: Vec<_> = set.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let real = HostOptions {
            policies: policies.clone(),
            seed: run.options.seed,
            iterations: run.options.iterations.max(least),
            set: set.clone(),
        };
        let title = format!("{name} on this host");
        let real = host.run(&recipe, &real, &mut |at, all| (run.tell)(&title, at, all))?;
        let virtual_ = workload::Options {
            machine: machine.clone(),
            memory: Some(MEMORY),
            descriptor: 16,
            policies: policies.clone(),
            seed: run.options.seed,
            iterations: 1,
            set,
            costs: costs.clone(),
            limits: None,
        };
        let simulated =
            workload::run(&recipe, &virtual_, &mut |at, all| (run.tell)(name, at, all))?;
        let columns = columns(rows, &real[0], &simulated[0]);
        let near = |c: &Column| Claim {
            text: format!("{name}, {}: within a factor of {NEAR}", c.name),
            found: c.agreement.factor.map_or("nothing to compare".into(), |f| format!("{f:.2}")),
            holds: c.agreement.factor.map(|f| f <= NEAR),
        };
        outcome.claims.extend(columns.iter().map(near));
        outcome.tables.push(Comparison {
            title: format!("{name}: {}", recipe.summary),
            world: format!("{}; simulated, its costs calibrated here", host.description()),
            command: String::new(),
            sides: ["host", "machine"],
            rows: rows.iter().map(|r| (*r).to_owned()).collect(),
            columns,
        });
    }
    Ok(outcome)
}

fn columns(rows: &[&str], real: &RunResult, simulated: &RunResult) -> Vec<Column> {
    let of = |result: &RunResult, metric: &str| -> Vec<Option<f64>> {
        let median = |row: &&str| {
            let name = format!("{metric}-{row}");
            let mut samples = result.metrics.iter().find(|m| m.name == name)?.samples.clone();
            samples.sort_by(f64::total_cmp);
            samples.get(samples.len() / 2).copied()
        };
        rows.iter().map(median).collect()
    };
    let column = |&(name, metric, unit, kind): &(&str, &str, &'static str, Kind)| {
        Column::new(name, unit, kind, &of(real, metric), &of(simulated, metric))
    };
    METRICS.iter().map(column).collect()
}
