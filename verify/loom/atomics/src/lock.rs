//! A lock like an embedder's for the core, and the bugs that it could have.

use std::cell::Cell;

use lock_api::RawMutex;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread::yield_now;

use crate::value::{AtomicBool, is_staged, unstage, write};

/// A bug of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// No bug.
    No,
    /// The next holder does not see what the previous holder wrote.
    NoAcquire,
    /// A thread that [skips](skip) the lock continues although another thread holds it.
    NoWait,
    /// The same, and loom is not told what the lock protects, so the damage itself must be found.
    NoWaitUntold,
}

std::thread_local! {
    // Belongs to the thread that runs the model; loom's own threads are coroutines on it.
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::No) };
    // A bug in the core, by its number there; 0: none.
    static BUG: Cell<u32> = const { Cell::new(0) };
}

loom::thread_local! {
    // How many locks this thread of the model skips.
    static SKIPPED: Cell<u32> = Cell::new(0);
}

/// At the start of a model: gives its locks this bug.
pub fn plant(bug: Planted) {
    // The previous model may have panicked midway.
    unstage();
    PLANTED.set(bug);
}

/// At the start of a model: plants this bug in the core.
pub fn plant_bug(bug: u32) {
    unstage();
    BUG.set(bug);
}

/// Returns whether the model planted this bug of the core.
pub fn has_bug(bug: u32) -> bool {
    is_staged() && BUG.get() == bug
}

/// With that bug planted, the calling thread does not wait for its next `locks` locks.
pub fn skip(locks: u32) {
    if matches!(PLANTED.get(), Planted::NoWait | Planted::NoWaitUntold) {
        SKIPPED.with(|n| n.set(locks));
    }
}

/// A lock made of one word. Each holder reports to loom a write to the protected data; loom panics
/// if two holders' writes are not ordered.
pub struct Lock {
    held: AtomicBool,
    contents: Cell<Option<usize>>,
}

// SAFETY: all threads of a model are coroutines of one thread, which switch only in loom's
// operations.
unsafe impl Send for Lock {}
// SAFETY: as above.
unsafe impl Sync for Lock {}

impl Lock {
    fn write(&self) {
        if is_staged() && PLANTED.get() != Planted::NoWaitUntold {
            write(&self.contents);
        }
    }

    fn take(&self) -> bool {
        let order = if PLANTED.get() == Planted::NoAcquire { Relaxed } else { Acquire };
        let taken = self.held.compare_exchange(false, true, order, Relaxed).is_ok();
        if taken {
            self.write();
        }
        taken
    }
}

// SAFETY: only one exchange from false to true can succeed before the next unlock. A planted bug
// must be found before two threads use the contents.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Lock { held: AtomicBool::new(false), contents: Cell::new(None) };
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        let skipped = is_staged() && SKIPPED.with(|n| n.replace(n.get().saturating_sub(1)) > 0);
        while !self.take() {
            if skipped {
                return self.write();
            }
            yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.take()
    }

    unsafe fn unlock(&self) {
        self.write();
        self.held.store(false, Release);
    }
}
