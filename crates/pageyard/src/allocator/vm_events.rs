//! The machine-wide events of `vmstat` (§9.1) that an allocator knows of. Pages handed out and
//! taken back are counted by CPU already and only summed here; the rest happens rarely enough for
//! one counter each.

use crate::base::sync::AtomicU64;
use crate::base::units::ZoneKind;

macro_rules! vm_events {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// An event that `vmstat` counts.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum VmEvent {
            $($(#[doc = $doc])+ $name,)+
        }

        impl VmEvent {
            /// All of them, in the order of `vmstat`.
            pub const ALL: &[VmEvent] = &[$(VmEvent::$name,)+];

            /// The kernel's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(VmEvent::$name => $text,)+
                }
            }
        }
    };
}

vm_events! {
    /// Pages handed out of DMA zones.
    PgAllocDma = "pgalloc_dma",
    /// Pages handed out of DMA32 zones.
    PgAllocDma32 = "pgalloc_dma32",
    /// Pages handed out of NORMAL zones.
    PgAllocNormal = "pgalloc_normal",
    /// Pages handed out of MOVABLE zones.
    PgAllocMovable = "pgalloc_movable",
    /// Pages handed out of DEVICE zones.
    PgAllocDevice = "pgalloc_device",
    /// Direct reclaims for requests that reach up to DMA.
    AllocStallDma = "allocstall_dma",
    /// Direct reclaims for requests that reach up to DMA32.
    AllocStallDma32 = "allocstall_dma32",
    /// Direct reclaims for requests that reach up to NORMAL.
    AllocStallNormal = "allocstall_normal",
    /// Direct reclaims for requests that reach up to MOVABLE.
    AllocStallMovable = "allocstall_movable",
    /// Direct reclaims for requests that reach up to DEVICE.
    AllocStallDevice = "allocstall_device",
    /// Pages of DMA zones that reclaim passed over.
    PgSkipDma = "pgskip_dma",
    /// Pages of DMA32 zones that reclaim passed over.
    PgSkipDma32 = "pgskip_dma32",
    /// Pages of NORMAL zones that reclaim passed over.
    PgSkipNormal = "pgskip_normal",
    /// Pages of MOVABLE zones that reclaim passed over.
    PgSkipMovable = "pgskip_movable",
    /// Pages of DEVICE zones that reclaim passed over.
    PgSkipDevice = "pgskip_device",
    /// Pages taken back.
    PgFree = "pgfree",
    /// Pages that background reclaim freed.
    PgStealKswapd = "pgsteal_kswapd",
    /// Pages that direct reclaim freed.
    PgStealDirect = "pgsteal_direct",
    /// Pages that reclaim by the builder of huge pages freed.
    PgStealKhugepaged = "pgsteal_khugepaged",
    /// Pages that background reclaim looked at.
    PgScanKswapd = "pgscan_kswapd",
    /// Pages that direct reclaim looked at.
    PgScanDirect = "pgscan_direct",
    /// Pages that reclaim by the builder of huge pages looked at.
    PgScanKhugepaged = "pgscan_khugepaged",
    /// Background reclaim was woken right after it had balanced up to LOW.
    LowWmarkHitQuickly = "kswapd_low_wmark_hit_quickly",
    /// Background reclaim was woken right after it had balanced up to HIGH.
    HighWmarkHitQuickly = "kswapd_high_wmark_hit_quickly",
    /// Runs of background reclaim.
    PageOutRun = "pageoutrun",
    /// Victims of the out-of-memory killer.
    OomKill = "oom_kill",
    /// Pages that compaction looked at in search of some to move.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Pages that compaction looked at in search of free ones.
    CompactFreeScanned = "compact_free_scanned",
    /// Pages that compaction took off their lists.
    CompactIsolated = "compact_isolated",
    /// Requests that compacted themselves.
    CompactStall = "compact_stall",
    /// Such requests that got nothing from it.
    CompactFail = "compact_fail",
    /// Such requests that were served after it.
    CompactSuccess = "compact_success",
    /// Wake-ups of background compaction.
    CompactDaemonWake = "compact_daemon_wake",
    /// Pages that background compaction looked at in search of some to move.
    CompactDaemonMigrateScanned = "compact_daemon_migrate_scanned",
    /// Pages that background compaction looked at in search of free ones.
    CompactDaemonFreeScanned = "compact_daemon_free_scanned",
    /// Requests to contiguous-memory areas that were served. `vmstat` shows the two where there
    /// is such memory.
    CmaAllocSuccess = "cma_alloc_success",
    /// Requests to contiguous-memory areas that failed.
    CmaAllocFail = "cma_alloc_fail",
    /// Page faults that got a huge page.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Page faults that wanted a huge page and took a small one.
    ThpFaultFallback = "thp_fault_fallback",
}

pub(crate) const EVENTS: usize = VmEvent::ALL.len();

impl VmEvent {
    /// The event of this name; `None` where the allocator does not know it.
    pub fn named(name: &str) -> Option<VmEvent> {
        VmEvent::ALL.iter().copied().find(|e| e.name() == name)
    }

    /// Pages handed out of a zone of this kind.
    pub const fn pgalloc(zone: ZoneKind) -> VmEvent {
        match zone {
            ZoneKind::Dma => VmEvent::PgAllocDma,
            ZoneKind::Dma32 => VmEvent::PgAllocDma32,
            ZoneKind::Normal => VmEvent::PgAllocNormal,
            ZoneKind::Movable => VmEvent::PgAllocMovable,
            ZoneKind::Device => VmEvent::PgAllocDevice,
        }
    }

    /// A direct reclaim for a request whose highest zone is of this kind.
    pub const fn allocstall(highest: ZoneKind) -> VmEvent {
        match highest {
            ZoneKind::Dma => VmEvent::AllocStallDma,
            ZoneKind::Dma32 => VmEvent::AllocStallDma32,
            ZoneKind::Normal => VmEvent::AllocStallNormal,
            ZoneKind::Movable => VmEvent::AllocStallMovable,
            ZoneKind::Device => VmEvent::AllocStallDevice,
        }
    }

    /// Pages of a zone of this kind that reclaim passed over, because they were above what it was
    /// to free.
    pub const fn pgskip(zone: ZoneKind) -> VmEvent {
        match zone {
            ZoneKind::Dma => VmEvent::PgSkipDma,
            ZoneKind::Dma32 => VmEvent::PgSkipDma32,
            ZoneKind::Normal => VmEvent::PgSkipNormal,
            ZoneKind::Movable => VmEvent::PgSkipMovable,
            ZoneKind::Device => VmEvent::PgSkipDevice,
        }
    }
}

/// How often each event happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmEvents(pub(crate) [u64; EVENTS]);

impl VmEvents {
    /// How often an event happened; how many pages, where its name says pages.
    pub fn get(&self, event: VmEvent) -> u64 {
        self.0.get(event as usize).copied().unwrap_or(0)
    }

    /// The count of the event of this name; `None` where the allocator does not know it.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        VmEvent::named(name).map(|event| self.get(event))
    }

    /// All events and their counts, in the order of `vmstat`.
    pub fn iter(&self) -> impl Iterator<Item = (VmEvent, u64)> + '_ {
        VmEvent::ALL.iter().copied().zip(self.0)
    }
}

/// Counters of the events. Cache lines of their own: they lie beside what every request reads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct EventCounters(pub(crate) [AtomicU64; EVENTS]);

impl EventCounters {
    pub(crate) const fn new() -> Self {
        EventCounters([const { AtomicU64::new(0) }; EVENTS])
    }
}
