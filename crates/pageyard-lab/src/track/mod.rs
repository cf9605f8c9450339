//! The course of a run as data: per-CPU lists, zone locks and the heap over time, and the latency
//! of requests.
//!
//! A track is recorded only on request. Its size is bounded whatever the length of the run: samples
//! are taken at a fixed period. When there are too many samples, every other one is dropped and the
//! period doubles.

mod heap;
mod lists;
mod series;
mod tracker;

use serde::{Deserialize, Serialize};

use series::{as_many, ascending};

pub use heap::{Cell, HeapTrack};
pub(crate) use lists::keep_common;
pub(crate) use tracker::{Bounds, Heap, List, Now, PER_LIST, Tracker, ZoneNow, ZoneOf};

/// One run of one policy over time. Times are nanoseconds since the measured part began, in virtual
/// time if the run was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// The workload's point that was run; empty if there is only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub point: String,
    /// Duration of the run.
    pub elapsed_ns: u64,
    /// Time between samples. The last sample may come earlier.
    pub period_ns: u64,
    /// Time of each sample, from 0 to the end.
    pub times_ns: Vec<u64>,
    /// Per-CPU lists that were active, here or in another track of the same work, ordered by CPU.
    pub lists: Vec<ListTrack>,
    /// Number of less busy lists, active in this or another track of the same work, that are left
    /// out.
    pub lists_left_out: u64,
    /// The zones' free pages; empty if they were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneTrack>,
    /// Waiting for zone locks; `None` if the run has no time in which a CPU could wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_wait: Option<WaitTrack>,
    /// The heap.
    pub heap: HeapTrack,
    /// Latency of requests; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// One CPU's lists of one zone over time. Each series has one value for each of the track's times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTrack {
    /// The CPU.
    pub cpu: u32,
    /// The zone's node.
    pub node: u16,
    /// The zone's name.
    pub zone: String,
    /// `high`, in base pages, at each time; empty if it is not recorded.
    pub high: Vec<i64>,
    /// Base pages on the lists at each time.
    pub count: Vec<i64>,
    /// Refills since the previous time.
    pub refills: Vec<u64>,
    /// Bulk frees since the previous time.
    pub drains: Vec<u64>,
}

/// One zone's free pages over time. Each series has one value for each of the track's times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneTrack {
    /// The zone's node.
    pub node: u16,
    /// The zone's name.
    pub zone: String,
    /// Free pages.
    pub free: Vec<u64>,
    /// The watermark MIN, boosts included.
    pub min: Vec<u64>,
    /// The watermark LOW.
    pub low: Vec<u64>,
    /// The watermark HIGH.
    pub high: Vec<u64>,
    /// By order: pages in free blocks of this order.
    pub pages_by_order: Vec<Vec<u64>>,
}

/// Time spent waiting for zone locks, all zones together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitTrack {
    /// Total waiting time of each CPU, in nanoseconds.
    pub by_cpu_ns: Vec<u64>,
    /// Mean number of waiting CPUs since the previous time; one value for each of the track's
    /// times.
    pub waiting_cpus: Vec<f64>,
}

/// Latency of requests: all single requests that the workload made in the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Number of requests.
    pub requests: u64,
    /// Median. Like all quantiles it is accurate to 6 %.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The non-empty buckets, in ascending order; sixteen buckets per power of two.
    pub buckets: Vec<Bucket>,
}

/// Requests of similar latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Lower bound of the bucket, in nanoseconds.
    pub from_ns: u64,
    /// Number of requests in the bucket.
    pub requests: u64,
    /// Number of requests in this bucket and all higher ones.
    pub at_least: u64,
}

impl Track {
    /// Checks that the track has the form that a run records: each series has one value for each of
    /// its times, and all maps have one size.
    ///
    /// # Errors
    /// Returns what is wrong, and where in the track.
    pub(crate) fn check(&self) -> Result<(), String> {
        let times = self.times_ns.len();
        ascending("times_ns", &self.times_ns)?;
        for (i, l) in self.lists.iter().enumerate() {
            if !l.high.is_empty() {
                as_many(&format!("lists/{i}/high"), l.high.len(), times)?;
            }
            let series = [
                ("count", l.count.len()),
                ("refills", l.refills.len()),
                ("drains", l.drains.len()),
            ];
            for (name, n) in series {
                as_many(&format!("lists/{i}/{name}"), n, times)?;
            }
        }
        for (i, z) in self.zones.iter().enumerate() {
            let series = [("free", &z.free), ("min", &z.min), ("low", &z.low), ("high", &z.high)];
            for (name, values) in series {
                as_many(&format!("zones/{i}/{name}"), values.len(), times)?;
            }
            for (order, values) in z.pages_by_order.iter().enumerate() {
                as_many(&format!("zones/{i}/pages_by_order/{order}"), values.len(), times)?;
            }
        }
        if let Some(wait) = &self.zone_wait {
            as_many("zone_wait/waiting_cpus", wait.waiting_cpus.len(), times)?;
            if let Some(i) = wait.waiting_cpus.iter().position(|n| !n.is_finite() || *n < 0.0) {
                return Err(format!("zone_wait/waiting_cpus/{i} is not a number of CPUs"));
            }
        }
        self.heap.check()
    }
}

impl Latency {
    pub(crate) fn of(times: &pageyard_machine::Histogram) -> Latency {
        let mut at_least = times.total();
        let buckets = times.buckets().map(|(from_ns, requests)| {
            let bucket = Bucket { from_ns, requests, at_least };
            at_least -= requests;
            bucket
        });
        Latency {
            buckets: buckets.collect(),
            requests: times.total(),
            p50_ns: times.quantile(500),
            p99_ns: times.quantile(990),
            p999_ns: times.quantile(999),
        }
    }
}
