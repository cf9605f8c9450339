//! A region that gets its memory from a snapshot: pageblocks, free and allocated blocks, faulty frames.
//!
//! The caller has the yard to itself, so nothing here is ordered. Until the restore finishes, every
//! pageblock with a record is active: it is in no index and not isolated. It is whole only if the snapshot
//! lists it as a huge block, and the magazines had no room for that.

use lock_api::RawMutex;

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits::words_of_frames;
use crate::packed::blocks::Blocks;
use crate::packed::cpu::{Cpu, NONE};
use crate::packed::label::Meta;
use crate::packed::region::Region;
use crate::packed::route::ALWAYS_TO_ZONE;

impl Blocks<'_> {
    /// Makes an absent pageblock active, with this type. Returns false if it has a record already.
    fn begin_restore(&self, block: u32, t: MigrateType) -> bool {
        let Some(label) = self.label(block) else { return false };
        let is_new = Meta(label.load(Relaxed)).0 & Meta::ACTIVE == 0;
        if is_new {
            label.store(Meta::of(t, 0).0 | Meta::ACTIVE, Relaxed);
            // What a snapshot says to be in a magazine of a pageblock that is set apart goes to the zone.
            self.routes.set(block, if t.is_set_apart() { ALWAYS_TO_ZONE } else { 0 });
        }
        is_new
    }

    /// Returns the type that a record gave to a pageblock; `None` if it has none.
    fn restored_type(&self, block: u32) -> Option<MigrateType> {
        let meta = Meta(self.label(block)?.load(Relaxed));
        (meta.0 & Meta::ACTIVE != 0).then_some(meta.migrate_type())
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Gives an absent pageblock a type. Returns false if it has a record already.
    pub(crate) fn restore_block(&self, frame: u32, t: MigrateType) -> bool {
        self.blocks.begin_restore(frame / PAGEBLOCK_PAGES, t)
    }

    /// Returns the type that a record gave to a frame's pageblock; `None` if it has none.
    pub(crate) fn restored_type(&self, frame: u32) -> Option<MigrateType> {
        self.blocks.restored_type(frame / PAGEBLOCK_PAGES)
    }

    /// Makes an absent frame part of a block. Returns false if it is part of another one.
    pub(crate) fn restore_frame(&self, frame: u32) -> bool {
        self.state(frame).is_some_and(|state| state.begin_add(false))
    }

    /// Makes the frames of a restored block free. Those of isolated pageblocks are withheld from the
    /// zone's counter; returns how many others there are.
    pub(crate) fn restore_free(&self, frame: u32, order: u8) -> u32 {
        let pages = 1u32 << order;
        let isolated = self.restored_type(frame) == Some(MigrateType::Isolate);
        if isolated {
            let blocks = frame / PAGEBLOCK_PAGES..(frame + pages).div_ceil(PAGEBLOCK_PAGES);
            blocks.for_each(|block| self.blocks.add_withheld(block, pages.min(PAGEBLOCK_PAGES)));
        }
        let words = words_of_frames(frame..frame + pages);
        words.for_each(|(word, mask)| self.blocks.put(word, mask, 0));
        if isolated { 0 } else { pages }
    }

    /// Marks a frame that is in no block as faulty and out of use. The caller holds the zone lock.
    pub(crate) fn restore_faulty(&self, frame: u32) {
        self.mark(frame);
        if let Some(state) = self.state(frame) {
            state.set_faulty();
            self.blocks.out_of_use.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a restored block is in use or in a magazine, so that its pageblocks stay active if
    /// it is made of whole ones.
    pub(crate) fn restore_held(&self, frame: u32, order: u8) {
        if order < PAGEBLOCK_ORDER {
            return;
        }
        let first = frame / PAGEBLOCK_PAGES;
        for block in first..first + (1 << (order - PAGEBLOCK_ORDER)) {
            if let Some(label) = self.blocks.label(block) {
                label.fetch_or(Meta::HELD, Relaxed);
            }
        }
    }

    /// Publishes a pageblock with a record: whole, in the index, isolated, or held as a whole.
    pub(crate) fn finish_restore(&self, frame: u32) {
        let block = frame / PAGEBLOCK_PAGES;
        let (Some(t), Some(label)) = (self.restored_type(frame), self.blocks.label(block)) else {
            return;
        };
        let first = block * PAGEBLOCK_PAGES;
        for frame in first..first + PAGEBLOCK_PAGES {
            if self.index_of(self.pfn(frame)).is_some()
                && let Some(state) = self.state(frame)
            {
                state.leave_out();
            }
        }
        let meta = label.fetch_and(!Meta::HELD, Relaxed);
        let held = meta & Meta::HELD != 0;
        if t == MigrateType::Isolate {
            self.depots.close();
            self.blocks.routes.set(block, ALWAYS_TO_ZONE);
            // A huge block that the magazines had no room for is free, as after a drain.
            let freed = self.blocks.whole().remove(block);
            if freed {
                let words = words_of_frames(first..first + PAGEBLOCK_PAGES);
                words.for_each(|(word, mask)| self.blocks.put(word, mask, 0));
            }
            let active = if held && !freed { Meta::ACTIVE } else { 0 };
            let movable = MigrateType::Movable as u32;
            label.store(movable | meta & Meta::WITHHELD | active | Meta::ISOLATED, Relaxed);
        } else if t.is_set_apart() {
            self.blocks.routes.set(block, ALWAYS_TO_ZONE);
            self.blocks.list_set_apart(block, t);
        } else if !held {
            self.blocks.release(block, 0);
        }
    }

    /// Undoes a restore that did not finish. The caller holds the zone lock, and has made the CPUs'
    /// parts [forget](Cpu::forget) their blocks.
    pub(crate) fn make_blank(&self) {
        self.depots.trim(false, |_, _| {});
        for block in 0..self.blocks.len() {
            if self.blocks.restored_type(block).is_none() {
                continue;
            }
            let first = block * PAGEBLOCK_PAGES;
            for frame in first..first + PAGEBLOCK_PAGES {
                // A frame that was faulty before stays so. It is in no block.
                if self.state(frame).is_some_and(|state| state.is_memory()) {
                    self.forget_frame(frame);
                    self.blocks.remove_mark(frame);
                }
            }
            self.blocks.make_blank(block);
            self.blocks.update_taint(block);
        }
    }
}

impl Blocks<'_> {
    /// Makes a pageblock one without frames.
    fn make_blank(&self, block: u32) {
        let t = self.block_type(block);
        if t.is_set_apart() {
            self.set_apart(t).remove(block);
        }
        // It is whole if it was a listed huge block that the magazines had no room for.
        self.whole().remove(block);
        self.words_of(block).iter().for_each(|w| w.store(0, Relaxed));
        if let Some(label) = self.label(block) {
            label.store(Meta::of(MigrateType::Movable, 0).0, Relaxed);
        }
        self.routes.set(block, 0);
    }
}

impl Cpu {
    /// Forgets all of the CPU's blocks.
    pub(crate) fn forget(&mut self) {
        for slot in &mut self.slots {
            (slot.count, slot.previous_count, slot.run, slot.skip) = (0, 0, 0, 0);
        }
        self.pending = 0;
        self.pending_word = NONE;
    }
}
