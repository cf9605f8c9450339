//! What runs beside requests: the statistics tick, drains, and disabling the per-CPU lists
//! (spec §5.5, §5.14–5.16, §9.2).

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, ZoneId};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Policy, Rules};
use crate::pcp::tuning::{CacheSlice, Limits, keeps_batch};
use crate::zone::state::Zone;

impl<'a, C: Config> Yard<'a, C> {
    /// One tick of the statistics worker on a CPU: folds its counters, decays its lists, lets
    /// unused remote ones expire (§5.14, §5.15, §9.2). The kernel does this once a second on every
    /// CPU that is not idle. Whether another tick has work to do.
    ///
    /// Call it on that CPU, or while that CPU does not allocate.
    pub fn tick(&self, cpu: CpuId) -> bool {
        let mut again = false;
        for zone in self.zones {
            if let Some(at) = self.at(zone, cpu) {
                again |= at.tick();
            }
        }
        again
    }

    /// Drains one CPU's lists, of one zone or of all (§5.16).
    pub fn drain_cpu(&self, cpu: CpuId, zone: Option<ZoneId>) {
        let by = self.hooks.cpu();
        for zone in self.zones.iter().filter(|z| zone.is_none_or(|id| id == z.id())) {
            // A drainer that is none of the yard's CPUs works in the drained one's name.
            let at = self.at(zone, by);
            if let Some(at) = at.or_else(|| self.at(zone, cpu)) {
                at.drain(cpu);
            }
        }
    }

    /// Drains all CPUs' lists (§5.16). There is one drainer at a time: with another one at work, a
    /// call for all zones returns at once, a call for one zone waits its turn.
    #[inline(never)]
    pub fn drain_all(&self, zone: Option<ZoneId>) {
        let _turn = match zone {
            None => match self.draining.try_lock() {
                Some(turn) => turn,
                None => return,
            },
            Some(_) => self.draining.lock(),
        };
        for cpu in 0..self.cpus {
            self.drain_cpu(CpuId(cpu), zone);
        }
    }

    /// Keeps a zone's per-CPU lists empty until the returned guard is dropped (§5.5): every
    /// request is served by the zone, every free goes there. `None` where there is no such zone.
    ///
    /// Several guards may live at once. Limits that change meanwhile are in force when the last one
    /// is dropped.
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
        Some(PcpDisabled { zone, policy: self.policy })
    }

    /// Tells the tuning how much of the caches a CPU has (§5.13). Call it for every CPU that shares
    /// a cache when one of them comes or goes. Whether the CPU is known.
    pub fn set_cache_slice(&self, cpu: CpuId, slice: CacheSlice) -> bool {
        let mut known = false;
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            known = true;
            slot.pageset.lock().tune(&self.rules().pcp, |t| {
                t.keep_batch(keeps_batch(&self.rules().pcp, slice, t.limits.batch));
            });
        }
        known
    }

    /// Sets or clears FREE_HIGH_BATCH (§5.13) of a CPU's lists in one zone, whatever its caches are:
    /// for recordings and experiments that change one zone alone. The next
    /// [`set_cache_slice`](Yard::set_cache_slice) overwrites it. Returns `false` if the zone or the
    /// CPU is unknown.
    pub fn set_free_high_batch(&self, zone: impl Into<ZoneId>, cpu: CpuId, set: bool) -> bool {
        let Some(slot) = self.zone(zone).and_then(|z| z.slot(cpu)) else { return false };
        slot.pageset.lock().tune(&self.rules().pcp, |t| t.keep_batch(set));
        true
    }
}

/// While it lives, a zone's per-CPU lists stay empty ([`Yard::disable_pcp`]).
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
    /// The limits that pagesets are to have now. Under `limits_lock`.
    pub(crate) fn current_limits(&self) -> Limits {
        if self.disabled.load(Relaxed) > 0 { Limits::DISABLED } else { self.limits.get() }
    }

    /// Gives the pagesets of all CPUs that are up the zone's limits; `high` follows at its next use
    /// (§5.4). Under `limits_lock`.
    pub(crate) fn limit_pagesets(&self, rules: &Rules) {
        let limits = self.current_limits();
        for slot in self.cpus.iter().filter(|s| s.up.load(Relaxed)) {
            slot.pageset.lock().tune(&rules.pcp, |t| t.limits = limits);
        }
    }
}
