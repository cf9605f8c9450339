//! An experiment and its options.

use std::path::PathBuf;

use pageyard_machine::costs::Costs;
use serde::Serialize;

use super::anchor::Anchor;
use super::error::ReproduceError;
use super::outcome::{Comparison, Outcome};

/// Options of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seeds all random draws.
    pub seed: u64,
    /// Runs of each simulated workload; figures are means over them.
    pub iterations: u32,
    /// How much work to do.
    pub scale: Scale,
    /// The cost model of the simulated machine.
    pub costs: Costs,
    /// Maximum number of simulated runs at once
    /// ([`workload::Options::jobs`](crate::workload::Options::jobs)).
    pub jobs: usize,
    /// The `pageyard` program, which experiments that count instructions run again under valgrind.
    /// Without it these experiments are [unavailable](ReproduceError::Unavailable).
    pub program: Option<PathBuf>,
}

/// How much of an experiment's work to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// The full recipes.
    Full,
    /// A few seconds' worth: the same machines and policies, shorter runs, fewer points.
    Small,
}

/// An experiment that can be reproduced by name.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The published claim, in one line.
    pub summary: &'static str,
    /// Where the published figures are from.
    pub source: &'static str,
    /// Whether it runs on the simulated machine, whose costs determine its figures.
    pub simulated: bool,
    /// Parameters that were derived from its figures.
    pub anchors: &'static [Anchor],
    pub(super) run: fn(&mut Run<'_>) -> Result<Outcome, ReproduceError>,
}

/// Follows a running experiment.
pub trait Watch {
    /// Receives the name of the current part, the number of its completed runs, and the total.
    fn progress(&mut self, part: &str, done: u64, all: u64);

    /// Receives each table of the report, in order, as soon as it is complete.
    ///
    /// # Errors
    /// An error ends the experiment ([`ReproduceError::Output`]).
    fn table(&mut self, table: &Comparison) -> std::io::Result<()> {
        let _ = table;
        Ok(())
    }
}

/// Watches nothing.
impl Watch for () {
    fn progress(&mut self, _: &str, _: u64, _: u64) {}
}

/// A running experiment.
pub(super) struct Run<'r> {
    pub(super) options: &'r Options,
    pub(super) watch: &'r mut dyn Watch,
    /// Number of tables that were passed to `watch`.
    shown: usize,
}

impl<'r> Run<'r> {
    pub(super) fn new(options: &'r Options, watch: &'r mut dyn Watch) -> Run<'r> {
        Run { options, watch, shown: 0 }
    }

    pub(super) fn progress(&mut self, part: &str, done: u64, all: u64) {
        self.watch.progress(part, done, all);
    }

    /// Shows the tables that were not shown yet. Experiments of many minutes call this after each
    /// table; it is called for all of them at the end.
    pub(super) fn show(&mut self, tables: &[Comparison]) -> Result<(), ReproduceError> {
        for table in &tables[self.shown..] {
            self.watch.table(table).map_err(ReproduceError::Output)?;
            self.shown += 1;
        }
        Ok(())
    }
}
