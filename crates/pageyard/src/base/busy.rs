//! A turn that one takes at a time and that is no lock: whoever has it may call the embedder, which
//! may sleep, and whoever waits for it does so in [`Platform::pause`](crate::Platform::pause).

use crate::base::sync::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// Whether somebody has the turn.
#[derive(Debug, Default)]
pub(crate) struct BusyFlag(AtomicBool);

/// Gives the turn back when dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard<'t>(&'t AtomicBool);

impl BusyFlag {
    pub(crate) const fn new() -> BusyFlag {
        BusyFlag(AtomicBool::new(false))
    }

    /// Takes the turn if it is free.
    pub(crate) fn try_take(&self) -> Option<BusyGuard<'_>> {
        let free = self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        // Lazily: a guard that is built for a failed exchange and dropped would release the turn of
        // the thread that has it.
        free.then(|| BusyGuard(&self.0))
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_held_through_failed_attempts() {
        let turn = BusyFlag::new();
        let held = turn.try_take();
        assert!(held.is_some());
        assert!((0..3).all(|_| turn.try_take().is_none()), "it is held");
        drop(held);
        assert!(turn.try_take().is_some(), "it is free again");
        assert!(turn.try_take().is_some(), "its guard releases it");
    }
}
