//! The random generator of the tests.

/// A linear congruential generator that returns the upper 31 bits of its state.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.next() % n
    }
}
