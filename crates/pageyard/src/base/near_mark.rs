//! Whether requests have to compare a zone's free counter with a watermark.
//!
//! On the packed engine the counter's line moves to each CPU that changes it. While the counter is far
//! above the marks, requests need not read it: a flag says so, in a word that they read anyway and
//! that rarely changes. A change of the counter or of a mark updates the flag. It is set while the
//! counter is at or below the mark, and may be set above it.

use crate::base::sync::{
    AtomicI64, AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// Shifted by the index of a mark: the counter may be at or below that mark.
pub(crate) const NEAR_MARK: u32 = 1 << 16;

/// How far above a mark the counter must be before its flag is cleared, so that a counter around the
/// mark does not change the flag each time.
const SLACK: i64 = 1024;

/// The words of one zone.
pub(crate) struct NearMark<'z> {
    pub(crate) flags: &'z AtomicU32,
    pub(crate) counter: &'z AtomicI64,
    /// Fewer than 16.
    pub(crate) marks: &'z [AtomicI64],
}

impl NearMark<'_> {
    /// Updates the flags after a change of the counter to `free`.
    pub(crate) fn note_counter(&self, free: i64) {
        // Each side stores, fences and then loads what the others store. Three stores matter: the last
        // to the counter, to a mark and to the flag. The thread whose fence is last sees all three, and
        // sets the flag if it is needed.
        fence(SeqCst);
        self.update(free);
    }

    /// Updates the flags after a change of the marks.
    pub(crate) fn note_marks(&self) {
        fence(SeqCst);
        self.update(self.counter.load(Relaxed));
    }

    fn update(&self, free: i64) {
        let seen = self.flags.load(Relaxed);
        if seen & self.all() == 0 && self.marks.iter().all(|mark| free > mark.load(Relaxed)) {
            return;
        }
        let missing = self.flags_within(free, 0) & !seen;
        if missing != 0 {
            self.flags.fetch_or(missing, Relaxed);
        }
        let surplus = seen & self.all() & !self.flags_within(free, SLACK);
        if surplus != 0 {
            self.flags.fetch_and(!surplus, Relaxed);
            fence(SeqCst);
            let again = surplus & self.flags_within(self.counter.load(Relaxed), 0);
            if again != 0 {
                self.flags.fetch_or(again, Relaxed);
            }
        }
    }

    /// Returns the flags of all marks.
    fn all(&self) -> u32 {
        NEAR_MARK * ((1 << (self.marks.len() & 15)) - 1)
    }

    /// Returns the flags of the marks that `free` exceeds by at most `slack`.
    fn flags_within(&self, free: i64, slack: i64) -> u32 {
        self.marks.iter().zip(0u32..16).fold(0, |flags, (mark, n)| {
            let near = free <= mark.load(Relaxed).saturating_add(slack);
            flags | if near { NEAR_MARK << n } else { 0 }
        })
    }

    /// Returns whether each flag is set that must be. While nothing else runs.
    pub(crate) fn is_right(&self) -> bool {
        let needed = self.flags_within(self.counter.load(Relaxed), 0);
        self.flags.load(Relaxed) & needed == needed
    }
}
