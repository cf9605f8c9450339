//! Limits on the expansion of compressed input, so that memory and time stay proportional to its
//! stored size.

use crate::error::Fault;

/// A limit of `free` bytes plus `ratio` bytes per stored byte.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    free: u64,
    ratio: u64,
}

/// Text recordings and state files compress by a factor of 10 to 50.
pub(crate) const TEXT: Bound = Bound { free: 8 << 20, ratio: 256 };
/// Frame maps: on an idle machine they are long runs of a few values.
pub(crate) const MAP: Bound = Bound { free: 64 << 20, ratio: 1024 };

impl Bound {
    /// Returns the maximum number of bytes that `stored` bytes may expand to.
    pub(crate) fn of(self, stored: u64) -> u64 {
        stored.saturating_mul(self.ratio).saturating_add(self.free)
    }

    /// Fails if `stored` bytes may not expand to `plain` bytes.
    pub(crate) fn check(self, what: &'static str, stored: u64, plain: u64) -> Result<(), Fault> {
        let limit = self.of(stored);
        if plain > limit { Err(Fault::Expands { what, stored, limit }) } else { Ok(()) }
    }
}
