//! The tasks that are inside a hook that frees or moves memory. Their own requests must not start
//! another reclaim, and may use the reserves (spec §2.10).

use crate::base::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of tasks that are tracked exactly.
const KNOWN: usize = 64;
/// Number of counters for the others.
const COUNTERS: usize = 256;

/// A set of any number of tasks. The first 64 at a time are tracked exactly. Each further task
/// increments two counters chosen by its number, so it is always recognised. While further tasks
/// are inside, an unrelated task may be mistaken for one of them (with one further task, one in
/// some 30,000). A mistaken task uses the reserves and does not reclaim, which is better than
/// endless recursion of reclaim.
#[derive(Debug)]
pub(crate) struct Reclaimers {
    known: [AtomicU64; KNOWN],
    beyond: [AtomicU32; COUNTERS],
}

impl Reclaimers {
    pub(crate) const fn new() -> Self {
        Reclaimers {
            known: [const { AtomicU64::new(0) }; KNOWN],
            beyond: [const { AtomicU32::new(0) }; COUNTERS],
        }
    }

    /// Enters a hook. Each call needs a matching [`exit_reclaim`](Self::exit_reclaim).
    #[inline(never)]
    pub(crate) fn enter(&self, task: u64) {
        if !self.replace(0, !task) {
            self.counters(task).for_each(|n| _ = n.fetch_add(1, Relaxed));
        }
    }

    #[inline(never)]
    pub(crate) fn exit_reclaim(&self, task: u64) {
        if !self.replace(!task, 0) {
            self.counters(task).for_each(|n| _ = n.fetch_sub(1, Relaxed));
        }
    }

    pub(crate) fn has(&self, task: u64) -> bool {
        let entry = !task;
        entry != 0 && self.known.iter().any(|s| s.load(Relaxed) == entry)
            || self.counters(task).all(|n| n.load(Relaxed) > 0)
    }

    /// Replaces one entry. 0 means no task.
    fn replace(&self, old: u64, new: u64) -> bool {
        old != new
            && self.known.iter().any(|s| s.compare_exchange(old, new, Relaxed, Relaxed).is_ok())
    }

    /// Returns the two counters of a task, which may be the same.
    fn counters(&self, task: u64) -> impl Iterator<Item = &AtomicU32> {
        // Spreads consecutive numbers far apart.
        let mixed = task.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let places = [mixed >> 56, mixed >> 48 & 0xff];
        places.into_iter().filter_map(|i| self.beyond.get(i as usize))
    }
}

/// Marks a task as inside a hook that frees or moves memory until dropped, also by a panic.
pub(crate) struct Inside<'r> {
    reclaimers: &'r Reclaimers,
    task: u64,
}

impl<'r> Inside<'r> {
    pub(crate) fn new(reclaimers: &'r Reclaimers, task: u64) -> Self {
        reclaimers.enter(task);
        Inside { reclaimers, task }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.reclaimers.exit_reclaim(self.task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of tasks to test; Miri is slow.
    const MANY: u64 = if cfg!(miri) { 1000 } else { 100_000 };

    /// Spec §2.10: every task inside is recognised, however many there are, and none once all have
    /// left.
    #[test]
    fn every_active_reclaimer_is_recognised() {
        let r = Reclaimers::new();
        let tasks = || (0..500).chain([u64::MAX, u64::MAX - 1]);
        for round in 1..4u64 {
            tasks().for_each(|t| r.enter(t));
            assert!(tasks().all(|t| r.has(t)), "round {round}");
        }
        // A task that left as often as it entered is gone, whichever way each entry was tracked.
        for _ in 1..4 {
            assert!(tasks().all(|t| r.has(t)));
            tasks().for_each(|t| r.exit_reclaim(t));
        }
        assert!(!tasks().any(|t| r.has(t)));
        assert!((0..MANY).all(|t| !r.has(t)));
    }

    #[test]
    fn few_reclaimers_are_recognised_exactly() {
        let r = Reclaimers::new();
        (0..64).for_each(|t| r.enter(t));
        assert!((64..MANY).all(|t| !r.has(t)));
        r.enter(64);
        let mistaken = (65..MANY + 65).filter(|&t| r.has(t)).count();
        assert!(r.has(64) && mistaken < 10, "{mistaken} of {MANY}");
    }
}
