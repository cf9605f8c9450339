//! The events that an observer receives: the kernel's page tracepoints (spec §9.5) as values.

use crate::base::gfp::Gfp;
use crate::base::stats::DrainReason;
use crate::base::units::{MigrateType, Order, Pfn, ZoneId, ZoneKind};
use crate::embedder::compact_events::CompactEvent;
use crate::embedder::high::HighChange;

/// One event. [`Observer::event`](crate::Observer::event) gets the CPU as a separate argument.
///
/// ```
/// use std::cell::Cell;
/// use pageyard::{CpuId, Event, Observer};
///
/// #[derive(Default)]
/// struct Failures(Cell<u32>);
/// impl Observer for Failures {
///     fn event(&self, _: CpuId, event: Event) {
///         if let Event::Alloc { pfn: None, .. } = event {
///             self.0.set(self.0.get() + 1);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `mm_page_alloc`: a request completed; `None` if it failed.
    Alloc {
        /// First frame of the block.
        pfn: Option<Pfn>,
        /// Its order.
        order: Order,
        /// The requested type.
        migrate_type: MigrateType,
        /// The request's flags.
        gfp: Gfp,
    },
    /// `mm_page_free`: a block was freed by its owner; it is not on a list yet.
    Free {
        /// First frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_free_batched`: a block freed as part of a batch
    /// ([`Yard::free_batch`](crate::Yard::free_batch)) now goes to this CPU's list (§6.2).
    /// [`Event::Free`] announced all blocks of its group before; this is not a second free.
    FreeBatched {
        /// First frame of the block.
        pfn: Pfn,
    },
    /// `mm_page_alloc_zone_locked`: a block left the free lists, under the zone lock.
    ZoneLocked {
        /// First frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// The list's type.
        migrate_type: MigrateType,
        /// Whether blocks of this order and type are kept on per-CPU lists.
        refill: bool,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list to the zone.
    Drain {
        /// First frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// The type under which it was freed.
        migrate_type: MigrateType,
    },
    /// `mm_page_alloc_extfrag`: a request took another type's block.
    Fallback {
        /// First frame of the block.
        pfn: Pfn,
        /// The requested order.
        order: Order,
        /// The order of the free block found.
        found: Order,
        /// The requested type.
        migrate_type: MigrateType,
        /// The type of the block found.
        from: MigrateType,
        /// Whether the pageblock now has the requested type: claimed rather than stolen.
        claimed: bool,
    },
    /// A request found its per-CPU list empty and took `blocks` blocks from the zone, under one
    /// hold of the zone lock.
    Refill {
        /// The zone.
        zone: ZoneKind,
        /// Order of the blocks.
        order: Order,
        /// Number of blocks requested.
        wanted: u32,
        /// Number of blocks taken.
        blocks: u32,
    },
    /// Per-CPU lists returned pages to the zone, under one hold of the zone lock.
    BulkFree {
        /// The zone.
        zone: ZoneKind,
        /// The reason.
        reason: DrainReason,
        /// Number of base pages.
        pages: u32,
    },
    /// `high` of the CPU's lists changed. Sent only to observers that ask for it
    /// ([`SEES_TUNING`](crate::Observer::SEES_TUNING)).
    High {
        /// The zone.
        zone: ZoneId,
        /// The old value, the new value and the reason.
        change: HighChange,
    },
    /// Compaction's tracepoints (§7.4–7.8).
    Compact(CompactEvent),
}
