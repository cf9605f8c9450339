//! The atomics of the core. The crates that search for bad interleavings
//! (`verify/shuttle`, `verify/loom`, `verify/pairs`) substitute a tool's
//! atomics and compile the files beside this one unchanged. Frames and lists of frames use
//! [`frames`] instead. The holder of their lock owns them (§1.6), and a frame of zero bytes must be
//! valid. Only `verify/pairs` replaces those.

#[cfg(not(any(pageyard_shuttle, pageyard_loom, pageyard_pairs)))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(pageyard_loom)]
pub(crate) use pageyard_loom_atomics::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(pageyard_pairs)]
pub(crate) use pageyard_pairs_atomics::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(pageyard_shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};

#[cfg(not(pageyard_pairs))]
pub(crate) use core::sync::atomic as frames;
#[cfg(pageyard_pairs)]
pub(crate) use pageyard_pairs_atomics as frames;
