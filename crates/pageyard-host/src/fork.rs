//! Forks: a child has a copy of every yard, and of its locks in whatever state other threads left
//! them. So a yard works only in the process that built it, and detects when it is elsewhere.

use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::magazine;
#[cfg(miri)]
use crate::miri as libc;

/// Number of forks in this process's ancestry since the first yard was built.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Runs in the child, on its only thread, before any other code there. It only sets words.
extern "C" fn in_child() {
    FORKS.store(FORKS.load(Relaxed).wrapping_add(1), Relaxed);
    magazine::forget_all();
}

/// The process that an object was created in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Birthplace(u32);

impl Birthplace {
    /// Returns the current process. From the first call on, forks by the C library are detected.
    pub(crate) fn here() -> Birthplace {
        // No `Once`, for which a child that is forked meanwhile would wait for ever. Several threads may
        // register the function, each before it returns: in a child it then runs several times.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.load(Acquire) {
            // SAFETY: the function lives as long as the program and does only what is allowed in a
            // child. The call fails only without memory; then a child goes undetected
            // (`a_child_keeps_its_copy_and_cannot_allocate`).
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            WATCHED.store(true, Release);
        }
        Birthplace(FORKS.load(Relaxed))
    }

    /// Returns whether this is still that process.
    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        FORKS.load(Relaxed) == self.0
    }
}
