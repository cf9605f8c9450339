//! `buddyinfo`: free blocks by order.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::{Config, NodeId, Yard};

use super::{write_row, zones};
use crate::pad::Right;

/// Writes a zone's row: its free blocks, from order 0 up.
///
/// # Errors
/// The errors of `out`.
pub fn write_buddyinfo_row(
    out: &mut impl Write,
    node: NodeId,
    zone: &str,
    blocks: impl IntoIterator<Item = u64>,
) -> fmt::Result {
    put!(out, "Node ", node.0, ", zone ", Right(zone, 8), ' ')?;
    write_row(out, blocks, |out, n| put!(out, Right(n, 6), ' '))
}

/// Writes `buddyinfo` (§9.4): free blocks by order, a row for every zone with memory.
///
/// # Errors
/// The errors of `out`.
#[inline(never)]
pub fn write_buddyinfo<C: Config>(out: &mut impl Write, yard: &Yard<'_, C>) -> fmt::Result {
    zones(yard).try_for_each(|zone| {
        let blocks = yard.free_blocks(zone).unwrap_or_default();
        write_buddyinfo_row(out, zone.node, zone.kind.name(), blocks)
    })
}
