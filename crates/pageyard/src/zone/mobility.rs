//! Mobility grouping: whose block serves a request when its own type has none, and what becomes
//! of that block (spec §4).

use lock_api::RawMutex;

use crate::base::frame::Kind;
use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{Cma, HighAtomic, Movable, Reclaimable, Unmovable};
use crate::base::units::{MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::embedder::policy::Fallback;
use crate::zone::at::Locked;
use crate::zone::state::Zone;

/// Where the last block of this hold of the zone lock came from (§4.3): what failed once is not
/// tried again for the next item of a refill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Start at the request's own lists.
    Own,
    /// The own lists are empty.
    Cma,
    /// Nothing can be claimed either.
    Steal,
}

/// The types whose blocks may serve a request of this type, in order (§4.1).
pub(crate) const fn fallbacks(t: MigrateType) -> [MigrateType; 2] {
    match t {
        Unmovable => [Reclaimable, Movable],
        Movable => [Reclaimable, Unmovable],
        _ => [Unmovable, Movable],
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// One block for a request of type `t` (§4.3).
    #[inline]
    pub(crate) fn rmqueue(
        &self,
        order: u8,
        t: MigrateType,
        source: &mut Source,
        flags: AllocFlags,
    ) -> Option<u32> {
        if flags.contains(AllocFlags::CMA) {
            let supply = self.zone.supply();
            if supply.cma > supply.free / 2
                && let Some(idx) = self.rmqueue_smallest(order, Cma)
            {
                return Some(idx);
            }
        }
        if *source == Source::Own
            && let Some(idx) = self.rmqueue_smallest(order, t)
        {
            self.count_mismatch(idx, t);
            return Some(idx);
        }
        self.take_other(order, t, source, flags)
    }

    /// [`rmqueue`](Self::rmqueue) outside the frame of a refill.
    #[inline(never)]
    pub(crate) fn rmqueue_cold(
        &self,
        order: u8,
        t: MigrateType,
        source: &mut Source,
        flags: AllocFlags,
    ) -> Option<u32> {
        self.rmqueue(order, t, source, flags)
    }

    /// A block that comes from a list of type `t` counts as a mismatch where its pageblock is of
    /// another type (§4.10). Looked for only where the policy lets that happen or wants it proved
    /// that it does not.
    #[inline]
    pub(crate) fn count_mismatch(&self, idx: u32, t: MigrateType) {
        if (self.rules().carried_types || self.rules().type_checks)
            && self.zone.map.block_type(idx) != t
        {
            self.zone.counters.mismatches.add(1);
        }
    }

    /// Steps 2 to 4 of §4.3.
    #[cold]
    #[inline(never)]
    fn take_other(
        &self,
        order: u8,
        t: MigrateType,
        source: &mut Source,
        flags: AllocFlags,
    ) -> Option<u32> {
        if *source != Source::Steal {
            if flags.contains(AllocFlags::CMA)
                && let Some(idx) = self.rmqueue_smallest(order, Cma)
            {
                *source = Source::Cma;
                return Some(idx);
            }
            if self.rules().fallback == Fallback::LargestBlock {
                return self.largest_block(order, t, flags);
            }
            if let Some(idx) = self.claim(order, t, flags) {
                *source = Source::Own;
                return Some(idx);
            }
        }
        if flags.contains(AllocFlags::NOFRAGMENT) {
            return None;
        }
        let idx = self.steal(order, t)?;
        *source = Source::Steal;
        Some(idx)
    }

    /// The first type, in the order of §4.1, that has a free block of this order.
    fn fallback_at(&self, order: u8, start: MigrateType) -> Option<(u32, MigrateType)> {
        fallbacks(start).into_iter().find_map(|t| Some((self.zone.areas.first(order, t)?, t)))
    }

    /// CLAIM (§4.4): from the largest block down, make one that is worth it ours.
    fn claim(&self, order: u8, start: MigrateType, flags: AllocFlags) -> Option<u32> {
        let lowest = lowest_order(order, flags);
        for o in (lowest..=MAX_ORDER).rev() {
            let Some((idx, from)) = self.fallback_at(o, start) else { continue };
            if !self.zone.claimable(o, start) {
                return None;
            }
            if let Some(taken) = self.claim_block(idx, o, from, order, start, flags) {
                return Some(taken);
            }
        }
        None
    }

    /// One attempt of CLAIM on the head of a list (§4.4).
    fn claim_block(
        &self,
        idx: u32,
        found: u8,
        from: MigrateType,
        order: u8,
        start: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32> {
        let map = &self.zone.map;
        let counters = &self.zone.counters;
        if map.block_type(idx) == HighAtomic {
            return None;
        }
        if found >= PAGEBLOCK_ORDER {
            let start = self.effective_type(start);
            self.check_type(idx, from);
            self.unlist(idx, found, from, true);
            self.account(-(1 << found), from);
            map.set_range_type(idx, found, start);
            let back = self.split(idx, order, found, start);
            if back > 0 {
                self.account(back as i32, start);
            }
            counters.claims_whole.add(1);
            counters.pages_taken.add(1 << order);
            self.note_fallback(idx, order, found, start, from, true);
            return Some(idx);
        }
        self.boost(flags.contains(AllocFlags::KSWAPD));
        if self.worth_converting(idx, start) {
            self.convert(idx, from, start);
            counters.claims_part.add(1);
            let taken = self.rmqueue_smallest(order, self.effective_type(start))?;
            self.note_fallback(idx, order, found, start, from, true);
            return Some(taken);
        }
        counters.claims_refused.add(1);
        if self.rules().moves_unclaimed && self.move_free_pages(idx, from, start).is_some() {
            counters.steals.add(1);
            let taken = self.rmqueue_smallest(order, start)?;
            self.count_mismatch(taken, start);
            self.note_fallback(idx, order, found, start, from, false);
            return Some(taken);
        }
        None
    }

    /// Whether enough of the pageblock is free, or used by pages like the request's (§4.4).
    fn worth_converting(&self, idx: u32, start: MigrateType) -> bool {
        let Some(first) = self.block_start(idx) else { return false };
        if self.zone.grouping_disabled.load(Relaxed) {
            return true;
        }
        let map = &self.zone.map;
        let end = first + PAGEBLOCK_PAGES;
        let (mut free, mut movable) = (0, 0);
        // A block that is free lies here, so none is larger than the pageblock.
        let mut i = first;
        while i < end {
            let state = map.frame(i).state();
            let pages = 1u32 << state.order();
            i += match state.kind() {
                Kind::Free => {
                    free += pages;
                    pages
                }
                Kind::Allocated | Kind::BeingFreed => {
                    if state.is_movable() {
                        movable += pages;
                    }
                    pages
                }
                Kind::Cached | Kind::Held | Kind::Guard | Kind::Bad | Kind::Poisoned => pages,
                Kind::Tail | Kind::Reserved => 1,
            };
        }
        let alike = if start == Movable {
            movable
        } else if map.block_type(first) == Movable {
            PAGEBLOCK_PAGES.saturating_sub(free + movable)
        } else {
            0
        };
        free + alike >= PAGEBLOCK_PAGES / 2
    }

    /// STEAL (§4.5): from the smallest block up; what is left of it stays with its type.
    fn steal(&self, order: u8, start: MigrateType) -> Option<u32> {
        (order..=MAX_ORDER)
            .find_map(|o| {
                let (idx, from) = self.fallback_at(o, start)?;
                Some((idx, o, from))
            })
            .map(|(idx, found, from)| self.steal_block(idx, found, from, order, start))
    }

    fn steal_block(
        &self,
        idx: u32,
        found: u8,
        from: MigrateType,
        order: u8,
        start: MigrateType,
    ) -> u32 {
        if self.rules().moves_unclaimed {
            self.move_block(idx, found, from, start);
            self.take(idx, order, found, start);
        } else {
            self.take(idx, order, found, from);
        }
        let counters = &self.zone.counters;
        counters.steals.add(1);
        counters.mismatches.add(1);
        self.note_fallback(idx, order, found, start, from, false);
        idx
    }

    /// The single search of 6.12.0 and before (§4.6): the largest block, claimed where that is
    /// allowed and worth it, else robbed of the pages wanted.
    fn largest_block(&self, order: u8, start: MigrateType, flags: AllocFlags) -> Option<u32> {
        let lowest = lowest_order(order, flags);
        for o in (lowest..=MAX_ORDER).rev() {
            let Some((idx, from)) = self.fallback_at(o, start) else { continue };
            let claimable = self.zone.claimable(o, start);
            if !claimable && start == Movable && o > order {
                // It cannot be claimed, so breaking the largest one gains nothing.
                self.boost_for_steal(flags);
                return self.steal(order, start);
            }
            if claimable && let Some(taken) = self.claim_block(idx, o, from, order, start, flags) {
                return Some(taken);
            }
            if !claimable {
                self.boost_for_steal(flags);
            }
            return Some(self.steal_block(idx, o, from, order, start));
        }
        None
    }

    /// Before 6.12.29 a steal boosted as a claim does (§3.4); a refused claim has done so already.
    fn boost_for_steal(&self, flags: AllocFlags) {
        if self.rules().boost_on_steal {
            self.boost(flags.contains(AllocFlags::KSWAPD));
        }
    }

    /// The first index of the pageblock, or `None` where it lies across an edge of the zone.
    pub(crate) fn block_start(&self, idx: u32) -> Option<u32> {
        let first = idx & !(PAGEBLOCK_PAGES - 1);
        let inside = first >= self.zone.first_index()
            && first.checked_add(PAGEBLOCK_PAGES).is_some_and(|end| end <= self.zone.map.len());
        inside.then_some(first)
    }

    /// Gives a pageblock another type (§4.9): its free blocks move to the new type's lists in
    /// ascending order, the label last. How many pages moved; `None` at an edge of the zone.
    pub(crate) fn convert(&self, idx: u32, from: MigrateType, to: MigrateType) -> Option<u32> {
        let to = self.effective_type(to);
        let moved = self.move_free_pages(idx, from, to)?;
        self.zone.map.set_block_type(idx & !(PAGEBLOCK_PAGES - 1), to);
        Some(moved)
    }

    /// Moves a pageblock's free blocks to another type's lists, in ascending order. How many pages
    /// moved; `None` at an edge of the zone.
    fn move_free_pages(&self, idx: u32, from: MigrateType, to: MigrateType) -> Option<u32> {
        let map = &self.zone.map;
        let first = self.block_start(idx)?;
        let mut moved = 0;
        let mut i = first;
        while i < first + PAGEBLOCK_PAGES {
            let state = map.frame(i).state();
            if state.kind() != Kind::Free {
                i += 1;
                continue;
            }
            let order = state.order();
            // Without the hygiene rules the block may be on a third type's list.
            let was = if self.rules().carried_types { state.migrate_type() } else { from };
            self.move_block(i, order, was, to);
            moved += 1u32 << order;
            i += 1u32 << order;
        }
        Some(moved)
    }

    /// Moves a free block from one type's list to another's.
    fn move_block(&self, idx: u32, order: u8, from: MigrateType, to: MigrateType) {
        let map = &self.zone.map;
        self.check_type(idx, from);
        self.forget_report(idx, order, false);
        self.zone.areas.move_to(map, idx, order, map.frame(idx).state().migrate_type(), to);
        self.account(-(1 << order), from);
        self.account(1 << order, to);
    }

    /// Without grouping every block is unmovable, whoever asks (§2.4).
    pub(crate) fn effective_type(&self, t: MigrateType) -> MigrateType {
        if t.is_mergeable() && self.zone.grouping_disabled.load(Relaxed) { Unmovable } else { t }
    }

    fn note_fallback(
        &self,
        idx: u32,
        order: u8,
        found: u8,
        migrate_type: MigrateType,
        from: MigrateType,
        claimed: bool,
    ) {
        if let (Some(order), Some(found)) = (Order::new(order), Order::new(found)) {
            let pfn = self.zone.pfn(idx);
            let event = Event::Fallback { pfn, order, found, migrate_type, from, claimed };
            self.hooks.event(self.cpu, event);
        }
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Whether a block of this order may change its type for such a request (§4.2).
    fn claimable(&self, order: u8, start: MigrateType) -> bool {
        order >= PAGEBLOCK_ORDER / 2
            || matches!(start, Unmovable | Reclaimable)
            || self.grouping_disabled.load(Relaxed)
    }

    /// Whether a request could claim a free block of exactly this order (§7.5).
    pub(crate) fn has_claimable(&self, order: u8, start: MigrateType) -> bool {
        self.claimable(order, start)
            && fallbacks(start).into_iter().any(|t| !self.areas.list(order, t).is_empty())
    }
}

/// With NOFRAGMENT only whole pageblocks are looked at (§4.4).
fn lowest_order(order: u8, flags: AllocFlags) -> u8 {
    if flags.contains(AllocFlags::NOFRAGMENT) { order.max(PAGEBLOCK_ORDER) } else { order }
}
