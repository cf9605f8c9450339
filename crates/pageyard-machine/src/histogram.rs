//! A histogram of times, with sixteen buckets per power of two, so that quantiles are accurate to
//! 6%.

/// Sub-buckets per power of two.
const SUB: usize = 16;

/// Counts of values, by bucket.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let top = value.ilog2();
    (top as usize - 3) * SUB + (value >> (top - 4)) as usize % SUB
}

/// Returns the smallest value of a bucket.
fn least(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    ((SUB + bucket % SUB) as u64) << (bucket / SUB - 1)
}

impl Histogram {
    /// Adds a value.
    pub fn note(&mut self, value: u64) {
        let b = bucket(value);
        if b >= self.counts.len() {
            self.counts.resize(b + 1, 0);
        }
        self.counts[b] += 1;
        self.total += 1;
    }

    /// Returns the number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the smallest value of the bucket in which the given part (in thousandths) of all
    /// values ends, or 0 if there are no values.
    pub fn quantile(&self, thousandths: u64) -> u64 {
        self.quantile_of(thousandths, 1000)
    }

    /// Like [`quantile`](Histogram::quantile), for `part` of `of` parts.
    pub fn quantile_of(&self, part: u64, of: u64) -> u64 {
        let wanted = (u128::from(self.total) * u128::from(part)).div_ceil(of.into()).max(1);
        let mut seen = 0u128;
        for (b, &n) in self.counts.iter().enumerate() {
            seen += u128::from(n);
            if seen >= wanted {
                return least(b);
            }
        }
        0
    }

    /// Returns the non-empty buckets in ascending order: the smallest value of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, n)| **n > 0).map(|(b, &n)| (least(b), n))
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_covers_values_up_to_the_next() {
        for value in (0..5000).chain([u64::MAX, u64::MAX / 3, 1 << 40]) {
            let b = bucket(value);
            assert!(least(b) <= value, "{value}");
            assert!(b == bucket(u64::MAX) || least(b + 1) > value, "{value}");
            assert!(value - least(b) <= value / 16, "{value}");
        }
    }

    #[test]
    fn quantiles() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(990), 0);
        (1..=1000).for_each(|n| h.note(n * 10));
        assert!((4800..=5000).contains(&h.quantile(500)), "{}", h.quantile(500));
        assert!((9300..=9900).contains(&h.quantile(990)), "{}", h.quantile(990));
        let mut both = h.clone();
        both.merge(&h);
        assert_eq!((both.total(), both.quantile(990)), (2000, h.quantile(990)));
        assert!(both.buckets().is_sorted() && both.buckets().all(|b| b.1 > 0));
        assert_eq!(both.buckets().map(|b| b.1).sum::<u64>(), 2000);
    }
}
