//! Before and after with a plain change (seed 3, A.3): the sign is that of the figure, regardless
//! of which direction is better.

use std::fmt;

use serde::Serialize;

use super::Aggregate;
use super::convention::Convention;
use super::grid::Layout;
use super::layout::zero;
use super::set::Set;
use crate::stats::Samples;

/// A table of changes.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The meaning of a percentage.
    pub convention: Convention,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows.
    pub lines: Vec<Line>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The metric.
    pub metric: String,
    /// The statistic; `None` for a single figure.
    pub aggregate: Option<&'static str>,
    /// One cell per column.
    pub cells: Vec<Cell>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The figure.
    pub value: f64,
    /// Its change from the base; NaN, and null in JSON, if undefined.
    pub percent: f64,
}

impl Table {
    /// Builds one row for the mean or median of each metric, labelled; the mean is followed by the
    /// deviation.
    pub fn new(set: &Set, convention: Convention, aggregate: Aggregate) -> Table {
        let mut lines = Vec::new();
        for m in &set.metrics {
            let mut line = |name: Option<&'static str>, of: &dyn Fn(&[f64]) -> f64| {
                let values: Vec<f64> = m.samples.iter().map(|s| of(s)).collect();
                let cell = |&value: &f64| Cell {
                    value,
                    percent: convention.of(m.better, values[0], value),
                };
                let cells = values.iter().map(cell).collect();
                lines.push(Line { metric: m.name.clone(), aggregate: name, cells });
            };
            if m.samples.iter().all(|s| s.len() == 1) {
                line(None, &|s| s[0]);
                continue;
            }
            line(Some(aggregate.name()), &|s| aggregate.of(s));
            if aggregate == Aggregate::Mean {
                line(Some("stddev"), &|s| Samples::new(s, m.better).stddev());
            }
        }
        let columns = set.columns.iter().map(|c| c.name.clone()).collect();
        Table { convention, columns, lines }
    }

    /// Returns the table as rows of text: a header, then one row per figure.
    pub fn records(&self) -> Vec<Vec<String>> {
        let header = ["metric", "aggregate", "column", "value", "change"];
        let mut records = vec![header.map(String::from).to_vec()];
        for line in &self.lines {
            for (column, cell) in self.columns.iter().zip(&line.cells) {
                records.push(vec![
                    line.metric.clone(),
                    line.aggregate.unwrap_or("value").into(),
                    column.clone(),
                    cell.value.to_string(),
                    cell.percent.to_string(),
                ]);
            }
        }
        records
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |l: &Line| match l.aggregate {
            Some(aggregate) => format!("{} {aggregate}", l.metric),
            None => l.metric.clone(),
        };
        let mut grid = vec![vec![String::new()]];
        grid[0].extend(self.columns.iter().cloned());
        for line in &self.lines {
            let mut row = vec![label(line)];
            for cell in &line.cells {
                let percent = if cell.percent.is_nan() {
                    format!("{:>10}", "-")
                } else {
                    format!("{:+9.2}%", cell.percent)
                };
                row.push(format!("{:.2} ({percent})", zero(cell.value)));
            }
            grid.push(row);
        }
        super::grid::print(f, &grid, Layout::PLAIN)
    }
}
