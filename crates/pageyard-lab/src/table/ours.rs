//! Pageyard's own table (docs/tables.md, Our own form): medians with their intervals, and changes
//! only where they are significant.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::grid::{self, Layout, wrapped};
use super::set::{Row, Set};
use crate::format::number;
use crate::result::Better;
use crate::stats::{
    Interval, POWER, fewest_for_test, holm, mann_whitney, median, median_interval, ratio,
    ratio_interval, samples_for_interval, samples_for_test,
};

/// Significance level: a difference counts if its p value, corrected for all comparisons of the
/// table's primary metrics, is below this.
const ALPHA: f64 = 0.05;

/// The rule for claiming a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The practical band: a ratio within 1 ± this value is not a relevant change.
    pub band: f64,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { band: 0.01, seed: 1 }
    }
}

/// A table of medians.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The rule for claiming a change.
    pub rule: Rule,
    /// Number of comparisons that Holm's correction covers: the tests of primary metrics.
    pub comparisons: usize,
    /// The columns' names.
    pub columns: Vec<String>,
    /// One line per metric.
    pub lines: Vec<Line>,
}

/// One metric.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Whether the metric states a result. Others explain one: their p values are not corrected,
    /// and no change is claimed of them, unless it is exact.
    pub primary: bool,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One metric of one column.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Number of samples; 0 if the column does not have the metric.
    pub n: usize,
    /// Their median; NaN, and null in JSON, without samples.
    pub median: f64,
    /// The 95 % confidence interval of the median; `None` for fewer than six samples.
    pub interval: Option<Interval>,
    /// The comparison with the base; `None` in the base's own column, and where one of the two has
    /// no samples.
    pub compared: Option<Compared>,
}

/// A column against the base.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// New over base, of medians. Infinite if only the base is 0; JSON has null for it.
    pub ratio: f64,
    /// The ratio's 95 % bootstrap interval; `None` with fewer than two samples on a side.
    pub interval: Option<Interval>,
    /// Whether both are simulated and vary on neither side, so that they were compared exactly.
    pub exact: bool,
    /// The two-sided Mann-Whitney p value. `None` with fewer than two samples on a side, if the
    /// comparison is exact, and if all samples of both sides are equal.
    pub p: Option<f64>,
    /// The p value of a primary metric, corrected for all such comparisons of the table.
    pub p_holm: Option<f64>,
    /// The conclusion.
    pub verdict: Verdict,
    /// Number of samples on each side that would show a change, if the difference and the spread
    /// stay as they are. `None` if there is a verdict, if the ratio is within the band, and if the
    /// samples allow no estimate.
    pub needed: Option<u64>,
    /// Whether all samples of both sides are 0.
    pub zero: bool,
}

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A change for the better.
    Better,
    /// A change for the worse.
    Worse,
    /// Identical: simulated results with the same samples, or samples that are all equal.
    Same,
    /// No change shown.
    Nothing,
    /// A metric that explains a result: no change is claimed.
    Unjudged,
}

impl Table {
    /// Compares every column with the first.
    ///
    /// A change of a primary metric is claimed if the corrected p value is below 0.05 and the whole
    /// interval of the ratio lies outside the band. Simulated results that vary on neither side are
    /// compared exactly, since they contain no noise: a change is claimed if the ratio lies outside
    /// the band.
    pub fn new(set: &Set, rule: Rule) -> Table {
        Table::build(set, rule, false)
    }

    /// Builds the table. With `verdicts`, leaves out what does not affect a verdict.
    pub(super) fn build(set: &Set, rule: Rule, verdicts: bool) -> Table {
        let simulated = set.simulated();
        let mut lines: Vec<Line> = set.metrics.iter().map(|m| line(m, simulated)).collect();
        let tested = |c: &Cell| c.compared.as_ref().and_then(|c| c.p);
        let family = lines.iter().filter(|l| l.primary).flat_map(|l| &l.cells);
        let p: Vec<f64> = family.filter_map(tested).collect();
        let corrected = holm(&p);
        let mut next = corrected.iter();
        let mut draws = rule.seed;
        for (line, m) in lines.iter_mut().zip(&set.metrics) {
            for (cell, new) in line.cells.iter_mut().zip(&m.samples) {
                let Some(c) = &mut cell.compared else { continue };
                // A separate seed for each comparison keeps them independent.
                draws = draws.wrapping_add(1);
                if line.primary && c.p.is_some() {
                    c.p_holm = next.next().copied();
                }
                let base = &m.samples[0];
                if c.p.is_some() && (!verdicts || c.p_holm.is_some_and(|p| p < ALPHA)) {
                    c.interval = ratio_interval(base, new, draws);
                }
                c.verdict = c.decide(rule, m, simulated, base, new);
                if c.verdict == Verdict::Nothing && !verdicts {
                    c.needed = c.needed(rule, ALPHA / p.len().max(1) as f64, base, new);
                }
            }
        }
        let columns = set.columns.iter().map(|c| c.name.clone()).collect();
        Table { rule, comparisons: p.len(), columns, lines }
    }

    /// Returns the table as rows of text: a header, then one row per metric and column.
    pub fn records(&self) -> Vec<Vec<String>> {
        const HEADER: [&str; 16] = [
            "metric",
            "unit",
            "better",
            "column",
            "n",
            "median",
            "low",
            "high",
            "ratio",
            "ratio_low",
            "ratio_high",
            "p",
            "p_holm",
            "verdict",
            "needed",
            "primary",
        ];
        let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        let ends = |i: Option<Interval>| [number(i.map(|i| i.low)), number(i.map(|i| i.high))];
        let mut records = vec![HEADER.map(String::from).to_vec()];
        for line in &self.lines {
            for (column, cell) in self.columns.iter().zip(&line.cells) {
                let c = cell.compared.as_ref();
                let mut record = vec![line.metric.clone(), line.unit.clone()];
                record.push(format!("{:?}", line.better).to_lowercase());
                let median = (cell.n > 0).then_some(cell.median);
                record.extend([column.clone(), cell.n.to_string(), number(median)]);
                record.extend(ends(cell.interval));
                record.push(number(c.map(|c| c.ratio)));
                record.extend(ends(c.and_then(|c| c.interval)));
                record.extend([number(c.and_then(|c| c.p)), number(c.and_then(|c| c.p_holm))]);
                record.push(c.map_or(String::new(), |c| c.verdict.to_string()));
                let needed = c.and_then(|c| c.needed);
                record.push(needed.map_or(String::new(), |n| n.to_string()));
                record.push(line.primary.to_string());
                records.push(record);
            }
        }
        records
    }
}

/// Whether there are samples, all equal to this value.
fn all_equal(samples: &[f64], value: f64) -> bool {
    !samples.is_empty() && samples.iter().all(|s| *s == value)
}

fn line(m: &Row, simulated: bool) -> Line {
    let base = &m.samples[0];
    let constant = |s: &[f64]| s.first().is_some_and(|first| all_equal(s, *first));
    let cell = |(i, new): (usize, &Vec<f64>)| {
        let both = !base.is_empty() && !new.is_empty();
        let compared = (i > 0 && both).then(|| {
            let exact = simulated && constant(base) && constant(new);
            // A single sample cannot reach 0.05, and p of equal samples is always 1: they would
            // only weaken the correction for the others.
            let equal = all_equal(base, base[0]) && all_equal(new, base[0]);
            let tested = base.len() > 1 && new.len() > 1 && !exact && !equal;
            Compared {
                ratio: ratio(median(base), median(new)),
                interval: None,
                exact,
                p: tested.then(|| mann_whitney(base, new)),
                p_holm: None,
                verdict: Verdict::Nothing,
                needed: None,
                zero: equal && base[0] == 0.0,
            }
        });
        let interval = median_interval(new);
        Cell { n: new.len(), median: median(new), interval, compared }
    };
    let cells = m.samples.iter().enumerate().map(cell).collect();
    let (metric, unit) = (m.name.clone(), m.unit.clone());
    Line { metric, unit, better: m.better, primary: m.primary, cells }
}

impl Rule {
    fn band(self) -> Interval {
        Interval { low: 1.0 - self.band, high: 1.0 + self.band }
    }
}

impl Compared {
    fn decide(&self, rule: Rule, m: &Row, simulated: bool, base: &[f64], new: &[f64]) -> Verdict {
        let equal = all_equal(base, base[0]) && all_equal(new, base[0]);
        if equal || (simulated && base == new) {
            return Verdict::Same;
        }
        let shown = match self.p_holm {
            _ if self.exact => !rule.band().contains(self.ratio),
            _ if !m.primary => return Verdict::Unjudged,
            None => false,
            Some(p) => p < ALPHA && self.interval.is_some_and(|i| i.apart(rule.band())),
        };
        let (base, new) = (median(base), median(new));
        match m.better {
            _ if !shown || base == new => Verdict::Nothing,
            Better::Lower if new < base => Verdict::Better,
            Better::Higher if new > base => Verdict::Better,
            _ => Verdict::Worse,
        }
    }

    /// Estimates the number of samples on each side that would show the observed difference, if
    /// each test has this level.
    fn needed(&self, rule: Rule, level: f64, base: &[f64], new: &[f64]) -> Option<u64> {
        if self.exact || rule.band().contains(self.ratio) {
            return None;
        }
        let fewest = fewest_for_test(level);
        let Some(p) = self.p_holm else { return Some(fewest) };
        let (least, most) = (base.len().min(new.len()), base.len().max(new.len()));
        let of_test = if p < ALPHA { 0.0 } else { samples_for_test(base, new, level)? };
        let of_interval = samples_for_interval(least, self.ratio, self.interval?, rule.band)?;
        // The samples there are do not suffice, whatever the estimate.
        let estimate = of_test.max(of_interval).ceil() as u64;
        Some(estimate.max(fewest).max(most as u64 + 1))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "=",
            Verdict::Nothing => "~",
            Verdict::Unjudged => "",
        })
    }
}

fn change(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:+.2}%", 100.0 * (ratio - 1.0)) } else { "from 0".into() }
}

/// Number of samples above which a table does not say how many are needed.
const MOST_NEEDED: u64 = 100_000;

impl Compared {
    /// Returns the p value as text; empty if there was no test.
    pub(crate) fn p_text(&self) -> String {
        match self.p_holm.or(self.p) {
            None => String::new(),
            Some(p) if p < 0.0001 => "p<0.0001".into(),
            Some(p) => format!("p={p:.4}"),
        }
    }

    /// Returns the number of samples needed as text; empty if none is known.
    pub(crate) fn needed_text(&self) -> String {
        match self.needed {
            None => String::new(),
            Some(n) if n > MOST_NEEDED => format!("n>{}", number(MOST_NEEDED as f64)),
            Some(n) => format!("n={}", number(n as f64)),
        }
    }

    fn text(&self) -> String {
        // Identical figures need no further text.
        if self.zero {
            return "-".into();
        }
        if self.verdict == Verdict::Same {
            return "=".into();
        }
        let mut text = change(self.ratio);
        if let Some(i) = self.interval {
            let _ = write!(text, " [{}, {}]", change(i.low), change(i.high));
        }
        let exact = if self.exact { "exact" } else { "" };
        let verdict = self.verdict.to_string();
        for part in [exact, &self.p_text(), &verdict, &self.needed_text()] {
            if !part.is_empty() {
                let _ = write!(text, " {part}");
            }
        }
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid: Vec<Vec<String>> = vec![vec!["median [95% interval]".into()]];
        for (i, name) in self.columns.iter().enumerate() {
            grid[0].push(name.clone());
            if i > 0 {
                grid[0].push("change".into());
            }
        }
        for line in &self.lines {
            let better = if line.better == Better::Lower { "lower" } else { "higher" };
            let unit =
                if line.unit.is_empty() { String::new() } else { format!("{}, ", line.unit) };
            let indent = if line.primary { "" } else { "  " };
            let mut row = vec![format!("{indent}{} ({unit}{better} is better)", line.metric)];
            for (i, cell) in line.cells.iter().enumerate() {
                row.push(cell.text());
                if i > 0 {
                    row.push(cell.compared.as_ref().map_or("-".into(), Compared::text));
                }
            }
            grid.push(row);
        }
        grid::print(f, &grid, Layout { headings: 1, together: 2 })?;
        self.legend().iter().try_for_each(|line| wrapped(f, line, "  "))
    }
}

impl Cell {
    fn text(&self) -> String {
        if self.n == 0 {
            return "-".into();
        }
        let mut text = number(self.median);
        if let Some(i) = self.interval {
            let _ = write!(text, " [{}, {}]", number(i.low), number(i.high));
        }
        text
    }
}

impl Table {
    /// Returns the lines below the table, which explain its marks.
    pub(crate) fn legend(&self) -> Vec<String> {
        let cells = || self.lines.iter().flat_map(|l| &l.cells);
        let compared = || cells().filter_map(|c| c.compared.as_ref());
        let band = format!("±{}%", 100.0 * self.rule.band);
        let n: Vec<usize> = cells().map(|c| c.n).filter(|n| *n > 0).collect();
        let (least, most) = (n.iter().min().unwrap_or(&0), n.iter().max().unwrap_or(&0));
        let samples = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        let plural = if *most == 1 { "" } else { "s" };
        let mut first = format!("{samples} sample{plural} each");
        if self.columns.len() > 1 {
            first += &format!("; changes are relative to {}", self.columns[0]);
        }
        let mut lines = Vec::new();
        if self.comparisons > 0 {
            let n = self.comparisons;
            first += &format!(
                "; p: Mann-Whitney, corrected by Holm over {n} {}; intervals of changes by \
                 bootstrap, seed {}",
                if n == 1 {
                    "comparison of a primary metric"
                } else {
                    "comparisons of primary metrics"
                },
                self.rule.seed
            );
            lines.push(format!(
                "a change is reported where p < {ALPHA} and its whole interval is outside {band}; \
                 ~: no change shown"
            ));
        }
        lines.insert(0, first);
        if compared().any(|c| c.needed.is_some()) {
            lines.push(format!(
                "n=: samples on each side that would show a difference as large as this one, with \
                 {}% probability",
                100.0 * POWER
            ));
        }
        if compared().any(|c| c.verdict == Verdict::Unjudged) {
            lines.push(
                "indented: metrics that explain a result; their p is not corrected, and no change \
                 is claimed"
                    .into(),
            );
        }
        if compared().any(|c| c.exact && c.verdict != Verdict::Same) {
            lines.push(format!(
                "exact: simulated results that vary on neither side; a change is reported outside \
                 {band}"
            ));
        }
        if compared().any(|c| c.verdict == Verdict::Same && !c.zero) {
            lines.push("=: identical".into());
        }
        if compared().any(|c| c.zero) || cells().any(|c| c.n == 0) {
            lines.push("-: nothing was counted, or the column does not have the metric".into());
        }
        if *least < 6 {
            lines.push("with fewer than six samples a median has no interval".into());
        }
        lines
    }
}
