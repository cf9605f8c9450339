//! Mobility grouping: which type's block serves a request when its own type has none, and what
//! happens to the rest of that block (spec §4).

use lock_api::RawMutex;

use crate::base::frame::Kind;
use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{Cma, HighAtomic, Movable, Reclaimable, Unmovable};
use crate::base::units::{
    MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_start,
};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::embedder::policy::{Fallback, Proposals};
use crate::zone::at::Locked;
use crate::zone::state::Zone;

/// Where the last block of this hold of the zone lock came from (§4.3). The next item of a refill
/// does not retry a step that has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Start at the request's own lists.
    Own,
    /// The request's own lists are empty.
    Cma,
    /// Nothing can be claimed either.
    Steal,
}

/// A free block of a type that may serve others.
#[derive(Clone, Copy)]
pub(super) struct Other {
    pub(super) idx: u32,
    pub(super) order: u8,
    pub(super) migrate_type: MigrateType,
}

/// What a request wants of such a block.
struct Want {
    order: u8,
    migrate_type: MigrateType,
    flags: AllocFlags,
}

impl<C: Config> Locked<'_, '_, C> {
    /// Allocates one block for a request of type `t` (§4.3).
    #[inline]
    pub(crate) fn rmqueue(
        &self,
        order: u8,
        t: MigrateType,
        source: &mut Source,
        flags: AllocFlags,
    ) -> Option<u32> {
        if flags.contains(AllocFlags::CMA)
            && self.zone.supply().is_mostly_cma()
            && let Some(idx) = self.rmqueue_smallest(order, Cma)
        {
            return Some(idx);
        }
        if *source == Source::Own
            && let Some(idx) = self.rmqueue_smallest(order, t)
        {
            self.count_mismatch(idx, t);
            return Some(idx);
        }
        self.take_other(order, t, source, flags)
    }

    /// Like [`rmqueue`](Self::rmqueue), but never inlined, which keeps its locals out of a refill's
    /// stack frame.
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

    /// Counts a block from a list of type `t` as a mismatch if its pageblock has another type
    /// (§4.10). The type is compared only if the policy allows mismatches or checks types.
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
        let want = Want { order, migrate_type: t, flags };
        if *source != Source::Steal {
            if flags.contains(AllocFlags::CMA)
                && let Some(idx) = self.rmqueue_smallest(order, Cma)
            {
                *source = Source::Cma;
                return Some(idx);
            }
            if self.rules().fallback == Fallback::LargestBlock {
                return self.largest_block(&want);
            }
            if let Some(idx) = self.claim(&want) {
                *source = Source::Own;
                return Some(idx);
            }
        }
        if flags.contains(AllocFlags::NOFRAGMENT) {
            return None;
        }
        let idx = self.steal(&want)?;
        *source = Source::Steal;
        Some(idx)
    }

    /// Returns the first block of this order, trying the types in the order of §4.1.
    fn fallback_at(&self, order: u8, start: MigrateType) -> Option<Other> {
        start.fallbacks().into_iter().find_map(|migrate_type| {
            let idx = self.zone.areas.first(order, migrate_type)?;
            Some(Other { idx, order, migrate_type })
        })
    }

    /// CLAIM (§4.4): from the largest order down, claims a block if that is worthwhile.
    fn claim(&self, want: &Want) -> Option<u32> {
        let (lowest, start) = (want.lowest_order(), want.migrate_type);
        let steers = self.policy.steers() && start != Movable;
        if steers
            && let Some(other) = self.steered(lowest, start)
            && let Some(taken) = self.claim_block(other, want)
        {
            self.zone.steered_to.store(taken, Relaxed);
            return Some(taken);
        }
        for o in (lowest..=MAX_ORDER).rev() {
            let Some(other) = self.fallback_at(o, start) else { continue };
            if !self.zone.claimable(o, start) {
                return None;
            }
            if let Some(taken) = self.claim_block(other, want) {
                if steers {
                    self.zone.steered_to.store(taken, Relaxed);
                }
                return Some(taken);
            }
        }
        None
    }

    /// Attempts CLAIM on the head of one list (§4.4).
    fn claim_block(&self, other: Other, want: &Want) -> Option<u32> {
        let Other { idx, order: found, migrate_type: from } = other;
        let Want { order, migrate_type: start, flags } = *want;
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
            let back = self.expand(idx, order, found, start);
            if back > 0 {
                self.account(back as i32, start);
            }
            counters.claims_whole.add(1);
            counters.pages_taken.add(1 << order);
            self.note_fallback(other, &Want { migrate_type: start, ..*want }, true);
            return Some(idx);
        }
        self.boost(flags.contains(AllocFlags::KSWAPD));
        if self.worth_converting(idx, start) {
            self.convert(idx, from, start);
            counters.claims_part.add(1);
            let taken = self.rmqueue_smallest(order, self.effective_type(start))?;
            self.note_fallback(other, want, true);
            return Some(taken);
        }
        counters.claims_refused.add(1);
        if self.rules().moves_unclaimed && self.move_free_pages(idx, from, start).is_some() {
            counters.steals.add(1);
            let taken = self.rmqueue_smallest(order, start)?;
            self.count_mismatch(taken, start);
            self.note_fallback(other, want, false);
            return Some(taken);
        }
        None
    }

    /// Returns whether enough of the pageblock is free or holds pages of a compatible type (§4.4).
    fn worth_converting(&self, idx: u32, start: MigrateType) -> bool {
        let Some(first) = self.zone.whole_block(idx) else { return false };
        if self.zone.grouping_disabled.load(Relaxed) {
            return true;
        }
        let map = &self.zone.map;
        let end = first + PAGEBLOCK_PAGES;
        let (mut free, mut movable) = (0, 0);
        // The pageblock contains a free block, so no block in it is larger than the pageblock.
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

    /// STEAL (§4.5): takes the smallest sufficient block. The rest of the block keeps its type.
    fn steal(&self, want: &Want) -> Option<u32> {
        (want.order..=MAX_ORDER)
            .find_map(|o| self.fallback_at(o, want.migrate_type))
            .map(|other| self.steal_block(other, want))
    }

    fn steal_block(&self, other: Other, want: &Want) -> u32 {
        let Other { idx, order: found, migrate_type: from } = other;
        let Want { order, migrate_type: start, .. } = *want;
        if self.rules().moves_unclaimed {
            self.move_block(idx, found, from, start);
            self.take(idx, order, found, start);
        } else {
            self.take(idx, order, found, from);
        }
        let counters = &self.zone.counters;
        counters.steals.add(1);
        counters.mismatches.add(1);
        self.note_fallback(other, want, false);
        idx
    }

    /// The single search of 6.12.0 and before (§4.6). Finds the largest block and claims it if that
    /// is allowed and worthwhile; otherwise steals the requested pages from it.
    fn largest_block(&self, want: &Want) -> Option<u32> {
        let start = want.migrate_type;
        for o in (want.lowest_order()..=MAX_ORDER).rev() {
            let Some(other) = self.fallback_at(o, start) else { continue };
            let claimable = self.zone.claimable(o, start);
            if !claimable && start == Movable && o > want.order {
                // The block cannot be claimed, so splitting the largest one gains nothing.
                self.boost_for_steal(want.flags);
                return self.steal(want);
            }
            if claimable && let Some(taken) = self.claim_block(other, want) {
                return Some(taken);
            }
            if !claimable {
                self.boost_for_steal(want.flags);
            }
            return Some(self.steal_block(other, want));
        }
        None
    }

    /// Boosts the watermarks for a steal as for a claim, as before 6.12.29 (§3.4). A refused claim
    /// has boosted them already.
    fn boost_for_steal(&self, flags: AllocFlags) {
        if self.rules().boost_on_steal {
            self.boost(flags.contains(AllocFlags::KSWAPD));
        }
    }

    /// Converts a pageblock to another type (§4.9): moves its free blocks to the new type's lists
    /// in ascending order, then changes the label. Returns the number of pages moved, or `None` at
    /// an edge of the zone.
    pub(crate) fn convert(&self, idx: u32, from: MigrateType, to: MigrateType) -> Option<u32> {
        let to = self.effective_type(to);
        let moved = self.move_free_pages(idx, from, to)?;
        self.end_ownership(idx);
        self.zone.map.set_block_type(block_start(idx), to);
        Some(moved)
    }

    /// Moves a pageblock's free blocks to another type's lists, in ascending order. Returns the
    /// number of pages moved, or `None` at an edge of the zone.
    fn move_free_pages(&self, idx: u32, from: MigrateType, to: MigrateType) -> Option<u32> {
        let map = &self.zone.map;
        let first = self.zone.whole_block(idx)?;
        let mut moved = 0;
        let mut i = first;
        while i < first + PAGEBLOCK_PAGES {
            let state = map.frame(i).state();
            if state.kind() != Kind::Free {
                i += 1;
                continue;
            }
            let order = state.order();
            // Without the hygiene rules the block may be on the list of a third type.
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

    /// Returns the type a request is served as. Without mobility grouping every block is unmovable
    /// (§2.4).
    pub(crate) fn effective_type(&self, t: MigrateType) -> MigrateType {
        if t.is_mergeable() && self.zone.grouping_disabled.load(Relaxed) { Unmovable } else { t }
    }

    fn note_fallback(&self, other: Other, want: &Want, claimed: bool) {
        if let (Some(order), Some(found)) = (Order::new(want.order), Order::new(other.order)) {
            let (pfn, from) = (self.zone.pfn(other.idx), other.migrate_type);
            let migrate_type = want.migrate_type;
            let event = Event::Fallback { pfn, order, found, migrate_type, from, claimed };
            self.hooks.event(self.cpu, event);
        }
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns whether a request of this type may claim a block of this order (§4.2).
    fn claimable(&self, order: u8, start: MigrateType) -> bool {
        order >= PAGEBLOCK_ORDER / 2
            || matches!(start, Unmovable | Reclaimable)
            || self.grouping_disabled.load(Relaxed)
    }

    /// Returns whether a request could claim a free block of exactly this order (§7.5).
    pub(crate) fn has_claimable(&self, order: u8, start: MigrateType) -> bool {
        self.claimable(order, start)
            && start.fallbacks().into_iter().any(|t| !self.areas.list(order, t).is_empty())
    }
}

impl Want {
    /// Returns the smallest order to search. With NOFRAGMENT only whole pageblocks qualify (§4.4).
    fn lowest_order(&self) -> u8 {
        let whole = self.flags.contains(AllocFlags::NOFRAGMENT);
        if whole { self.order.max(PAGEBLOCK_ORDER) } else { self.order }
    }
}
