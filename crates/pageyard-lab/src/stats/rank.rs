//! The Mann-Whitney test: whether two samples differ in location, for any distribution.

use statrs::distribution::{ContinuousCDF, Normal};

/// Largest total number of samples for which the distribution is counted exactly; beyond it the
/// normal approximation is used.
const COUNTED: usize = 40;

/// Returns the two-sided p value: the probability that randomly assigned ranks deviate from the
/// mean at least as far as these. Exact for up to 40 samples in total, ties included. Beyond that,
/// uses the normal approximation with corrections for ties and continuity. Returns 1 if a side has
/// no samples.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = Ranks::of(a, b);
    if a.len() + b.len() <= COUNTED { ranks.counted().0 } else { ranks.normal() }
}

/// Returns the share of pairs, one sample of each side, in which the second is larger; equal pairs
/// count half. Returns 0.5 if a side has no samples.
pub(super) fn superiority(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.5;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    // Of all pairs, the first is larger in as many as its rank sum exceeds the smallest possible.
    let larger = Ranks::of(a, b).sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    1.0 - larger / (n * m)
}

/// The ranks of two pooled samples. Ranks are doubled, since ties can produce half ranks.
struct Ranks {
    /// Ranks of all samples, in ascending order.
    doubled: Vec<usize>,
    /// The size of each group of tied samples.
    ties: Vec<usize>,
    /// The sum of the first sample's doubled ranks.
    sum: usize,
    /// Number of samples in the first group.
    n: usize,
}

impl Ranks {
    fn of(a: &[f64], b: &[f64]) -> Ranks {
        let first = a.iter().map(|&x| (x, true));
        let mut all: Vec<(f64, bool)> = first.chain(b.iter().map(|&x| (x, false))).collect();
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        let mut ranks = Ranks { doubled: Vec::new(), ties: Vec::new(), sum: 0, n: a.len() };
        let mut before = 0;
        for tied in all.chunk_by(|x, y| x.0 == y.0) {
            // The mean of the ranks before+1 to before+len, doubled.
            let rank = 2 * before + tied.len() + 1;
            before += tied.len();
            ranks.sum += rank * tied.iter().filter(|t| t.1).count();
            ranks.doubled.extend(tied.iter().map(|_| rank));
            if tied.len() > 1 {
                ranks.ties.push(tied.len());
            }
        }
        ranks
    }

    /// Returns the expected doubled rank sum: doubled ranks average to one more than their number.
    fn expected(&self) -> usize {
        self.n * (self.doubled.len() + 1)
    }

    /// Counts all ways to choose the first sample. Returns the two-sided p value and the lower
    /// tail.
    fn counted(&self) -> (f64, f64) {
        let most: usize = self.doubled.iter().sum();
        // ways[k][s]: number of sets of k ranks with sum s. At most C(40, 20), exact in an f64.
        let mut ways = vec![vec![0.0f64; most + 1]; self.n + 1];
        ways[0][0] = 1.0;
        for (seen, &rank) in self.doubled.iter().enumerate() {
            for k in (1..=self.n.min(seen + 1)).rev() {
                let (less, this) = ways.split_at_mut(k);
                for (to, from) in this[0][rank..].iter_mut().zip(&less[k - 1]) {
                    *to += from;
                }
            }
        }
        let ways = &ways[self.n];
        let all: f64 = ways.iter().sum();
        let off = self.sum.abs_diff(self.expected());
        let far = ways.iter().enumerate().filter(|(s, _)| s.abs_diff(self.expected()) >= off);
        let far: f64 = far.map(|(_, w)| w).sum();
        (far / all, ways[..=self.sum].iter().sum::<f64>() / all)
    }

    fn normal(&self) -> f64 {
        let (n1, n) = (self.n as f64, self.doubled.len() as f64);
        let tied: f64 = self.ties.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
        let variance = n1 * (n - n1) / 12.0 * (n + 1.0 - tied / (n * (n - 1.0)));
        // U changes in steps of half the doubled sum; subtract half a step for continuity.
        let off = (self.sum.abs_diff(self.expected()) as f64 / 2.0 - 0.5).max(0.0);
        if variance <= 0.0 {
            return 1.0;
        }
        (2.0 * Normal::standard().sf(off / variance.sqrt())).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn small_samples_by_hand() {
        // Two of C(6,3) = 20 ways are as far apart.
        close(mann_whitney(&[1., 2., 3.], &[4., 5., 6.]), 0.1, 1e-12);
        close(mann_whitney(&[1., 2., 3., 4., 5.], &[6., 7., 8., 9., 10.]), 2.0 / 252.0, 1e-12);
        close(mann_whitney(&[1., 1.], &[1., 1., 1.]), 1.0, 1e-12);
        // Ranks 1.5 1.5 | 3.5 3.5: two of six ways separate the pairs.
        close(mann_whitney(&[1., 1.], &[2., 2.]), 2.0 / 6.0, 1e-12);
        assert_eq!(mann_whitney(&[], &[1.]), 1.0);
    }

    /// Published examples: from R's manual of wilcox.test (Hollander & Wolfe 69f, W = 35, one-sided
    /// 0.1272), and from SciPy's of mannwhitneyu.
    #[test]
    fn published_examples_without_ties() {
        let x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let y = [1.15, 0.88, 0.90, 0.74, 1.21];
        close(mann_whitney(&x, &y), 0.2544, 1e-4);
        let (males, females) = ([19., 22., 16., 29., 24.], [20., 11., 17., 12.]);
        close(mann_whitney(&males, &females), 0.1111111111111111, 1e-12);
        close(Ranks::of(&males, &females).normal(), 0.11134688653314041, 1e-10);
    }

    /// The example of NAG's g08ahf, with ties: normal statistic -2.8039, exact lower tail 0.0020.
    #[test]
    fn published_example_with_ties() {
        let a = [13., 6., 12., 7., 12., 7., 10., 7., 10., 7., 16., 7., 10., 8., 9., 8.];
        let b = [
            17., 6., 10., 8., 15., 8., 15., 10., 15., 10., 14., 10., 14., 11., 14., 11., 13., 12.,
            13., 12., 13., 12., 12.,
        ];
        let ranks = Ranks::of(&a, &b);
        close(ranks.counted().1, 0.0020, 5e-5);
        close(ranks.normal(), 2.0 * Normal::standard().cdf(-2.8039), 1e-6);
        close(mann_whitney(&a, &b), 0.0040, 1e-3);
    }

    #[test]
    fn superiority_is_the_share_of_larger_pairs() {
        assert_eq!(superiority(&[1., 2.], &[3., 4., 5.]), 1.0);
        assert_eq!(superiority(&[3.], &[1., 3., 4., 5.]), 2.5 / 4.0);
        assert_eq!((superiority(&[], &[1.]), superiority(&[2.], &[2., 2.])), (0.5, 0.5));
    }

    proptest! {
        #[test]
        fn p_is_symmetric_and_a_probability(
            a in prop::collection::vec(0..12i32, 1..30),
            b in prop::collection::vec(0..12i32, 1..30),
        ) {
            let f = |v: &[i32]| v.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (a, b) = (f(&a), f(&b));
            let p = mann_whitney(&a, &b);
            prop_assert!((0.0..=1.0).contains(&p));
            prop_assert!((p - mann_whitney(&b, &a)).abs() < 1e-9);
            // Only ranks count, and reversing the order changes nothing.
            let turned = |v: &[f64]| v.iter().map(|x| -(x * 3.0 + 1.0).exp()).collect::<Vec<_>>();
            prop_assert!((p - mann_whitney(&turned(&a), &turned(&b))).abs() < 1e-9);
        }

        /// Where both methods apply, their results are close.
        #[test]
        fn the_normal_distribution_is_near_the_count(
            a in prop::collection::vec(0.0..1.0f64, 20),
            b in prop::collection::vec(0.2..1.2f64, 20),
        ) {
            let ranks = Ranks::of(&a, &b);
            prop_assert!((ranks.counted().0 - ranks.normal()).abs() < 0.01);
        }
    }
}
