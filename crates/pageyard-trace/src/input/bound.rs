//! How much a compressed input may stand for: memory and time stay in proportion to what is stored.

use crate::error::Fault;

/// So many bytes in any case, and so many for each stored byte.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    free: u64,
    ratio: u64,
}

/// Recordings and state files in text compress to a tenth or a fiftieth.
pub(crate) const TEXT: Bound = Bound { free: 8 << 20, ratio: 256 };
/// Maps of frames: those of an idle machine are a few values in long runs.
pub(crate) const MAP: Bound = Bound { free: 64 << 20, ratio: 1024 };

impl Bound {
    /// The most bytes that so many stored ones may stand for.
    pub(crate) fn of(self, stored: u64) -> u64 {
        stored.saturating_mul(self.ratio).saturating_add(self.free)
    }

    /// Whether `stored` bytes may stand for `plain` ones.
    pub(crate) fn check(self, what: &'static str, stored: u64, plain: u64) -> Result<(), Fault> {
        let limit = self.of(stored);
        if plain > limit { Err(Fault::Expands { what, stored, limit }) } else { Ok(()) }
    }
}
