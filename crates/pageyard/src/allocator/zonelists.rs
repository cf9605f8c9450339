//! The zonelists: their rewrite by hotplug, and the walks that see it (spec §2.5).

use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::sync::{
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::base::units::{NodeId, ZoneKind};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::zone::node::rebuild_orders;
use crate::zone::state::{ZONELIST_STALE, Zone};

/// Attempts of a request to walk zonelists that keep changing.
const MOST_WALKS: u32 = 16;
/// Polls of a request that waits for the zonelists to be complete again.
const MOST_PAUSES: u32 = 1 << 16;

impl<'a, C: Config> Yard<'a, C> {
    /// Rebuilds the zonelists after a zone has got its first memory or lost its last (§2.5).
    pub(crate) fn rebuild_zonelists(&self) {
        self.zonelist_changes.fetch_add(1, Relaxed);
        fence(Release);
        rebuild_orders(self.nodes, |id| {
            self.node(id).is_some_and(|n| n.zones.iter().any(Zone::is_populated))
        });
        for zone in self.zones {
            for kind in ZoneKind::ALL {
                zone.clear_flag(ZONELIST_STALE << kind as u32);
            }
            zone.nofragment.store(self.starts_nofragment(zone), Relaxed);
        }
        for local in self.cpu_zones {
            for kind in ZoneKind::ALL {
                let Some((quick, _)) = local.quick[kind as usize & 7] else { continue };
                let first = self.first_zone(local.node, kind);
                if !first.is_some_and(|zone| core::ptr::eq(zone, quick)) {
                    quick.set_flag(ZONELIST_STALE << kind as u32);
                }
            }
        }
        self.zonelist_changes.fetch_add(1, Release);
        self.update_grouping();
    }

    /// Returns a number that changes whenever the zonelists do. It is odd while a rewrite
    /// is in progress.
    ///
    /// Waits for a rewrite to end, which takes microseconds, and sleeps if the request may sleep.
    /// The wait is bounded, because the request may have interrupted the very thread that rewrites
    /// them. If the bound is reached, the returned number is odd.
    pub(crate) fn zonelists(&self, gfp: Gfp) -> u64 {
        // Orders the request's earlier reads of the lists before the load below.
        fence(Acquire);
        let mut changes = self.zonelist_changes.load(Acquire);
        for _ in 0..MOST_PAUSES {
            if changes.is_multiple_of(2) {
                break;
            }
            self.pause_if_allowed(gfp);
            changes = self.zonelist_changes.load(Acquire);
        }
        changes
    }

    /// Repeats a walk of the zonelists that found nothing while they were rewritten.
    pub(crate) fn walk<T>(&self, gfp: Gfp, mut walk: impl FnMut() -> Option<T>) -> Option<T> {
        let mut lists = self.zonelists(gfp);
        for _ in 0..MOST_WALKS {
            if let found @ Some(_) = walk() {
                return found;
            }
            let now = self.zonelists(gfp);
            if now == lists {
                break;
            }
            lists = now;
        }
        None
    }

    /// Pauses; sleeps if a request with these flags may sleep.
    pub(crate) fn pause_if_allowed(&self, gfp: Gfp) {
        if gfp.contains(Gfp::DIRECT_RECLAIM) {
            self.hooks.pause();
        } else {
            core::hint::spin_loop();
        }
    }

    pub(crate) fn first_zone(
        &self,
        node: NodeId,
        highest: ZoneKind,
    ) -> Option<&'a Zone<'a, C::Lock>> {
        let mut near = self.node(node)?.order().filter_map(|n| self.node(n));
        near.find_map(|n| n.zones_up_to(highest).iter().find(|z| z.is_populated()))
    }

    /// Returns whether requests that prefer this zone start with NOFRAGMENT (§2.7), by the rule of
    /// `Layout::starts_nofragment`.
    fn starts_nofragment(&self, zone: &Zone<'a, C::Lock>) -> bool {
        let beside = |z: &Zone<'a, C::Lock>| z.kind == ZoneKind::Dma32 && z.is_populated();
        zone.kind == ZoneKind::Normal
            && (self.nodes.len() == 1
                || self.node(zone.node).is_some_and(|n| n.zones.iter().any(beside)))
    }
}
