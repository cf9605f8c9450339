//! The measurements of a run as data. Tables are made from it, and it is saved as JSON for later
//! comparison.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::track::Track;

/// A result as JSON: Pageyard's version, then the result's own fields.
#[derive(Debug, Serialize)]
pub struct Versioned<'a, T> {
    version: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

impl<'a, T> Versioned<'a, T> {
    /// Adds the version to a result.
    pub fn of(value: &'a T) -> Self {
        Versioned { version: env!("CARGO_PKG_VERSION"), value }
    }
}

/// One workload, run under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The workload's name.
    pub workload: String,
    /// Its parameters, as given or by default.
    pub parameters: BTreeMap<String, String>,
    /// The policy's name.
    pub policy: String,
    /// The machine on which it ran.
    pub world: World,
    /// The seed of everything random.
    pub seed: u64,
    /// Pageyard's version.
    pub version: String,
    /// The measurements, in the order in which they are shown.
    pub metrics: Vec<Metric>,
    /// What CPUs waited for shared cache lines in the run in which one line took the largest share.
    /// Only of the packed engine on a simulated machine, which prices such lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<SharedLines>,
    /// What happened over time in the first iteration, one track per point. Empty unless tracks
    /// were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<Track>,
}

/// What CPUs waited for cache lines that other cores had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedLines {
    /// By purpose, the largest share first.
    pub parts: Vec<LineShare>,
    /// The lines with the largest shares, the largest first.
    pub busiest: Vec<LineShare>,
}

impl SharedLines {
    /// Returns the share of the busiest line.
    pub fn largest(&self) -> f64 {
        self.busiest.first().map_or(0.0, |line| line.share)
    }
}

/// The waiting for one line, or for the lines of one purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineShare {
    /// The line or the purpose.
    pub name: String,
    /// Its share of the busy time of all CPUs, in percent.
    pub share: f64,
}

/// Where a workload ran. A simulated result must never be mistaken for a measured one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum World {
    /// A simulated machine of this name, in virtual time.
    Simulated(String),
    /// This host's threads and clock; the string describes the machine.
    Host(String),
}

/// One quantity and all its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Name, used as the row's label: `elsp-256`. `Duration User` and `Ops Swap Ins` are totals of
    /// the whole run; the mmtests forms print these in separate tables.
    pub name: String,
    /// Unit; empty for a plain number.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// One sample per iteration, in order. `None`, and null in JSON, if nothing was counted, as for
    /// the mean duration of no holds.
    pub samples: Vec<Option<f64>>,
}

impl Metric {
    /// Returns the samples of iterations that counted something.
    pub fn counted(&self) -> impl Iterator<Item = f64> {
        self.samples.iter().copied().flatten()
    }

    /// Returns the mean of what was counted; `None` if nothing was.
    pub fn mean(&self) -> Option<f64> {
        let n = self.counted().count();
        (n > 0).then(|| self.counted().sum::<f64>() / n as f64)
    }
}

/// Metrics of the lab's own workloads that explain a result: what the allocator and the machine did
/// on the way to it. Metrics with other names are the result itself. A point's label may follow,
/// as in `hits-64`.
pub const EXPLAINING: [&str; 27] = [
    "busy",
    "zone_lock",
    "lru_lock",
    "free_high",
    "zone_pages",
    "miss",
    "line_wait",
    "busiest_line",
    "memory_wait",
    "hits",
    "hold_alloc_avg",
    "hold_alloc_p99",
    "hold_free_avg",
    "hold_free_p99",
    "peak_pcp",
    "peak_memory",
    "idle_memory",
    "block",
    "remote",
    "request_p50",
    "request_p999",
    "request_p9999",
    "request_max",
    "allocator",
    "warm_up",
    "warm_up_time",
    "warm_up_change",
];

/// Returns whether a metric is the one called `name`, whose points have labels: `hits-64` is `hits`.
pub fn is_named(metric: &str, name: &str) -> bool {
    metric.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Lower is better, as for times and costs.
    Lower,
    /// Higher is better, as for rates.
    Higher,
}
