//! The allocator over real memory on Linux.
//!
//! - [`HostYard`] hands out [`Block`]s: owned, as bytes, given back when they are dropped.
//! - [`RawYard`] hands out frame numbers; their memory is only ever seen as atomic words, so that
//!   every method of it is safe, whatever its callers do with the numbers.
//! - [`Builder`] makes both: size, nodes, CPUs, huge pages, settings.
//! - [`Worker`] does the background work, on a thread of the yard's or of the embedder's: reclaim by
//!   [`Shrinker`]s, compaction of [`Movable`] blocks, [`Limits`], pressure, memory given back
//!   ([`GiveBack`]), statistics ([`YardStats`]). `docs/host.md` in the repository describes it.
//! - [`Region`] is the memory, [`Topology`] the machine around it, [`HostLock`] the lock.
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
//! With the feature `tracing`, a yard tells of its background work, of changes and of failures: events
//! with the target `pageyard`. `docs/host.md` lists them.
//!
//! With the C interface and `pageyard-carve` this is the only crate that holds `unsafe`; every such block says why it is
//! sound.
//!
//! # Limits
//! Base pages are 4 KiB, the system's too.
//!
//! # Forks
//! A yard is of use in the process that made it. After a `fork` of the C library's the child has a
//! copy of every block (of memory that is a file, [`Backing`], the block itself), to be read, written and dropped; but no yard of the parent's gives it
//! anything: a request is [`NoMemory`](pageyard::AllocError::NoMemory), what is dropped is
//! forgotten, and nothing waits for a lock that another thread of the parent's held. The child can
//! make yards of its own. Other methods than those of blocks, `alloc`, `alloc_on`, `free_raw`,
//! `drain`, `tick` and `drop` are not for it. A child made past the C library (by the bare system
//! call) is not noticed.

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
mod give_back;
mod global;
mod handshake;
mod held;
#[cfg(test)]
mod hooked_alloc;
mod known_zero;
mod limits;
mod lock;
mod magazine;
mod maps;
mod memory;
#[cfg(miri)]
mod miri;
mod movable;
mod page;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod planted;
mod platform;
mod pressure;
mod raw_yard;
mod relocate;
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
pub use give_back::GiveBack;
pub use global::PageAlloc;
#[doc(hidden)]
pub use held::report_locks;
pub use limits::{LimitError, Limits};
pub use lock::HostLock;
pub use memory::Region;
pub use movable::{Movable, Pinned};
pub use page::{PageError, read_stats};
pub use platform::HostPlatform;
pub use pressure::{Cause, Level, PressureEvent};
pub use raw_yard::{RawYard, Words};
pub use relocate::{Moving, Relocator};
pub use service::Status;
pub use shrink::{Registration, Shrinker};
pub use signals::{GroupMemory, SystemFiles, Watching};
pub use stats::{CpuStatus, YardStats, ZoneStatus};
pub use thread_cache::{ThreadCache, ThreadCacheStats, ThreadCacheUse};
pub use topology::Topology;
pub use watched::{Watch, Watched};
pub use worker::Worker;
pub use yard::HostYard;
