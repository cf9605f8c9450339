//! What compaction tells an observer: the kernel's tracepoints of it, as values.

use core::fmt;

use crate::base::gfp::Gfp;
use crate::base::units::{NodeId, Order, Pfn, ZoneId, ZoneKind};

/// How hard a direct compaction tries (§7.6). Greater is gentler, as in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Priority {
    /// The whole zone, whatever earlier runs found, and into any block.
    SyncFull = 0,
    /// Waits for locks, and asks again for blocks that are busy.
    SyncLight = 1,
    /// Gives up at the first contention, and moves only blocks of the request's type.
    Async = 2,
}

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

/// The most that failures double the wait: 64 attempts.
const MOST_SHIFT: u8 = 6;

/// What a zone remembers of failed compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// Attempts since the last failure.
    pub considered: u8,
    /// Up to 2^shift attempts are passed over.
    pub shift: u8,
    /// The smallest order that failed; smaller ones are not deferred.
    pub order_failed: u8,
}

impl Deferral {
    fn limit(self) -> u8 {
        1 << self.shift.min(MOST_SHIFT)
    }

    /// An attempt for this order: is it to be passed over?
    pub fn is_deferred(&mut self, order: Order) -> bool {
        if order.get() < self.order_failed {
            return false;
        }
        self.considered = self.considered.saturating_add(1).min(self.limit());
        self.considered < self.limit()
    }

    /// Compaction for this order failed.
    pub fn failed(&mut self, order: Order) {
        self.considered = 0;
        self.shift = self.shift.saturating_add(1).min(MOST_SHIFT);
        self.order_failed = self.order_failed.min(order.get());
    }

    /// Compaction for this order succeeded; `served`: a request got its block, too.
    pub fn succeeded(&mut self, order: Order, served: bool) {
        if served {
            self.considered = 0;
            self.shift = 0;
        }
        self.order_failed = self.order_failed.max(order.get() + 1);
    }

    /// The longest wait is over: the next run is to look everywhere again (§7.4).
    pub fn is_restarting(&self, order: Order) -> bool {
        order.get() >= self.order_failed
            && self.shift == MOST_SHIFT
            && self.considered >= self.limit()
    }

    pub(crate) const fn to_bits(self) -> u32 {
        u32::from_le_bytes([self.considered, self.shift, self.order_failed, 0])
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        let [considered, shift, order_failed, _] = bits.to_le_bytes();
        Deferral { considered, shift, order_failed }
    }
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
        /// 0 to 2, see [`Priority`](Priority).
        priority: Priority,
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
        deferral: Deferral,
    },
    /// `mm_compaction_defer_compaction`: a run failed.
    DeferCompaction {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// What the zone remembers.
        deferral: Deferral,
    },
    /// `mm_compaction_defer_reset`: a run succeeded.
    DeferReset {
        /// The zone.
        zone: ZoneId,
        /// The order wanted.
        order: Order,
        /// What the zone remembers.
        deferral: Deferral,
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
