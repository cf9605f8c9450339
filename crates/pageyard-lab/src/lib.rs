//! The lab: what the allocator does with recorded work, and how that compares.
//!
//! [`conform`] holds the allocator against answers of the real kernel, operation by operation.
//! It knows no allocator internals: it sees answers, snapshots, counters and events.

pub mod conform;
mod memory;

pub use memory::{Lock, Memory};
