//! `buddyinfo`: free blocks by order.

use core::fmt::{self, Write};

use super::{populated, write_row};
use crate::allocator::yard::Yard;
use crate::base::put::{Right, put};
use crate::base::units::{MAX_ORDER, NodeId};
use crate::embedder::config::Config;

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

impl<C: Config> Yard<'_, C> {
    /// Writes `buddyinfo` (§9.4): free blocks by order, a row for every zone with memory.
    ///
    /// # Errors
    /// The errors of `out`.
    #[inline(never)]
    pub fn write_buddyinfo(&self, out: &mut impl Write) -> fmt::Result {
        for z in populated(self.zones) {
            let blocks = (0..=MAX_ORDER).map(|o| z.areas.blocks(o));
            write_buddyinfo_row(out, z.node, z.kind.name(), blocks)?;
        }
        Ok(())
    }
}
