//! Random numbers that are the same on every host for the same seed. No floating point: libraries
//! differ in the last bit of a logarithm.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns `true` with probability `of / in_all`.
    pub fn happens(&mut self, of: u64, in_all: u64) -> bool {
        self.below(in_all) < of
    }

    /// Returns a log-normally distributed number with this median and 99th percentile, within six
    /// standard deviations. If the percentile is not above the median, returns the median. (A sum
    /// of twelve draws approximates the normal distribution.)
    pub fn log_normal(&mut self, median: u64, p99: u64) -> u64 {
        let sum: i128 = (0..12).map(|_| i128::from(self.next_u64() >> 32)).sum();
        let normal = sum - 6 * i128::from(ONE);
        if median == 0 || p99 <= median {
            return median;
        }
        let ratio = (u128::from(p99) << 32) / u128::from(median);
        let exponent = normal * log2(ratio) / NORMAL_P99;
        let scaled = u128::from(median) * exp2_fraction(exponent);
        // The integer part of the exponent is a shift, down or up.
        let value = match (exponent >> 32) as i32 {
            down @ ..0 => scaled.checked_shr(32 + down.unsigned_abs()).unwrap_or(0),
            up => scaled.saturating_mul(1 << up.min(60)) >> 32,
        };
        value.min(u64::MAX.into()) as u64
    }

    /// Returns an exponentially distributed number with this mean (von Neumann's method:
    /// comparisons only), rounded down to a multiple of 1/2^32 of the mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // Add whole parts until a descending run of draws has odd length; the first draw of that
        // run is the fraction.
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

/// One, in fixed point with 32 fractional bits.
const ONE: u64 = 1 << 32;
/// The 99th percentile of the standard normal distribution, 2.32635.
const NORMAL_P99: i128 = 9_991_588_038;

/// 2 to the power of 1/2, 1/4, 1/8 and so on, with 62 fractional bits.
const ROOTS: [u64; 32] = {
    let mut roots = [0; 32];
    let mut root = 2u128 << 62;
    let mut i = 0;
    while i < 32 {
        root = (root << 62).isqrt();
        roots[i] = root as u64;
        i += 1;
    }
    roots
};

/// Returns the binary logarithm of a number of at least 1.
fn log2(x: u128) -> i128 {
    let whole = x.ilog2() - 32;
    // Between 1 and 2; each squaring yields a bit.
    let mut rest = x >> whole;
    let mut log = i128::from(whole) << 32;
    for bit in (0..32).rev() {
        rest = (rest * rest) >> 32;
        if rest >= 2 << 32 {
            rest >>= 1;
            log |= 1 << bit;
        }
    }
    log
}

/// Returns 2 to the power of the fractional part of `x`, with 32 fractional bits.
fn exp2_fraction(x: i128) -> u128 {
    let mut product = 1u128 << 62;
    for (i, &root) in ROOTS.iter().enumerate() {
        if x >> (31 - i) & 1 != 0 {
            product = (product * u128::from(root)) >> 62;
        }
    }
    product >> 30
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
    fn logarithms_and_powers() {
        assert_eq!(log2(1 << 32), 0);
        assert_eq!(log2(8 << 32), 3 << 32);
        // 2.321928 and 1.41421356
        assert_eq!(log2(5 << 32), 9_972_605_231);
        assert_eq!(exp2_fraction(1 << 31), 6_074_000_999);
        assert_eq!(
            exp2_fraction(-(1 << 31)),
            6_074_000_999,
            "of -1/2 it is 1/2 that stands behind"
        );
    }

    #[test]
    fn log_normal_has_its_median_and_its_tail() {
        let mut rng = Rng::new(2);
        let mut draws: Vec<u64> = (0..100_000).map(|_| rng.log_normal(12_000, 60_000)).collect();
        draws.sort_unstable();
        // Below the median by the same factor as above it.
        for (at, wanted) in [(50_000, 12_000), (99_000, 60_000), (1_000, 2_400)] {
            let found: u64 = draws[at];
            assert!(found.abs_diff(wanted) < wanted / 20, "{at}: {found}, not {wanted}");
        }
        assert_eq!(rng.log_normal(5, 5), 5);
        assert_eq!(rng.log_normal(0, 5), 0);
        assert!(rng.log_normal(u64::MAX / 2, u64::MAX) > 0);
    }

    #[test]
    fn exponential_has_its_mean_and_its_tail() {
        let mut rng = Rng::new(1);
        let draws: Vec<u64> = (0..100_000).map(|_| rng.exponential(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() / 100_000;
        assert!((980_000..1_020_000).contains(&mean), "{mean}");
        // Shares of e^-1 and e^-3 exceed one and three means.
        let beyond = |k: u64| draws.iter().filter(|&&d| d > k * 1_000_000).count();
        assert!((36_000..37_600).contains(&beyond(1)), "{}", beyond(1));
        assert!((4_700..5_260).contains(&beyond(3)), "{}", beyond(3));
    }
}
