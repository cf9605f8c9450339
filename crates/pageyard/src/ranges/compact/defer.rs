//! Defers compaction of a zone after failures, and ends the deferral after a success (spec §7.6).

use crate::base::units::Order;
use crate::embedder::compact_events::CompactEvent;
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::zone::at::At;

impl<C: Config> At<'_, '_, C> {
    /// Returns whether to skip the zone this time.
    #[inline(never)]
    pub(super) fn is_deferred(&self, order: Order) -> bool {
        let (deferred, deferral) = self.zone.compaction.deferral.change(|d| d.is_deferred(order));
        if deferred {
            self.tell(CompactEvent::Deferred { zone: self.zone.id(), order, deferral });
        }
        deferred
    }

    #[inline(never)]
    pub(super) fn defer(&self, order: Order) {
        let ((), deferral) = self.zone.compaction.deferral.change(|d| d.failed(order));
        self.tell(CompactEvent::DeferCompaction { zone: self.zone.id(), order, deferral });
    }

    #[inline(never)]
    pub(super) fn undefer(&self, order: Order, served: bool) {
        let ((), deferral) = self.zone.compaction.deferral.change(|d| d.succeeded(order, served));
        self.tell(CompactEvent::DeferReset { zone: self.zone.id(), order, deferral });
    }

    pub(super) fn tell(&self, event: CompactEvent) {
        self.hooks.event(self.cpu, Event::Compact(event));
    }
}
