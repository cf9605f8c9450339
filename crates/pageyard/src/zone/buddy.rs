//! The buddy system on a locked zone: free with merging, placement, split (spec §1.6–1.10).

use crate::base::frame::{Kind, NIL, State};
use crate::base::units::{MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::{Observer, Reclaim};
use crate::pcp::pageset::is_cached_order;
use crate::zone::area::End;
use crate::zone::at::Locked;

impl<C: Config> Locked<'_, '_, C> {
    /// Frees one block under a type, merging as far as possible (§1.7). Overwrites its head's
    /// state.
    ///
    /// `end` is the end of the list where the result goes. With `Head`, shuffling (§1.8) and the
    /// likely-merge rule may choose the other end.
    #[inline]
    pub(crate) fn free_one(&self, idx: u32, order: u8, t: MigrateType, end: End) {
        self.account(1 << order, t);
        self.check_type(idx, t);
        self.zone.map.frame(idx).set_state(State::TAIL);
        self.merge(idx, order, t, end);
    }

    /// Merges a block as far as possible and puts the result on its list. The block must be on no
    /// list and already accounted for, and all its frames must be tails.
    #[inline]
    pub(crate) fn merge(&self, idx: u32, order: u8, t: MigrateType, end: End) {
        self.merge_unless(idx, order, t, end, |_, _| false);
    }

    /// Like [`merge`](Self::merge), but offers the block to `taken` at every step below the largest
    /// order and stops if `taken` accepts it (§1.7a).
    #[inline(always)]
    pub(crate) fn merge_unless(
        &self,
        idx: u32,
        order: u8,
        t: MigrateType,
        end: End,
        mut taken: impl FnMut(u32, u8) -> bool,
    ) {
        let map = &self.zone.map;
        let (mut idx, mut order) = (idx, order);
        while order < MAX_ORDER {
            if taken(idx, order) {
                self.note_whole(idx, order);
                return;
            }
            let buddy = idx ^ (1 << order);
            let state = map.frame(buddy).state();
            if !state.is(Kind::Free, order) {
                if order < self.rules().safety.guard_min_order && state.is(Kind::Guard, order) {
                    self.unguard(buddy, order, t);
                    idx &= buddy;
                    order += 1;
                    continue;
                }
                break;
            }
            let theirs = state.migrate_type();
            if order >= PAGEBLOCK_ORDER && !self.may_merge(idx, buddy, order, t) {
                break;
            }
            self.trace_links(buddy, order, theirs);
            self.unlist(buddy, order, theirs, false);
            if self.rules().carried_types && theirs != t {
                // The pages change lists, so the counts kept by list change too.
                self.account_special(1, -(1 << order), theirs);
                self.account_special(1, 1 << order, t);
            }
            idx &= buddy;
            order += 1;
        }
        let end = match end {
            End::Head if order == MAX_ORDER => self.zone.random_end(),
            End::Head if self.pair_is_likely(idx, order) => End::Tail,
            end => end,
        };
        self.list_free(idx, order, t, end);
    }

    /// Puts a block that has become free and cannot merge on its list.
    #[inline(always)]
    pub(crate) fn list_free(&self, idx: u32, order: u8, t: MigrateType, end: End) {
        self.zone.areas.insert(&self.zone.map, idx, order, t, end);
        self.trace_links(idx, order, t);
        self.note_part(idx, order);
        if let Some(least) = self.hooks.report_order()
            && order >= least.get()
        {
            self.zone.report.request(self.hooks);
        }
    }

    /// Takes a free block off its list and forgets that it was reported. `taken`: for a request.
    #[inline(always)]
    pub(crate) fn unlist(&self, idx: u32, order: u8, t: MigrateType, taken: bool) {
        self.forget_report(idx, order, taken);
        self.zone.areas.remove(&self.zone.map, idx, order, t);
    }

    /// Accounts for a report mark that is about to be overwritten with the free block's state.
    #[inline(always)]
    pub(crate) fn forget_report(&self, idx: u32, order: u8, taken: bool) {
        if let Some(least) = self.hooks.report_order()
            && order >= least.get()
            && self.zone.map.frame(idx).state().is_reported()
        {
            self.zone.report.forget(1 << order, taken);
        }
    }

    /// Returns whether two blocks of at least a pageblock may merge (§1.7c, e). Blocks of different
    /// types merge only if both types are mergeable; the buddy's pageblocks then take the freed
    /// block's type.
    #[cold]
    fn may_merge(&self, idx: u32, buddy: u32, order: u8, t: MigrateType) -> bool {
        let map = &self.zone.map;
        let (ours, theirs) = if self.rules().carried_types {
            // With carried types a list's type does not determine the block's type.
            (map.block_type(idx), map.block_type(buddy))
        } else {
            (t, map.frame(buddy).state().migrate_type())
        };
        if ours == theirs {
            return true;
        }
        if !ours.is_mergeable() || !theirs.is_mergeable() {
            self.zone.counters.merges_refused.add(1);
            return false;
        }
        if !self.rules().carried_types {
            map.set_range_type(buddy, order, t);
            self.zone.counters.merges_relabelled.add(1);
        }
        true
    }

    /// Applies the likely-merge rule (§1.8): returns whether the block's buddy is in use but the
    /// block that both would form has a free partner. Such a block should not be allocated again
    /// soon.
    #[inline]
    fn pair_is_likely(&self, idx: u32, order: u8) -> bool {
        if order > MAX_ORDER - 2 {
            return false;
        }
        let pair = idx & !((2 << order) - 1);
        let partner = pair ^ (2 << order);
        self.zone.map.frame(partner).state().is(Kind::Free, order + 1)
    }

    /// Frees a block of any order under the types of its pageblocks, in pieces of at most a
    /// pageblock (§1.10). `end` as in [`free_one`](Self::free_one).
    #[inline]
    pub(crate) fn free_pieces(&self, idx: u32, order: u8, end: End) {
        let step = order.min(PAGEBLOCK_ORDER);
        let past = idx + (1 << order);
        let mut piece = idx;
        while piece < past {
            self.free_one(piece, step, self.zone.map.block_type(piece), end);
            piece += 1 << step;
        }
    }

    /// Frees filled memory for the first time, to the tail of its list (§8.1). Frames poisoned in
    /// the meantime stay out of use.
    pub(crate) fn free_block(&self, idx: u32, order: u8) {
        let map = &self.zone.map;
        if map.is_tainted(idx, order) {
            return self.free_around(idx, order);
        }
        let t = map.block_type(idx);
        if order == MAX_ORDER && t == map.block_type(idx + PAGEBLOCK_PAGES) {
            // Shortcut for most memory with the same result as below: a largest block has nothing
            // to merge with.
            self.account(1 << order, t);
            return self.list_free(idx, order, t, End::Tail);
        }
        self.free_pieces(idx, order, End::Tail);
    }

    /// Splits a block and frees the upper halves until a block of order `low` is left (§1.9).
    /// Returns how many of their pages are free rather than guards.
    #[inline]
    pub(crate) fn expand(&self, idx: u32, low: u8, high: u8, t: MigrateType) -> u32 {
        let mut order = high;
        while order > low {
            order -= 1;
            self.free_remainder(idx + (1 << order), order, t);
        }
        let guards_to = low.max(self.rules().safety.guard_min_order).min(high);
        (1 << high) - (1 << guards_to)
    }

    /// Frees a part that a split leaves over, or makes it a guard if it is too small (§11.6).
    #[inline]
    pub(crate) fn free_remainder(&self, idx: u32, order: u8, t: MigrateType) {
        if order < self.rules().safety.guard_min_order {
            self.guard(idx, order, t);
        } else {
            self.zone.areas.insert(&self.zone.map, idx, order, t, End::Head);
            self.trace_links(idx, order, t);
        }
    }

    /// Takes the block of order `low` at `idx`, wherever it lies, out of a free block with state
    /// `found`. The parts left and right of it stay on lists, as after a split (§1.9).
    pub(crate) fn carve(&self, head: u32, found: State, idx: u32, low: u8) {
        let (high, t) = (found.order(), found.migrate_type());
        self.check_type(head, t);
        self.unlist(head, high, t, true);
        let back = self.split_around(head, high, idx, low, |part, o| {
            self.free_remainder(part, o, t);
            if o < self.rules().safety.guard_min_order { 0 } else { 1 << o }
        });
        self.account(back - (1 << high), t);
    }

    /// Halves a block until only the one of order `low` at `idx` is left. Calls `each` for every
    /// other half and returns the sum of the results.
    pub(crate) fn split_around(
        &self,
        head: u32,
        high: u8,
        idx: u32,
        low: u8,
        each: impl Fn(u32, u8) -> i32,
    ) -> i32 {
        let (mut first, mut sum) = (head, 0);
        for o in (low..high).rev() {
            let upper = first + (1 << o);
            let part = if idx >= upper { core::mem::replace(&mut first, upper) } else { upper };
            sum += each(part, o);
        }
        sum
    }

    /// Takes a block of order `low` from a free block of order `high` on the list of `t`.
    #[inline]
    pub(crate) fn take(&self, idx: u32, low: u8, high: u8, t: MigrateType) {
        self.check_type(idx, t);
        self.trace_links(idx, high, t);
        self.unlist(idx, high, t, true);
        let back = self.expand(idx, low, high, t) as i32;
        self.account(back - (1 << high), t);
        self.zone.counters.pages_taken.add(1 << low);
    }

    /// Takes the smallest sufficient block on the lists of a type (§4.3, step 1).
    #[inline]
    pub(crate) fn rmqueue_smallest(&self, order: u8, t: MigrateType) -> Option<u32> {
        let mut o = order;
        while o <= MAX_ORDER {
            if let Some(idx) = self.zone.areas.first(o, t) {
                self.take(idx, order, o, t);
                self.note_taken(idx, order, t);
                return Some(idx);
            }
            o += 1;
        }
        None
    }

    /// Reports to observers that price memory which descriptors are accessed where a free block is
    /// on its list: its own and its neighbours'.
    #[inline(always)]
    pub(crate) fn trace_links(&self, idx: u32, order: u8, t: MigrateType) {
        if !<C::Hooks as Observer>::SEES_TOUCHES {
            return;
        }
        self.hooks.touch(self.zone.pfn(idx));
        let frame = self.zone.map.frame(idx);
        // The `prev` of the first frame is meaningless.
        let first = self.zone.areas.first(order, t) == Some(idx);
        for n in [if first { NIL } else { frame.prev() }, frame.next()] {
            if n != NIL {
                self.hooks.touch(self.zone.pfn(n));
            }
        }
    }

    /// Sends the kernel's event for a block that leaves the free lists.
    #[inline]
    pub(crate) fn note_taken(&self, idx: u32, order: u8, t: MigrateType) {
        if let Some(order) = Order::new(order) {
            let refill = is_cached_order(self.rules(), order.get()) && t.is_mergeable();
            let pfn = self.zone.pfn(idx);
            self.hooks.event(self.cpu, Event::ZoneLocked { pfn, order, migrate_type: t, refill });
        }
    }

    /// Runs the debug check of §4.8.
    #[inline]
    pub(crate) fn check_type(&self, idx: u32, t: MigrateType) {
        if self.rules().type_checks && self.zone.map.block_type(idx) != t {
            self.zone.counters.type_check_failures.add(1);
        }
    }
}
