//! What the protocols without locks are made of. `crates/pageyard-loom` compiles the files that use
//! this once more, with loom's.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

pub(crate) use crate::held::{Class, Mutex, MutexGuard};

/// What the owner of a magazine passes between saying that he is inside and looking whether it is
/// taken. The processor may still swap the store and the load; the barrier of the one who takes
/// magazines away makes up for that.
#[inline(always)]
pub(crate) fn light_barrier() {
    // Miri has no `membarrier`: a fence on either side stands for it.
    if cfg!(miri) {
        return fence(Ordering::SeqCst);
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Lets others go on.
pub(crate) use std::thread::yield_now;
