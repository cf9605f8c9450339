//! Blocks that are freed together, which locks the per-CPU lists once for many of them.

use pageyard::policy::Policy;
use pageyard::{Order, Pfn};

use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// Blocks freed at once.
const ROOM: usize = 62;

/// Blocks of a yard whose owner frees them: when it is full, and when it is dropped.
pub(crate) struct FreeBatch<'y, P: Policy> {
    yard: &'y RawYard<P, HostLock>,
    blocks: [(Pfn, Order); ROOM],
    n: usize,
}

impl<'y, P: Policy> FreeBatch<'y, P> {
    pub(crate) fn new(yard: &'y RawYard<P, HostLock>) -> Self {
        FreeBatch { yard, blocks: [(Pfn(0), Order::ZERO); ROOM], n: 0 }
    }

    pub(crate) fn push(&mut self, pfn: Pfn, order: Order) {
        self.blocks[self.n] = (pfn, order);
        self.n += 1;
        if self.n == ROOM {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let blocks = &self.blocks[..std::mem::take(&mut self.n)];
        if self.yard.free_batch_owned(blocks).is_err() {
            // A page was taken out of use in the meantime; free the others.
            for &(pfn, order) in blocks {
                let _ = self.yard.free_owned(pfn, order);
            }
        }
    }
}

impl<P: Policy> Drop for FreeBatch<'_, P> {
    fn drop(&mut self) {
        self.flush();
    }
}
