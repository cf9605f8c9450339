//! A zone's free counter on the packed engine: each CPU keeps a part of it, and so does each domain of
//! CPUs (spec §9.2, §9.3). How far a part may drift, and when it reaches the zone.
//!
//! A CPU's part belongs to the holder of the CPU's lock. Pages that move without that lock go to the
//! zone's counter directly.

use lock_api::RawMutex;

use crate::base::shared::updates;
use crate::base::stats::DrainReason;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::CpuId;
use crate::packed::Region;
use crate::packed::cpu::Cpu;
use crate::zone::state::{PerCpu, Zone};

impl<R: RawMutex> PerCpu<R> {
    /// Returns all of this CPU's frames to the zone, and counts that.
    pub(crate) fn drain_own(&self, zone: &Zone<'_, R>, region: &Region<'_, R>, own: &mut Cpu) {
        region.drain_cpu(own);
        self.settle_drained(zone, own, DrainReason::Drain);
    }

    /// Settles after frames were returned to the zone, and counts that.
    fn settle_drained(&self, zone: &Zone<'_, R>, own: &mut Cpu, reason: DrainReason) {
        let (_, returned) = self.settle(zone, own);
        if returned > 0 {
            self.counters.count_drain(reason, returned);
        }
    }

    /// Moves what the CPU's counts say to its part of the zone's free counter, and that to the part of
    /// the CPU's domain, or the zone, if it is above the threshold (§9.2). Returns the pages taken and
    /// returned on balance. The caller holds the CPU's lock, which protects the part. Outlined: inlined,
    /// its registers are the caller's, and requests that do not come here take longer.
    #[inline(never)]
    pub(crate) fn settle(&self, zone: &Zone<'_, R>, own: &mut Cpu) -> (u64, u64) {
        let moved = own.counts.returned.wrapping_sub(own.counts.taken) as i64;
        let moved = moved.wrapping_sub(own.pending.count_ones().into());
        let change = moved.wrapping_sub(own.settled);
        own.settled = moved;
        let part = change.saturating_add(self.diff().into());
        if part.unsigned_abs() > self.threshold.load(Relaxed).into() {
            zone.add_to_domain(own.domain as usize, part, self.domain_threshold.load(Relaxed));
            self.set_diff(0);
        } else {
            self.set_diff(part as i32);
        }
        if change < 0 { (change.unsigned_abs(), 0) } else { (0, change.unsigned_abs()) }
    }

    /// Adds the CPU's part and that of its domain to the zone's free counter.
    pub(crate) fn fold(&self, zone: &Zone<'_, R>, own: &mut Cpu) {
        self.settle_drained(zone, own, DrainReason::Decay);
        let part = self.diff();
        if part != 0 {
            zone.add_free_packed(part.into());
            self.set_diff(0);
        }
        zone.fold_domain(own.domain as usize);
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Adds pages that moved without a CPU's part to the zone's free counter.
    pub(crate) fn count_loose(&self, region: &Region<'_, R>) {
        let loose = region.take_loose();
        if loose != 0 {
            self.add_free_packed(loose);
        }
    }

    /// Adds a CPU's part of the free counter to that of its domain, and that to the zone's counter if
    /// it is above its limit.
    #[inline(always)]
    fn add_to_domain(&self, domain: usize, pages: i64, limit: u32) {
        if limit == 0 {
            return self.add_free_packed(pages);
        }
        let folded = self.region().map_or(pages, |r| r.depots.add_part(domain, pages, limit));
        if folded != 0 {
            self.add_free_packed(folded);
        }
    }

    /// Adds a domain's part to the zone's free counter.
    fn fold_domain(&self, domain: usize) {
        let part = self.region().map_or(0, |r| r.depots.take_part(domain));
        if part != 0 {
            self.add_free_packed(part);
        }
    }

    /// Sets how far each CPU's part of the free counter may drift (§9.3). On the packed engine, CPUs of
    /// one domain keep half of that each, so much that a refill of 64 pages stays, and the domain's
    /// part is what they leave together: the zone's counter is wrong by as much as before, and changes
    /// less often.
    pub(crate) fn set_thresholds(&self, threshold: u32) {
        let Some(region) = self.region() else {
            return self.cpus.iter().for_each(|cpu| cpu.threshold.store(threshold, Relaxed));
        };
        let size = region.depots.cpus_per_domain().get() as usize;
        for (domain, cpus) in self.cpus.chunks(size).enumerate() {
            let up = cpus.iter().filter(|cpu| cpu.up.load(Relaxed)).count() as u32;
            let own = if up > 1 { threshold.min(threshold / 2 + 2) } else { threshold };
            let shared = up.saturating_mul(threshold - own);
            for cpu in cpus {
                cpu.threshold.store(own, Relaxed);
                cpu.domain_threshold.store(shared, Relaxed);
            }
            self.fold_domain(domain);
        }
    }

    /// Changes the zone's free counter.
    #[inline(never)]
    pub(crate) fn add_free_packed(&self, pages: i64) {
        let free = updates(&self.nr_free).fetch_add(pages, Relaxed).wrapping_add(pages);
        self.near_mark().note_counter(free);
        self.report.saw(free);
        if pages > 0 {
            self.note_above_high();
        }
    }

    /// Returns the frames of the packed engine's depots to the zone.
    pub(crate) fn drain_depots(&self) {
        if let Some(region) = self.region() {
            region.trim_depots(false, 0);
            self.count_loose(region);
        }
    }

    /// Returns what the depot of an offline CPU's domain keeps to the zone, if all CPUs of the domain are
    /// offline: only their ticks trim it.
    pub(crate) fn drain_offline_domain(&self, cpu: CpuId) {
        let Some(region) = self.region() else { return };
        let size = region.depots.cpus_per_domain().get() as usize;
        let mut domains = self.cpus.chunks(size);
        let cpus = domains.nth(cpu.0 as usize / size).unwrap_or_default();
        if !cpus.iter().any(|cpu| cpu.up.load(Relaxed)) {
            region.empty_domain_of(cpu.0);
            self.count_loose(region);
        }
    }

    /// Lets requests use a CPU's magazines, or drains them, keeps them empty from here on and folds
    /// the CPU's part of the free counter.
    pub(crate) fn enable_packed(&self, cpu: CpuId, enabled: bool) {
        let Some(region) = self.region() else { return };
        if let (Some(part), Some(slot)) = (region.cpus.get(cpu.0 as usize), self.slot(cpu)) {
            let mut own = part.own.lock();
            own.is_enabled = enabled;
            if !enabled {
                slot.drain_own(self, region, &mut own);
                slot.fold(self, &mut own);
            }
        }
        self.count_loose(region);
    }
}
