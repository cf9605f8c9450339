//! Loom's atomics for code that makes its own in constants, which loom cannot; and a lock of them.
//!
//! Outside [`staged`] an atomic is a plain value, so that what is built before a model's threads
//! begin, and looked at after their end, costs loom nothing. Within it, an atomic takes one of loom's
//! from a store when it is first used.

mod lock;
mod value;

pub use loom::sync::atomic::{Ordering, fence};

pub use lock::{Lock, Planted, has_bug, plant, plant_bug, skip};
pub use value::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, staged};
