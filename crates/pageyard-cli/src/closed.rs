//! Whether standard output was closed when the program started (`>&-`).
//!
//! Rust's runtime opens `/dev/null` in place of a closed descriptor before `main`, so that output would
//! be lost without an error. The substitute cannot be told from a `/dev/null` that a caller opened for
//! reading and writing, as Python's `subprocess.DEVNULL` is. So the program looks before the runtime.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions that the loader calls in the main thread before the
// runtime starts. This one makes a system call and stores its outcome, which needs no runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        CLOSED.store(is_closed, Ordering::Relaxed);
    }
    look
};

/// Returns the error of writing to standard output if it was closed at the start.
pub(crate) fn check() -> std::io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) { Err(rustix::io::Errno::BADF.into()) } else { Ok(()) }
}
