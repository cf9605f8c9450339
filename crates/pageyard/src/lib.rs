//! The Linux page allocator as an embeddable library.
//!
//! Implements zones, buddy lists, mobility grouping with clean free lists, self-tuning per-CPU page
//! lists, single-pass bulk freeing, watermarks and reserves. It is meant for kernels, hypervisors,
//! unikernels, databases and anything else that allocates pages. The library needs no heap and no
//! operating system. The embedder supplies memory, locks, the current CPU and the clock.
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
//! Without a heap, a [`Layout`] describes the machine and a [`Storage`] holds the maps in any
//! memory. They may be statics (`examples/statics.rs`) or one region that the crate
//! `pageyard-carve` divides. `docs/embedding.md` in the repository shows each way.
//!
//! # Features
//! - `packed` (on by default): yards on the packed engine, the policy [`policy::Packed`]. Without it, no
//!   code of that engine is in a program that uses yards, whatever its policy.
//! - `alloc` (off by default): maps on the heap, with `OwnedStorage` and `Yard::from_memory_map`.
//! - `lines` (off by default): the module `lines`, for simulators that price cache lines. Needs `std`.
//!
//! # Path of a request
//! [`Yard::alloc`] maps the flags to a zone, a type and a watermark with one table ([`Gfp`]). It
//! takes the first zone that passes its watermark and allocates from this CPU's list. An empty list
//! is refilled in bulk from the zone's lists: first of its own type, then by claiming a block of
//! another type, then by stealing one. [`Yard::free`] checks the descriptor and pushes the block on
//! this CPU's list. If the list is full, it drains a tuned number of pages in one pass.
//!
//! # Behaviour
//! A [`policy`] is a type. [`policy::Linux612`], the default, answers as Linux 6.12.117 does in every
//! recording of it; direct reclaim, compaction, CMA, hotplug and several nodes were not recorded. "§" in these pages refers to a section of `docs/spec.md` in the
//! repository.
//!
//! # Checks and defences
//! [`policy::Safety`] selects the defences against mistakes and faults (§11). Policies such as
//! [`policy::PageChecked`], [`policy::Poisoned`] or [`policy::Guarded`] compose, and a defence that
//! they do not turn on is not compiled. [`Yard::poison_frame`] takes faulty memory out of use,
//! [`Faults`] makes requests fail.
//!
//! # Reports
//! The crate `pageyard-report` writes the kernel's texts (`zoneinfo`, `vmstat`, ...), judges the
//! tuning of the per-CPU lists, and records the owner of every block.
//!
//! # Limits
//! Base pages are 4 KiB, blocks at most 4 MiB, a zone at most 16 TiB (8 TiB on the packed engine), 64 nodes.
//! Targets need 64-bit atomics.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc as heap;

mod allocator;
mod base;
mod embedder;
mod inspect;
pub mod packed;
mod pcp;
mod ranges;
mod request;
mod upkeep;
mod zone;

/// Compiles the examples of docs/needs.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/needs.md")]
struct Needed;

/// Compiles the example of docs/packed.md.
#[cfg(all(doctest, feature = "alloc", feature = "packed"))]
#[doc = include_str!("../../../docs/packed.md")]
struct PackedChapter;

pub use allocator::init_error::InitError;
pub use allocator::knob_error::{Excerpt, KnobError};
pub use allocator::knob_table::{Access, KNOBS, Knob};
pub use allocator::knobs::Knobs;
pub use allocator::layout::{Layout, Needs, Storage, ZoneSpec};
#[cfg(feature = "alloc")]
pub use allocator::owned_storage::OwnedStorage;
pub use allocator::vm_events::{VmEvent, VmEvents};
pub use allocator::yard::{Yard, ZoneInfo, fragmentation_index, unusable_index};
pub use base::frame::{Frame, Pageblock};
pub use base::free_error::FreeError;
pub use base::gfp::Gfp;
#[cfg(feature = "lines")]
pub use base::lines;
pub use base::node_mask::{MAX_NODES, NodeChoice, NodeMask};
pub use base::put;
pub use base::stats::{
    BlockCounts, BlockSupply, CpuStats, DrainReason, LOCK_BUCKETS, NumaStats, ZoneStats,
    ZoneTotals, stat_threshold,
};
pub use base::units::{
    COSTLY_ORDER, CpuId, MAX_ORDER, MigrateType, NodeId, Order, PAGE_SIZE, PAGEBLOCK_ORDER,
    PAGEBLOCK_PAGES, Pfn, SECTION_PAGES, TYPES, ZONE_KINDS, ZoneId, ZoneKind,
};
pub use base::watermark;
pub use base::watermark::Supply;
pub use embedder::checks::{BadPage, Link, PageFlags, PageState};
pub use embedder::compact_events::{CompactEvent, CompactResult, Priority};
pub use embedder::config::{Bare, Config, Hooked};
pub use embedder::context::{Context, Cpuset, TaskFlags};
pub use embedder::events::Event;
pub use embedder::faults::{FaultPlan, Faults};
pub use embedder::high::{HighChange, HighReason};
pub use embedder::hooks::{Defences, Hooks, Observer, Reclaim, Relocation};
pub use embedder::parts::Parts;
pub use embedder::platform::Platform;
pub use embedder::reclaim_job::{
    Mark, NodeCaches, NodeReclaim, NodeReclaimJob, Oom, ReclaimJob, Throttle,
};
pub use embedder::report::Report;
pub use embedder::{poison, policy};
pub use inspect::record::{CpuRecord, Record, ZoneRecord};
pub use inspect::snapshot::RestoreError;
pub use inspect::validate_error::{Broken, Invalid, Tally};
pub use pcp::pageset::LISTS as PCP_LISTS;
pub use pcp::tuning;
pub use ranges::balloon::{Balloon, BalloonError, Lent};
pub use ranges::cma::{CmaArea, CmaError, CmaStats};
pub use ranges::compact;
pub use ranges::compact::{CompactStats, Compacted};
pub use ranges::contig::ContigError;
pub use ranges::cursor::ContigCursor;
pub use ranges::hotplug::HotplugError;
pub use ranges::hwpoison::{PoisonError, Poisoned};
pub use ranges::isolate::IsolateError;
pub use ranges::place::{Place, PlaceError};
pub use ranges::release::ReleaseError;
pub use ranges::reporting::Reported;
pub use ranges::scatter::ScatterError;
pub use ranges::shootdown::{Epoch, Epochs, EpochsRef, ShootdownBatch, ShootdownError};
pub use request::alloc::AllocError;
pub use request::free::BatchError;
pub use request::interleave::Interleave;
pub use request::kswapd::{Kswapd, ReclaimTask};
pub use request::prepare::OutOfUse;
pub use upkeep::maintain::PcpDisabled;
pub use zone::node::{CpuZones, LOCAL_DISTANCE, Node, REMOTE_DISTANCE};
pub use zone::state::{PerCpu, Zone};

/// The README's example, compiled.
#[cfg(all(doctest, feature = "alloc"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
