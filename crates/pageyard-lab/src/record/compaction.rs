//! Converts compaction events to the kernel's tracepoints.

use pageyard::compact::{Deferral, Mode};
use pageyard::{CompactEvent, Order, Pfn, ZoneId};
use pageyard_trace::Compaction;
use pageyard_trace::compaction::{self as trace, Isolated, Scanners, Wake, Wanted};

/// Returns the kernel's tracepoint for a compaction event.
pub fn compaction(event: &CompactEvent) -> Compaction {
    match *event {
        CompactEvent::TryToCompact { order, gfp, priority } => Compaction::TryToCompactPages {
            order: Some(order.get()),
            gfp: gfp.bits(),
            priority: priority as u8,
        },
        CompactEvent::Begin { zone_start, migrate, free, zone_end, mode } => {
            Compaction::Begin(scanners(zone_start, migrate, free, zone_end, mode))
        }
        CompactEvent::End { zone_start, migrate, free, zone_end, mode, result } => {
            let scanners = scanners(zone_start, migrate, free, zone_end, mode);
            Compaction::End { scanners, status: result as u8 }
        }
        CompactEvent::IsolateMigratepages { start, end, scanned, taken } => {
            Compaction::IsolateMigratepages(isolated(start, end, scanned, taken))
        }
        CompactEvent::IsolateFreepages { start, end, scanned, taken } => {
            Compaction::IsolateFreepages(isolated(start, end, scanned, taken))
        }
        CompactEvent::Migratepages { migrated, failed } => {
            Compaction::Migratepages { migrated: migrated.into(), failed: failed.into() }
        }
        CompactEvent::Finished { zone, order, result } => {
            Compaction::Finished { wanted: wanted(zone, order), status: result as u8 }
        }
        CompactEvent::Suitable { zone, order, result } => {
            Compaction::Suitable { wanted: wanted(zone, Some(order)), status: result as u8 }
        }
        CompactEvent::Deferred { zone, order, deferral: d } => {
            Compaction::Deferred(deferral(zone, order, d))
        }
        CompactEvent::DeferCompaction { zone, order, deferral: d } => {
            Compaction::DeferCompaction(deferral(zone, order, d))
        }
        CompactEvent::DeferReset { zone, order, deferral: d } => {
            Compaction::DeferReset(deferral(zone, order, d))
        }
        CompactEvent::KcompactdSleep { node } => Compaction::KcompactdSleep { node: node.0 },
        CompactEvent::WakeupKcompactd { node, order, highest } => {
            let (node, order, highest) = (node.0, Some(order.get()), highest as u8);
            Compaction::WakeupKcompactd(Wake { node, order, highest })
        }
        CompactEvent::KcompactdWake { node, order, highest } => {
            let (node, order, highest) = (node.0, Some(order.get()), highest as u8);
            Compaction::KcompactdWake(Wake { node, order, highest })
        }
    }
}

fn scanners(zone_start: Pfn, migrate: Pfn, free: Pfn, zone_end: Pfn, mode: Mode) -> Scanners {
    Scanners {
        zone_start: zone_start.0,
        migrate: migrate.0,
        free: free.0,
        zone_end: zone_end.0,
        // The kernel's text distinguishes only two of the three modes.
        sync: mode != Mode::Async,
    }
}

fn isolated(start: Pfn, end: Pfn, scanned: u32, taken: u32) -> Isolated {
    Isolated { start: start.0, end: end.0, scanned: scanned.into(), taken: taken.into() }
}

fn wanted(zone: ZoneId, order: Option<Order>) -> Wanted {
    Wanted { node: zone.node.0, zone: zone.kind as u8, order: order.map(Order::get) }
}

fn deferral(zone: ZoneId, order: Order, d: Deferral) -> trace::Deferral {
    trace::Deferral {
        wanted: wanted(zone, Some(order)),
        order_failed: d.order_failed,
        considered: d.considered.into(),
        limit: 1u64.wrapping_shl(d.shift.into()),
    }
}
