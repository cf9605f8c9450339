//! A barrier on all threads of the process that one of them pays for (`membarrier`).
//!
//! A frequent user sets its flag with a plain store and then checks whether another thread wants to
//! exclude it. The rare excluding thread sets its own flag, makes all threads pass a barrier, and
//! then checks the user's flag. At least one of the two sees the other.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Commands of the system call, a stable interface.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn call(command: libc::c_int) -> bool {
    if cfg!(miri) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        return true;
    }
    // SAFETY: `membarrier` takes three numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers the process for the barrier. Returns whether the system supports it. Also tries it: a
/// filter of system calls may refuse one command only.
pub(crate) fn is_available() -> bool {
    const UNTRIED: u8 = 2;
    // No `OnceLock`: registering takes milliseconds, and a child that is forked meanwhile would wait for
    // it for ever. Several threads may register (`a_child_builds_a_yard_while_its_parent_does`).
    static WORKS: AtomicU8 = AtomicU8::new(UNTRIED);
    let known = WORKS.load(Relaxed);
    if known != UNTRIED {
        return known == 1;
    }
    let works = call(REGISTER_PRIVATE_EXPEDITED) && all_threads();
    WORKS.store(works.into(), Relaxed);
    works
}

/// Makes every thread of the process pass a full barrier between the call and the return. Returns
/// `false` if the system refuses; then the caller must not conclude anything.
pub(crate) fn all_threads() -> bool {
    call(PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    #[test]
    fn barrier_works_after_registration() {
        if pageyard_unmet::met("membarrier", super::is_available()) {
            assert!(super::all_threads());
        }
    }
}
