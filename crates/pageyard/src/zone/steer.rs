//! Steering (a proposal of 2026, from published rules): requests that are not movable claim pageblocks
//! in 1 GiB regions that hold such pages already, so that other regions stay free of them.
//!
//! A region is *tainted* if one of its pageblocks is unmovable, reclaimable or reserved for urgent
//! requests. That is read from the labels, under the zone lock, when a request has to claim: once for
//! each pageblock that changes its type. The zone remembers where the last claim was. All regions are
//! looked through only when that one has no free pageblock left.

use core::ops::Range;

use lock_api::RawMutex;

use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{self, HighAtomic, Reclaimable, Unmovable};
use crate::base::units::{MAX_ORDER, PAGEBLOCK_ORDER, each_block};
use crate::embedder::config::Config;
use crate::zone::at::Locked;
use crate::zone::mobility::Other;
use crate::zone::state::Zone;

/// Pages of a region: 1 GiB, at multiples of its size.
const REGION_PAGES: u64 = 1 << 18;

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the zone's part of the region that contains a frame.
    fn region_around(&self, idx: u32) -> Range<u32> {
        let from = (self.base + u64::from(idx)) & !(REGION_PAGES - 1);
        let end = (from + REGION_PAGES).saturating_sub(self.base);
        let index = |n: u64| u32::try_from(n).map_or(self.map.len(), |n| n.min(self.map.len()));
        index(from.saturating_sub(self.base))..index(end)
    }

    /// Iterates over all regions of the zone once, from the one that contains a frame.
    pub(crate) fn regions_from(&self, idx: u32) -> impl Iterator<Item = Range<u32>> {
        let first = self.region_around(idx);
        let next = |region: &Range<u32>| {
            self.region_around(if region.end < self.map.len() { region.end } else { 0 })
        };
        let mut at = Some(first.clone());
        core::iter::from_fn(move || {
            let region = at.take()?;
            at = Some(next(&region)).filter(|next| *next != first);
            Some(region)
        })
    }

    /// Returns whether a region holds pageblocks of types that do not move.
    pub(crate) fn is_tainted_region(&self, region: &Range<u32>) -> bool {
        each_block(region.clone()).any(|block| {
            let t = self.map.own_type(block);
            !self.map.block_is_absent(block) && matches!(t, Unmovable | Reclaimable | HighAtomic)
        })
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Returns a free block of whole pageblocks, of at least this order, that a request of type
    /// `start` may claim in a tainted region: its index, its order and its type.
    #[cold]
    #[inline(never)]
    pub(super) fn steered(&self, order: u8, start: MigrateType) -> Option<Other> {
        let zone = self.zone;
        let lowest = order.max(PAGEBLOCK_ORDER);
        let types = start.fallbacks();
        let any = |o| types.iter().any(|&t| zone.areas.first(o, t).is_some());
        if !(lowest..=MAX_ORDER).any(any) {
            return None;
        }
        let at = |block: u32| {
            let state = zone.map.frame(block).state();
            let fits = state.kind() == Kind::Free && state.order() >= lowest;
            let t = state.migrate_type();
            let other = Other { idx: block, order: state.order(), migrate_type: t };
            (fits && types.contains(&t)).then_some(other)
        };
        let tainted = |region: &Range<u32>| zone.is_tainted_region(region);
        let mut regions = zone.regions_from(zone.steered_to.load(Relaxed)).filter(tainted);
        regions.find_map(|region| each_block(region).find_map(at))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::base::frame::{Frame, Map};

    #[test]
    fn regions_are_aligned_frames_not_indices() {
        let half = (REGION_PAGES / 2) as u32;
        let frames: Vec<Frame> = (0..4 * half + 1024).map(|_| Frame::new()).collect();
        let mut zone = Zone::<spin::mutex::SpinMutex<()>>::new();
        zone.base = REGION_PAGES + REGION_PAGES / 2;
        zone.map = Map::new(&frames, &[]);
        let all = [0..half, half..3 * half, 3 * half..4 * half + 1024];
        assert!(zone.regions_from(0).eq(all.clone()));
        let [first, second, third] = all;
        assert!(zone.regions_from(half + 1).eq([second, third, first]));
    }
}
