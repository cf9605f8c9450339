//! Series: one row per sample, one column per policy, as in the mail of 2024.

use std::fmt;

use serde::Serialize;

use super::grid::Layout;
use super::set::Set;

/// All samples of all metrics, in order of measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The columns' names.
    pub columns: Vec<String>,
    /// One series per metric.
    pub series: Vec<Series>,
}

/// One metric's samples.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The metric.
    pub metric: String,
    /// By round, then by column; `None` if a column has fewer rounds.
    pub rounds: Vec<Vec<Option<f64>>>,
}

impl Table {
    /// Builds the series in order of measurement.
    pub fn new(set: &Set) -> Table {
        let series = |m: &super::Row| {
            let longest = m.samples.iter().map(Vec::len).max().unwrap_or(0);
            let round = |i| m.samples.iter().map(|s| s.get(i).copied()).collect();
            Series { metric: m.name.clone(), rounds: (0..longest).map(round).collect() }
        };
        Table {
            columns: set.columns.iter().map(|c| c.name.clone()).collect(),
            series: set.metrics.iter().map(series).collect(),
        }
    }

    /// Returns the table as rows of text: a header, then one row per round.
    pub fn records(&self) -> Vec<Vec<String>> {
        let mut records = vec![vec!["series".into(), "round".into()]];
        records[0].extend(self.columns.iter().cloned());
        for s in &self.series {
            for (i, round) in s.rounds.iter().enumerate() {
                let mut record = vec![s.metric.clone(), (i + 1).to_string()];
                // All significant digits, and one decimal place for integers.
                let text = |x: &Option<f64>| x.map_or(String::new(), |x| format!("{x:?}"));
                record.extend(round.iter().map(text));
                records.push(record);
            }
        }
        records
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, s) in self.series.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{}", s.metric)?;
            let mut grid = vec![vec!["round".to_owned()]];
            grid[0].extend(self.columns.iter().cloned());
            for (i, round) in s.rounds.iter().enumerate() {
                let mut row = vec![format!("{:>5}", i + 1)];
                let text = |x: &Option<f64>| x.map_or("-".into(), |x| format!("{x:.1}"));
                row.extend(round.iter().map(text));
                grid.push(row);
            }
            super::grid::print(f, &grid, Layout::PLAIN)?;
        }
        Ok(())
    }
}
