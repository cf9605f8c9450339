//! Busy flag. It is not a lock: the holder may call the embedder, which may sleep; waiters call
//! [`Platform::pause`](crate::Platform::pause).

use crate::base::sync::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// Whether the flag is held.
#[derive(Debug, Default)]
pub(crate) struct BusyFlag(AtomicBool);

/// Releases the flag when dropped.
#[derive(Debug)]
pub(crate) struct BusyGuard<'t>(&'t AtomicBool);

impl BusyFlag {
    pub(crate) const fn new() -> BusyFlag {
        BusyFlag(AtomicBool::new(false))
    }

    /// Takes the flag if it is free.
    pub(crate) fn try_take(&self) -> Option<BusyGuard<'_>> {
        let free = self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        // Lazily: a guard built for a failed exchange and dropped would release the flag of the
        // thread that holds it.
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
    fn a_busy_flag_survives_failed_attempts() {
        let turn = BusyFlag::new();
        let held = turn.try_take();
        assert!(held.is_some());
        assert!((0..3).all(|_| turn.try_take().is_none()), "it is held");
        drop(held);
        assert!(turn.try_take().is_some(), "it is free again");
        assert!(turn.try_take().is_some(), "its guard releases it");
    }
}
