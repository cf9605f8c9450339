//! The memory report that a kernel logs when a request fails (§9.8). Every zone has one line of
//! sizes, one of reserves and one of free blocks.
//!
//! The spec names the first and the last fields of the first line and leaves the middle open. The
//! middle follows reports in public logs, including where they write a capital K. The kernel's
//! summary lines of the machine and its nodes, around the zones, belong to other subsystems and are
//! not written.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::{BlockSupply, Config, MigrateType, NodeId, PAGE_SIZE, Platform, Yard, ZoneId};

use super::{Extra, zone_stat, zones};

/// The report on one zone. Counts are pages; they are printed in kB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport<'t> {
    /// Its node.
    pub node: NodeId,
    /// Its name, such as `DMA32`.
    pub zone: &'t str,
    /// Free pages.
    pub free: u64,
    /// The watermark boost.
    pub boost: u64,
    /// MIN, LOW and HIGH as in force, with the boost (§3.3).
    pub marks: [u64; 3],
    /// Pages in blocks reserved for high-order atomic requests (§3.8).
    pub reserved_highatomic: u64,
    /// Free pages of those blocks.
    pub free_highatomic: u64,
    /// Pages backed by memory.
    pub present: u64,
    /// Pages managed by the allocator.
    pub managed: u64,
    /// Pages on the lists of all CPUs.
    pub free_pcp: u64,
    /// Pages on the lists of the reporting CPU.
    pub local_pcp: u64,
    /// Free pages of CMA pageblocks.
    pub free_cma: u64,
    /// The reserve against requests for each higher zone (§3.5).
    pub protection: &'t [u64],
}

fn kb(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE / 1024)
}

/// Returns a type's letter in the list of free blocks.
const fn letter(t: MigrateType) -> char {
    match t {
        MigrateType::Unmovable => 'U',
        MigrateType::Movable => 'M',
        MigrateType::Reclaimable => 'E',
        MigrateType::HighAtomic => 'H',
        MigrateType::Cma => 'C',
        MigrateType::Isolate => 'I',
    }
}

impl ZoneReport<'_> {
    /// Writes the lines of sizes and reserves. `stat` returns the zone's counters by name
    /// ([`ZONE_STATS`](super::ZONE_STATS)), in pages.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_sizes(&self, out: &mut impl Write, stat: impl Fn(&str) -> u64) -> fmt::Result {
        let [min, low, high] = self.marks;
        put!(out, "Node ", self.node.0, ' ', self.zone)?;
        let mut size = |name: &str, pages, unit| put!(out, ' ', name, ':', kb(pages), unit);
        size("free", self.free, "kB")?;
        size("boost", self.boost, "kB")?;
        size("min", min, "kB")?;
        size("low", low, "kB")?;
        size("high", high, "kB")?;
        size("reserved_highatomic", self.reserved_highatomic, "KB")?;
        size("free_highatomic", self.free_highatomic, "KB")?;
        size("active_anon", stat("nr_zone_active_anon"), "kB")?;
        size("inactive_anon", stat("nr_zone_inactive_anon"), "kB")?;
        size("active_file", stat("nr_zone_active_file"), "kB")?;
        size("inactive_file", stat("nr_zone_inactive_file"), "kB")?;
        size("unevictable", stat("nr_zone_unevictable"), "kB")?;
        size("writepending", stat("nr_zone_write_pending"), "kB")?;
        size("present", self.present, "kB")?;
        size("managed", self.managed, "kB")?;
        size("mlocked", stat("nr_mlock"), "kB")?;
        size("bounce", stat("nr_bounce"), "kB")?;
        size("free_pcp", self.free_pcp, "kB")?;
        size("local_pcp", self.local_pcp, "kB")?;
        size("free_cma", self.free_cma, "kB")?;
        out.write_str("\nlowmem_reserve[]:")?;
        self.protection.iter().try_for_each(|&n| put!(out, ' ', n))?;
        out.write_str("\n")
    }
}

/// Writes a zone's line of free blocks, from order 0 up. The types of an order are not shown if no
/// type's list has any block.
///
/// # Errors
/// The errors of `out`.
pub fn write_supply_row(
    out: &mut impl Write,
    node: NodeId,
    zone: &str,
    orders: impl IntoIterator<Item = BlockSupply>,
) -> fmt::Result {
    put!(out, "Node ", node.0, ' ', zone, ": ")?;
    let (mut size, mut total) = (PAGE_SIZE / 1024, 0u64);
    for BlockSupply { blocks, types } in orders {
        put!(out, blocks, '*', size, "kB ")?;
        if types.contains(&true) {
            out.write_str("(")?;
            for (t, _) in MigrateType::ALL.into_iter().zip(types).filter(|(_, any)| *any) {
                put!(out, letter(t))?;
            }
            out.write_str(") ")?;
        }
        total = total.saturating_add(blocks.saturating_mul(size));
        size = size.saturating_mul(2);
    }
    put!(out, "= ", total, "kB\n")
}

/// Writes the memory report (§9.8) of every zone that has memory: first the sizes and reserves of
/// all zones, then their free blocks. The calling CPU is the local one.
///
/// # Errors
/// The errors of `out`.
#[inline(never)]
pub fn write_show_mem<C: Config>(
    out: &mut impl Write,
    yard: &Yard<'_, C>,
    extra: &impl Extra,
) -> fmt::Result {
    zones(yard).try_for_each(|zone| write_sizes(out, yard, zone, extra))?;
    zones(yard).try_for_each(|zone| write_blocks(out, yard, zone))
}

#[inline(never)]
fn write_sizes<C: Config>(
    out: &mut impl Write,
    yard: &Yard<'_, C>,
    zone: ZoneId,
    extra: &impl Extra,
) -> fmt::Result {
    let Some(info) = yard.zone_info(zone) else { return Ok(()) };
    let local = yard.pageset(zone, yard.hooks().cpu()).unwrap_or_default();
    let [min, low, high, _] = info.watermarks.map(|mark| mark.saturating_add(info.boost));
    let report = ZoneReport {
        node: zone.node,
        zone: zone.kind.name(),
        free: info.free,
        boost: info.boost,
        marks: [min, low, high],
        reserved_highatomic: info.reserved_highatomic,
        free_highatomic: info.free_highatomic,
        present: info.present,
        managed: info.managed,
        free_pcp: info.cached,
        local_pcp: local.count.max(0) as u64,
        free_cma: yard.supply(zone).map_or(0, |supply| supply.cma),
        protection: &info.lowmem_reserve,
    };
    report.write_sizes(out, |name| zone_stat(yard, zone, name, extra))
}

#[inline(never)]
fn write_blocks<C: Config>(out: &mut impl Write, yard: &Yard<'_, C>, zone: ZoneId) -> fmt::Result {
    let blocks = yard.block_supply(zone).unwrap_or_default();
    // By reference: an iterator that owns the array would copy it to the stack.
    write_supply_row(out, zone.node, zone.kind.name(), blocks.iter().copied())
}
