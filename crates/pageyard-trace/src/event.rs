//! Page events, as the kernel's `kmem` tracepoints report them (spec §9.5), and the other records
//! of a trace.

use crate::compaction::Compaction;

/// One page event: time, place and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in nanoseconds, by the trace's own clock.
    pub t_ns: u64,
    /// CPU on which the event happened.
    pub cpu: u16,
    /// Process that was running, an index into the trace's task table ([`crate::Tasks`]).
    pub task: u32,
    /// What happened.
    pub kind: Kind,
}

/// Kind of a page event. Frame numbers are absolute; an order means 2^order base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `mm_page_alloc`: a request was served, or failed if `pfn` is `None`.
    Alloc {
        /// First frame of the block, `None` for a failed request.
        pfn: Option<u64>,
        /// Order of the block.
        order: u8,
        /// Requested migrate type.
        migratetype: u8,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_page_free`: the owner frees a block. Recorded before the allocator takes it.
    Free {
        /// First frame of the block.
        pfn: u64,
        /// Order of the block.
        order: u8,
    },
    /// `mm_page_free_batched`: the same page again, when its batch is actually freed.
    FreeBatched {
        /// The frame.
        pfn: u64,
    },
    /// `mm_page_alloc_zone_locked`: a block left the zone's free lists under the zone lock.
    ZoneLocked {
        /// First frame of the block, `None` if the recorder had none.
        pfn: Option<u64>,
        /// Order of the block.
        order: u8,
        /// Type of the free list that the block came from.
        migratetype: u8,
        /// Whether the block's order and type make it go to a per-CPU list.
        refill: bool,
    },
    /// `mm_page_pcpu_drain`: a block was drained from a per-CPU list to the zone.
    Drain {
        /// First frame of the block.
        pfn: u64,
        /// Order of the block.
        order: u8,
        /// Type under which it was freed.
        migratetype: u8,
    },
    /// `mm_page_alloc_extfrag`: a request was served from a block of another type.
    ExtFrag {
        /// First frame of the block taken.
        pfn: u64,
        /// Requested order.
        alloc_order: u8,
        /// Order of the block found.
        fallback_order: u8,
        /// Requested type.
        alloc_type: u8,
        /// Type of the block found.
        fallback_type: u8,
        /// Whether the pageblock now has the requested type.
        change_ownership: bool,
    },
}

/// A record of a trace. Records are in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A page event.
    Event(Event),
    /// A tracepoint of compaction or reclaim.
    Compaction {
        /// Time in nanoseconds.
        t_ns: u64,
        /// CPU on which the event happened.
        cpu: u16,
        /// Process that was running, an index into the trace's task table ([`crate::Tasks`]).
        task: u32,
        /// The tracepoint. Boxed because it is rare and larger than a page event.
        what: Box<Compaction>,
    },
    /// A `print` event: a marker written by the recording script.
    Mark {
        /// Time in nanoseconds.
        t_ns: u64,
        /// The CPU that wrote it.
        cpu: u16,
        /// Its text.
        text: String,
    },
}
