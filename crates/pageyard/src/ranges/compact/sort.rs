//! The last huge pages of a heap whose blocks are of several orders.
//!
//! One pass moves blocks as they come. A large one may then find no place above it, though the small
//! ones there could be moved together first. So where an operator wants all that can be had, blocks
//! are moved order by order, the largest first, each order into holes that hold it, until nothing
//! moves any more. Then no block has a hole large enough above it; so there are no two holes of
//! one size (the lower one's buddy would have moved into the upper one), all holes together are
//! smaller than a pageblock, and as many pageblocks are free as the number of free pages allows.

use lock_api::RawMutex;

use super::pass::{Asked, Next, Outcome, Pass, is_source};
use super::{Job, block_end, block_start};
use crate::base::frame::Kind;
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::embedder::compact_events::CompactResult;
use crate::embedder::config::Config;
use crate::zone::state::Zone;

/// Rounds over all orders. Each but the last moves something upwards, so they end anyway in a zone
/// that nobody else uses; in a busy one they end here.
const ROUNDS: u32 = 16;

/// Which pass over a zone comes next: one as blocks come, then, where all that can be had is wanted,
/// one for each order, while another huge page may be had.
pub(super) struct Sorting {
    wanted: bool,
    /// Rounds over all orders that were begun.
    rounds: u32,
    only: Option<u8>,
    /// Pages moved in this round.
    moved: u32,
}

impl Sorting {
    pub(super) fn new(job: &Job) -> Sorting {
        let wanted = job.order.is_none() && !job.proactive;
        Sorting { wanted, rounds: 0, only: None, moved: 0 }
    }

    /// The order that the next pass is for.
    pub(super) fn only(&self) -> Option<u8> {
        self.only
    }

    /// Whether another pass follows this one.
    #[inline(never)]
    pub(super) fn goes_on<R: RawMutex>(&mut self, zone: &Zone<'_, R>, last: &Outcome) -> bool {
        if !self.wanted || last.result != CompactResult::Complete {
            return false;
        }
        if let Some(order) = self.only {
            self.moved = self.moved.saturating_add(last.moved);
            if let Some(smaller) = order.checked_sub(1) {
                self.only = Some(smaller);
                return true;
            }
            if self.moved == 0 {
                return false;
            }
        }
        if self.rounds >= ROUNDS || holes(zone) < PAGEBLOCK_PAGES.into() {
            return false;
        }
        self.rounds += 1;
        self.moved = 0;
        self.only = Some(PAGEBLOCK_ORDER - 1);
        true
    }
}

/// Free pages in blocks smaller than a pageblock.
fn holes<R: RawMutex>(zone: &Zone<'_, R>) -> u64 {
    (0..PAGEBLOCK_ORDER).map(|o| zone.areas.blocks(o) << o).fold(0, u64::saturating_add)
}

impl<C: Config> Pass<'_, '_, C> {
    /// Where the scanners have met, blocks of an order move up within their pageblock.
    #[inline(always)]
    pub(super) fn pack(&mut self, order: u8) {
        let (a, b) = (block_start(self.free), block_start(self.migrate));
        let mut next = a.min(b);
        while next <= a.max(b) && next < self.at.zone.map.len() {
            // One after the other, not one in the other: each frame would lie below the next one's.
            let step = self.pack_one(&mut next, order);
            self.free_next(step);
            self.release();
        }
    }

    /// Moves the next block of the order, from `next` up, within its pageblock, or goes on to the
    /// next pageblock. The step that is left.
    #[inline(never)]
    fn pack_one(&mut self, next: &mut u32, order: u8) -> Next {
        let map = &self.at.zone.map;
        let idx = *next;
        let block = block_start(idx);
        let end = block_end(block).min(map.len());
        *next = block_end(block);
        if idx == block && !self.is_target_block(block) {
            return Next::Done;
        }
        let wanted = |&i: &u32| is_source(map.frame(i).state(), order) && self.may_move(i, order);
        let Some(idx) = (idx..end).step_by(1 << order).find(wanted) else { return Next::Done };
        // The highest hole above it.
        let is_hole = |i: &u32| {
            let state = map.frame(*i).state();
            state.kind() == Kind::Free && state.order() >= order
        };
        let locked = self.at.lock();
        if map.block_type(idx) == MigrateType::Isolate {
            return Next::Done;
        }
        let Some(hole) = (idx..end).rev().find(is_hole) else { return Next::Done };
        let size = map.frame(hole).state().order();
        if !locked.hold(hole, size) {
            return Next::Done;
        }
        drop(locked);
        *next = idx + (1 << order);
        self.held.put(map, hole, size);
        let Some(to) = self.held.take(map, order) else { return Next::Done };
        let asked = self.move_block(idx, to, order);
        if matches!(asked, Asked::Gone | Asked::Next(Next::GiveBack(..))) {
            self.moved = self.moved.saturating_add(1 << order);
        }
        if let Asked::Next(next) = asked { next } else { Next::Done }
    }
}
