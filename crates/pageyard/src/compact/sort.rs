//! The last huge pages of a heap whose blocks are of several orders.
//!
//! One pass moves blocks as they come. A large one may then find no place above it, though the small
//! ones there could be moved together first. So where an operator wants all that can be had, blocks
//! are moved order by order, the largest first, each order into holes that hold it, until nothing
//! moves any more. Then no block has a hole large enough above it; so there are no two holes of
//! one size (the lower one's buddy would have moved into the upper one), all holes together are
//! smaller than a pageblock, and as many pageblocks are free as the number of free pages allows.

use lock_api::RawMutex;

use super::pass::{Outcome, Pass, is_source};
use super::{CompactResult, block_end, block_start};
use crate::frame::Kind;
use crate::platform::{Platform, Relocation};
use crate::policy::Policy;
use crate::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::zone::Zone;

/// Rounds over all orders. Each but the last moves something upwards, so they end anyway in a zone
/// that nobody else uses; in a busy one they end here.
const ROUNDS: u32 = 16;

/// Passes over a zone by order, while another huge page may be had.
pub(super) fn sort<R: RawMutex>(zone: &Zone<'_, R>, pass: impl Fn(Option<u8>) -> Outcome) {
    let holes = || {
        let blocks = zone.blocks_by_order();
        let below = blocks.iter().enumerate().take(PAGEBLOCK_ORDER.into());
        below.fold(0u64, |sum, (order, &n)| sum.saturating_add(n << order))
    };
    for _ in 0..ROUNDS {
        if holes() < PAGEBLOCK_PAGES.into() {
            return;
        }
        let mut moved = 0;
        for order in (0..PAGEBLOCK_ORDER).rev() {
            let outcome = pass(Some(order));
            moved += outcome.moved;
            if outcome.result != CompactResult::Complete {
                return;
            }
        }
        if moved == 0 {
            return;
        }
    }
}

impl<R: RawMutex, E: Platform, P: Policy> Pass<'_, '_, R, E, P> {
    /// Where the scanners have met, blocks of an order move up within their pageblock.
    pub(super) fn pack(&mut self, order: u8) {
        let (a, b) = (block_start(self.free), block_start(self.migrate));
        let mut block = a.min(b);
        while block <= a.max(b) && block < self.at.zone.map.len() {
            self.pack_block(block, order);
            block = block_end(block);
        }
    }

    fn pack_block(&mut self, block: u32, order: u8) {
        if !self.is_target_block(block) {
            return;
        }
        let map = &self.at.zone.map;
        let end = block_end(block).min(map.len());
        let mut next = block;
        while next < end {
            let idx = next;
            next += 1 << order;
            if !is_source(map.frame(idx).state(), order) || !self.may_move(idx, order) {
                continue;
            }
            // The highest hole above it.
            let is_hole = |i: &u32| {
                let state = map.frame(*i).state();
                state.kind() == Kind::Free && state.order() >= order
            };
            let locked = self.at.lock();
            if map.block_type(idx) == MigrateType::Isolate {
                return;
            }
            let Some(hole) = (idx..end).rev().find(is_hole) else { return };
            let size = map.frame(hole).state().order();
            if !locked.hold(hole, size) {
                return;
            }
            drop(locked);
            self.held.put(map, hole, size);
            if let Some(to) = self.held.take(map, order)
                && self.move_block(idx, to, order) == Relocation::Moved
            {
                self.moved += 1 << order;
            }
            self.release();
        }
    }
}
