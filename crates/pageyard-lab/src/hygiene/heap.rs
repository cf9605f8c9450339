//! The heap under the workload: requests, and the kernel's threads that reclaim and compact in the
//! background.
//!
//! Reclaim frees page cache, oldest first, and reclaimable slabs in proportion; compaction moves
//! what is movable. Nothing is swapped.

use pageyard::policy::Policy;
use pageyard::{Gfp, Hooked, Kswapd, NodeId, Order, Platform as _, ReclaimTask, Yard, ZoneKind};

use super::blocks::Block;
use super::host::Host;
use crate::Lock;
use crate::record::Sink;
use crate::rng::Rng;

/// The zone that is the heap.
pub(super) const ZONE: ZoneKind = ZoneKind::Normal;

/// The goal of one call of direct reclaim (§7.3), and the least that a call of background reclaim
/// looks at.
const CLUSTER: u64 = 32;

/// What the workload asked for and got.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    /// Requests made.
    pub(super) requests: u64,
    /// Requests that failed, huge ones apart.
    pub(super) failed: u64,
    /// Blocks handed out whose pageblock had another type than was asked for, wherever they came
    /// from: the zone's lists, or a per-CPU list filled before the pageblock changed its type.
    pub(super) mixed: u64,
    /// Pages of page cache and slabs that background reclaim freed.
    pub(super) background: u64,
}

/// One yard, what drives its background work, and what the workload got from it.
pub(super) struct Heap<'y, 'a, 'o, P: Policy, O: Sink> {
    pub(super) yard: &'y Yard<'a, Hooked<Lock, &'y Host<'y, 'o, O>, P>>,
    pub(super) host: &'y Host<'y, 'o, O>,
    pub(super) cpus: u32,
    kswapd: Kswapd<'y, 'a, Hooked<Lock, &'y Host<'y, 'o, O>, P>>,
    /// When background reclaim looks again; `None`: when it is woken.
    reclaim_at: Option<u64>,
    /// The same for background compaction.
    compact_at: Option<u64>,
    /// Draws for the background alone, so that what the workload asks for does not depend on it.
    rng: Rng,
    pub(super) tally: Tally,
}

impl<'y, 'a, 'o, P: Policy, O: Sink> Heap<'y, 'a, 'o, P, O> {
    pub(super) fn new(
        yard: &'y Yard<'a, Hooked<Lock, &'y Host<'y, 'o, O>, P>>,
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
            rng: Rng(seed ^ 0xbac6),
            tally: Tally::default(),
        }
    }

    /// One request on the CPU that runs.
    pub(super) fn request(&mut self, order: Order, gfp: Gfp) -> Option<Block> {
        self.tally.requests += 1;
        let Ok(pfn) = self.yard.alloc(order, gfp) else {
            // Who asks for a huge page has a second choice.
            self.tally.failed += u64::from(!gfp.contains(Gfp::NOMEMALLOC));
            return None;
        };
        if gfp.contains(Gfp::MOVABLE) {
            let _ = self.yard.set_movable(pfn, order, true);
        }
        self.tally.mixed += u64::from(self.yard.block_type(pfn) != gfp.migrate_type());
        Some(self.host.blocks.enter(pfn, order))
    }

    /// A page of the page cache, and whether its file is a temporary one.
    pub(super) fn file_page(&mut self, gfp: Gfp, temporary: bool) {
        if let Some(block) = self.request(Order::ZERO, gfp) {
            self.host.cache_page(block, temporary);
        }
    }

    /// A slab page that reclaim may have.
    pub(super) fn reclaimable_slab(&mut self, order: Order, gfp: Gfp) {
        if let Some(block) = self.request(order, gfp) {
            self.host.reclaimable_slab(block);
        }
    }

    pub(super) fn free(&mut self, block: Block) {
        let (pfn, order) = self.host.blocks.remove(block);
        self.yard.free(pfn, order).expect("the workload frees what it owns");
    }

    /// Frees blocks as the end of a process or of a file does: a list at a time (§6.2).
    pub(super) fn free_all(&mut self, blocks: &[Block]) {
        self.host.free_all(blocks);
    }

    /// The background threads get a CPU, if they have something to do.
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

    /// Background reclaim until it naps or sleeps. At each priority it looks at half of the page
    /// cache, a quarter, and so on, but never at less than a cluster.
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
