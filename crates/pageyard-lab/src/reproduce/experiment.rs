//! An experiment and its options.

use std::path::PathBuf;

use pageyard_machine::costs::Costs;
use serde::Serialize;

use super::anchor::Anchor;
use super::error::ReproduceError;
use super::outcome::Outcome;

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

/// Receives the name and the progress of the current run.
pub type Progress<'t> = dyn FnMut(&str, u64, u64) + 't;

/// A running experiment.
pub(super) struct Run<'r> {
    pub(super) options: &'r Options,
    pub(super) progress: &'r mut Progress<'r>,
}
