//! Frames with faulty memory, which are kept out of use (spec §11.3).
//!
//! A bit marks a faulty frame. A marked frame that is in no block is *out of use*: its state says so,
//! and its bit of free frames stays clear. A frame that is marked while it is free is taken by the
//! call that marks it; one in use, by the free of its block. So that no free misses the mark,
//! frees to a pageblock with a marked frame bypass the magazines, and look at the marks.
//!
//! Marks change under the zone lock. A free does not take it: after it has put a frame out of use it
//! looks at the mark again, and after a mark is removed, the frame's state decides who frees the
//! frame.
//!
//! A frame can be marked while an operation without a CPU's lock moves it, for example while it makes a
//! pageblock whole. The marking call does not find the frame then, and the operation returns it to
//! the zone. So requests look at the marks of what they take from the zone.

use lock_api::RawMutex;

use crate::base::shared::AtomicU64;
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::units::{PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits::{self, WORDS, words_of_frames};
use crate::packed::blocks::Blocks;
use crate::packed::cpu::Cpu;
use crate::packed::region::Region;
use crate::packed::set::ones;

impl Blocks<'_> {
    fn marks_of(&self, word: u32) -> Option<&AtomicU64> {
        self.faulty.get(word as usize / WORDS)?.word(word as usize % WORDS)
    }

    /// Returns the marked frames of a word.
    fn marked(&self, word: u32) -> u64 {
        if self.routes.has_faulty() { self.marks_of(word).map_or(0, |w| w.load(SeqCst)) } else { 0 }
    }

    pub(crate) fn is_marked(&self, frame: u32) -> bool {
        self.marked(frame / 64) >> (frame % 64) & 1 != 0
    }

    /// Returns whether a pageblock has a marked frame.
    #[inline(always)]
    pub(crate) fn is_tainted(&self, block: u32) -> bool {
        self.routes.has_faulty() && self.has_marks(block)
    }

    /// Sends frees into a pageblock to the zone while it has a marked frame. Call it after each change
    /// of its marks; the caller holds the zone lock, under which they change.
    pub(super) fn update_taint(&self, block: u32) {
        self.routes.set_taint(block, self.is_tainted(block));
    }

    #[cold]
    #[inline(never)]
    fn has_marks(&self, block: u32) -> bool {
        let first = block * WORDS as u32;
        (first..first + WORDS as u32).any(|word| self.marked(word) != 0)
    }

    /// Removes a frame's mark, and nothing else.
    pub(super) fn remove_mark(&self, frame: u32) {
        if let Some(marks) = self.marks_of(frame / 64) {
            marks.fetch_and(!(1 << (frame % 64)), SeqCst);
        }
    }

    /// Returns whether a frame of a block is marked.
    fn is_block_tainted(&self, frame: u32, order: u8) -> bool {
        self.routes.has_faulty()
            && words_of_frames(frame..frame + (1 << order))
                .any(|(word, mask)| self.marked(word) & mask != 0)
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Returns how many frames are out of use.
    pub(crate) fn out_of_use(&self) -> u64 {
        self.blocks.out_of_use.load(Relaxed)
    }

    /// Marks a frame as faulty. Returns false if it is. The caller holds the zone lock.
    pub(crate) fn mark(&self, frame: u32) -> bool {
        self.blocks.routes.note_faulty();
        let bit = 1 << (frame % 64);
        let marks = self.blocks.marks_of(frame / 64);
        let is_new = marks.is_some_and(|marks| marks.fetch_or(bit, SeqCst) & bit == 0);
        self.blocks.update_taint(frame / PAGEBLOCK_PAGES);
        is_new
    }

    /// Takes a marked frame out of use if it is free in the zone. Returns whether it is out of use.
    pub(crate) fn take_marked(&self, frame: u32) -> bool {
        let Some(state) = self.state(frame) else { return false };
        if state.is_faulty() {
            return true;
        }
        let (block, bit) = (frame / PAGEBLOCK_PAGES, 1 << (frame % 64));
        let claimed = self.blocks.claim_at(block, 1);
        if claimed {
            self.blocks.open(block, self.blocks.block_type(block));
        }
        let taken = self.blocks.take_mask(frame / 64, bit);
        let kept = self.keep_taken(frame / 64, taken) != 0;
        if taken != 0 && !kept {
            self.blocks.put(frame / 64, bit, 0);
        }
        if claimed {
            self.blocks.release(block, 0);
        } else if kept {
            self.blocks.after_take(block, 0);
        }
        kept
    }

    /// Removes a frame's mark; one that is out of use becomes free. Returns false if it has none. The
    /// caller holds the zone lock.
    pub(crate) fn unmark(&self, frame: u32) -> bool {
        let (block, bit) = (frame / PAGEBLOCK_PAGES, 1 << (frame % 64));
        let marks = self.blocks.marks_of(frame / 64);
        if marks.is_none_or(|marks| marks.fetch_and(!bit, SeqCst) & bit == 0) {
            return false;
        }
        if self.state(frame).is_some_and(|state| state.end_faulty()) {
            self.blocks.out_of_use.fetch_sub(1, Relaxed);
            self.blocks.put(frame / 64, bit, 0);
            self.note_loose(1);
        }
        self.blocks.update_taint(block);
        true
    }

    /// Frees a block of a pageblock with marked frames for a CPU. Returns that pages went to the
    /// zone.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_tainted(&self, cpu: &mut Cpu, frame: u32, order: u8) -> bool {
        let pages = self.put_sound(frame, order, cpu.domain as usize);
        cpu.counts.returned += u64::from(pages);
        cpu.lost += (1 << order) - pages;
        true
    }

    /// Frees a block to the zone without a CPU's lock. Returns the pages that became free.
    pub(crate) fn put_alone(&self, frame: u32, order: u8, domain: usize) -> u32 {
        let pages = self.put_sound(frame, order, domain);
        if !self.blocks.is_block_tainted(frame, order) {
            return pages;
        }
        // Marked since `put_sound` looked: the marking call may have missed the frame, as no lock of a
        // CPU made it wait.
        let marked = |(word, mask)| (word, self.blocks.marked(word) & mask);
        for (word, marked) in words_of_frames(frame..frame + (1 << order)).map(marked) {
            for bit in ones(marked) {
                self.take_marked(word * 64 + bit);
            }
        }
        pages
    }

    /// Returns whether a block that was taken from the zone has no marked frame. If it has, its other
    /// frames become free again.
    pub(super) fn is_sound(&self, frame: u32, order: u8, domain: usize) -> bool {
        if !self.blocks.is_block_tainted(frame, order) {
            return true;
        }
        let pages = self.put_sound(frame, order, domain);
        self.note_loose(i64::from(pages) - (1 << order));
        false
    }

    /// Returns the heads of those blocks, taken from a word, that have no marked frame. The other
    /// frames of the other blocks become free again.
    #[inline(always)]
    pub(super) fn sound_heads(&self, word: u32, heads: u64, order: u8, domain: usize) -> u64 {
        let tainted = self.blocks.marked(word) & bits::fill_runs(heads, order) != 0;
        if tainted { self.keep_heads(word, heads, order, domain) } else { heads }
    }

    #[cold]
    #[inline(never)]
    fn keep_heads(&self, word: u32, heads: u64, order: u8, domain: usize) -> u64 {
        let taken = bits::fill_runs(heads, order);
        let rest = taken & !self.keep_taken(word, taken);
        let sound = bits::run_heads(rest, order) & heads;
        let rest = rest & !bits::fill_runs(sound, order);
        if rest != 0 {
            self.blocks.put(word, rest, domain);
        }
        sound
    }

    /// As [`keep_marked`](Self::keep_marked), of frames that count as free.
    pub(super) fn keep_taken(&self, word: u32, mask: u64) -> u64 {
        let kept = self.keep_marked(word, mask);
        if kept != 0 {
            self.note_loose(-i64::from(kept.count_ones()));
        }
        kept
    }

    /// Frees the frames of a block that are not marked, and puts the others out of use. Returns how
    /// many became free.
    fn put_sound(&self, frame: u32, order: u8, domain: usize) -> u32 {
        if !self.blocks.is_block_tainted(frame, order) {
            self.blocks.put_back(frame, order, domain);
            return 1 << order;
        }
        if order < PAGEBLOCK_ORDER {
            return self.put_sound_words(frame, order, domain);
        }
        let blocks = frame / PAGEBLOCK_PAGES..(frame + (1 << order)) / PAGEBLOCK_PAGES;
        blocks.map(|block| self.put_sound_block(block, domain)).sum()
    }

    /// Frees the frames of a pageblock in no index, none of which is free, as
    /// [`put_sound`](Self::put_sound).
    fn put_sound_block(&self, block: u32, domain: usize) -> u32 {
        let frame = block * PAGEBLOCK_PAGES;
        if !self.blocks.is_tainted(block) {
            self.blocks.put_large(frame, PAGEBLOCK_ORDER, domain);
            return PAGEBLOCK_PAGES;
        }
        self.blocks.break_up(block, self.blocks.block_type(block));
        self.put_sound_words(frame, PAGEBLOCK_ORDER, domain)
    }

    fn put_sound_words(&self, frame: u32, order: u8, domain: usize) -> u32 {
        let sound = words_of_frames(frame..frame + (1 << order)).map(|(word, mask)| {
            let sound = mask & !self.keep_marked(word, mask);
            if sound != 0 {
                self.blocks.put(word, sound, domain);
            }
            sound.count_ones()
        });
        sound.sum()
    }

    /// Puts the marked ones of these frames, which the caller has, out of use. Returns them.
    fn keep_marked(&self, word: u32, mask: u64) -> u64 {
        let mut kept = self.blocks.marked(word) & mask;
        for bit in ones(kept) {
            let frame = word * 64 + bit;
            let Some(state) = self.state(frame) else { continue };
            self.blocks.out_of_use.fetch_add(1, Relaxed);
            state.set_faulty();
            if !self.blocks.is_marked(frame) && state.end_faulty() {
                // Unmarked meanwhile, by a call that did not find it out of use.
                self.blocks.out_of_use.fetch_sub(1, Relaxed);
                kept &= !(1 << bit);
            }
        }
        kept
    }

    /// Returns those of these frames that are out of use.
    pub(super) fn faulty_in(&self, word: u32, mask: u64) -> u64 {
        let is_faulty =
            |bit: &u32| self.state(word * 64 + bit).is_some_and(|state| state.is_faulty());
        ones(self.blocks.marked(word) & mask)
            .filter(is_faulty)
            .fold(0, |out, bit| out | 1u64 << bit)
    }

    /// Forgets a frame that was taken or is out of use: it is no memory any more. A mark stays, for
    /// when it is added again.
    pub(super) fn forget_frame(&self, frame: u32) {
        let Some(state) = self.state(frame) else { return };
        if state.is_faulty() {
            self.blocks.out_of_use.fetch_sub(1, Relaxed);
        }
        state.clear();
    }
}
