//! The allocator over real memory on Linux.
//!
//! - [`HostYard`] hands out [`Block`]s: owned, as bytes, given back when they are dropped.
//! - [`RawYard`] hands out frame numbers; their memory is only ever seen as atomic words, so that
//!   every method of it is safe, whatever its callers do with the numbers.
//! - [`Builder`] makes both: size, nodes, CPUs, huge pages, settings.
//! - [`Region`] is the memory, [`Topology`] the machine around it, [`HostLock`] the lock.
//!
//! ```
//! use pageyard::{Gfp, Order};
//! use pageyard_host::{Builder, HostYard};
//!
//! let yard: HostYard = Builder::new(64 << 20).build()?;
//! let mut block = yard.alloc(Order::new(3).unwrap(), Gfp::KERNEL)?;
//! block.fill(7);
//! assert_eq!(block.len(), 32 << 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the C interface this is the only crate that holds `unsafe`; every such block says why it is
//! sound.
//!
//! # Limits
//! Base pages are 4 KiB, the system's too. A fork shares nothing: in the child the memory is a copy
//! and the yard's own thread does not run; leave a yard alone there.

#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod block;
mod builder;
pub mod clock;
pub mod cpu;
mod error;
mod lock;
mod maps;
mod memory;
mod platform;
mod raw_yard;
mod tick;
pub mod topology;
mod watched;
mod yard;

pub use block::Block;
pub use builder::Builder;
pub use error::BuildError;
pub use lock::HostLock;
pub use memory::{HugePages, Region};
pub use platform::HostPlatform;
pub use raw_yard::{RawYard, Words};
pub use topology::Topology;
pub use watched::{Watch, Watched};
pub use yard::HostYard;
