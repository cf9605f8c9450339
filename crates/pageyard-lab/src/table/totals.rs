//! mmtests' tables of whole-run totals: seconds, and the machine's counters.

use std::fmt;

use serde::Serialize;

use super::era::Era;
use super::grid::wrapped;
use super::layout;
use super::role::{DURATION, OPS};
use super::set::{Row, Set};

/// Both tables. They have no percentages and no stars.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    /// User, System, Elapsed: seconds of the whole run, including the workload's setup.
    pub duration: Vec<Total>,
    /// One per counter: its value after the run minus its value before.
    pub ops: Vec<Total>,
    #[serde(skip)]
    era: Era,
}

/// One row of totals.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// The name, without the table's prefix.
    pub name: String,
    /// A value for each column; the mean if runs were merged.
    pub values: Vec<f64>,
}

impl Totals {
    pub(super) fn new(set: &Set, era: Era) -> Totals {
        let of = |prefix: &str| {
            let total = |m: &Row| {
                let name = m.name.strip_prefix(prefix)?.to_owned();
                let mean = |s: &Vec<f64>| s.iter().sum::<f64>() / s.len() as f64;
                Some(Total { name, values: m.samples.iter().map(mean).collect() })
            };
            set.metrics.iter().filter_map(total).collect()
        };
        Totals { duration: of(DURATION), ops: of(OPS), era }
    }

    /// Prints the non-empty tables; with `after`, preceded by a blank line.
    pub(super) fn print(
        &self,
        f: &mut fmt::Formatter<'_>,
        names: &[&str],
        mut after: bool,
    ) -> fmt::Result {
        // The published tables of 2019 have widths 12 and then 13; the snapshot of 2026 has 18.
        let duration = if self.era == Era::Mmtests2019 { [12, 13] } else { [18, 18] };
        let tables = [(DURATION, &self.duration, duration), (OPS, &self.ops, [15, 15])];
        for (kind, totals, [first, others]) in tables {
            if totals.is_empty() {
                continue;
            }
            if after {
                writeln!(f)?;
            }
            after = true;
            let m = totals.iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
            let widths = layout::widths(names, first, others);
            let margin = kind.len() + m;
            for (i, block) in layout::blocks(f, margin, &widths).into_iter().enumerate() {
                if i > 0 {
                    writeln!(f)?;
                }
                let widths = &widths[block.clone()];
                layout::header(f, margin, &names[block.clone()], widths)?;
                for t in totals {
                    let mut text = format!("{kind}{:m$}", t.name);
                    for (value, width) in t.values[block.clone()].iter().zip(widths) {
                        text += &format!("{value:width$.2}");
                    }
                    wrapped(f, &text, "  ")?;
                }
            }
        }
        Ok(())
    }
}
