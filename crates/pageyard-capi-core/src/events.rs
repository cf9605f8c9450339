//! Events and reports as structures.

use pageyard::{BadPage, CompactEvent, CpuId, Event, Order, Pfn, Report, ZoneId};

/// A request completed. Sets pfn (UINT64_MAX: the request failed), order, page_type, flags.
pub const PAGEYARD_EVENT_ALLOC: u32 = 1;
/// A block was freed by its owner; it is not on a list yet. Sets pfn, order.
pub const PAGEYARD_EVENT_FREE: u32 = 2;
/// A block freed by pageyard_core_free_bulk goes to this CPU's list. PAGEYARD_EVENT_FREE has
/// announced it already. Sets pfn.
pub const PAGEYARD_EVENT_FREE_BATCHED: u32 = 3;
/// A block left the free lists of a zone. Sets pfn, order, page_type; `values[0]`: 1 if blocks of this
/// order and type are kept on per-CPU lists.
pub const PAGEYARD_EVENT_ZONE_LOCKED: u32 = 4;
/// A block went from a per-CPU list to the zone. Sets pfn, order, page_type.
pub const PAGEYARD_EVENT_DRAIN: u32 = 5;
/// A request took another type's block. Sets pfn, order, page_type; values: the order and the type of
/// the block found, and 1 if its pageblock was claimed.
pub const PAGEYARD_EVENT_FALLBACK: u32 = 6;
/// An empty per-CPU list was refilled. Sets zone, order; values: blocks requested, blocks taken.
pub const PAGEYARD_EVENT_REFILL: u32 = 7;
/// Per-CPU lists returned pages to the zone. Sets zone; values: pages, and the reason (0: `high` was
/// reached, 1: a run of high-order frees, 2: a tick, 3: idle lists of a remote node, 4: a drain).
pub const PAGEYARD_EVENT_BULK_FREE: u32 = 8;
/// `high` of the CPU's lists changed; only with PAGEYARD_SEE_TUNING. Sets node, zone; values: the old
/// and the new value, pages on the lists, refills so far, bulk frees so far, and the reason (0:
/// limits, 1: refill, 2: free, 3: a run of high-order frees, 4: reclaim, 5: below the high
/// watermark, 6: a tick).
pub const PAGEYARD_EVENT_HIGH: u32 = 9;
/// A request is about to compact. Sets order, flags; `values[0]`: the priority, 2 (gentle) to 0.
pub const PAGEYARD_EVENT_COMPACT_TRY: u32 = 16;
/// A compaction run over a zone starts. Values: the zone's first frame, the positions of the
/// migration scanner and the free scanner, one past the zone's last frame, and the mode (0: async, 1:
/// light, 2: sync).
pub const PAGEYARD_EVENT_COMPACT_BEGIN: u32 = 17;
/// A compaction run ended. Values: as PAGEYARD_EVENT_COMPACT_BEGIN, then the result.
pub const PAGEYARD_EVENT_COMPACT_END: u32 = 18;
/// Blocks were isolated for migration. Values: first frame scanned, one past the last, frames
/// scanned, pages isolated.
pub const PAGEYARD_EVENT_COMPACT_SOURCES: u32 = 19;
/// Free blocks were isolated as targets. Values: as PAGEYARD_EVENT_COMPACT_SOURCES.
pub const PAGEYARD_EVENT_COMPACT_TARGETS: u32 = 20;
/// The isolated pages were migrated, or not. Values: pages migrated, pages that stayed.
pub const PAGEYARD_EVENT_COMPACT_MIGRATED: u32 = 21;
/// Whether a compaction run is done. Sets node, zone, order (UINT32_MAX: as much as possible);
/// `values[0]`: the result.
pub const PAGEYARD_EVENT_COMPACT_FINISHED: u32 = 22;
/// Whether a compaction run is worthwhile. Sets node, zone, order; `values[0]`: the result.
pub const PAGEYARD_EVENT_COMPACT_SUITABLE: u32 = 23;
/// A compaction run did not start because earlier ones failed. Sets node, zone, order; values:
/// attempts since the last failure, the logarithm of the attempts to defer, the smallest order that
/// failed.
pub const PAGEYARD_EVENT_COMPACT_DEFERRED: u32 = 24;
/// A compaction run failed. As PAGEYARD_EVENT_COMPACT_DEFERRED.
pub const PAGEYARD_EVENT_COMPACT_FAILED: u32 = 25;
/// A compaction run succeeded. As PAGEYARD_EVENT_COMPACT_DEFERRED.
pub const PAGEYARD_EVENT_COMPACT_SUCCEEDED: u32 = 26;
/// Background compaction has nothing to do. Sets node.
pub const PAGEYARD_EVENT_COMPACT_SLEEP: u32 = 27;
/// Background compaction is given work. Sets node, zone (the highest that may serve it), order.
pub const PAGEYARD_EVENT_COMPACT_WAKEUP: u32 = 28;
/// Background compaction starts. As PAGEYARD_EVENT_COMPACT_WAKEUP.
pub const PAGEYARD_EVENT_COMPACT_WAKE: u32 = 29;

/// An event: a page tracepoint of the kernel. The PAGEYARD_EVENT number says which fields are set;
/// all others are zero. Later versions may add kinds, and fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_event {
    /// A PAGEYARD_EVENT number. Ignore unknown ones.
    pub kind: u32,
    /// CPU on which it happened.
    pub cpu: u32,
    /// First frame of the block.
    pub pfn: u64,
    /// Order of the block.
    pub order: u32,
    /// A PAGEYARD_TYPE number: 0 to 2, or 3 (reserved for urgent requests), 4 (contiguous-memory
    /// area), 5 (isolated).
    pub page_type: u32,
    /// Flags of the request.
    pub flags: u32,
    /// A PAGEYARD_ZONE number.
    pub zone: u32,
    /// Number of the node.
    pub node: u32,
    /// Always zero.
    pub reserved: u32,
    /// As the PAGEYARD_EVENT number says.
    pub values: [u64; 6],
}

/// A page of a block that was freed or about to be allocated is not in the state of an unused page.
/// The block is now out of use. Sets pfn (the page), block, order; values: a PAGEYARD_BAD number, the
/// count or flags that are wrong, and 1 if found when the block was allocated, 0 when it was freed.
pub const PAGEYARD_REPORT_BAD_PAGE: u32 = 1;
/// Bad pages were not reported, to limit their number. `values[0]`: how many.
pub const PAGEYARD_REPORT_BAD_PAGES_SUPPRESSED: u32 = 2;
/// `check_poison` found a block damaged, which is allocated anyway. Sets block, order; values: the
/// offsets in bytes of the first and the last damaged byte, and 1 if a single bit differs.
pub const PAGEYARD_REPORT_POISON: u32 = 3;
/// Damaged blocks were not reported, to limit their number. `values[0]`: how many.
pub const PAGEYARD_REPORT_POISON_SUPPRESSED: u32 = 4;

/// The page is mapped.
pub const PAGEYARD_BAD_MAPCOUNT: u32 = 1;
/// The page belongs to a file or to anonymous memory.
pub const PAGEYARD_BAD_MAPPING: u32 = 2;
/// The page has references.
pub const PAGEYARD_BAD_REFCOUNT: u32 = 3;
/// The page is charged to a control group.
pub const PAGEYARD_BAD_CHARGED: u32 = 4;
/// The page has flags that must be clear.
pub const PAGEYARD_BAD_FLAGS: u32 = 5;
/// The page's link to the head of a compound block is wrong.
pub const PAGEYARD_BAD_LINK: u32 = 6;
/// The mark of a tail of a compound block is missing.
pub const PAGEYARD_BAD_TAIL: u32 = 7;

/// What a check found, for a log. The PAGEYARD_REPORT number says which fields are set; all others
/// are zero. Later versions may add kinds, and fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_report {
    /// A PAGEYARD_REPORT number. Ignore unknown ones.
    pub kind: u32,
    /// Order of the block.
    pub order: u32,
    /// First frame of the block.
    pub block: u64,
    /// The page.
    pub pfn: u64,
    /// As the PAGEYARD_REPORT number says.
    pub values: [u64; 3],
}

fn signed(n: i32) -> u64 {
    i64::from(n).cast_unsigned()
}

/// Converts an event.
pub(crate) fn event(cpu: CpuId, event: &Event) -> pageyard_event {
    let mut e = pageyard_event { cpu: cpu.0, ..pageyard_event::default() };
    match *event {
        Event::Alloc { pfn, order, migrate_type, gfp } => {
            e.kind = PAGEYARD_EVENT_ALLOC;
            e.pfn = pfn.map_or(u64::MAX, |pfn| pfn.0);
            (e.order, e.page_type) = (order.get().into(), migrate_type as u32);
            e.flags = gfp.bits();
        }
        Event::Free { pfn, order } => {
            e.kind = PAGEYARD_EVENT_FREE;
            (e.pfn, e.order) = (pfn.0, order.get().into());
        }
        Event::FreeBatched { pfn } => {
            e.kind = PAGEYARD_EVENT_FREE_BATCHED;
            e.pfn = pfn.0;
        }
        Event::ZoneLocked { pfn, order, migrate_type, refill } => {
            e.kind = PAGEYARD_EVENT_ZONE_LOCKED;
            (e.pfn, e.order, e.page_type) = (pfn.0, order.get().into(), migrate_type as u32);
            e.values = [refill.into(), 0, 0, 0, 0, 0];
        }
        Event::Drain { pfn, order, migrate_type } => {
            e.kind = PAGEYARD_EVENT_DRAIN;
            (e.pfn, e.order, e.page_type) = (pfn.0, order.get().into(), migrate_type as u32);
        }
        Event::Fallback { pfn, order, found, migrate_type, from, claimed } => {
            e.kind = PAGEYARD_EVENT_FALLBACK;
            (e.pfn, e.order, e.page_type) = (pfn.0, order.get().into(), migrate_type as u32);
            e.values = [found.get().into(), from as u64, claimed.into(), 0, 0, 0];
        }
        Event::Refill { zone, order, wanted, blocks } => {
            e.kind = PAGEYARD_EVENT_REFILL;
            (e.zone, e.order) = (zone as u32, order.get().into());
            e.values = [wanted.into(), blocks.into(), 0, 0, 0, 0];
        }
        Event::BulkFree { zone, reason, pages } => {
            e.kind = PAGEYARD_EVENT_BULK_FREE;
            e.zone = zone as u32;
            e.values = [pages.into(), reason as u64, 0, 0, 0, 0];
        }
        Event::High { zone, change: c } => {
            e.kind = PAGEYARD_EVENT_HIGH;
            set_zone(&mut e, zone);
            let (from, to, count) = (signed(c.from), signed(c.to), signed(c.count));
            e.values = [from, to, count, c.refills, c.drains, c.reason as u64];
        }
        Event::Compact(event) => compact(&mut e, &event),
    }
    e
}

fn set_zone(e: &mut pageyard_event, zone: ZoneId) {
    (e.node, e.zone) = (zone.node.0.into(), zone.kind as u32);
}

fn compact(e: &mut pageyard_event, event: &CompactEvent) {
    let frames = |start: Pfn, end: Pfn, scanned: u32, taken: u32| {
        [start.0, end.0, scanned.into(), taken.into(), 0, 0]
    };
    let one = |n: u64| [n, 0, 0, 0, 0, 0];
    match *event {
        CompactEvent::TryToCompact { order, gfp, priority } => {
            e.kind = PAGEYARD_EVENT_COMPACT_TRY;
            (e.order, e.flags) = (order.get().into(), gfp.bits());
            e.values = one(priority as u64);
        }
        CompactEvent::Begin { zone_start, migrate, free, zone_end, mode } => {
            e.kind = PAGEYARD_EVENT_COMPACT_BEGIN;
            e.values = [zone_start.0, migrate.0, free.0, zone_end.0, mode as u64, 0];
        }
        CompactEvent::End { zone_start, migrate, free, zone_end, mode, result } => {
            e.kind = PAGEYARD_EVENT_COMPACT_END;
            e.values = [zone_start.0, migrate.0, free.0, zone_end.0, mode as u64, result as u64];
        }
        CompactEvent::IsolateMigratepages { start, end, scanned, taken } => {
            e.kind = PAGEYARD_EVENT_COMPACT_SOURCES;
            e.values = frames(start, end, scanned, taken);
        }
        CompactEvent::IsolateFreepages { start, end, scanned, taken } => {
            e.kind = PAGEYARD_EVENT_COMPACT_TARGETS;
            e.values = frames(start, end, scanned, taken);
        }
        CompactEvent::Migratepages { migrated, failed } => {
            e.kind = PAGEYARD_EVENT_COMPACT_MIGRATED;
            e.values = [migrated.into(), failed.into(), 0, 0, 0, 0];
        }
        CompactEvent::Finished { zone, order, result } => {
            e.kind = PAGEYARD_EVENT_COMPACT_FINISHED;
            set_zone(e, zone);
            e.order = order.map_or(u32::MAX, |order| order.get().into());
            e.values = one(result as u64);
        }
        CompactEvent::Suitable { zone, order, result } => {
            e.kind = PAGEYARD_EVENT_COMPACT_SUITABLE;
            set_zone(e, zone);
            e.order = order.get().into();
            e.values = one(result as u64);
        }
        CompactEvent::Deferred { zone, order, deferral: d }
        | CompactEvent::DeferCompaction { zone, order, deferral: d }
        | CompactEvent::DeferReset { zone, order, deferral: d } => {
            e.kind = match event {
                CompactEvent::Deferred { .. } => PAGEYARD_EVENT_COMPACT_DEFERRED,
                CompactEvent::DeferCompaction { .. } => PAGEYARD_EVENT_COMPACT_FAILED,
                _ => PAGEYARD_EVENT_COMPACT_SUCCEEDED,
            };
            set_zone(e, zone);
            e.order = order.get().into();
            e.values = [d.considered.into(), d.shift.into(), d.order_failed.into(), 0, 0, 0];
        }
        CompactEvent::KcompactdSleep { node } => {
            e.kind = PAGEYARD_EVENT_COMPACT_SLEEP;
            e.node = node.0.into();
        }
        CompactEvent::WakeupKcompactd { node, order, highest }
        | CompactEvent::KcompactdWake { node, order, highest } => {
            e.kind = match event {
                CompactEvent::WakeupKcompactd { .. } => PAGEYARD_EVENT_COMPACT_WAKEUP,
                _ => PAGEYARD_EVENT_COMPACT_WAKE,
            };
            set_zone(e, ZoneId { node, kind: highest });
            e.order = order.get().into();
        }
    }
}

/// Converts a report.
pub(crate) fn report(report: &Report) -> pageyard_report {
    let of = |kind, block: Pfn, order: Order, values| pageyard_report {
        kind,
        order: order.get().into(),
        block: block.0,
        values,
        ..pageyard_report::default()
    };
    let suppressed =
        |kind, n| pageyard_report { kind, values: [n, 0, 0], ..pageyard_report::default() };
    match *report {
        Report::BadPage { pfn, block, order, why, at_alloc } => {
            let (why, what) = match why {
                BadPage::MapCount(n) => (PAGEYARD_BAD_MAPCOUNT, signed(n)),
                BadPage::Mapping => (PAGEYARD_BAD_MAPPING, 0),
                BadPage::RefCount(n) => (PAGEYARD_BAD_REFCOUNT, n.into()),
                BadPage::Charged => (PAGEYARD_BAD_CHARGED, 0),
                BadPage::Flags(flags) => (PAGEYARD_BAD_FLAGS, flags.bits().into()),
                BadPage::TailLink => (PAGEYARD_BAD_LINK, 0),
                BadPage::TailMapping => (PAGEYARD_BAD_TAIL, 0),
                // Never reported: faulty memory is not a mistake.
                BadPage::HwPoison => (0, 0),
            };
            let values = [why.into(), what, at_alloc.into()];
            pageyard_report { pfn: pfn.0, ..of(PAGEYARD_REPORT_BAD_PAGE, block, order, values) }
        }
        Report::BadPagesSuppressed(n) => suppressed(PAGEYARD_REPORT_BAD_PAGES_SUPPRESSED, n),
        Report::Poison { block, order, corruption: c } => {
            let values = [c.first as u64, c.last as u64, c.single_bit.into()];
            of(PAGEYARD_REPORT_POISON, block, order, values)
        }
        Report::PoisonSuppressed(n) => suppressed(PAGEYARD_REPORT_POISON_SUPPRESSED, n),
    }
}
