//! Blocks whose free could not take the zone lock, until a later holder of the lock frees them (spec B.2).
//! A request (also one that lacks memory), a free, a drain, a tick, background reclaim and compaction do;
//! the step of compaction that takes free blocks does not, for want of stack.
//!
//! A block on the queue has left its owner and is on no list: it can be neither freed nor allocated.
//! The queue is a stack through the descriptors, with one way in and one way out: any thread pushes,
//! and the holder of the zone lock takes all blocks at once. A block is therefore never pushed while
//! it is on the queue. A push may compare with a head that was taken and came back meanwhile: it links
//! to that head only, whatever follows it.

use crate::base::frame::{Map, NIL};
use crate::base::sync::AtomicU32;
use crate::base::sync::Ordering::{Acquire, Relaxed, Release};

/// The queue of one zone.
#[derive(Debug)]
pub(crate) struct FreeQueue {
    first: AtomicU32,
}

impl FreeQueue {
    pub(crate) const fn new() -> Self {
        FreeQueue { first: AtomicU32::new(NIL) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.load(Relaxed) == NIL
    }

    /// Adds a block that is being freed. The caller gives it up.
    pub(crate) fn push(&self, map: &Map<'_>, idx: u32) {
        let frame = map.frame(idx);
        let mut first = self.first.load(Relaxed);
        loop {
            frame.set_next(first);
            match self.first.compare_exchange_weak(first, idx, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all blocks. Returns the first; the others follow by their links.
    pub(crate) fn take(&self) -> u32 {
        self.first.swap(NIL, Acquire)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::vec::Vec;

    use super::*;
    use crate::base::frame::Frame;

    #[test]
    fn every_pushed_block_is_taken_once() {
        const PUSHERS: u32 = 3;
        const EACH: u32 = 50_000;
        let frames: Vec<Frame> = (0..PUSHERS * EACH).map(|_| Frame::new()).collect();
        let map = Map::new(&frames, &[]);
        let queue = FreeQueue::new();
        let (pushing, mut taken) = (AtomicU32::new(PUSHERS), Vec::new());
        thread::scope(|s| {
            for pusher in 0..PUSHERS {
                let (queue, pushing) = (&queue, &pushing);
                s.spawn(move || {
                    (0..EACH).for_each(|i| queue.push(&map, pusher * EACH + i));
                    pushing.fetch_sub(1, SeqCst);
                });
            }
            loop {
                let last = pushing.load(SeqCst) == 0;
                let mut idx = queue.take();
                while let Some(frame) = map.get(idx.into()) {
                    taken.push(idx);
                    idx = frame.next();
                }
                if last {
                    break;
                }
            }
        });
        assert!(queue.is_empty());
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..PUSHERS * EACH));
    }
}
