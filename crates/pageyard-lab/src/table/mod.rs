//! Tables of results.
//!
//! [`Source`] is a saved file, [`align`] puts several side by side as [`Set`]s, and a [`Report`]
//! formats sets in one of the [`Form`]s: as text, CSV and JSON.
//!
//! ```
//! # fn main() -> Result<(), pageyard_lab::table::TableError> {
//! use pageyard_lab::result::{Better, Metric, RunResult, World};
//! use pageyard_lab::table::{Options, Report, Source, align};
//!
//! let run = |policy: &str, samples: [f64; 6]| RunResult {
//!     workload: "trunc".into(),
//!     parameters: [].into(),
//!     policy: policy.into(),
//!     world: World::Simulated("desktop".into()),
//!     seed: 1,
//!     version: "0.1.0".into(),
//!     metrics: vec![Metric {
//!         name: "elapsed".into(),
//!         unit: "ms".into(),
//!         better: Better::Lower,
//!         samples: samples.map(Some).to_vec(),
//!     }],
//!     lines: None,
//!     tracks: Vec::new(),
//! };
//! let results =
//!     vec![run("Base", [9., 8., 9., 8., 9., 8.]), run("Step5", [4., 5., 4., 5., 4., 5.])];
//! let sets = align(&[Source { name: "this run".into(), results }])?;
//! let text = Report::new(&sets, &Options::default()).to_string();
//! assert!(text.contains("simulated on desktop") && text.contains("better"));
//! # Ok(())
//! # }
//! ```

mod aa;
mod change;
mod convention;
mod era;
mod error;
mod grid;
mod index;
mod layout;
mod mmtests;
mod ops;
mod ours;
mod replayed;
mod report;
mod role;
mod select;
mod series;
mod set;
mod source;
mod tab;
mod totals;

pub use aa::{FalseAlarms, Rate, false_alarms};
pub use change::Table as ChangeTable;
pub use convention::Convention;
pub use era::Era;
pub use error::TableError;
pub use index::Table as IndexTable;
pub use mmtests::{Rows, Table as MmtestsTable};
pub use ops::ops;
pub use ours::{Rule, Table as OurTable, Verdict};
pub use report::{Form, Options, Printed, Report, Titled};
pub use select::Selection;
pub use series::Table as SeriesTable;
pub use set::{Column, Partial, Row, Set, align};
pub use source::Source;
pub use tab::tsv;
pub use totals::{Total, Totals};

pub(crate) use grid::wrapped_lines;

use serde::Serialize;

use crate::stats::median;

/// The single value that represents all samples of a run, in forms with room for only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregate {
    /// The arithmetic mean.
    #[default]
    Mean,
    /// The median.
    Median,
}

impl Aggregate {
    fn of(self, samples: &[f64]) -> f64 {
        match self {
            Aggregate::Mean => samples.iter().sum::<f64>() / samples.len() as f64,
            Aggregate::Median => median(samples),
        }
    }

    /// Returns `mean` or `median`.
    pub fn name(self) -> &'static str {
        match self {
            Aggregate::Mean => "mean",
            Aggregate::Median => "median",
        }
    }
}

impl std::fmt::Display for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
