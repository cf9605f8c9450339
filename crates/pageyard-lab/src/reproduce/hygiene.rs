//! Clean free lists (A.3): fifty builds on one heap beside a cache server and huge pages.
//! [`crate::hygiene`] runs the workload on a heap of its own; this module selects the published
//! quantities that it counts.

use super::agree::{Column, Kind};
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Claim, Comparison, Outcome, SIDES};
use crate::hygiene::{self, PUBLISHED, Report, Round, Series};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hygiene",
    summary: "clean free lists: no type mismatches beyond steals, fallbacks end, huge pages \
              succeed",
    source: "A.3",
    simulated: true,
    run,
};

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let rounds = if run.options.scale == Scale::Small { 5 } else { 50 };
    (run.progress)("hygiene", 0, 1);
    let options = hygiene::Options { seed: run.options.seed, rounds, ..Default::default() };
    let report = hygiene::run(&options, &())?;
    (run.progress)("hygiene", 1, 1);
    let world =
        format!("heap of {} MiB, simulated machine, seed {}", options.memory >> 20, options.seed);
    let command = format!("pageyard run hygiene --rounds {rounds} --seed {}", options.seed);
    let claims = report.claims().into_iter().map(|c| Claim {
        text: c.text,
        found: String::new(),
        holds: c.holds,
    });
    Ok(Outcome {
        claims: claims.collect(),
        tables: vec![totals(&report, &world, &command), series(&report, &world, &command)],
        notes: vec![
            "The mail's fallback row is the median of its series; its mismatch row is neither mean \
             nor median (A.3). Here both are means of the printed rounds."
                .into(),
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
            column("kswapd reclaimed", [134_811.62, 2_701.26], &|r| r.reclaimed),
            column("direct reclaimed", [62_123.40, 289_535.70], &|r| r.reclaimed_directly),
        ],
    }
}

/// Compares the two series at selected rounds.
fn series(report: &Report, world: &str, command: &str) -> Comparison {
    let shown: Vec<usize> = [1, 2, 3, 5, 10, 14, 20, 30, 40, 50]
        .into_iter()
        .filter(|&n| n <= report.vanilla.rounds.len())
        .collect();
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
            column("vanilla steals", v, |p| p.vanilla_steals, |r| r.steals),
            column("patched steals", l, |p| p.patched_steals, |r| r.steals),
            column("vanilla mismatches", v, |p| p.vanilla_mismatches, |r| r.mismatches),
            column("patched mismatches", l, |p| p.patched_mismatches, |r| r.mismatches),
        ],
    }
}
