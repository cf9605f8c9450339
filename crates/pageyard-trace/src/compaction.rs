//! Tracepoints of compaction and reclaim, by the kernel's names.

/// A tracepoint of compaction or reclaim. Zones, modes, outcomes and priorities use the kernel's
/// numbers ([`ZONES`], [`STATUSES`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// `mm_compaction_try_to_compact_pages`: a request is about to compact.
    TryToCompactPages {
        /// Requested order.
        order: Option<u8>,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
        /// 0 is the most aggressive, 2 the least.
        priority: u8,
    },
    /// `mm_compaction_begin`: a run over a zone begins.
    Begin(Scanners),
    /// `mm_compaction_end`: a run over a zone ends.
    End {
        /// Final positions of the scanners.
        scanners: Scanners,
        /// Outcome, an index into [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_isolate_migratepages`: pages were isolated for migration.
    IsolateMigratepages(Isolated),
    /// `mm_compaction_isolate_freepages`: free pages were isolated as migration targets.
    IsolateFreepages(Isolated),
    /// `mm_compaction_fast_isolate_freepages`: like the previous, but from the free lists.
    FastIsolateFreepages(Isolated),
    /// `mm_compaction_migratepages`: isolated pages were migrated.
    Migratepages {
        /// Pages migrated.
        migrated: u64,
        /// Pages that could not be migrated.
        failed: u64,
    },
    /// `mm_compaction_finished`: check whether the run is finished.
    Finished {
        /// Zone and order of the check.
        wanted: Wanted,
        /// Result, an index into [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_suitable`: check whether a run is worthwhile.
    Suitable {
        /// Zone and order of the check.
        wanted: Wanted,
        /// Result, an index into [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_deferred`: a run was deferred because earlier ones failed.
    Deferred(Deferral),
    /// `mm_compaction_defer_compaction`: a run failed.
    DeferCompaction(Deferral),
    /// `mm_compaction_defer_reset`: a run succeeded.
    DeferReset(Deferral),
    /// `mm_compaction_kcompactd_sleep`: background compaction has nothing to do.
    KcompactdSleep {
        /// The node.
        node: u16,
    },
    /// `mm_compaction_wakeup_kcompactd`: background compaction is woken.
    WakeupKcompactd(Wake),
    /// `mm_compaction_kcompactd_wake`: background compaction starts.
    KcompactdWake(Wake),
    /// `mm_vmscan_kswapd_sleep`: background reclaim has nothing to do.
    KswapdSleep {
        /// The node.
        node: u16,
    },
    /// `mm_vmscan_kswapd_wake`: background reclaim starts.
    KswapdWake {
        /// The node.
        node: u16,
        /// Requested order.
        order: Option<u8>,
    },
    /// `mm_vmscan_wakeup_kswapd`: a request wakes background reclaim.
    WakeupKswapd {
        /// The node.
        node: u16,
        /// Requested order.
        order: Option<u8>,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_vmscan_direct_reclaim_begin`: direct reclaim starts.
    DirectReclaimBegin {
        /// Requested order.
        order: Option<u8>,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_vmscan_direct_reclaim_end`: direct reclaim ends.
    DirectReclaimEnd {
        /// Pages reclaimed.
        reclaimed: u64,
    },
}

impl Compaction {
    /// Returns whether this is a tracepoint of reclaim (`mm_vmscan_*`).
    pub fn is_reclaim(&self) -> bool {
        matches!(
            self,
            Compaction::KswapdSleep { .. }
                | Compaction::KswapdWake { .. }
                | Compaction::WakeupKswapd { .. }
                | Compaction::DirectReclaimBegin { .. }
                | Compaction::DirectReclaimEnd { .. }
        )
    }
}

/// Kernel names of zones, by number.
pub const ZONES: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];

/// Prefix of the names of reclaim tracepoints.
pub(crate) const VMSCAN: &str = "mm_vmscan_";

/// Kernel names of compaction outcomes, by number.
pub const STATUSES: [&str; 9] = [
    "not_suitable_zone",
    "skipped",
    "deferred",
    "no_suitable_page",
    "continue",
    "complete",
    "partial_skipped",
    "contended",
    "success",
];

/// Bounds of a zone and the positions of the scanners, as frame numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanners {
    /// The zone's first frame.
    pub zone_start: u64,
    /// The migrate scanner, which ascends.
    pub migrate: u64,
    /// The free scanner, which descends.
    pub free: u64,
    /// One past the zone's last frame.
    pub zone_end: u64,
    /// Whether the run waits for locks.
    pub sync: bool,
}

/// Pages that a scanner isolated from a range of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolated {
    /// First frame scanned.
    pub start: u64,
    /// One past the last frame scanned.
    pub end: u64,
    /// Frames scanned.
    pub scanned: u64,
    /// Pages isolated.
    pub taken: u64,
}

/// A zone and a requested order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node.
    pub node: u16,
    /// The zone, an index into [`ZONES`].
    pub zone: u8,
    /// The order; `None` (printed as -1) means as high as possible.
    pub order: Option<u8>,
}

/// State of a zone after failed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The zone, and the order requested now.
    pub wanted: Wanted,
    /// The smallest order that failed; up to one more than the greatest order.
    pub order_failed: u8,
    /// Attempts since the last failure.
    pub considered: u64,
    /// Number of attempts to skip.
    pub limit: u64,
}

/// A wake-up of background compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The node.
    pub node: u16,
    /// The requested order; `None` (printed as -1) means no particular order.
    pub order: Option<u8>,
    /// The highest usable zone, an index into [`ZONES`].
    pub highest: u8,
}
