//! A lock as an embedder gives the core one, with the bugs that it could have.

use std::cell::Cell;

use lock_api::RawMutex;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread::yield_now;

use crate::value::{AtomicBool, is_staged, unstage, write};

/// A bug of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// None.
    No,
    /// The next holder does not see what the last holder wrote.
    NoAcquire,
    /// A thread that [skips](skip) it goes on though another one holds it.
    NoWait,
    /// The same, and loom is not told of what the lock protects: the damage has to show.
    NoWaitUntold,
}

std::thread_local! {
    // Of the thread that runs the model: loom's own are coroutines on it.
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::No) };
    // A bug of the core's own, by its number there; 0: none.
    static BUG: Cell<u32> = const { Cell::new(0) };
}

loom::thread_local! {
    // How many locks this thread of the model will not wait for.
    static SKIPPED: Cell<u32> = Cell::new(0);
}

/// At the start of a model: its locks have this bug.
pub fn plant(bug: Planted) {
    // The one before may have ended in the middle.
    unstage();
    PLANTED.set(bug);
}

/// At the start of a model: the core has this bug of its own.
pub fn plant_bug(bug: u32) {
    unstage();
    BUG.set(bug);
}

/// Returns whether the model planted this bug of the core.
pub fn has_bug(bug: u32) -> bool {
    is_staged() && BUG.get() == bug
}

/// The calling thread of a model does not wait for the next so many locks, if that is the bug.
pub fn skip(locks: u32) {
    if matches!(PLANTED.get(), Planted::NoWait | Planted::NoWaitUntold) {
        SKIPPED.with(|n| n.set(locks));
    }
}

/// A lock that is one word. Loom is told that every holder writes to what it protects, and panics
/// where two holders are not one after the other to all that they know.
pub struct Lock {
    held: AtomicBool,
    contents: Cell<Option<usize>>,
}

// SAFETY: all threads of a model are coroutines of one thread, which change places in operations of
// loom's only.
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

// SAFETY: only one exchange from false to true can succeed before the next unlock; a planted bug is
// to be found before anybody has the contents twice.
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
