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
        let above = |&zone: &ZoneId| self.raw.core().above_low(zone);
        self.zones.iter().filter_map(above).min().unwrap_or(0)
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
