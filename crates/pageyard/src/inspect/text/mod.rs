//! Texts for operators: `buddyinfo`, `pagetypeinfo`, `zoneinfo` and `vmstat`, byte for byte as
//! Linux 6.12 prints them (§9.4), and its memory report (§9.8).
//!
//! Each text has two parts. Functions and plain values write its rows from figures of any origin;
//! the lab prints recorded ones with them. A method of [`Yard`](crate::Yard) fills in the rows of a
//! live allocator: [`write_buddyinfo`](crate::Yard::write_buddyinfo),
//! [`write_pagetypeinfo`](crate::Yard::write_pagetypeinfo),
//! [`write_zoneinfo`](crate::Yard::write_zoneinfo), [`write_vmstat`](crate::Yard::write_vmstat),
//! [`write_show_mem`](crate::Yard::write_show_mem).
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
use core::iter;

use lock_api::RawMutex;

pub use buddyinfo::write_buddyinfo_row;
pub use names::{CMA_EVENTS, EVENTS, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS};
pub use pagetypeinfo::{
    COUNT_LIMIT, FreeCount, write_block_heading, write_block_row, write_free_row,
    write_pagetypeinfo_heading,
};
pub use show_mem::{BlockSupply, ZoneReport};
pub use vmstat::write_counters;
pub use zoneinfo::{PagesetText, ZoneText, write_node_stats};

use crate::base::put::Put;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, NodeId, PAGEBLOCK_PAGES, ZoneKind};
use crate::zone::state::Zone;

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
    /// [`EVENTS`]). For an event that the allocator counts ([`VmEvent`](crate::VmEvent)), this is
    /// added to its count, as the part from before the allocator existed.
    fn machine_stat(&self, name: &str) -> u64 {
        let _ = name;
        0
    }

    /// Returns whether reclaim has given up on a node. With a [`Kswapd`](crate::Kswapd) the
    /// allocator knows this itself; implement it for other reclaimers.
    fn is_unreclaimable(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

impl Extra for () {}

/// Writes a number in decimal, as `{}` does, with less stack than `core::fmt` needs.
///
/// # Errors
/// The errors of `out`.
pub fn write_number(out: &mut impl Write, n: u64) -> fmt::Result {
    n.put(out)
}

/// Writes the rest of a row: a cell for each value, including its separator.
fn write_row<W: Write, T>(
    out: &mut W,
    values: impl IntoIterator<Item = T>,
    cell: impl Fn(&mut W, T) -> fmt::Result,
) -> fmt::Result {
    values.into_iter().try_for_each(|value| cell(out, value))?;
    out.write_str("\n")
}

/// Returns the nodes of these zones, ascending. There is no memory to sort them in, so each one is
/// searched for.
fn nodes<R: RawMutex>(zones: &[Zone<'_, R>]) -> impl Iterator<Item = NodeId> {
    let above = |last: Option<NodeId>| {
        zones.iter().map(|z| z.node).filter(|&n| last.is_none_or(|l| n > l)).min()
    };
    iter::successors(above(None), move |&n| above(Some(n)))
}

/// Returns a node's zone of a kind.
fn zone_of<'z, 'a, R: RawMutex>(
    zones: &'z [Zone<'a, R>],
    node: NodeId,
    kind: ZoneKind,
) -> Option<&'z Zone<'a, R>> {
    zones.iter().find(|z| z.node == node && z.kind == kind)
}

/// Returns the zones with memory in the order of all texts: nodes ascending, then kinds ascending.
fn populated<'z, 'a, R: RawMutex>(
    zones: &'z [Zone<'a, R>],
) -> impl Iterator<Item = &'z Zone<'a, R>> {
    let place = |z: &Zone<'a, R>| (z.node, z.kind);
    let after = move |last: Option<&Zone<'a, R>>| {
        let later = |z: &&Zone<'a, R>| last.is_none_or(|l| place(z) > place(l));
        zones.iter().filter(later).filter(|z| z.is_populated()).min_by_key(|z| place(z))
    };
    iter::successors(after(None), move |z| after(Some(z)))
}

/// Returns whether any of these zones has a CMA pageblock. In the kernel the build decides whether
/// the texts mention CMA; here it is whether there is any.
fn has_cma<R: RawMutex>(zones: &[Zone<'_, R>]) -> bool {
    zones.iter().any(|z| cma_pages(z) > 0)
}

/// Returns the pages of a zone's CMA pageblocks.
fn cma_pages<R: RawMutex>(zone: &Zone<'_, R>) -> u64 {
    let [_, _, _, _, cma, _] = zone.pageblocks();
    cma.saturating_mul(PAGEBLOCK_PAGES.into())
}

/// Returns a counter that the allocator keeps itself.
fn own_zone_stat<R: RawMutex>(zone: &Zone<'_, R>, name: &str) -> Option<u64> {
    match name {
        "nr_free_pages" => Some(zone.supply().free),
        "nr_free_cma" => Some(zone.free_cma.load(Relaxed)),
        _ => None,
    }
}

/// Returns a NUMA counter of the allocator (§9.1).
fn numa_stat<R: RawMutex>(zone: &Zone<'_, R>, name: &str) -> u64 {
    let numa = || zone.numa();
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
fn zone_stat<R: RawMutex>(zone: &Zone<'_, R>, name: &str, extra: &impl Extra) -> u64 {
    own_zone_stat(zone, name).unwrap_or_else(|| {
        let before = extra.zone_stat(zone.node, zone.kind, name);
        numa_stat(zone, name).saturating_add(before)
    })
}

/// Returns the types that the texts show, in the kernel's order.
fn shown_types(cma: bool) -> impl Iterator<Item = MigrateType> + Clone {
    MigrateType::ALL.into_iter().filter(move |&t| cma || t != MigrateType::Cma)
}
