//! The experiments of the seeds, each with the published figures next to ours (spec Appendix A).
//!
//! An experiment is a file that states what was measured, on which machine, and which of our runs
//! reproduces it. All share one cost model ([`pageyard_machine::costs`]), and [`sensitivity`] shows
//! which cost changes which result. Where a parameter was derived from a figure of an experiment, an
//! [`Anchor`] says so, and that figure does not count as agreement.

mod agree;
mod anchor;
mod auto_tuning;
mod bulk_free;
mod error;
mod experiment;
pub mod fast_path;
mod hygiene;
mod outcome;
mod recalculate;
mod regression;
pub mod sensitivity;
mod simulated;
mod text;
mod truth;

use serde::Serialize;

use experiment::Run;

pub use agree::{Agreement, Column, Kind};
pub use anchor::Anchor;
pub use error::ReproduceError;
pub use experiment::{Experiment, Options, Scale, Watch};
pub use outcome::{Claim, Comparison, Outcome};

/// All experiments, in the order of the seeds.
pub const EXPERIMENTS: &[Experiment] = &[
    bulk_free::EXPERIMENT,
    fast_path::EXPERIMENT,
    hygiene::EXPERIMENT,
    auto_tuning::builds::EXPERIMENT,
    auto_tuning::sockets::EXPERIMENT,
    auto_tuning::batches::EXPERIMENT,
    recalculate::EXPERIMENT,
    regression::EXPERIMENT,
    truth::EXPERIMENT,
];

/// An experiment's outcome, with everything needed to repeat it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The published claim.
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
    /// Parameters derived from figures of the experiment.
    pub anchors: &'static [Anchor],
    /// Costs that differ from their defaults, in picoseconds.
    pub costs: Vec<(&'static str, u64)>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Returns the experiment of this name.
///
/// # Errors
/// Returns [`ReproduceError::Unknown`], which lists the known names.
pub fn by_name(name: &str) -> Result<Experiment, ReproduceError> {
    EXPERIMENTS.iter().find(|e| e.name == name).copied().ok_or_else(|| ReproduceError::Unknown {
        name: name.to_owned(),
        known: EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
    })
}

/// Runs an experiment. `watch` follows it; `()` watches nothing.
///
/// # Errors
/// Returns [`ReproduceError`] if the experiment cannot run.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, ReproduceError> {
    let mut run = Run::new(options, watch);
    let outcome = (experiment.run)(&mut run)?;
    run.show(&outcome.tables)?;
    Ok(Report { outcome, ..Report::empty(experiment, options) })
}

impl Report {
    /// Returns the report of an experiment that has not begun.
    pub fn empty(experiment: &Experiment, options: &Options) -> Report {
        Report {
            experiment: experiment.name,
            summary: experiment.summary,
            source: experiment.source,
            version: env!("CARGO_PKG_VERSION"),
            seed: options.seed,
            iterations: options.iterations,
            scale: options.scale,
            anchors: experiment.anchors,
            costs: options.costs.changed(),
            outcome: Outcome::default(),
        }
    }
}
