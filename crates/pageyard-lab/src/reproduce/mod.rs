//! The experiments of the seeds, each with what was published beside what is found here (spec
//! Appendix A).
//!
//! An experiment is a file that says what was measured, on what, and which run of ours stands for
//! it. No number is fitted to one of them: all share one cost model
//! ([`pageyard_machine::costs`]), and [`sensitivity`] says which of its numbers moves which result.

mod agree;
mod auto_tuning;
mod bulk_free;
pub mod fast_path;
mod hygiene;
mod recalculate;
mod regression;
pub mod sensitivity;
mod simulated;
mod text;
mod truth;

use std::fmt;
use std::path::PathBuf;

use pageyard_machine::costs::Costs;
use serde::Serialize;

use crate::replay::ReplayError;
use crate::workload::WorkloadError;

pub use agree::{Agreement, Column, Kind};

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
    run: fn(&mut Run<'_>) -> Result<Outcome, ReproduceError>,
}

/// All experiments, in the order of the seeds.
pub const EXPERIMENTS: &[Experiment] = &[
    bulk_free::EXPERIMENT,
    fast_path::EXPERIMENT,
    hygiene::EXPERIMENT,
    auto_tuning::EXPERIMENT,
    recalculate::EXPERIMENT,
    regression::EXPERIMENT,
    truth::EXPERIMENT,
];

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Figures.
    pub tables: Vec<Comparison>,
    /// Statements that are not figures.
    pub claims: Vec<Claim>,
    /// What to know when reading them.
    pub notes: Vec<String>,
}

/// Published figures beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What was measured.
    pub title: String,
    /// Where ours are from, such as `simulated 2x56, seed 1`.
    pub world: String,
    /// The command that does the same run by itself, where there is one.
    pub command: String,
    /// Whose the figures are: the first of each column, and the second.
    pub sides: [&'static str; 2],
    /// Steps, machines, sizes: the first is what others are held against.
    pub rows: Vec<String>,
    /// The quantities.
    pub columns: Vec<Column>,
}

/// Published, and found here.
const SIDES: [&str; 2] = ["seed", "ours"];

/// A statement, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What was claimed.
    pub text: String,
    /// What was found here.
    pub found: String,
    /// Whether it holds; `None` where this run cannot say.
    pub holds: Option<bool>,
}

/// An experiment's outcome, with what is needed to repeat it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What was claimed.
    pub summary: &'static str,
    /// Where the published figures are from.
    pub source: &'static str,
    /// Pageyard's version.
    pub version: &'static str,
    /// The seed.
    pub seed: u64,
    /// Runs of each workload.
    pub iterations: u32,
    /// How much of the work was done.
    pub scale: Scale,
    /// Costs that are not the default, in picoseconds.
    pub costs: Vec<(&'static str, u64)>,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Why an experiment could not be run.
#[derive(Debug)]
pub enum ReproduceError {
    /// There is no such experiment.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It cannot be run here, though others can.
    Unavailable {
        /// Its name.
        experiment: &'static str,
        /// Why, and what helps.
        why: String,
    },
    /// Instructions could not be counted.
    Count(String),
    /// Its workload could not be run.
    Workload(WorkloadError),
    /// It names a policy that there is not.
    Policy(ReplayError),
    /// It names a machine that is not shipped.
    Machine(pageyard_machine::spec::SpecError),
    /// The heap of the hygiene run could not be made.
    Hygiene(crate::hygiene::HygieneError),
    /// An allocator could not be made.
    Init(pageyard::InitError),
}

impl fmt::Display for ReproduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReproduceError::Unknown { name, known } => {
                write!(f, "no experiment {name}; there are {known}, and all")
            }
            ReproduceError::Unavailable { experiment, why } => write!(f, "{experiment}: {why}"),
            ReproduceError::Count(why) => f.write_str(why),
            ReproduceError::Workload(e) => e.fmt(f),
            ReproduceError::Policy(e) => e.fmt(f),
            ReproduceError::Machine(e) => e.fmt(f),
            ReproduceError::Hygiene(e) => e.fmt(f),
            ReproduceError::Init(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReproduceError {}

macro_rules! from {
    ($($error:ty => $variant:ident,)*) => {$(
        impl From<$error> for ReproduceError {
            fn from(e: $error) -> Self {
                ReproduceError::$variant(e)
            }
        }
    )*};
}

from! {
    WorkloadError => Workload,
    ReplayError => Policy,
    pageyard_machine::spec::SpecError => Machine,
    crate::hygiene::HygieneError => Hygiene,
    pageyard::InitError => Init,
}

/// Hears what is being run, and how far it is.
pub type Tell<'t> = dyn FnMut(&str, u64, u64) + 't;

/// An experiment under way.
struct Run<'r> {
    options: &'r Options,
    tell: &'r mut Tell<'r>,
}

/// The experiment of this name.
///
/// # Errors
/// [`ReproduceError::Unknown`] lists those there are.
pub fn by_name(name: &str) -> Result<Experiment, ReproduceError> {
    EXPERIMENTS.iter().find(|e| e.name == name).copied().ok_or_else(|| ReproduceError::Unknown {
        name: name.to_owned(),
        known: EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })
}

/// Runs an experiment. `tell` hears what is under way: its name, how many runs of it are done, of
/// how many.
///
/// # Errors
/// [`ReproduceError`].
pub fn run(
    experiment: &Experiment,
    options: &Options,
    tell: &mut Tell<'_>,
) -> Result<Report, ReproduceError> {
    let mut forward = |what: &str, at, all| tell(what, at, all);
    let outcome = (experiment.run)(&mut Run { options, tell: &mut forward })?;
    Ok(Report {
        experiment: experiment.name,
        summary: experiment.summary,
        source: experiment.source,
        version: env!("CARGO_PKG_VERSION"),
        seed: options.seed,
        iterations: options.iterations,
        scale: options.scale,
        costs: options.costs.changed(),
        outcome,
    })
}
