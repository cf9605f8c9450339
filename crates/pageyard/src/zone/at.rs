//! A zone as used by one CPU, and the zone with its lock held (spec §1.3, §1.6).

use core::ops::Deref;

use lock_api::{MutexGuard, RawMutex};

use crate::base::gfp::AllocFlags;
use crate::base::units::{CpuId, PAGEBLOCK_PAGES};
use crate::embedder::config::Config;
use crate::embedder::hooks::Observer;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Policy, Rules};
use crate::zone::area::End;
use crate::zone::state::{BOOSTED_WATERMARK, PerCpu, Zone};

/// One CPU's view of one zone. Every request path works on it.
pub(crate) struct At<'z, 'a, C: Config> {
    pub(crate) zone: &'z Zone<'a, C::Lock>,
    pub(crate) hooks: &'z C::Hooks,
    pub(crate) cpu: CpuId,
    pub(crate) slot: &'z PerCpu<C::Lock>,
    pub(crate) policy: C::Policy,
}

impl<'a, R: RawMutex> Zone<'a, R> {
    /// Returns the zone as used by `cpu`, or `None` if the yard has no such CPU.
    #[inline]
    pub(crate) fn at<'z, C: Config<Lock = R>>(
        &'z self,
        hooks: &'z C::Hooks,
        cpu: CpuId,
        policy: C::Policy,
    ) -> Option<At<'z, 'a, C>> {
        Some(At::new(self, hooks, cpu, self.slot(cpu)?, policy))
    }
}

impl<C: Config> Clone for At<'_, '_, C> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Config> Copy for At<'_, '_, C> {}

impl<'z, 'a, C: Config> At<'z, 'a, C> {
    /// Creates a view. `slot` must be the CPU's part of the zone.
    #[inline(always)]
    pub(crate) fn new(
        zone: &'z Zone<'a, C::Lock>,
        hooks: &'z C::Hooks,
        cpu: CpuId,
        slot: &'z PerCpu<C::Lock>,
        policy: C::Policy,
    ) -> Self {
        At { zone, hooks, cpu, slot, policy }
    }

    /// Returns the same view with another CPU's part of the zone. Its counters change under the same
    /// locks as for that CPU itself; events name this CPU.
    #[inline(always)]
    pub(crate) fn with_lists(&self, slot: &'z PerCpu<C::Lock>) -> Self {
        At { slot, ..*self }
    }

    #[inline(always)]
    pub(crate) fn rules(&self) -> &Rules {
        self.policy.rules()
    }

    /// Takes the zone lock. Only then may this CPU's part of the counters change.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, 'a, C> {
        self.lock_alone().after_queue()
    }

    /// Like [`lock`](Self::lock), but leaves queued blocks to a later holder: for callers whose stack
    /// has no room for their frees.
    #[inline]
    pub(crate) fn lock_alone(&self) -> Locked<'_, 'a, C> {
        let asked = if <C::Hooks as Observer>::MEASURE_LOCKS { self.hooks.now() } else { 0 };
        self.held(asked, self.zone.lock.lock())
    }

    /// Takes the zone lock; for an attempt that must not wait, only if it is free.
    #[inline]
    pub(crate) fn lock_for(&self, flags: AllocFlags) -> Option<Locked<'_, 'a, C>> {
        if flags.contains(AllocFlags::NO_WAIT) { self.try_lock() } else { Some(self.lock()) }
    }

    /// Takes the zone lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, 'a, C>> {
        Some(self.try_lock_alone()?.after_queue())
    }

    /// Like [`try_lock`](Self::try_lock), but leaves queued blocks to a later holder.
    pub(crate) fn try_lock_alone(&self) -> Option<Locked<'_, 'a, C>> {
        let asked = if <C::Hooks as Observer>::MEASURE_LOCKS { self.hooks.now() } else { 0 };
        Some(self.held(asked, self.zone.lock.try_lock()?))
    }

    #[inline]
    fn held<'l>(&'l self, asked: u64, guard: MutexGuard<'l, C::Lock, ()>) -> Locked<'l, 'a, C> {
        let counters = &self.zone.counters;
        counters.lock_holds.add(1);
        let mut since = 0;
        if <C::Hooks as Observer>::MEASURE_LOCKS {
            since = self.hooks.now();
            let waited = since.saturating_sub(asked);
            counters.wait_ns.add(waited);
            counters.waits.note(waited);
        }
        Locked { at: self, since, _guard: guard }
    }

    /// Frees queued blocks, if there are any.
    #[inline]
    pub(crate) fn flush_queue(&self) {
        if !self.zone.queue.is_empty() {
            drop(self.lock());
        }
    }
}

/// A zone whose lock is held. All operations that change free lists are methods of this type.
pub(crate) struct Locked<'z, 'a, C: Config> {
    at: &'z At<'z, 'a, C>,
    since: u64,
    // Released after `drop` below runs.
    _guard: MutexGuard<'z, C::Lock, ()>,
}

impl<'z, 'a, C: Config> Deref for Locked<'z, 'a, C> {
    type Target = At<'z, 'a, C>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.at
    }
}

impl<C: Config> Drop for Locked<'_, '_, C> {
    #[inline]
    fn drop(&mut self) {
        if <C::Hooks as Observer>::MEASURE_LOCKS {
            let held = self.hooks.now().saturating_sub(self.since);
            self.zone.counters.hold_ns.add(held);
            self.zone.counters.holds.note(held);
        }
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Returns itself once no block is queued.
    #[inline]
    fn after_queue(self) -> Self {
        if !self.zone.queue.is_empty() {
            self.free_queued();
        }
        self
    }

    /// Frees all queued blocks.
    #[cold]
    #[inline(never)]
    fn free_queued(&self) {
        let map = &self.zone.map;
        let mut idx = self.zone.queue.take();
        while let Some(frame) = map.get(idx.into()) {
            let (block, order) = (idx, frame.state().order());
            // The free reuses the link.
            idx = frame.next();
            self.take_back(block, order);
        }
    }

    /// Frees a block that is being freed to the zone.
    #[inline]
    pub(crate) fn take_back(&self, idx: u32, order: u8) {
        let map = &self.zone.map;
        self.slot.counters.direct_frees.add(order, map.block_type(idx));
        self.zone.counters.pages_returned.add(1 << order);
        if map.is_tainted(idx, order) {
            return self.free_around(idx, order);
        }
        self.free_pieces(idx, order, End::Head);
    }

    /// Boosts the watermarks after a claim for a request of another type (§3.4).
    pub(crate) fn boost(&self, kswapd: bool) {
        let w = &self.zone.watermarks;
        let Some(cap) = self.zone.boost_cap() else { return };
        let block = u64::from(PAGEBLOCK_PAGES);
        w.set_boost(cap.min(w.boost().saturating_add(block)));
        self.zone.refresh_cached_mark(self.rules());
        self.zone.counters.boosts.add(1);
        if kswapd {
            self.zone.set_flag(BOOSTED_WATERMARK);
        }
    }
}
