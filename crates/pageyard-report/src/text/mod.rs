//! Texts for operators: `buddyinfo`, `pagetypeinfo`, `zoneinfo` and `vmstat`, byte for byte as
//! Linux 6.12 prints them (§9.4), and its memory report (§9.8).
//!
//! Each text has two parts. Functions and plain values write its rows from figures of any origin;
//! the lab prints recorded ones with them. [`write_buddyinfo`], [`write_pagetypeinfo`],
//! [`write_zoneinfo`], [`write_vmstat`] and [`write_show_mem`] fill in the rows of a live allocator.
//!
//! All of them take a [`core::fmt::Write`] and fail only if it fails. They read a live allocator
//! without stopping it, so the figures of one text may differ by a moment, as the kernel's do.

mod buddyinfo;
mod names;
mod pagetypeinfo;
mod show_mem;
mod vmstat;
mod zoneinfo;

use core::fmt::{self, Write};

pub use buddyinfo::{write_buddyinfo, write_buddyinfo_row};
pub use names::{CMA_EVENTS, EVENTS, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS};
pub use pagetypeinfo::{
    COUNT_LIMIT, FreeCount, write_block_heading, write_block_row, write_free_row,
    write_pagetypeinfo, write_pagetypeinfo_heading,
};
pub use show_mem::{ZoneReport, write_show_mem, write_supply_row};
pub use vmstat::{write_counters, write_vmstat};
pub use zoneinfo::{PagesetText, ZoneText, write_node_stats, write_zoneinfo};

use pageyard::{Config, MigrateType, NodeId, PAGEBLOCK_PAGES, Yard, ZoneId, ZoneKind};

/// Values that the texts show and the allocator does not know: page cache, anonymous memory,
/// faults.
///
/// Every counter is queried by the kernel's name; a counter that is not implemented is 0. With `()`
/// all of them are 0, and every line is still printed.
pub trait Extra {
    /// Returns a counter of a node (one of [`NODE_STATS`]), in the kernel's unit.
    fn node_stat(&self, node: NodeId, name: &str) -> u64 {
        let _ = (node, name);
        0
    }

    /// Returns a counter of a zone (one of [`ZONE_STATS`] or [`NUMA_STATS`]). Of the
    /// [`ZONE_STATS`], only those that the allocator does not keep itself are queried.
    fn zone_stat(&self, node: NodeId, zone: ZoneKind, name: &str) -> u64 {
        let _ = (node, zone, name);
        0
    }

    /// Returns a state of the machine (one of [`MACHINE_STATS`]) or the count of an event (one of
    /// [`EVENTS`]). For an event that the allocator counts ([`VmEvent`](pageyard::VmEvent)), this is
    /// added to its count, as the part from before the allocator existed.
    fn machine_stat(&self, name: &str) -> u64 {
        let _ = name;
        0
    }

    /// Returns whether reclaim has given up on a node. With a [`Kswapd`](pageyard::Kswapd) the
    /// allocator knows this itself; implement it for other reclaimers.
    fn is_unreclaimable(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

impl Extra for () {}

/// Writes the rest of a row: a cell for each value, including its separator.
fn write_row<W: Write, T>(
    out: &mut W,
    values: impl IntoIterator<Item = T>,
    cell: impl Fn(&mut W, T) -> fmt::Result,
) -> fmt::Result {
    values.into_iter().try_for_each(|value| cell(out, value))?;
    out.write_str("\n")
}

/// Returns a node's zone of a kind, if it has memory.
fn populated<C: Config>(yard: &Yard<'_, C>, node: NodeId, kind: ZoneKind) -> Option<ZoneId> {
    let zone = ZoneId { node, kind };
    yard.is_populated(zone).then_some(zone)
}

/// Returns the nodes of the zones, ascending.
fn nodes<C: Config>(yard: &Yard<'_, C>) -> impl Iterator<Item = NodeId> {
    let mut last = None;
    // The zones are ordered by node.
    yard.zone_ids().map(|z| z.node).filter(move |&node| last.replace(node) != Some(node))
}

/// Returns the zones of a node that have memory, kinds ascending.
fn zones_of<C: Config>(yard: &Yard<'_, C>, node: NodeId) -> impl Iterator<Item = ZoneId> {
    ZoneKind::ALL.into_iter().filter_map(move |kind| populated(yard, node, kind))
}

/// Returns the zones with memory in the order of all texts: nodes ascending, then kinds ascending.
fn zones<C: Config>(yard: &Yard<'_, C>) -> impl Iterator<Item = ZoneId> {
    nodes(yard).flat_map(move |node| zones_of(yard, node))
}

/// Returns whether any zone has a CMA pageblock. In the kernel the build decides whether the texts
/// mention CMA; here it is whether there is any.
fn has_cma<C: Config>(yard: &Yard<'_, C>) -> bool {
    yard.zone_ids().any(|zone| cma_pages(yard, zone) > 0)
}

/// Returns the pages of a zone's CMA pageblocks.
fn cma_pages<C: Config>(yard: &Yard<'_, C>, zone: ZoneId) -> u64 {
    let [_, _, _, _, cma, _] = yard.pageblocks(zone).unwrap_or_default();
    cma.saturating_mul(PAGEBLOCK_PAGES.into())
}

/// Returns a counter that the allocator keeps itself.
fn own_zone_stat<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, name: &str) -> Option<u64> {
    match name {
        "nr_free_pages" => Some(yard.supply(zone)?.free),
        "nr_free_cma" => Some(yard.supply(zone)?.cma),
        _ => None,
    }
}

/// Returns a NUMA counter of the allocator (§9.1).
fn numa_stat<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, name: &str) -> u64 {
    let numa = || yard.numa_stats(zone).unwrap_or_default();
    match name {
        "numa_hit" => numa().hit,
        "numa_miss" => numa().miss,
        "numa_foreign" => numa().foreign,
        "numa_interleave" => numa().interleave,
        "numa_local" => numa().local,
        "numa_other" => numa().other,
        _ => 0,
    }
}

/// Returns a counter of a zone. For a zone restored from a record, `extra` supplies what was
/// counted before, which is added.
fn zone_stat<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, name: &str, extra: &impl Extra) -> u64 {
    own_zone_stat(yard, zone, name).unwrap_or_else(|| {
        let before = extra.zone_stat(zone.node, zone.kind, name);
        numa_stat(yard, zone, name).saturating_add(before)
    })
}

/// Returns the types that the texts show, in the kernel's order.
fn shown_types(cma: bool) -> impl Iterator<Item = MigrateType> + Clone {
    MigrateType::ALL.into_iter().filter(move |&t| cma || t != MigrateType::Cma)
}
