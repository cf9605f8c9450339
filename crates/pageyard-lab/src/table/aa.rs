//! The A/A run: a comparison of a configuration with itself. Any claimed change is a false alarm,
//! and shows how far the machine and the rule can be trusted.

use std::fmt;

use serde::Serialize;

use super::era::Era;
use super::error::{TableError, wrong};
use super::grid::{self, Layout, wrapped};
use super::ours::{Rule, Table, Verdict};
use super::set::{Row, Set};
use crate::rng::Rng;
use crate::stats::Samples;

/// The result of an A/A run of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct FalseAlarms {
    /// The line above the table.
    pub heading: String,
    /// Number of random deals of the samples.
    pub deals: usize,
    /// Samples on each side, for the metric with the fewest.
    pub n: usize,
    /// Number of metrics.
    pub metrics: usize,
    /// Pageyard's rule for claiming a change; its seed also seeds the deals.
    pub rule: Rule,
    /// One rate per significance rule.
    pub rates: Vec<Rate>,
}

/// How often a rule raised a false alarm.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// The rule.
    pub rule: &'static str,
    /// Alarms between the measured columns; `None` for a single column.
    pub measured: Option<usize>,
    /// Comparisons between the measured columns.
    pub comparisons: usize,
    /// The share of rows in all deals that raised an alarm.
    pub rows: f64,
    /// The share of deals that raised an alarm in any row.
    pub tables: f64,
}

const RULES: [&str; 4] = ["pageyard", "p < 0.05", "mmtests-2019", "mmtests-2024"];

/// Counts false alarms between the measured columns, and over `deals` random deals of all samples
/// of a metric to two sides. The deals show how a rule copes with this machine's spread. The
/// columns show whether two runs differ by more than that, as they do if the machine drifts. Only
/// primary metrics that every column has count.
///
/// # Errors
/// Fails if the columns have different policies or parameters, since that is not an A/A run, or if
/// there are fewer than four samples.
pub fn false_alarms(set: &Set, rule: Rule, deals: usize) -> Result<FalseAlarms, TableError> {
    let set = &set.with(|m| m.primary && m.is_complete());
    let base = &set.columns[0];
    let differs = |c: &&super::Column| c.policy != base.policy || !c.parameters.is_empty();
    if let Some(other) = set.columns.iter().find(differs) {
        let what = format!(
            "{} under {} and {} under {} are not the same",
            set.title(),
            other.policy,
            set.title(),
            base.policy
        );
        return wrong(
            &other.file,
            what,
            "for --aa, use runs of one policy with the same parameters",
        );
    }
    let pools: Vec<Vec<f64>> = set.metrics.iter().map(|m| m.samples.concat()).collect();
    let least = pools.iter().map(Vec::len).min().unwrap_or(0);
    if least < 4 {
        let what = format!("{} has only {least} samples of a metric", set.title());
        return wrong(&base.file, what, "use at least 4, better 20 or more");
    }

    let measured = set.columns.len() > 1;
    let mut found = [0; 4];
    if measured {
        for alarms in alarms(set, rule) {
            (0..4).for_each(|i| found[i] += usize::from(alarms[i]));
        }
    }
    let (mut rows, mut tables) = ([0usize; 4], [0usize; 4]);
    let mut rng = Rng::new(rule.seed);
    let mut dealt = Set { columns: vec![base.clone(), base.clone()], ..set.clone() };
    for _ in 0..deals {
        for (m, pool) in dealt.metrics.iter_mut().zip(&pools) {
            let mut pool = pool.clone();
            rng.shuffle(&mut pool);
            let second = pool.split_off(pool.len() / 2);
            m.samples = vec![pool, second];
        }
        let rule = Rule { seed: rng.next(), ..rule };
        let mut any = [false; 4];
        for alarms in alarms(&dealt, rule) {
            for i in 0..4 {
                rows[i] += usize::from(alarms[i]);
                any[i] |= alarms[i];
            }
        }
        (0..4).for_each(|i| tables[i] += usize::from(any[i]));
    }
    let share = |n: usize, of: usize| n as f64 / of.max(1) as f64;
    let rates = (0..4).map(|i| Rate {
        rule: RULES[i],
        measured: measured.then_some(found[i]),
        comparisons: (set.columns.len() - 1) * set.metrics.len(),
        rows: share(rows[i], deals * set.metrics.len()),
        tables: share(tables[i], deals),
    });
    Ok(FalseAlarms {
        heading: set.to_string(),
        deals,
        n: least / 2,
        metrics: set.metrics.len(),
        rule,
        rates: rates.collect(),
    })
}

/// Returns for every comparison whether each of the rules claims a change.
fn alarms(set: &Set, rule: Rule) -> Vec<[bool; 4]> {
    let ours = Table::build(set, rule, true);
    let mut all = Vec::new();
    for (m, line) in set.metrics.iter().zip(&ours.lines) {
        for (samples, cell) in m.samples.iter().zip(&line.cells).skip(1) {
            let claimed = cell
                .compared
                .as_ref()
                .is_some_and(|c| matches!(c.verdict, Verdict::Better | Verdict::Worse));
            all.push([
                claimed,
                cell.compared.as_ref().and_then(|c| c.p).is_some_and(|p| p < 0.05),
                star(Era::Mmtests2019, m, samples),
                star(Era::Mmtests2024, m, samples),
            ]);
        }
    }
    all
}

fn star(era: Era, m: &Row, samples: &[f64]) -> bool {
    let of = |s: &[f64]| Samples::new(s, m.better);
    era.stars_means(&of(&m.samples[0]), &of(samples), m.better)
}

impl fmt::Display for FalseAlarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrapped(f, &format!("A/A: {}", self.heading), "  ")?;
        writeln!(f)?;
        let header = ["false alarms of", "as measured", "of shuffled rows", "of shuffled tables"];
        let mut grid = vec![header.map(String::from).to_vec()];
        for r in &self.rates {
            let measured = |n| format!("{n} of {}", r.comparisons);
            grid.push(vec![
                r.rule.into(),
                r.measured.map_or("-".into(), measured),
                format!("{:.2}%", 100.0 * r.rows),
                format!("{:.2}%", 100.0 * r.tables),
            ]);
        }
        grid::print(f, &grid, Layout::PLAIN)?;
        let legend = format!(
            "{} shuffles of {} or more samples per side, {} {}, seed {}; pageyard's rule has a band \
             of ±{}%",
            self.deals,
            self.n,
            self.metrics,
            if self.metrics == 1 { "metric" } else { "metrics" },
            self.rule.seed,
            100.0 * self.rule.band
        );
        wrapped(f, &legend, "  ")
    }
}
