//! The blocks that a pass has collected: blocks to move, and free blocks to move them to (spec
//! §7.4).

use crate::base::frame::{Kind, Map, NIL, State};
use crate::base::units::{
    MAX_ORDER, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_end, block_start,
};
use crate::ranges::compact::CLUSTER;

/// Blocks to move, all in one pageblock: 32 pages, or one larger block. Two bytes each, because a
/// pass lies on the stack of a request.
#[derive(Default)]
pub(super) struct Batch {
    /// Order, and index within the pageblock.
    blocks: [u16; CLUSTER as usize],
    len: u8,
    /// Index of the block whose owner is asked next.
    next: u8,
    /// Number of blocks, at the front of `blocks`, whose owners are asked again in the next round.
    kept: u8,
    /// Rounds left, including this one.
    pub(super) tries: u8,
    /// Whether a place for the next block has been searched for.
    pub(super) sought: bool,
    /// There is no free block left for any block.
    pub(super) no_place: bool,
    /// The first index of the pageblock.
    start: u32,
    /// Pages in the next block and those after it.
    pub(super) pages: u16,
    kept_pages: u16,
    moved: u16,
    failed: u16,
}

impl Batch {
    pub(super) fn push(&mut self, idx: u32, order: u8) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            self.start = block_start(idx);
            *slot = u16::from(order) << PAGEBLOCK_ORDER | (idx - self.start) as u16;
            self.len += 1;
            self.pages += 1 << order;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.pages() >= CLUSTER || usize::from(self.len) >= self.blocks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages.into()
    }

    /// One past the last index of the pageblock.
    pub(super) fn block_end(&self) -> u32 {
        block_end(self.start)
    }

    /// Returns the next block of this round and its order.
    pub(super) fn current(&self) -> Option<(u32, u8)> {
        let block = *self.blocks.get(..usize::from(self.len))?.get(usize::from(self.next))?;
        Some((self.start + u32::from(block & INDEX), (block >> PAGEBLOCK_ORDER) as u8))
    }

    pub(super) fn go_on(&mut self, order: u8) {
        self.next += 1;
        self.pages = self.pages.saturating_sub(1 << order);
        self.sought = false;
    }

    pub(super) fn note_moved(&mut self, order: u8) {
        self.go_on(order);
        self.moved += 1 << order;
    }

    pub(super) fn note_stayed(&mut self, order: u8) {
        self.go_on(order);
        self.failed += 1 << order;
    }

    /// Keeps the block, so that its owner is asked again in the next round.
    pub(super) fn keep(&mut self, order: u8) {
        let block = self.blocks.get(usize::from(self.next)).copied();
        if let (Some(to), Some(block)) = (self.blocks.get_mut(usize::from(self.kept)), block) {
            *to = block;
        }
        self.kept += 1;
        self.kept_pages += 1 << order;
        self.go_on(order);
    }

    /// Begins another round with the kept blocks. Returns `false` if there is none.
    pub(super) fn begin_round(&mut self) -> bool {
        (self.len, self.pages) = (self.kept, self.kept_pages);
        (self.next, self.kept, self.kept_pages) = (0, 0, 0);
        self.tries = self.tries.saturating_sub(1);
        self.len > 0 && self.tries > 0
    }

    /// Returns the pages that were moved and the pages that were not.
    pub(super) fn outcome(&self) -> (u32, u32) {
        (self.moved.into(), u32::from(self.failed) + u32::from(self.pages))
    }
}

/// Mask of an index within a pageblock.
const INDEX: u16 = PAGEBLOCK_PAGES as u16 - 1;

/// The most pages held while a block waits for a place large enough.
const MOST_HELD: u32 = PAGEBLOCK_PAGES;

/// Free blocks taken off the lists, by order.
pub(super) struct Held {
    /// The first block of each order; the others are linked behind it.
    heads: [u32; MAX_ORDER as usize + 1],
    pub(super) pages: u32,
}

impl Held {
    pub(super) fn none() -> Held {
        Held { heads: [NIL; MAX_ORDER as usize + 1], pages: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Returns whether more blocks may be held.
    pub(super) fn has_room(&self) -> bool {
        self.pages < MOST_HELD
    }

    /// Holds a block that is on no list.
    pub(super) fn put(&mut self, map: &Map<'_>, idx: u32, order: u8) {
        let frame = map.frame(idx);
        frame.set_state(State::new(Kind::Held, order, MigrateType::Movable));
        let Some(head) = self.heads.get_mut(usize::from(order)) else { return };
        frame.set_next(*head);
        *head = idx;
        self.pages = self.pages.saturating_add(1 << (order & 15));
    }

    pub(super) fn pop(&mut self, map: &Map<'_>, order: u8) -> Option<u32> {
        let head = self.heads.get_mut(usize::from(order))?;
        let idx = *head;
        *head = map.get(idx.into())?.next();
        self.pages = self.pages.saturating_sub(1 << (order & 15));
        Some(idx)
    }

    /// Takes a block of this order, split off the smallest held block that contains one.
    pub(super) fn take(&mut self, map: &Map<'_>, order: u8) -> Option<u32> {
        let (idx, mut found) = (order..=MAX_ORDER).find_map(|o| Some((self.pop(map, o)?, o)))?;
        while found > order {
            found -= 1;
            self.put(map, idx.saturating_add(1 << found), found);
        }
        Some(idx)
    }

    /// Takes any block, and returns it with its order.
    pub(super) fn take_any(&mut self, map: &Map<'_>) -> Option<(u32, u8)> {
        (0..=MAX_ORDER).find_map(|o| Some((self.pop(map, o)?, o)))
    }
}
