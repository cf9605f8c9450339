//! The page allocator that Linux grew over twenty years, as a library.
//!
//! Zones, buddy lists, mobility grouping with clean free lists, per-CPU page lists whose size
//! tunes itself, single-pass bulk freeing, watermarks and reserves: for kernels, hypervisors,
//! unikernels, databases, anything that hands out pages. It needs no heap and no operating
//! system; memory, locks, the current CPU and the clock come from its embedder.
//!
//! # Embedding it
//! ```
//! use pageyard::{Bare, CpuId, Gfp, Order, Platform, Yard};
//!
//! // The platform: which CPU executes the caller? Everything else has a default.
//! struct Machine;
//! impl Platform for Machine {
//!     fn cpu(&self) -> CpuId { CpuId(0) }
//! }
//! // Any lock that implements `lock_api::RawMutex`.
//! type Lock = spin::mutex::SpinMutex<()>;
//!
//! // 64 MiB at 4 GiB, the first MiB of it in use already, one CPU.
//! let (usable, reserved) = (0x1_0000_0000..0x1_0400_0000, 0x1_0000_0000..0x1_0010_0000);
//! let yard: Yard<'_, Bare<Lock, Machine>> =
//!     Yard::from_memory_map(&[usable], &[reserved], 1, Machine)?;
//!
//! // Allocate, use, free. Every free is checked.
//! let order = Order::for_bytes(32 << 10).unwrap();
//! let block = yard.alloc(order, Gfp::KERNEL)?;
//! assert_eq!(block.0 % 8, 0);
//! yard.free(block, order)?;
//! assert!(yard.free(block, order).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without a heap a [`Layout`] describes the machine, and a [`Storage`] of any origin holds the maps:
//! statics (`examples/statics.rs`) or one region that the crate `pageyard-carve` divides.
//! `docs/embedding.md` in the repository shows each way.
//!
//! # Features
//! - `alloc` (off by default): maps on the heap, by `OwnedStorage` and `Yard::from_memory_map`.
//!
//! # The way of a request
//! [`Yard::alloc`]: flags to (zone, type, watermark) by one table ([`Gfp`]); the first zone that
//! passes its watermark; this CPU's list, refilled in bulk where it is empty; else the zone's
//! lists: own type, then a block claimed from another type, then one stolen. [`Yard::free`] checks
//! the descriptor, pushes on this CPU's list, and gives a tuned number back in one pass where the
//! list is full.
//!
//! # Behaviour
//! A [`policy`] is a type. [`policy::Linux612`], the default, answers exactly as Linux 6.12.117
//! does, operation by operation. "§" in these pages is a section of `docs/spec.md` in the repository.
//!
//! # Checks and defences
//! [`policy::Safety`] says what is done against mistakes and faults (§11): policies as
//! [`policy::PageChecked`], [`policy::Poisoned`] or [`policy::Guarded`] compose, and what they do not
//! turn on is not compiled. Memory that fails is taken out of use by [`Yard::poison_frame`]; requests
//! are made to fail by [`Faults`]; [`PageOwner`] records who holds what.
//!
//! # Limits
//! Base pages are 4 KiB, blocks at most 4 MiB, a zone at most 16 TiB, 64 nodes.
//! Targets need 64-bit atomics.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc as heap;

mod alloc;
mod area;
mod buddy;
mod bulk;
mod checks;
mod cma;
pub mod compact;
mod config;
mod context;
mod contig;
mod cpus;
mod deferred;
mod evacuate;
mod events;
mod faults;
mod forward;
mod frame;
mod free;
mod gfp;
mod highatomic;
mod history;
mod hooks;
mod hotplug;
mod hwpoison;
mod init;
mod isolate;
mod knob_error;
mod knob_table;
mod knobs;
mod kswapd;
mod ladder;
mod layout;
mod list;
mod maintain;
#[cfg(feature = "alloc")]
mod memory_map;
mod mobility;
mod node;
#[cfg(feature = "alloc")]
mod owned_storage;
mod owner;
mod parts;
mod pcp;
mod place;
mod platform;
pub mod poison;
pub mod policy;
mod put;
mod reclaim;
mod reclaimers;
mod report;
mod reporting;
mod run;
mod safety;
mod shuffle;
mod snapshot;
mod spread;
mod stats;
mod sync;
pub mod text;
pub mod tuning;
mod turn;
mod units;
mod unwind;
mod validate;
mod validate_error;
mod verdict;
mod verdict_text;
mod vm_events;
mod wakeups;
pub mod watermark;
mod yard;
mod zone;
mod zonelist;

pub use alloc::AllocError;
pub use checks::{BadPage, Link, PageFlags, PageState};
pub use cma::{CmaArea, CmaError, CmaStats};
pub use compact::{CompactEvent, CompactResult, CompactStats, Compacted, Priority};
pub use config::{Bare, Config, Hooked};
pub use context::{Context, Cpuset, TaskFlags};
pub use contig::ContigError;
pub use events::{DrainReason, Event};
pub use faults::{FaultPlan, Faults};
pub use frame::{Frame, Pageblock};
pub use free::{BatchError, FreeError};
pub use gfp::Gfp;
pub use history::{HighChange, HighReason, History, Noted, Ring};
pub use hooks::{Defences, Hooks, Observer, Reclaim, Relocation};
pub use hotplug::HotplugError;
pub use hwpoison::{PoisonError, Poisoned};
pub use isolate::IsolateError;
pub use knob_error::{Excerpt, KnobError};
pub use knob_table::{Access, KNOBS, Knob};
pub use knobs::{Knobs, stat_threshold};
pub use kswapd::{Kswapd, ReclaimTask};
pub use layout::{InitError, Layout, Needs, Storage, ZoneSpec};
pub use maintain::PcpDisabled;
pub use node::{Home, LOCAL_DISTANCE, MAX_NODES, Node, NodeChoice, NodeMask, REMOTE_DISTANCE};
#[cfg(feature = "alloc")]
pub use owned_storage::OwnedStorage;
pub use owner::{Owner, OwnerRecord, PageOwner, Task};
pub use parts::Parts;
pub use pcp::LISTS as PCP_LISTS;
pub use place::{Place, PlaceError};
pub use platform::Platform;
pub use reclaim::{Mark, NodeCaches, NodeReclaim, NodeReclaimJob, Oom, ReclaimJob, Throttle};
pub use report::Report;
pub use reporting::Reported;
pub use safety::OutOfUse;
pub use snapshot::{CpuRecord, Record, RestoreError, ZoneRecord};
pub use spread::Interleave;
pub use stats::{BlockCounts, CpuStats, LOCK_BUCKETS, NumaStats, ZoneStats, ZoneTotals};
pub use units::{
    COSTLY_ORDER, CpuId, MAX_ORDER, MigrateType, NodeId, Order, PAGE_SIZE, PAGEBLOCK_ORDER,
    PAGEBLOCK_PAGES, Pfn, SECTION_PAGES, TYPES, ZONE_KINDS, ZoneId, ZoneKind,
};
pub use validate_error::{Broken, Invalid, Tally};
pub use verdict::{Churn, CpuSample, Finding, FixedBy, Interval, Verdict};
pub use vm_events::{VmEvent, VmEvents};
pub use yard::{Yard, ZoneInfo, fragmentation_index, unusable_index};
pub use zone::{CpuSlot, Zone};

/// The README's example, compiled.
#[cfg(all(doctest, feature = "alloc"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
