//! Checks and defences on the way of a block between its owner and the lists (spec §11). Which of
//! them there are is the policy's ([`Safety`](crate::policy::Safety)); what is off is not compiled.

use crate::base::frame::{Kind, State};
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, Order, Pfn};
use crate::base::unwind::Rollback;
use crate::embedder::checks::{BadPage, Link};
use crate::embedder::config::Config;
use crate::embedder::hooks::{Defences, Observer};
use crate::embedder::platform::Platform;
use crate::embedder::report::Report;
use crate::zone::at::{At, Locked};
use crate::zone::defences_state::change;

/// A minute's reports of bad pages (§11.2), per zone.
const BAD_PAGE_REPORTS: (u64, u64) = (60, 60_000_000_000);
impl<C: Config> At<'_, '_, C> {
    /// The first step of a block that comes back: observers are told, its pages checked, their
    /// memory filled. `false`: a page is bad, and the block is out of use (§11.2).
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

    /// A hook panicked while a block was on its way back: its owner still has it. One that compaction
    /// has emptied has none; it is out of use.
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

    /// Frees a block that no one owns and no list holds where a hook has panicked: no other one is
    /// called. Where free memory has to be filled, the block is out of use.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_up(&self, idx: u32, order: u8) {
        if self.rules().safety.fills() {
            self.set_bad(idx, order);
        } else {
            self.lock().free_around(idx, order);
        }
    }

    /// A block is out of use for good.
    fn set_bad(&self, idx: u32, order: u8) {
        let zone = self.zone;
        zone.map.frame(idx).set_state(State::new(Kind::Bad, order, MigrateType::Unmovable));
        zone.safety.bad.fetch_add(1 << order, Relaxed);
    }

    /// Gives memory that becomes free the contents that free memory has.
    #[inline(always)]
    pub(crate) fn fill(&self, idx: u32, order: u8) {
        if self.rules().safety.fills() {
            self.fill_around(idx, order);
        }
    }

    /// Fills a block but for its poisoned frames.
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

    /// Looks at every page of a block that comes back (§11.1). `false`: a page is bad, and the block
    /// is out of use.
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

    /// Looks at every page of a block that is about to be handed out, where the policy checks pages
    /// (§11.1). `false`: a page is bad, and the block is out of use.
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

    /// A block is out of use for good (§11.2). Always `false`.
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

/// Guards (§11.6): too small a part of a split block stays off the lists and uncounted, so that
/// nobody writes to it by mistake unnoticed, until it merges.
impl<C: Config> Locked<'_, '_, C> {
    /// The block becomes a guard. Its other frames must be tails.
    pub(crate) fn guard(&self, idx: u32, order: u8, t: MigrateType) {
        self.zone.map.frame(idx).set_state(State::new(Kind::Guard, order, t));
        change(&self.zone.safety.guards, 1 << order);
    }

    /// A guard becomes part of a free block on a list of type `t` (§1.7d).
    pub(crate) fn unguard(&self, idx: u32, order: u8, t: MigrateType) {
        self.zone.map.frame(idx).set_state(State::TAIL);
        change(&self.zone.safety.guards, -(1 << order));
        self.account(1 << order, t);
    }
}
