//! Requests that the kernel served and the policy could not serve at once. The kernel had waited
//! for reclaim, so these requests wait for later frees.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::plan::Op;

/// Waiting requests by recorded block.
#[derive(Default)]
pub(super) struct Waiting {
    requests: HashMap<u32, (u64, Op)>,
    /// By zone and order, the oldest first. Entries whose request was cancelled or replaced are
    /// skipped.
    queues: BTreeMap<(usize, u8), VecDeque<(u32, u64)>>,
    next: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the recorded blocks of all waiting requests.
    pub(super) fn frames(&self) -> impl Iterator<Item = u32> + '_ {
        self.requests.keys().copied()
    }

    /// Adds a request for a block of a zone.
    pub(super) fn push(&mut self, zone: usize, op: Op) {
        self.requests.insert(op.frame, (self.next, op));
        self.queues.entry((zone, op.order)).or_default().push_back((op.frame, self.next));
        self.next += 1;
    }

    /// Cancels the request of a recorded block that is freed, in whole or in part. Returns whether
    /// there was one.
    pub(super) fn cancel(&mut self, frame: u32) -> bool {
        self.requests.remove(&frame).is_some()
    }

    /// Returns the zones and orders with waiting requests.
    pub(super) fn kinds(&mut self) -> Vec<(usize, u8)> {
        self.queues.retain(|_, queue| !queue.is_empty());
        self.queues.keys().copied().collect()
    }

    /// Returns the oldest request of a zone and order.
    pub(super) fn oldest(&mut self, kind: (usize, u8)) -> Option<Op> {
        let queue = self.queues.get_mut(&kind)?;
        while let Some(&(frame, number)) = queue.front() {
            match self.requests.get(&frame) {
                Some(&(now, op)) if now == number => return Some(op),
                _ => queue.pop_front(),
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{OpKind, Origin};
    use super::*;

    fn op(frame: u32, order: u8) -> Op {
        let (kind, origin) = (OpKind::Alloc, Origin::default());
        Op { t_ns: 0, frame, kind, order, migratetype: 1, cpu: 0, gfp: 2, origin }
    }

    #[test]
    fn the_oldest_request_of_an_order_is_next() {
        let mut w = Waiting::default();
        for (frame, order) in [(7, 0), (8, 0), (512, 9), (9, 0)] {
            w.push(1, op(frame, order));
        }
        assert_eq!((w.kinds(), w.len()), (vec![(1, 0), (1, 9)], 4));
        assert!(w.cancel(7) && !w.cancel(7));
        assert_eq!(w.oldest((1, 0)).unwrap().frame, 8);
        assert_eq!(w.oldest((1, 9)).unwrap().frame, 512);
        // A frame that is requested again goes to the end of the queue.
        assert!(w.cancel(8));
        w.push(1, op(8, 0));
        assert_eq!(w.oldest((1, 0)).unwrap().frame, 9);
        assert!(w.cancel(9));
        assert_eq!(w.oldest((1, 0)).unwrap().frame, 8);
        assert!(w.cancel(8) && w.cancel(512) && w.is_empty());
        assert!(w.oldest((1, 0)).is_none() && w.oldest((1, 9)).is_none());
        assert!(w.kinds().is_empty());
    }
}
