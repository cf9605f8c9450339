//! What compaction reports to an observer: the kernel's tracepoints of compaction, as values.

use core::fmt;

use crate::base::gfp::Gfp;
use crate::base::units::{NodeId, Order, Pfn, ZoneId, ZoneKind};

/// How hard a direct compaction tries (§7.6). Higher is gentler, as in the kernel.
///
/// ```
/// use pageyard::Priority;
///
/// // A higher priority is gentler, as in the kernel.
/// assert!(Priority::Async > Priority::SyncLight && Priority::SyncLight > Priority::SyncFull);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Priority {
    /// Scans the whole zone, whatever earlier runs found, and uses any block.
    SyncFull = 0,
    /// Waits for locks, and retries busy blocks.
    SyncLight = 1,
    /// Stops at the first contention, and moves only blocks of the request's type.
    Async = 2,
}

/// How compaction of a zone ended, or why it did not start. A higher value is better news, as in
/// the kernel; a request that compacted several zones reports the highest.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::CompactResult;
///
/// let done = yard.compact_zone(ZoneKind::Normal, None, Priority::SyncLight);
/// assert!(done.is_none_or(|result| result <= CompactResult::Success));
/// assert_eq!(CompactResult::Complete.to_string(), "complete");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum CompactResult {
    /// Only in events: too little memory, or too little fragmentation.
    NotSuitableZone = 0,
    /// Not started: too little free memory to move anything to (§7.5).
    Skipped = 1,
    /// Not started: earlier attempts failed (§7.6).
    Deferred = 2,
    /// Only in events: no block of the order is free yet.
    NoSuitablePage = 3,
    /// Only in events: worth a run, or not done yet.
    Continue = 4,
    /// The scanners met after a run over the whole zone: compaction can free no more.
    Complete = 5,
    /// The scanners met, but did not start at the zone's ends.
    PartialSkipped = 6,
    /// Stopped: another holder had the lock, or no free block could be taken.
    Contended = 7,
    /// A block of the order is available.
    Success = 8,
}

impl fmt::Display for CompactResult {
    /// Formats the kernel's name.
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
///
/// ```
/// use pageyard::CompactEvent;
/// use pageyard::compact::Mode;
///
/// fn is_patient(event: CompactEvent) -> bool {
///     matches!(event, CompactEvent::Begin { mode: Mode::SyncLight | Mode::Sync, .. })
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Stops if another holder has the zone lock, and retries busy blocks three times.
    Async = 0,
    /// Waits for locks, and retries busy blocks ten times.
    SyncLight = 1,
    /// The same as `SyncLight`, but requested by an operator.
    Sync = 2,
}

/// The most times that failures double the wait: 64 attempts.
const MOST_SHIFT: u8 = 6;

/// A zone's record of failed compactions.
///
/// ```
/// use pageyard::Order;
/// use pageyard::compact::Deferral;
///
/// let mut deferral = Deferral::default();
/// deferral.failed(Order::HUGE);
/// assert!(deferral.is_deferred(Order::HUGE), "one attempt is left out");
/// assert!(!deferral.is_deferred(Order::HUGE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// Attempts since the last failure.
    pub considered: u8,
    /// Up to 2^`shift` attempts are deferred.
    pub shift: u8,
    /// The smallest order that failed; smaller ones are not deferred.
    pub order_failed: u8,
}

impl Deferral {
    fn limit(self) -> u8 {
        1 << self.shift.min(MOST_SHIFT)
    }

    /// Counts an attempt for this order. Returns whether it is deferred.
    pub fn is_deferred(&mut self, order: Order) -> bool {
        if order.get() < self.order_failed {
            return false;
        }
        self.considered = self.considered.saturating_add(1).min(self.limit());
        self.considered < self.limit()
    }

    /// Records that compaction for this order failed.
    pub fn failed(&mut self, order: Order) {
        self.considered = 0;
        self.shift = self.shift.saturating_add(1).min(MOST_SHIFT);
        self.order_failed = self.order_failed.min(order.get());
    }

    /// Records that compaction for this order succeeded. `served` means that a request also got its
    /// block.
    pub fn succeeded(&mut self, order: Order, served: bool) {
        if served {
            self.considered = 0;
            self.shift = 0;
        }
        self.order_failed = self.order_failed.max(order.get() + 1);
    }

    /// Returns whether the longest wait is over. The next run then scans everywhere again (§7.4).
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

/// One tracepoint of compaction, by the kernel's name.
///
/// ```
/// use pageyard::{CompactEvent, CpuId, Event, Observer};
///
/// struct Log;
/// impl Observer for Log {
///     fn event(&self, cpu: CpuId, event: Event) {
///         if let Event::Compact(CompactEvent::Migratepages { migrated, failed }) = event {
///             // Log the two counts.
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactEvent {
    /// `mm_compaction_try_to_compact_pages`: a request is about to compact.
    TryToCompact {
        /// The requested order.
        order: Order,
        /// The request's flags.
        gfp: Gfp,
        /// The request's [`Priority`](Priority).
        priority: Priority,
    },
    /// `mm_compaction_begin`: a run over a zone starts.
    Begin {
        /// The zone's first frame.
        zone_start: Pfn,
        /// Position of the ascending scanner.
        migrate: Pfn,
        /// Position of the descending scanner.
        free: Pfn,
        /// One past the zone's last frame.
        zone_end: Pfn,
        /// The mode of the run.
        mode: Mode,
    },
    /// `mm_compaction_end`.
    End {
        /// The zone's first frame.
        zone_start: Pfn,
        /// Position of the ascending scanner.
        migrate: Pfn,
        /// Position of the descending scanner.
        free: Pfn,
        /// One past the zone's last frame.
        zone_end: Pfn,
        /// The mode of the run.
        mode: Mode,
        /// The result of the run.
        result: CompactResult,
    },
    /// `mm_compaction_isolate_migratepages`: blocks were isolated for migration.
    IsolateMigratepages {
        /// The first frame scanned.
        start: Pfn,
        /// One past the last frame scanned.
        end: Pfn,
        /// Frames scanned.
        scanned: u32,
        /// Pages isolated.
        taken: u32,
    },
    /// `mm_compaction_isolate_freepages`: free blocks were isolated as targets of migration.
    IsolateFreepages {
        /// The first frame scanned.
        start: Pfn,
        /// One past the last frame scanned.
        end: Pfn,
        /// Frames scanned.
        scanned: u32,
        /// Pages isolated.
        taken: u32,
    },
    /// `mm_compaction_migratepages`: the isolated pages were migrated, or not.
    Migratepages {
        /// Pages migrated.
        migrated: u32,
        /// Pages that stayed where they were.
        failed: u32,
    },
    /// `mm_compaction_finished`: whether the run is done.
    Finished {
        /// The zone.
        zone: ZoneId,
        /// The requested order; `None` for as much as possible.
        order: Option<Order>,
        /// The result.
        result: CompactResult,
    },
    /// `mm_compaction_suitable`: whether a run is worthwhile.
    Suitable {
        /// The zone.
        zone: ZoneId,
        /// The requested order.
        order: Order,
        /// The result.
        result: CompactResult,
    },
    /// `mm_compaction_deferred`: a run did not start, because earlier ones failed.
    Deferred {
        /// The zone.
        zone: ZoneId,
        /// The requested order.
        order: Order,
        /// The zone's record of failed compactions.
        deferral: Deferral,
    },
    /// `mm_compaction_defer_compaction`: a run failed.
    DeferCompaction {
        /// The zone.
        zone: ZoneId,
        /// The requested order.
        order: Order,
        /// The zone's record of failed compactions.
        deferral: Deferral,
    },
    /// `mm_compaction_defer_reset`: a run succeeded.
    DeferReset {
        /// The zone.
        zone: ZoneId,
        /// The requested order.
        order: Order,
        /// The zone's record of failed compactions.
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
        /// The requested order.
        order: Order,
        /// The highest zone that may serve it.
        highest: ZoneKind,
    },
    /// `mm_compaction_kcompactd_wake`: background compaction starts.
    KcompactdWake {
        /// The node.
        node: NodeId,
        /// The requested order.
        order: Order,
        /// The highest zone that may serve it.
        highest: ZoneKind,
    },
}
