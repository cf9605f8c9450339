//! What happened in the course of a run, as data: per-CPU lists, zone locks and the heap over
//! time, and how long requests took.
//!
//! A track is recorded only where it was asked for. It is bounded however long the run is: it is
//! sampled at a fixed period, which doubles (every other sample goes) when there are too many.

mod heap;
mod series;
mod tracker;

use serde::{Deserialize, Serialize};

use series::{as_many, ascending};

pub use heap::{Cell, HeapTrack};
pub(crate) use tracker::{Bounds, Heap, List, Now, PER_LIST, Tracker};

/// One run of one policy over time. Times are nanoseconds since the measured part began, virtual
/// where the run was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// Which of the workload's points it is; empty where there is but one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub point: String,
    /// How long it took.
    pub elapsed_ns: u64,
    /// The time from one sample to the next; the last one may come earlier.
    pub period_ns: u64,
    /// When the samples were taken, from 0 to the end.
    pub times_ns: Vec<u64>,
    /// Per-CPU lists that did something, ordered by CPU.
    pub lists: Vec<ListTrack>,
    /// So many lists that did something, the less busy ones, are left out.
    pub lists_left_out: u64,
    /// Waiting for zone locks; `None` where there is no time in which somebody could wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_wait: Option<WaitTrack>,
    /// The heap.
    pub heap: HeapTrack,
    /// How long requests took; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// One CPU's lists of one zone over time; each series has a value for each of the track's times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTrack {
    /// The CPU.
    pub cpu: u32,
    /// The zone's node.
    pub node: u16,
    /// The zone's name.
    pub zone: String,
    /// `high`, in base pages, at each time.
    pub high: Vec<i64>,
    /// Base pages on the lists at each time.
    pub count: Vec<i64>,
    /// Refills since the time before.
    pub refills: Vec<u64>,
    /// Bulk frees since the time before.
    pub drains: Vec<u64>,
}

/// Waiting for zone locks, all zones together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitTrack {
    /// How long each CPU waited in the whole run, in nanoseconds.
    pub by_cpu_ns: Vec<u64>,
    /// How many CPUs waited on average since the time before; one value for each of the track's
    /// times.
    pub waiting_cpus: Vec<f64>,
}

/// How long requests took: all of the run that the workload made, one at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// How many.
    pub requests: u64,
    /// The median; as all quantiles right to 6 %.
    pub p50_ns: u64,
    /// 99 of 100 took no longer than about this.
    pub p99_ns: u64,
    /// 999 of 1,000.
    pub p999_ns: u64,
    /// Those that there were, ascending; sixteen to a power of two.
    pub buckets: Vec<Bucket>,
}

/// Requests that took about as long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The least time of the bucket, in nanoseconds.
    pub from_ns: u64,
    /// How many took that long.
    pub requests: u64,
    /// How many took that long or longer.
    pub at_least: u64,
}

impl Track {
    /// Whether it is as a run records it: each series with a value for each of its times, maps of
    /// one size.
    ///
    /// # Errors
    /// What is wrong, and where in the track.
    pub(crate) fn check(&self) -> Result<(), String> {
        let times = self.times_ns.len();
        ascending("times_ns", &self.times_ns)?;
        for (i, l) in self.lists.iter().enumerate() {
            let series = [
                ("high", l.high.len()),
                ("count", l.count.len()),
                ("refills", l.refills.len()),
                ("drains", l.drains.len()),
            ];
            for (name, n) in series {
                as_many(&format!("lists/{i}/{name}"), n, times)?;
            }
        }
        if let Some(wait) = &self.zone_wait {
            as_many("zone_wait/waiting_cpus", wait.waiting_cpus.len(), times)?;
            if let Some(i) = wait.waiting_cpus.iter().position(|n| !n.is_finite() || *n < 0.0) {
                return Err(format!("zone_wait/waiting_cpus/{i} is no number of CPUs"));
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
