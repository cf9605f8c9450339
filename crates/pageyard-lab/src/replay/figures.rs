//! The figures of a run and of the recording.

use serde::Serialize;

use super::counts::Moved;
use crate::stats;

/// What one policy did with the trace, or what the kernel itself recorded. Pages are base pages. A
/// figure is `None` if the trace does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Figures {
    /// Blocks allocated.
    pub alloc_blocks: u64,
    /// Pages allocated.
    pub alloc_pages: u64,
    /// Blocks freed.
    pub free_blocks: u64,
    /// Pages freed.
    pub free_pages: u64,
    /// Failed requests. For a policy: requests that failed in the kernel too, and requests that the
    /// kernel served but the replay served only after their block was freed, or never.
    pub failed: u64,
    /// Pages taken from the zones, for per-CPU lists or directly for requests (the seed's
    /// *alloc_zone*).
    pub zone_pages: u64,
    /// Pages moved between zones and per-CPU lists.
    #[serde(flatten)]
    pub moved: Moved,
    /// Pages of magazines that went into depots or came out of them: the packed engine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depot_pages: Option<u64>,
    /// Pages that ticks drained.
    pub tick_pages: Option<u64>,
    /// Acquisitions of zone locks for any purpose.
    pub lock_holds: Option<u64>,
    /// Drains caused by a run of high-order frees (the seed's *free_high*).
    pub free_high_drains: Option<u64>,
    /// Pages drained that way.
    pub free_high_pages: Option<u64>,
    /// Claims: blocks of another type converted to the request's type.
    pub claims: u64,
    /// Steals: blocks of another type taken without a claim.
    pub steals: u64,
    /// Blocks allocated in a pageblock of another type.
    pub mismatches: Option<u64>,
    /// Maximum number of pages idle in per-CPU lists.
    pub idle_peak: u64,
    /// Time-weighted mean number of pages idle in per-CPU lists.
    pub idle_mean: f64,
    /// Unusable free space index at order 9 at the end, in thousandths.
    pub unusable_9: Option<u32>,
    /// How the trace's frees were matched to blocks.
    pub matching: Option<Matching>,
}

/// How the trace's frees were matched to blocks in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matching {
    /// Frees in the trace.
    pub frees: u64,
    /// Frees of blocks that are unknown or were already freed.
    pub unmatched: u64,
    /// Frees of blocks that the policy failed to allocate.
    pub of_failed: u64,
    /// Blocks allocated again although the trace has not freed them.
    pub replaced: u64,
    /// Requests that were served below the MIN watermark: those that may wait for reclaim, as the
    /// kernel had waited, and others above half of it.
    pub below_marks: u64,
    /// Requests that may wait for reclaim, found no block at all, and were served after later
    /// frees.
    pub waited: u64,
    /// Requests for more than one page that found no block, and were served after a compaction.
    pub compacted: u64,
    /// Blocks that these compactions moved.
    pub moved: u64,
}

impl Matching {
    /// Returns unmatched frees and allocations, in percent of the frees.
    pub fn percent(&self) -> f64 {
        (self.unmatched + self.replaced) as f64 * 100.0 / self.frees.max(1) as f64
    }
}

/// Minimum, median and maximum of a figure over several seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

impl Range {
    /// Returns the range of at least one value.
    fn of(mut values: Vec<f64>) -> Range {
        values.sort_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        Range { min, median: stats::median(&values), max }
    }
}

/// [`Moved`] over several seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Number of seeds.
    pub seeds: usize,
    /// Pages taken by refills.
    pub refill_pages: Range,
    /// Zone lock holds of refills.
    pub refill_holds: Range,
    /// Pages drained from the lists.
    pub drain_pages: Range,
    /// Zone lock holds of drains.
    pub drain_holds: Range,
}

impl Spread {
    /// Returns the spread of at least one run.
    pub(super) fn of(runs: &[Figures]) -> Spread {
        let range =
            |f: fn(&Moved) -> u64| Range::of(runs.iter().map(|r| f(&r.moved) as f64).collect());
        Spread {
            seeds: runs.len(),
            refill_pages: range(|m| m.refill_pages),
            refill_holds: range(|m| m.refill_holds),
            drain_pages: range(|m| m.drain_pages),
            drain_holds: range(|m| m.drain_holds),
        }
    }
}

/// Cost of a replay on a simulated machine, in virtual time. Operations run one after the other, so
/// no CPU ever waits for another. An average is `None` if nothing was counted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Price {
    /// Nanoseconds in the allocator per request or free, ticks and drains included.
    pub operation_ns: Option<f64>,
    /// Mean hold time of the zone locks, in nanoseconds.
    pub hold_ns: Option<f64>,
    /// Share of allocator time with a zone lock held, in percent.
    pub held_percent: Option<f64>,
    /// Share of the touched descriptor cache lines that missed every cache of the CPU's complex, in
    /// percent.
    pub miss_percent: Option<f64>,
}
