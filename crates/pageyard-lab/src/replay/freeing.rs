//! Frees: the recorded ones, of the blocks that stand for the recorded blocks.

use pageyard::{Config, Order, Pfn};

use super::blaming::Blaming;
use super::driver::{Driver, Seat};
use super::map::Taken;
use super::plan::{Op, OpKind};
use super::restore::order_of;

impl<C: Config, S: Seat> Driver<'_, '_, C, S> {
    /// Removes the mapping of a recorded block, and splits the allocated block where it is larger.
    #[inline(always)]
    pub(super) fn take(&mut self, op: &Op) -> Taken {
        let (yard, base) = (self.yard, self.machine.base());
        self.map.take(self.machine, op.frame, op.order, |frame, from, into| {
            let _ = yard.split(Pfn(base + u64::from(frame)), order_of(from), order_of(into));
        })
    }

    /// Frees what stands for the recorded block that was freed.
    #[inline(always)]
    pub(super) fn free(&mut self, op: &Op) {
        self.matching.frees += 1;
        let taken = match self.take(op) {
            Taken::Unknown => self.map.take_moved(op.order).map_or(Taken::Unknown, Taken::Block),
            taken => taken,
        };
        let ours = match taken {
            Taken::Block(frame) => frame,
            Taken::Failed => {
                self.cancel_request(op.frame);
                return self.matching.of_failed += 1;
            }
            Taken::Unknown if self.cancel_enclosing_request(op) => {
                return self.matching.of_failed += 1;
            }
            Taken::Unknown => return self.matching.unmatched += 1,
        };
        if !self.free_block(ours, op) {
            self.matching.unmatched += 1;
        }
    }

    /// Frees an allocated block as an operation says. Returns whether that succeeded.
    #[inline(always)]
    pub(super) fn free_block(&mut self, ours: u32, op: &Op) -> bool {
        let pfn = Pfn(self.machine.base() + u64::from(ours));
        let order = order_of(op.order);
        let direct = op.kind == OpKind::FreeDirect;
        self.blame_frees(pfn, op.order, direct);
        let yard = self.yard;
        let done = if direct { yard.free_direct(pfn, order) } else { yard.free(pfn, order) };
        if done.is_err() {
            return false;
        }
        self.figures.free_blocks += 1;
        self.figures.free_pages += 1 << op.order;
        if !direct && self.caches(op.order) {
            self.idle.now += 1 << op.order;
        }
        true
    }

    /// Cancels the waiting request of a recorded block that is freed before it was served.
    #[cold]
    pub(super) fn cancel_request(&mut self, frame: u32) -> bool {
        let waited = self.waiting.cancel(frame);
        self.figures.failed += u64::from(waited);
        if let Some(blame) = &self.observer.blame {
            blame.given_up(frame);
        }
        waited
    }

    /// Tells the blame of a free to come whether it bypasses the lists.
    #[inline(always)]
    pub(super) fn blame_frees(&self, pfn: Pfn, order: u8, direct: bool) {
        if let Some(blame) = &self.observer.blame {
            let off = || Blaming::bypasses(self.yard.block_type(pfn));
            blame.frees(direct || !self.caches(order) || off());
        }
    }

    /// Like [`Driver::cancel_request`], where the freed block is only a part of the requested one.
    #[cold]
    fn cancel_enclosing_request(&mut self, op: &Op) -> bool {
        let machine = self.machine;
        let larger = op.order + 1..=Order::MAX.get();
        let mut heads = larger.filter_map(|order| machine.align_down(op.frame, order));
        !self.waiting.is_empty() && heads.any(|head| self.cancel_request(head))
    }
}
