//! Doubly linked lists of frames, threaded through the descriptors (spec §1.3, §5.2).
//!
//! A list is empty when its `head` is [`NIL`]; its `tail` is then meaningless. The last frame's
//! `next` is `NIL`, and the first frame's `prev` is never read. Taking the head, the hottest step,
//! therefore reads one descriptor, writes one word and touches no neighbour.

use crate::base::frame::{Frame, Map, NIL};
use crate::base::sync::frames::{AtomicU32, Ordering::Relaxed};

/// One list. Every change requires its owner's lock; `head` may be read without it.
#[derive(Debug)]
pub(crate) struct List {
    head: AtomicU32,
    tail: AtomicU32,
}

impl List {
    pub(crate) const fn new() -> List {
        List { head: AtomicU32::new(NIL), tail: AtomicU32::new(NIL) }
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Option<u32> {
        let h = self.head.load(Relaxed);
        if h == NIL { None } else { Some(h) }
    }

    #[inline(always)]
    pub(crate) fn last(&self) -> Option<u32> {
        if self.is_empty() { None } else { Some(self.tail.load(Relaxed)) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Relaxed) == NIL
    }

    /// Inserts a frame at the head. `frame` is its descriptor.
    #[inline(always)]
    pub(crate) fn push_head(&self, map: &Map<'_>, idx: u32, frame: &Frame) {
        let h = self.head.load(Relaxed);
        frame.set_next(h);
        // `NIL` lies outside every map, so one comparison covers both cases.
        match map.get(h.into()) {
            Some(first) => first.set_prev(idx),
            None => self.tail.store(idx, Relaxed),
        }
        self.head.store(idx, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn push_tail(&self, map: &Map<'_>, idx: u32) {
        let frame = map.frame(idx);
        frame.set_next(NIL);
        match self.last() {
            None => self.head.store(idx, Relaxed),
            Some(t) => {
                frame.set_prev(t);
                map.frame(t).set_next(idx);
            }
        }
        self.tail.store(idx, Relaxed);
    }

    /// Appends `count` frames, `step` apart, in ascending order from `first`.
    #[inline]
    pub(crate) fn push_tail_run(&self, map: &Map<'_>, first: u32, count: u32, step: u32) {
        let Some(last) = count.checked_sub(1).map(|n| first + n * step) else { return };
        let mut idx = first;
        for frame in map.run(first, count * step).iter().step_by(step as usize) {
            frame.set_prev(idx.wrapping_sub(step));
            frame.set_next(idx + step);
            idx += step;
        }
        match self.last() {
            None => self.head.store(first, Relaxed),
            Some(t) => {
                map.frame(first).set_prev(t);
                map.frame(t).set_next(first);
            }
        }
        map.frame(last).set_next(NIL);
        self.tail.store(last, Relaxed);
    }

    /// Removes the first frame. Returns its index and descriptor.
    #[inline(always)]
    pub(crate) fn pop_head<'m>(&self, map: &Map<'m>) -> Option<(u32, &'m Frame)> {
        let h = self.head.load(Relaxed);
        let frame = map.get(h.into())?;
        self.head.store(frame.next(), Relaxed);
        Some((h, frame))
    }

    #[inline(always)]
    pub(crate) fn pop_tail(&self, map: &Map<'_>) -> Option<u32> {
        let t = self.last()?;
        if self.head.load(Relaxed) == t {
            self.clear();
        } else {
            let p = map.frame(t).prev();
            map.frame(p).set_next(NIL);
            self.tail.store(p, Relaxed);
        }
        Some(t)
    }

    /// Removes frames from the tail while `take` returns true for the next one.
    #[inline(always)]
    pub(crate) fn pop_tail_while<'m>(
        &self,
        map: &Map<'m>,
        mut take: impl FnMut(u32, &'m Frame) -> bool,
    ) {
        let head = self.head.load(Relaxed);
        let Some(mut at) = self.last() else { return };
        loop {
            let frame = map.frame(at);
            if !take(at, frame) {
                frame.set_next(NIL);
                self.tail.store(at, Relaxed);
                return;
            }
            if at == head {
                return self.clear();
            }
            at = frame.prev();
        }
    }

    /// Removes a frame from the list that contains it. `frame` is its descriptor.
    #[inline(always)]
    pub(crate) fn unlink(&self, map: &Map<'_>, idx: u32, frame: &Frame) {
        let next = frame.next();
        if self.head.load(Relaxed) == idx {
            self.head.store(next, Relaxed);
            return;
        }
        let prev = frame.prev();
        map.frame(prev).set_next(next);
        // The last frame's `next` is `NIL`, which lies outside every map.
        match map.get(next.into()) {
            Some(n) => n.set_prev(prev),
            None => self.tail.store(prev, Relaxed),
        }
    }

    /// Empties the list. Its frames are forgotten.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.head.store(NIL, Relaxed);
        self.tail.store(NIL, Relaxed);
    }

    /// Inserts a frame before one on the list, or at the tail for [`NIL`].
    fn insert_before(&self, map: &Map<'_>, idx: u32, at: u32) {
        let frame = map.frame(idx);
        if at == NIL {
            self.push_tail(map, idx);
        } else if self.head.load(Relaxed) == at {
            self.push_head(map, idx, frame);
        } else {
            let next = map.frame(at);
            let prev = next.prev();
            frame.set_prev(prev);
            frame.set_next(at);
            map.frame(prev).set_next(idx);
            next.set_prev(idx);
        }
    }

    /// Swaps the positions of two frames on the list.
    pub(crate) fn swap(&self, map: &Map<'_>, a: u32, b: u32) {
        let (fa, fb) = (map.frame(a), map.frame(b));
        if a == b {
            return;
        }
        if fb.next() == a {
            return self.swap(map, b, a);
        }
        let after_a = fa.next();
        self.unlink(map, a, fa);
        if after_a == b {
            return self.insert_before(map, a, fb.next());
        }
        self.insert_before(map, a, b);
        self.unlink(map, b, fb);
        self.insert_before(map, b, after_a);
    }

    /// Rotates the list so that this frame on it becomes the head. The frames before it move to the
    /// end in their order.
    pub(crate) fn rotate_to(&self, map: &Map<'_>, idx: u32) {
        let (Some(first), Some(last)) = (self.first(), self.last()) else { return };
        if idx == first {
            return;
        }
        let before = map.frame(idx).prev();
        map.frame(last).set_next(first);
        map.frame(first).set_prev(last);
        map.frame(before).set_next(NIL);
        self.head.store(idx, Relaxed);
        self.tail.store(before, Relaxed);
    }

    /// Iterates over the frames from tail to head.
    pub(crate) fn iter_back<'m>(&self, map: &'m Map<'_>) -> impl Iterator<Item = u32> + use<'m> {
        let head = self.head.load(Relaxed);
        let mut at = self.last();
        (0..map.len()).map_while(move |_| {
            let here = at?;
            at = (here != head).then(|| map.frame(here).prev());
            Some(here)
        })
    }

    /// Iterates over the frames from head to tail. Stops after as many frames as the map has, so
    /// that a list corrupted by a caller's mistake still ends.
    pub(crate) fn iter<'m>(&self, map: &'m Map<'_>) -> impl Iterator<Item = u32> + use<'m> {
        let mut at = self.head.load(Relaxed);
        (0..map.len()).map_while(move |_| {
            let here = at;
            at = map.frame(here).next();
            (here != NIL).then_some(here)
        })
    }
}

impl Default for List {
    fn default() -> Self {
        List::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a deque: insertion and removal at both ends and in the middle.
        #[test]
        fn behaves_as_a_deque(ops in proptest::collection::vec((0u8..9, 0u32..32), 0..300)) {
            let frames: Vec<Frame> = (0..32).map(|_| Frame::new()).collect();
            let map = Map::new(&frames, &[]);
            let list = List::new();
            let mut model = VecDeque::new();
            for (op, idx) in ops {
                let inside = model.contains(&idx);
                match op {
                    0 if !inside => { list.push_head(&map, idx, map.frame(idx)); model.push_front(idx); }
                    1 if !inside => { list.push_tail(&map, idx); model.push_back(idx); }
                    2 => prop_assert_eq!(list.pop_head(&map).map(|p| p.0), model.pop_front()),
                    3 => prop_assert_eq!(list.pop_tail(&map), model.pop_back()),
                    8 => {
                        if let Some(at) = model.iter().position(|&i| i == idx) {
                            list.rotate_to(&map, idx);
                            model.rotate_left(at);
                        }
                    }
                    7 => {
                        let other = (idx * 7 + 3) % 32;
                        let place = |i| model.iter().position(|&x| x == i);
                        if let (Some(p), Some(q)) = (place(idx), place(other)) {
                            list.swap(&map, idx, other);
                            model.swap(p, q);
                        }
                    }
                    6 => {
                        let mut left = idx % 4;
                        let mut got = vec![];
                        list.pop_tail_while(&map, |i, _| {
                            got.extend((left > 0).then_some(i));
                            left > 0 && { left -= 1; true }
                        });
                        let want: Vec<_> =
                            (0..idx % 4).map_while(|_| model.pop_back()).collect();
                        prop_assert_eq!(got, want);
                    }
                    5 if idx + 3 < 32 && (idx..idx + 4).all(|i| !model.contains(&i)) => {
                        list.push_tail_run(&map, idx, 2, 2);
                        model.extend([idx, idx + 2]);
                    }
                    4 if inside => { list.unlink(&map, idx, map.frame(idx)); model.retain(|&i| i != idx); }
                    _ => {}
                }
                prop_assert!(list.iter(&map).eq(model.iter().copied()));
                prop_assert!(list.iter_back(&map).eq(model.iter().rev().copied()));
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
