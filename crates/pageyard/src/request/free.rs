//! Freeing: checks, then this CPU's lists or the zone (spec §1.10, §5.9, §6.2, §6.3, §11.8).

use core::fmt;

use lock_api::{MutexGuard, RawMutex};

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, Owned, State};
use crate::base::free_error::FreeError;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, Order, Pfn, ZoneKind};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::embedder::platform::Platform;
use crate::packed::Region;
use crate::pcp::pageset::{Pageset, is_cached_order};
use crate::zone::at::At;
use crate::zone::state::{PerCpu, Zone};

/// Why a batch was not freed. Nothing has changed.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let error: BatchError = yard.free_batch_of(Order::ZERO, &[page, Pfn(0)]).unwrap_err();
/// assert_eq!((error.index, error.error), (1, FreeError::Foreign));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchError {
    /// The index of the block at fault.
    pub index: usize,
    /// What is wrong with it.
    pub error: FreeError,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of the batch: {}", self.index, self.error)
    }
}

impl core::error::Error for BatchError {}

/// How many blocks of a batch are prepared at once, or freed under one lock (§6.2).
pub(crate) const BATCH: usize = 31;

impl<'a, C: Config> Yard<'a, C> {
    /// Frees a block that [`alloc`](Yard::alloc) allocated. If the policy checks pages and one of
    /// them is bad, the free still succeeds and the block stays out of use (§11.2).
    ///
    /// If several threads free the same block concurrently, one of them succeeds (§11.8).
    ///
    /// # Errors
    /// [`FreeError`] if the block or its order is wrong; nothing has changed.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_as::<false>(pfn, order)
    }

    /// Like [`free`](Yard::free), but the caller guarantees that no other thread frees the block
    /// concurrently, as a type that owns the block does. Saves one atomic exchange. Two concurrent
    /// frees of one block may both succeed; its list then holds it twice, and two requests may get
    /// it.
    ///
    /// This function is not `unsafe` because the core touches no memory. Only the embedder's code
    /// accesses page contents, and it must rely on this only for blocks whose ownership its types
    /// ensure.
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    #[inline(always)]
    pub fn free_owned(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_as::<true>(pfn, order)
    }

    // Not in debug builds, as `alloc_from`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn free_as<const OWNED: bool>(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // Both arms for the same reason as in `alloc_ready`: single pages get their own code.
        let elsewhere = |order: Order| self.free_elsewhere::<OWNED>(pfn, order.get());
        let quick = if order == Order::ZERO {
            self.free_quick::<OWNED>(pfn, Order::ZERO, elsewhere)
        } else {
            self.free_quick::<OWNED>(pfn, order, elsewhere)
        };
        match quick {
            Some(()) => Ok(()),
            None => self.free_rest(pfn, order),
        }
    }

    /// The common case of [`free`](Yard::free), in the zone that most of this CPU's memory comes from.
    /// Returns `None`, with nothing changed, if the block needs `free`. For a C caller, whose frame is then
    /// not kept during the rest.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_ready(&self, pfn: Pfn, order: Order) -> Option<()> {
        if order == Order::ZERO {
            self.free_quick::<false>(pfn, Order::ZERO, |_| None)
        } else {
            self.free_quick::<false>(pfn, order, |_| None)
        }
    }

    /// The common case in one piece: the block's state matches the caller's order, and this CPU's
    /// list is not locked and has room. Returns `None`, with nothing changed, in any other case;
    /// [`free_rest`](Self::free_rest) handles it. `elsewhere`: for blocks of other zones.
    #[inline(always)]
    fn free_quick<const OWNED: bool>(
        &self,
        pfn: Pfn,
        order: Order,
        elsewhere: impl FnOnce(Order) -> Option<()>,
    ) -> Option<()> {
        let o = order.get();
        if !is_cached_order(self.rules(), o) {
            return None;
        }
        let cpu = self.hooks.cpu();
        // Nearly every page goes back to the CPU's own node, and most of that node's memory is in
        // its highest zone.
        let local = self.cpu_zones.get(cpu.0 as usize)?;
        let (zone, slot) = local.quick[ZoneKind::Movable as usize]?;
        let at: At<'_, '_, C> = At::new(zone, &self.hooks, cpu, slot, self.policy);
        if self.is_packed() {
            let part = local.packed[ZoneKind::Movable as usize]?;
            return at.free_packed_fast::<OWNED>(part, pfn, o);
        }
        match zone.allocated(pfn, o) {
            Some(block) => at.free_fast::<OWNED>(block, o),
            None => elsewhere(order),
        }
    }

    /// Like [`free_quick`](Self::free_quick), for any zone. Outlined so that the common case
    /// carries only its own code.
    #[cold]
    #[inline(never)]
    fn free_elsewhere<const OWNED: bool>(&self, pfn: Pfn, o: u8) -> Option<()> {
        let (zone, _) = self.locate(pfn)?;
        let block = zone.allocated(pfn, o)?;
        self.at(zone, self.hooks.cpu())?.free_fast::<OWNED>(block, o)
    }

    /// Frees a block outside the common case. Also handles the common case, with more instructions.
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn free_rest(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_packed() {
            return self.free_rest_packed(pfn, order);
        }
        let (at, idx) = self.begin_free(pfn, order)?;
        at.free_block_checked(idx, order.get());
        Ok(())
    }

    /// Frees a block directly to the zone, bypassing this CPU's lists, as [`free`](Yard::free) does
    /// if it finds the lists locked (§5.6).
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    pub fn free_direct(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_packed() {
            return self.free_direct_packed(pfn, order);
        }
        let (at, idx) = self.begin_free(pfn, order)?;
        if at.prepare_free(idx, order.get()) {
            at.free_to_zone(idx, order.get());
        }
        Ok(())
    }

    /// Takes the block from its owner. Afterwards no other caller can free it, and this caller must
    /// complete the free or roll it back.
    pub(crate) fn begin_free(
        &self,
        pfn: Pfn,
        order: Order,
    ) -> Result<(At<'_, 'a, C>, u32), FreeError> {
        let (zone, idx) = self.owned(pfn, order)?;
        let at = self.here(zone)?;
        match self.region_of(zone) {
            None => zone.begin_free(idx, order)?,
            Some(region) if region.begin_leaving::<false>(idx, order.get()) => {}
            Some(region) => return Err(region.why_not(pfn, order)),
        }
        Ok((at, idx))
    }

    /// Returns a zone's region on the packed engine. Whether there is one is known at compile time if the
    /// policy is.
    #[inline(always)]
    pub(crate) fn region_of<'z>(
        &self,
        zone: &'z Zone<'a, C::Lock>,
    ) -> Option<&'z Region<'a, C::Lock>> {
        if self.is_packed() { zone.region() } else { None }
    }

    /// Locates the block if it is allocated with this order: one comparison with the state of its
    /// head.
    #[inline]
    pub(crate) fn owned(
        &self,
        pfn: Pfn,
        order: Order,
    ) -> Result<(&'a Zone<'a, C::Lock>, u32), FreeError> {
        let (zone, idx) = self.locate(pfn).ok_or(FreeError::Foreign)?;
        if let Some(region) = self.region_of(zone) {
            let owned = region.is_allocated(idx, order);
            return if owned { Ok((zone, idx)) } else { Err(region.why_not(pfn, order)) };
        }
        if zone.map.frame(idx).state().is(Kind::Allocated, order.get()) {
            Ok((zone, idx))
        } else {
            Err(zone.why_not_free(idx, order))
        }
    }

    #[inline]
    pub(crate) fn here<'z>(
        &'z self,
        zone: &'z Zone<'a, C::Lock>,
    ) -> Result<At<'z, 'a, C>, FreeError> {
        let cpu = self.hooks.cpu();
        self.cpu_zones(cpu).and_then(|_| self.at(zone, cpu)).ok_or(FreeError::UnknownCpu(cpu))
    }

    /// Frees many blocks at once (§6.2) and locks each per-CPU list once for many of them. In each
    /// group of 31, blocks of orders that per-CPU lists do not cache go to the zone first.
    ///
    /// # Errors
    /// The first block at fault, including a block that appears twice; nothing has changed.
    pub fn free_batch(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.free_batch_as::<false, _>(blocks, |b| *b)
    }

    /// Like [`free_batch`](Yard::free_batch), for blocks of one order.
    ///
    /// # Errors
    /// As [`free_batch`](Yard::free_batch).
    pub fn free_batch_of(&self, order: Order, blocks: &[Pfn]) -> Result<(), BatchError> {
        self.free_batch_as::<false, _>(blocks, |&pfn| (pfn, order))
    }

    /// Like [`free_batch`](Yard::free_batch), but the caller guarantees that no other thread frees
    /// one of the blocks concurrently, as in [`free_owned`](Yard::free_owned).
    ///
    /// # Errors
    /// As [`free_batch`](Yard::free_batch).
    pub fn free_batch_owned(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.free_batch_as::<true, _>(blocks, |b| *b)
    }

    fn free_batch_as<const OWNED: bool, B>(
        &self,
        blocks: &[B],
        of: impl Fn(&B) -> (Pfn, Order),
    ) -> Result<(), BatchError> {
        // One CPU for the whole batch, even if the thread migrates meanwhile.
        let cpu = self.hooks.cpu();
        if self.cpu_zones(cpu).is_none() && !blocks.is_empty() {
            return Err(BatchError { index: 0, error: FreeError::UnknownCpu(cpu) });
        }
        if self.is_packed() {
            return self.free_batch_packed::<OWNED, B>(cpu, blocks, of);
        }
        for (index, (pfn, order)) in blocks.iter().map(&of).enumerate() {
            let left = self.owned(pfn, order).and_then(|(zone, idx)| {
                if OWNED {
                    zone.map.frame(idx).begin_free_unraced();
                    return Ok(());
                }
                zone.begin_free(idx, order)
            });
            if let Err(error) = left {
                self.roll_back_frees(blocks.iter().take(index).map(|b| of(b).0));
                return Err(BatchError { index, error });
            }
        }
        let mut rest = blocks;
        while let Some((group, later)) = rest.split_at_checked(rest.len().min(BATCH))
            && !group.is_empty()
        {
            for (i, (pfn, order)) in group.iter().map(&of).enumerate() {
                let Some((zone, idx)) = self.locate(pfn) else { continue };
                let Some(at) = self.at(zone, cpu) else { continue };
                // If a hook panics, blocks that are on no list yet go back to their owner.
                let unfinished = Rollback::new(|| {
                    let cached = |order: Order| is_cached_order(self.rules(), order.get());
                    let left = rest.iter().map(&of).enumerate();
                    let left = left.filter(|&(n, (_, order))| n >= i || cached(order));
                    self.roll_back_frees(left.map(|(_, (pfn, _))| pfn));
                });
                if at.prepare_free(idx, order.get()) && !is_cached_order(self.rules(), order.get())
                {
                    at.free_to_zone(idx, order.get());
                }
                unfinished.disarm();
            }
            self.free_group(group.iter().map(&of), cpu);
            rest = later;
        }
        Ok(())
    }

    /// Rolls back `begin_free` of these blocks. Skips blocks whose free has completed.
    pub(crate) fn roll_back_frees(&self, blocks: impl Iterator<Item = Pfn>) {
        for (zone, idx) in blocks.filter_map(|pfn| self.locate(pfn)) {
            if let Some(region) = self.region_of(zone) {
                region.stay(idx);
                continue;
            }
            let frame = zone.map.frame(idx);
            if frame.state().kind() == Kind::BeingFreed {
                frame.roll_back_free();
            }
        }
    }

    /// Frees the cached orders of one group, under one lock for consecutive blocks of the same
    /// zone.
    fn free_group(&self, group: impl Iterator<Item = (Pfn, Order)>, cpu: CpuId) {
        let mut held: Option<(&PerCpu<_>, MutexGuard<'_, _, Pageset>)> = None;
        for (pfn, order) in group.filter(|b| is_cached_order(self.rules(), b.1.get())) {
            let Some((zone, idx)) = self.locate(pfn) else { continue };
            let Some(here) = self.at(zone, cpu) else { continue };
            let owner = here.at_owner(idx);
            let at = owner.as_ref().unwrap_or(&here);
            let frame = zone.map.frame(idx);
            if !frame.state().is(Kind::BeingFreed, order.get()) {
                continue; // bad page: taken out of use by `prepare_free`
            }
            self.hooks.event(cpu, Event::FreeBatched { pfn });
            if let Some((of, pageset)) = &mut held
                && core::ptr::eq(*of, at.slot)
                && pageset.push_reported(at, idx, frame, order.get())
            {
                continue;
            }
            if !held.as_ref().is_some_and(|(of, _)| core::ptr::eq(*of, at.slot)) {
                drop(held.take());
                held = at.slot.pageset.try_lock().map(|guard| (at.slot, guard));
            }
            match &mut held {
                Some((_, pageset)) => {
                    let t = zone.map.cached_type(idx, order.get());
                    if let Some(t) = t.filter(|_| at.takes_frees()) {
                        if let Some(rest) = pageset.put(at, idx, order.get(), t) {
                            drop(held.take());
                            at.drain_rest(rest);
                        }
                        continue;
                    }
                }
                None => _ = zone.bypasses.fetch_add(1, Relaxed),
            }
            here.free_to_zone(idx, order.get());
        }
    }

    /// Frees a block whose first page another user still holds (§6.3). That page stays allocated as
    /// a block of order 0; the rest is freed from the upper half down.
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    pub fn free_shared(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_packed() {
            return self.free_shared_packed(pfn, order);
        }
        let (at, idx) = self.begin_free(pfn, order)?;
        let map = &at.zone.map;
        let was = map.frame(idx).state();
        let first = State::new(Kind::Allocated, 0, was.migrate_type());
        map.frame(idx).set_allocated(first.with_movable(was.is_movable()));
        let parts = || (0..order.get()).rev().map(|o| (idx + (1 << o), o));
        for (part, o) in parts() {
            map.frame(part).set_state(State::new(Kind::BeingFreed, o, was.migrate_type()));
        }
        for (i, (part, o)) in parts().enumerate() {
            // If a hook panics, the remaining parts stay allocated, each as a block of its own.
            let unfinished = Rollback::new(|| {
                self.roll_back_frees(parts().skip(i).map(|(part, _)| at.zone.pfn(part)));
            });
            at.free_block_checked(part, o);
            unfinished.disarm();
        }
        Ok(())
    }

    /// Splits an allocated block into blocks of a smaller order, each to be freed on its own.
    /// Whether the owner can move their pages is unchanged.
    ///
    /// # Errors
    /// As [`free`](Yard::free); also [`FreeError::WrongOrder`] if `into` is larger than `order`.
    pub fn split(&self, pfn: Pfn, order: Order, into: Order) -> Result<(), FreeError> {
        let (zone, idx) = self.owned(pfn, order)?;
        if into > order {
            return Err(FreeError::WrongOrder { allocated: order });
        }
        if let Some(region) = self.region_of(zone) {
            return region.split(pfn, order, into);
        }
        zone.begin_free(idx, order)?;
        let was = zone.map.frame(idx).state();
        let state = State::new(Kind::Allocated, into.get(), was.migrate_type())
            .with_movable(was.is_movable());
        for part in 0..1u32 << (order.get() - into.get()) {
            zone.map.frame(idx + (part << into.get())).set_allocated(state);
        }
        Ok(())
    }

    /// Sets whether the owner of an allocated block can move its pages, because they are on a
    /// reclaim list or a driver moves them. This decides whether the pageblock may change its type
    /// (§4.4).
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    pub fn set_movable(&self, pfn: Pfn, order: Order, movable: bool) -> Result<(), FreeError> {
        let (zone, idx) = self.owned(pfn, order)?;
        if let Some(region) = self.region_of(zone) {
            let changed = region.set_movable(idx, order.get(), movable);
            return if changed { Ok(()) } else { Err(region.why_not(pfn, order)) };
        }
        let changed = |seen: State| seen.with_movable(movable);
        if zone.map.frame(idx).change_allocated(order.get(), changed) {
            Ok(())
        } else {
            Err(zone.why_not_free(idx, order))
        }
    }
}

impl<C: Config> At<'_, '_, C> {
    /// The common case of a free, for a block that is known to be allocated. `None`: not freed.
    #[inline(always)]
    fn free_fast<const OWNED: bool>(&self, block: Owned<'_>, o: u8) -> Option<()> {
        if self.rules().safety.checks_pages() {
            if !OWNED && !block.frame.begin_free(block.seen) {
                return None;
            }
            if self.prepare_free(block.idx, o) && self.free_to_pcp_fast::<true>(block, o).is_none()
            {
                self.free_prepared(block.idx, o);
            }
            return Some(());
        }
        self.free_to_pcp_fast::<OWNED>(block, o)
    }

    /// Reports the kernel's event for a free, before the block reaches any list (§9.5).
    #[inline(always)]
    pub(crate) fn note_free(&self, idx: u32, order: u8) {
        if let Some(order) = Order::new(order) {
            self.hooks.event(self.cpu, Event::Free { pfn: self.zone.pfn(idx), order });
        }
    }

    /// Puts a checked block on this CPU's list, or that of its pageblock's owner, if that only takes a
    /// push and a count. `None`: nothing has changed. `OWNED`: no other thread can free the block.
    #[inline(always)]
    fn free_to_pcp_fast<const OWNED: bool>(&self, block: Owned<'_>, order: u8) -> Option<()> {
        let owner = self.at_owner(block.idx);
        let at = owner.as_ref().unwrap_or(self);
        let mut pageset = at.slot.pageset.try_lock()?;
        if !pageset.push_fast::<_, OWNED>(at, block, order) {
            return None;
        }
        // Each exit releases the lock itself: a shared release costs three more instructions.
        drop(pageset);
        Some(())
    }

    /// Checks a block after `begin_free`, then frees it to the lists or the zone.
    pub(crate) fn free_block_checked(&self, idx: u32, order: u8) {
        if self.prepare_free(idx, order) {
            self.free_prepared(idx, order);
        }
    }

    /// Frees a checked block to this CPU's lists or those of its pageblock's owner, or to the zone if
    /// the lists do not take it.
    #[inline]
    pub(crate) fn free_prepared(&self, idx: u32, order: u8) {
        if is_cached_order(self.rules(), order) {
            let owner = self.at_owner(idx);
            let at = owner.as_ref().unwrap_or(self);
            match at.slot.pageset.try_lock() {
                Some(mut pageset) => {
                    let t = self.zone.map.cached_type(idx, order);
                    if let Some(t) = t.filter(|_| at.takes_frees()) {
                        let rest = pageset.put(at, idx, order, t);
                        drop(pageset);
                        if let Some(rest) = rest {
                            at.drain_rest(rest);
                        }
                        return;
                    }
                }
                None => _ = self.zone.bypasses.fetch_add(1, Relaxed),
            }
        }
        self.free_to_zone(idx, order);
    }

    #[inline(never)]
    fn free_to_zone(&self, idx: u32, order: u8) {
        self.lock().take_back(idx, order);
    }
}

impl<'a, R: RawMutex> Zone<'a, R> {
    /// Returns the frame if a block of this order is allocated there. Frames before the zone's
    /// start are never allocated, so this needs no further check.
    #[inline(always)]
    fn allocated(&self, pfn: Pfn, order: u8) -> Option<Owned<'a>> {
        let idx = pfn.0.wrapping_sub(self.base);
        let frame = self.map.get(idx)?;
        let seen = frame.state();
        let block = Owned { idx: idx as u32, frame, seen };
        seen.is(Kind::Allocated, order).then_some(block)
    }

    /// Takes the block from its owner. Fails if another thread has freed it in the meantime.
    #[inline]
    pub(crate) fn begin_free(&self, idx: u32, order: Order) -> Result<(), FreeError> {
        if self.map.frame(idx).begin_free_as(order.get()) {
            Ok(())
        } else {
            Err(self.why_not_free(idx, order))
        }
    }

    /// Returns the error for a block that is not allocated with this order.
    #[cold]
    fn why_not_free(&self, idx: u32, order: Order) -> FreeError {
        let state = self.map.frame(idx).state();
        if self.pfn(idx).0 & u64::from(order.pages() - 1) != 0 {
            return FreeError::Misaligned;
        }
        match state.kind() {
            Kind::Reserved => FreeError::Reserved,
            Kind::Free | Kind::Cached | Kind::Guard | Kind::Held | Kind::BeingFreed => {
                FreeError::DoubleFree
            }
            Kind::Bad | Kind::Poisoned => FreeError::OutOfUse,
            // A concurrent free took the block first, and its state has changed again since.
            Kind::Allocated if state.order() == order.get() => FreeError::DoubleFree,
            Kind::Allocated => self.wrong_order(state),
            Kind::Tail => self.inside(idx),
        }
    }

    fn wrong_order(&self, state: State) -> FreeError {
        FreeError::WrongOrder { allocated: Order::new(state.order()).unwrap_or_default() }
    }

    /// Returns the error for a tail frame, by the block that contains it.
    fn inside(&self, idx: u32) -> FreeError {
        match self.map.block_over(idx) {
            Some((head, state)) if state.kind() == Kind::Allocated => {
                let allocated = Order::new(state.order()).unwrap_or_default();
                FreeError::NotHead { head: self.pfn(head), allocated }
            }
            Some((_, state)) if matches!(state.kind(), Kind::Bad | Kind::Poisoned) => {
                FreeError::OutOfUse
            }
            // Includes tails of no block, which occur while a free block merges or is split.
            _ => FreeError::DoubleFree,
        }
    }
}

#[cfg(test)]
mod tests;
