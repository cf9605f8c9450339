//! Errors of experiments.

use std::fmt;

use crate::policies::PolicyError;
use crate::workload::WorkloadError;

/// Why an experiment could not run.
#[derive(Debug)]
pub enum ReproduceError {
    /// There is no experiment of this name.
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The experiment cannot run here, though others can.
    Unavailable {
        /// The experiment's name.
        experiment: &'static str,
        /// The reason, and the fix.
        why: String,
    },
    /// Instructions could not be counted.
    Count(String),
    /// The workload could not run.
    Workload(WorkloadError),
    /// The experiment names an unknown policy.
    Policy(PolicyError),
    /// The experiment names a machine that is not shipped.
    Machine(pageyard_machine::spec::SpecError),
    /// The heap of the hygiene run could not be initialised.
    Hygiene(crate::hygiene::HygieneError),
    /// An allocator could not be initialised.
    Init(pageyard::InitError),
}

impl fmt::Display for ReproduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReproduceError::Unknown { name, known } => {
                write!(f, "unknown experiment {name}; expected one of {known}, or all")
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
    PolicyError => Policy,
    pageyard_machine::spec::SpecError => Machine,
    crate::hygiene::HygieneError => Hygiene,
    pageyard::InitError => Init,
}
