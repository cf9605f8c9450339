//! CPUs that come and go (spec §8.5). The layout names all there may ever be, and all are up at the
//! start.

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::CpuId;
use crate::embedder::config::Config;
use crate::pcp::tuning::Limits;
use crate::zone::node::CpuZones;

impl<'a, C: Config> Yard<'a, C> {
    /// Where a CPU is at home, if it is up.
    pub(crate) fn home(&self, cpu: CpuId) -> Option<&'a CpuZones<'a, C::Lock>> {
        self.cpu_zones.get(cpu.0 as usize).filter(|home| home.up.load(Relaxed))
    }

    /// Whether a CPU is up; `false` for one that the layout does not name.
    pub fn is_up(&self, cpu: CpuId) -> bool {
        self.home(cpu).is_some()
    }

    /// How many CPUs are up.
    pub fn cpus_up(&self) -> u32 {
        self.nodes.iter().map(|n| n.cpus.load(Relaxed)).sum()
    }

    /// A CPU is about to run (§8.5). Whether it was down.
    ///
    /// The limits of the per-CPU lists of *every* zone are computed for one CPU more than its node
    /// has, the node of this CPU or not, as the kernel does; zones of other nodes get their own
    /// again with the next [`cpu_dead`](Yard::cpu_dead) or change of a setting.
    pub fn cpu_up(&self, cpu: CpuId) -> bool {
        let Some(home) = self.cpu_zones.get(cpu.0 as usize) else { return false };
        let _writing = self.settings.lock();
        if home.up.load(Relaxed) {
            return false;
        }
        self.apply_limits(&self.knobs(), 1);
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            let _held = zone.limits_lock.lock();
            slot.up.store(true, Relaxed);
            slot.pageset.lock().tune(&self.rules().pcp, |t| t.limits = zone.current_limits());
        }
        if let Some(node) = self.node(home.node) {
            node.cpus.fetch_add(1, Relaxed);
        }
        home.up.store(true, Relaxed);
        self.apply_thresholds();
        true
    }

    /// A CPU runs no more (§8.5): its lists go back to the zones, its parts of the counters into
    /// them. Until it is [up](Yard::cpu_up) again, requests and frees in its name are refused as
    /// of an unknown CPU. Whether it was up.
    ///
    /// Nothing may be under way in its name when this is called, and it is another CPU that calls.
    pub fn cpu_dead(&self, cpu: CpuId) -> bool {
        let Some(home) = self.cpu_zones.get(cpu.0 as usize) else { return false };
        let _writing = self.settings.lock();
        if !home.up.swap(false, Relaxed) {
            return false;
        }
        if let Some(node) = self.node(home.node) {
            node.cpus.fetch_sub(1, Relaxed);
        }
        for zone in self.zones {
            let Some(slot) = zone.slot(cpu) else { continue };
            let _held = zone.limits_lock.lock();
            slot.up.store(false, Relaxed);
            // What is refused on the whole way must not be served on the quick one.
            slot.pageset.lock().tune(&self.rules().pcp, |t| t.limits = Limits::DISABLED);
        }
        self.drain_cpu(cpu, None);
        for zone in self.zones {
            if let Some(at) = self.at(zone, cpu) {
                let locked = at.lock();
                locked.fold(at.slot.diff());
            }
        }
        self.apply_limits(&self.knobs(), 0);
        self.apply_thresholds();
        true
    }
}
