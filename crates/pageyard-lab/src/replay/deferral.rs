//! When a replay compacts again after a compaction that did not help.

/// Defers the compaction of a zone after one that did not help, since each may look at all of it.
#[derive(Clone, Default)]
pub(super) struct Deferred {
    shift: u32,
    left: u32,
}

impl Deferred {
    /// Returns whether this request is one of those that do without.
    pub(super) fn is_deferred(&mut self) -> bool {
        let was = self.left > 0;
        self.left = self.left.saturating_sub(1);
        was
    }

    /// Notes whether a compaction helped. Each one in a row that did not lets twice as many requests, up
    /// to 64, do without.
    pub(super) fn note(&mut self, helped: bool) {
        self.shift = if helped { 0 } else { (self.shift + 1).min(6) };
        self.left = if helped { 0 } else { 1 << self.shift };
    }
}
