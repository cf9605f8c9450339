//! The figures of a run, and of the recording.

use serde::Serialize;

use super::counts::{Moved, Recorded};

/// What one policy did with the trace, or what the kernel recorded itself. Pages are base pages.
/// `None`: the trace does not tell.
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
    /// Requests that failed. Of a policy: those that the kernel failed too, and those that it served
    /// and that were not served here until their block was freed, or at all.
    pub failed: u64,
    /// Pages taken from the zones, for per-CPU lists or straight for requests (the seed's
    /// *alloc_zone*).
    pub zone_pages: u64,
    /// Between zones and per-CPU lists.
    #[serde(flatten)]
    pub moved: Moved,
    /// Pages that ticks drained.
    pub tick_pages: Option<u64>,
    /// Times the zone locks were taken for anything.
    pub lock_holds: Option<u64>,
    /// Drains because high-order frees kept coming (the seed's *free_high*).
    pub free_high_drains: Option<u64>,
    /// Pages that they gave back.
    pub free_high_pages: Option<u64>,
    /// Blocks of another type made the request's own.
    pub claims: u64,
    /// Blocks of another type taken without that.
    pub steals: u64,
    /// Blocks handed out in a pageblock of another type.
    pub mismatches: Option<u64>,
    /// Most pages idle in per-CPU lists at once.
    pub idle_peak: u64,
    /// Pages idle in per-CPU lists, mean over the trace's time.
    pub idle_mean: f64,
    /// Unusable free space index at order 9 at the end, in thousandths.
    pub unusable_9: Option<u32>,
    /// How the trace's frees found their blocks.
    pub matching: Option<Matching>,
}

/// How the trace's frees found their blocks in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matching {
    /// Frees in the trace.
    pub frees: u64,
    /// Of blocks of which nothing is known, or freed twice.
    pub unmatched: u64,
    /// Of blocks that the policy had failed to allocate.
    pub of_failed: u64,
    /// Blocks allocated again though the trace has not freed them.
    pub replaced: u64,
    /// Requests that may wait for reclaim, served below the MIN mark: the kernel had waited.
    pub below_marks: u64,
    /// Those for which there was no block at all, served after later frees.
    pub waited: u64,
}

impl Matching {
    /// Frees and allocations that could not be matched, in percent of the frees.
    pub fn percent(&self) -> f64 {
        (self.unmatched + self.replaced) as f64 * 100.0 / self.frees.max(1) as f64
    }
}

impl Figures {
    pub(super) fn recorded(r: &Recorded, moved: Moved, idle: (u64, f64)) -> Figures {
        Figures {
            alloc_blocks: r.alloc_blocks,
            alloc_pages: r.alloc_pages,
            free_blocks: r.free_blocks,
            free_pages: r.free_pages,
            failed: r.failed,
            zone_pages: r.zone_pages,
            moved,
            claims: r.claims,
            steals: r.steals,
            idle_peak: idle.0,
            idle_mean: idle.1,
            ..Figures::default()
        }
    }
}

/// Least, median and greatest of a figure over several seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Greatest.
    pub max: f64,
}

impl Range {
    fn of(mut values: Vec<f64>) -> Range {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
        let median = (at(n / 2) + at(n.saturating_sub(1) / 2)) / 2.0;
        Range { min: at(0), median, max: at(n.saturating_sub(1)) }
    }
}

/// [`Moved`] over several seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// How many seeds.
    pub seeds: usize,
    /// Pages that refills took.
    pub refill_pages: Range,
    /// Holds in which they did.
    pub refill_holds: Range,
    /// Pages that the lists gave back.
    pub drain_pages: Range,
    /// Holds in which they did.
    pub drain_holds: Range,
}

impl Spread {
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

/// What a replay costs on a simulated machine, in virtual time. Operations come one after the other:
/// nobody waits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Price {
    /// Nanoseconds in the allocator for each request and each free, ticks and drains included.
    pub operation_ns: f64,
    /// How long the zones' locks were held each time, on average.
    pub hold_ns: f64,
    /// Of all time in the allocator, that with a zone's lock held, in percent.
    pub held_percent: f64,
    /// Of the lines of descriptors, those that no cache of the complex had, in percent.
    pub miss_percent: f64,
}
