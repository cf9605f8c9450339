//! Pageyard's own table (§10): medians with their intervals, and changes only where they are
//! significant.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::set::{Row, Set};
use crate::result::Better;
use crate::stats::{Interval, holm, mann_whitney, median, median_interval, ratio, ratio_interval};

/// Significance level: a difference counts if its p value, corrected for all comparisons of a
/// table, is below this.
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
    /// Number of comparisons that Holm's correction covers.
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
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One metric of one column.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Number of samples.
    pub n: usize,
    /// Their median.
    pub median: f64,
    /// The 95 % confidence interval of the median; `None` for fewer than six samples.
    pub interval: Option<Interval>,
    /// The comparison with the base; `None` in the base's own column.
    pub compared: Option<Compared>,
}

/// A column against the base.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// New over base, of medians. Infinite if only the base is 0; JSON has null for it.
    pub ratio: f64,
    /// The ratio's 95 % bootstrap interval; `None` with fewer than two samples on a side.
    pub interval: Option<Interval>,
    /// Whether two simulated figures were compared exactly.
    pub exact: bool,
    /// The two-sided Mann-Whitney p value; `None` with fewer than two samples on a side.
    pub p: Option<f64>,
    /// The p value, corrected for all comparisons of the table.
    pub p_holm: Option<f64>,
    /// The conclusion.
    pub verdict: Verdict,
}

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A change for the better.
    Better,
    /// A change for the worse.
    Worse,
    /// Simulated results that are identical.
    Same,
    /// No significant change.
    Nothing,
}

impl Table {
    /// Compares every column with the first.
    ///
    /// A change is claimed if the corrected p value is below 0.05 and the whole interval of the
    /// ratio lies outside the band. Single figures of simulated runs are compared exactly: they
    /// contain no noise, so any difference is real. More seeds show whether it comes from the
    /// policy or from the seed.
    pub fn new(set: &Set, rule: Rule) -> Table {
        Table::build(set, rule, false)
    }

    /// Builds the table. With `verdicts`, leaves out intervals that do not affect a verdict.
    pub(super) fn build(set: &Set, rule: Rule, verdicts: bool) -> Table {
        let simulated = set.simulated();
        let mut lines: Vec<Line> = set.metrics.iter().map(|m| line(m, simulated)).collect();
        let tested = |c: &Cell| c.compared.as_ref().and_then(|c| c.p);
        let p: Vec<f64> = lines.iter().flat_map(|l| &l.cells).filter_map(tested).collect();
        let corrected = holm(&p);
        let mut next = corrected.iter();
        let mut draws = rule.seed;
        for (line, m) in lines.iter_mut().zip(&set.metrics) {
            for (cell, samples) in line.cells.iter_mut().zip(&m.samples) {
                let Some(c) = &mut cell.compared else { continue };
                // A separate seed for each comparison keeps them independent.
                draws = draws.wrapping_add(1);
                if c.p.is_some() {
                    c.p_holm = next.next().copied();
                }
                if !verdicts || c.p_holm.is_some_and(|p| p < ALPHA) {
                    c.interval = ratio_interval(&m.samples[0], samples, draws);
                }
                c.verdict = c.decide(rule, m.better, simulated, &m.samples[0], samples);
            }
        }
        let columns = set.columns.iter().map(|c| c.name.clone()).collect();
        Table { rule, comparisons: p.len(), columns, lines }
    }

    /// Returns the table as rows of text: a header, then one row per metric and column.
    pub fn records(&self) -> Vec<Vec<String>> {
        const HEADER: [&str; 14] = [
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
        ];
        let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        let ends = |i: Option<Interval>| [number(i.map(|i| i.low)), number(i.map(|i| i.high))];
        let mut records = vec![HEADER.map(String::from).to_vec()];
        for line in &self.lines {
            for (column, cell) in self.columns.iter().zip(&line.cells) {
                let c = cell.compared.as_ref();
                let mut record = vec![line.metric.clone(), line.unit.clone()];
                record.push(format!("{:?}", line.better).to_lowercase());
                record.extend([column.clone(), cell.n.to_string(), cell.median.to_string()]);
                record.extend(ends(cell.interval));
                record.push(number(c.map(|c| c.ratio)));
                record.extend(ends(c.and_then(|c| c.interval)));
                record.extend([number(c.and_then(|c| c.p)), number(c.and_then(|c| c.p_holm))]);
                record.push(c.map_or(String::new(), |c| c.verdict.to_string()));
                records.push(record);
            }
        }
        records
    }
}

fn line(m: &Row, simulated: bool) -> Line {
    let base = &m.samples[0];
    let cell = |(i, samples): (usize, &Vec<f64>)| {
        let exact = simulated && base.len() == 1 && samples.len() == 1;
        let compared = (i > 0).then(|| Compared {
            ratio: ratio(median(base), median(samples)),
            interval: None,
            exact,
            // A single sample cannot reach 0.05, and would weaken the correction for the others.
            p: (base.len() > 1 && samples.len() > 1).then(|| mann_whitney(base, samples)),
            p_holm: None,
            verdict: Verdict::Nothing,
        });
        let interval = median_interval(samples);
        Cell { n: samples.len(), median: median(samples), interval, compared }
    };
    let cells = m.samples.iter().enumerate().map(cell).collect();
    Line { metric: m.name.clone(), unit: m.unit.clone(), better: m.better, cells }
}

impl Compared {
    fn decide(
        &self,
        rule: Rule,
        better: Better,
        simulated: bool,
        base: &[f64],
        new: &[f64],
    ) -> Verdict {
        if simulated && base == new {
            return Verdict::Same;
        }
        let band = Interval { low: 1.0 - rule.band, high: 1.0 + rule.band };
        let shown = match self.p_holm {
            None => self.exact,
            Some(p) => p < ALPHA && self.interval.is_some_and(|i| i.apart(band)),
        };
        let (base, new) = (median(base), median(new));
        match better {
            _ if !shown || base == new => Verdict::Nothing,
            Better::Lower if new < base => Verdict::Better,
            Better::Higher if new > base => Verdict::Better,
            _ => Verdict::Worse,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "=",
            Verdict::Nothing => "~",
        })
    }
}

/// Formats with five significant digits, or with all integer digits if there are more.
pub(super) fn short(x: f64) -> String {
    let before = if x == 0.0 { 1.0 } else { x.abs().log10().floor() + 1.0 };
    format!("{:.*}", (5.0 - before).clamp(0.0, 12.0) as usize, x)
}

fn change(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:+.2}%", 100.0 * (ratio - 1.0)) } else { "from 0".into() }
}

impl Compared {
    fn text(&self) -> String {
        let mut text = change(self.ratio);
        if let Some(i) = self.interval {
            let _ = write!(text, " [{}, {}]", change(i.low), change(i.high));
        }
        match self.p_holm {
            None if self.exact => text.push_str(" exact"),
            None => {}
            Some(p) if p < 0.0001 => text.push_str(" p<0.0001"),
            Some(p) => _ = write!(text, " p={p:.4}"),
        }
        // Identical figures need no further text.
        if self.verdict == Verdict::Same { "=".into() } else { format!("{text} {}", self.verdict) }
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
            let mut row = vec![format!("{} ({unit}{better} is better)", line.metric)];
            for cell in &line.cells {
                let mut text = short(cell.median);
                if let Some(i) = cell.interval {
                    let _ = write!(text, " [{}, {}]", short(i.low), short(i.high));
                }
                row.push(text);
                row.extend(cell.compared.as_ref().map(Compared::text));
            }
            grid.push(row);
        }
        super::grid::print(f, &grid)?;
        self.legend(f)
    }
}

impl Table {
    /// Returns the legend printed below the table.
    pub(crate) fn legend_text(&self) -> String {
        struct Legend<'t>(&'t Table);
        impl fmt::Display for Legend<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.legend(f)
            }
        }
        Legend(self).to_string().trim_end().replace('\n', "; ")
    }

    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n: Vec<usize> = self.lines.iter().flat_map(|l| &l.cells).map(|c| c.n).collect();
        let (least, most) = (n.iter().min().unwrap_or(&0), n.iter().max().unwrap_or(&0));
        let samples = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        write!(f, "{samples} samples each")?;
        if self.columns.len() > 1 {
            write!(f, "; changes are relative to {}", self.columns[0])?;
        }
        if self.comparisons > 0 {
            write!(
                f,
                "; p: Mann-Whitney, corrected by Holm over {} comparisons; intervals of changes by \
                 bootstrap, seed {}\n\
                 a change is reported where p < {ALPHA} and its whole interval is outside ±{}%; ~: \
                 no change shown",
                self.comparisons,
                self.rule.seed,
                100.0 * self.rule.band
            )?;
        }
        let compared =
            || self.lines.iter().flat_map(|l| &l.cells).filter_map(|c| c.compared.as_ref());
        if compared().any(|c| c.exact) {
            write!(f, "\nexact: single simulated figures, which are deterministic")?;
        }
        if compared().any(|c| c.verdict == Verdict::Same) {
            write!(f, "\n=: identical")?;
        }
        if *least < 6 {
            write!(f, "\nwith fewer than six samples a median has no interval")?;
        }
        writeln!(f)
    }
}
