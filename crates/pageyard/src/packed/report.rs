//! Whole pageblocks, and pieces of others, that are reported to the embedder as free (spec §9.9).

use core::ops::Range;

use lock_api::RawMutex;

use crate::base::units::{MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits;
use crate::packed::blocks::Blocks;
use crate::packed::region::Region;
use crate::packed::set::ones;

impl Blocks<'_> {
    /// Takes whole pageblocks that were not reported: one, or two that are a block of order 10.
    fn claim_fresh(&self, order: u8) -> Option<u32> {
        let fresh = self.whole().fresh;
        if order == PAGEBLOCK_ORDER {
            return core::iter::from_fn(|| fresh.find(0)).find(|&block| fresh.remove(block));
        }
        (0..).zip(fresh.words()).find_map(|(w, bits)| {
            let mut heads = ones(bits::run_heads(bits, 1));
            heads.find(|head| fresh.remove_all(w, 3 << head)).map(|head| w as u32 * 64 + head)
        })
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Takes a free block of order 9 or 10 that was not reported. The caller returns it with
    /// [`end_report`](Self::end_report).
    pub(crate) fn begin_report(&self, order: u8) -> Option<u32> {
        let block = self.blocks.claim_fresh(order)?;
        self.note_loose(-(1 << order));
        Some(block * PAGEBLOCK_PAGES)
    }

    /// Returns a block, reported or not.
    pub(crate) fn end_report(&self, frame: u32, order: u8, reported: bool) {
        let whole = self.blocks.whole();
        let first = frame / PAGEBLOCK_PAGES;
        for block in first..first + (1 << (order - PAGEBLOCK_ORDER)) {
            if reported {
                whole.reported.insert(block);
            } else {
                whole.fresh.insert(block);
            }
            self.note_loose(PAGEBLOCK_PAGES.into());
            // A call that marked a frame meanwhile has not found it.
            let first = block * PAGEBLOCK_PAGES;
            if self.blocks.is_tainted(block)
                && self.blocks.claim_at(block, 1)
                && self.is_sound(first, PAGEBLOCK_ORDER, 0)
            {
                // The mark is gone already.
                self.blocks.put_large(first, PAGEBLOCK_ORDER, 0);
            }
        }
    }

    /// Returns the first block that begins in a part of a pageblock and is free as bits: the largest there
    /// of one of these orders and of up to 64 pages. May be stale.
    pub(crate) fn next_piece(
        &self,
        frames: Range<u32>,
        orders: &Range<u8>,
    ) -> Option<(u32, Order)> {
        let orders = orders.start..orders.end.min(7);
        for word in frames.start / 64..frames.end.div_ceil(64) {
            let behind = u64::MAX << frames.start.saturating_sub(word * 64);
            let bits = self.blocks.word_now(word) & behind;
            let head = bits::run_heads(bits, orders.start).trailing_zeros();
            let frame = word * 64 + head;
            if head < 64 && frame < frames.end {
                let is_free = |order: &u8| bits::run_heads(bits, *order) >> head & 1 != 0;
                return Some((frame, Order::new(orders.rev().find(is_free)?)?));
            }
        }
        None
    }

    /// Takes a block within a word, if it is still free and its pageblock serves every request. The caller
    /// returns it with [`free_large`](Self::free_large).
    pub(crate) fn begin_piece(&self, frame: u32, order: u8) -> bool {
        let taken = self.blocks.take_block_at(frame, order, MigrateType::Unmovable);
        self.blocks.after_take(frame / PAGEBLOCK_PAGES, 0);
        let taken = taken && self.is_sound(frame, order, 0);
        if taken {
            self.note_loose(-(1 << order));
        }
        taken
    }

    /// Returns whether a whole pageblock has not been reported.
    pub(crate) fn has_unreported(&self) -> bool {
        self.blocks.whole().fresh.find(0).is_some()
    }

    /// Returns the free blocks of order 9 or 10 that have not been reported.
    pub(crate) fn unreported(&self, order: u8) -> u64 {
        let fresh = self.blocks.whole().fresh;
        let pairs = || fresh.words().map(|bits| u64::from(bits::run_heads(bits, 1).count_ones()));
        if order == PAGEBLOCK_ORDER { fresh.len() } else { pairs().sum() }
    }

    /// Returns the pages of whole pageblocks that have been reported.
    pub(crate) fn reported_pages(&self) -> u64 {
        self.blocks.whole().reported.len() * u64::from(PAGEBLOCK_PAGES)
    }
}
