//! Clean free lists (A.3): fifty builds on one heap beside a cache server and huge pages.
//! [`crate::hygiene`] runs the workload on a heap of its own; this module selects the published
//! quantities that it counts.

use super::agree::{Column, Kind};
use super::anchor;
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Claim, Comparison, Outcome, SIDES};
use crate::hygiene::{self, Assumed, PUBLISHED, Report, Round, Series};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hygiene",
    summary: "clean free lists: no type mismatches beyond steals, fallbacks end, huge pages \
              succeed",
    source: "A.3",
    simulated: false,
    anchors: &[anchor::FILES, anchor::LOAD],
    run,
};

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let rounds = if small { 5 } else { 50 };
    run.progress("hygiene", 0, 1);
    let options = hygiene::Options { seed: run.options.seed, rounds, ..Default::default() };
    let report = hygiene::run(&options, &())?;
    run.progress("hygiene", 1, 1);
    let world =
        format!("heap of {} MiB, simulated machine, seed {}", options.memory >> 20, options.seed);
    let command = format!("pageyard run hygiene --rounds {rounds} --seed {}", options.seed);
    let claims = report.claims().into_iter().map(|c| Claim {
        text: c.text,
        found: String::new(),
        holds: c.holds,
    });
    let range = range(run, &options, &report)?;
    Ok(Outcome {
        claims: claims.collect(),
        tables: vec![totals(&report, &world, &command), series(&report, &world, &command), range],
        notes: vec![
            "The mail's fallback row is the median of its series; its mismatch row is neither mean \
             nor median (A.3). Here both are means of the printed rounds."
                .into(),
        ],
    })
}

/// Values of the load's parameters that have no source, each with all others at their defaults.
const RANGE: [(&str, Assumed); 8] = {
    let base = Assumed::DEFAULT;
    [
        ("slab 25", Assumed { slab_scale: 25.0, ..base }),
        ("slab 100", Assumed { slab_scale: 100.0, ..base }),
        ("pressure 1", Assumed { slab_pressure: 1.0, ..base }),
        ("pressure 4", Assumed { slab_pressure: 4.0, ..base }),
        ("4 GiB", Assumed { machine: 4 << 30, ..base }),
        ("16 GiB", Assumed { machine: 16 << 30, ..base }),
        ("held 4 s", Assumed { held: 4, ..base }),
        ("held 9 s", Assumed { held: 9, ..base }),
    ]
};

/// Runs the load with other values of the parameters that have no source.
fn range(
    run: &mut Run<'_>,
    options: &hygiene::Options,
    default: &Report,
) -> Result<Comparison, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let rounds = if small { 2 } else { 20 };
    let values = if small { &RANGE[..2] } else { &RANGE[..] };
    let mut rows = vec![("default", default.clone())];
    for (at, &(name, assumed)) in values.iter().enumerate() {
        run.progress("hygiene, other parameters", at as u64, values.len() as u64);
        let options = hygiene::Options { rounds, assumed, ..*options };
        rows.push((name, hygiene::run(&options, &())?));
    }
    let last = rounds as usize / 2;
    let column = |name: &str, of: fn(&Report) -> &Series, f: fn(&Round) -> u64| {
        let ours = rows.iter().map(|(_, report)| {
            let late = of(report).rounds.iter().take(rounds as usize).skip(last);
            let late: Vec<u64> = late.map(f).collect();
            Some(late.iter().sum::<u64>() as f64 / late.len().max(1) as f64)
        });
        let ours: Vec<_> = ours.collect();
        Column::ours(name, "", &ours)
    };
    Ok(Comparison {
        title: format!(
            "other values of the load's parameters: means of rounds {} to {rounds}",
            last + 1
        ),
        world: format!("simulated machine, seed {}", options.seed),
        command: String::new(),
        sides: SIDES,
        rows: rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
        columns: vec![
            column("vanilla fallbacks", |r| &r.vanilla, Round::fallbacks),
            column("patched fallbacks", |r| &r.linux612, Round::fallbacks),
            column("vanilla mismatches", |r| &r.vanilla, |r| r.mismatches),
            column("patched mismatches", |r| &r.linux612, |r| r.mismatches),
            column("vanilla huge", |r| &r.vanilla, |r| r.huge),
            column("patched huge", |r| &r.linux612, |r| r.huge),
        ],
    })
}

/// Compares the rows of the published table that are counted here, as indices of the state before
/// the patches.
fn totals(report: &Report, world: &str, command: &str) -> Comparison {
    let both = [&report.vanilla, &report.linux612];
    let mean = |s: &Series, f: &dyn Fn(&Round) -> u64| {
        s.rounds.iter().map(f).sum::<u64>() as f64 / s.rounds.len() as f64
    };
    let column = |name: &str, seed: [f64; 2], f: &dyn Fn(&Round) -> u64| {
        let ours = both.map(|s| Some(mean(s, f)));
        Column::new(name, "", Kind::Index, &seed.map(Some), &ours)
    };
    let published = |f: fn(&hygiene::Published) -> u64| {
        PUBLISHED.iter().map(f).sum::<u64>() as f64 / PUBLISHED.len() as f64
    };
    Comparison {
        title: "mean per round, before and after".into(),
        world: world.into(),
        command: command.into(),
        sides: SIDES,
        rows: vec!["vanilla".into(), "patched".into()],
        columns: vec![
            column(
                "fallbacks",
                [published(|p| p.vanilla_steals), published(|p| p.patched_steals)],
                &Round::fallbacks,
            ),
            column(
                "mismatches",
                [published(|p| p.vanilla_mismatches), published(|p| p.patched_mismatches)],
                &|r| r.mismatches,
            ),
            column("THP alloc", [30_585.14, 40_853.62], &|r| r.huge),
            column("THP fallback", [36_626.46, 26_357.62], &|r| r.huge_missed),
            column("kswapd reclaimed", [134_811.62, 2_701.26], &|r| r.reclaimed)
                .anchored_at(&[0, 1]),
            column("direct reclaimed", [62_123.40, 289_535.70], &|r| r.reclaimed_directly)
                .anchored_at(&[0, 1]),
        ],
    }
}

/// Compares the two series at selected rounds.
fn series(report: &Report, world: &str, command: &str) -> Comparison {
    let shown: Vec<usize> = [1, 2, 3, 5, 10, 14, 20, 30, 40, 50]
        .into_iter()
        .filter(|&n| n <= report.vanilla.rounds.len())
        .collect();
    let all: Vec<usize> = (0..shown.len()).collect();
    let column =
        |name: &str, s: &Series, p: fn(&hygiene::Published) -> u64, f: fn(&Round) -> u64| {
            let seed: Vec<_> =
                shown.iter().map(|&n| PUBLISHED.get(n - 1).map(|r| p(r) as f64)).collect();
            let ours: Vec<_> =
                shown.iter().map(|&n| s.rounds.get(n - 1).map(|r| f(r) as f64)).collect();
            Column::new(name, "", Kind::Plain, &seed, &ours)
        };
    let (v, l) = (&report.vanilla, &report.linux612);
    Comparison {
        title: "by round".into(),
        world: world.into(),
        command: command.into(),
        sides: SIDES,
        rows: shown.iter().map(usize::to_string).collect(),
        columns: vec![
            column("vanilla fallbacks", v, |p| p.vanilla_steals, Round::fallbacks),
            column("patched fallbacks", l, |p| p.patched_steals, Round::fallbacks),
            column("vanilla mismatches", v, |p| p.vanilla_mismatches, |r| r.mismatches)
                .anchored_at(&all),
            column("patched mismatches", l, |p| p.patched_mismatches, |r| r.mismatches),
        ],
    }
}
