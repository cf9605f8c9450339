//! Frees the last possible huge pages of a heap with blocks of several orders.
//!
//! One pass moves blocks in the order it finds them. A large block may then find no place above it,
//! although small blocks there could have been moved together first. So a run without a wanted
//! order repeats passes order by order, the largest first. Each pass moves blocks of its order into
//! free blocks (holes) that hold one, until nothing moves any more.
//!
//! At the end, no block has a hole above it that is large enough. So there are no two holes of one
//! size: the buddy of the lower one would have moved into the upper one. All holes together are
//! then smaller than a pageblock, and as many pageblocks are free as the number of free pages
//! allows.

use lock_api::RawMutex;

use super::Job;
use super::pass::{Asked, Next, Outcome, Pass, is_source};
use crate::base::frame::Kind;
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_end, block_start};
use crate::embedder::compact_events::CompactResult;
use crate::embedder::config::Config;
use crate::zone::state::Zone;

/// Limit of rounds over all orders. Each round but the last moves something upwards, so without
/// other users of the zone the rounds end by themselves.
const ROUNDS: u32 = 16;

/// Selects the next pass over a zone. The first pass moves blocks of all orders. A run without a
/// wanted order then adds one pass per order, as long as another huge page is possible.
pub(super) struct Sorting {
    wanted: bool,
    /// Number of rounds over all orders that have begun.
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

    /// Returns the order of the next pass.
    pub(super) fn only(&self) -> Option<u8> {
        self.only
    }

    /// Returns whether another pass follows this one.
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

/// Returns the free pages in blocks smaller than a pageblock.
fn holes<R: RawMutex>(zone: &Zone<'_, R>) -> u64 {
    (0..PAGEBLOCK_ORDER).map(|o| zone.areas.blocks(o) << o).fold(0, u64::saturating_add)
}

impl<C: Config> Pass<'_, '_, C> {
    /// Moves blocks of an order upwards within their pageblock, where the scanners have met.
    #[inline(always)]
    pub(super) fn pack(&mut self, order: u8) {
        let (a, b) = (block_start(self.free), block_start(self.migrate));
        let (mut next, last) = (a.min(b), a.max(b));
        while block_start(next) <= last {
            // In sequence rather than nested, so that their stack frames do not add up.
            let step = self.pack_one(&mut next, order);
            self.free_next(step);
            self.release();
        }
    }

    /// Moves the next block of the order at or above `next` within its pageblock, or advances to
    /// the next pageblock. Returns the step that the caller must take.
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
        // The highest hole above the block.
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
        if matches!(asked, Asked::Moved | Asked::Gone) {
            self.moved = self.moved.saturating_add(1 << order);
        }
        match asked {
            Asked::Moved => Next::GiveBack(idx, order),
            Asked::Busy | Asked::Stays => Next::PutBack(to, order),
            Asked::Gone | Asked::Refused => Next::Done,
        }
    }
}
