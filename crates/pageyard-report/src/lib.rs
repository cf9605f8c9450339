//! Reports on a [`pageyard`] allocator, for operators and debuggers. They read the allocator through
//! its public queries and events, so an embedder that does not use them does not pay for them.
//!
//! | report | needs |
//! |---|---|
//! | [`text`]: `buddyinfo`, `pagetypeinfo`, `zoneinfo`, `vmstat` and the memory report, as Linux 6.12 prints them | a [`Yard`](pageyard::Yard) |
//! | [`verdicts`]: what stands in the way of each CPU's lists | counters from before and after an interval |
//! | [`History`]: the changes of `high` of the per-CPU lists, with reasons | an [`Observer`](pageyard::Observer) that sees the tuning |
//! | [`PageOwner`]: the last allocation and free of every block | an [`Observer`](pageyard::Observer) that sees every block |
//!
//! ```
//! use pageyard::{Bare, CpuId, Platform, Yard};
//!
//! struct Machine;
//! impl Platform for Machine {
//!     fn cpu(&self) -> CpuId { CpuId(0) }
//! }
//! let yard: Yard<'_, Bare<spin::mutex::SpinMutex<()>, Machine>> =
//!     Yard::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, Machine)?;
//!
//! let mut text = String::new();
//! pageyard_report::text::write_buddyinfo(&mut text, &yard)?;
//! assert!(text.starts_with("Node 0, zone   Normal "), "{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Like the core, the crate is `no_std`, needs no heap, and has no reachable panic.

#![no_std]
#![forbid(unsafe_code)]

mod history;
mod owner;
mod pad;
pub mod text;
mod verdict;
mod verdict_text;

pub use history::{History, Noted, Ring};
pub use owner::{Owner, OwnerRecord, PageOwner, Task};
pub use verdict::{Churn, CpuSample, Finding, FixedBy, Interval, Verdict, verdicts};
