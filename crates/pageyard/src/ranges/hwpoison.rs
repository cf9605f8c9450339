//! Takes frames with faulty memory out of use (spec §11.3).
//!
//! A free frame is taken at once. A frame in use is taken when its owner frees it, and that check
//! must not slow down other frees. So the frame is marked, and its pageblock is marked *tainted* in
//! the byte that the free path reads anyway for the block's type. Blocks of a tainted pageblock go
//! to the zone, which keeps the marked frames.
//!
//! The free path reads that byte under its CPU's list lock. After marking a frame, `poison_frame`
//! takes all those locks once. So every free has either seen the taint or is visible to the drain.

use core::fmt;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::units::{CpuId, Pfn};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::packed::Region;
use crate::zone::at::{At, Locked};
use crate::zone::defences_state::change;

/// The result of poisoning a frame.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let done: Poisoned = yard.poison_frame(page).unwrap();
/// assert_eq!(yard.is_poisoned(page), Some(true));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poisoned {
    /// It is out of use.
    Removed,
    /// A caller owns it; it goes out of use when its block is freed.
    WhenFreed,
}

/// Why a frame was not poisoned or not unpoisoned. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoisonError {
    /// The frame lies in no zone.
    Foreign,
    /// The frame is a hole, or was never given to the allocator.
    Reserved,
    /// The frame is poisoned already.
    Already,
    /// The frame is not poisoned.
    NotPoisoned,
    /// The frame is already out of use, as part of a block with a bad page (§11.2).
    Bad,
}

impl fmt::Display for PoisonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoisonError::Foreign => "the frame is in no zone of this allocator",
            PoisonError::Reserved => "the frame is reserved and does not belong to the allocator",
            PoisonError::Already => "the frame is already poisoned",
            PoisonError::NotPoisoned => "the frame is not poisoned",
            PoisonError::Bad => "the frame is already out of use, as part of a bad block",
        })
    }
}

impl core::error::Error for PoisonError {}

/// Limits how often the per-CPU lists are drained for one frame. Each further round needs another
/// thread to refill a list with that frame between two of the steps below.
const TRIES: u32 = 1000;

impl<C: Config> Yard<'_, C> {
    /// Takes a frame with faulty memory out of use (§11.3). A free frame is split out of its block
    /// at once; the per-CPU lists are drained in case it is on one. A frame in use is taken when
    /// its block is freed: the rest of the block becomes free, the frame does not.
    ///
    /// The frame remains one of the zone's managed pages and is counted in
    /// [`OutOfUse::poisoned`](crate::OutOfUse::poisoned).
    ///
    /// # Errors
    /// [`PoisonError`]; nothing has changed.
    pub fn poison_frame(&self, pfn: Pfn) -> Result<Poisoned, PoisonError> {
        let (zone, idx) = self.locate(pfn).ok_or(PoisonError::Foreign)?;
        let at = self.at_any(zone).ok_or(PoisonError::Foreign)?;
        if let Some(region) = zone.region() {
            return at.poison_packed(region, idx);
        }
        {
            let locked = at.lock();
            let frame = zone.map.frame(idx);
            if frame.state().kind() == Kind::Reserved {
                return Err(PoisonError::Reserved);
            }
            if frame.is_poisoned() {
                return Err(PoisonError::Already);
            }
            if zone.map.block_over(idx).is_some_and(|(_, s)| s.kind() == Kind::Bad) {
                return Err(PoisonError::Bad);
            }
            zone.map.poison(idx);
            if locked.remove_poisoned(idx) {
                return Ok(Poisoned::Removed);
            }
        }
        // A free that missed the mark has put its block on a list by now, others keep it off the lists.
        for slot in zone.cpus {
            drop(slot.pageset.lock());
        }
        for _ in 0..TRIES {
            let locked = at.lock();
            if locked.remove_poisoned(idx) {
                return Ok(Poisoned::Removed);
            }
            if !zone.may_be_cached(idx) {
                break;
            }
            drop(locked);
            for cpu in 0..self.cpus {
                at.drain(CpuId(cpu));
            }
        }
        Ok(Poisoned::WhenFreed)
    }

    /// Undoes [`poison_frame`](Yard::poison_frame) for memory that proves to be good. A frame that
    /// was taken out of use becomes free.
    ///
    /// # Errors
    /// [`PoisonError`]; nothing has changed.
    pub fn unpoison_frame(&self, pfn: Pfn) -> Result<(), PoisonError> {
        let (zone, idx) = self.locate(pfn).ok_or(PoisonError::Foreign)?;
        let at = self.at_any(zone).ok_or(PoisonError::Foreign)?;
        if let Some(region) = zone.region() {
            let locked = at.lock();
            let done = region.unmark(idx);
            drop(locked);
            at.count_frees(region);
            return if done { Ok(()) } else { Err(PoisonError::NotPoisoned) };
        }
        let frame = zone.map.frame(idx);
        {
            let _locked = at.lock();
            if !frame.is_poisoned() {
                return Err(PoisonError::NotPoisoned);
            }
            frame.set_poisoned(false);
            zone.map.refresh_taint(idx);
            let state = frame.state();
            if state.kind() != Kind::Poisoned {
                return Ok(());
            }
            change(&zone.safety.poisoned, -1);
            frame.set_state(State::new(Kind::Held, 0, state.migrate_type()));
        }
        let unfilled = Rollback::new(|| at.lock().poison_again(idx));
        at.fill(idx, 0);
        unfilled.disarm();
        // It may have been poisoned again meanwhile.
        at.lock().free_around(idx, 0);
        Ok(())
    }

    /// Returns whether a frame is poisoned, out of use already or not. `None` outside the zones.
    pub fn is_poisoned(&self, pfn: Pfn) -> Option<bool> {
        let (zone, idx) = self.locate(pfn)?;
        Some(match zone.region() {
            Some(region) => region.blocks.is_marked(idx),
            None => zone.map.frame(idx).is_poisoned(),
        })
    }
}

impl<'a, C: Config> At<'_, 'a, C> {
    /// The same on the packed engine, whose magazines and depots are drained in place of lists.
    fn poison_packed(
        &self,
        region: &Region<'a, C::Lock>,
        idx: u32,
    ) -> Result<Poisoned, PoisonError> {
        let zone = self.zone;
        let take = || {
            let locked = self.lock();
            let taken = region.take_marked(idx);
            drop(locked);
            zone.count_loose(region);
            taken
        };
        {
            let _locked = self.lock();
            if zone.state(idx).kind() == Kind::Reserved {
                return Err(PoisonError::Reserved);
            }
            if !region.mark(idx) {
                return Err(PoisonError::Already);
            }
        }
        for _ in 0..TRIES {
            if take() {
                return Ok(Poisoned::Removed);
            }
            // Before a look at the owner: a free that began before the mark has a CPU's lock, and ends
            // in magazines that are drained, or comes later and sees the mark.
            self.drain_packed_zone();
            let over = zone.block_over(idx).map(|(_, state)| state.kind());
            if matches!(over, Some(Kind::Allocated | Kind::BeingFreed)) {
                break;
            }
        }
        Ok(Poisoned::WhenFreed)
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Takes a frame out of use if it is part of a free block or of a guard. Returns whether it
    /// did.
    fn remove_poisoned(&self, idx: u32) -> bool {
        let Some((head, state)) = self.zone.map.block_over(idx) else { return false };
        let (order, t) = (state.order(), state.migrate_type());
        match state.kind() {
            Kind::Poisoned => return true,
            Kind::Free => self.carve(head, state, idx, 0),
            Kind::Guard => {
                change(&self.zone.safety.guards, -(1 << order));
                self.zone.map.frame(head).set_state(State::TAIL);
                self.split_around(head, order, idx, 0, |part, o| {
                    self.guard(part, o, t);
                    0
                });
            }
            _ => return false,
        }
        self.keep_poisoned(idx);
        true
    }

    /// Puts a held frame out of use again.
    fn poison_again(&self, idx: u32) {
        self.zone.map.poison(idx);
        self.keep_poisoned(idx);
    }
}
