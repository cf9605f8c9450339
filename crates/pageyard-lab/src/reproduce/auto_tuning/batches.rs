//! The sweep of batches, with the rule for the longest acceptable one.

use super::super::agree::{Column, Kind};
use super::super::error::ReproduceError;
use super::super::experiment::{Experiment, Run, Scale};
use super::super::outcome::{Claim, Comparison, Outcome};
use super::super::simulated::Simulated;
use super::POLICIES;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "auto-tuning-batches",
    summary: "the rate of page faults and the holds of the zone lock, by batch",
    source: "A.4",
    simulated: true,
    anchors: &[],
    run,
};

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let mut outcome = Outcome::default();
    for machine in if small { &SWEEPS[..1] } else { &SWEEPS[..] } {
        let (table, claim) = sweep(run, machine)?;
        outcome.tables.push(table);
        outcome.claims.push(claim);
        run.show(&outcome.tables)?;
    }
    Ok(outcome)
}

/// A machine of the sweep. For each batch: pages per second, then the average and the 99th
/// percentile of the hold time of a zone lock in microseconds, for frees and for allocations.
struct Sweep {
    name: &'static str,
    machine: &'static str,
    rows: &'static [(u32, [f64; 5])],
}

/// The mail names the machines only by their processors. Which simulated machine corresponds to
/// which is assumed.
const SWEEPS: [Sweep; 5] = [
    Sweep {
        name: "Sapphire Rapids",
        machine: "2x56",
        rows: &[
            (63, [513_633.4, 2.33, 3.57, 2.67, 6.83]),
            (127, [517_616.7, 4.35, 6.65, 4.22, 13.03]),
            (255, [520_822.8, 8.29, 13.32, 7.52, 25.24]),
            (511, [524_122.0, 15.79, 23.42, 14.02, 49.35]),
            (1023, [525_980.5, 30.25, 44.19, 25.36, 94.88]),
            (2047, [526_793.6, 59.39, 84.50, 45.22, 140.81]),
        ],
    },
    Sweep {
        name: "Ice Lake",
        machine: "2x32",
        rows: &[
            (63, [620_210.3, 2.21, 3.68, 2.02, 4.35]),
            (127, [627_003.0, 4.09, 6.86, 3.51, 8.28]),
            (255, [630_777.5, 7.70, 13.50, 6.17, 15.97]),
            (511, [633_651.5, 14.85, 22.62, 11.66, 31.08]),
            (1023, [637_071.1, 28.55, 42.02, 20.81, 54.36]),
            (2047, [638_089.7, 56.54, 84.06, 39.28, 91.68]),
        ],
    },
    Sweep {
        name: "Cascade Lake",
        machine: "2x20",
        rows: &[
            (63, [404_706.7, 3.29, 5.03, 3.53, 4.75]),
            (127, [422_475.2, 6.12, 9.09, 6.36, 8.76]),
            (255, [411_522.2, 11.68, 16.97, 10.90, 16.39]),
            (511, [428_124.1, 22.54, 31.28, 19.86, 32.25]),
            (1023, [414_718.4, 43.39, 62.52, 40.00, 66.33]),
            (2047, [429_848.7, 86.64, 120.34, 71.14, 106.08]),
        ],
    },
    Sweep {
        name: "Comet Lake",
        machine: "desktop",
        rows: &[
            (63, [795_183.13, 2.18, 3.55, 2.03, 3.05]),
            (127, [803_067.85, 3.91, 6.56, 3.85, 5.52]),
            (255, [812_771.10, 7.35, 10.80, 7.14, 10.20]),
            (511, [817_723.48, 14.17, 27.54, 13.43, 30.31]),
            (1023, [818_870.19, 27.72, 40.10, 27.89, 46.28]),
        ],
    },
    Sweep {
        name: "Coffee Lake",
        machine: "desktop",
        rows: &[
            (63, [510_542.8, 3.13, 4.40, 2.48, 3.43]),
            (127, [514_288.6, 5.97, 7.89, 4.65, 6.04]),
            (255, [516_889.7, 11.86, 15.58, 8.96, 12.55]),
            (511, [519_802.4, 23.10, 28.81, 16.95, 26.19]),
            (1023, [520_802.7, 45.30, 52.51, 33.19, 45.95]),
            (2047, [519_997.1, 90.63, 104.00, 65.26, 81.74]),
        ],
    },
];

/// The longest acceptable hold for a scale (the rule of that mail).
const ACCEPTABLE_US: f64 = 100.0;
/// The batch at scale 5: 63 doubled five times.
const SCALE_5: u32 = 2016;

fn sweep(run: &mut Run<'_>, machine: &Sweep) -> Result<(Comparison, Claim), ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let rows = if small { &machine.rows[..3] } else { machine.rows };
    let batches = rows.iter().map(|r| r.0.to_string()).collect::<Vec<_>>().join(",");
    let set = [("batches", &*batches)];
    let title = format!("batches, {}", machine.name);
    let simulated = Simulated {
        workload: "batch",
        machine: machine.machine,
        policies: &POLICIES[..1],
        set: &set,
        ..Simulated::default()
    };
    let found = simulated.run(run, &title)?;
    let ours = |metric: &str| -> Vec<Option<f64>> {
        rows.iter().map(|r| found.means(&format!("{metric}-{}", r.0))[0]).collect()
    };
    let seed = |i: usize| rows.iter().map(|r| Some(r.1[i])).collect::<Vec<_>>();
    let metrics = ["rate", "hold_free_avg", "hold_free_p99", "hold_alloc_avg", "hold_alloc_p99"];
    let names = ["rate", "free avg", "free p99", "alloc avg", "alloc p99"];
    let columns = (0..5).map(|i| {
        let (kind, unit) = if i == 0 { (Kind::Index, "") } else { (Kind::Plain, "us") };
        Column::new(names[i], unit, kind, &seed(i), &ours(metrics[i]))
    });
    let columns = columns.collect();
    let longest: Vec<f64> = ["hold_free_p99", "hold_alloc_p99"]
        .iter()
        .flat_map(|m| rows.iter().zip(ours(m)).filter(|(r, _)| r.0 < SCALE_5))
        .filter_map(|(_, us)| us)
        .collect();
    let most = longest.iter().copied().fold(0.0, f64::max);
    let claim = Claim {
        text: format!(
            "{title}: batches below scale 5 hold the lock less than {ACCEPTABLE_US} us \
             (p99)"
        ),
        found: format!("at most {most:.1} us"),
        holds: Some(most < ACCEPTABLE_US),
    };
    let title = format!("{title}: rate and holds of the zone lock");
    Ok((found.compare(title, rows.iter().map(|r| r.0), columns), claim))
}
