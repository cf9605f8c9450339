//! Judges a policy as a maintainer would a patch: what gets better, what gets worse, and how sure
//! that is.
//!
//! Both policies run everything in the [`Suite`] with the same seeds. A figure counts as better or
//! worse if it changes in that direction with *every* seed, by more than [`BAND`]. So a difference
//! that seeds produce by themselves is not a result, and with one seed nothing is known about it.

mod suite;
mod text;

use pageyard_lab::result::{Better, is_named};
use serde::Serialize;

pub use suite::{Proposal, Suite};

use crate::cell::{CellResult, Value, Work};

/// Relative changes up to this are no change.
pub const BAND: f64 = 0.01;
/// Changes of a share up to this many percentage points are no change, whatever their ratio.
pub const BAND_POINTS: f64 = 0.1;
/// Changes of a time in microseconds up to this are no change: one step of the histograms' scale at
/// the cost of a cached page.
pub const BAND_US: f64 = 0.05;

/// What a figure says something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// The workload's own result: its time or rate.
    Result,
    /// How long and how often the zone lock is held.
    ZoneLock,
    /// Times of single requests.
    Latency,
    /// Pages that are free and idle on lists.
    IdleMemory,
    /// Blocks of one type among those of another, and free memory in pieces.
    Fragmentation,
    /// Requests that fail.
    Failures,
}

impl Aspect {
    /// All aspects, in the order of the page.
    pub const ALL: [Aspect; 6] = [
        Aspect::Result,
        Aspect::ZoneLock,
        Aspect::Latency,
        Aspect::IdleMemory,
        Aspect::Fragmentation,
        Aspect::Failures,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Result => "time or rate",
            Aspect::ZoneLock => "zone lock",
            Aspect::Latency => "latency",
            Aspect::IdleMemory => "idle memory",
            Aspect::Fragmentation => "fragmentation",
            Aspect::Failures => "failures",
        }
    }
}

const TIME: &str = "time";
/// The part of a build's time in which all jobs are busy. Judged in place of the time where there is
/// one: the last objects are most of a short build and little of a whole one.
const BUSY_TIME: &str = "busy_time";

/// The figures that are judged: name and aspect. Others explain these, or count the same thing.
const OF_RUNS: [(&str, Aspect); 9] = [
    (TIME, Aspect::Result),
    (BUSY_TIME, Aspect::Result),
    ("rate", Aspect::Result),
    ("zone_lock", Aspect::ZoneLock),
    ("zone_pages", Aspect::ZoneLock),
    ("hold_alloc_p99", Aspect::Latency),
    ("request_p999", Aspect::Latency),
    ("peak_pcp", Aspect::IdleMemory),
    ("failed", Aspect::Failures),
];
/// Lower is better in all of them.
const OF_REPLAYS: [(&str, Aspect); 7] = [
    ("zone_pages", Aspect::ZoneLock),
    ("lock_holds", Aspect::ZoneLock),
    ("idle_mean", Aspect::IdleMemory),
    ("claims", Aspect::Fragmentation),
    ("steals", Aspect::Fragmentation),
    ("unusable_9", Aspect::Fragmentation),
    ("failed", Aspect::Failures),
];

/// What the seeds say about a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better with every seed.
    Better,
    /// Worse with every seed.
    Worse,
    /// The same with every seed, within the band.
    Same,
    /// Seeds disagree.
    Unclear,
    /// One of the policies does not have this figure, or counted nothing for it.
    Missing,
}

/// A figure under both policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What the input stands for.
    pub about: String,
    /// Whether a published change made this workload slower.
    pub known_regression: bool,
    /// The trace, or the workload with its parameters.
    pub input: String,
    /// The simulated machine; empty for a replay.
    pub machine: String,
    /// What the figure says something about.
    pub aspect: Aspect,
    /// Its name.
    pub metric: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// Values under the policy that is compared with, one per seed; empty if missing. `None`, and
    /// null in JSON, where nothing was counted.
    pub against: Vec<Option<f64>>,
    /// Values under the policy that is judged.
    pub policy: Vec<Option<f64>>,
    /// What they say.
    pub verdict: Verdict,
}

impl Figure {
    /// Returns the smallest and the largest change among the seeds, relative. Infinite if a value
    /// rises from 0. `None` if no seed has a value under both policies.
    pub fn changes(&self) -> Option<(f64, f64)> {
        let pairs = self.against.iter().zip(&self.policy);
        let both = pairs.filter_map(|(a, p)| a.zip(*p));
        both.map(|(a, p)| relative(a, p)).fold(None, |range, change| {
            let (low, high) = range.unwrap_or((change, change));
            Some((low.min(change), high.max(change)))
        })
    }
}

/// The judgement of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The policy that is judged.
    pub policy: String,
    /// The policy that it is compared with.
    pub against: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// All figures, in the suite's order.
    pub figures: Vec<Figure>,
}

impl Judgement {
    /// Judges the results of a suite's cells, in the plan's order.
    pub fn new(suite: &Suite, results: &[CellResult]) -> Judgement {
        let seeds = suite.seeds.len().max(1);
        let works = results.chunks(2 * seeds).zip(&suite.about);
        let figures = works.flat_map(|(cells, about)| {
            let (against, policy) = cells.split_at(seeds.min(cells.len()));
            figures(against, policy, about)
        });
        Judgement {
            policy: suite.policy.clone(),
            against: suite.against.clone(),
            seeds: suite.seeds.clone(),
            figures: figures.collect(),
        }
    }

    /// Returns the figures with a verdict.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(move |f| f.verdict == verdict)
    }
}

/// Returns the figures of one work, the seeds of both policies.
fn figures(
    against: &[CellResult],
    policy: &[CellResult],
    (about, known_regression): &(String, bool),
) -> Vec<Figure> {
    let Some(first) = against.first() else { return Vec::new() };
    let judged: &[(&str, Aspect)] = match first.cell.work {
        Work::Run { .. } => &OF_RUNS,
        Work::Replay { .. } => &OF_REPLAYS,
    };
    let values = || against.iter().chain(policy).flat_map(|cell| &cell.values);
    // A label stands for a point, or for a part of the figure without one.
    let is_judged = |metric: &str, name: &str| {
        metric == name || is_named(metric, name) && values().all(|v| v.metric != name)
    };
    // In the order of the first policy's figures, then those that only the other has.
    let mut found: Vec<(&Value, Aspect)> = Vec::new();
    for value in values() {
        let aspect = judged.iter().find(|(name, _)| is_judged(&value.metric, name));
        if let Some(&(_, aspect)) = aspect
            && !found.iter().any(|(known, _)| known.metric == value.metric)
        {
            found.push((value, aspect));
        }
    }
    if found.iter().any(|(value, _)| value.metric == BUSY_TIME) {
        found.retain(|(value, _)| value.metric != TIME);
    }
    let figure = |(value, aspect): (&Value, Aspect)| {
        let of = |cells: &[CellResult]| {
            let one = |cell: &CellResult| {
                cell.values.iter().find(|v| v.metric == value.metric).map(|v| v.value)
            };
            // All seeds or none: a list that lacks one could not be paired.
            cells.iter().map(one).collect::<Option<Vec<_>>>().unwrap_or_default()
        };
        let (a, p) = (of(against), of(policy));
        let better = value.better.unwrap_or(Better::Lower);
        Figure {
            about: about.clone(),
            known_regression: *known_regression,
            input: first.cell.input(),
            machine: first.cell.machine().to_owned(),
            aspect,
            metric: value.metric.clone(),
            unit: value.unit.clone(),
            verdict: verdict(&a, &p, better, &value.unit),
            against: a,
            policy: p,
        }
    };
    found.into_iter().map(figure).collect()
}

/// Returns the relative change of a value that is not negative.
fn relative(against: f64, policy: f64) -> f64 {
    if against == policy { 0.0 } else { policy / against - 1.0 }
}

fn verdict(against: &[Option<f64>], policy: &[Option<f64>], better: Better, unit: &str) -> Verdict {
    let pairs = || against.iter().zip(policy);
    let counted_by_one = pairs().any(|(a, p)| a.is_some() != p.is_some());
    if against.is_empty() || against.len() != policy.len() || counted_by_one {
        return Verdict::Missing;
    }
    let least = match unit {
        "%" => BAND_POINTS,
        "us" => BAND_US,
        _ => 0.0,
    };
    // Above 0 is better.
    let direction = |(a, p): (f64, f64)| {
        let change = relative(a, p);
        // Written so that what is not a number counts as no change.
        let changed = change.abs() > BAND && (p - a).abs() > least;
        match (changed, (change > 0.0) == (better == Better::Higher)) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => -1,
        }
    };
    let mut directions = pairs().filter_map(|(a, p)| a.zip(*p)).map(direction);
    let first = directions.next().unwrap_or(0);
    match (directions.all(|other| other == first), first) {
        (false, _) => Verdict::Unclear,
        (true, 1) => Verdict::Better,
        (true, -1) => Verdict::Worse,
        (true, _) => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cell::{Cell, MachineText};

    fn judged(against: &[f64], policy: &[f64], better: Better, unit: &str) -> Verdict {
        let counted = |of: &[f64]| of.iter().copied().map(Some).collect::<Vec<_>>();
        verdict(&counted(against), &counted(policy), better, unit)
    }

    #[test]
    fn every_seed_must_agree_and_leave_the_band() {
        let lower = |a: &[f64], p: &[f64]| judged(a, p, Better::Lower, "");
        assert_eq!(lower(&[100.0, 200.0], &[90.0, 150.0]), Verdict::Better);
        assert_eq!(lower(&[100.0, 200.0], &[110.0, 250.0]), Verdict::Worse);
        assert_eq!(lower(&[100.0, 200.0], &[90.0, 250.0]), Verdict::Unclear);
        assert_eq!(lower(&[100.0, 200.0], &[90.0, 199.0]), Verdict::Unclear, "one within the band");
        assert_eq!(lower(&[100.0, 200.0], &[100.9, 198.1]), Verdict::Same);
        assert_eq!(judged(&[100.0], &[90.0], Better::Higher, ""), Verdict::Worse);
        assert_eq!(judged(&[100.0], &[110.0], Better::Higher, ""), Verdict::Better);
    }

    #[test]
    fn nothing_missing_or_undefined_becomes_a_change() {
        let lower = |a: &[f64], p: &[f64]| judged(a, p, Better::Lower, "");
        assert_eq!(lower(&[], &[1.0]), Verdict::Missing);
        assert_eq!(lower(&[1.0, 2.0], &[1.0]), Verdict::Missing);
        assert_eq!(lower(&[0.0], &[0.0]), Verdict::Same);
        assert_eq!(lower(&[0.0], &[1.0]), Verdict::Worse, "from none to some");
        assert_eq!(lower(&[1.0], &[0.0]), Verdict::Better);
        assert_eq!(lower(&[f64::NAN], &[1.0]), Verdict::Same);
        let lower = |a: &[Option<f64>], p: &[Option<f64>]| verdict(a, p, Better::Lower, "");
        assert_eq!(lower(&[None, Some(9.0)], &[None, Some(1.0)]), Verdict::Better);
        assert_eq!(lower(&[None], &[None]), Verdict::Same, "nothing under both");
        assert_eq!(lower(&[None, Some(9.0)], &[Some(0.0), Some(1.0)]), Verdict::Missing);
    }

    #[test]
    fn parts_of_a_figure_are_not_judged_beside_it() {
        let machine = MachineText { name: "2x56".into(), toml: String::new() };
        let work = Work::Run {
            workload: "kbuild".into(),
            machine,
            memory: None,
            descriptor: 64,
            iterations: 1,
            set: BTreeMap::new(),
        };
        let value = |metric: &str| Value {
            metric: metric.into(),
            unit: String::new(),
            better: None,
            value: Some(1.0),
        };
        let metrics = ["zone_pages", "zone_pages-node0", "zone_pages-node1", "rate-32", "rate-64"];
        let cell = Cell { policy: "Base".into(), seed: 1, work };
        let values = metrics.map(value).to_vec();
        let result = [CellResult { key: String::new(), cell, values }];
        let judged = figures(&result, &result, &(String::new(), false));
        let names: Vec<_> = judged.iter().map(|f| f.metric.as_str()).collect();
        assert_eq!(names, ["zone_pages", "rate-32", "rate-64"]);
    }

    #[test]
    fn small_shares_and_times_have_bands_of_their_own() {
        assert_eq!(judged(&[0.01], &[0.1], Better::Lower, "%"), Verdict::Same);
        assert_eq!(judged(&[0.01], &[0.2], Better::Lower, "%"), Verdict::Worse);
        assert_eq!(judged(&[0.30], &[0.32], Better::Lower, "us"), Verdict::Same);
        assert_eq!(judged(&[0.30], &[0.40], Better::Lower, "us"), Verdict::Worse);
    }
}
