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

    /// Clears a bit. Returns whether it was set.
    pub(super) fn clear(&mut self, at: u64) -> bool {
        let was = self.get(at);
        if was {
            self.0[(at / 64) as usize] &= !(1 << (at % 64));
        }
        was
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
    }
}
