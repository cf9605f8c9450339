//! A bootstrap interval for the ratio of two medians, by resampling the runs.

use super::Interval;
use super::order::median_of;
use crate::rng::Rng;

/// Number of resamples (docs/tables.md, Our own form).
pub const RESAMPLES: usize = 10_000;

/// Returns the ratio of two medians, new over base: 1 if both are 0, infinite if only the base is.
pub fn ratio(base: f64, new: f64) -> f64 {
    if base == 0.0 && new == 0.0 { 1.0 } else { new / base }
}

/// Returns the 95 % percentile interval of the ratio of medians, new over base. Both samples are
/// drawn again, with replacement, 10,000 times. The draws depend only on the seed. Returns `None`
/// if a side has fewer than two samples, which cannot be resampled.
pub fn ratio_interval(base: &[f64], new: &[f64], seed: u64) -> Option<Interval> {
    if base.len() < 2 || new.len() < 2 {
        return None;
    }
    let mut rng = Rng::new(seed);
    let mut room = Vec::with_capacity(base.len().max(new.len()));
    let mut draw = |from: &[f64]| {
        room.clear();
        room.extend((0..from.len()).map(|_| from[rng.below(from.len())]));
        median_of(&mut room)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| ratio(draw(base), draw(new))).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    // Cut the same number on each side, so that 95 % remain.
    let cut = RESAMPLES / 40;
    Some(Interval { low: ratios[cut], high: ratios[RESAMPLES - 1 - cut] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_interval_and_constants_have_none() {
        let (a, b) = ([1., 2., 3., 4., 5., 6.], [2., 3., 4., 5., 6., 9.]);
        assert_eq!(ratio_interval(&a, &b, 7), ratio_interval(&a, &b, 7));
        assert_ne!(ratio_interval(&a, &b, 7), ratio_interval(&b, &a, 7));
        let i = ratio_interval(&[4.0; 6], &[2.0; 6], 1).unwrap();
        assert_eq!((i.low, i.high), (0.5, 0.5));
        assert_eq!(ratio_interval(&[1.0], &b, 1), None);
        assert_eq!((ratio(0.0, 0.0), ratio(0.0, 3.0)), (1.0, f64::INFINITY));
    }

    /// The distribution of the median of three draws from three samples is known: the least with
    /// probability 7/27, the middle with 13/27, the largest with 7/27. Against a constant the
    /// interval therefore reaches from the least to the largest, but not where the tails hold less.
    #[test]
    fn interval_matches_the_known_distribution() {
        let i = ratio_interval(&[1.0; 3], &[1., 2., 3.], 3).unwrap();
        assert_eq!((i.low, i.high), (1.0, 3.0));
        // The median of nine draws is the least sample only if five of nine draws are: 0.1 %. It is
        // at most the second sample with 3.0 %. The 2.5 % quantile is therefore the second sample.
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        let i = ratio_interval(&[1.0; 3], &nine, 3).unwrap();
        assert_eq!((i.low, i.high), (2.0, 8.0));
    }

    /// For a true ratio of 1, about 95 % of the intervals contain it. Percentile intervals of
    /// medians are known to be too wide rather than too narrow.
    #[test]
    fn interval_coverage_is_nominal() {
        let mut rng = Rng::new(42);
        let runs = 300;
        let covered = (0..runs).filter(|&i| {
            let mut draw = || (0..10).map(|_| 10.0 + rng.unit()).collect::<Vec<_>>();
            ratio_interval(&draw(), &draw(), i).unwrap().contains(1.0)
        });
        let share = covered.count() as f64 / runs as f64;
        assert!((0.93..=0.995).contains(&share), "{share}");
    }
}
