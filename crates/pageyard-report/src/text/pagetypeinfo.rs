//! `pagetypeinfo`: free blocks by order and type, pageblocks by type.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::{
    Config, MAX_ORDER, MigrateType, NodeId, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Yard, ZoneId,
};

use super::{has_cma, nodes, shown_types, write_row, zones_of};
use crate::pad::{Left, Right};

/// The count at which counting a free list stops, so that the zone lock is not held for too long.
pub const COUNT_LIMIT: u64 = 100_000;

/// A number of free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeCount {
    /// The number.
    pub blocks: u64,
    /// Whether counting stopped there, so that there may be more.
    pub at_least: bool,
}

/// Writes the heading above a node's free blocks, for orders 0 to `orders` - 1, at most 255.
///
/// # Errors
/// The errors of `out`.
pub fn write_pagetypeinfo_heading(
    out: &mut impl Write,
    block_order: u8,
    pages_per_block: u64,
    orders: usize,
) -> fmt::Result {
    put!(out, "Page block order: ", block_order, '\n')?;
    put!(out, "Pages per block:  ", pages_per_block, "\n\n")?;
    put!(out, Left("Free pages count per migrate type at order", 43), ' ')?;
    write_row(out, 0..orders.min(1 << u8::BITS), |out, order| put!(out, Right(order, 6), ' '))
}

/// Writes the free blocks of a zone and type, from order 0 up.
///
/// # Errors
/// The errors of `out`.
pub fn write_free_row(
    out: &mut impl Write,
    node: NodeId,
    zone: &str,
    migrate_type: &str,
    counts: impl IntoIterator<Item = FreeCount>,
) -> fmt::Result {
    put!(out, "Node ", Right(node.0, 4), ", zone ", Right(zone, 8), ", type ")?;
    put!(out, Right(migrate_type, 12), ' ')?;
    write_row(out, counts, |out, FreeCount { blocks, at_least }| {
        put!(out, if at_least { ">" } else { "" }, Right(blocks, 6), ' ')
    })
}

/// Writes the heading above rows of pageblocks: a blank line, `title` (`Number of blocks type` or
/// `Number of mixed blocks`) and the types.
///
/// # Errors
/// The errors of `out`.
pub fn write_block_heading<'t>(
    out: &mut impl Write,
    title: &str,
    types: impl IntoIterator<Item = &'t str>,
) -> fmt::Result {
    put!(out, '\n', Left(title, 23))?;
    write_row(out, types, |out, t| put!(out, Right(t, 12), ' '))
}

/// Writes a zone's pageblocks by type.
///
/// # Errors
/// The errors of `out`.
pub fn write_block_row(
    out: &mut impl Write,
    node: NodeId,
    zone: &str,
    blocks: impl IntoIterator<Item = u64>,
) -> fmt::Result {
    put!(out, "Node ", node.0, ", zone ", Right(zone, 8), ' ')?;
    write_row(out, blocks, |out, n| put!(out, Right(n, 12), ' '))
}

/// Writes `pagetypeinfo` (§9.4) of every node that has memory. CMA has rows and a column if any
/// zone has CMA pageblocks. Each free list is counted under the zone lock, block by block up to
/// [`COUNT_LIMIT`], so do not call this on hot paths.
///
/// # Errors
/// The errors of `out`.
#[inline(never)]
pub fn write_pagetypeinfo<C: Config>(out: &mut impl Write, yard: &Yard<'_, C>) -> fmt::Result {
    let types = shown_types(has_cma(yard));
    for node in nodes(yard) {
        if zones_of(yard, node).next().is_none() {
            continue;
        }
        let orders = usize::from(MAX_ORDER) + 1;
        write_pagetypeinfo_heading(out, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES.into(), orders)?;
        for zone in zones_of(yard, node) {
            for t in types.clone() {
                let orders = (0..=MAX_ORDER).filter_map(Order::new);
                let counts = orders.map(|order| count(yard, zone, order, t));
                write_free_row(out, node, zone.kind.name(), t.name(), counts)?;
            }
        }
        let names = types.clone().map(MigrateType::name);
        write_block_heading(out, "Number of blocks type", names)?;
        for zone in zones_of(yard, node) {
            let blocks = yard.pageblocks(zone).unwrap_or_default();
            let shown = MigrateType::ALL.into_iter().zip(blocks);
            let shown = shown.filter(|(t, _)| types.clone().any(|s| s == *t));
            write_block_row(out, node, zone.kind.name(), shown.map(|(_, n)| n))?;
        }
    }
    Ok(())
}

/// Counts the blocks on one free list, up to the limit.
fn count<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, order: Order, t: MigrateType) -> FreeCount {
    let blocks = yard.count_free_list(zone, order, t, COUNT_LIMIT as usize).unwrap_or(0);
    FreeCount { blocks, at_least: blocks >= COUNT_LIMIT }
}
