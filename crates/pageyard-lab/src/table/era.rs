//! mmtests' rule for starring a difference (docs/tables.md, mmtests' figures), which changed in
//! December 2024.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::result::Better;
use crate::stats::{Interval, Samples, order_interval};

/// A significance rule, and the related differences between versions of mmtests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Era {
    /// Until 2024-11, and therefore in all tables of the seeds: a two-sided t test at 0.10 with the
    /// degrees of freedom of pooled samples; no correction for multiple rows.
    #[serde(rename = "mmtests-2019")]
    Mmtests2019,
    /// Since 2024-12-02: two intervals of 1.96 standard deviations that do not touch. Much
    /// stricter, and no narrower with more samples.
    #[serde(rename = "mmtests-2024")]
    Mmtests2024,
}

impl Era {
    /// Returns the printed mean. For rates of 0 or less it was -1 before 2024-12, and is NaN since.
    pub(super) fn mean(self, s: &Samples) -> f64 {
        match (self, s.mean()) {
            (Era::Mmtests2019, mean) if mean.is_nan() && s.n() > 0 => -1.0,
            (_, mean) => mean,
        }
    }

    /// Returns the printed deviation: for rates, about the harmonic mean since 2024-12.
    pub(super) fn stddev(self, s: &Samples, better: Better) -> f64 {
        match (self, better) {
            (Era::Mmtests2024, Better::Higher) => s.hstddev(),
            _ => s.stddev(),
        }
    }

    /// Whether the means differ enough for a star.
    pub(super) fn stars_means(self, a: &Samples, b: &Samples, better: Better) -> bool {
        let of = |s: &Samples| Spread {
            mean: self.mean(s),
            sd: self.stddev(s, better),
            n: s.n() as f64,
        };
        self.stars(of(a), of(b))
    }

    /// Whether this percentile's values differ enough. The test of 2019 has no notion of
    /// percentiles: it treats their values as means. Since 2024-12 each has an interval of order
    /// statistics, and these must not touch.
    pub(super) fn stars_percentiles(self, a: &Samples, b: &Samples, percent: usize) -> bool {
        match self {
            Era::Mmtests2019 => {
                let of = |s: &Samples| Spread {
                    mean: s.percentile(percent),
                    sd: s.stddev(),
                    n: s.n() as f64,
                };
                self.stars(of(a), of(b))
            }
            Era::Mmtests2024 => {
                let interval = |s: &Samples| {
                    let (i, j) = order_interval(s.n(), percent as f64 / 100.0, 0.05)?;
                    let (x, y) = (s.best_first()[i - 1], s.best_first()[j - 1]);
                    Some(Interval { low: x.min(y), high: x.max(y) })
                };
                interval(a).zip(interval(b)).is_some_and(|(a, b)| a.apart(b))
            }
        }
    }

    fn stars(self, a: Spread, b: Spread) -> bool {
        match self {
            Era::Mmtests2019 => p_2019(a, b) < 0.10,
            Era::Mmtests2024 => {
                let difference = (a.mean - b.mean).abs();
                let widths = 1.96 * (a.sd + b.sd);
                // Without any spread, the difference must exceed one unit.
                difference > if widths == 0.0 { 1.0 } else { widths }
            }
        }
    }
}

/// The input of a rule. One sample has no deviation, and therefore no star: every comparison with
/// NaN is false.
#[derive(Clone, Copy)]
struct Spread {
    mean: f64,
    sd: f64,
    n: f64,
}

/// The p value of 2019: Welch's t, with n1+n2-2 degrees of freedom. Without any spread, 0 if the
/// means differ and 1 if they do not.
fn p_2019(a: Spread, b: Spread) -> f64 {
    if a.sd == 0.0 && b.sd == 0.0 {
        return if a.mean == b.mean { 1.0 } else { 0.0 };
    }
    let t = (a.mean - b.mean).abs() / (a.sd.powi(2) / a.n + b.sd.powi(2) / b.n).sqrt();
    let Ok(student) = StudentsT::new(0.0, 1.0, a.n + b.n - 2.0) else {
        return f64::NAN;
    };
    if t.is_nan() { f64::NAN } else { 2.0 * student.sf(t) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(parts: &[(f64, usize)]) -> Samples {
        let all: Vec<f64> = parts.iter().flat_map(|&(x, n)| std::iter::repeat_n(x, n)).collect();
        Samples::new(&all, Better::Lower)
    }

    fn spread(s: &Samples) -> Spread {
        Spread { mean: s.mean(), sd: s.stddev(), n: s.n() as f64 }
    }

    /// The samples that reproduce A.1's tables: p 1.0e-7, 0.2446, 0.0083, and ratios of the difference
    /// to both intervals of 1.37, 0.14, 0.34.
    #[test]
    fn a_1_stars_of_2019_and_of_2024() {
        let skylake = (samples(&[(540., 7), (550., 3)]), samples(&[(530., 10)]));
        let base = samples(&[(510., 4), (540., 5), (550., 1)]);
        let second = samples(&[(500., 2), (520., 4), (530., 3), (540., 1)]);
        let third = samples(&[(500., 5), (510., 1), (520., 3), (530., 1)]);
        let p = |a: &Samples, b: &Samples| p_2019(spread(a), spread(b));
        assert!((p(&skylake.0, &skylake.1) - 1.0e-7).abs() < 0.05e-7);
        assert!((p(&base, &second) - 0.2446).abs() < 5e-5);
        assert!((p(&base, &third) - 0.0083).abs() < 5e-5);
        let ratio = |a: &Samples, b: &Samples| {
            (a.mean() - b.mean()).abs() / (1.96 * (a.stddev() + b.stddev()))
        };
        for ((a, b), is, [old, new]) in [
            ((&skylake.0, &skylake.1), 1.37, [true, true]),
            ((&base, &second), 0.14, [false, false]),
            ((&base, &third), 0.34, [true, false]),
        ] {
            assert!((ratio(a, b) - is).abs() < 5e-3);
            assert_eq!(Era::Mmtests2019.stars_means(a, b, Better::Lower), old);
            assert_eq!(Era::Mmtests2024.stars_means(a, b, Better::Lower), new);
        }
    }

    #[test]
    fn without_spread_any_difference_or_more_than_one_unit_has_a_star() {
        let (a, b, c) = (samples(&[(5., 3)]), samples(&[(5.5, 3)]), samples(&[(7., 3)]));
        assert!(Era::Mmtests2019.stars_means(&a, &b, Better::Lower));
        assert!(!Era::Mmtests2019.stars_means(&a, &a, Better::Lower));
        // The quirk: the difference must exceed one unit.
        assert!(!Era::Mmtests2024.stars_means(&a, &b, Better::Lower));
        assert!(Era::Mmtests2024.stars_means(&a, &c, Better::Lower));
        // One sample has no interval.
        let one = samples(&[(100., 1)]);
        for era in [Era::Mmtests2019, Era::Mmtests2024] {
            assert!(!era.stars_means(&a, &one, Better::Lower));
            assert!(!era.stars_means(&one, &one, Better::Lower));
        }
    }

    /// -1 until 2024-11, NaN since.
    #[test]
    fn a_rate_of_0_has_no_harmonic_mean() {
        let s = Samples::new(&[0.0, 3.0], Better::Higher);
        assert_eq!(Era::Mmtests2019.mean(&s), -1.0);
        assert!(Era::Mmtests2024.mean(&s).is_nan());
    }

    #[test]
    fn percentiles_need_intervals_that_do_not_touch_since_2024() {
        let of = |from: usize| {
            let all: Vec<f64> = (from..from + 400).map(|x| x as f64).collect();
            Samples::new(&all, Better::Lower)
        };
        let era = Era::Mmtests2024;
        assert!(era.stars_percentiles(&of(0), &of(100), 95));
        assert!(!era.stars_percentiles(&of(0), &of(5), 95));
    }
}
