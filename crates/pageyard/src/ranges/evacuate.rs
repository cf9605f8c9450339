//! Evacuation of tainted regions under a policy that steers (see [`steer`](crate::zone::steer)): keeps
//! a few pageblocks free where requests that are not movable will look for them.

use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::gfp::Gfp;
use crate::base::units::{MigrateType, NodeId, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, each_block};
use crate::base::unwind::Finally;
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::ranges::isolate::Purpose;
use crate::zone::at::At;
use crate::zone::state::Zone;

/// A region is evacuated when it has fewer free pageblocks than this, until it has as many.
const ENOUGH: u32 = 2;
/// Pageblocks of one region that are tried in one step.
const TRIES: usize = 4;

impl<'a, C: Config> Yard<'a, C> {
    /// Migrates movable blocks out of each tainted region of a node with at most one free pageblock,
    /// until it has two.
    #[cold]
    #[inline(never)]
    pub(crate) fn evacuate_regions(&self, node: NodeId) {
        let cpu = self.hooks.cpu();
        let zones = self.zones.iter().filter(|z| z.node == node && !z.is_packed());
        for at in zones.filter_map(|zone| self.at(zone, cpu)) {
            let zone = at.zone;
            let tainted = |region: &Range<u32>| zone.is_tainted_region(region);
            zone.regions_from(0).filter(tainted).for_each(|region| self.evacuate(&at, &region));
        }
    }

    fn evacuate(&self, at: &At<'_, 'a, C>, region: &Range<u32>) {
        let mut tried = [None; TRIES];
        for n in 0..TRIES {
            if at.zone.free_pageblocks(region) >= ENOUGH {
                return;
            }
            let Some(block) = at.zone.emptiest(region, &tried) else { return };
            if let Some(slot) = tried.get_mut(n) {
                *slot = Some(block);
            }
            let frames = block..block.saturating_add(PAGEBLOCK_PAGES);
            let t = MigrateType::Movable;
            if at.isolate(frames.clone(), t, Purpose::Use).is_err() {
                continue;
            }
            // Ends the isolation also if a hook panics. The pageblock's type may have changed since it
            // was chosen: it gets its own back.
            let _isolation = Finally(|| {
                at.lock().unisolate_block(block, at.zone.map.own_type(block));
            });
            self.drain_zone(at);
            // Without room for its pages, or with one that stays, the pageblock is used as before.
            let _ = self.migrate_range(at, &frames, Gfp::NOWARN);
        }
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns how many pageblocks of a region are wholly free. Reads without a lock.
    fn free_pageblocks(&self, region: &Range<u32>) -> u32 {
        let free = |block: u32| {
            let state = self.map.frame(block).state();
            let is_free = state.kind() == Kind::Free && state.order() >= PAGEBLOCK_ORDER;
            if is_free { 1 << (state.order() - PAGEBLOCK_ORDER) } else { 0 }
        };
        each_block(region.clone()).map(free).sum()
    }

    /// Returns the movable pageblock of a region with the fewest pages in use, if they can all move.
    /// Passes over those already tried. Reads without a lock: isolation checks again.
    fn emptiest(&self, region: &Range<u32>, tried: &[Option<u32>]) -> Option<u32> {
        let used = |block: u32| {
            let frames = block..block.saturating_add(PAGEBLOCK_PAGES);
            let candidate = self.map.block_type(block) == MigrateType::Movable
                && !self.map.block_is_absent(block)
                && !tried.contains(&Some(block))
                && self.unmovable_in(frames.clone(), MigrateType::Movable, Purpose::Use).is_none();
            let used = candidate.then(|| self.pages_in_use(frames))?;
            (used > 0).then_some((used, block))
        };
        each_block(region.clone()).filter_map(used).min().map(|(_, block)| block)
    }

    fn pages_in_use(&self, frames: Range<u32>) -> u32 {
        let (mut idx, mut used) = (frames.start, 0);
        while idx < frames.end {
            let state = self.map.frame(idx).state();
            let pages = if state.kind() == Kind::Tail { 1 } else { 1 << state.order() };
            if matches!(state.kind(), Kind::Allocated | Kind::BeingFreed) {
                used += pages;
            }
            idx = idx.saturating_add(pages);
        }
        used
    }
}
