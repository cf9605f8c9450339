//! What was done.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::found::Found;

/// How often each operation was done, by its name, and what else is counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    /// How often something was done.
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

/// What was found, and where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The seed of the soak.
    pub seed: u64,
    /// Which phase of it.
    pub phase: u64,
    /// What that phase consists of.
    pub configuration: String,
    /// What was found.
    pub found: Found,
}

/// How a soak ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where random choices started.
    pub seed: u64,
    /// Threads that allocated.
    pub threads: usize,
    /// Bytes of memory in the yards of a phase at most.
    pub size: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Phases that ended.
    pub phases: u64,
    /// What was done.
    pub counts: Counts,
    /// What was found; the soak ended there.
    pub found: Option<Finding>,
}
