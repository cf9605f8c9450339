//! `Packed`: a page-frame engine that keeps free frames as bits and packs allocations into the
//! fullest pageblocks.
//!
//! The [exact engine](crate::Yard) threads free lists through descriptors of 16 bytes, merges at
//! every free, and moves pages between lists under one zone lock. This engine has none of these:
//!
//! - **Bits.** A free frame is a set bit in its pageblock's eight words, one cache line. Free
//!   neighbours need no merging, and a refill takes a word of up to 64 frames in one operation.
//! - **Magazines.** Each CPU keeps arrays of frames by order and type. A request that finds one
//!   writes no shared line. Full magazines pass between CPUs through depots, one per cache domain.
//! - **Packing.** A refill adopts the fullest pageblock that has free frames. While many
//!   pageblocks are sparse, frames that are freed into them bypass the magazines, so that the
//!   sparse pageblocks empty. A pageblock whose frames are all free again becomes *whole* and
//!   serves requests of 2 MiB, or any type.
//!
//! No operation takes a lock but the CPU's own, which another CPU takes only to drain it.
//!
//! ```text
//!   alloc, free    CPU:      magazines (loaded, previous), a run of one word, a pending word
//!                     |
//!   64 at a time   Domain:   depot of full magazines; of the node, with a budget
//!                     |
//!   a word         Blocks:   8 words of 64 bits a pageblock; index by type and fullness; whole
//! ```
//!
//! # Two forms
//! A [`Region`] is one contiguous range of frames, without zones, watermarks, reserves, reclaim or
//! compaction. A [`Yard`](crate::Yard) under the policy [`Packed`](crate::policy::Packed) has all of
//! these, and a region for each zone. The book's chapter on this engine says what differs from the
//! exact engine.
//!
//! # Invariants
//! 1. A frame is exactly one of: never added, or removed; reserved; faulty and out of use; allocated, or on
//!    its way from its owner; free. A free frame is exactly one of: a set bit, part of a whole pageblock,
//!    an entry of one magazine, part of one CPU's run or pending word, in the hands of one operation.
//!    [`FrameState`] tells all but what kind of free; it calls free also what lies inside a block.
//! 2. A pageblock with a set bit that is neither active nor isolated is in the index of its type
//!    and bucket, or an operation in progress puts it there.
//! 3. The frames of a pageblock with its bit in the whole set have no set bit, and clearing the
//!    bit gives them to the caller that cleared it.
//! 4. A pageblock that is set apart, for CMA or as highatomic reserve, is active, and a set of its own
//!    lists it. Only requests that may use it take its frames, and none is in a magazine that came from a
//!    free after that.
//! 5. If it is noted that a search found no block of an order, no pageblock that the search could use has
//!    one, or an operation in progress takes the note back.

mod bits;
mod blocks;
pub(crate) mod class;
pub(crate) mod cpu;
mod domain;
mod faulty;
mod free_set_apart;
pub(crate) mod inventory;
mod isolation;
mod label;
mod notes;
#[cfg(feature = "alloc")]
pub(crate) mod owned_storage;
mod pinned;
mod place;
mod planted;
mod refill;
mod region;
mod report;
mod restore;
mod route;
mod set;
mod set_apart;
mod stack;
mod steps;
mod storage;
mod validate;
mod whole;

pub use blocks::Words;
pub use cpu::{CpuCounts, PerCpu};
pub use domain::Domain;
pub(crate) use domain::TICK_MAGAZINES;
pub(crate) use inventory::Sparsest;
pub use isolation::IsolateError;
pub(crate) use label::BUCKETS;
pub use label::Label;
#[cfg(feature = "alloc")]
pub use owned_storage::OwnedStorage;
pub use pinned::Pinned;
pub use region::{AddError, Region};
pub use route::Route;
pub use set::IndexWord;
pub use stack::{Link, Magazine};
#[cfg(pageyard_loom)]
pub use stack::{ModelStack, Stack};
pub(crate) use storage::CPUS_PER_DOMAIN;
pub use storage::{FrameState, Needs, RegionError, Storage, YardNeeds, YardStorage};
pub use validate::{Broken, Census};
