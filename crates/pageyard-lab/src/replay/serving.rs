//! Requests: the recorded ones, made again on the replayed allocator.

use pageyard::{AllocError, Config, Gfp, NodeId, Order, Pfn};

use super::driver::{Driver, Seat};
use super::machine::{MachineZone, id_of};
use super::plan::{Op, OpKind, ZONE_BITS, unpack_gfp};
use super::restore::order_of;

/// KSWAPD_RECLAIM and DIRECT_RECLAIM: the flags assumed for silent requests (kernel stacks).
pub(super) const SILENT_GFP: u8 = 2 | 4;

impl<C: Config, S: Seat> Driver<'_, '_, C, S> {
    /// Makes a recorded request again. One that the kernel served by waiting for reclaim waits here if
    /// it finds no block.
    #[inline(always)]
    pub(super) fn alloc(&mut self, zone: usize, op: &Op) {
        if !self.waiting.is_empty() {
            // The trace never freed the block that still waits at this frame.
            self.cancel_request(op.frame);
        }
        if self.try_alloc(zone, op) || self.dip(zone, op) || self.compact(zone, op) {
            return;
        }
        let old = self.map.put_failed(op.frame);
        self.replaced(old);
        let waits = op.kind != OpKind::Silent
            && Gfp::from_bits_retain(unpack_gfp(op.gfp)).contains(Gfp::DIRECT_RECLAIM);
        if waits {
            self.waiting.push(zone, *op);
        } else {
            self.figures.failed += 1;
        }
        match &self.observer.blame {
            Some(blame) if waits => blame.waits(zone, op.frame),
            Some(blame) => blame.failed(zone),
            None => {}
        }
    }

    /// Allocates for a recorded block. Returns whether that succeeded.
    #[inline(always)]
    pub(super) fn try_alloc(&mut self, zone: usize, op: &Op) -> bool {
        let silent = op.kind == OpKind::Silent;
        let flags = self.flags(zone, op.migratetype, if silent { SILENT_GFP } else { op.gfp });
        // The kernel waited for reclaim until it had the block, and the pages that reclaim freed
        // appear before this event. So any free block may serve, whatever the watermarks.
        let has_waited = !silent && flags.contains(Gfp::DIRECT_RECLAIM);
        self.try_with(zone, op, if has_waited { despite_marks(flags) } else { flags })
    }

    /// Serves a request that could not wait, and that the kernel served, from up to half of the MIN
    /// watermark: the free pages here differ from the kernel's by some percent of it.
    #[cold]
    fn dip(&mut self, zone: usize, op: &Op) -> bool {
        let flags = self.flags(zone, op.migratetype, op.gfp);
        let recorded = &self.machine.zones[zone];
        op.kind != OpKind::Silent
            && !flags.contains(Gfp::DIRECT_RECLAIM)
            && self.zone_has_block(recorded, order_of(op.order), recorded.watermarks[0] / 2)
            && self.try_with(zone, op, despite_marks(flags))
    }

    /// Allocates with these flags for a recorded block, from its zone or another that may serve.
    #[inline(always)]
    fn try_with(&mut self, zone: usize, op: &Op, flags: Gfp) -> bool {
        let order = order_of(op.order);
        match self
            .alloc_in(zone, order, flags)
            .or_else(|e| self.elsewhere(zone, op, flags).ok_or(e))
        {
            Ok(pfn) => {
                if self.caches(op.order) {
                    self.idle.now -= 1 << op.order;
                }
                self.serve(op, pfn);
                true
            }
            Err(_) => false,
        }
    }

    /// Allocates from another zone of the node when the recorded zone has nothing left under this
    /// policy, if the request allows that.
    #[cold]
    fn elsewhere(&self, zone: usize, op: &Op, flags: Gfp) -> Option<Pfn> {
        let any_zone = op.kind == OpKind::Silent || unpack_gfp(op.gfp) & ZONE_BITS == 0;
        let flags = flags.difference(Gfp::DMA | Gfp::DMA32);
        if any_zone { self.alloc_in(zone, order_of(op.order), flags).ok() } else { None }
    }

    /// Allocates from the recorded zone's node, whatever the current CPU.
    #[inline(always)]
    fn alloc_in(&self, zone: usize, order: Order, flags: Gfp) -> Result<Pfn, AllocError> {
        let node = NodeId(self.machine.zones[zone].node);
        if self.machine.cpus[self.observer.cpu.get() as usize] == node.0 {
            self.yard.alloc(order, flags)
        } else {
            self.yard.alloc_on(node, order, flags)
        }
    }

    /// Lets an allocated block stand for a recorded one.
    #[inline(always)]
    pub(super) fn serve(&mut self, op: &Op, pfn: Pfn) {
        let silent = op.kind == OpKind::Silent;
        let below_min = !silent && self.yard.is_pfmemalloc(pfn);
        self.matching.below_marks += u64::from(below_min);
        if op.migratetype == 1 {
            // The page goes to a user. It is on a reclaim list and can be moved.
            let _ = self.yard.set_movable(pfn, order_of(op.order), true);
        }
        if !silent {
            self.figures.alloc_blocks += 1;
            self.figures.alloc_pages += 1 << op.order;
        }
        let ours = (pfn.0 - self.machine.base()) as u32;
        if let Some(blame) = &self.observer.blame {
            blame.served(op.frame, self.observer.now.get(), ours);
            if below_min {
                blame.below_min(self.zone_of(ours), ours);
            }
        }
        let old = self.map.put(op.frame, ours, op.order);
        self.replaced(old);
    }

    /// Frees the previous block of a recorded frame that the trace allocates again without a free.
    #[inline(always)]
    pub(super) fn replaced(&mut self, old: Option<(u32, u8)>) {
        if let Some((frame, order)) = old {
            self.matching.replaced += 1;
            let pfn = Pfn(self.machine.base() + u64::from(frame));
            self.blame_frees(pfn, order, true);
            let _ = self.yard.free_direct(pfn, order_of(order));
        }
    }

    /// Repeats a request that failed in the kernel. If the policy has a block for it, the block is
    /// freed at once, because the trace has no owner for it. For a huge page it is only looked whether
    /// there is one: a refill would move it, and another one, to a list.
    #[cold]
    pub(super) fn refused(&mut self, zone: usize, op: &Op) {
        let order = order_of(op.order);
        let flags = self.flags(zone, op.migratetype, op.gfp).difference(Gfp::THISNODE);
        if order >= Order::HUGE && self.has_block(zone, order) {
            return;
        }
        match self.yard.alloc(order, flags) {
            Ok(pfn) => {
                if self.caches(op.order) {
                    self.idle.now -= 1 << op.order;
                }
                self.blame_frees(pfn, op.order, true);
                let _ = self.yard.free_direct(pfn, order);
            }
            Err(_) => {
                self.figures.failed += 1;
                if let Some(blame) = &self.observer.blame {
                    blame.failed(zone);
                }
            }
        }
    }

    /// Serves waiting requests whose zones have free blocks again.
    #[cold]
    pub(super) fn serve_waiting(&mut self) {
        for kind in self.waiting.kinds() {
            let zone = &self.machine.zones[kind.0];
            while let Some(op) = self.waiting.oldest(kind) {
                if self.free_with(zone, order_of(op.order)).is_none() {
                    break;
                }
                self.go(op.cpu.into());
                if let Some(blame) = &self.observer.blame {
                    blame.asks(&op, self.observer.now.get());
                }
                if !self.try_alloc(kind.0, &op) {
                    break; // the block is reserved or isolated
                }
                self.waiting.cancel(op.frame);
                self.matching.waited += 1;
            }
        }
        self.idle.now += self.observer.cached.take();
    }

    /// Returns whether a zone of this zone's node, up to this one, has a block above its MIN watermark.
    fn has_block(&self, zone: usize, order: Order) -> bool {
        let highest = &self.machine.zones[zone];
        let candidates = self.machine.zones.iter().filter(|z| z.node == highest.node);
        let mut candidates = candidates.filter(|z| z.kind <= highest.kind);
        candidates.any(|z| self.zone_has_block(z, order, z.watermarks[0]))
    }

    /// Returns whether a zone has a block, and more than these pages beside it.
    fn zone_has_block(&self, zone: &MachineZone, order: Order, mark: u64) -> bool {
        self.free_with(zone, order).is_some_and(|free| free > mark + u64::from(order.pages()))
    }

    /// Returns the free pages of a zone that has a free block of this order.
    pub(super) fn free_with(&self, zone: &MachineZone, order: Order) -> Option<u64> {
        let blocks = self.yard.free_blocks(id_of(zone))?;
        let has_block = blocks.iter().skip(order.get().into()).any(|&n| n > 0);
        has_block.then(|| blocks.iter().enumerate().map(|(order, n)| n << order).sum())
    }
}

/// Lets a request with these flags take any free block.
fn despite_marks(flags: Gfp) -> Gfp {
    flags.difference(Gfp::NOMEMALLOC) | Gfp::MEMALLOC
}
