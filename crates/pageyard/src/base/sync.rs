//! The atomics of the core. The crates that look for bad interleavings put a tool's in their place
//! (`crates/pageyard-shuttle`, `crates/pageyard-loom`, `crates/pageyard-pairs`) and compile the files
//! beside this one as they are. Frames and lists of frames have atomics of their own, [`frames`]:
//! whoever holds their lock owns them (§1.6), and a frame of zero bytes has to be one, so only
//! `crates/pageyard-pairs` replaces them.

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
