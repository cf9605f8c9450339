//! What compaction tells an observer: the kernel's tracepoints of it, as values.

use core::fmt;

use crate::gfp::Gfp;
use crate::units::{NodeId, Order, Pfn, ZoneId, ZoneKind};

/// How compaction of a zone ended, or why it did not begin. Greater is better news, as in the kernel:
/// a request that compacted several zones reports the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum CompactResult {
    /// Events only: too little memory, or too little fragmentation.
    NotSuitableZone = 0,
    /// Not begun: there is too little free memory to move anything to (§7.5).
    Skipped = 1,
    /// Not begun: earlier attempts have failed (§7.6).
    Deferred = 2,
    /// Events only: no block of the order is free yet.
    NoSuitablePage = 3,
    /// Events only: worth it; or not done yet.
    Continue = 4,
    /// The scanners met after a run over the whole zone: there is no more to be had.
    Complete = 5,
    /// The scanners met, but had not begun at the zone's ends.
    PartialSkipped = 6,
    /// Given up: somebody held the lock, or no free block could be taken.
    Contended = 7,
    /// A block of the order can be had.
    Success = 8,
}

impl fmt::Display for CompactResult {
    /// The kernel's word for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CompactResult::NotSuitableZone => "not_suitable_zone",
            CompactResult::Skipped => "skipped",
            CompactResult::Deferred => "deferred",
            CompactResult::NoSuitablePage => "no_suitable_page",
            CompactResult::Continue => "continue",
            CompactResult::Complete => "complete",
            CompactResult::PartialSkipped => "partial_skipped",
            CompactResult::Contended => "contended",
            CompactResult::Success => "success",
        })
    }
}

/// How patient a run is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Gives up where somebody holds the zone lock, and asks busy owners three times.
    Async = 0,
    /// Waits for locks, and asks busy owners ten times.
    SyncLight = 1,
    /// The same, because an operator asked for it.
    Sync = 2,
}

/// One tracepoint of compaction, by the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactEvent {
    /// `mm_compaction_try_to_compact_pages`: a request is about to compact.
    TryToCompact {
        /// The order wanted.
        order: Order,
        /// The request's flags.
        gfp: Gfp,
        /// 0 to 2, see [`Priority`](super::Priority).
        priority: super::Priority,
    },
    /// `mm_compaction_begin`: a run over a zone begins.
    Begin {
        /// The zone's first frame.
        zone_start: Pfn,
        /// Where the ascending scanner is.
        migrate: Pfn,
        /// Where the descending scanner is.
        free: Pfn,
        /// One past the zone's last frame.
        zone_end: Pfn,
        /// How patient it is.
        mode: Mode,
    },
    /// `mm_compaction_end`.
    End {
        /// The zone's first frame.
        zone_start: Pfn,
        /// Where the ascending scanner is.
        migrate: Pfn,
        /// Where the descending scanner is.
        free: Pfn,
        /// One past the zone's last frame.
        zone_end: Pfn,
        /// How patient it was.
        mode: Mode,
        /// How it ended.
        result: CompactResult,
    },
    /// `mm_compaction_isolate_migratepages`: blocks were collected to be moved.
    IsolateMigratepages {
        /// The first frame looked at.
        start: Pfn,
        /// One past the last.
        end: Pfn,
        /// Frames looked at.
        scanned: u32,
        /// Pages collected.
        taken: u32,
    },
    /// `mm_compaction_isolate_freepages`: free blocks were taken to move others to.
    IsolateFreepages {
        /// The first frame looked at.
        start: Pfn,
        /// One past the last.
        end: Pfn,
        /// Frames looked at.
        scanned: u32,
        /// Pages taken.
        taken: u32,
    },
    /// `mm_compaction_migratepages`: what was collected has been moved, or not.
    Migratepages {
        /// Pages moved.
        migrated: u32,
        /// Pages that stayed.
        failed: u32,
    },
    /// `mm_compaction_finished`: is the run done?
    Finished {
        /// The zone.
        zone: ZoneId,
        /// The order wanted; `None`: all that can be had.
        order: Option<Order>,
        /// The answer.
        result: CompactResult,
    },
    /// `mm_compaction_suitable`: is a run worth it?
    Suitable {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// The answer.
        result: CompactResult,
    },
    /// `mm_compaction_deferred`: a run was not begun, because earlier ones failed.
    Deferred {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// What the zone remembers.
        deferral: super::Deferral,
    },
    /// `mm_compaction_defer_compaction`: a run failed.
    DeferCompaction {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// What the zone remembers.
        deferral: super::Deferral,
    },
    /// `mm_compaction_defer_reset`: a run succeeded.
    DeferReset {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// What the zone remembers.
        deferral: super::Deferral,
    },
    /// `mm_compaction_kcompactd_sleep`: background compaction has nothing to do.
    KcompactdSleep {
        /// The node.
        node: NodeId,
    },
    /// `mm_compaction_wakeup_kcompactd`: background compaction is given work.
    WakeupKcompactd {
        /// The node.
        node: NodeId,
        /// The order wanted.
        order: Order,
        /// The highest zone that may serve it.
        highest: ZoneKind,
    },
    /// `mm_compaction_kcompactd_wake`: background compaction begins.
    KcompactdWake {
        /// The node.
        node: NodeId,
        /// The order wanted.
        order: Order,
        /// The highest zone that may serve it.
        highest: ZoneKind,
    },
}
