//! Index tables (seed 4, A.4): one row per policy; the base is 100.

use std::fmt;

use serde::Serialize;

use super::Aggregate;
use super::convention::Convention;
use super::grid::Layout;
use super::set::Set;

/// A table of indices.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The value that represents the samples of a run.
    pub aggregate: Aggregate,
    /// The meaning of a number, except for metrics that are percentages themselves.
    pub convention: Convention,
    /// The metrics, one column each.
    pub metrics: Vec<Heading>,
    /// One line per policy; the base comes first.
    pub lines: Vec<Line>,
}

/// A metric's column.
#[derive(Clone, Debug, Serialize)]
pub struct Heading {
    /// The metric.
    pub metric: String,
    /// Whether its values are printed as they are: indices of percentages make no sense.
    pub plain: bool,
}

/// A policy.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub column: String,
    /// An index or a percentage for each metric; NaN, and null in JSON, if the base is 0.
    pub values: Vec<f64>,
}

impl Table {
    /// Builds the table. Metrics whose unit is `%` are printed as they are.
    pub fn new(set: &Set, aggregate: Aggregate) -> Table {
        let convention = Convention::Index;
        let metrics: Vec<Heading> = set
            .metrics
            .iter()
            .map(|m| Heading { metric: m.name.clone(), plain: m.unit == "%" })
            .collect();
        let line = |(i, column): (usize, &super::Column)| {
            let value = |(m, h): (&super::Row, &Heading)| {
                let (base, new) = (aggregate.of(&m.samples[0]), aggregate.of(&m.samples[i]));
                if h.plain { new } else { convention.of(m.better, base, new) }
            };
            let values = set.metrics.iter().zip(&metrics).map(value).collect();
            Line { column: column.name.clone(), values }
        };
        let lines = set.columns.iter().enumerate().map(line).collect();
        Table { aggregate, convention, metrics, lines }
    }

    /// Returns the table as rows of text: a header, then one row per figure.
    pub fn records(&self) -> Vec<Vec<String>> {
        let header = ["metric", "aggregate", "column", "value", "index"];
        let mut records = vec![header.map(String::from).to_vec()];
        for (i, h) in self.metrics.iter().enumerate() {
            for line in &self.lines {
                records.push(vec![
                    h.metric.clone(),
                    self.aggregate.to_string(),
                    line.column.clone(),
                    line.values[i].to_string(),
                    (!h.plain).to_string(),
                ]);
            }
        }
        records
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = vec![vec![self.aggregate.to_string()], vec![String::new()]];
        for h in &self.metrics {
            let name = if h.plain { format!("{} %", h.metric) } else { h.metric.clone() };
            grid[1].push("-".repeat(name.chars().count()));
            grid[0].push(name);
        }
        for line in &self.lines {
            let number = |x: &f64| if x.is_nan() { "-".into() } else { format!("{x:.1}") };
            let mut row = vec![line.column.clone()];
            row.extend(line.values.iter().map(number));
            grid.push(row);
        }
        super::grid::print(f, &grid, Layout { headings: 2, together: 1 })
    }
}
