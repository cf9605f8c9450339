//! The metrics of every run: the seeds' columns (A.4), and metrics that explain them.

use pageyard::policy::Engine;
use pageyard::{Config, CpuId, DrainReason, Yard};
use pageyard_machine::{Histogram, LockStats, Stats, part_name};

use super::actor::{Measure, pages_taken};
use super::recipe::Score;
use crate::result::{Better, LineShare, SharedLines};

/// Counters of the whole allocator.
#[derive(Clone, Default, Debug)]
pub(super) struct Counts {
    /// Bulk frees caused by repeated frees of high-order blocks: the seeds' *free_high*.
    free_high: u64,
    /// Base pages that left the zones' free lists: the seeds' *alloc_zone*.
    zone_pages: u64,
    /// Allocated blocks, their base pages, and the number of blocks served directly from a per-CPU
    /// list.
    allocs: u64,
    pages: u64,
    hits: u64,
    /// Allocations and frees by CPU, in blocks.
    cpus: Vec<(u64, u64)>,
}

impl Counts {
    pub(super) fn of<C: Config>(yard: &Yard<'_, C>) -> Counts {
        let cpus = vec![(0, 0); yard.cpus() as usize];
        let mut sum = Counts { cpus, ..Counts::default() };
        for zone in yard.zone_ids() {
            sum.zone_pages += pages_taken(yard, zone);
            for cpu in (0..yard.cpus()).map(CpuId) {
                let Some(s) = yard.cpu_stats(zone, cpu) else { continue };
                sum.free_high += s.drains[DrainReason::FreeHigh as usize];
                sum.allocs += s.allocs.blocks();
                sum.pages += s.allocs.pages();
                sum.hits += s.hits();
                let (allocs, frees) = &mut sum.cpus[cpu.0 as usize];
                *allocs += s.allocs.blocks();
                *frees += s.frees.blocks();
            }
        }
        sum
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            free_high: self.free_high - before.free_high,
            zone_pages: self.zone_pages - before.zone_pages,
            allocs: self.allocs - before.allocs,
            pages: self.pages - before.pages,
            hits: self.hits - before.hits,
            cpus: self.cpus.iter().zip(&before.cpus).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect(),
        }
    }

    /// Returns the share of freed blocks that CPUs freed in excess of their own allocations, in
    /// percent: a lower bound for blocks freed on another CPU.
    fn remote(&self) -> Option<f64> {
        let beyond = self.cpus.iter().map(|(allocs, frees)| frees.saturating_sub(*allocs)).sum();
        percent(beyond, self.cpus.iter().map(|c| c.1).sum())
    }
}

/// Holds of zone locks: a histogram in nanoseconds, and the total in picoseconds.
pub(super) type Holds = (Histogram, u64);

/// What a world measures during a run, in addition to the allocator's own counters.
pub(super) trait Seen: std::fmt::Debug {
    /// Returns the duration of the measured stage.
    fn elapsed_ns(&self) -> u64;
    /// Returns the CPU time of the measured stage, if that says more than its duration.
    fn busy_ns(&self) -> Option<u64>;
    /// Returns the share of the busy time spent waiting for zone locks, in percent.
    fn zone_lock(&self) -> f64;
    /// Returns the share of the busy time spent waiting for the plan's LRU locks, in percent, if it
    /// has any and they are known.
    fn lru_lock(&self) -> Option<f64> {
        None
    }
    /// Returns the share of touched lines that missed the caches, in percent, if known; `Some(None)`
    /// if none was touched.
    fn miss(&self) -> Option<Option<f64>>;
    /// Returns the share of the busy time spent waiting for shared memory and link bandwidth, in
    /// percent, if known.
    fn memory_wait(&self) -> Option<f64> {
        None
    }
    /// Returns the share of the busy time spent waiting for shared cache lines, and for the busiest
    /// one, in percent, if they are priced.
    fn line_wait(&self) -> Option<(f64, f64)> {
        None
    }
    /// Returns the total time of all CPUs in the allocator and waiting for its locks, in seconds,
    /// if known.
    fn in_allocator(&self) -> Option<f64> {
        None
    }
    /// Returns the holds in which blocks left a zone.
    fn alloc_holds(&self) -> Holds;
    /// Returns the holds in which blocks returned to a zone.
    fn free_holds(&self) -> Holds;
}

impl Seen for Stats {
    fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    fn busy_ns(&self) -> Option<u64> {
        None
    }

    fn zone_lock(&self) -> f64 {
        self.zone_lock_share() as f64 / 1e4
    }

    fn lru_lock(&self) -> Option<f64> {
        Some(self.task_lock_share()? as f64 / 1e4)
    }

    fn miss(&self) -> Option<Option<f64>> {
        Some(self.miss_share().map(|share| share as f64 / 1e4))
    }

    fn memory_wait(&self) -> Option<f64> {
        Some(self.memory_wait_share() as f64 / 1e4)
    }

    fn line_wait(&self) -> Option<(f64, f64)> {
        let busiest = self.busiest_line().map_or(0, |line| line.1);
        let priced = !self.parts.is_empty();
        priced.then(|| (self.line_share() as f64 / 1e4, busiest as f64 / 1e4))
    }

    fn in_allocator(&self) -> Option<f64> {
        let t = self.total();
        let waits = t.zone_wait + t.other_wait + t.line_wait - self.task_lock_wait().unwrap_or(0);
        Some((t.alloc + waits) as f64 / 1e12)
    }

    fn alloc_holds(&self) -> Holds {
        all_holds(self, |l| (&l.alloc_holds, l.held_alloc))
    }

    fn free_holds(&self) -> Holds {
        all_holds(self, |l| (&l.free_holds, l.held_free))
    }
}

/// Returns what CPUs waited for shared lines, if those are priced.
pub(super) fn lines(stats: &Stats) -> Option<SharedLines> {
    if stats.parts.is_empty() {
        return None;
    }
    let busy = stats.total().busy().max(1) as f64;
    let share = |name: String, waited: u64| LineShare { name, share: 100.0 * waited as f64 / busy };
    let mut parts: Vec<_> = stats
        .parts
        .iter()
        .filter(|(_, s)| s.waited() > 0)
        .map(|(part, s)| share(part_name(*part).to_owned(), s.waited()))
        .collect();
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    let busiest = stats.busiest.iter().map(|l| share(l.name.to_string(), l.waited)).collect();
    Some(SharedLines { parts, busiest })
}

fn all_holds(stats: &Stats, of: impl Fn(&LockStats) -> (&Histogram, u64)) -> Holds {
    let mut all = Histogram::default();
    let mut sum = 0;
    for lock in stats.zone_locks() {
        let (holds, held) = of(lock);
        all.merge(holds);
        sum += held;
    }
    (all, sum)
}

/// Everything that was observed of a run's measured stage.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) stats: &'a dyn Seen,
    pub(super) before: Counts,
    pub(super) after: Counts,
    pub(super) work: u64,
    pub(super) failed: u64,
    pub(super) peak_pages: u64,
    /// Durations of single-page requests, in worlds where reading the clock costs the requests
    /// nothing.
    pub(super) waits: Option<Waits>,
    pub(super) engine: Engine,
}

/// Durations of requests, in nanoseconds.
#[derive(Default, Debug)]
pub(super) struct Waits {
    all: Histogram,
    longest: u64,
}

impl Waits {
    pub(super) fn note(&mut self, ns: u64) {
        self.all.note(ns);
        self.longest = self.longest.max(ns);
    }
}

fn measure(
    name: &str,
    unit: &'static str,
    better: Better,
    value: impl Into<Option<f64>>,
) -> Measure {
    Measure { name: name.to_owned(), unit, better, value: value.into() }
}

/// Returns how much there is of a part for each of the whole; `None` if the whole is nothing.
fn per(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    per(part, whole).map(|share| 100.0 * share)
}

/// Returns a quantile in microseconds; `None` if there are no values.
fn quantile_us(of: &Histogram, part: u64, parts: u64) -> Option<f64> {
    (of.total() > 0).then(|| of.quantile_of(part, parts) as f64 / 1e3)
}

/// Returns the average and the 99th percentile of holds, in microseconds.
fn in_us((holds, held): &Holds) -> (Option<f64>, Option<f64>) {
    (per(*held, holds.total()).map(|ps| ps / 1e6), quantile_us(holds, 99, 100))
}

/// Computes the metrics, in display order.
pub(super) fn of(run: &Observed<'_>, score: Score) -> Vec<Measure> {
    use Better::{Higher, Lower};
    let Observed { stats, engine, .. } = run;
    let exact = *engine == Engine::Exact;
    let counts = run.after.since(&run.before);
    let seconds = stats.elapsed_ns() as f64 / 1e9;
    let mut all = Vec::new();
    match score {
        Score::Time => all.push(measure("time", "s", Lower, seconds)),
        Score::Rate(unit) => {
            let rate = (seconds > 0.0).then(|| run.work as f64 / seconds);
            all.push(measure("rate", unit, Higher, rate));
        }
        Score::Own => {}
    }
    all.extend(stats.busy_ns().map(|ns| measure("busy", "s", Lower, ns as f64 / 1e9)));
    let (alloc_hold, alloc_p99) = in_us(&stats.alloc_holds());
    let (free_hold, free_p99) = in_us(&stats.free_holds());
    all.push(measure("zone_lock", "%", Lower, stats.zone_lock()));
    all.extend(stats.lru_lock().map(|share| measure("lru_lock", "%", Lower, share)));
    all.extend([
        // The packed engine has no such drains, and 0 would be the best result of all.
        measure("free_high", "drains", Lower, exact.then_some(counts.free_high as f64)),
        measure("zone_pages", "pages", Lower, counts.zone_pages as f64),
    ]);
    all.extend(stats.miss().map(|share| measure("miss", "%", Lower, share)));
    if let Some((all_lines, busiest)) = stats.line_wait() {
        all.push(measure("line_wait", "%", Lower, all_lines));
        all.push(measure("busiest_line", "%", Lower, busiest));
    }
    all.extend(stats.memory_wait().map(|share| measure("memory_wait", "%", Lower, share)));
    all.extend([
        measure("hits", "%", Higher, percent(counts.hits, counts.allocs)),
        measure("hold_alloc_avg", "us", Lower, alloc_hold),
        measure("hold_alloc_p99", "us", Lower, alloc_p99),
        measure("hold_free_avg", "us", Lower, free_hold),
        measure("hold_free_p99", "us", Lower, free_p99),
        measure("peak_pcp", "pages", Lower, run.peak_pages as f64),
        measure("block", "pages", Lower, per(counts.pages, counts.allocs)),
        measure("remote", "%", Lower, counts.remote()),
    ]);
    if let Some(Waits { all: waits, longest }) = &run.waits {
        let longest = (waits.total() > 0).then(|| *longest as f64 / 1e3);
        all.extend([
            measure("request_p50", "us", Lower, quantile_us(waits, 1, 2)),
            measure("request_p999", "us", Lower, quantile_us(waits, 999, 1000)),
            measure("request_p9999", "us", Lower, quantile_us(waits, 9999, 10_000)),
            measure("request_max", "us", Lower, longest),
        ]);
    }
    all.extend(stats.in_allocator().map(|s| measure("allocator", "CPU s", Lower, s)));
    all.push(measure("failed", "requests", Lower, run.failed as f64));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which nothing happened.
    #[derive(Debug)]
    struct Nothing;

    impl Seen for Nothing {
        fn elapsed_ns(&self) -> u64 {
            0
        }

        fn busy_ns(&self) -> Option<u64> {
            None
        }

        fn zone_lock(&self) -> f64 {
            0.0
        }

        fn miss(&self) -> Option<Option<f64>> {
            Some(None)
        }

        fn alloc_holds(&self) -> Holds {
            Holds::default()
        }

        fn free_holds(&self) -> Holds {
            Holds::default()
        }
    }

    #[test]
    fn averages_over_nothing_have_no_value() {
        let (before, after) = (Counts::default(), Counts::default());
        let waits = Some(Waits::default());
        let mut run = Observed {
            stats: &Nothing,
            before,
            after,
            work: 0,
            failed: 0,
            peak_pages: 0,
            waits,
            engine: Engine::Exact,
        };
        let without = |run: &Observed<'_>| -> Vec<String> {
            let all = of(run, Score::Rate("pages/s")).into_iter();
            all.filter(|m| m.value.is_none()).map(|m| m.name).collect()
        };
        let none = [
            "rate",
            "miss",
            "hits",
            "hold_alloc_avg",
            "hold_alloc_p99",
            "hold_free_avg",
            "hold_free_p99",
            "block",
            "remote",
            "request_p50",
            "request_p999",
            "request_p9999",
            "request_max",
        ];
        assert_eq!(without(&run), none);
        run.after = Counts { allocs: 2, pages: 4, hits: 1, cpus: vec![(2, 1)], ..run.after };
        run.before.cpus = vec![(0, 0)];
        run.waits.as_mut().unwrap().note(5);
        assert_eq!(
            without(&run),
            none[..7].iter().filter(|n| **n != "hits").copied().collect::<Vec<_>>()
        );
    }
}
