//! CPU hotplug (spec §8.5). The layout names every CPU that may ever be online; all are online at
//! the start.

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::CpuId;
use crate::embedder::config::Config;
use crate::pcp::tuning::Limits;
use crate::zone::node::CpuZones;

impl<'a, C: Config> Yard<'a, C> {
    /// Returns the preferred zones of a CPU, if it is online.
    pub(crate) fn cpu_zones(&self, cpu: CpuId) -> Option<&'a CpuZones<'a, C::Lock>> {
        self.cpu_zones.get(cpu.0 as usize).filter(|local| local.up.load(Relaxed))
    }

    /// Returns whether a CPU is online; `false` for a CPU that the layout does not name.
    pub fn is_up(&self, cpu: CpuId) -> bool {
        self.cpu_zones(cpu).is_some()
    }

    /// Returns the number of online CPUs.
    pub fn cpus_up(&self) -> u32 {
        self.nodes.iter().map(|n| n.cpus.load(Relaxed)).sum()
    }

    /// Brings a CPU online (§8.5). Call it before the CPU runs. Returns whether the CPU was
    /// offline.
    ///
    /// As in the kernel, the limits of the per-CPU lists of *every* zone are computed for one CPU
    /// more than the zone's node has, even on other nodes. Zones of other nodes get their own
    /// limits back at the next [`cpu_dead`](Yard::cpu_dead) or change of a setting.
    pub fn cpu_up(&self, cpu: CpuId) -> bool {
        let Some(local) = self.cpu_zones.get(cpu.0 as usize) else { return false };
        let _writing = self.settings.lock();
        if local.up.load(Relaxed) {
            return false;
        }
        self.apply_limits(&self.knobs(), 1);
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            let _held = zone.limits_lock.lock();
            slot.up.store(true, Relaxed);
            slot.pageset.lock().tune(&self.rules().pcp, |t| t.limits = zone.current_limits());
            zone.enable_packed(cpu, zone.disabled.load(Relaxed) == 0);
        }
        if let Some(node) = self.node(local.node) {
            node.cpus.fetch_add(1, Relaxed);
        }
        local.up.store(true, Relaxed);
        self.apply_thresholds();
        true
    }

    /// Takes a CPU offline (§8.5): drains its lists to the zones and folds its counters. Until it
    /// is [online](Yard::cpu_up) again, requests and frees from it fail like those of an unknown
    /// CPU. Returns whether it was online.
    ///
    /// Call it from another CPU, with no call in progress on behalf of this one.
    pub fn cpu_dead(&self, cpu: CpuId) -> bool {
        let Some(local) = self.cpu_zones.get(cpu.0 as usize) else { return false };
        let _writing = self.settings.lock();
        if !local.up.swap(false, Relaxed) {
            return false;
        }
        if let Some(node) = self.node(local.node) {
            node.cpus.fetch_sub(1, Relaxed);
        }
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            let _held = zone.limits_lock.lock();
            slot.up.store(false, Relaxed);
            // The fast path must not serve what the full path rejects.
            slot.pageset.lock().tune(&self.rules().pcp, |t| t.limits = Limits::DISABLED);
            zone.enable_packed(cpu, false);
            zone.drain_offline_domain(cpu);
        }
        self.drain_cpu(cpu, None);
        for zone in self.zones.iter().filter(|z| !z.is_packed()) {
            if let Some(at) = self.at(zone, cpu) {
                at.disown_all(cpu);
                at.lock().fold_all();
            }
        }
        self.apply_limits(&self.knobs(), 0);
        self.apply_thresholds();
        true
    }
}
