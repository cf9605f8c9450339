//! Random numbers that are the same on every host for the same seed. No floating point: libraries
//! differ in the last bit of a logarithm.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Whether something happens that happens `of` times in `in_all`.
    pub fn happens(&mut self, of: u64, in_all: u64) -> bool {
        self.below(in_all) < of
    }

    /// Exponentially distributed with this mean (von Neumann's method: comparisons only). Rounded
    /// down to a multiple of 1/2^32 of the mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // Whole parts are added until a descending run of draws has odd length; then the run's
        // first draw is the fraction.
        let mut whole = 0u128;
        loop {
            let first = self.next_u64() >> 32;
            let mut last = first;
            let mut n = 1;
            loop {
                let draw = self.next_u64() >> 32;
                if draw >= last {
                    break;
                }
                last = draw;
                n += 1;
            }
            if n % 2 == 1 {
                let units = whole << 32 | u128::from(first);
                return ((units * u128::from(mean)) >> 32).min(u64::MAX.into()) as u64;
            }
            whole += 1;
        }
    }
}

/// Spreads every bit of `z` over all bits.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_has_its_mean_and_its_tail() {
        let mut rng = Rng::new(1);
        let draws: Vec<u64> = (0..100_000).map(|_| rng.exponential(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() / 100_000;
        assert!((980_000..1_020_000).contains(&mean), "{mean}");
        // e^-1 and e^-3 of them are beyond one and three means.
        let beyond = |k: u64| draws.iter().filter(|&&d| d > k * 1_000_000).count();
        assert!((36_000..37_600).contains(&beyond(1)), "{}", beyond(1));
        assert!((4_700..5_260).contains(&beyond(3)), "{}", beyond(3));
    }
}
