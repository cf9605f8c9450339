//! Holm's correction for multiple tests.

/// Returns the corrected p values, in the order given: the smallest times their number, the next
/// times one less, and so on, never smaller than the previous one and never above 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![1.0; p.len()];
    let mut least = 0.0f64;
    for (rank, &at) in order.iter().enumerate() {
        least = least.max((p[at] * (p.len() - rank) as f64).min(1.0));
        corrected[at] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_r_computes_it() {
        // R: p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm") is 0.04 0.06 0.06 0.06.
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(&holm(&[0.01, 0.02, 0.03, 0.04]), &[0.04, 0.06, 0.06, 0.06]));
        // In the order given, and never above 1.
        assert!(close(&holm(&[0.7, 0.001, 0.6]), &[1.0, 0.003, 1.0]));
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn adjusted_p_keeps_order_and_only_grows(p in prop::collection::vec(0.0..=1.0f64, 1..40)) {
            let h = holm(&p);
            for i in 0..p.len() {
                prop_assert!(h[i] >= p[i] && h[i] <= 1.0);
                for j in 0..p.len() {
                    prop_assert!(p[i] > p[j] || h[i] <= h[j]);
                }
            }
            // No larger than Bonferroni's.
            let most = p.iter().map(|p| (p * h.len() as f64).min(1.0));
            prop_assert!(h.iter().zip(most).all(|(h, most)| *h <= most + 1e-12));
        }
    }
}
