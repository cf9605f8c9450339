//! Requests that the kernel served and the policy could not serve at once: the kernel had waited
//! for reclaim, so here they wait for the frees that follow.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::plan::Op;

/// Requests that wait, by the recorded block that they stand for.
#[derive(Default)]
pub(super) struct Waiting {
    requests: HashMap<u32, (u64, Op)>,
    /// By zone and order, the oldest first. A frame whose request is gone, or is another one now,
    /// is passed over.
    queues: BTreeMap<(usize, u8), VecDeque<(u32, u64)>>,
    next: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// A request for a block of a zone waits.
    pub(super) fn push(&mut self, zone: usize, op: Op) {
        self.requests.insert(op.frame, (self.next, op));
        self.queues.entry((zone, op.order)).or_default().push_back((op.frame, self.next));
        self.next += 1;
    }

    /// The recorded block is freed, or a part of it: its request waits no more. Whether one did.
    pub(super) fn cancel(&mut self, frame: u32) -> bool {
        self.requests.remove(&frame).is_some()
    }

    /// Zones and orders for which requests wait.
    pub(super) fn kinds(&mut self) -> Vec<(usize, u8)> {
        self.queues.retain(|_, queue| !queue.is_empty());
        self.queues.keys().copied().collect()
    }

    /// The oldest request of a zone and order.
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
    use super::super::plan::OpKind;
    use super::*;

    fn op(frame: u32, order: u8) -> Op {
        Op { t_ns: 0, frame, kind: OpKind::Alloc, order, migratetype: 1, cpu: 0, gfp: 2 }
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
        // Asked for once more, a frame stands behind the others.
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
