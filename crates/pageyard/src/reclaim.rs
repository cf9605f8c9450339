//! What an embedder's background reclaimer asks and says (spec §3.4, §3.7, §3.9, §7.2). The
//! reclaimer itself is the embedder's.

use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::gfp::AllocFlags;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::units::{Order, ZoneKind};
use crate::watermark::{HIGH, Supply};
use crate::yard::Yard;
use crate::zone::RECLAIM_ACTIVE;

/// The watermarks of a zone, from the lowest up (§3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Mark {
    /// Below it, only urgent requests are served.
    Min = 0,
    /// Below it, background reclaim is woken.
    Low = 1,
    /// At it, background reclaim stops.
    High = 2,
    /// At it, pages may move in from slower memory.
    Promo = 3,
}

impl<R: RawMutex, E: Platform, P: Policy> Yard<'_, R, E, P> {
    /// Whether a zone passes a mark, boost included, for ordinary requests of this order that may
    /// use zones up to `highest`: the safe form of §3.7, which sums the CPUs' parts of the counter
    /// where they could matter. `None` where there is no such zone.
    pub fn passes(
        &self,
        kind: ZoneKind,
        mark: Mark,
        order: Order,
        highest: ZoneKind,
    ) -> Option<bool> {
        let z = self.zone(kind)?;
        let mut supply = z.supply();
        if supply.free < z.drift_mark.load(Relaxed) {
            let parts: i64 = z.cpus.iter().map(|c| i64::from(c.diff())).sum();
            let free = z.nr_free.load(Relaxed).saturating_add(parts).max(0) as u64;
            supply = Supply { free, ..supply };
        }
        let (order, flags) = (order.get(), AllocFlags::WMARK_MIN);
        let mark = z.watermarks.effective(mark as usize);
        let has_block = || z.areas.has_block(order, flags);
        Some(z.watermarks.ok(order, mark, highest, flags, supply, has_block))
    }

    /// Background reclaim begins or ends in a zone (§7.2): per-CPU lists shrink meanwhile. Whether
    /// there is such a zone.
    pub fn set_reclaim_active(&self, kind: ZoneKind, active: bool) -> bool {
        let Some(z) = self.zone(kind) else { return false };
        if active {
            z.set_flag(RECLAIM_ACTIVE);
        } else {
            z.clear_flag(RECLAIM_ACTIVE);
        }
        true
    }

    /// Background reclaim is done in a zone whose watermarks were boosted by `seen` pages when it
    /// began (§3.4): that much of the boost is taken back. Whether there is such a zone.
    pub fn lower_boost(&self, kind: ZoneKind, seen: u64) -> bool {
        let Some(z) = self.zone(kind) else { return false };
        let _lock = z.lock.lock();
        z.watermarks.set_boost(z.watermarks.boost().saturating_sub(seen));
        z.refresh_ample::<P>();
        true
    }

    /// Pages that ordinary requests never get, in all zones together (§3.9).
    pub fn total_reserve(&self) -> u64 {
        let of_zone = |z: &crate::zone::Zone<'_, R>| {
            let reserves = z.watermarks.reserves();
            let most = reserves.iter().skip(z.kind as usize).max().copied().unwrap_or(0);
            z.managed.load(Relaxed).min(z.watermarks.effective(HIGH).saturating_add(most))
        };
        self.zones.iter().map(of_zone).sum()
    }
}
