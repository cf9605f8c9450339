//! Allocates or frees many neighbouring blocks at once, with exactly the result of one by one.
//!
//! A refill that takes single blocks from the smallest sufficient one empties it in ascending
//! order: what it splits off is split again by the next item. A drain that frees neighbours merges
//! them with each other first. In both cases the intermediate steps cancel out, and only the net
//! result is done here. The accounting is still done block by block, because its steps are
//! observable (§4.7, §9.2).

use crate::base::units::{MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::zone::area::End;
use crate::zone::at::Locked;

/// Consecutive blocks of one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Index of the lowest block.
    pub(crate) first: u32,
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// Order of each block.
    pub(crate) order: u8,
    /// Whether the blocks were added from the highest down.
    pub(crate) descending: bool,
}

impl Run {
    pub(crate) fn one(idx: u32, order: u8) -> Run {
        Run { first: idx, blocks: 1, order, descending: false }
    }

    /// Returns a run without blocks that a block at `idx` would start.
    pub(crate) fn empty_at(idx: u32, order: u8) -> Run {
        Run { first: idx, blocks: 0, order, descending: false }
    }

    /// Returns the index one past the run.
    fn end(&self) -> u32 {
        self.first + (self.blocks << self.order)
    }

    /// Adds a block to the run if the block continues it. Returns whether it did.
    #[inline]
    pub(crate) fn extend(&mut self, idx: u32) -> bool {
        let step = 1 << self.order;
        if idx == self.end() && !self.descending {
            self.blocks += 1;
        } else if idx.wrapping_add(step) == self.first && (self.descending || self.blocks == 1) {
            self.descending = true;
            self.first = idx;
            self.blocks += 1;
        } else {
            return false;
        }
        true
    }

    /// Removes the next aligned part, at most a pageblock large. Returns its index and order.
    fn next_part(&mut self) -> Option<(u32, u8)> {
        if self.blocks == 0 {
            return None;
        }
        let edge = if self.descending { self.end() } else { self.first };
        let aligned = (edge >> self.order).trailing_zeros() as u8;
        let up = aligned.min(self.blocks.ilog2() as u8);
        let order = (self.order + up).min(PAGEBLOCK_ORDER.max(self.order));
        let blocks = 1 << (order - self.order);
        self.blocks -= blocks;
        let idx = if self.descending { edge - (1 << order) } else { edge };
        if !self.descending {
            self.first += 1 << order;
        }
        Some((idx, order))
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Takes the blocks that `most` calls of [`rmqueue_smallest`](Self::rmqueue_smallest) would
    /// take before they reach another free block.
    #[inline(never)]
    pub(crate) fn rmqueue_run(&self, order: u8, t: MigrateType, most: u32) -> Option<Run> {
        if self.rules().safety.guard_min_order > 0 {
            // The rest of a block may not serve the next item then.
            return None;
        }
        let areas = &self.zone.areas;
        let map = &self.zone.map;
        let (first, found) = (order..=MAX_ORDER).find_map(|o| Some((areas.first(o, t)?, o)))?;
        let blocks = most.min(1 << (found - order));
        self.check_type(first, t);
        self.trace_links(first, found, t);
        self.unlist(first, found, t, true);
        // Reinserts the rest, from the end of the taken blocks up, each piece as large as its
        // position allows. The lists below `found` were empty, so the order of these insertions is
        // not observable.
        let mut rest = blocks << order;
        while rest < 1 << found {
            let o = rest.trailing_zeros() as u8;
            areas.insert(map, first + rest, o, t, End::Head);
            self.trace_links(first + rest, o, t);
            rest += 1 << o;
        }
        self.account_each(blocks, -(1 << order), t);
        self.zone.counters.pages_taken.add(u64::from(blocks) << order);
        for i in 0..blocks {
            let idx = first + (i << order);
            self.note_taken(idx, order, t);
            self.count_mismatch(idx, t);
        }
        Some(Run { first, blocks, order, descending: false })
    }

    /// Frees the blocks of a run in the order in which they were added, each under its pageblock's
    /// type. Their heads must be tails already.
    #[inline(never)]
    pub(crate) fn free_run(&self, run: Run) {
        let map = &self.zone.map;
        self.zone.counters.pages_returned.add(u64::from(run.blocks) << run.order);
        let mut left = run;
        while let Some((idx, order)) = left.next_part() {
            let t = map.block_type(idx);
            let blocks = 1 << (order - run.order);
            self.account_each(blocks, 1 << run.order, t);
            self.note_drained(idx, blocks, run, t);
            self.check_type(idx, t);
            self.merge(idx, order, t, End::Head);
        }
    }

    fn note_drained(&self, idx: u32, blocks: u32, run: Run, migrate_type: MigrateType) {
        let Some(order) = Order::new(run.order) else { return };
        for i in 0..blocks {
            let i = if run.descending { blocks - 1 - i } else { i };
            let pfn = self.zone.pfn(idx + (i << run.order));
            self.hooks.event(self.cpu, Event::Drain { pfn, order, migrate_type });
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    fn parts(mut run: Run) -> Vec<(u32, u8)> {
        core::iter::from_fn(|| run.next_part()).collect()
    }

    #[test]
    fn parts_are_aligned_and_in_the_order_of_the_frees() {
        let up = Run { first: 5, blocks: 11, order: 0, descending: false };
        assert_eq!(parts(up), [(5, 0), (6, 1), (8, 3)]);
        let down = Run { descending: true, ..up };
        assert_eq!(parts(down), [(8, 3), (6, 1), (5, 0)]);
        let large = Run { first: 0, blocks: 1536, order: 0, descending: false };
        assert_eq!(parts(large), [(0, 9), (512, 9), (1024, 9)]);
        let order3 = Run { first: 8, blocks: 3, order: 3, descending: false };
        assert_eq!(parts(order3), [(8, 3), (16, 4)]);
    }

    #[test]
    fn runs_grow_in_one_direction() {
        let mut run = Run::one(8, 2);
        assert!(!run.extend(16) && run.extend(12) && run.extend(16));
        assert!(!run.extend(4), "it went up");
        assert_eq!(run, Run { first: 8, blocks: 3, order: 2, descending: false });
        let mut run = Run::one(8, 2);
        assert!(run.extend(4) && run.extend(0) && !run.extend(12));
        assert_eq!(run, Run { first: 0, blocks: 3, order: 2, descending: true });
    }
}
