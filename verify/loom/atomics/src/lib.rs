//! Loom's atomics for code that creates its own in constants, which loom does not support; and a
//! lock made of them.
//!
//! Outside [`staged`] an atomic is a plain value. Code that runs before a model's threads start or
//! after they end therefore costs loom nothing. Inside, an atomic takes one of loom's from a store
//! at its first use.

mod lock;
mod value;

pub use loom::sync::atomic::{Ordering, fence};

pub use lock::{Lock, Planted, has_bug, plant, plant_bug, skip};
pub use value::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, staged};
