//! Pageblocks owned by a CPU (policy [`OwnedBlocks`](crate::policy::OwnedBlocks)): the zone's side.
//!
//! A CPU owns a pageblock from the refill that takes it as a whole until one of these, each under the
//! zone lock:
//!
//! - the pageblock is wholly free again, or captured as a whole;
//! - it gets another type, because a request of any CPU claims it, or because it is isolated, made CMA,
//!   reserved for high-order atomic requests, or emptied by compaction for movable pages;
//! - the CPU goes offline.
//!
//! A request of another CPU that only takes a part of the pageblock does not end it.
//!
//! Invariants:
//!
//! - Only a wholly free pageblock gets an owner. So all of its blocks with the mark
//!   [`is_at_owner`](crate::base::frame::State::is_at_owner) are on lists of the one CPU that owned it
//!   since, even after the ownership has ended, and that CPU's list lock protects them.
//! - An owned pageblock of which a part is on a free list is on its owner's list of such pageblocks.
//!
//! A snapshot does not contain owners: a restored zone has none.
//!
//! The owner, and the links of the owner's list, are [words](crate::base::frame::Frame::word) of the
//! pageblock's first three frames, so they need no memory of their own. Under other policies nothing
//! reads or writes them.

use lock_api::RawMutex;

use crate::base::frame::{Kind, State, WORD_BITS};
use crate::base::list::List;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_start};
use crate::embedder::config::Config;
use crate::embedder::policy::Proposals;
use crate::zone::at::{At, Locked};
use crate::zone::state::{END, PerCpu, Zone};

/// Frame of a pageblock whose word is the owner: its number + 1, or 0.
const OWNER: u32 = 0;
/// Frames of a pageblock whose words link it to its neighbours on the owner's list.
const NEXT: u32 = 1;
const PREV: u32 = 2;

/// In a link: the pageblock is on no list.
const UNLISTED: u32 = 0;
/// A pageblock's number is this much less than the link to it.
const FIRST: u32 = 2;

/// Pageblocks that a refill scans for free parts at most, which bounds the time under the zone lock.
const SCANS: u32 = 4;

fn link_to(block: u32) -> u32 {
    (block >> PAGEBLOCK_ORDER) + FIRST
}

/// Returns the first index of the pageblock that a link leads to.
fn linked(link: u32) -> Option<u32> {
    Some(link.checked_sub(FIRST)? << PAGEBLOCK_ORDER)
}

impl<'a, R: RawMutex> Zone<'a, R> {
    /// Returns the CPU that owns a pageblock.
    #[inline(always)]
    pub(crate) fn owner(&self, idx: u32) -> Option<CpuId> {
        self.map.frame(block_start(idx) + OWNER).word().checked_sub(1).map(CpuId)
    }

    #[inline(always)]
    fn owner_slot(&self, idx: u32) -> Option<&'a PerCpu<R>> {
        self.slot(self.owner(idx)?)
    }

    fn word(&self, block: u32, which: u32) -> u32 {
        self.map.frame(block + which).word()
    }

    fn set_word(&self, block: u32, which: u32, word: u32) {
        self.map.frame(block + which).set_word(word);
    }

    /// Returns the CPU's own pageblocks of one type of which a part is free. Zone lock.
    pub(crate) fn own_blocks(
        &self,
        slot: &PerCpu<R>,
        t: MigrateType,
    ) -> impl Iterator<Item = u32> + use<'_, 'a, R> {
        let first = slot.own_blocks.get(t as usize).map_or(END, |head| head.load(Relaxed));
        let all = core::iter::successors(linked(first), |&b| linked(self.word(b, NEXT)));
        // Bounded, in case of a ring.
        all.take((self.map.len() >> PAGEBLOCK_ORDER) as usize)
    }

    /// Returns whether the pageblock is on its owner's list of those of which a part is free.
    pub(crate) fn is_listed_by_owner(&self, block: u32) -> bool {
        self.word(block, NEXT) != UNLISTED
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Returns the same view with the lists of the CPU that owns the block's pageblock, if one does:
    /// a free goes there. While the block is on no free list, no other CPU can become the owner.
    #[inline(always)]
    pub(crate) fn at_owner(&self, idx: u32) -> Option<Self> {
        if !self.policy.owns_blocks() {
            return None;
        }
        Some(self.with_lists(self.zone.owner_slot(idx)?))
    }

    /// Returns whether these lists take a free: another CPU's do while it is online. List lock.
    #[inline(always)]
    pub(crate) fn takes_frees(&self) -> bool {
        !self.policy.owns_blocks() || self.slot.up.load(Relaxed)
    }

    /// Returns the state of a block on these lists. `t` is the list's type.
    #[inline(always)]
    pub(crate) fn cached_state(&self, idx: u32, order: u8, t: MigrateType) -> State {
        if !self.policy.owns_blocks() {
            let carried = if self.rules().carried_types { t } else { MigrateType::Unmovable };
            return State::new(Kind::Cached, order, carried);
        }
        // The type names the list from which a merge takes the block.
        let state = State::new(Kind::Cached, order, t);
        let own = self.zone.owner_slot(idx).is_some_and(|slot| core::ptr::eq(slot, self.slot));
        if own { state.at_owner() } else { state }
    }

    /// Ends the ownership of all pageblocks of a CPU that is offline and whose lists are empty.
    pub(crate) fn disown_all(&self, cpu: CpuId) {
        if !self.policy.owns_blocks() {
            return;
        }
        for block in (0..self.zone.map.len()).step_by(PAGEBLOCK_PAGES as usize) {
            // A CPU that is offline gets no pageblock, so none is missed without the lock.
            if self.zone.owner(block) == Some(cpu) {
                self.lock().end_ownership(block);
            }
        }
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Ends the ownership of the pageblock.
    #[inline(always)]
    pub(crate) fn end_ownership(&self, idx: u32) {
        if self.policy.owns_blocks() {
            self.disown(block_start(idx));
        }
    }

    #[inline(never)]
    fn disown(&self, block: u32) {
        if let Some(slot) = self.zone.owner_slot(block) {
            self.unlist_own(slot, block);
            self.zone.set_word(block, OWNER, 0);
        }
    }

    /// Notes that a block is free or captured as a whole. If it contains whole pageblocks, they lose
    /// their owners.
    #[inline(always)]
    pub(crate) fn note_whole(&self, idx: u32, order: u8) {
        if self.policy.owns_blocks() && order >= PAGEBLOCK_ORDER {
            for block in (idx..idx.saturating_add(1 << order)).step_by(PAGEBLOCK_PAGES as usize) {
                self.disown(block);
            }
        }
    }

    /// Notes that a block has come to a free list: if it is part of an owned pageblock, the owner's
    /// next refill finds it.
    #[inline(always)]
    pub(crate) fn note_part(&self, idx: u32, order: u8) {
        if !self.policy.owns_blocks() {
            return;
        }
        self.note_whole(idx, order);
        if let Some(slot) = self.zone.owner_slot(idx) {
            self.list_own(slot, block_start(idx));
        }
    }

    fn list_own(&self, slot: &PerCpu<C::Lock>, block: u32) {
        let zone = self.zone;
        let head = slot.own_blocks.get(zone.map.block_type(block) as usize);
        let Some(head) = head.filter(|_| !zone.is_listed_by_owner(block)) else { return };
        let first = head.load(Relaxed);
        zone.set_word(block, NEXT, first);
        zone.set_word(block, PREV, END);
        if let Some(first) = linked(first) {
            zone.set_word(first, PREV, link_to(block));
        }
        head.store(link_to(block), Relaxed);
    }

    fn unlist_own(&self, slot: &PerCpu<C::Lock>, block: u32) {
        let zone = self.zone;
        if !zone.is_listed_by_owner(block) {
            return;
        }
        let (next, prev) = (zone.word(block, NEXT), zone.word(block, PREV));
        match linked(prev) {
            Some(prev) => zone.set_word(prev, NEXT, next),
            // The first of a list. Which one: its type may have changed.
            None => {
                for head in slot.own_blocks.iter().filter(|h| h.load(Relaxed) == link_to(block)) {
                    head.store(next, Relaxed);
                }
            }
        }
        if let Some(next) = linked(next) {
            zone.set_word(next, PREV, prev);
        }
        zone.set_word(block, NEXT, UNLISTED);
    }

    /// Takes at least `wanted` pages, if it can, in blocks of at least `order`: free parts of own
    /// pageblocks, then whole pageblocks, of these at most `room` pages. Puts them on a list, in
    /// cached state. Returns the number of pages.
    pub(crate) fn take_own(
        &self,
        order: u8,
        t: MigrateType,
        wanted: u32,
        room: u32,
        taken: &List,
    ) -> u32 {
        let mut got = self.recover(order, t, wanted, taken);
        while got < wanted
            && got.saturating_add(PAGEBLOCK_PAGES) <= room
            && let Some(block) = self.rmqueue_smallest(PAGEBLOCK_ORDER, t)
        {
            self.count_mismatch(block, t);
            let owner = self.cpu.0.wrapping_add(1);
            // With carried types the pageblock may have another type than the list.
            if self.zone.map.block_type(block) == t && owner < 1 << WORD_BITS {
                self.zone.set_word(block, OWNER, owner);
            }
            self.set_apart_cached(block, PAGEBLOCK_ORDER, t, taken);
            got = got.saturating_add(PAGEBLOCK_PAGES);
        }
        got
    }

    fn set_apart_cached(&self, idx: u32, order: u8, t: MigrateType, taken: &List) {
        self.zone.map.frame(idx).set_state(self.cached_state(idx, order, t));
        taken.push_tail(&self.zone.map, idx);
    }

    /// Takes free parts of own pageblocks.
    fn recover(&self, order: u8, t: MigrateType, wanted: u32, taken: &List) -> u32 {
        let mut link = self.slot.own_blocks.get(t as usize).map_or(END, |head| head.load(Relaxed));
        let mut got = 0u32;
        for _ in 0..SCANS {
            let Some(block) = linked(link) else { break };
            link = self.zone.word(block, NEXT);
            got = got.saturating_add(self.recover_from(block, order, t, wanted - got, taken));
            if got >= wanted {
                break;
            }
        }
        got
    }

    /// Takes at most `wanted` pages, a multiple of 2^`order`, from the free parts of a pageblock. If no
    /// free part is left, takes the pageblock off its owner's list.
    fn recover_from(
        &self,
        block: u32,
        order: u8,
        t: MigrateType,
        wanted: u32,
        taken: &List,
    ) -> u32 {
        let map = &self.zone.map;
        let end = block.saturating_add(PAGEBLOCK_PAGES);
        let (mut idx, mut got, mut left) = (block, 0, false);
        while idx < end {
            let Some(most) = wanted.saturating_sub(got).checked_ilog2() else { return got };
            let state = map.frame(idx).state();
            let mut o = state.order();
            match state.kind() {
                Kind::Tail | Kind::Reserved => o = 0,
                Kind::Free if o >= order && state.migrate_type() == t => {
                    let low = o.min(most as u8);
                    self.take(idx, low, o, t);
                    self.note_taken(idx, low, t);
                    self.count_mismatch(idx, t);
                    self.set_apart_cached(idx, low, t, taken);
                    got += 1 << low;
                    o = low;
                }
                Kind::Free => left = true,
                _ => {}
            }
            idx = idx.saturating_add(1 << o);
        }
        if !left {
            self.unlist_own(self.slot, block);
        }
        got
    }
}
