//! The tick of the statistics worker: about once a second on each CPU. Its time is not recorded,
//! but can be inferred from the pages that it drained.

use pageyard_trace::{Event, Kind, Tasks};
use serde::Serialize;

use crate::rng::Rng;

/// How the phase of the tick within the second is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum TickPhase {
    /// Inferred from the drains of statistics workers in the trace; the same for all CPUs. Without
    /// such drains, [`DEFAULT_PHASE`].
    #[default]
    Inferred,
    /// At random, separately for each CPU.
    Random,
    /// This fraction of a second, the same for all CPUs.
    At(f64),
}

/// The phase if a trace shows no drain by a tick. The recorded machines, which booted alike, all
/// have a phase near it.
pub const DEFAULT_PHASE: f64 = 0.80;

/// Maximum delay of a tick in seconds: its worker waits for a timer and then to be scheduled.
pub const DELAY: f64 = 0.1;
/// Width in seconds of the range in which a seed other than 0 shifts each CPU's phase, if the phase
/// is not random.
pub const SPREAD: f64 = 0.05;

impl std::str::FromStr for TickPhase {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "inferred" => Ok(TickPhase::Inferred),
            "random" => Ok(TickPhase::Random),
            _ => s
                .parse()
                .ok()
                .filter(|f: &f64| (0.0..1.0).contains(f))
                .map(TickPhase::At)
                .ok_or_else(|| format!("{s}: expected inferred, random, or a number from 0 to 1")),
        }
    }
}

/// Evidence of ticks in a trace: drains by a CPU's own worker that no free of the worker preceded.
pub(super) struct TickTimes {
    /// Counts by tenth of a millisecond within the second.
    bins: Vec<u32>,
    /// Per CPU: whether the last event was a drain, and its task.
    last: Vec<Option<(bool, u32)>>,
    /// Per task seen: the CPU that it is a worker of, plus one, or 0 for none. Filled on first
    /// sight.
    workers: Vec<u32>,
}

const BINS: usize = 10_000;
const WINDOW: usize = BINS / 5;

impl TickTimes {
    pub(super) fn new(cpus: usize) -> TickTimes {
        TickTimes { bins: vec![0; BINS], last: vec![None; cpus], workers: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn see(&mut self, event: &Event, tasks: &Tasks) {
        let cpu = usize::from(event.cpu);
        let drain = matches!(event.kind, Kind::Drain { .. });
        if drain {
            self.see_drain(event, tasks);
        }
        self.last[cpu] = Some((drain, event.task));
    }

    fn see_drain(&mut self, event: &Event, tasks: &Tasks) {
        let cpu = usize::from(event.cpu);
        while self.workers.len() <= event.task as usize {
            let of = tasks.get(self.workers.len() as u32).and_then(|t| worker_of(&t.comm));
            self.workers.push(of.map_or(0, |cpu| cpu + 1));
        }
        let own = self.workers[event.task as usize] as usize == cpu + 1;
        if own && self.last[cpu].is_none_or(|(drain, task)| !drain && task != event.task) {
            self.bins[(event.t_ns % 1_000_000_000 / 100_000) as usize] += 1;
        }
    }

    /// Returns the number of observed drains, how many of them lie within the densest fifth of a
    /// second, and where that fifth begins.
    pub(super) fn densest(&self) -> (u32, u32, Option<f64>) {
        let total: u32 = self.bins.iter().sum();
        let mut best = (0, None);
        let mut inside: u32 = self.bins[..WINDOW].iter().sum();
        for at in 0..BINS {
            if self.bins[at] > 0 && inside > best.0 {
                best = (inside, Some(at as f64 / BINS as f64));
            }
            inside += self.bins[(at + WINDOW) % BINS];
            inside -= self.bins[at];
        }
        (total, best.0, best.1)
    }
}

/// Returns the CPU of a bound worker: `kworker/2:1` or, in some recordings, `kworker/2:1H`.
fn worker_of(comm: &str) -> Option<u32> {
    comm.strip_prefix("kworker/")?.split_once(':')?.0.parse().ok()
}

/// The source of the phase, for the report.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseSource {
    /// Drains by ticks in the trace.
    pub observed: u32,
    /// How many of these lie within the densest fifth of a second.
    pub agreeing: u32,
    /// The phase of all CPUs in seconds; `None` if each CPU has a random phase.
    pub phase: Option<f64>,
    /// Whether the phase is assumed, without evidence in the trace.
    pub assumed: bool,
    /// The description in words.
    pub text: String,
}

impl PhaseSource {
    pub(super) fn new(wanted: TickPhase, seen: &TickTimes) -> PhaseSource {
        let (observed, agreeing, densest) = seen.densest();
        let (phase, text) = match (wanted, densest) {
            (TickPhase::At(p), _) => (Some(p), format!("{p:.3} s, as requested")),
            (TickPhase::Random, _) => (None, "random for each CPU, as requested".into()),
            (TickPhase::Inferred, Some(p)) => (
                Some(p),
                format!(
                    "{p:.3} s, inferred: {agreeing} of {observed} drains by ticks are within 0.2 s \
                     after it"
                ),
            ),
            (TickPhase::Inferred, None) => (
                Some(DEFAULT_PHASE),
                format!("{DEFAULT_PHASE:.3} s, assumed: no drains by ticks in the trace"),
            ),
        };
        let assumed = wanted == TickPhase::Inferred && densest.is_none();
        PhaseSource { observed, agreeing, phase, assumed, text }
    }

    /// Returns the phases of all CPUs under a seed, in seconds.
    pub(super) fn of_cpus(&self, cpus: usize, seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed.wrapping_add(1));
        (0..cpus)
            .map(|_| {
                let r = rng.unit();
                match self.phase {
                    None => r,
                    Some(p) if seed == 0 => p,
                    Some(p) => (p + SPREAD * (r - 0.5)).rem_euclid(1.0),
                }
            })
            .collect()
    }
}

/// When each CPU ticks.
pub(super) struct Ticks {
    period_ns: i64,
    /// Per CPU: when the next tick is due, and its delay, in nanoseconds.
    due: Vec<(i64, i64)>,
    rng: Rng,
}

/// Maximum number of missed ticks to make up for: by then everything has decayed.
const MOST_MISSED: i64 = 100;

impl Ticks {
    pub(super) fn new(first_ns: u64, period_s: u64, phases: &[f64], seed: u64) -> Ticks {
        let period_ns = (period_s.min(1 << 20) * 1_000_000_000) as i64;
        let mut rng = Rng::new(seed.wrapping_mul(7919).wrapping_add(5));
        let from = first_ns as i64;
        let due = phases.iter().map(|p| {
            let phase = (p * 1e9) as i64;
            (from + (phase - from).rem_euclid(period_ns), (rng.unit() * DELAY * 1e9) as i64)
        });
        let due = due.collect();
        Ticks { period_ns, due, rng }
    }

    /// Returns whether a tick of a CPU is due.
    #[inline(always)]
    pub(super) fn is_due(&self, cpu: usize, t_ns: u64) -> bool {
        let (due, delay) = self.due[cpu];
        t_ns as i64 >= due + delay
    }

    /// Returns the number of ticks of a CPU since the last call.
    #[inline(always)]
    pub(super) fn since(&mut self, cpu: usize, t_ns: u64) -> i64 {
        if self.is_due(cpu, t_ns) { self.take(cpu, t_ns as i64) } else { 0 }
    }

    #[cold]
    fn take(&mut self, cpu: usize, t_ns: i64) -> i64 {
        let missed = (t_ns - self.due[cpu].0) / self.period_ns + 1;
        self.due[cpu].0 += missed * self.period_ns;
        self.due[cpu].1 = (self.rng.unit() * DELAY * 1e9) as i64;
        missed.min(MOST_MISSED)
    }
}

/// Returns the number of ticks at this phase between two times in nanoseconds.
pub(super) fn ticks_between(phase: f64, from_ns: u64, to_ns: u64, period_s: u64) -> u32 {
    let period = period_s as f64;
    let number = |t: u64| ((t as f64 / 1e9 - phase) / period).floor();
    (number(to_ns) - number(from_ns)).clamp(0.0, 100.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_ticks_once_per_period() {
        let mut t = Ticks::new(10_300_000_000, 1, &[0.5], 3);
        assert_eq!(t.since(0, 10_499_999_999), 0);
        assert_eq!(t.since(0, 10_600_000_000), 1, "due at 10.5 s, at most 0.1 s late");
        assert_eq!(t.since(0, 10_700_000_000), 0);
        assert_eq!(t.since(0, 14_600_000_000), 4);
        assert_eq!(t.since(0, 1_000_000_000_000), MOST_MISSED);
        assert_eq!(t.since(0, 1_000_000_400_000), 0);
    }

    #[test]
    fn phases_depend_only_on_the_seed() {
        let at = PhaseSource {
            observed: 0,
            agreeing: 0,
            phase: Some(0.99),
            assumed: false,
            text: String::new(),
        };
        assert_eq!(at.of_cpus(2, 0), [0.99, 0.99]);
        let p = at.of_cpus(100, 1);
        assert_eq!(p, at.of_cpus(100, 1));
        assert!(p.iter().all(|p| !(0.015..0.965).contains(p)) && p.iter().any(|&p| p < 0.5));
        let random = PhaseSource { phase: None, ..at };
        assert_ne!(random.of_cpus(2, 0), random.of_cpus(2, 1));
    }

    #[test]
    fn the_densest_fifth_of_a_second() {
        let mut o = TickTimes::new(1);
        for at in [9500, 9600, 500, 600, 4000, 4100, 4200] {
            o.bins[at] += 1;
        }
        assert_eq!(o.densest(), (7, 4, Some(0.95)));
        assert_eq!(TickTimes::new(1).densest(), (0, 0, None));
        assert_eq!(ticks_between(0.8, 10_700_000_000, 12_900_000_000, 1), 3);
        assert_eq!(worker_of("kworker/12:1-mm"), Some(12));
        assert_eq!(worker_of("kworker/u8:1"), None);
    }
}
