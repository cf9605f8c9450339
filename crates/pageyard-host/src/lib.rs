//! The page allocator over real memory on Linux.
//!
//! - [`HostYard`] allocates [`Block`]s: owned, accessible as bytes, freed on drop. An [`OwnedBlock`]
//!   keeps its yard alive, so that one value can hold both.
//! - [`RawYard`] allocates frame numbers. Their memory is only accessible as atomic words, so all
//!   its methods are safe, whatever callers do with the numbers.
//! - [`Builder`] builds both: size, nodes, CPUs, huge pages, knobs.
//! - [`Worker`] does the background work, on the yard's own thread or on one of the embedder. The
//!   work is reclaim by [`Shrinker`]s, compaction of [`Movable`] blocks, [`Limits`], pressure
//!   events, returning idle memory ([`GiveBack`]), statistics ([`YardStats`]). `docs/host.md` in
//!   the repository describes it.
//! - [`Region`] is the memory, [`Topology`] describes the machine, [`HostLock`] is the lock.
//!
//! ```
//! use pageyard::{Gfp, Order};
//! use pageyard_host::Builder;
//!
//! let yard = Builder::new(64 << 20).build()?;
//! let mut block = yard.alloc(Order::new(3).unwrap(), Gfp::KERNEL)?;
//! block.fill(7);
//! assert_eq!(block.len(), 32 << 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Events
//! With the feature `tracing`, a yard emits events for background work, changes and failures, with
//! the target `pageyard`. `docs/host.md` lists them.
//!
//! Of the crates for embedders, only this one, the C interface, `pageyard-carve` and
//! `pageyard-adapters` contain `unsafe`; every such block states why it is sound.
//!
//! # Limits
//! Base pages are 4 KiB, in this crate and in the system.
//!
//! # Forks
//! A yard works only in the process that built it. After a `fork` by the C library, the child has a
//! copy of every block; blocks in memory that is a file ([`Backing`]) are shared with the parent,
//! and blocks in anonymous memory that is [pinned](Builder::pinned) are zeros.
//! The child may read, write and drop them. But it cannot allocate from the parent's yards: a
//! request fails with [`NoMemory`](pageyard::AllocError::NoMemory). Dropped blocks are forgotten.
//! Nothing waits for a lock that another thread of the parent held.
//!
//! The child can build yards of its own. If a thread of the parent may have begun or ended during
//! the fork, give them no worker thread ([`Builder::tick`] with `None`): the standard library holds
//! a lock then, and a child that starts a thread would wait for it forever.
//!
//! A child created by the bare system call, not through the C library, is not detected.

#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
mod aborts;
mod backend;
mod backing;
mod balloon;
mod barrier;
mod block;
mod builder;
mod bulk;
mod callback;
pub mod clock;
#[cfg(feature = "allocator-api2")]
mod collections;
pub mod cpu;
mod error;
mod fork;
mod fragment;
mod free_batch;
mod give_back;
mod global;
mod handshake;
mod held;
#[cfg(test)]
mod hooked_alloc;
mod hotplug;
mod known_zero;
mod latch;
mod limits;
mod lock;
mod magazine;
mod maps;
mod memory;
#[cfg(miri)]
mod miri;
mod movable;
mod owned;
mod page;
mod pieces;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod planted;
mod platform;
mod pressure;
#[cfg(feature = "prometheus")]
mod prometheus;
mod raw_yard;
mod registry;
mod relocate;
mod requests;
mod roster;
mod seqlock;
mod service;
mod shrink;
mod signals;
mod stats;
mod sync;
mod thread_cache;
pub mod topology;
mod trace_events;
mod upkeep;
mod usable;
mod usage;
mod wake_event;
mod wake_flag;
mod watched;
mod worker;
mod yard;

pub use backing::{Backing, HugePages, HugeSize};
pub use block::Block;
pub use builder::Builder;
pub use bulk::PageRange;
#[cfg(feature = "allocator-api2")]
pub use collections::InYard;
pub use error::BuildError;
pub use fragment::{Fragment, FragmentCache, FragmentError};
pub use give_back::GiveBack;
pub use global::PageAlloc;
#[doc(hidden)]
pub use held::report_locks;
pub use limits::{LimitError, Limits};
pub use lock::HostLock;
pub use memory::Region;
pub use movable::{Movable, Pinned};
pub use owned::{OwnedBlock, OwnedRange};
pub use page::{PageError, Publishers, publishers, read_stats};
pub use platform::HostPlatform;
pub use pressure::{Cause, Level, PressureEvent};
#[cfg(feature = "prometheus")]
pub use prometheus::write_prometheus;
pub use raw_yard::{RawYard, Words};
pub use registry::Registration;
pub use relocate::{Moving, Relocator};
pub use service::Status;
pub use shrink::Shrinker;
pub use signals::{GroupMemory, SystemFiles, Watching};
pub use stats::{CpuStatus, YardStats, ZoneStatus};
pub use thread_cache::{ThreadCache, ThreadCacheStats, ThreadCacheUse};
pub use topology::Topology;
pub use usable::Usable;
pub use watched::{Watch, Watched};
pub use worker::Worker;
pub use yard::HostYard;
