//! How many samples a comparison needs.

use statrs::distribution::{ContinuousCDF, Normal};

use super::Interval;
use super::rank::superiority;

/// Probability with which the needed number of samples shows a difference that is there.
pub const POWER: f64 = 0.8;

/// Returns the number of samples on each side with which a two-sided Mann-Whitney test at level
/// `alpha` finds the difference between these samples with probability [`POWER`], if it is as large
/// as observed. `None` if neither side tends to be larger.
///
/// The formula is Noether's (1987), `(z(1-alpha/2) + z(power))² / (6 (P-1/2)²)`, where P is the
/// observed share of pairs in which the second sample is larger.
pub fn samples_for_test(a: &[f64], b: &[f64], alpha: f64) -> Option<f64> {
    let off = superiority(a, b) - 0.5;
    if off == 0.0 || alpha <= 0.0 {
        return None;
    }
    let normal = Normal::standard();
    let z = normal.inverse_cdf(1.0 - alpha / 2.0) + normal.inverse_cdf(POWER);
    Some(z * z / (6.0 * off * off))
}

/// Returns the number of samples on each side with which the interval of a ratio, now of `n`
/// samples, would lie outside the band, if the ratio stays and the interval narrows with the square
/// root of the number. `None` if the ratio is within the band.
pub fn samples_for_interval(n: usize, ratio: f64, interval: Interval, band: f64) -> Option<f64> {
    let above = ratio > 1.0;
    let (edge, end) = if above { (1.0 + band, interval.low) } else { (1.0 - band, interval.high) };
    let outside = if above { ratio > edge } else { ratio < edge };
    if !outside {
        return None;
    }
    if ratio <= 0.0 || !ratio.is_finite() {
        return Some(1.0);
    }
    // Distances from the ratio, on a logarithmic scale. An end at 0 tells nothing about the spread.
    let (room, reach) = ((ratio / edge).ln().abs(), (ratio / end).ln().abs());
    reach.is_finite().then(|| n as f64 * (reach / room).powi(2))
}

/// Returns the smallest number of samples on each side with which a two-sided Mann-Whitney test can
/// reach a level at all: two of all ways to choose one side separate the two completely.
pub fn fewest_for_test(alpha: f64) -> u64 {
    // C(2n, n) grows by (2n+1)(2n+2)/(n+1)², nearly four, with each sample.
    let (mut n, mut ways) = (1u64, 2.0f64);
    while 2.0 / ways >= alpha && ways.is_finite() {
        let next = n as f64 + 1.0;
        ways *= (2.0 * next - 1.0) * 2.0 / next;
        n += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::stats::mann_whitney;

    #[test]
    fn test_needs_by_hand() {
        // (1.96 + 0.8416)² / 6 / (1/2)², and 9 times as many for a sixth in place of a half.
        let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
        let n = samples_for_test(&a, &b, 0.05).unwrap();
        assert!((n - 5.2325).abs() < 1e-3, "{n}");
        assert_eq!(samples_for_test(&b, &a, 0.05), Some(n));
        let n = samples_for_test(&[1.0, 3.0, 5.0], &[2.0, 4.0, 6.0], 0.05).unwrap();
        assert!((n - 9.0 * 5.2325).abs() < 1e-2, "{n}");
        assert_eq!(samples_for_test(&a, &a, 0.05), None);
    }

    #[test]
    fn fewest_samples_by_hand() {
        // 2/C(6,3) = 0.1, 2/C(8,4) = 0.029, 2/C(10,5) = 0.0079.
        assert_eq!([0.2, 0.05, 0.01, 0.0079].map(fewest_for_test), [3, 4, 5, 6]);
        for n in 2..20u64 {
            let (a, b): (Vec<f64>, Vec<f64>) = (0..n).map(|i| (i as f64, 100.0 + i as f64)).unzip();
            let p = mann_whitney(&a, &b);
            assert_eq!((fewest_for_test(p * 1.01), fewest_for_test(p)), (n, n + 1));
        }
        assert!(fewest_for_test(0.0) > 400, "ends");
    }

    #[test]
    fn interval_needs_grow_with_the_square_of_its_width() {
        let at = |ratio, low, high| samples_for_interval(10, ratio, Interval { low, high }, 0.01);
        assert_eq!(at(1.005, 0.9, 1.1), None, "within the band");
        // From the ratio to the band as far as to the interval's end: as many as there are.
        let n = at(1.1, 1.01, 1.2).unwrap();
        assert!((n - 10.0).abs() < 1e-9, "{n}");
        let edge: f64 = 1.1 * (1.01f64 / 1.1).powi(2);
        let n = at(1.1, edge, 1.2).unwrap();
        assert!((n - 40.0).abs() < 1e-9, "{n}");
        assert!(at(0.9, 0.8, 0.98).unwrap() < 10.0);
        assert_eq!(at(1.1, 0.0, 2.0), None, "an end at 0");
        assert_eq!(at(f64::INFINITY, 3.0, f64::INFINITY), Some(1.0));
    }

    /// With the estimated number of samples, about 80 % of the tests find the difference.
    #[test]
    fn estimated_number_has_the_stated_power() {
        let mut rng = Rng::new(3);
        let mut draw = |n: usize, by: f64| -> Vec<f64> {
            (0..n).map(|_| (0..12).map(|_| rng.unit()).sum::<f64>() + by).collect()
        };
        // A long pilot, so that the estimate itself has little error.
        let n = samples_for_test(&draw(2000, 0.0), &draw(2000, 0.8), 0.05).unwrap().ceil();
        assert!((22.0..32.0).contains(&n), "{n}");
        let found = (0..400)
            .filter(|_| mann_whitney(&draw(n as usize, 0.0), &draw(n as usize, 0.8)) < 0.05);
        let share = found.count() as f64 / 400.0;
        // A standard error of 2 %.
        assert!((0.74..0.87).contains(&share), "{n}: {share}");
    }
}
