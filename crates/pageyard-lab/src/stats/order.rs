//! The median, and confidence intervals from ranks, which hold for any distribution.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::Interval;

/// Returns the middle sample, or the mean of the two middle ones. NaN without samples.
pub fn median(samples: &[f64]) -> f64 {
    median_of(&mut samples.to_vec())
}

/// Like [`median`], in place and in linear time, for the bootstrap. Reorders the samples.
pub(super) fn median_of(samples: &mut [f64]) -> f64 {
    let n = samples.len();
    if n == 0 {
        return f64::NAN;
    }
    let (below, &mut middle, _) = samples.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 {
        return middle;
    }
    let next = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (next + middle) / 2.0
}

/// Returns the ranks, from 1, of the two order statistics of `n` samples that enclose the quantile
/// `q` with a probability of at least 1-`alpha`. The interval is the narrowest with at most
/// `alpha`/2 on each side. Returns `None` if there are too few samples: the median at 95 % needs
/// six.
pub fn order_interval(n: usize, q: f64, alpha: f64) -> Option<(usize, usize)> {
    // The number of samples below the quantile is binomially distributed.
    let below = Binomial::new(q, n as u64).ok()?;
    let half = alpha / 2.0;
    let low = last(n, |k| below.cdf(k as u64 - 1) <= half);
    let high = last(n, |k| below.sf(k as u64 - 1) > half) + 1;
    (low >= 1 && high <= n).then_some((low, high))
}

/// Returns the last rank from 1 to `n` for which a monotone predicate holds, or 0 if there is none.
fn last(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Returns the interval between two order statistics that contains the median with a confidence of
/// at least 95 %. `None` for fewer than six samples.
pub fn median_interval(samples: &[f64]) -> Option<Interval> {
    let (low, high) = order_interval(samples.len(), 0.5, 0.05)?;
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Interval { low: sorted[low - 1], high: sorted[high - 1] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_median_needs_six_samples_for_its_interval() {
        assert_eq!(order_interval(5, 0.5, 0.05), None);
        assert_eq!(order_interval(6, 0.5, 0.05), Some((1, 6)));
        // Tables of the sign test: 10 samples, 97.9 % from the 2nd to the 9th; 20 samples, 95.9 %
        // from the 6th to the 15th.
        assert_eq!(order_interval(10, 0.5, 0.05), Some((2, 9)));
        assert_eq!(order_interval(20, 0.5, 0.05), Some((6, 15)));
        // Ten samples cannot bound a 95th percentile from above.
        assert_eq!(order_interval(10, 0.95, 0.05), None);
    }

    #[test]
    fn a_median_is_the_middle_sample_or_the_mean_of_two() {
        assert_eq!(median(&[3., 1., 2.]), 2.0);
        assert_eq!(median(&[4., 1., 2., 3.]), 2.5);
        assert!(median(&[]).is_nan());
    }

    proptest! {
        #[test]
        fn the_median_equals_that_of_the_sorted_samples(s in prop::collection::vec(-9..9i32, 1..20)) {
            let s: Vec<f64> = s.into_iter().map(f64::from).collect();
            let mut sorted = s.clone();
            sorted.sort_by(f64::total_cmp);
            let n = s.len();
            prop_assert_eq!(median(&s), (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0);
        }

        #[test]
        fn the_interval_contains_the_median(s in prop::collection::vec(-1e9..1e9f64, 6..60)) {
            let i = median_interval(&s).unwrap();
            prop_assert!(i.contains(median(&s)));
        }

        /// Each of the two tails, summed term by term, is within its half; one rank further in
        /// would exceed it.
        #[test]
        fn the_interval_is_the_shortest_of_its_coverage(n in 6usize..80) {
            let (low, high) = order_interval(n, 0.5, 0.05).unwrap();
            let tail = |k: usize| {
                let mut term = 0.5f64.powi(n as i32);
                let mut sum = 0.0;
                for i in 0..k {
                    sum += term;
                    term *= (n - i) as f64 / (i + 1) as f64;
                }
                sum
            };
            prop_assert!(tail(low) <= 0.025 && tail(low + 1) > 0.025);
            prop_assert_eq!(high, n + 1 - low);
        }
    }
}
