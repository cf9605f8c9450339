//! One page event, as the kernel's `kmem` tracepoints report it (spec §9.5), and what else a trace
//! yields.

use crate::compaction::Compaction;

/// One event: when, where, and what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in nanoseconds since the trace's own clock began.
    pub t_ns: u64,
    /// The CPU on which it happened.
    pub cpu: u16,
    /// The process that ran there, an index into the trace's task table ([`crate::Tasks`]).
    pub task: u32,
    /// What happened.
    pub kind: Kind,
}

/// What a page event says. Frame numbers are absolute; counts are orders (2^order base pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `mm_page_alloc`: a request was answered; `pfn` is `None` where it failed.
    Alloc {
        /// First frame of the block, `None` for a failed request.
        pfn: Option<u64>,
        /// Order of the block.
        order: u8,
        /// The migrate type that the request asked for.
        migratetype: u8,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_page_free`: the owner gives a block back (recorded before it goes anywhere).
    Free {
        /// First frame of the block.
        pfn: u64,
        /// Order of the block.
        order: u8,
    },
    /// `mm_page_free_batched`: the same page again, at the moment a batch is really freed.
    FreeBatched {
        /// The frame.
        pfn: u64,
    },
    /// `mm_page_alloc_zone_locked`: a block left the zone's free lists under the zone lock.
    ZoneLocked {
        /// First frame of the block, `None` where the recorder had none.
        pfn: Option<u64>,
        /// Order of the block.
        order: u8,
        /// Type of the list that served.
        migratetype: u8,
        /// The block's order and type are such that it goes to a per-CPU list.
        refill: bool,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list back to the zone.
    Drain {
        /// First frame of the block.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Type under which it was freed.
        migratetype: u8,
    },
    /// `mm_page_alloc_extfrag`: a request was served from another type's block.
    ExtFrag {
        /// First frame of the block taken.
        pfn: u64,
        /// Order that was asked for.
        alloc_order: u8,
        /// Order of the block that was found.
        fallback_order: u8,
        /// Type that was asked for.
        alloc_type: u8,
        /// Type of the block that was found.
        fallback_type: u8,
        /// The pageblock has the requested type now.
        change_ownership: bool,
    },
}

/// What a trace yields, in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A page event.
    Event(Event),
    /// A tracepoint of compaction.
    Compaction {
        /// Time in nanoseconds.
        t_ns: u64,
        /// The CPU on which it happened.
        cpu: u16,
        /// The process that ran there, an index into the trace's task table ([`crate::Tasks`]).
        task: u32,
        /// What happened. It is rare, and larger than a page event.
        what: Box<Compaction>,
    },
    /// A `print` event: a marker that the recording script wrote.
    Mark {
        /// Time in nanoseconds.
        t_ns: u64,
        /// The CPU that wrote it.
        cpu: u16,
        /// Its text.
        text: String,
    },
}
