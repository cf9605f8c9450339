//! A metric's samples, best first, and the statistics that mmtests derives from them
//! (docs/tables.md, mmtests' figures).

use crate::result::Better;

/// Samples in mmtests' order: best first.
#[derive(Clone, Debug)]
pub struct Samples {
    sorted: Vec<f64>,
    better: Better,
}

impl Samples {
    /// Sorts the samples: ascending if lower is better, descending if higher is better.
    pub fn new(samples: &[f64], better: Better) -> Samples {
        let mut sorted = samples.to_vec();
        match better {
            Better::Lower => sorted.sort_by(f64::total_cmp),
            Better::Higher => sorted.sort_by(|a, b| b.total_cmp(a)),
        }
        Samples { sorted, better }
    }

    /// Returns the number of samples.
    pub fn n(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the samples, best first.
    pub fn best_first(&self) -> &[f64] {
        &self.sorted
    }

    /// Returns the smallest sample, regardless of preference.
    pub fn min(&self) -> f64 {
        self.sorted.iter().copied().fold(f64::NAN, f64::min)
    }

    /// Returns the largest sample, regardless of preference.
    pub fn max(&self) -> f64 {
        self.sorted.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Returns the mean that corresponds to the preference: arithmetic for costs, harmonic
    /// for rates. NaN if a rate is 0 or less, and without samples.
    pub fn mean(&self) -> f64 {
        mean(&self.sorted, self.better)
    }

    /// Returns the sample standard deviation, with divisor n-1, about the arithmetic mean. NaN for
    /// fewer than two samples.
    pub fn stddev(&self) -> f64 {
        let n = self.n() as f64;
        let mean = mean(&self.sorted, Better::Lower);
        let squares: f64 = self.sorted.iter().map(|x| (x - mean).powi(2)).sum();
        if self.n() < 2 { f64::NAN } else { (squares / (n - 1.0)).sqrt() }
    }

    /// Returns the deviation that mmtests prints for rates since 2024-12, about the harmonic mean
    /// H: sqrt(sum((1/x - 1/H)²) · H⁴ / n).
    pub fn hstddev(&self) -> f64 {
        let n = self.n() as f64;
        let mean = mean(&self.sorted, Better::Higher);
        let squares: f64 = self.sorted.iter().map(|x| (1.0 / x - 1.0 / mean).powi(2)).sum();
        if self.n() < 2 { f64::NAN } else { (squares * mean.powi(4) / n).sqrt() }
    }

    /// Returns the mean of the best `percent` of the samples, at least one. The worst samples are
    /// dropped, on one side only.
    pub fn best_mean(&self, percent: usize) -> f64 {
        let k = self.place(percent);
        mean(self.sorted.get(..k).unwrap_or(&[]), self.better)
    }

    /// Returns the element at this percentage of the best-first list, without interpolation. For
    /// rates the 95th percentile is therefore a low value. NaN without samples.
    pub fn percentile(&self, percent: usize) -> f64 {
        self.sorted.get(self.place(percent) - 1).copied().unwrap_or(f64::NAN)
    }

    /// Returns max(1, floor(n·P/100)).
    fn place(&self, percent: usize) -> usize {
        (self.n() * percent / 100).max(1)
    }
}

fn mean(samples: &[f64], better: Better) -> f64 {
    let n = samples.len() as f64;
    match better {
        Better::Lower => samples.iter().sum::<f64>() / n,
        Better::Higher if samples.iter().any(|&x| x <= 0.0) => f64::NAN,
        Better::Higher => n / samples.iter().map(|x| 1.0 / x).sum::<f64>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: [f64; 10] = [30., 10., 20., 40., 50., 60., 70., 80., 90., 100.];

    #[test]
    fn order_and_mean_follow_the_preference() {
        assert_eq!(Samples::new(&TEN, Better::Lower).best_first()[0], 10.0);
        let rates = Samples::new(&TEN, Better::Higher);
        assert_eq!(rates.best_first()[0], 100.0);
        assert_eq!((rates.min(), rates.max()), (10.0, 100.0));
        assert_eq!(Samples::new(&TEN, Better::Lower).mean(), 55.0);
        // Half the distance at 40 and half at 60 takes as long as all of it at 48.
        assert!((Samples::new(&[40., 60.], Better::Higher).mean() - 48.0).abs() < 1e-12);
        assert!(Samples::new(&[40., 0.], Better::Higher).mean().is_nan());
    }

    #[test]
    fn percentiles_are_not_interpolated_and_best_means_drop_the_worst() {
        let costs = Samples::new(&TEN, Better::Lower);
        assert_eq!(costs.percentile(50), 50.0);
        assert_eq!(costs.percentile(95), 90.0);
        assert_eq!(costs.percentile(1), 10.0);
        // A low value for rates.
        assert_eq!(Samples::new(&TEN, Better::Higher).percentile(95), 20.0);
        // Ten samples: both drop one.
        assert_eq!(costs.best_mean(95), 50.0);
        assert_eq!(costs.best_mean(99), 50.0);
        assert_eq!(costs.best_mean(50), 30.0);
    }

    #[test]
    fn deviations_divide_by_n_minus_1_or_are_about_the_harmonic_mean() {
        // By hand: mean 3, squares 4+1+0+1+4, divisor 4.
        let s = Samples::new(&[1., 2., 3., 4., 5.], Better::Lower);
        assert!((s.stddev() - 2.5f64.sqrt()).abs() < 1e-12);
        // By hand: H = 48, 1/40-1/48 = 1/240, twice; sqrt(2/240² · 48⁴ / 2) = 48²/240.
        let h = Samples::new(&[40., 60.], Better::Higher);
        assert!((h.hstddev() - 9.6).abs() < 1e-9);
        assert!(Samples::new(&[1.], Better::Lower).stddev().is_nan());
        assert!(Samples::new(&[], Better::Lower).percentile(50).is_nan());
    }
}
