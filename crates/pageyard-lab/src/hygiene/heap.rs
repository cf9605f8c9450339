//! The heap under the workload: requests, and the kernel threads that reclaim and compact in the
//! background.
//!
//! Reclaim frees page cache, oldest first, and reclaimable slabs in proportion; compaction moves
//! movable pages. Nothing is swapped.

use pageyard::policy::Rules;
use pageyard::{Gfp, Hooked, Kswapd, NodeId, Order, Platform as _, ReclaimTask, Yard, ZoneKind};

use super::blocks::Block;
use super::host::Host;
use crate::Lock;
use crate::record::Sink;
use crate::rng::Rng;

/// The zone that contains the heap.
pub(super) const ZONE: ZoneKind = ZoneKind::Normal;

/// The goal of one direct reclaim call (§7.3), and the minimum number of pages that a background
/// reclaim call scans.
const CLUSTER: u64 = 32;

/// The workload's requests and their outcome.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    /// Requests made.
    pub(super) requests: u64,
    /// Requests that failed, except those for huge pages.
    pub(super) failed: u64,
    /// Allocated blocks whose pageblock type differed from the requested type, whether from the
    /// zone's lists or from a per-CPU list filled before the pageblock changed its type.
    pub(super) mixed: u64,
    /// Pages of page cache and slabs that background reclaim freed.
    pub(super) background: u64,
}

/// What the yard is built of.
type Setup<'y, 'o, O> = Hooked<Lock, &'y Host<'y, 'o, O>, &'y Rules>;

/// One yard, the state of its background work, and the tally of the workload.
pub(super) struct Heap<'y, 'a, 'o, O: Sink> {
    pub(super) yard: &'y Yard<'a, Setup<'y, 'o, O>>,
    pub(super) host: &'y Host<'y, 'o, O>,
    pub(super) cpus: u32,
    kswapd: Kswapd<'y, 'a, Setup<'y, 'o, O>>,
    /// When background reclaim runs again; `None` if it sleeps until woken.
    reclaim_at: Option<u64>,
    /// When background compaction runs again; `None` if it sleeps until woken.
    compact_at: Option<u64>,
    /// Random numbers for the background alone, so that the workload's requests do not depend on
    /// it.
    rng: Rng,
    pub(super) tally: Tally,
}

impl<'y, 'a, 'o, O: Sink> Heap<'y, 'a, 'o, O> {
    pub(super) fn new(
        yard: &'y Yard<'a, Setup<'y, 'o, O>>,
        host: &'y Host<'y, 'o, O>,
        cpus: u32,
        seed: u64,
    ) -> Self {
        Heap {
            yard,
            host,
            cpus,
            kswapd: yard.kswapd(NodeId(0)).expect("a heap has one node"),
            reclaim_at: None,
            compact_at: Some(0),
            rng: Rng::new(seed ^ 0xbac6),
            tally: Tally::default(),
        }
    }

    /// Makes one request on the running CPU.
    pub(super) fn request(&mut self, order: Order, gfp: Gfp) -> Option<Block> {
        self.tally.requests += 1;
        let Ok(pfn) = self.yard.alloc(order, gfp) else {
            // A failed request for a huge page has a fallback, so it is not counted.
            self.tally.failed += u64::from(!gfp.contains(Gfp::NOMEMALLOC));
            return None;
        };
        if gfp.contains(Gfp::MOVABLE) {
            let _ = self.yard.set_movable(pfn, order, true);
        }
        self.tally.mixed += u64::from(self.yard.block_type(pfn) != gfp.migrate_type());
        Some(self.host.blocks.enter(pfn, order))
    }

    /// Allocates a page of the page cache; `temporary` if its file is temporary.
    pub(super) fn file_page(&mut self, gfp: Gfp, temporary: bool) {
        if let Some(block) = self.request(Order::ZERO, gfp) {
            self.host.cache_page(block, temporary);
        }
    }

    /// Allocates a slab page that reclaim may free.
    pub(super) fn reclaimable_slab(&mut self, order: Order, gfp: Gfp) {
        if let Some(block) = self.request(order, gfp) {
            self.host.reclaimable_slab(block);
        }
    }

    pub(super) fn free(&mut self, block: Block) {
        let (pfn, order) = self.host.blocks.remove(block);
        self.yard.free(pfn, order).expect("the workload frees what it owns");
    }

    /// Frees blocks one list at a time, as at the end of a process or of a file (§6.2).
    pub(super) fn free_all(&mut self, blocks: &[Block]) {
        self.host.free_all(blocks);
    }

    /// Runs the background threads that have work.
    pub(super) fn background(&mut self) {
        let now = self.host.now();
        if self.host.take_reclaim_wake() || self.reclaim_at.is_some_and(|at| now >= at) {
            self.host.run_on(self.rng.below(self.cpus as usize) as u32);
            self.reclaim(now);
        }
        if self.host.take_compaction_wake() || self.compact_at.is_some_and(|at| now >= at) {
            self.host.run_on(self.rng.below(self.cpus as usize) as u32);
            let step = self.yard.compact_background(NodeId(0));
            self.compact_at = step.sleep.map(|ns| now + ns);
        }
    }

    /// Runs background reclaim until it naps or sleeps. At each priority it scans half of the page
    /// cache, a quarter, and so on, but at least a cluster.
    fn reclaim(&mut self, now: u64) {
        let mut freed = 0;
        loop {
            match self.kswapd.next(freed) {
                ReclaimTask::Reclaim(job) => {
                    let most = (self.host.cached() >> job.priority).max(CLUSTER);
                    freed = self.host.free_oldest(job.pages.min(most));
                    self.tally.background += freed;
                }
                ReclaimTask::Nap(0) => freed = 0,
                ReclaimTask::Nap(ns) => {
                    self.reclaim_at = Some(now + ns);
                    return;
                }
                ReclaimTask::Sleep => {
                    self.reclaim_at = None;
                    return;
                }
            }
        }
    }
}
