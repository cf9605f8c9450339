//! What an observer sees: the kernel's page tracepoints (spec §9.5) as values.

use crate::base::gfp::Gfp;
use crate::base::stats::DrainReason;
use crate::base::units::{MigrateType, Order, Pfn, ZoneId, ZoneKind};
use crate::embedder::compact_events::CompactEvent;
use crate::embedder::high::HighChange;

/// One event. The CPU comes beside it, through [`Observer::event`](crate::Observer::event).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `mm_page_alloc`: a request was answered; `None` where it failed.
    Alloc {
        /// First frame of the block.
        pfn: Option<Pfn>,
        /// Its order.
        order: Order,
        /// The type asked for.
        migrate_type: MigrateType,
        /// The request's flags.
        gfp: Gfp,
    },
    /// `mm_page_free`: a block comes back from its owner; it has not gone anywhere yet.
    Free {
        /// First frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_free_batched`: the same block once more, where it was freed as part of a batch
    /// ([`Yard::free_batch`](crate::Yard::free_batch)): all blocks of a group were announced by
    /// [`Event::Free`], now this one goes to this CPU's list (§6.2). Not a second free.
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
        /// The order asked for.
        order: Order,
        /// The order of the free block found.
        found: Order,
        /// The type asked for.
        migrate_type: MigrateType,
        /// The type of the block found.
        from: MigrateType,
        /// The pageblock has the requested type now: claimed, not stolen.
        claimed: bool,
    },
    /// A request found its per-CPU list empty and took `blocks` blocks from the zone, under one
    /// hold of its lock.
    Refill {
        /// The zone.
        zone: ZoneKind,
        /// Order of the blocks.
        order: Order,
        /// How many were wanted.
        wanted: u32,
        /// How many were got.
        blocks: u32,
    },
    /// Per-CPU lists gave pages back to the zone, under one hold of its lock.
    BulkFree {
        /// The zone.
        zone: ZoneKind,
        /// Why.
        reason: DrainReason,
        /// How many base pages.
        pages: u32,
    },
    /// `high` of the CPU's lists changed; told only to platforms that ask for it
    /// ([`SEES_TUNING`](crate::Observer::SEES_TUNING)).
    High {
        /// The zone.
        zone: ZoneId,
        /// From what to what, and why.
        change: HighChange,
    },
    /// Compaction's tracepoints (§7.4–7.8).
    Compact(CompactEvent),
}
