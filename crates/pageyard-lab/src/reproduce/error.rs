//! Errors of experiments.

use crate::policies::PolicyError;
use crate::workload::WorkloadError;

/// Why an experiment could not run.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// There is no experiment of this name.
    #[error("unknown experiment {name}; expected one of {known}, or all")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The experiment cannot run here, though others can.
    #[error("{experiment}: {why}")]
    Unavailable {
        /// The experiment's name.
        experiment: &'static str,
        /// The reason, and the fix.
        why: String,
    },
    /// Instructions could not be counted.
    #[error("{0}")]
    Count(String),
    /// The workload could not run.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The experiment names an unknown policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The experiment names a machine that is not shipped.
    #[error(transparent)]
    Machine(#[from] pageyard_machine::spec::SpecError),
    /// The heap of the hygiene run could not be initialised.
    #[error(transparent)]
    Hygiene(#[from] crate::hygiene::HygieneError),
    /// A table could not be passed on ([`Watch::table`](super::Watch::table)).
    #[error("{0}")]
    Output(#[source] std::io::Error),
    /// An allocator could not be initialised.
    #[error(transparent)]
    Init(#[from] pageyard::InitError),
}
