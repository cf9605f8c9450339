//! The events of `vmstat`, summed over the zones (spec §9.1).

use lock_api::RawMutex;

use crate::allocator::vm_events::{EVENTS, VmEvent, VmEvents};
use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::embedder::config::Config;
use crate::zone::compaction_state::Count;
use crate::zone::state::Zone;

impl<C: Config> Yard<'_, C> {
    /// Counts an event `n` times. For events of the embedder: reclaim, OOM kills, huge-page faults.
    /// The allocator counts its own events itself.
    pub fn count_event(&self, event: VmEvent, n: u64) {
        if let Some(count) = self.events.0.get(event as usize) {
            count.fetch_add(n, Relaxed);
        }
    }

    /// Returns the `vmstat` events (§9.1) so far, summed over all zones and CPUs. Pages that were
    /// free at the start do not count as freed.
    pub fn vm_events(&self) -> VmEvents {
        let mut events = VmEvents([0; EVENTS]);
        for (n, &event) in events.0.iter_mut().zip(VmEvent::ALL) {
            *n = self.vm_event(event);
        }
        events
    }

    /// Returns how often one event has happened so far, as in [`vm_events`](Yard::vm_events).
    pub fn vm_event(&self, event: VmEvent) -> u64 {
        let own = self.events.0.get(event as usize).map_or(0, |n| n.load(Relaxed));
        self.zones.iter().map(|z| z.vm_event(event)).fold(own, u64::saturating_add)
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the zone's share of an event that is counted per zone or per CPU.
    fn vm_event(&self, event: VmEvent) -> u64 {
        let count = match event {
            VmEvent::CompactMigrateScanned => Count::MigrateScanned,
            VmEvent::CompactFreeScanned => Count::FreeScanned,
            VmEvent::CompactIsolated => Count::Isolated,
            VmEvent::CompactStall => Count::Stall,
            VmEvent::CompactFail => Count::Fail,
            VmEvent::CompactSuccess => Count::Success,
            VmEvent::CompactDaemonWake => Count::DaemonWake,
            VmEvent::CompactDaemonMigrateScanned => Count::DaemonMigrateScanned,
            VmEvent::CompactDaemonFreeScanned => Count::DaemonFreeScanned,
            VmEvent::PgFree => return self.cpus.iter().map(|c| c.counters.pages_back()).sum(),
            _ if event == VmEvent::pgalloc(self.kind) => {
                return self.cpus.iter().map(|c| c.counters.pages_out()).sum();
            }
            _ => return 0,
        };
        self.compaction.get(count)
    }
}
