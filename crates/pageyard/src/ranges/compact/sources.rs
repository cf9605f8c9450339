//! The ascending scanner: collects blocks that their owners can move (spec §7.4).
//!
//! It takes no lock and marks nothing. A collected block may be freed at any moment; this is
//! detected when the owner is asked to move it.

use super::CLUSTER;
use super::collected::Batch;
use super::pass::{Pass, chunk_end};
use crate::base::frame::{Kind, State};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_end, block_start,
};
use crate::embedder::compact_events::Mode;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;

impl<C: Config> Pass<'_, '_, C> {
    /// Advances to the next pageblock that has movable blocks, and collects up to 32 pages of it.
    #[inline(never)]
    pub(super) fn collect(&mut self) {
        self.batch = Batch::default();
        let zone = self.at.zone;
        let map = &zone.map;
        let mut low = self.migrate;
        while block_end(low) <= self.free {
            let begins = low == block_start(low) || low == zone.first_index();
            if begins && map.is_skipped(low) && !self.job.ignore_skips {
                low = block_end(low);
            } else if !self.is_source_block(low) {
                low = block_end(low);
                self.keep_cursor(low);
            } else {
                low = self.collect_block(low, begins);
                break;
            }
        }
        self.migrate = low;
    }

    /// Returns whether the pageblock of a frame is worth scanning.
    fn is_source_block(&self, idx: u32) -> bool {
        let map = &self.at.zone.map;
        if map.block_is_absent(idx) {
            return false;
        }
        let full = |head: u32| {
            let state = map.frame(head).state();
            state.kind() == Kind::Allocated
                && state.order() >= PAGEBLOCK_ORDER
                && block_start(idx) - head < 1 << state.order().min(MAX_ORDER)
        };
        if full(block_start(idx)) || full(idx & !((1 << MAX_ORDER) - 1)) {
            return false;
        }
        if !self.is_picky() {
            return true;
        }
        let t = map.block_type(idx);
        t == self.job.migrate_type
            || self.job.migrate_type == MigrateType::Movable && t == MigrateType::Cma
    }

    /// Returns whether the run is for a request that must not wait: it skips doubtful blocks.
    fn is_picky(&self) -> bool {
        self.job.direct && self.job.mode == Mode::Async
    }

    /// Collects from `start` to the end of its pageblock. Returns the index it reached.
    fn collect_block(&mut self, start: u32, begins: bool) -> u32 {
        let zone = self.at.zone;
        let end = block_end(start);
        let chunk = self.job.order.filter(|_| self.is_picky());
        let mut next_chunk = chunk.map_or(end, |o| chunk_end(start, o));
        let (mut idx, mut scanned) = (start, 0);
        while idx < end && !self.batch.is_full() {
            if idx >= next_chunk {
                if !self.batch.is_empty() {
                    break;
                }
                next_chunk = chunk.map_or(end, |o| chunk_end(idx, o));
            }
            scanned += 1;
            let state = zone.map.frame(idx).state();
            let order = state.order();
            let head = !matches!(state.kind(), Kind::Tail | Kind::Reserved);
            let next = if head { idx.saturating_add(1 << order) } else { idx + 1 };
            if self.wants(idx, state) {
                self.batch.push(idx, order);
            } else if state.kind() != Kind::Free && head && chunk.is_some() {
                // A block here cannot move, so the wanted block will not become free.
                self.batch = Batch::default();
                idx = next.max(next_chunk);
                continue;
            }
            idx = next;
        }
        let idx = idx.min(end);
        self.scanned_for_sources(start, idx, scanned, self.batch.pages());
        if idx == end && self.batch.is_empty() {
            if begins && self.only.is_none() {
                zone.map.set_skipped(start);
            }
            self.keep_cursor(end);
        }
        idx
    }

    /// Returns whether to move a block. Blocks at least as large as the wanted one are not moved,
    /// since that would gain nothing, nor are whole pageblocks.
    fn wants(&self, idx: u32, state: State) -> bool {
        let order = state.order();
        let below = self.job.order.map_or(PAGEBLOCK_ORDER, Order::get).min(PAGEBLOCK_ORDER);
        state.kind() == Kind::Allocated
            && state.is_movable()
            && order < below
            && self.only.is_none_or(|o| o == order)
            && self.may_move(idx, order)
    }

    /// Returns whether the settings allow moving a block that its owner can move
    /// (`compact_unevictable_allowed`, §10).
    pub(super) fn may_move(&self, idx: u32, order: u8) -> bool {
        self.unevictable
            || Order::new(order).is_some_and(|o| {
                let at = self.at;
                !at.hooks.is_unevictable(at.zone.pfn(idx), o)
            })
    }

    /// Raises the cursors: everything below is done, so later runs need not look there.
    fn keep_cursor(&self, idx: u32) {
        if self.only.is_some() {
            return;
        }
        let raise = |c: &crate::base::sync::AtomicU32| {
            if idx > c.load(Relaxed) {
                c.store(idx, Relaxed);
            }
        };
        let [fast, slow] = &self.at.zone.compaction.migrate_at;
        raise(fast);
        if self.job.mode != Mode::Async {
            raise(slow);
        }
    }
}

const _: () = assert!(PAGEBLOCK_PAGES > CLUSTER);
