//! Pageblocks reserved for high-order atomic requests (spec §3.8).

use crate::allocator::yard::Yard;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MAX_ORDER, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::base::watermark::highatomic_cap;
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::packed::Region;
use crate::request::alloc::Request;
use crate::zone::at::{At, Locked};
use crate::zone::state::Zone;

impl<C: Config> At<'_, '_, C> {
    /// Reserves the pageblock that served a high-order atomic request, up to about one percent of
    /// the zone.
    #[cold]
    pub(crate) fn reserve_highatomic(&self, idx: u32, order: u8) {
        let z = self.zone;
        let cap = highatomic_cap(z.managed.load(Relaxed));
        if z.reserved_highatomic.load(Relaxed) >= cap {
            return;
        }
        if let Some(region) = z.region() {
            return self.reserve_packed(region, idx, order, cap);
        }
        let zone = self.lock();
        // Checked again under the lock: another CPU may have reserved a block in the meantime.
        let reserved = z.reserved_highatomic.load(Relaxed);
        let t = z.map.block_type(idx);
        // All its pageblocks must be mergeable: one may have been isolated since the block was
        // taken.
        let end = idx.saturating_add(1 << order);
        let mut blocks = (idx..end).step_by(PAGEBLOCK_PAGES as usize);
        if reserved >= cap || !blocks.all(|b| z.map.block_type(b).is_mergeable()) {
            return;
        }
        let pages = if order < PAGEBLOCK_ORDER {
            if zone.convert(idx, t, MigrateType::HighAtomic).is_none() {
                return;
            }
            PAGEBLOCK_PAGES
        } else {
            z.map.set_range_type(idx, order, MigrateType::HighAtomic);
            1 << order
        };
        z.reserved_highatomic.store(reserved + u64::from(pages), Relaxed);
        z.counters.highatomic_reserved.add(1);
    }
}

/// On the packed engine a reserved pageblock is set apart.
impl<'a, C: Config> At<'_, 'a, C> {
    /// A block of whole pageblocks reserves none: it is in use as a whole.
    fn reserve_packed(&self, region: &Region<'a, C::Lock>, idx: u32, order: u8, cap: u64) {
        if order >= PAGEBLOCK_ORDER {
            return;
        }
        let block = idx / PAGEBLOCK_PAGES;
        self.release_packed(block);
        let zone = self.lock();
        let reserved = self.zone.reserved_highatomic.load(Relaxed);
        let is_ordinary = self.zone.block_type(idx).is_mergeable();
        if reserved >= cap || !is_ordinary || !zone.set_apart(region, block) {
            return;
        }
        let reserved = reserved.saturating_add(PAGEBLOCK_PAGES.into());
        self.zone.reserved_highatomic.store(reserved, Relaxed);
        self.zone.counters.highatomic_reserved.add(1);
        self.zone.refresh_cached_mark(self.rules());
    }
}

impl<'a, C: Config> Locked<'_, 'a, C> {
    /// Sets an ordinary pageblock apart. Returns false for one that another CPU refills from.
    fn set_apart(&self, region: &Region<'a, C::Lock>, block: u32) -> bool {
        let inside = self.zone.whole_block(block * PAGEBLOCK_PAGES).is_some();
        let done = inside && region.isolate_block(block);
        if done {
            region.unisolate_block(block, MigrateType::HighAtomic);
        }
        self.zone.count_loose(region);
        done
    }

    /// Turns the first reserved pageblock with a free page back to type `t`.
    fn unreserve_packed(&self, region: &Region<'a, C::Lock>, t: MigrateType) -> bool {
        let mut reserved = region.blocks.set_apart(MigrateType::HighAtomic).listed();
        let Some(block) = reserved.find(|&block| region.blocks.free_in(block) > 0) else {
            return false;
        };
        if !region.isolate_block(block) {
            return false;
        }
        region.unisolate_block(block, t);
        self.zone.count_loose(region);
        self.forget_reserved();
        self.zone.counters.highatomic_unreserved.add(1);
        true
    }

    /// Notes that a pageblock has left the reserve.
    pub(crate) fn forget_reserved(&self) {
        self.zone.shrink_reserve(1);
        self.zone.refresh_cached_mark(self.rules());
    }
}

impl<C: Config> Locked<'_, '_, C> {
    fn unreserve(&self, t: MigrateType, force: bool) -> bool {
        let z = self.zone;
        let reserved = z.reserved_highatomic.load(Relaxed);
        if !force && reserved <= PAGEBLOCK_PAGES.into() {
            return false;
        }
        if let Some(region) = z.region() {
            return self.unreserve_packed(region, t);
        }
        for o in 0..=MAX_ORDER {
            let Some(idx) = z.areas.first(o, MigrateType::HighAtomic) else { continue };
            z.shrink_reserve(1 << o.saturating_sub(PAGEBLOCK_ORDER));
            if o < PAGEBLOCK_ORDER {
                if self.convert(idx, MigrateType::HighAtomic, t).unwrap_or(0) == 0 {
                    continue;
                }
            } else {
                self.forget_report(idx, o, false);
                z.areas.move_to(&z.map, idx, o, MigrateType::HighAtomic, t);
                self.account(-(1 << o), MigrateType::HighAtomic);
                self.account(1 << o, t);
                z.map.set_range_type(idx, o, t);
            }
            z.counters.highatomic_unreserved.add(1);
            return true;
        }
        false
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Turns one reserved pageblock with a free page back to type `t`. Without `force`, each zone
    /// keeps one reserved block. Returns whether a block was found; always `false` for a type that
    /// requests do not have.
    pub fn unreserve_highatomic(&self, t: MigrateType, force: bool) -> bool {
        if !t.is_mergeable() {
            return false;
        }
        let cpu = self.hooks.cpu();
        self.zones.iter().any(|z| self.unreserve(z, cpu, t, force))
    }

    /// Like [`unreserve_highatomic`](Self::unreserve_highatomic), for the zones and type of a
    /// request (§2.10).
    pub(crate) fn unreserve_for(&self, req: &Request, force: bool) -> bool {
        self.zones_for(req).any(|z| self.unreserve(z, req.cpu, req.migrate_type, force))
    }

    fn unreserve(&self, zone: &Zone<'a, C::Lock>, cpu: CpuId, t: MigrateType, force: bool) -> bool {
        let at = self.at(zone, cpu);
        at.is_some_and(|at| at.lock().unreserve(t, force))
    }
}
