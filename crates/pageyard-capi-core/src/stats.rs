//! Counters as numbers.

use core::fmt::{self, Write};

use lock_api::RawMutex;
use pageyard::policy::Policy;
use pageyard::{CpuId, Platform, Yard, ZoneId};

use crate::handle::{self, pageyard_core};
use crate::sized::{self, Growing};
use crate::status::{PAGEYARD_ERR_NODE, pageyard_status, status};

/// What a yard or a zone has and did. Set `struct_size` to sizeof(struct pageyard_stats) and
/// `version` to PAGEYARD_VERSION before it is filled.
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
    /// The watermarks, in pages, boost not included: at min, only urgent requests are served;
    /// below low, background reclaim is woken; at high, it stops.
    pub min: u64,
    /// See min.
    pub low: u64,
    /// See min.
    pub high: u64,
    /// Blocks handed out.
    pub allocs: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Requests that could not be served.
    pub failures: u64,
    /// Times per-CPU lists were refilled.
    pub refills: u64,
    /// Times the zones' locks were taken.
    pub lock_holds: u64,
    /// Pages that left the zones' free lists.
    pub pages_taken: u64,
    /// Pages that came back to them.
    pub pages_returned: u64,
    /// Blocks handed out whose pageblock has another type than was asked for.
    pub mismatches: u64,
}

// SAFETY: numbers behind the two fields.
unsafe impl Growing for pageyard_stats {
    const LEAST: usize = size_of::<pageyard_stats>();
}

impl pageyard_stats {
    fn fields(&self) -> [(&'static str, u64); 14] {
        [
            ("managed", self.managed),
            ("free", self.free),
            ("cached", self.cached),
            ("min", self.min),
            ("low", self.low),
            ("high", self.high),
            ("allocs", self.allocs),
            ("frees", self.frees),
            ("failures", self.failures),
            ("refills", self.refills),
            ("lock_holds", self.lock_holds),
            ("pages_taken", self.pages_taken),
            ("pages_returned", self.pages_returned),
            ("mismatches", self.mismatches),
        ]
    }
}

/// Adds a zone's figures.
fn add<R: RawMutex, E: Platform, P: Policy>(
    sum: &mut pageyard_stats,
    yard: &Yard<'_, R, E, P>,
    zone: ZoneId,
) {
    let (Some(info), Some(stats)) = (yard.zone_info(zone), yard.zone_stats(zone)) else { return };
    sum.managed += info.managed;
    sum.free += info.free_exact;
    sum.cached += info.cached;
    let [min, low, high, _] = info.watermarks;
    sum.min += min;
    sum.low += low;
    sum.high += high;
    sum.failures += stats.failures;
    sum.lock_holds += stats.lock_holds;
    sum.pages_taken += stats.pages_taken;
    sum.pages_returned += stats.pages_returned;
    sum.mismatches += stats.mismatches;
    for cpu in (0..yard.cpus()).filter_map(|cpu| yard.cpu_stats(zone, CpuId(cpu))) {
        sum.allocs += cpu.allocs.blocks();
        sum.frees += cpu.frees.blocks();
        sum.refills += cpu.refills;
    }
}

/// The figures of all zones together.
pub fn of_yard<R: RawMutex, E: Platform, P: Policy>(yard: &Yard<'_, R, E, P>) -> pageyard_stats {
    let mut sum = pageyard_stats::default();
    yard.zone_ids().for_each(|zone| add(&mut sum, yard, zone));
    sum
}

/// The figures of the zone at this position, if there are so many.
pub fn of_zone<R: RawMutex, E: Platform, P: Policy>(
    yard: &Yard<'_, R, E, P>,
    index: usize,
) -> Result<pageyard_stats, pageyard_status> {
    let zone = yard.zone_ids().nth(index).ok_or(PAGEYARD_ERR_NODE)?;
    let mut sum = pageyard_stats::default();
    add(&mut sum, yard, zone);
    Ok(sum)
}

/// All zones as a JSON object.
pub(crate) fn write_json<R: RawMutex, E: Platform, P: Policy>(
    yard: &Yard<'_, R, E, P>,
    out: &mut impl Write,
) -> fmt::Result {
    out.write_str("{\"zones\": [")?;
    for (i, zone) in yard.zone_ids().enumerate() {
        if i > 0 {
            out.write_str(", ")?;
        }
        write!(out, "{{\"node\": {}, \"kind\": \"{}\"", zone.node.0, zone.kind.name())?;
        let mut sum = pageyard_stats::default();
        add(&mut sum, yard, zone);
        for (name, value) in sum.fields() {
            write!(out, ", \"{name}\": {value}")?;
        }
        out.write_str(", \"free_blocks\": [")?;
        for (order, blocks) in yard.free_blocks(zone).unwrap_or_default().into_iter().enumerate() {
            let comma = if order > 0 { ", " } else { "" };
            write!(out, "{comma}{blocks}")?;
        }
        out.write_str("]}")?;
    }
    out.write_str("]}\n")
}

/// Fills in the figures of all zones together.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose
/// first two fields are not set.
///
/// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_stats(
    yard: *const pageyard_core,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a structure of its size.
    status(unsafe { handle::of(yard) }.and_then(|yard| {
        // SAFETY: as above.
        unsafe { sized::write(stats, &of_yard(yard)) }
    }))
}

/// Fills in the figures of one zone, by its position: node by node, within a node from the highest
/// kind down.
///
/// Errors: as pageyard_core_stats; PAGEYARD_ERR_NODE where there are not so many zones.
///
/// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_zone_stats(
    yard: *const pageyard_core,
    index: usize,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a structure of its size.
    status(unsafe { handle::of(yard) }.and_then(|yard| {
        let of_zone = of_zone(yard, index)?;
        // SAFETY: as above.
        unsafe { sized::write(stats, &of_zone) }
    }))
}
