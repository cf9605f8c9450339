//! Pageblocks owned by a CPU (policy [`OwnedBlocks`](crate::policy::OwnedBlocks)): the per-CPU lists'
//! side. `zone/owned.rs` describes ownership.
//!
//! Invariants, under the list's lock:
//!
//! - Every block on a list is a head in state `Cached` with the list's order, and the lists' count is the
//!   sum of their pages. Blocks of orders without a list exist only between the gathering of a drain
//!   and the zone's free lists, which the same hold of the list's lock covers.
//! - A block of an owned pageblock is on its owner's lists, allocated, or in the zone. If it was
//!   allocated from the zone's lists by another CPU's refill, it is on that CPU's lists until its first
//!   free.
//! - Only blocks with the mark [`is_at_owner`](State::is_at_owner) split and merge here.
//!
//! A free that finds the owner's lists locked goes to the zone, as a free that finds its own lists
//! locked does. The owner's next refill takes it from there. No CPU holds two lists' locks.

use crate::base::frame::{Kind, State};
use crate::base::list::List;
use crate::base::units::{COSTLY_ORDER, MigrateType, PAGEBLOCK_ORDER};
use crate::embedder::config::Config;
use crate::embedder::high::HighReason;
use crate::embedder::hooks::Observer;
use crate::embedder::policy::Proposals;
use crate::pcp::pageset::{Pageset, list_index, list_order, lists_used, next_list};
use crate::request::cached::list_run;
use crate::zone::at::At;
use crate::zone::run::Run;

impl Pageset {
    /// Splits the first block of own memory of a larger order into blocks of `order`, for an empty
    /// list. Returns whether there was one.
    pub(super) fn split_own<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        order: u8,
        t: MigrateType,
    ) -> bool {
        let map = &at.zone.map;
        for o in order + 1..=largest_part(at) {
            let list = self.list(list_index(o, t));
            if let Some(idx) = list.first().filter(|&i| map.frame(i).state().is_at_owner()) {
                list.pop_head(map);
                self.list_parts(at, idx, o, order, t);
                return true;
            }
        }
        false
    }

    /// Puts blocks that a refill has taken for this CPU's lists on them, split to orders that have
    /// lists.
    pub(super) fn list_own<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        taken: &List,
        order: u8,
        t: MigrateType,
    ) {
        let map = &at.zone.map;
        let mut whole = false;
        while let Some((idx, frame)) = taken.pop_head(map) {
            let found = frame.state().order();
            whole |= found == PAGEBLOCK_ORDER;
            self.list_parts(at, idx, found, found.min(largest_part(at)), t);
        }
        if self.list(list_index(order, t)).is_empty() {
            self.split_own(at, order, t);
        }
        if whole {
            let was = self.tuning.high;
            self.tune(&at.rules().pcp, |t| t.hold_blocks(&at.rules().pcp));
            at.trace_high(was, &self.tuning, self.tuning.high, HighReason::Refill);
        }
    }

    /// Appends the parts of a block to the list of their order. The block is on no list.
    fn list_parts<C: Config>(
        &self,
        at: &At<'_, '_, C>,
        idx: u32,
        found: u8,
        order: u8,
        t: MigrateType,
    ) {
        let parts = Run { first: idx, blocks: 1 << (found - order), order, descending: false };
        // The mark stays even if the ownership has ended since.
        let marked = at.zone.map.frame(idx).state().is_at_owner();
        let state = State::new(Kind::Cached, order, t);
        let state = if marked { state.at_owner() } else { state };
        list_run(self.list(list_index(order, t)), &at.zone.map, parts, state);
    }

    /// Unlinks about `n` pages as a single pass does, and merges each block of own memory with its
    /// buddies on these lists. The blocks are gathered in the order in which they are to be freed,
    /// the first one last.
    pub(super) fn gather_merged<C: Config>(
        &mut self,
        at: &At<'_, '_, C>,
        n: i32,
        start: usize,
        gathered: &List,
    ) {
        let map = &at.zone.map;
        let (mut left, mut index) = (n, start);
        for _ in 0..lists_used(at.rules()) {
            while left > 0
                && let Some(idx) = self.list(index).pop_tail(map)
            {
                let (idx, order) = self.merge_own(at, idx, list_order(index), left);
                gathered.push_head(map, idx, map.frame(idx));
                left -= 1 << order;
            }
            if left <= 0 {
                break;
            }
            index = next_list(at.rules(), index);
        }
        self.tuning.count -= n - left;
    }

    /// Merges a block that has just left a list with its buddies on these lists, from the bottom up, as
    /// long as the result has at most `left` pages. Returns its head and its order.
    #[inline(always)]
    pub(super) fn merge_own<C: Config>(
        &self,
        at: &At<'_, '_, C>,
        idx: u32,
        order: u8,
        left: i32,
    ) -> (u32, u8) {
        if at.policy.owns_blocks() { self.merge(at, idx, order, left) } else { (idx, order) }
    }

    fn merge<C: Config>(
        &self,
        at: &At<'_, '_, C>,
        mut idx: u32,
        mut order: u8,
        left: i32,
    ) -> (u32, u8) {
        let map = &at.zone.map;
        let state = map.frame(idx).state();
        let t = state.migrate_type();
        if state.is_at_owner() {
            while order < PAGEBLOCK_ORDER && 2 << order <= left {
                let buddy = idx ^ (1 << order);
                if !self.unlink_all(at, buddy, order, t) {
                    break;
                }
                map.frame(idx.max(buddy)).set_state(State::TAIL);
                idx &= buddy;
                order += 1;
            }
        }
        // Without the mark: it is on none of these lists any more, so no other block may merge with it.
        map.frame(idx).set_state(State::new(Kind::Cached, order, t));
        (idx, order)
    }

    /// Takes the frames of a block of this order off the lists, if all of them are on them. Their
    /// heads but the first become tails.
    fn unlink_all<C: Config>(
        &self,
        at: &At<'_, '_, C>,
        first: u32,
        order: u8,
        t: MigrateType,
    ) -> bool {
        let map = &at.zone.map;
        let end = first.saturating_add(1 << order);
        let mut idx = first;
        while idx < end {
            if <C::Hooks as Observer>::SEES_TOUCHES {
                at.hooks.touch(at.zone.pfn(idx));
            }
            let state = map.frame(idx).state();
            let fits = state.is_at_owner() && state.order() <= order;
            // Pages that carry different types return to different lists.
            if !fits || at.rules().carried_types && state.migrate_type() != t {
                return false;
            }
            idx = idx.saturating_add(1 << state.order());
        }
        let mut idx = first;
        while idx < end {
            let frame = map.frame(idx);
            let state = frame.state();
            self.list(list_index(state.order(), state.migrate_type())).unlink(map, idx, frame);
            frame.set_state(State::TAIL);
            idx = idx.saturating_add(1 << state.order());
        }
        true
    }
}

/// Returns the largest order below a pageblock that has lists.
fn largest_part<C: Config>(at: &At<'_, '_, C>) -> u8 {
    if at.rules().high_order_lists { COSTLY_ORDER } else { 0 }
}
