//! Forks: a child has a copy of every yard, and of its locks in whatever state other threads had
//! them. So a yard is of use in the process that made it alone, and knows where it is.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::magazine;
#[cfg(miri)]
use crate::miri as libc;

/// How often this process's line has forked since the first yard was made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Runs in the child, on its only thread, before anything else does there: sets words, no more.
extern "C" fn in_child() {
    FORKS.store(FORKS.load(Relaxed).wrapping_add(1), Relaxed);
    magazine::forget_seats();
}

/// The process that something was made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Birthplace(u32);

impl Birthplace {
    /// Here. From the first call on, forks by the C library are noticed.
    pub(crate) fn here() -> Birthplace {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the function lives as long as the program does, and does what is allowed in
            // a child. It fails only for want of memory; then a child goes unnoticed, which is
            // what it was before there was this (`a_child_keeps_its_copy_and_gets_no_more`).
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Birthplace(FORKS.load(Relaxed))
    }

    /// Whether this is still that process.
    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        FORKS.load(Relaxed) == self.0
    }
}
