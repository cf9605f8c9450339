//! The heap under the workload: requests, and the reclaim of page cache and slabs that the kernel
//! would do for them.
//!
//! What reclaim frees is the workload's own page cache, oldest first, as its marks are missed:
//! background reclaim to the high mark (§7.2), or 32 pages at a time for a request that failed
//! (§7.3). Nothing is swapped and nothing is moved: there is no compaction.

use std::collections::VecDeque;

use pageyard::policy::Policy;
use pageyard::{Gfp, Mark, Order, Pfn, Yard, ZoneKind};

use super::host::Host;
use crate::Lock;
use crate::record::Observer;
use crate::rng::Rng;

/// The zone that is the heap.
pub(super) const ZONE: ZoneKind = ZoneKind::Normal;

/// Pages that one call of direct reclaim is to free (§7.3).
const DIRECT_RECLAIM: usize = 32;
/// Direct reclaims for one request before it fails (§2.10: more than 16 without progress).
const RETRIES: u32 = 16;
/// A page at the old end of the page cache was used meanwhile and goes round once more. Assumed;
/// it is what keeps reclaim from freeing memory in the order in which it was filled.
const REFERENCED: f64 = 0.25;
/// Blocks that are freed by one call (§6.2).
const BATCH: usize = 31;

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
    /// Pages of page cache and slabs that reclaim freed.
    pub(super) reclaimed: u64,
}

/// One yard, and what lies in it until memory gets short.
pub(super) struct Heap<'y, 'a, 'o, P: Policy, O: Observer> {
    pub(super) yard: &'y Yard<'a, Lock, &'y Host<'o, O>, P>,
    pub(super) host: &'y Host<'o, O>,
    pub(super) cpus: u32,
    /// Page cache, from the oldest page.
    cache: VecDeque<Pfn>,
    /// Slab pages whose objects can be dropped.
    slabs: Vec<(Pfn, Order)>,
    slabs_due: f64,
    /// Draws for reclaim alone, so that what the workload asks for does not depend on it.
    rng: Rng,
    pub(super) tally: Tally,
}

impl<'y, 'a, 'o, P: Policy, O: Observer> Heap<'y, 'a, 'o, P, O> {
    pub(super) fn new(
        yard: &'y Yard<'a, Lock, &'y Host<'o, O>, P>,
        host: &'y Host<'o, O>,
        cpus: u32,
        seed: u64,
    ) -> Self {
        Heap {
            yard,
            host,
            cpus,
            cache: VecDeque::new(),
            slabs: Vec::new(),
            slabs_due: 0.0,
            rng: Rng(seed ^ 0x5ec1_a1e0),
            tally: Tally::default(),
        }
    }

    /// One request on the CPU that runs, with reclaim where it may be had.
    pub(super) fn request(&mut self, order: Order, gfp: Gfp) -> Option<Pfn> {
        self.tally.requests += 1;
        let mut answer = self.yard.alloc(order, gfp).ok();
        let mut tries = 0;
        while answer.is_none() && gfp.contains(Gfp::DIRECT_RECLAIM) && tries < RETRIES {
            if self.reclaim(DIRECT_RECLAIM) == 0 {
                break;
            }
            tries += 1;
            answer = self.yard.alloc(order, gfp).ok();
        }
        let Some(pfn) = answer else {
            // Who asks for a huge page has a second choice.
            self.tally.failed += u64::from(!gfp.contains(Gfp::NOMEMALLOC));
            return None;
        };
        let movable = gfp.contains(Gfp::MOVABLE);
        if movable {
            let _ = self.yard.set_movable(pfn, order, true);
        }
        self.tally.mixed += u64::from(self.yard.block_type(pfn) != gfp.migrate_type());
        Some(pfn)
    }

    /// A page of the page cache.
    pub(super) fn read_page(&mut self, gfp: Gfp) {
        if let Some(pfn) = self.request(Order::ZERO, gfp) {
            self.cache.push_back(pfn);
        }
    }

    /// A slab page that reclaim may have.
    pub(super) fn reclaimable_slab(&mut self, order: Order, gfp: Gfp) {
        if let Some(pfn) = self.request(order, gfp) {
            self.slabs.push((pfn, order));
        }
    }

    pub(super) fn free(&mut self, pfn: Pfn, order: Order) {
        self.yard.free(pfn, order).expect("the workload frees what it owns");
    }

    /// Frees blocks as the end of a process or of a file does: a list at a time (§6.2).
    pub(super) fn free_all(&mut self, blocks: &[(Pfn, Order)]) {
        self.yard.free_batch(blocks).expect("the workload frees what it owns");
    }

    /// Background reclaim, if it was woken: to the high mark, boost included (§7.2).
    pub(super) fn background(&mut self) {
        if !self.host.take_wake() {
            return;
        }
        let seen = self.yard.zone_info(ZONE).map_or(0, |z| z.boost);
        self.host.run_on(self.rng.below(self.cpus as usize) as u32);
        self.yard.set_reclaim_active(ZONE, true);
        while self.yard.passes(ZONE, Mark::High, Order::ZERO, ZoneKind::Movable) == Some(false)
            && self.reclaim(BATCH) > 0
        {}
        self.yard.set_reclaim_active(ZONE, false);
        self.yard.lower_boost(ZONE, seen);
        self.host.take_wake();
    }

    /// Frees about so many of the oldest pages of the cache, and slabs in proportion; how many
    /// pages that were.
    fn reclaim(&mut self, pages: usize) -> u64 {
        let slabs_per_page = self.slabs.len() as f64 / self.cache.len().max(1) as f64;
        let mut batch = Vec::with_capacity(pages);
        let mut looked_at = self.cache.len();
        while batch.len() < pages && looked_at > 0 {
            let Some(pfn) = self.cache.pop_front() else { break };
            looked_at -= 1;
            if self.rng.happens(REFERENCED) {
                self.cache.push_back(pfn);
            } else {
                batch.push((pfn, Order::ZERO));
            }
        }
        self.slabs_due += batch.len() as f64 * slabs_per_page;
        while self.slabs_due >= 1.0 && !self.slabs.is_empty() {
            self.slabs_due -= 1.0;
            let at = self.rng.below(self.slabs.len());
            batch.push(self.slabs.swap_remove(at));
        }
        self.free_all(&batch);
        let freed = batch.iter().map(|b| u64::from(b.1.pages())).sum();
        self.tally.reclaimed += freed;
        freed
    }
}
