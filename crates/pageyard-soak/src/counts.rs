//! Results of a soak.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::found::Found;

/// How often each operation was run, by name, and other counters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    /// Returns the count for a name, or 0.
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

/// A failure and where it was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The seed of the soak.
    pub seed: u64,
    /// Index of the phase in the soak.
    pub phase: u64,
    /// A description of the phase.
    pub configuration: String,
    /// The failure.
    pub found: Found,
}

/// The result of a soak.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The start of all random choices.
    pub seed: u64,
    /// Number of threads that allocated.
    pub threads: usize,
    /// The maximum number of bytes of memory in the yards of a phase.
    pub size: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// Number of completed phases.
    pub phases: u64,
    /// Counts of operations.
    pub counts: Counts,
    /// The failure that ended the soak, if any.
    pub found: Option<Finding>,
}
