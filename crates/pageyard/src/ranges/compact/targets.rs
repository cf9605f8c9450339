//! The descending scanner: takes free blocks to move blocks to (spec §7.4).
//!
//! The blocks it takes are on no list and have no owner until a block has moved there or they are
//! freed again. It never takes so many that ordinary requests would fail: each one leaves the zone
//! above its unboosted MIN mark.

use super::CLUSTER;
use super::pass::Pass;
use crate::base::frame::{Kind, State};
use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_end, block_start,
};
use crate::embedder::compact_events::Mode;
use crate::embedder::config::Config;
use crate::zone::at::Locked;

impl<C: Config> Locked<'_, '_, C> {
    /// Takes a free block off its list, if the zone can spare it. Returns whether it did. The pageblock
    /// of a large one becomes movable.
    #[inline(always)]
    pub(crate) fn hold(&self, idx: u32, order: u8) -> bool {
        let zone = self.zone;
        if !self.hold_as_is(idx, order) {
            return false;
        }
        if order >= PAGEBLOCK_ORDER - 1 && !zone.grouping_disabled.load(Relaxed) {
            // At least half of the pageblock will hold movable pages.
            let mut block = block_start(idx);
            while block < idx.saturating_add(1 << order) {
                let was = zone.map.block_type(block);
                if was.is_mergeable() && was != MigrateType::Movable {
                    self.convert(block, was, MigrateType::Movable);
                }
                block = block_end(block);
            }
        }
        true
    }

    /// As [`hold`](Self::hold), of a block in a pageblock that keeps its type.
    #[inline(always)]
    pub(crate) fn hold_as_is(&self, idx: u32, order: u8) -> bool {
        let zone = self.zone;
        let t = zone.map.frame(idx).state().migrate_type();
        if t != MigrateType::Isolate && !zone.can_spare(order, AllocFlags::CMA) {
            return false;
        }
        self.check_type(idx, t);
        self.unlist(idx, order, t, true);
        self.account(-(1 << order), t);
        zone.map.frame(idx).set_state(State::new(Kind::Held, order, t));
        zone.counters.pages_taken.add(1 << order);
        true
    }
}

impl<C: Config> Pass<'_, '_, C> {
    /// Descends until the pages that the batch still has to move are held too, but never below the
    /// batch's pageblock. At least one block of this order is needed.
    #[inline(never)]
    pub(super) fn refill(&mut self, order: u8) {
        let (pages, floor) = (self.batch.pages(), self.batch.block_end());
        let map = &self.at.zone.map;
        let enough = self.held.pages.saturating_add(pages.max(1));
        if self.search(order, enough, floor) {
            return;
        }
        // A pass for one order skips smaller blocks.
        let least = self.only.unwrap_or(0);
        let mut block = block_start(self.free);
        while block >= floor && !self.contended {
            let end = block_end(block).min(map.len());
            if self.is_target_block(block) {
                let from = self.free.max(block);
                let upto = self.hold_in(from, end, least, enough);
                self.free = upto;
                if upto >= end && self.only.is_none() {
                    map.set_skipped(block);
                    self.lower_cursor(block.saturating_sub(PAGEBLOCK_PAGES));
                }
                if upto < end {
                    // It has enough, or it was stopped.
                    return;
                }
            }
            block = block.saturating_sub(PAGEBLOCK_PAGES);
            self.free = block;
            if self.held.pages >= enough {
                return;
            }
        }
    }

    /// Returns whether blocks may move into a pageblock.
    pub(super) fn is_target_block(&self, block: u32) -> bool {
        let map = &self.at.zone.map;
        let t = map.block_type(block);
        if map.block_is_absent(block)
            || map.is_skipped(block) && !self.job.ignore_skips
            || t == MigrateType::Isolate
        {
            return false;
        }
        if self.job.any_target {
            return true;
        }
        let state = map.frame(block).state();
        let wanted = self.job.order.map_or(PAGEBLOCK_ORDER, Order::get);
        if state.kind() == Kind::Free && state.order() >= wanted {
            return false;
        }
        matches!(t, MigrateType::Movable | MigrateType::Cma)
    }

    /// Holds the free blocks of order `least` and above between two frames of one pageblock, until
    /// `enough` pages are held. Returns the index it reached.
    #[inline(never)]
    fn hold_in(&mut self, from: u32, end: u32, least: u8, enough: u32) -> u32 {
        let (at, before) = (self.at, self.held.pages);
        let map = &at.zone.map;
        let (mut idx, mut scanned) = (from, 0);
        'block: while idx < end {
            // Reads without the lock until there is something to take.
            let state = map.frame(idx).state();
            if state.kind() != Kind::Free {
                idx = after(idx, state);
                scanned += 1;
                continue;
            }
            let locked = match self.job.mode {
                Mode::Async => at.try_lock_alone(),
                _ => Some(at.lock_alone()),
            };
            let Some(locked) = locked else {
                self.contended = true;
                break;
            };
            // Another thread may have isolated the pageblock since it was checked.
            if map.block_type(idx) == MigrateType::Isolate {
                break;
            }
            let pause = idx.saturating_add(CLUSTER).min(end);
            while idx < pause {
                let state = map.frame(idx).state();
                let order = state.order();
                if state.kind() == Kind::Free && order >= least {
                    if !locked.hold(idx, order) {
                        break 'block;
                    }
                    self.held.put(map, idx, order);
                }
                idx = after(idx, state);
                scanned += 1;
                if self.held.pages >= enough {
                    break 'block;
                }
            }
        }
        let upto = idx.min(end);
        self.scanned_for_targets(from, upto, scanned, self.held.pages.saturating_sub(before));
        upto
    }

    /// Searches the free lists before the frames are scanned. It looks for a free block near the
    /// descending scanner: in the top quarter of the range between the scanners, else in the top
    /// half. It takes that block and the free blocks around it. The scanner does not move. Returns
    /// whether it took any.
    fn search(&mut self, order: u8, enough: u32, floor: u32) -> bool {
        let Some(wanted) = self.job.order.map(Order::get) else { return false };
        let Some(idx) = self.find_listed(order, wanted.min(PAGEBLOCK_ORDER), floor) else {
            self.misses = self.misses.saturating_add(1);
            return false;
        };
        self.misses = 0;
        let map = &self.at.zone.map;
        let block = block_start(idx);
        if !self.is_target_block(block) {
            return false;
        }
        let end = block_end(block).min(map.len());
        let before = self.held.pages;
        if self.hold_in(block, end, 0, enough) >= end {
            map.set_skipped(block);
        }
        self.held.pages > before
    }

    /// Returns the first suitable free block of these orders on the free lists.
    #[inline(never)]
    fn find_listed(&mut self, least: u8, below: u8, floor: u32) -> Option<u32> {
        let between = self.free.saturating_sub(self.migrate);
        let near = block_start(self.free.saturating_sub(between / 4)).max(floor);
        let far = block_start(self.free.saturating_sub(between / 2)).max(floor);
        let looks = (CLUSTER >> self.misses.min(31)) + 1;
        let locked = match self.job.mode {
            Mode::Async => self.at.try_lock(),
            _ => Some(self.at.lock()),
        };
        let Some(locked) = locked else {
            self.contended = true;
            return None;
        };
        let mut best = None;
        for order in (least..below).rev() {
            let list = locked.zone.areas.list(order, MigrateType::Movable);
            for idx in list.iter_back(&locked.zone.map).take(looks as usize) {
                if (near..self.free).contains(&idx) {
                    return Some(idx);
                }
                if (far..self.free).contains(&idx) {
                    best = best.max(Some(idx));
                }
            }
        }
        best
    }

    /// Lowers the cursor: everything above is taken, so later runs need not look there.
    fn lower_cursor(&self, block: u32) {
        let cursor = &self.at.zone.compaction.free_at;
        if block < cursor.load(Relaxed) {
            cursor.store(block, Relaxed);
        }
    }
}

/// Returns the first frame past a block, or past a frame that is not a head.
fn after(idx: u32, state: State) -> u32 {
    match state.kind() {
        Kind::Tail | Kind::Reserved => idx + 1,
        _ => idx.saturating_add(1 << state.order()),
    }
}
