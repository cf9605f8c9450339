//! Checks and defences for a block between its owner and the lists (spec §11). The policy chooses
//! them ([`Safety`](crate::policy::Safety)); a disabled one is not compiled.

use crate::base::frame::{Kind, State};
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, Order, PAGEBLOCK_ORDER, Pfn};
use crate::base::unwind::Rollback;
use crate::embedder::checks::{BadPage, Link};
use crate::embedder::config::Config;
use crate::embedder::hooks::{Defences, Observer};
use crate::embedder::platform::Platform;
use crate::embedder::report::Report;
use crate::zone::area::End;
use crate::zone::at::{At, Locked};
use crate::zone::defences_state::change;

/// Bad page reports per zone (§11.2): the maximum in a period, and the period in nanoseconds.
const BAD_PAGE_REPORTS: (u64, u64) = (60, 60_000_000_000);
impl<C: Config> At<'_, '_, C> {
    /// First step of a free: notifies observers, checks the pages and fills their memory. Returns
    /// `false` if a page is bad; the block is then out of use (§11.2).
    #[inline(always)]
    pub(crate) fn prepare_free(&self, idx: u32, order: u8) -> bool {
        let unfinished = Rollback::new(|| self.not_freed(idx, order));
        self.note_free(idx, order);
        let good = !self.rules().safety.checks_pages() || self.passes_free_check(idx, order);
        if good {
            self.fill(idx, order);
        }
        unfinished.disarm();
        good
    }

    /// Cleans up when a hook panics while a block is being freed. An allocated block returns to its
    /// owner. A block that compaction emptied has no owner and is put out of use.
    #[cold]
    #[inline(never)]
    fn not_freed(&self, idx: u32, order: u8) {
        let frame = self.zone.map.frame(idx);
        match frame.state().kind() {
            Kind::BeingFreed => frame.roll_back_free(),
            Kind::Held => self.set_bad(idx, order),
            _ => {}
        }
    }

    /// Frees a block that has no owner and is on no list after a hook panicked, without calling
    /// another hook. If free memory must be filled, the block is put out of use instead.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_up(&self, idx: u32, order: u8) {
        self.give_up_for(idx, order, AllocFlags::WAITS);
    }

    /// Like [`give_up`](Self::give_up), for a request with these flags: it may be one that must not wait.
    #[inline(never)]
    pub(crate) fn give_up_for(&self, idx: u32, order: u8, flags: AllocFlags) {
        if self.rules().safety.fills() {
            return self.set_bad(idx, order);
        }
        match self.lock_for(flags) {
            Some(zone) => zone.free_around(idx, order),
            None => self.zone.queue.push(&self.zone.map, idx),
        }
    }

    /// Puts a block permanently out of use.
    fn set_bad(&self, idx: u32, order: u8) {
        let zone = self.zone;
        zone.map.frame(idx).set_state(State::new(Kind::Bad, order, MigrateType::Unmovable));
        zone.safety.bad.fetch_add(1 << order, Relaxed);
    }

    /// Fills memory that becomes free with the contents that the policy requires.
    #[inline(always)]
    pub(crate) fn fill(&self, idx: u32, order: u8) {
        if self.rules().safety.fills() {
            self.fill_around(idx, order);
        }
    }

    /// Fills a block, except its poisoned frames.
    fn fill_around(&self, idx: u32, order: u8) {
        if !self.zone.map.is_tainted(idx, order) {
            return self.fill_block(idx, order);
        }
        for i in idx..idx.saturating_add(1 << order) {
            if !self.zone.map.frame(i).is_poisoned() {
                self.fill_block(i, 0);
            }
        }
    }

    fn fill_block(&self, idx: u32, order: u8) {
        let Some(order) = Order::new(order) else { return };
        let pfn = self.zone.pfn(idx);
        let safety = &self.rules().safety;
        if safety.poison {
            self.hooks.poison(pfn, order);
        } else if safety.zeroes_free() && !self.hooks.zero(pfn, order) {
            self.hooks.prepare(pfn, order, Gfp::ZERO);
        }
        if safety.unmap {
            self.hooks.unmap(pfn, order);
        }
    }

    /// Checks every page of a block that is freed (§11.1). Returns `false` if a page is bad; the
    /// block is then out of use.
    #[inline(always)]
    fn passes_free_check(&self, idx: u32, order: u8) -> bool {
        order == 0 && self.hooks.page_state(self.zone.pfn(idx)).fits_free()
            || self.each_page_fits_free(idx, order)
    }

    #[inline(never)]
    fn each_page_fits_free(&self, idx: u32, order: u8) -> bool {
        let head = self.zone.pfn(idx);
        let first = self.hooks.page_state(head);
        let mut found = first.wrong_at_free();
        let mut pfn = head;
        while found.is_none() && pfn.0 + 1 < head.0 + (1 << order) {
            pfn = Pfn(pfn.0 + 1);
            let state = self.hooks.page_state(pfn);
            found = match first.link {
                Link::Head => state.wrong_in_compound(head),
                Link::Single | Link::Tail(_) => state.wrong_at_free(),
            };
        }
        match found {
            Some(why) => self.leak(idx, order, pfn, why, false),
            None => true,
        }
    }

    /// Checks every page of a block that is about to be allocated, if the policy checks pages
    /// (§11.1). Returns `false` if a page is bad; the block is then out of use.
    #[inline(always)]
    pub(crate) fn passes_alloc_check(&self, idx: u32, order: u8) -> bool {
        !self.rules().safety.checks_pages()
            || order == 0 && self.hooks.page_state(self.zone.pfn(idx)).fits_alloc()
            || self.each_page_fits_alloc(idx, order)
    }

    #[inline(never)]
    fn each_page_fits_alloc(&self, idx: u32, order: u8) -> bool {
        let mut i = idx;
        while i < idx.saturating_add(1 << order) {
            let pfn = self.zone.pfn(i);
            if let Some(why) = self.hooks.page_state(pfn).wrong_at_alloc() {
                return self.leak(idx, order, pfn, why, true);
            }
            i += 1;
        }
        true
    }

    /// Puts a block permanently out of use and reports the bad page, unless its memory is faulty
    /// (§11.2). Always returns `false`.
    #[cold]
    #[inline(never)]
    fn leak(&self, idx: u32, order: u8, pfn: Pfn, why: BadPage, at_alloc: bool) -> bool {
        let zone = self.zone;
        self.set_bad(idx, order);
        let (Some(order), false) = (Order::new(order), why == BadPage::HwPoison) else {
            return false;
        };
        let (most, period) = BAD_PAGE_REPORTS;
        if let Some(n) = zone.safety.bad_reports.admit(self.hooks.now(), most, period) {
            if n > 0 {
                self.hooks.report(Report::BadPagesSuppressed(n));
            }
            let block = zone.pfn(idx);
            self.hooks.report(Report::BadPage { pfn, block, order, why, at_alloc });
        }
        false
    }
}

/// Guards (§11.6) are parts of a split block that are too small. They stay off the lists and
/// uncounted until they merge, so that a stray write to one does not go unnoticed.
impl<C: Config> Locked<'_, '_, C> {
    /// Makes the block a guard. Its other frames must be tails.
    pub(crate) fn guard(&self, idx: u32, order: u8, t: MigrateType) {
        self.zone.map.frame(idx).set_state(State::new(Kind::Guard, order, t));
        change(&self.zone.safety.guards, 1 << order);
    }

    /// Makes a guard part of a free block on a list of type `t` (§1.7d).
    pub(crate) fn unguard(&self, idx: u32, order: u8, t: MigrateType) {
        self.zone.map.frame(idx).set_state(State::TAIL);
        change(&self.zone.safety.guards, -(1 << order));
        self.account(1 << order, t);
    }
}

/// Poisoned frames (§11.3).
impl<C: Config> Locked<'_, '_, C> {
    /// Takes a poisoned frame that is in no block out of use.
    pub(crate) fn keep_poisoned(&self, idx: u32) {
        let map = &self.zone.map;
        map.frame(idx).set_state(State::new(Kind::Poisoned, 0, map.block_type(idx)));
        change(&self.zone.safety.poisoned, 1);
        map.refresh_taint(idx);
    }

    /// Frees a block except its poisoned frames, in the largest pieces without one.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_around(&self, idx: u32, order: u8) {
        let map = &self.zone.map;
        // The head becomes a piece's head or a frame to keep. Nothing may see it as allocated
        // meanwhile.
        map.frame(idx).set_state(State::TAIL);
        let end = idx.saturating_add(1 << order);
        let mut at = idx;
        while at < end {
            let clean = |o: &u8| !map.has_poisoned(at, *o);
            let most = (at.trailing_zeros() as u8).min((end - at).ilog2() as u8);
            match (0..=most.min(PAGEBLOCK_ORDER)).rev().find(clean) {
                Some(o) => {
                    self.free_one(at, o, map.block_type(at), End::Head);
                    at += 1 << o;
                }
                None => {
                    self.keep_poisoned(at);
                    at += 1;
                }
            }
        }
    }
}
