//! Validates the machine model against this host. The same workloads run on one and two real
//! threads, and on one and two CPUs of a simulated copy of this host, with costs calibrated here.
//! The model does not include how a shared host schedules virtual CPUs, so the host's figures are
//! medians.

use pageyard_machine::calibrate::{apply, calibrate};
use pageyard_machine::{Costs, MachineSpec, Stop};

use super::agree::{Column, Kind};
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Claim, Comparison, Outcome};
use crate::replay;
use crate::result::RunResult;
use crate::stats;
use crate::workload::{self, Host, HostOptions};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "truth",
    summary: "the simulated machine against real threads: rates and holds of the zone lock within \
              25%",
    source: "measured here",
    simulated: false,
    anchors: &[],
    run,
};

/// Bytes of memory on both sides.
const MEMORY: u64 = 1 << 30;
/// Minimum number of runs on the host: odd, so that one of them is the median.
const RUNS: u32 = 9;
/// Largest factor at which two figures still agree.
const NEAR: f64 = 1.25;
/// Shares that differ by up to this many percentage points agree, whatever their ratio.
const NEAR_POINTS: f64 = 0.1;

/// A workload at several points, each a separate run.
struct Case {
    name: &'static str,
    set: &'static [(&'static str, &'static str)],
    /// The parameter that differs between points, and its values.
    points: (&'static str, &'static [&'static str]),
}

const CASES: [Case; 4] = [
    Case {
        name: "page_fault1",
        set: &[("pages", "32768"), ("cycles", "4")],
        points: ("processes", &["1", "2"]),
    },
    Case {
        name: "batch",
        set: &[("processes", "2"), ("pages", "32768"), ("cycles", "4")],
        points: ("batches", &["63", "127", "255", "511", "1023", "2047"]),
    },
    Case {
        name: "llfree-bulk",
        set: &[("pages", "131072"), ("rounds", "8")],
        points: ("threads", &["1", "2"]),
    },
    Case {
        name: "llfree-rand",
        set: &[("pages", "65536"), ("rounds", "16")],
        points: ("threads", &["1", "2"]),
    },
];

const METRICS: [(&str, &str, &str, Kind); 5] = [
    ("rate", "rate", "pages/s", Kind::Plain),
    ("relative to the first", "rate", "", Kind::Index),
    ("hold for allocation", "hold_alloc_avg", "us", Kind::Plain),
    ("hold for free", "hold_free_avg", "us", Kind::Plain),
    ("zone lock", "zone_lock", "%", Kind::Plain),
];

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    run.progress("calibrate", 0, 1);
    let machine = MachineSpec::detect()?;
    let found = calibrate(&machine);
    let costs = apply(&found.rows, &Costs::default());
    let machine = machine.with_last_level_in_effect(found.last_level);
    let mut host = Host::open(Some(MEMORY))?;
    let policies = vec![replay::by_name("Linux612")?];
    let least = if run.options.scale == Scale::Small { 3 } else { RUNS };
    let mut outcome = Outcome::default();
    for case in CASES {
        if machine.cpus().len() < 2 {
            outcome.notes.push("This host has one CPU, so nothing can be compared.".into());
            break;
        }
        let recipe = workload::by_name(case.name)?;
        let (key, values) = case.points;
        let (mut real, mut simulated) = (Vec::new(), Vec::new());
        for value in values {
            let set = case.set.iter().copied().chain([(key, *value)]);
            let set: Vec<_> = set.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            let title = format!("{} of {value}", case.name);
            let options = HostOptions {
                policies: policies.clone(),
                seed: run.options.seed,
                iterations: run.options.iterations.max(least),
                set: set.clone(),
            };
            real.extend(host.run(&recipe, &options, &mut |at, all| run.progress(&title, at, all))?);
            let options = workload::Options {
                machine: machine.clone(),
                memory: Some(MEMORY),
                descriptor: 16,
                age: 0,
                policies: policies.clone(),
                seed: run.options.seed,
                iterations: 1,
                set,
                costs: costs.clone(),
                limits: None,
                jobs: 1,
                stop: Stop::default(),
            };
            let progress = &mut |at, all| run.progress(&title, at, all);
            simulated.extend(workload::run(&recipe, &options, progress)?);
        }
        let columns = columns(&real, &simulated);
        outcome.claims.extend(columns.iter().map(|column| near(case.name, column)));
        if case.name == "batch" {
            outcome.claims.extend(shape(&real));
        }
        outcome.tables.push(Comparison {
            title: format!("{} by {key}: {}", case.name, recipe.summary),
            world: format!("{}; simulated with costs calibrated on this host", host.description()),
            command: String::new(),
            sides: ["host", "machine"],
            rows: values.iter().map(|r| (*r).to_owned()).collect(),
            columns,
        });
        run.show(&outcome.tables)?;
    }
    Ok(outcome)
}

/// Claims that both figures of each row agree.
fn near(workload: &str, column: &Column) -> Claim {
    let rows =
        column.seed.iter().zip(&column.ours).filter_map(|(host, machine)| host.zip(*machine));
    let factor = |(host, machine): (f64, f64)| {
        let same = column.unit == "%" && (host - machine).abs() <= NEAR_POINTS;
        if same || host == machine { 1.0 } else { (host / machine).max(machine / host) }
    };
    let factor = rows.map(factor).reduce(f64::max);
    let (name, points) = (&column.name, format!(", or {NEAR_POINTS} points"));
    let points = if column.unit == "%" { &points } else { "" };
    Claim {
        text: format!("{workload}, {name}: within a factor of {NEAR}{points}"),
        found: match factor {
            None => "nothing to compare".into(),
            Some(factor) if factor.is_infinite() => "one of two figures is 0".into(),
            Some(factor) => format!("{factor:.2}"),
        },
        holds: factor.map(|factor| factor <= NEAR),
    }
}

/// Returns the median of a metric's samples, for a result with one point.
fn median(result: &RunResult, metric: &str) -> Option<f64> {
    // Some recipes add the point's label to metric names.
    let is = |name: &str| name.split('-').next() == Some(metric);
    let metric = result.metrics.iter().find(|m| is(&m.name))?;
    let samples: Vec<f64> = metric.counted().collect();
    (!samples.is_empty()).then(|| stats::median(&samples))
}

/// Checks the claims of step 4 of A.4 about batches on this host: the rate hardly changes, holds
/// grow no faster than the batch, and up to scale 5 they stay under 100 us.
fn shape(batches: &[RunResult]) -> Vec<Claim> {
    let all = |metric| batches.iter().filter_map(move |r| median(r, metric)).collect::<Vec<_>>();
    let span = |values: &[f64]| match (values.first(), values.last()) {
        (Some(&a), Some(&b)) if a > 0.0 => Some(b / a),
        _ => None,
    };
    let says =
        |ratio: Option<f64>| ratio.map_or("not measured".into(), |r| format!("{r:.2} times"));
    let rate = span(&all("rate"));
    let mut claims = vec![Claim {
        text: "on the host: the rate with batches of 2047 is within 10% of that with 63".into(),
        found: says(rate),
        holds: rate.map(|r| (r - 1.0).abs() <= 0.1),
    }];
    for (name, metric) in [("for free", "hold_free_avg"), ("for allocation", "hold_alloc_avg")] {
        let ratio = span(&all(metric));
        claims.push(Claim {
            text: format!("on the host: 32 times the batch takes at most 32 times the hold {name}"),
            found: says(ratio),
            holds: ratio.map(|r| r <= 2047.0 / 63.0),
        });
    }
    let p99 = ["hold_free_p99", "hold_alloc_p99"].map(all).concat();
    let most = p99.into_iter().reduce(f64::max);
    claims.push(Claim {
        text: "on the host: holds of batches up to 2047 are below 100 us (p99)".into(),
        found: most.map_or("not measured".into(), |us| format!("{us:.1} us at most")),
        holds: most.map(|us| us < 100.0),
    });
    claims
}

/// One row for each pair of results.
fn columns(real: &[RunResult], simulated: &[RunResult]) -> Vec<Column> {
    let of = |results: &[RunResult], metric: &str| -> Vec<Option<f64>> {
        results.iter().map(|r| median(r, metric)).collect()
    };
    let column = |&(name, metric, unit, kind): &(&str, &str, &'static str, Kind)| {
        Column::new(name, unit, kind, &of(real, metric), &of(simulated, metric))
    };
    METRICS.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_one_side_alone_has_is_no_agreement() {
        let holds = |unit, host: &[f64], machine: &[f64]| {
            let some = |figures: &[f64]| figures.iter().copied().map(Some).collect::<Vec<_>>();
            near("", &Column::new("", unit, Kind::Plain, &some(host), &some(machine))).holds
        };
        assert_eq!(holds("%", &[0.0, 2.0], &[0.0, 2.4]), Some(true));
        assert_eq!(holds("%", &[0.0, 2.0], &[0.0, 2.6]), Some(false));
        assert_eq!(holds("%", &[0.0], &[0.5]), Some(false));
        assert_eq!(holds("%", &[0.5], &[0.0]), Some(false));
        assert_eq!(holds("%", &[0.0], &[0.05]), Some(true));
        assert_eq!(holds("us", &[0.0], &[0.05]), Some(false));
        assert_eq!(holds("us", &[], &[]), None);
    }
}
