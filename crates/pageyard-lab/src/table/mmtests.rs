//! mmtests' compare tables, exactly as published (docs/tables.md, mmtests' figures).

use std::fmt;

use serde::Serialize;

use super::convention::Convention;
use super::era::Era;
use super::grid::wrapped;
use super::layout::{self, zero};
use super::role::is_total;
use super::set::{Row, Set};
use super::totals::Totals;
use crate::result::Better;
use crate::stats::Samples;

/// The rows of a table. A metric with one sample in every column has only its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rows {
    /// Rows of 2022: Min, mean, Stddev, CoeffVar, Max, BAmean-50, -95, -99.
    #[default]
    Multiops,
    /// Rows since 2026-03-04: of the best means only `BAmean.95`, with a dot.
    Multiops2026,
    /// For lists of latencies; the 95th percentile is the row that may be starred.
    Variabletime,
}

/// One statistic: the kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Min,
    Max,
    Mean,
    Stddev,
    CoeffVar,
    /// The mean of the best samples, given as a percentage of all samples.
    Best(usize),
    Percentile(usize),
}
use Statistic::*;

const MULTIOPS: &[Statistic] = &[Min, Mean, Stddev, CoeffVar, Max, Best(50), Best(95), Best(99)];
const MULTIOPS_2026: &[Statistic] = &[Min, Mean, Stddev, CoeffVar, Max, Best(95)];
const VARIABLETIME: &[Statistic] = &[
    Min,
    Percentile(25),
    Percentile(50),
    Percentile(75),
    Percentile(1),
    Percentile(5),
    Percentile(10),
    Percentile(90),
    Percentile(95),
    Percentile(99),
    Max,
    Mean,
    Stddev,
    CoeffVar,
    Best(99),
    Best(95),
    Best(90),
    Best(75),
    Best(50),
    Best(25),
];

impl Rows {
    fn statistics(self) -> &'static [Statistic] {
        match self {
            Rows::Multiops => MULTIOPS,
            Rows::Multiops2026 => MULTIOPS_2026,
            Rows::Variabletime => VARIABLETIME,
        }
    }

    /// Returns the statistic that is compared and may be starred.
    fn starred(self) -> Statistic {
        if self == Rows::Variabletime { Percentile(95) } else { Mean }
    }
}

impl Statistic {
    fn label(self, rows: Rows, era: Era, better: Better) -> String {
        let h = better == Better::Higher;
        // Since 2024-12, deviations of rates are about the harmonic mean, and named accordingly.
        let harmonic = if h && era == Era::Mmtests2024 { "H" } else { "" };
        match self {
            Min => "Min".into(),
            Max => "Max".into(),
            Mean if h => "Hmean".into(),
            Mean => "Amean".into(),
            Stddev => format!("{harmonic}Stddev"),
            CoeffVar => format!("{harmonic}CoeffVar"),
            Best(p) => {
                let dash = if rows == Rows::Multiops2026 { '.' } else { '-' };
                format!("B{}mean{dash}{p}", if h { 'H' } else { 'A' })
            }
            Percentile(25) => "1st-qrtle".into(),
            Percentile(50) => "2nd-qrtle".into(),
            Percentile(75) => "3rd-qrtle".into(),
            Percentile(p) if era == Era::Mmtests2019 => format!("Max-{p}"),
            Percentile(p) => format!("Pctile.{p}"),
        }
    }

    fn of(self, s: &Samples, era: Era, better: Better) -> f64 {
        match self {
            Min => s.min(),
            Max => s.max(),
            Mean => era.mean(s),
            Stddev => era.stddev(s, better),
            CoeffVar => {
                let (sd, mean) = (era.stddev(s, better), era.mean(s));
                if sd.is_nan() || mean == 0.0 { 0.0 } else { 100.0 * sd / mean }
            }
            Best(p) => s.best_mean(p),
            Percentile(p) => s.percentile(p),
        }
    }

    /// Less spread is always better.
    fn better(self, better: Better) -> Better {
        if matches!(self, Stddev | CoeffVar) { Better::Lower } else { better }
    }
}

/// A table in mmtests' form.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The significance rule, by name.
    pub era: Era,
    /// The meaning of a percentage.
    pub convention: Convention,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows in order: by statistic, then by metric.
    pub lines: Vec<Line>,
    /// Whole-run totals, in tables of their own.
    pub totals: Totals,
    /// Digits after the decimal point of a value: 2, unless a metric asks for 4.
    pub precision: usize,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The statistic's label, such as `Amean`.
    pub statistic: String,
    /// The metric, such as `elsp-256`.
    pub metric: String,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The figure; NaN is printed as 0.
    pub value: f64,
    /// Change against the first column; positive is better.
    pub percent: f64,
    /// Whether the difference is considered significant.
    pub star: bool,
}

impl Table {
    /// Builds the table. Metrics named `Duration …` and `Ops …` go to the tables of totals.
    pub fn new(set: &Set, era: Era, rows: Rows, precision: usize) -> Table {
        let columns: Vec<String> = set.columns.iter().map(|c| c.name.clone()).collect();
        let metrics: Vec<(&Row, Vec<Samples>)> = set
            .metrics
            .iter()
            .filter(|m| !is_total(&m.name))
            .map(|m| (m, m.samples.iter().map(|s| Samples::new(s, m.better)).collect()))
            .collect();
        let mut lines = Vec::new();
        for &statistic in rows.statistics() {
            for (m, samples) in &metrics {
                // A single value has no distribution: print only its mean, which is the value.
                let single = samples.iter().all(|s| s.n() == 1);
                if single && statistic != Mean {
                    continue;
                }
                lines.push(Line {
                    statistic: statistic.label(rows, era, m.better),
                    metric: m.name.clone(),
                    cells: cells(statistic, statistic == rows.starred(), era, m.better, samples),
                });
            }
        }
        let totals = Totals::new(set, era);
        Table { era, convention: Convention::PositiveIsBetter, columns, lines, totals, precision }
    }

    /// Returns the table as rows of text: a header, then one row per figure.
    pub fn records(&self) -> Vec<Vec<String>> {
        let header = ["metric", "statistic", "column", "value", "percent", "star"];
        let mut records = vec![header.map(String::from).to_vec()];
        for line in &self.lines {
            for (column, cell) in self.columns.iter().zip(&line.cells) {
                records.push(vec![
                    line.metric.clone(),
                    line.statistic.clone(),
                    column.clone(),
                    cell.value.to_string(),
                    cell.percent.to_string(),
                    cell.star.to_string(),
                ]);
            }
        }
        let totals = self.totals.duration.iter().map(|t| ("Duration", t));
        for (kind, total) in totals.chain(self.totals.ops.iter().map(|t| ("Ops", t))) {
            for (column, value) in self.columns.iter().zip(&total.values) {
                let [none, same] = [String::new(), value.to_string()];
                let (name, kind) = (total.name.clone(), kind.to_string());
                records.push(vec![name, kind, column.clone(), same, none.clone(), none]);
            }
        }
        records
    }
}

fn cells(
    statistic: Statistic,
    may_star: bool,
    era: Era,
    better: Better,
    samples: &[Samples],
) -> Vec<Cell> {
    let base = &samples[0];
    let convention = Convention::PositiveIsBetter;
    let of = |s: &Samples| statistic.of(s, era, better);
    let cell = |(i, s): (usize, &Samples)| {
        let value = of(s);
        let percent = convention.of(statistic.better(better), of(base), value);
        let star = may_star
            && i > 0
            && match statistic {
                Percentile(p) => era.stars_percentiles(base, s, p),
                _ => era.stars_means(base, s, better),
            };
        Cell { value, percent: if i == 0 { 0.0 } else { percent }, star }
    };
    samples.iter().enumerate().map(cell).collect()
}

impl Cell {
    fn text(&self, field: usize, precision: usize) -> String {
        // A NaN value has no percentage either.
        let percent = if self.value.is_nan() { 0.0 } else { zero(self.percent) };
        let (open, close) = if self.star { ('*', '*') } else { ('(', ')') };
        format!("{:field$.precision$} {open}{percent:7.2}%{close}", zero(self.value))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let widest = |of: fn(&Line) -> &str| {
            self.lines.iter().map(|l| of(l).chars().count()).max().unwrap_or(0)
        };
        let (n, m) = (widest(|l| &l.statistic), widest(|l| &l.metric));
        let widths = layout::widths(&names, layout::PERCENT, layout::PERCENT);
        let blocks =
            if self.lines.is_empty() { Vec::new() } else { layout::blocks(f, n + 1 + m, &widths) };
        for (i, block) in blocks.into_iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            let widths = &widths[block.clone()];
            layout::header(f, n + 1 + m, &names[block.clone()], widths)?;
            for line in &self.lines {
                let mut text = format!("{:n$} {:m$}", line.statistic, line.metric);
                for (cell, width) in line.cells[block.clone()].iter().zip(widths) {
                    text += &cell.text(12 + width - layout::PERCENT, self.precision);
                }
                wrapped(f, &text, "  ")?;
            }
        }
        self.totals.print(f, &names, !self.lines.is_empty())
    }
}
