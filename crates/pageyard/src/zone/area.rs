//! The free areas of a zone: per order, one list per migrate type and a count of blocks
//! (spec §1.3).

use crate::base::frame::{Kind, Map, State};
use crate::base::gfp::AllocFlags;
use crate::base::list::List;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{MAX_ORDER, MigrateType, TYPES};

#[derive(Debug)]
#[repr(align(64))] // one cache line each, found by a shift
struct Area {
    lists: [List; TYPES],
    /// Blocks of all types, including isolated ones.
    blocks: AtomicU64,
}

impl Area {
    const fn new() -> Self {
        Area { lists: [const { List::new() }; TYPES], blocks: AtomicU64::new(0) }
    }
}

/// The free lists of a zone. Changed under the zone lock; emptiness may be read without it.
#[derive(Debug)]
pub(crate) struct FreeAreas {
    // A power of two, so an index masked to four bits is in range.
    areas: [Area; 16],
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Tail,
}

impl FreeAreas {
    pub(crate) const fn new() -> Self {
        FreeAreas { areas: [const { Area::new() }; 16] }
    }

    #[inline]
    fn area(&self, order: u8) -> &Area {
        &self.areas[(order & 15) as usize]
    }

    #[inline]
    pub(crate) fn list(&self, order: u8, t: MigrateType) -> &List {
        &self.area(order).lists[t as usize]
    }

    #[inline]
    pub(crate) fn first(&self, order: u8, t: MigrateType) -> Option<u32> {
        self.list(order, t).first()
    }

    /// Returns the number of blocks of this order, of any type.
    pub(crate) fn blocks(&self, order: u8) -> u64 {
        self.area(order).blocks.load(Relaxed)
    }

    /// Returns the free pages, of any type, in blocks of this order and above.
    pub(crate) fn pages_from(&self, order: u8) -> u64 {
        (order..=MAX_ORDER).map(|o| self.blocks(o) << o).sum()
    }

    /// Makes the frame the head of a free block. The block's other frames must be tails.
    #[inline]
    pub(crate) fn insert(&self, map: &Map<'_>, idx: u32, order: u8, t: MigrateType, end: End) {
        let frame = map.frame(idx);
        frame.set_state(State::new(Kind::Free, order, t));
        let area = self.area(order);
        area.blocks.store(area.blocks.load(Relaxed).wrapping_add(1), Relaxed);
        let list = &area.lists[t as usize];
        match end {
            End::Head => list.push_head(map, idx, frame),
            End::Tail => list.push_tail(map, idx),
        }
    }

    /// Takes a free block off its list and makes its head a tail, as inside a larger block. The
    /// caller sets the head's new state.
    #[inline]
    pub(crate) fn remove(&self, map: &Map<'_>, idx: u32, order: u8, t: MigrateType) {
        let area = self.area(order);
        area.blocks.store(area.blocks.load(Relaxed).wrapping_sub(1), Relaxed);
        let frame = map.frame(idx);
        area.lists[t as usize].unlink(map, idx, frame);
        frame.set_state(State::TAIL);
    }

    /// Moves a free block to the tail of another type's list of its order.
    pub(crate) fn move_to(
        &self,
        map: &Map<'_>,
        idx: u32,
        order: u8,
        from: MigrateType,
        to: MigrateType,
    ) {
        let area = self.area(order);
        let frame = map.frame(idx);
        area.lists[from as usize].unlink(map, idx, frame);
        area.lists[to as usize].push_tail(map, idx);
        frame.set_state(State::new(Kind::Free, order, to));
    }

    /// Empties all lists. The blocks on them are forgotten.
    pub(crate) fn clear(&self) {
        for area in &self.areas {
            area.blocks.store(0, Relaxed);
            area.lists.iter().for_each(List::clear);
        }
    }

    /// Returns whether a block of at least `order` is on a list that these flags may use (§3.7).
    pub(crate) fn has_block(&self, order: u8, flags: AllocFlags) -> bool {
        (order..=MAX_ORDER).map(|o| self.area(o)).any(|area| {
            let any = |t: MigrateType| !area.lists[t as usize].is_empty();
            any(MigrateType::Unmovable)
                || any(MigrateType::Movable)
                || any(MigrateType::Reclaimable)
                || flags.contains(AllocFlags::CMA) && any(MigrateType::Cma)
                || flags.intersects(AllocFlags::HIGHATOMIC | AllocFlags::OOM)
                    && any(MigrateType::HighAtomic)
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::base::frame::Frame;

    #[test]
    fn s3_7_cma_and_highatomic_lists_need_their_flags() {
        let frames: [Frame; 16] = core::array::from_fn(|_| Frame::new());
        let map = Map::new(&frames, &[]);
        let none = AllocFlags::WMARK_MIN;
        let (cma, urgent, oom) = (AllocFlags::CMA, AllocFlags::HIGHATOMIC, AllocFlags::OOM);
        for t in MigrateType::ALL {
            let areas = FreeAreas::new();
            assert!(!areas.has_block(0, none | cma | urgent | oom), "nothing is free");
            areas.insert(&map, 8, 3, t, End::Head);
            assert_eq!((areas.blocks(3), areas.first(3, t)), (1, Some(8)));
            let may = [none, cma, urgent, oom].map(|flags| areas.has_block(2, flags));
            let want = match t {
                MigrateType::Cma => [false, true, false, false],
                MigrateType::HighAtomic => [false, false, true, true],
                MigrateType::Isolate => [false; 4],
                _ => [true; 4],
            };
            assert_eq!(may, want, "{t:?}");
            assert_eq!(areas.has_block(3, cma | oom), t != MigrateType::Isolate);
            assert!(!areas.has_block(4, cma | oom), "it is too small");
            assert_eq!((areas.pages_from(3), areas.pages_from(4)), (8, 0));
            areas.remove(&map, 8, 3, t);
            assert_eq!((areas.blocks(3), areas.first(3, t)), (0, None));
            assert_eq!(frames[8].state(), State::TAIL);
        }
    }

    #[test]
    fn any_order_has_an_area() {
        let areas = FreeAreas::new();
        assert!((0..=u8::MAX).all(|order| areas.blocks(order) == 0));
    }

    #[test]
    fn s4_9_blocks_move_to_the_tail_of_another_types_list() {
        use MigrateType::{Movable, Unmovable};
        let frames: [Frame; 4] = core::array::from_fn(|_| Frame::new());
        let map = Map::new(&frames, &[]);
        let areas = FreeAreas::new();
        areas.insert(&map, 0, 0, Unmovable, End::Head);
        areas.insert(&map, 1, 0, Movable, End::Head);
        areas.insert(&map, 2, 0, Movable, End::Tail);
        areas.move_to(&map, 1, 0, Movable, Unmovable);
        assert_eq!(frames[1].state(), State::new(Kind::Free, 0, Unmovable));
        let mut taken = std::vec::Vec::new();
        for t in [Unmovable, Movable] {
            while let Some(idx) = areas.first(0, t) {
                areas.remove(&map, idx, 0, t);
                taken.push(idx);
            }
        }
        assert_eq!((taken, areas.blocks(0)), (std::vec![0, 1, 2], 0));
        areas.insert(&map, 3, 0, Movable, End::Head);
        areas.clear();
        assert_eq!((areas.first(0, Movable), areas.blocks(0)), (None, 0));
    }
}
