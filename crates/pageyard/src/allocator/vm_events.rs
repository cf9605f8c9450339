//! The machine-wide `vmstat` events (§9.1) that the allocator can count. Allocated and freed pages
//! are already counted per CPU and only summed here. Other events are rare, so one shared counter
//! each is enough.

use crate::base::sync::AtomicU64;
use crate::base::units::ZoneKind;

macro_rules! vm_events {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// An event that `vmstat` counts.
        ///
        /// ```
        /// use pageyard::{VmEvent, ZoneKind};
        ///
        /// assert_eq!(VmEvent::named("pgfree"), Some(VmEvent::PgFree));
        /// assert_eq!(VmEvent::pgalloc(ZoneKind::Normal).name(), "pgalloc_normal");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum VmEvent {
            $($(#[doc = $doc])+ $name,)+
        }

        impl VmEvent {
            /// All events, in the order of `vmstat`.
            pub const ALL: &[VmEvent] = &[$(VmEvent::$name,)+];

            /// Returns the kernel's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(VmEvent::$name => $text,)+
                }
            }
        }
    };
}

vm_events! {
    /// Pages allocated from DMA zones.
    PgAllocDma = "pgalloc_dma",
    /// Pages allocated from DMA32 zones.
    PgAllocDma32 = "pgalloc_dma32",
    /// Pages allocated from NORMAL zones.
    PgAllocNormal = "pgalloc_normal",
    /// Pages allocated from MOVABLE zones.
    PgAllocMovable = "pgalloc_movable",
    /// Pages allocated from DEVICE zones.
    PgAllocDevice = "pgalloc_device",
    /// Direct reclaims for requests whose highest zone is DMA.
    AllocStallDma = "allocstall_dma",
    /// Direct reclaims for requests whose highest zone is DMA32.
    AllocStallDma32 = "allocstall_dma32",
    /// Direct reclaims for requests whose highest zone is NORMAL.
    AllocStallNormal = "allocstall_normal",
    /// Direct reclaims for requests whose highest zone is MOVABLE.
    AllocStallMovable = "allocstall_movable",
    /// Direct reclaims for requests whose highest zone is DEVICE.
    AllocStallDevice = "allocstall_device",
    /// Pages of DMA zones that reclaim skipped.
    PgSkipDma = "pgskip_dma",
    /// Pages of DMA32 zones that reclaim skipped.
    PgSkipDma32 = "pgskip_dma32",
    /// Pages of NORMAL zones that reclaim skipped.
    PgSkipNormal = "pgskip_normal",
    /// Pages of MOVABLE zones that reclaim skipped.
    PgSkipMovable = "pgskip_movable",
    /// Pages of DEVICE zones that reclaim skipped.
    PgSkipDevice = "pgskip_device",
    /// Pages freed.
    PgFree = "pgfree",
    /// Pages reclaimed by background reclaim.
    PgStealKswapd = "pgsteal_kswapd",
    /// Pages reclaimed by direct reclaim.
    PgStealDirect = "pgsteal_direct",
    /// Pages reclaimed by khugepaged.
    PgStealKhugepaged = "pgsteal_khugepaged",
    /// Pages scanned by background reclaim.
    PgScanKswapd = "pgscan_kswapd",
    /// Pages scanned by direct reclaim.
    PgScanDirect = "pgscan_direct",
    /// Pages scanned by khugepaged.
    PgScanKhugepaged = "pgscan_khugepaged",
    /// Background reclaim was woken right after it had balanced the node to LOW.
    LowWmarkHitQuickly = "kswapd_low_wmark_hit_quickly",
    /// Background reclaim was woken right after it had balanced the node to HIGH.
    HighWmarkHitQuickly = "kswapd_high_wmark_hit_quickly",
    /// Runs of background reclaim.
    PageOutRun = "pageoutrun",
    /// Victims of the OOM killer.
    OomKill = "oom_kill",
    /// Pages that compaction scanned for pages to migrate.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Pages that compaction scanned for free pages.
    CompactFreeScanned = "compact_free_scanned",
    /// Pages that compaction isolated.
    CompactIsolated = "compact_isolated",
    /// Requests that ran direct compaction.
    CompactStall = "compact_stall",
    /// Requests that direct compaction did not serve.
    CompactFail = "compact_fail",
    /// Requests that direct compaction served.
    CompactSuccess = "compact_success",
    /// Wake-ups of background compaction.
    CompactDaemonWake = "compact_daemon_wake",
    /// Pages that background compaction scanned for pages to migrate.
    CompactDaemonMigrateScanned = "compact_daemon_migrate_scanned",
    /// Pages that background compaction scanned for free pages.
    CompactDaemonFreeScanned = "compact_daemon_free_scanned",
    /// Served requests to contiguous memory areas. `vmstat` shows this event and the next only if
    /// such areas exist.
    CmaAllocSuccess = "cma_alloc_success",
    /// Failed requests to contiguous memory areas.
    CmaAllocFail = "cma_alloc_fail",
    /// Page faults that allocated a huge page.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Page faults that fell back from a huge page to a small one.
    ThpFaultFallback = "thp_fault_fallback",
}

pub(crate) const EVENTS: usize = VmEvent::ALL.len();

impl VmEvent {
    /// Returns the event with this name; `None` if the allocator does not know it.
    pub fn named(name: &str) -> Option<VmEvent> {
        VmEvent::ALL.iter().copied().find(|e| e.name() == name)
    }

    /// Returns the event for pages allocated from zones of this kind.
    pub const fn pgalloc(zone: ZoneKind) -> VmEvent {
        match zone {
            ZoneKind::Dma => VmEvent::PgAllocDma,
            ZoneKind::Dma32 => VmEvent::PgAllocDma32,
            ZoneKind::Normal => VmEvent::PgAllocNormal,
            ZoneKind::Movable => VmEvent::PgAllocMovable,
            ZoneKind::Device => VmEvent::PgAllocDevice,
        }
    }

    /// Returns the event for a direct reclaim whose request has this highest zone.
    pub const fn allocstall(highest: ZoneKind) -> VmEvent {
        match highest {
            ZoneKind::Dma => VmEvent::AllocStallDma,
            ZoneKind::Dma32 => VmEvent::AllocStallDma32,
            ZoneKind::Normal => VmEvent::AllocStallNormal,
            ZoneKind::Movable => VmEvent::AllocStallMovable,
            ZoneKind::Device => VmEvent::AllocStallDevice,
        }
    }

    /// Returns the event for pages of this zone kind that reclaim skipped because their zone was
    /// above the highest zone to reclaim.
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

/// The count of each event.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::VmEvents;
///
/// yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let events: VmEvents = yard.vm_events();
/// assert_eq!(events.by_name("pgalloc_normal"), Some(1));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmEvents(pub(crate) [u64; EVENTS]);

impl VmEvents {
    /// Returns an event's count, in pages if the event's name refers to pages.
    pub fn get(&self, event: VmEvent) -> u64 {
        self.0.get(event as usize).copied().unwrap_or(0)
    }

    /// Returns the count of the event with this name; `None` if the allocator does not know it.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        VmEvent::named(name).map(|event| self.get(event))
    }

    /// Iterates over all events and their counts, in the order of `vmstat`.
    pub fn iter(&self) -> impl Iterator<Item = (VmEvent, u64)> + '_ {
        VmEvent::ALL.iter().copied().zip(self.0)
    }
}

/// Event counters, on cache lines of their own to keep them apart from fields that every request
/// reads.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct EventCounters(pub(crate) [AtomicU64; EVENTS]);

impl EventCounters {
    pub(crate) const fn new() -> Self {
        EventCounters([const { AtomicU64::new(0) }; EVENTS])
    }
}
