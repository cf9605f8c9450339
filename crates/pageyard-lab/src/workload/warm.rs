//! How long a workload warms up before it is measured.

use super::actor::Measure;
use super::error::WorkloadError;
use super::params::Params;
use crate::result::Better;

/// The warm-up is over when the mean of `high` in the last third of its rounds differs from that in
/// the third before by less than this part. Assumed.
pub(crate) const STATIONARY: f64 = 0.02;
/// Rounds that end the warm-up if `high` has not changed in any: lists of a fixed size.
const FIXED: usize = 3;
/// The longest warm-up in rounds (derived from A.4: a build of 27,000 objects by 112 jobs has 241).
const MOST: usize = 241;

/// How long to warm up, in rounds: as many objects as there are jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Warm {
    /// Until `high` of the per-CPU lists is stationary.
    Stationary,
    /// This many rounds.
    Rounds(usize),
}

impl Warm {
    /// Parses `stationary` or a number of rounds.
    pub(super) fn parse(params: &Params, name: &str) -> Result<Warm, WorkloadError> {
        if params.text(name) == "stationary" {
            return Ok(Warm::Stationary);
        }
        let rounds = params.number(name, 1..=1 << 20);
        rounds
            .map(|n| Warm::Rounds(n as usize))
            .map_err(|_| params.wrong(name, "stationary, or a whole number from 1 to 1048576"))
    }
}

/// A warm-up under way.
#[derive(Debug)]
pub(super) struct WarmUp {
    until: Warm,
    /// The sum of `high` over all CPUs' lists after each round.
    highs: Vec<u64>,
    began_ns: u64,
    ended_ns: Option<u64>,
}

impl WarmUp {
    pub(super) fn new(until: Warm, now_ns: u64) -> WarmUp {
        WarmUp { until, highs: Vec::new(), began_ns: now_ns, ended_ns: None }
    }

    /// Ends a round, with this sum of `high`. Returns whether the warm-up is over.
    pub(super) fn round(&mut self, high: u64, now_ns: u64) -> bool {
        self.highs.push(high);
        let rounds = self.highs.len();
        let over = match self.until {
            Warm::Rounds(n) => rounds >= n,
            Warm::Stationary => rounds >= MOST || is_fixed(&self.highs) || self.is_stationary(),
        };
        if over {
            self.ended_ns = Some(now_ns);
        }
        over
    }

    fn is_stationary(&self) -> bool {
        self.highs.len() >= 3 * FIXED && self.change().is_some_and(|change| change < STATIONARY)
    }

    /// Returns by which part `high` changed between the last two thirds; `None` in fewer than three
    /// rounds.
    fn change(&self) -> Option<f64> {
        let third = self.highs.len() / 3;
        if third == 0 {
            return None;
        }
        let (rest, last) = self.highs.split_at(self.highs.len() - third);
        let mean = |highs: &[u64]| highs.iter().sum::<u64>() as f64 / highs.len() as f64;
        let before = mean(&rest[rest.len() - third..]);
        Some((mean(last) - before).abs() / before.max(1.0))
    }

    /// Says how long it took, and how stationary `high` was then.
    pub(super) fn measures(&self) -> Vec<Measure> {
        let Some(ended) = self.ended_ns else { return Vec::new() };
        let measure = |name: &str, unit, value: Option<f64>| Measure {
            name: name.into(),
            unit,
            better: Better::Lower,
            value,
        };
        vec![
            measure("warm_up", "objects/job", Some(self.highs.len() as f64)),
            measure("warm_up_time", "s", Some((ended - self.began_ns) as f64 / 1e9)),
            measure("warm_up_change", "%", self.change().map(|change| 100.0 * change)),
        ]
    }
}

/// Whether `high` has never changed. Lists that grow may pause for some rounds.
fn is_fixed(highs: &[u64]) -> bool {
    highs.len() >= FIXED && highs.windows(2).all(|w| w[0] == w[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after how many rounds the warm-up ends.
    fn rounds(until: Warm, high: impl Fn(usize) -> u64) -> usize {
        let mut warm = WarmUp::new(until, 0);
        (1..).find(|&n| warm.round(high(n), n as u64)).unwrap()
    }

    #[test]
    fn it_ends_when_high_is_stationary() {
        assert_eq!(rounds(Warm::Stationary, |_| 40_000), FIXED, "lists of a fixed size");
        let growing = |n: usize| (40_000.0 * (1.0 - (-(n as f64) / 10.0).exp())) as u64;
        let n = rounds(Warm::Stationary, growing);
        assert!(growing(n) > 39_000, "it grew on: {n} rounds, {}", growing(n));
        assert!(n < MOST, "{n}");
        // Growth that never ends.
        assert_eq!(rounds(Warm::Stationary, |n| 1000 * n as u64), MOST);
        // Growth that pauses for three rounds.
        assert_eq!(rounds(Warm::Stationary, |n| 1000 * (n as u64 / 4 + n as u64 % 4 / 3)), MOST);
        assert_eq!(rounds(Warm::Rounds(5), |n| 1000 * n as u64), 5);
    }

    #[test]
    fn it_says_how_long_it_took() {
        let mut warm = WarmUp::new(Warm::Rounds(6), 1_000_000_000);
        assert!(warm.measures().is_empty(), "it has not ended");
        for n in 1..=6 {
            warm.round([0, 0, 100, 100, 110, 110][n - 1], n as u64 * 1_000_000_000);
        }
        let found: Vec<_> = warm.measures().iter().map(|m| m.value).collect();
        assert_eq!(found, [6.0, 5.0, 10.0].map(Some));
        // Too few rounds for a change.
        let mut short = WarmUp::new(Warm::Rounds(1), 0);
        short.round(100, 1);
        assert_eq!(short.measures()[2].value, None);
    }
}
