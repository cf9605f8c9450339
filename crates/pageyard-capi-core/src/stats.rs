//! Counters in a structure.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::{Config, Yard, ZoneId};

use crate::handle::{self, on_yard, pageyard_core};
use crate::sized::{self, Growing};
use crate::status::{PAGEYARD_ERR_NODE, pageyard_status};

/// Figures and counters of a yard or a zone. Before the structure is filled in, set `struct_size`
/// to sizeof(struct pageyard_stats) and `version` to PAGEYARD_VERSION.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_stats {
    /// sizeof(struct pageyard_stats).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Pages on the zones' free lists.
    pub free: u64,
    /// Pages on per-CPU lists.
    pub cached: u64,
    /// Watermarks in pages, without boost. At min, only urgent requests are served; below low,
    /// background reclaim is woken; at high, it stops.
    pub min: u64,
    /// See min.
    pub low: u64,
    /// See min.
    pub high: u64,
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Failed requests.
    pub failures: u64,
    /// Refills of per-CPU lists.
    pub refills: u64,
    /// Acquisitions of zone locks.
    pub lock_holds: u64,
    /// Pages removed from the zones' free lists. 0 on the packed engine, which has none; there
    /// `refills` is what moves pages to CPUs.
    pub pages_taken: u64,
    /// Pages returned to the zones' free lists. 0 on the packed engine.
    pub pages_returned: u64,
    /// Blocks allocated from a pageblock of another type than requested.
    pub mismatches: u64,
    /// Pages allocated, contiguous ranges included. alloc_pages - free_pages is the number of pages
    /// that callers own, however blocks were split. If nothing is out of use, it equals
    /// managed - free - cached.
    pub alloc_pages: u64,
    /// Pages freed.
    pub free_pages: u64,
}

// SAFETY: the two fields are followed by numbers only.
unsafe impl Growing for pageyard_stats {
    const LEAST: usize = 120;
}

/// Adds the figures of a zone to `sum`.
fn add<C: Config>(sum: &mut pageyard_stats, yard: &Yard<'_, C>, zone: ZoneId) {
    let (Some(info), Some(counts)) = (yard.zone_info(zone), yard.zone_totals(zone)) else { return };
    sum.managed += info.managed;
    sum.free += info.free_exact;
    sum.cached += info.cached;
    let [min, low, high, _] = info.watermarks;
    sum.min += min;
    sum.low += low;
    sum.high += high;
    sum.allocs += counts.allocs;
    sum.frees += counts.frees;
    sum.failures += counts.failures;
    sum.refills += counts.refills;
    sum.lock_holds += counts.lock_holds;
    sum.pages_taken += counts.pages_taken;
    sum.pages_returned += counts.pages_returned;
    sum.mismatches += counts.mismatches;
    sum.alloc_pages += counts.alloc_pages;
    sum.free_pages += counts.free_pages;
}

/// Returns the figures of all zones together.
pub fn of_yard<C: Config>(yard: &Yard<'_, C>) -> pageyard_stats {
    let mut sum = pageyard_stats::default();
    yard.zone_ids().for_each(|zone| add(&mut sum, yard, zone));
    sum
}

/// Returns the figures of the zone at this position, or PAGEYARD_ERR_NODE if there is none.
pub fn of_zone<C: Config>(
    yard: &Yard<'_, C>,
    index: usize,
) -> Result<pageyard_stats, pageyard_status> {
    let zone = yard.zone_ids().nth(index).ok_or(PAGEYARD_ERR_NODE)?;
    let mut sum = pageyard_stats::default();
    add(&mut sum, yard, zone);
    Ok(sum)
}

/// Writes all zones as a JSON object.
#[inline(never)]
pub(crate) fn write_json<C: Config>(yard: &Yard<'_, C>, out: &mut impl Write) -> fmt::Result {
    out.write_str("{\"zones\": [")?;
    for (i, zone) in yard.zone_ids().enumerate() {
        if i > 0 {
            out.write_str(", ")?;
        }
        write_zone(yard, zone, out)?;
    }
    out.write_str("]}\n")
}

fn write_zone<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, out: &mut impl Write) -> fmt::Result {
    let mut sum = pageyard_stats::default();
    add(&mut sum, yard, zone);
    put!(out, "{\"node\": ", zone.node.0, ", \"kind\": \"", zone.kind.name(), '"')?;
    let mut field = |name: &str, value: u64| put!(out, ", \"", name, "\": ", value);
    field("managed", sum.managed)?;
    field("free", sum.free)?;
    field("cached", sum.cached)?;
    field("min", sum.min)?;
    field("low", sum.low)?;
    field("high", sum.high)?;
    field("allocs", sum.allocs)?;
    field("frees", sum.frees)?;
    field("failures", sum.failures)?;
    field("refills", sum.refills)?;
    field("lock_holds", sum.lock_holds)?;
    field("pages_taken", sum.pages_taken)?;
    field("pages_returned", sum.pages_returned)?;
    field("mismatches", sum.mismatches)?;
    field("alloc_pages", sum.alloc_pages)?;
    field("free_pages", sum.free_pages)?;
    out.write_str(", \"free_blocks\": [")?;
    for (order, blocks) in yard.free_blocks(zone).unwrap_or_default().into_iter().enumerate() {
        put!(out, if order > 0 { ", " } else { "" }, blocks)?;
    }
    out.write_str("]}")
}

/// Fills in the figures of all zones together.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
/// of the structure are not set.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_stats(
    yard: *const pageyard_core,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a structure of the stated size.
    on_yard!(unsafe { handle::of(yard) }, |yard, stats: *mut pageyard_stats| {
        // SAFETY: as above.
        unsafe { sized::write(stats, &of_yard(yard)) }
    })
}

/// Fills in the figures of one zone. `index` is its position: node by node, within a node from the
/// highest kind down.
///
/// Errors: as pageyard_core_stats; PAGEYARD_ERR_NODE if there is no zone at this position.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_zone_stats(
    yard: *const pageyard_core,
    index: usize,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a structure of the stated size.
    on_yard!(unsafe { handle::of(yard) }, |yard, index: usize, stats: *mut pageyard_stats| {
        let of_zone = of_zone(yard, index)?;
        // SAFETY: as above.
        unsafe { sized::write(stats, &of_zone) }
    })
}
