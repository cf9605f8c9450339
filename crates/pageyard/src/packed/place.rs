//! Blocks at given frames.

use core::ops::Range;

use lock_api::RawMutex;

use crate::base::sync::Ordering::SeqCst;
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits::{self, WORDS, words_of_frames};
use crate::packed::planted::fence_for_loom;
use crate::packed::region::Region;

impl<R: RawMutex> Region<'_, R> {
    /// Takes all frames of a range as bits, or none. Its pageblocks are isolated, so that no other
    /// request takes from them. Fails with a frame that is not free. With `faulty`, those that are
    /// out of use are left out. The caller holds the zone lock.
    pub(crate) fn take_bits(&self, frames: Range<u32>, faulty: bool) -> Result<(), u32> {
        let wanted = |(word, mask)| {
            let out = if faulty { self.faulty_in(word, mask) } else { 0 };
            (word, mask & !out)
        };
        let masks = || words_of_frames(frames.clone()).map(wanted);
        for (n, (word, mask)) in masks().enumerate() {
            let got = self.blocks.take_mask(word, mask);
            let sound = got & !self.keep_taken(word, got);
            if sound != mask {
                self.put_mask(word, sound);
                masks().take(n).for_each(|(word, mask)| self.put_mask(word, mask));
                return Err(word * 64 + (mask & !sound).trailing_zeros());
            }
        }
        let blocks = frames.start / PAGEBLOCK_PAGES..frames.end.div_ceil(PAGEBLOCK_PAGES);
        for block in blocks {
            let start = (block * PAGEBLOCK_PAGES).max(frames.start);
            let end = ((block + 1) * PAGEBLOCK_PAGES).min(frames.end);
            let masks = words_of_frames(start..end).map(wanted);
            let taken: u32 = masks.map(|(_, mask)| mask.count_ones()).sum();
            // The zone does not count what its pageblock withholds, so the frames may not be
            // subtracted once more. What is left is withheld instead, whatever was freed since the
            // isolation.
            let (was, left) = (self.blocks.withheld(block), self.blocks.free_in(block));
            self.blocks.set_withheld(block, left);
            self.note_loose(i64::from(was) - i64::from(left) - i64::from(taken));
        }
        Ok(())
    }

    fn put_mask(&self, word: u32, mask: u64) {
        if mask != 0 {
            self.blocks.put(word, mask, 0);
        }
    }

    /// Returns the first frame of a block that is not free in the zone.
    pub(crate) fn first_not_free(&self, frame: u32, order: u8) -> Option<u32> {
        let mut blocks = frame / PAGEBLOCK_PAGES..(frame + (1 << order)).div_ceil(PAGEBLOCK_PAGES);
        blocks.find_map(|block| {
            if self.blocks.whole().contains(block) {
                return None;
            }
            let start = (block * PAGEBLOCK_PAGES).max(frame);
            let end = ((block + 1) * PAGEBLOCK_PAGES).min(frame + (1 << order));
            if self.blocks.is_isolated(block) {
                return Some(start);
            }
            (start..end).find(|&frame| !self.blocks.is_set(frame))
        })
    }

    /// Allocates the block at a frame if all of it is free. Returns whether it did.
    pub(crate) fn take_exact(&self, frame: u32, order: u8, t: MigrateType) -> bool {
        let block = frame / PAGEBLOCK_PAGES;
        let taken = if order > PAGEBLOCK_ORDER {
            self.blocks.claim_at(block, 2)
        } else if order == PAGEBLOCK_ORDER {
            // All frames as bits become a whole pageblock, unless a CPU refills from it.
            self.blocks.claim_at(block, 1)
        } else if self.blocks.claim_at(block, 1) {
            self.blocks.open(block, t);
            let taken = self.blocks.take_block_at(frame, order, t);
            self.blocks.release(block, 0);
            taken
        } else {
            let taken = self.blocks.take_block_at(frame, order, t);
            self.blocks.after_take(block, 0);
            taken
        };
        let taken = taken && self.is_sound(frame, order, 0);
        if taken {
            self.note_loose(-(1i64 << order));
            self.set_allocated(frame, order, t);
        }
        taken
    }

    /// Makes the frame the head of a block in use. A pageblock that is in use as a whole is active.
    pub(crate) fn set_allocated(&self, frame: u32, order: u8, t: MigrateType) {
        if order >= PAGEBLOCK_ORDER {
            let first = frame / PAGEBLOCK_PAGES;
            for block in first..first + (1 << (order - PAGEBLOCK_ORDER)) {
                self.blocks.activate_as_whole(block);
            }
        }
        if let Some(state) = self.state(frame) {
            // What an area or a reserve serves is not movable for that.
            let t = if t.is_mergeable() { t } else { MigrateType::Unmovable };
            state.set_allocated(order, t as usize);
        }
    }

    /// Returns whether a pageblock is part of a block in use of its own size or twice that.
    pub(crate) fn is_allocated_whole(&self, frame: u32) -> bool {
        let large = |frame: u32| {
            let order = self.state(frame).and_then(|state| state.allocated());
            order.filter(|order| order.get() >= PAGEBLOCK_ORDER)
        };
        large(frame).is_some()
            || large(frame & !(2 * PAGEBLOCK_PAGES - 1)).is_some_and(|o| o.get() > PAGEBLOCK_ORDER)
    }

    /// Returns whether no frame of a pageblock is free in the zone.
    pub(crate) fn is_full(&self, block: u32) -> bool {
        !self.blocks.whole().contains(block) && self.blocks.free_in(block) == 0
    }

    /// Forgets frames that were taken: they are no memory any more.
    pub(crate) fn forget(&self, frames: Range<u32>) {
        frames.for_each(|frame| self.forget_frame(frame));
    }
}

impl super::blocks::Blocks<'_> {
    /// Takes those frames of a word that are free. Returns them.
    pub(crate) fn take_mask(&self, word: u32, mask: u64) -> u64 {
        let words = self.words_of(word / WORDS as u32);
        let got = words.get(word as usize % WORDS).map_or(0, |w| w.fetch_and(!mask, SeqCst) & mask);
        if self.has_set_apart() {
            self.note_set_apart(word / WORDS as u32, -i64::from(got.count_ones()));
        }
        got
    }

    /// Takes the frames of a block within a pageblock, all or none. The caller updates the pageblock's
    /// place.
    pub(super) fn take_block_at(&self, frame: u32, order: u8, t: MigrateType) -> bool {
        if !self.is_open_to(frame / PAGEBLOCK_PAGES, t) {
            return false;
        }
        if order < 6 {
            let mask = bits::block_mask(frame, order);
            let got = self.take_mask(frame / 64, mask);
            if got != mask && got != 0 {
                self.put(frame / 64, got, 0);
            }
            return got == mask && self.keep_if_open(frame, order, t);
        }
        let first = (frame / 64) as usize % WORDS;
        let words = self.words_of(frame / PAGEBLOCK_PAGES).get(first..first + (1 << (order - 6)));
        let taken = words.is_some_and(|words| self.take_all_of(frame / PAGEBLOCK_PAGES, words));
        taken && self.keep_if_open(frame, order, t)
    }

    fn is_open_to(&self, block: u32, t: MigrateType) -> bool {
        // After what the caller took.
        fence_for_loom();
        self.meta(block).is_open_to(t)
    }

    /// Gives frames back if their pageblock was isolated or set apart since the first look.
    fn keep_if_open(&self, frame: u32, order: u8, t: MigrateType) -> bool {
        let open = self.is_open_to(frame / PAGEBLOCK_PAGES, t);
        if !open {
            self.put_back(frame, order, 0);
        }
        open
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::base::units::{CpuId, Order, Pfn};
    use crate::packed::OwnedStorage;

    #[test]
    fn a_block_at_a_frame_is_taken_whole_or_not_at_all() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(4096)).unwrap();
        for order in 0..=10u8 {
            let (frame, o) = (2048, Order::new(order).unwrap());
            assert_eq!(region.first_not_free(frame, order), None);
            assert!(region.take_exact(frame, order, MigrateType::Unmovable), "{order}");
            assert!(!region.take_exact(frame, order, MigrateType::Unmovable));
            assert_eq!(region.first_not_free(frame, order), Some(frame));
            let census = region.validate().unwrap();
            assert_eq!(census.allocated, 1 << order);
            region.free(CpuId(0), Pfn(frame.into()), o).unwrap();
            region.drain_all();
            assert_eq!(region.whole_blocks(), 8, "{order}");
        }
        // One page in use: no block around it, and nothing of it is lost.
        for frame in [2049, 2048 + 64, 2048 + 200] {
            assert!(region.take_exact(frame, 0, MigrateType::Movable));
            for order in 1..=10u8 {
                let is_free = frame >= 2048 + (1 << order);
                let taken = region.take_exact(2048, order, MigrateType::Movable);
                assert_eq!(taken, is_free, "{frame} {order}");
                if taken {
                    region.free(CpuId(0), Pfn(2048), Order::new(order).unwrap()).unwrap();
                    region.drain_all();
                }
                assert_eq!(region.validate().unwrap().allocated, 1);
            }
            region.free(CpuId(0), Pfn(frame.into()), Order::ZERO).unwrap();
            region.drain_all();
        }
    }

    #[test]
    fn frames_taken_while_their_pageblock_is_isolated_go_back() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(4096)).unwrap();
        let (blocks, t) = (&region.blocks, MigrateType::Movable);
        assert!(region.take_exact(1024 + 256, 0, t));
        for order in [0u8, 5, 6, 8] {
            assert_eq!(blocks.free_in(2), 511);
            (0..1 << order.saturating_sub(6)).for_each(|word| {
                let mask = if order < 6 { bits::block_mask(0, order) } else { !0 };
                assert_eq!(blocks.take_mask(16 + word, mask), mask);
            });
            assert!(blocks.keep_if_open(1024, order, t));
            assert_eq!(blocks.free_in(2), 511 - (1 << order));
            assert!(blocks.isolate(2));
            assert!(!blocks.keep_if_open(1024, order, t), "{order}");
            assert!(blocks.unisolate(2, None));
        }
    }

    #[test]
    fn a_pageblock_is_full_if_nothing_of_it_is_free() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(4096)).unwrap();
        assert!(!region.is_full(3), "it is whole");
        assert!(region.take_exact(3 * PAGEBLOCK_PAGES, 9, MigrateType::Movable));
        assert!(region.is_full(3));
        region.split(Pfn(3 * 512), Order::HUGE, Order::ZERO).unwrap();
        region.free(CpuId(0), Pfn(3 * 512 + 70), Order::ZERO).unwrap();
        region.drain_all();
        assert!(!region.is_full(3), "one page is free");
    }

    #[test]
    fn a_block_freed_or_split_while_its_pageblocks_are_isolated_leaves_them_isolated() {
        for order in [9u8, 10] {
            for splits in [false, true] {
                let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
                let region = storage.region(Pfn(0)).unwrap();
                region.add(Pfn(0)..Pfn(1024)).unwrap();
                let (pages, o, t) = (1 << order, Order::new(order).unwrap(), MigrateType::Movable);
                let blocks = 0..pages / PAGEBLOCK_PAGES;
                // As a contiguous range: isolated, taken, allocated.
                blocks.clone().for_each(|block| assert!(region.isolate_block(block)));
                region.take_bits(0..pages, false).unwrap();
                region.set_allocated(0, order, t);
                if splits {
                    region.split(Pfn(0), o, Order::ZERO).unwrap();
                    (0..pages).for_each(|frame| {
                        region.free(CpuId(0), Pfn(frame.into()), Order::ZERO).unwrap();
                    });
                } else {
                    region.free(CpuId(0), Pfn(0), o).unwrap();
                }
                region.drain_all();
                for block in blocks.clone() {
                    assert!(region.blocks.is_isolated(block), "{order} {splits}");
                    assert!(!region.blocks.whole().contains(block), "{order} {splits}");
                    assert_eq!(region.blocks.free_in(block), PAGEBLOCK_PAGES);
                }
                for block in blocks {
                    assert!(region.unisolate_block(block, t), "{order} {splits}");
                }
                assert_eq!(region.whole_blocks(), 2, "{order} {splits}");
                let counts = region.counts(CpuId(0)).unwrap();
                let moved = counts.returned as i64 - counts.taken as i64;
                assert_eq!(region.take_loose() + moved, 1024);
                region.validate().unwrap();
            }
        }
    }
}
