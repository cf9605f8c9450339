//! A barrier on all threads of the process that one of them pays for (`membarrier`).
//!
//! Who is often somewhere says so by a plain store and then looks whether somebody wants to keep
//! him out; who rarely wants to keep others out says so, makes everybody pass a barrier, and then
//! looks who is still inside. One of the two sees the other.

use std::sync::OnceLock;

/// Commands of the system call, a stable interface.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn call(command: libc::c_int) -> bool {
    if cfg!(miri) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        return true;
    }
    // SAFETY: takes three numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Says that the process will use it. Whether the system can do that.
pub(crate) fn is_available() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| call(REGISTER_PRIVATE_EXPEDITED))
}

/// Every thread of the process passes a full barrier between the call and the return. `false` where
/// the system refuses; then nothing may be concluded.
pub(crate) fn all_threads() -> bool {
    call(PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_registered_works() {
        assert_eq!(super::is_available(), super::is_available() && super::all_threads());
    }
}
