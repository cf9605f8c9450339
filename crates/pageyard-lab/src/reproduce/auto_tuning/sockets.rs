//! The series under socket benchmarks.
//!
//! The seeds ran for a fixed time, but the simulated benchmarks do a fixed amount of work, so their
//! counters are converted to rates per second. Their machine has 128 CPUs. Whether the pairs of UNIX
//! sockets used one zone or two is not published, so both are run.

use super::super::agree::{Column, Kind};
use super::super::error::ReproduceError;
use super::super::experiment::{Experiment, Run, Scale};
use super::super::outcome::{Comparison, Outcome};
use super::super::simulated::{Found, Simulated};
use super::{Parameters, SOCKETS, STEPS, Step, steps};

const fn socket(rate: f64, lock: f64, free_high: f64, pages: f64, miss: f64) -> Step {
    [Some(rate), Some(lock), Some(free_high), Some(pages), Some(miss)]
}

const SCTP: [Step; 7] = [
    socket(100.0, 2.0, 100.0, 100.0, 1.3),
    socket(99.7, 2.0, 99.7, 99.7, 1.3),
    socket(105.5, 1.2, 13.2, 105.4, 1.2),
    socket(106.9, 1.2, 13.4, 106.9, 1.3),
    socket(103.5, 1.8, 6.8, 90.8, 7.6),
    socket(103.7, 1.8, 6.6, 89.8, 7.7),
    socket(106.9, 1.2, 13.5, 106.9, 1.2),
];

const UNIX: [Step; 7] = [
    socket(100.0, 50.0, 100.0, 100.0, 0.3),
    socket(117.1, 45.8, 72.6, 108.9, 0.2),
    socket(201.6, 21.2, 7.4, 111.5, 0.2),
    socket(201.9, 20.9, 7.5, 112.7, 0.3),
    socket(194.2, 19.3, 7.3, 111.5, 2.9),
    socket(193.1, 19.2, 7.2, 110.4, 2.9),
    socket(196.8, 21.0, 7.4, 111.2, 2.1),
];

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "auto-tuning-sockets",
    summary: "self-tuning lists: the effect of each step on SCTP and UNIX sockets",
    source: "A.4",
    simulated: true,
    anchors: &[],
    run,
};

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let mut outcome = Outcome::default();
    let messages = ("messages", if small { "4000" } else { "20000" });
    let writes = ("writes", if small { "4000" } else { "20000" });
    let sockets: [(&str, &str, &[Step; 7], Parameters<'_>); 3] = [
        ("SCTP, 64 pairs", "sctp", &SCTP, &[messages]),
        ("UNIX sockets, 16 pairs, all in one zone", "unix", &UNIX, &[("cpus", "0"), writes]),
        ("UNIX sockets, 16 pairs, half of them in each of two zones", "unix", &UNIX, &[writes]),
    ];
    for (title, workload, seed, set) in sockets {
        let sockets = Simulated { machine: SOCKETS, ..steps(workload, set, small) };
        outcome.tables.push(table(title, seed, sockets.run(run, title)?));
        run.show(&outcome.tables)?;
    }
    outcome.notes.push(
        "miss: last-level cache misses on page contents and descriptors; the published ones are a \
         processor's counts of all code. The share of memory that has been in use before is assumed."
            .into(),
    );
    Ok(outcome)
}

/// Compares a socket benchmark: the published ones ran for a fixed time.
fn table(title: &str, seed: &[Step; 7], found: Found) -> Comparison {
    let published = |i: usize| seed.map(|step| step[i]);
    let counted = |name, i, metric| {
        Column::new(name, "", Kind::Index, &published(i), &found.per_second(metric))
    };
    let columns = vec![
        found.column("rate", "", Kind::Index, "rate", &published(0)),
        found.column("zone lock", "%", Kind::Plain, "zone_lock", &published(1)),
        counted("free_high", 2, "free_high"),
        counted("zone pages", 3, "zone_pages"),
        found.column("miss", "%", Kind::Plain, "miss", &published(4)),
    ];
    found.compare(title, STEPS, columns)
}
