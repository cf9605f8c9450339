//! The allocator behind the thread cache.

use std::sync::Arc;

use pageyard::policy::Policy;
use pageyard::{Gfp, NodeId, PAGE_SIZE, Pfn, Platform, ZoneId, ZoneKind};

use crate::free_batch::FreeBatch;
use crate::lock::HostLock;
use crate::magazine::{Kind, Ready};
use crate::raw_yard::RawYard;
use crate::thread_cache::CacheBackend;

/// A yard and the places of its zones.
pub(crate) struct Backend<P: Policy + 'static> {
    raw: Arc<RawYard<P, HostLock>>,
    zones: Vec<ZoneId>,
    /// By node: address and length of the memory that its threads may keep.
    near: Vec<(NodeId, (usize, usize))>,
}

impl<P: Policy + 'static> Backend<P> {
    pub(crate) fn new(raw: Arc<RawYard<P, HostLock>>) -> Self {
        let core = raw.core();
        let zones: Vec<ZoneId> = core.zone_ids().collect();
        let of = |id: ZoneId| {
            let zone = core.zone_info(id)?;
            let start = raw.region().address(zone.start, zone.spanned)?;
            Some((start.as_ptr().addr(), (zone.spanned * PAGE_SIZE) as usize))
        };
        let nodes = (0..core.nodes()).map(|n| NodeId(n as u16));
        let first = |node| Some((node, of(core.zonelist(node, ZoneKind::Movable).next()?)?));
        let near = nodes.filter_map(first).collect();
        Backend { zones, near, raw }
    }
}

impl<P: Policy + Send + Sync + 'static> CacheBackend for Backend<P> {
    fn alloc(&self, gfp: Gfp, to: &mut [Option<Ready>]) -> usize {
        let (region, platform) = (self.raw.region(), self.raw.core().hooks());
        // A page is prepared right before it is passed to `each`.
        let block = |pfn| Some(Ready::new(region.address(pfn, 1)?, platform.was_zeros(pfn)));
        let wanted = to.len();
        let mut n = 0;
        let each = |pfn| {
            if let Some(slot) = to.get_mut(n) {
                *slot = block(pfn);
                n += 1;
            }
        };
        // Errors are ignored here: the request itself reports them.
        let _ = self.raw.core().alloc_bulk_each(wanted, gfp, each);
        n
    }

    fn free(&self, kind: Kind, blocks: &[Option<Ready>]) {
        let mut batch = FreeBatch::new(&self.raw);
        for block in blocks.iter().flatten() {
            let Some(pfn) = self.raw.region().frame(block.start().as_ptr()) else { continue };
            if block.is_zero() {
                // The page was never allocated.
                self.raw.core().hooks().note_returned(&(pfn..Pfn(pfn.0 + 1)));
            }
            batch.push(pfn, kind.order());
        }
    }

    fn room(&self) -> i64 {
        let core = self.raw.core();
        // Others have been taken offline.
        let populated = self.zones.iter().filter(|&&zone| core.is_populated(zone));
        let (tightest, zones) = populated.fold((i64::MAX, 0), |(least, n), &zone| {
            (least.min(core.above_low(zone).unwrap_or(i64::MAX)), n + 1)
        });
        tightest.saturating_mul(zones)
    }

    fn near(&self) -> (usize, usize) {
        let here = match &self.near[..] {
            [one] => Some(one),
            several => {
                let core = self.raw.core();
                let node = core.node_of(core.hooks().cpu());
                several.iter().find(|(n, _)| Some(*n) == node)
            }
        };
        here.map_or((0, 0), |&(_, near)| near)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use pageyard::policy::{Packed, StaticPolicy};
    use pageyard::{Knobs, MAX_ORDER, Order, SECTION_PAGES, ZoneSpec};

    use super::*;
    use crate::maps::LayoutParts;
    use crate::memory::Region;
    use crate::topology::Topology;

    /// A yard with a section on each of two nodes.
    pub(crate) fn two_nodes() -> Arc<RawYard<Packed, HostLock>> {
        let region = Region::new(2 * SECTION_PAGES).unwrap();
        let start = |n: u64| Pfn(region.first().0 + n * SECTION_PAGES);
        let zone = |n: u16| ZoneSpec {
            kind: ZoneKind::Normal,
            node: NodeId(n),
            span: start(n.into())..start(u64::from(n) + 1),
        };
        let plan = LayoutParts {
            zones: [0, 1].map(zone).into(),
            usable: [start(0)..start(2)].into(),
            cpus: [NodeId(0)].into(),
            distances: [10, 20, 20, 10].into(),
            knobs: Knobs::default(),
        };
        let topology = Topology::detect().unwrap();
        let yard =
            RawYard::new(Packed::POLICY, plan, false, region, [0].into(), &topology, true, ());
        Arc::new(yard.unwrap())
    }

    /// Otherwise threads of many nodes would keep nothing, each node having room for its own alone.
    #[test]
    fn each_node_has_room_for_its_part_of_the_threads() {
        let raw = two_nodes();
        let core = raw.core();
        let backend = Backend::new(raw.clone());
        let [near, far] = [0, 1].map(|n| core.zone_ids().nth(n).unwrap());
        let above = |zone| core.above_low(zone).unwrap();
        assert_eq!(backend.room(), 2 * above(near).min(above(far)));
        let large = Order::new(MAX_ORDER).unwrap();
        while core.alloc_on(NodeId(1), large, Gfp::KERNEL | Gfp::THISNODE | Gfp::NOWARN).is_ok() {}
        assert_eq!(backend.room(), 2 * above(far));
    }

    /// It has no room at all, so threads would keep nothing.
    #[test]
    fn a_node_that_is_offline_does_not_count() {
        let raw = two_nodes();
        let core = raw.core();
        let [near, far] = [0, 1].map(|n| core.zone_ids().nth(n).unwrap());
        let info = core.zone_info(far).unwrap();
        core.offline(info.start..Pfn(info.start.0 + SECTION_PAGES)).unwrap();
        let room = Backend::new(raw.clone()).room();
        assert_eq!(room, core.above_low(near).unwrap());
        assert!(room > 0);
    }
}
