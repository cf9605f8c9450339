//! What a run measured, as data: what tables are made of, and what is saved as JSON and compared
//! later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::track::Track;

/// One workload, run under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The workload's name.
    pub workload: String,
    /// Its parameters, as they were given or defaulted.
    pub parameters: BTreeMap<String, String>,
    /// The policy's name.
    pub policy: String,
    /// Where it ran.
    pub world: World,
    /// What everything random was drawn from.
    pub seed: u64,
    /// Pageyard's version.
    pub version: String,
    /// What was measured, in the order in which it is to be shown.
    pub metrics: Vec<Metric>,
    /// What happened over time in the first iteration, a track for each point; only where that was
    /// to be recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<Track>,
}

/// Where a workload ran. A simulated result is never to be taken for a measured one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum World {
    /// On a simulated machine of this name, in virtual time.
    Simulated(String),
    /// On this host's threads, by its clock: the machine in words.
    Host(String),
}

/// One quantity, and every sample of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name, a row's label: `elsp-256`. `Duration User` and `Ops Swap Ins` are totals of the
    /// whole run, which the forms of mmtests put into tables of their own.
    pub name: String,
    /// What it is counted in; empty where it is just a number.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// One sample per iteration, in order.
    pub samples: Vec<f64>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, costs.
    Lower,
    /// Rates.
    Higher,
}
