//! The unsafe code of locks and memory: the lock's side of the contract with [`lock_api`], and descriptors in memory that is
//! zero already.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;

use lock_api::{GuardNoSend, RawMutex};
use pageyard::Frame;

use crate::lock::SimLock;

// SAFETY: `take` succeeds only where the flag `held` was clear, which it sets, or where the one who
// had the lock hands it over, flag and all; `release` clears it. A lock is not `Sync`: one thread
// uses it at a time, and on that thread nothing happens between look and set.
unsafe impl RawMutex for SimLock {
    #[allow(clippy::declare_interior_mutable_const)] // what `lock_api` asks for
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

/// Descriptors that take no memory until they are written.
pub(crate) fn zeroed_frames(n: usize) -> Box<[Frame]> {
    if n == 0 {
        return Box::default();
    }
    let layout = Layout::array::<Frame>(n).expect("descriptors that fit the address space");
    // SAFETY: the layout is not of size 0. All zero is a valid descriptor: `Frame` documents it,
    // and is made of atomic integers. The box frees with the layout of `[Frame; n]`, this one.
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
