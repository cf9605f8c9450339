//! A set of records.

/// One bit per record.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn grow(&mut self, at: u64) {
        let words = (at / 64 + 1) as usize;
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
    }

    pub(super) fn set(&mut self, at: u64) {
        self.grow(at);
        self.0[(at / 64) as usize] |= 1 << (at % 64);
    }

    pub(super) fn clear(&mut self, at: u64) {
        if let Some(word) = self.0.get_mut((at / 64) as usize) {
            *word &= !(1 << (at % 64));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    #[inline(always)]
    pub(super) fn get(&self, at: u64) -> bool {
        self.0.get((at / 64) as usize).is_some_and(|w| w >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        let mut b = Bits::default();
        b.set(130);
        assert!(b.get(130) && !b.get(129) && !b.get(1 << 40));
        b.set(7);
        b.clear(130);
        b.clear(1 << 40);
        assert_eq!((b.get(7), b.get(130), b.count()), (true, false, 1));
    }
}
