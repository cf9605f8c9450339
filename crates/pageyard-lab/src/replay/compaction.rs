//! What the kernel's compaction did, done to the replayed allocator (spec §7.4): blocks that move, blocks
//! that it makes for a request, and a compaction of our own where a request finds no block.

use pageyard::{Config, Gfp, Order, Pfn, Place, Priority};

use super::driver::{Driver, Seat};
use super::map::Taken;
use super::plan::Op;
use super::restore::order_of;

impl<C: Config, S: Seat> Driver<'_, '_, C, S> {
    /// Compacts for a request that the kernel served and that finds no block here: the kernel's
    /// compaction had made it. Returns whether the request was served.
    #[cold]
    pub(super) fn compact(&mut self, zone: usize, op: &Op) -> bool {
        if op.order == 0 || self.deferred[zone].is_deferred() {
            return false;
        }
        let order = order_of(op.order);
        let flags = self.flags(zone, op.migratetype, op.gfp);
        let (done, moves) = self.near(zone, |driver| {
            let compact = || driver.yard.compact_for(order, flags, Priority::SyncFull);
            driver.observer.compacts(compact)
        });
        self.matching.moved += moves.len() as u64;
        let frame = |pfn: Pfn| (pfn.0 - self.machine.base()) as u32;
        self.map.relocate(&moves.iter().map(|(from, to)| (frame(*from), frame(*to))).collect());
        self.count_idle();
        let served = match done.ok().and_then(|done| done.captured) {
            Some(pfn) => {
                self.serve(op, pfn);
                true
            }
            None => self.try_alloc(zone, op),
        };
        self.matching.compacted += u64::from(served);
        self.deferred[zone].note(served);
        served
    }

    /// Keeps the block that stands for one that the kernel's compaction moved.
    #[cold]
    pub(super) fn migrated(&mut self, op: &Op) {
        let ours = match self.take(op) {
            Taken::Block(frame) => Some(frame),
            Taken::Failed => {
                self.cancel_request(op.frame);
                return;
            }
            // It had been moved before.
            Taken::Unknown => self.map.take_moved(op.order),
        };
        let Some(ours) = ours else { return };
        let order = order_of(op.order);
        let Some(to) = self.take_from_zone(self.zone_of(ours), order, 1) else {
            return self.map.keep_moved(ours, op.order);
        };
        let _ = self.yard.set_movable(to, order, true);
        let base = self.machine.base();
        self.map.keep_moved((to.0 - base) as u32, op.order);
        if let Some(blame) = &self.observer.blame {
            blame.moved(Pfn(base + u64::from(ours)), to, order);
        }
        self.free_block(ours, op);
    }

    /// Performs a request that the kernel served past the lists. Where the zone has no block, it is a
    /// request like any other.
    #[cold]
    pub(super) fn captured(&mut self, zone: usize, op: &Op) {
        match self.take_from_zone(zone, order_of(op.order), op.migratetype) {
            Some(pfn) => {
                self.cancel_request(op.frame);
                self.serve(op, pfn);
            }
            None => self.alloc(zone, op),
        }
    }

    /// Takes a block from a zone's free lists, whatever the watermarks, as compaction does.
    fn take_from_zone(&mut self, zone: usize, order: Order, migratetype: u8) -> Option<Pfn> {
        let recorded = &self.machine.zones[zone];
        // Without a block, the search would drain all lists.
        self.free_with(recorded, order)?;
        let flags = self.flags(zone, migratetype, 0) | Gfp::MEMALLOC;
        // A limit makes it search the free lists.
        let place = Place { below: Some(Pfn(recorded.end() - 1)), ..Place::default() };
        let pfn = self.near(zone, |driver| driver.yard.alloc_with(order, flags, place)).ok()?;
        self.placed += u64::from(order.pages());
        Some(pfn)
    }

    /// Works on a CPU of the zone's node, if it has one.
    fn near<T>(&self, zone: usize, work: impl FnOnce(&Self) -> T) -> T {
        let (cpu, node) = (self.observer.cpu.get(), self.machine.zones[zone].node);
        if self.machine.cpus[cpu as usize] != node
            && let Some(near) = self.machine.cpus.iter().position(|&n| n == node)
        {
            self.go(near as u32);
        }
        let result = work(self);
        self.go(cpu);
        result
    }
}
