//! Doubly linked lists of frames, threaded through the descriptors (spec §1.3, §5.2).
//!
//! The link that points away from a list at either end is never read: emptiness and "is this the
//! end?" are decided by the list's own `head` and `tail`. Taking the head therefore touches one
//! descriptor only, not its neighbour's.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::frame::{Map, NIL};

/// One list; its owner's lock is held for every change. `head` may be read without it.
#[derive(Debug)]
pub(crate) struct List {
    head: AtomicU32,
    tail: AtomicU32,
}

impl List {
    pub(crate) const EMPTY: List = List { head: AtomicU32::new(NIL), tail: AtomicU32::new(NIL) };

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        let h = self.head.load(Relaxed);
        if h == NIL { None } else { Some(h) }
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<u32> {
        let t = self.tail.load(Relaxed);
        if t == NIL { None } else { Some(t) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Relaxed) == NIL
    }

    #[inline]
    pub(crate) fn push_head(&self, map: &Map<'_>, idx: u32) {
        let h = self.head.load(Relaxed);
        map.frame(idx).set_next(h);
        if h == NIL {
            self.tail.store(idx, Relaxed);
        } else {
            map.frame(h).set_prev(idx);
        }
        self.head.store(idx, Relaxed);
    }

    #[inline]
    pub(crate) fn push_tail(&self, map: &Map<'_>, idx: u32) {
        let t = self.tail.load(Relaxed);
        map.frame(idx).set_prev(t);
        if t == NIL {
            self.head.store(idx, Relaxed);
        } else {
            map.frame(t).set_next(idx);
        }
        self.tail.store(idx, Relaxed);
    }

    #[inline]
    pub(crate) fn pop_head(&self, map: &Map<'_>) -> Option<u32> {
        let h = self.first()?;
        if self.tail.load(Relaxed) == h {
            self.clear();
        } else {
            self.head.store(map.frame(h).next(), Relaxed);
        }
        Some(h)
    }

    #[inline]
    pub(crate) fn pop_tail(&self, map: &Map<'_>) -> Option<u32> {
        let t = self.last()?;
        if self.head.load(Relaxed) == t {
            self.clear();
        } else {
            self.tail.store(map.frame(t).prev(), Relaxed);
        }
        Some(t)
    }

    /// Takes a frame out of the list that holds it.
    #[inline]
    pub(crate) fn unlink(&self, map: &Map<'_>, idx: u32) {
        if self.head.load(Relaxed) == idx {
            self.pop_head(map);
        } else if self.tail.load(Relaxed) == idx {
            self.pop_tail(map);
        } else {
            let f = map.frame(idx);
            let (p, n) = (f.prev(), f.next());
            map.frame(p).set_next(n);
            map.frame(n).set_prev(p);
        }
    }

    /// Empty; what was on it is forgotten.
    #[inline]
    pub(crate) fn clear(&self) {
        self.head.store(NIL, Relaxed);
        self.tail.store(NIL, Relaxed);
    }

    /// The frames from head to tail. At most as many as the map has, so that a list that a
    /// caller's mistake has spoilt still ends.
    pub(crate) fn iter<'m>(&self, map: &'m Map<'_>) -> impl Iterator<Item = u32> + use<'m> {
        let tail = self.tail.load(Relaxed);
        let mut at = self.first();
        let mut left = map.len();
        core::iter::from_fn(move || {
            let here = at?;
            left = left.checked_sub(1)?;
            at = if here == tail { None } else { Some(map.frame(here).next()) };
            Some(here)
        })
    }
}

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::VecDeque;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::Frame;

    proptest! {
        /// Against a deque: every way in, every way out, from the middle too.
        #[test]
        fn behaves_as_a_deque(ops in proptest::collection::vec((0u8..5, 0u32..32), 0..200)) {
            let frames: Vec<Frame> = (0..32).map(|_| Frame::new()).collect();
            let map = Map::new(&frames, &[]);
            let list = List::EMPTY;
            let mut model = VecDeque::new();
            for (op, idx) in ops {
                let inside = model.contains(&idx);
                match op {
                    0 if !inside => { list.push_head(&map, idx); model.push_front(idx); }
                    1 if !inside => { list.push_tail(&map, idx); model.push_back(idx); }
                    2 => prop_assert_eq!(list.pop_head(&map), model.pop_front()),
                    3 => prop_assert_eq!(list.pop_tail(&map), model.pop_back()),
                    4 if inside => { list.unlink(&map, idx); model.retain(|&i| i != idx); }
                    _ => {}
                }
                prop_assert!(list.iter(&map).eq(model.iter().copied()));
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
