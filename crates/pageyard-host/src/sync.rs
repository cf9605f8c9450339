//! Primitives of the lock-free protocols. `verify/loom` compiles the files that use this
//! module again, with loom's primitives.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

pub(crate) use crate::held::{Class, Mutex, MutexGuard};

/// The barrier between an owner's store to `inside` and its load of `taken`. The processor may
/// still reorder the store and the load; the barrier of the claiming thread makes up for that.
#[inline(always)]
pub(crate) fn light_barrier() {
    // Miri has no `membarrier`, so both sides use a fence.
    if cfg!(miri) {
        return fence(Ordering::SeqCst);
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Bits that count the blocks of a kind in a magazine. Loom's primitives have fewer: each slot costs
/// stack.
pub(crate) const COUNT_BITS: u32 = 7;

/// Yields to other threads.
pub(crate) use std::thread::yield_now;
