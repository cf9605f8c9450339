//! The unsafe code of locks and memory: the lock's side of the contract with [`lock_api`], and
//! descriptors in zeroed memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;

use lock_api::{GuardNoSend, RawMutex};
use pageyard::Frame;

use crate::lock::SimLock;

// SAFETY: `take` succeeds only if the flag `held` was clear, and sets it, or if the previous owner
// passes the lock on with the flag set; `release` clears the flag. A lock is not `Sync`: only one
// thread uses it, and nothing else runs on that thread between the test and the set of the flag.
unsafe impl RawMutex for SimLock {
    #[allow(clippy::declare_interior_mutable_const)] // required by `lock_api`
    const INIT: Self = SimLock::new();
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.take(true);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take(false)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.release();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.is_held()
    }
}

/// Returns zeroed descriptors that take no memory until they are written.
pub(crate) fn zeroed_frames(n: usize) -> Box<[Frame]> {
    if n == 0 {
        return Box::default();
    }
    let layout = Layout::array::<Frame>(n).expect("descriptors that fit the address space");
    // SAFETY: the layout is not of size 0. All-zero is a valid descriptor: `Frame` documents it,
    // and consists of atomic integers. The box frees with the layout of `[Frame; n]`, which is this
    // one.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<Frame>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(ptr::slice_from_raw_parts_mut(memory, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_frames_are_new_frames() {
        let frames = zeroed_frames(5);
        assert_eq!(format!("{:?}", frames[4]), format!("{:?}", Frame::new()));
        assert!(zeroed_frames(0).is_empty());
    }
}
