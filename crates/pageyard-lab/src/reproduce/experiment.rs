//! An experiment, and how it is to be run.

use std::path::PathBuf;

use pageyard_machine::costs::Costs;
use serde::Serialize;

use super::error::ReproduceError;
use super::outcome::Outcome;

/// How to run them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Draws everything that is drawn.
    pub seed: u64,
    /// Runs of each simulated workload; figures are their means.
    pub iterations: u32,
    /// How much work is done.
    pub scale: Scale,
    /// What things cost on the simulated machine.
    pub costs: Costs,
    /// The `pageyard` program, which experiments that count instructions run again under valgrind;
    /// without it they are [unavailable](ReproduceError::Unavailable).
    pub program: Option<PathBuf>,
}

/// How much of an experiment's work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// As the recipes have it.
    Full,
    /// Some seconds' worth: the same machines and policies, shorter runs, fewer points.
    Small,
}

/// An experiment that can be reproduced by name.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What was claimed, in a line.
    pub summary: &'static str,
    /// Where the published figures are from.
    pub source: &'static str,
    /// It runs on the simulated machine, whose costs decide its figures.
    pub simulated: bool,
    pub(super) run: fn(&mut Run<'_>) -> Result<Outcome, ReproduceError>,
}

/// Hears what is being run, and how far it is.
pub type Tell<'t> = dyn FnMut(&str, u64, u64) + 't;

/// An experiment under way.
pub(super) struct Run<'r> {
    pub(super) options: &'r Options,
    pub(super) tell: &'r mut Tell<'r>,
}
