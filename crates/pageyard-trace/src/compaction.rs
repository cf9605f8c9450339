//! The tracepoints of compaction, and those that say when reclaim works, by the kernel's names.

/// One tracepoint of compaction or of reclaim. Zones, modes, outcomes and priorities have the kernel's numbers
/// ([`ZONES`], [`STATUSES`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// `mm_compaction_try_to_compact_pages`: a request is about to compact.
    TryToCompactPages {
        /// The order wanted.
        order: Option<u8>,
        /// Request flags, numbered as in spec §2.1.
        gfp: u32,
        /// 0: hardest, 2: gentlest.
        priority: u8,
    },
    /// `mm_compaction_begin`: a run over a zone begins.
    Begin(Scanners),
    /// `mm_compaction_end`.
    End {
        /// Where they were.
        scanners: Scanners,
        /// How it ended, a number of [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_isolate_migratepages`: pages were collected to be moved.
    IsolateMigratepages(Isolated),
    /// `mm_compaction_isolate_freepages`: free pages were taken to move others to.
    IsolateFreepages(Isolated),
    /// `mm_compaction_fast_isolate_freepages`: the same, by a look at the free lists.
    FastIsolateFreepages(Isolated),
    /// `mm_compaction_migratepages`.
    Migratepages {
        /// Pages moved.
        migrated: u64,
        /// Pages that stayed.
        failed: u64,
    },
    /// `mm_compaction_finished`: is the run done?
    Finished {
        /// For what.
        wanted: Wanted,
        /// The answer, a number of [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_suitable`: is a run worth it?
    Suitable {
        /// For what.
        wanted: Wanted,
        /// The answer, a number of [`STATUSES`].
        status: u8,
    },
    /// `mm_compaction_deferred`: a run was not begun, because earlier ones failed.
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
    /// `mm_compaction_wakeup_kcompactd`: background compaction is given work.
    WakeupKcompactd(Wake),
    /// `mm_compaction_kcompactd_wake`: background compaction begins.
    KcompactdWake(Wake),
    /// `mm_vmscan_kswapd_sleep`: background reclaim has nothing to do.
    KswapdSleep {
        /// The node.
        node: u16,
    },
    /// `mm_vmscan_kswapd_wake`: background reclaim begins.
    KswapdWake {
        /// The node.
        node: u16,
        /// The order wanted.
        order: Option<u8>,
    },
    /// `mm_vmscan_wakeup_kswapd`: a request wakes background reclaim.
    WakeupKswapd {
        /// The node.
        node: u16,
        /// The order wanted.
        order: Option<u8>,
        /// Flags of the request, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_vmscan_direct_reclaim_begin`: a request reclaims memory itself.
    DirectReclaimBegin {
        /// The order wanted.
        order: Option<u8>,
        /// Flags of the request, numbered as in spec §2.1.
        gfp: u32,
    },
    /// `mm_vmscan_direct_reclaim_end`.
    DirectReclaimEnd {
        /// Pages reclaimed.
        reclaimed: u64,
    },
}

impl Compaction {
    /// Whether it is one of reclaim's (`mm_vmscan_*`).
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

/// The kernel's names of zones, by number.
pub const ZONES: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];

/// The names of reclaim's tracepoints begin so.
pub(crate) const VMSCAN: &str = "mm_vmscan_";

/// The kernel's words for how compaction ended, by number.
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

/// A zone's bounds and where the scanners are in it, as frame numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanners {
    /// The zone's first frame.
    pub zone_start: u64,
    /// The ascending scanner.
    pub migrate: u64,
    /// The descending scanner.
    pub free: u64,
    /// One past the zone's last frame.
    pub zone_end: u64,
    /// The run waits for locks.
    pub sync: bool,
}

/// What a scanner took from a range of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolated {
    /// The first frame looked at.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Frames looked at.
    pub scanned: u64,
    /// Pages taken.
    pub taken: u64,
}

/// A zone and what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node.
    pub node: u16,
    /// The zone, a number of [`ZONES`].
    pub zone: u8,
    /// The order; `None` (printed as -1): all that can be had.
    pub order: Option<u8>,
}

/// What a zone remembers of failed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The zone, and the order wanted now.
    pub wanted: Wanted,
    /// The smallest order that failed; up to one more than the greatest order.
    pub order_failed: u8,
    /// Attempts since the last failure.
    pub considered: u64,
    /// So many attempts are passed over.
    pub limit: u64,
}

/// Work for background compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The node.
    pub node: u16,
    /// The order wanted; `None` (printed as -1): none in particular.
    pub order: Option<u8>,
    /// The highest zone that may serve it, a number of [`ZONES`].
    pub highest: u8,
}
