//! Periodic maintenance: the statistics tick, drains, and disabling the per-CPU lists (spec §5.5,
//! §5.14–5.16, §9.2).

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, ZoneId};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Policy, Rules};
use crate::packed::TICK_MAGAZINES;
use crate::pcp::tuning::{CacheSlice, Limits, keeps_batch};
use crate::zone::state::Zone;

impl<'a, C: Config> Yard<'a, C> {
    /// Runs one tick of the statistics worker for a CPU: folds its counters, decays its lists, and
    /// expires unused lists of remote zones (§5.14, §5.15, §9.2). The kernel does this once a
    /// second on every CPU that is not idle. Returns whether another tick has work to do.
    ///
    /// Call it on that CPU, or while that CPU does not allocate.
    pub fn tick(&self, cpu: CpuId) -> bool {
        let mut again = false;
        let mut most = TICK_MAGAZINES;
        for zone in self.zones {
            if let Some(at) = self.at(zone, cpu) {
                if zone.is_packed() {
                    again |= at.tick_packed(&mut most);
                    continue;
                }
                again |= at.tick();
            }
        }
        again
    }

    /// Folds a CPU's parts of the zones' counters, without the rest of a [`tick`](Self::tick). The kernel
    /// does this when a CPU stops its tick because it is idle (§9.2): nothing then corrects what other
    /// CPUs read. Pages in the CPU's lists stay there. An unknown or offline CPU has nothing to fold.
    ///
    /// Call it on that CPU, or while that CPU does not allocate.
    ///
    /// ```
    /// # use pageyard::{Bare, CpuId, Gfp, Order, Yard, ZoneKind};
    /// # type Lock = spin::mutex::SpinMutex<()>;
    /// # let ram = [0x100_0000..0x500_0000];
    /// let yard: Yard<'_, Bare<Lock, ()>> = Yard::from_memory_map(&ram, &[], 1, ())?;
    /// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
    /// yard.fold(CpuId(0));
    /// let zone = yard.zone_info(ZoneKind::Dma32).unwrap();
    /// assert_eq!(zone.free, zone.free_exact);
    /// # yard.free(page, Order::ZERO)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fold(&self, cpu: CpuId) {
        for at in self.zones.iter().filter_map(|zone| self.at(zone, cpu)) {
            match at.zone.region() {
                None => at.fold(),
                Some(region) => drop(at.fold_packed(region)),
            }
        }
    }

    /// Drains one CPU's lists, for one zone or all zones (§5.16).
    pub fn drain_cpu(&self, cpu: CpuId, zone: Option<ZoneId>) {
        let by = self.hooks.cpu();
        for zone in self.zones.iter().filter(|z| zone.is_none_or(|id| id == z.id())) {
            // If the caller's CPU is unknown, account the work to the drained CPU.
            let at = self.at(zone, by);
            if let Some(at) = at.or_else(|| self.at(zone, cpu)) {
                match zone.region() {
                    None => at.drain(cpu),
                    Some(_) => at.drain_packed(cpu),
                }
            }
        }
    }

    /// Drains all CPUs' lists (§5.16). Only one drain runs at a time. During another drain, a call
    /// for all zones returns at once, and a call for one zone waits.
    #[inline(never)]
    pub fn drain_all(&self, zone: Option<ZoneId>) {
        let _busy = match zone {
            None => match self.draining.try_lock() {
                Some(turn) => turn,
                None => return,
            },
            Some(_) => self.draining.lock(),
        };
        for cpu in 0..self.cpus {
            self.drain_cpu(CpuId(cpu), zone);
        }
        for zone in self.zones.iter().filter(|z| zone.is_none_or(|id| id == z.id())) {
            self.drain_depots(zone);
        }
    }

    /// Returns what a zone's depots keep to it. Nothing happens on the exact engine.
    fn drain_depots(&self, zone: &'a Zone<'a, C::Lock>) {
        if let (Some(at), Some(region)) = (self.at_any(zone), zone.region()) {
            zone.drain_depots();
            at.count_frees(region);
        }
    }

    /// Keeps a zone's per-CPU lists empty until the returned guard is dropped (§5.5): requests and
    /// frees go to the zone directly. Returns `None` if the zone does not exist.
    ///
    /// Several guards may exist at once. Limits that change meanwhile take effect when the last
    /// guard is dropped.
    pub fn disable_pcp(&self, zone: impl Into<ZoneId>) -> Option<PcpDisabled<'_, 'a, C>> {
        let zone = self.zone(zone)?;
        {
            let _held = zone.limits_lock.lock();
            zone.disabled.fetch_add(1, Relaxed);
            zone.limit_pagesets(self.rules());
        }
        for cpu in 0..self.cpus {
            self.drain_cpu(CpuId(cpu), Some(zone.id()));
        }
        self.drain_depots(zone);
        Some(PcpDisabled { zone, policy: self.policy })
    }

    /// Sets a CPU's share of the hardware caches, for the tuning (§5.13). When a CPU goes online or
    /// offline, call it for every CPU that shares a cache with it, and when a zone gets its first memory,
    /// for all. Returns whether the CPU exists.
    pub fn set_cache_slice(&self, cpu: CpuId, slice: CacheSlice) -> bool {
        let mut known = false;
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            known = true;
            slot.pageset.lock().tune(&self.rules().pcp, |t| {
                // Disabled lists have those of the zone again later.
                let limits =
                    if t.limits == Limits::DISABLED { zone.limits.get() } else { t.limits };
                t.keep_batch(keeps_batch(&self.rules().pcp, slice, limits.batch));
            });
        }
        known
    }

    /// Sets or clears FREE_HIGH_BATCH (§5.13) of a CPU's lists in one zone, whatever the CPU's
    /// caches are. For recordings and experiments that change a single zone. The next
    /// [`set_cache_slice`](Yard::set_cache_slice) overwrites it. Returns `false` if the zone or the
    /// CPU does not exist.
    pub fn set_free_high_batch(&self, zone: impl Into<ZoneId>, cpu: CpuId, set: bool) -> bool {
        let Some(slot) = self.zone(zone).and_then(|z| z.slot(cpu)) else { return false };
        slot.pageset.lock().tune(&self.rules().pcp, |t| t.keep_batch(set));
        true
    }
}

/// Guard that keeps a zone's per-CPU lists empty ([`Yard::disable_pcp`]).
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let disabled = yard.disable_pcp(ZoneKind::Normal).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO).unwrap();
/// assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().cached, 0);
/// drop(disabled);
/// # Ok::<(), AllocError>(())
/// ```
pub struct PcpDisabled<'y, 'a, C: Config> {
    zone: &'y Zone<'a, C::Lock>,
    policy: C::Policy,
}

impl<C: Config> fmt::Debug for PcpDisabled<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcpDisabled").field("zone", &self.zone.id()).finish_non_exhaustive()
    }
}

impl<C: Config> Drop for PcpDisabled<'_, '_, C> {
    fn drop(&mut self) {
        let _held = self.zone.limits_lock.lock();
        self.zone.disabled.fetch_sub(1, Relaxed);
        self.zone.limit_pagesets(self.policy.rules());
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the limits that pagesets should have now. The caller must hold `limits_lock`.
    pub(crate) fn current_limits(&self) -> Limits {
        if self.disabled.load(Relaxed) > 0 { Limits::DISABLED } else { self.limits.get() }
    }

    /// Applies the zone's limits to the pagesets of all online CPUs; `high` follows at its next use
    /// (§5.4). The caller must hold `limits_lock`.
    pub(crate) fn limit_pagesets(&self, rules: &Rules) {
        let limits = self.current_limits();
        let enabled = self.disabled.load(Relaxed) == 0;
        for (cpu, slot) in (0..).map(CpuId).zip(self.cpus).filter(|(_, s)| s.up.load(Relaxed)) {
            slot.pageset.lock().tune(&rules.pcp, |t| t.limits = limits);
            self.enable_packed(cpu, enabled);
        }
    }
}
