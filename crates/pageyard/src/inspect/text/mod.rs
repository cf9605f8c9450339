//! What an operator reads: `buddyinfo`, `pagetypeinfo`, `zoneinfo` and `vmstat`, byte for byte as
//! Linux 6.12 prints them (§9.4), and its report on memory (§9.8).
//!
//! Each text has two halves. Its rows are functions and plain values, for figures from anywhere:
//! the lab prints recorded ones with them. A method of [`Yard`](crate::Yard) fills the rows of a
//! live allocator: [`write_buddyinfo`](crate::Yard::write_buddyinfo),
//! [`write_pagetypeinfo`](crate::Yard::write_pagetypeinfo),
//! [`write_zoneinfo`](crate::Yard::write_zoneinfo), [`write_vmstat`](crate::Yard::write_vmstat),
//! [`write_show_mem`](crate::Yard::write_show_mem).
//!
//! All take a [`core::fmt::Write`] and fail only where that fails. They read a live allocator
//! without stopping it, so figures of one text may be a moment apart, as the kernel's are.

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

/// What the texts show and the allocator does not know: page cache, anonymous memory, faults.
///
/// Every counter is asked for by the kernel's name; what is left out is 0. `()` knows nothing,
/// and still gets every line.
pub trait Extra {
    /// A counter of a node (one of [`NODE_STATS`]), in the kernel's unit.
    fn node_stat(&self, node: NodeId, name: &str) -> u64 {
        let _ = (node, name);
        0
    }

    /// A counter of a zone (one of [`ZONE_STATS`] or [`NUMA_STATS`]). Asked only for those that
    /// the allocator does not keep itself.
    fn zone_stat(&self, node: NodeId, zone: ZoneKind, name: &str) -> u64 {
        let _ = (node, zone, name);
        0
    }

    /// A state of the machine (one of [`MACHINE_STATS`]), or how often an event happened (one of
    /// [`EVENTS`]). For an event that the allocator counts ([`VmEvent`](crate::VmEvent)) this is
    /// added to its count: what happened before it was there.
    fn machine_stat(&self, name: &str) -> u64 {
        let _ = name;
        0
    }

    /// Whether reclaim has given up on a node. Of a [`Kswapd`](crate::Kswapd) the allocator knows it
    /// itself; this is for others.
    fn is_unreclaimable(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

impl Extra for () {}

/// Writes a number in decimal, as `{}` does, on less stack than `core::fmt` takes.
///
/// # Errors
/// Those of `out`.
pub fn write_number(out: &mut impl Write, n: u64) -> fmt::Result {
    n.put(out)
}

/// Writes the rest of a row: a cell for each value, each with its own blank.
fn write_row<W: Write, T>(
    out: &mut W,
    values: impl IntoIterator<Item = T>,
    cell: impl Fn(&mut W, T) -> fmt::Result,
) -> fmt::Result {
    values.into_iter().try_for_each(|value| cell(out, value))?;
    out.write_str("\n")
}

/// The nodes of these zones, ascending. There is no room to sort them, so each is looked for.
fn nodes<R: RawMutex>(zones: &[Zone<'_, R>]) -> impl Iterator<Item = NodeId> {
    let above = |last: Option<NodeId>| {
        zones.iter().map(|z| z.node).filter(|&n| last.is_none_or(|l| n > l)).min()
    };
    iter::successors(above(None), move |&n| above(Some(n)))
}

/// A node's zone of a kind.
fn zone_of<'z, 'a, R: RawMutex>(
    zones: &'z [Zone<'a, R>],
    node: NodeId,
    kind: ZoneKind,
) -> Option<&'z Zone<'a, R>> {
    zones.iter().find(|z| z.node == node && z.kind == kind)
}

/// The zones with memory in the order of all texts: nodes ascending, then kinds ascending.
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

/// Whether any of these zones has a pageblock for contiguous memory. A kernel's build decides
/// whether its texts speak of CMA; ours do where there is any.
fn has_cma<R: RawMutex>(zones: &[Zone<'_, R>]) -> bool {
    zones.iter().any(|z| cma_pages(z) > 0)
}

/// Pages of a zone's pageblocks for contiguous memory.
fn cma_pages<R: RawMutex>(zone: &Zone<'_, R>) -> u64 {
    let [_, _, _, _, cma, _] = zone.pageblocks();
    cma.saturating_mul(PAGEBLOCK_PAGES.into())
}

/// A counter that the allocator keeps itself.
fn own_zone_stat<R: RawMutex>(zone: &Zone<'_, R>, name: &str) -> Option<u64> {
    match name {
        "nr_free_pages" => Some(zone.supply().free),
        "nr_free_cma" => Some(zone.free_cma.load(Relaxed)),
        _ => None,
    }
}

/// What the allocator has counted of where its blocks went (§9.1).
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

/// A counter of a zone, from whoever keeps it. What was counted before a zone was restored from a
/// record is the embedder's to say, and is added.
fn zone_stat<R: RawMutex>(zone: &Zone<'_, R>, name: &str, extra: &impl Extra) -> u64 {
    own_zone_stat(zone, name).unwrap_or_else(|| {
        let before = extra.zone_stat(zone.node, zone.kind, name);
        numa_stat(zone, name).saturating_add(before)
    })
}

/// The types that the texts show, in the kernel's order.
fn shown_types(cma: bool) -> impl Iterator<Item = MigrateType> + Clone {
    MigrateType::ALL.into_iter().filter(move |&t| cma || t != MigrateType::Cma)
}
