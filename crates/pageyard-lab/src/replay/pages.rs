//! What each page is used for at a moment of a replay or of a recording, and which request
//! allocated it.

use std::ops::Range;

use super::lists::list_order;
use super::machine::Machine;
use super::plan::Origin;
use super::start::{FREE, Start};

/// The use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// In the zone's free lists.
    Free,
    /// On a CPU's list.
    Listed,
    /// Allocated by a request that the trace shows.
    Requested,
    /// In use since before the trace began.
    Before,
    /// In use; it left its list without an event (bulk requests have none).
    Silent,
}

/// One page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Since when, in nanoseconds of the trace's clock.
    pub(super) since: u64,
    /// The request; unspecified unless the use is [`Use::Requested`].
    pub(super) origin: Origin,
    pub(super) used: Use,
}

/// Bytes per frame.
pub(super) const PER_FRAME: u64 = size_of::<Page>() as u64;

/// Pages of one pageblock by use; all others are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) free: u16,
    pub(super) listed: u16,
}

/// Frames in a pageblock, and in a block of the greatest order.
pub(super) const BLOCK: usize = 512;
pub(super) const LARGEST: usize = 1024;

/// All pages of a machine. Frames are counted from the machine's lowest one.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Page>,
    blocks: Vec<Block>,
    zones: Vec<Range<usize>>,
    free: Vec<u64>,
    /// Of these by zone, pages in use: blocks were moved there, to frames that are not known.
    unplaced: Vec<u64>,
    /// Frames from the start of the lowest frame's block of the greatest order to that frame.
    offset: usize,
    /// Pairs of pageblocks that changed since they were last taken, and whether each is listed.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

impl Pages {
    /// Returns the pages as they were when recording began, at `first_ns`.
    pub(super) fn new(machine: &Machine, start: &Start, first_ns: u64) -> Pages {
        let offset = (machine.base() & (LARGEST as u64 - 1)) as usize;
        let base = machine.base();
        let span =
            |z: &super::machine::MachineZone| (z.start - base) as usize..(z.end() - base) as usize;
        let before = Page { since: first_ns, origin: Origin::default(), used: Use::Before };
        let mut pages = Pages {
            pages: vec![before; machine.frames()],
            blocks: vec![Block::default(); (machine.frames() + offset).div_ceil(BLOCK)],
            zones: machine.zones.iter().map(span).collect(),
            free: vec![0; machine.zones.len()],
            unplaced: vec![0; machine.zones.len()],
            offset,
            changed: Vec::new(),
            is_changed: vec![false; (machine.frames() + offset).div_ceil(LARGEST)],
        };
        (0..machine.frames()).step_by(LARGEST).for_each(|f| pages.touch(f as u32));
        if let Some(last) = machine.frames().checked_sub(1) {
            pages.touch(last as u32);
        }
        for (frame, state) in start.frames.iter().enumerate() {
            if state & FREE != 0 {
                pages.set(frame as u32, 0, Page { used: Use::Free, ..before });
            }
        }
        for lists in &start.cached {
            for (list, frames) in lists.iter().enumerate() {
                let listed = Page { used: Use::Listed, ..before };
                frames.iter().for_each(|&f| pages.set(f, list_order(list), listed));
            }
        }
        pages
    }

    /// Returns a page.
    pub(super) fn get(&self, frame: u32) -> Page {
        self.pages[frame as usize]
    }

    /// Sets the use of a block's pages.
    pub(super) fn set(&mut self, frame: u32, order: u8, page: Page) {
        let first = frame as usize;
        let end = (first + (1 << order)).min(self.pages.len());
        let zone = self.zones.iter().position(|z| z.contains(&first));
        self.touch(frame);
        for at in first..end {
            let old = std::mem::replace(&mut self.pages[at], page).used;
            if old == page.used {
                continue;
            }
            let block = &mut self.blocks[(at + self.offset) / BLOCK];
            for (used, by) in [(old, -1), (page.used, 1)] {
                match used {
                    Use::Free => {
                        block.free = block.free.wrapping_add_signed(by);
                        if let Some(zone) = zone {
                            self.free[zone] = self.free[zone].wrapping_add_signed(by.into());
                        }
                    }
                    Use::Listed => block.listed = block.listed.wrapping_add_signed(by),
                    _ => {}
                }
            }
        }
    }

    /// Notes that a pageblock changed.
    pub(super) fn touch(&mut self, frame: u32) {
        let pair = (frame as usize + self.offset) / LARGEST;
        if let Some(listed) = self.is_changed.get_mut(pair)
            && !std::mem::replace(listed, true)
        {
            self.changed.push(pair as u32);
        }
    }

    /// Takes the pairs of pageblocks that changed.
    pub(super) fn take_changed(&mut self) -> std::vec::IntoIter<u32> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().for_each(|&pair| self.is_changed[pair as usize] = false);
        changed.into_iter()
    }

    /// Returns the number of pairs of pageblocks.
    pub(super) fn pairs(&self) -> usize {
        self.is_changed.len()
    }

    /// Returns the number of zones.
    pub(super) fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Returns the frames of a pair of pageblocks, and how many of its first frames do not exist.
    pub(super) fn pair(&self, number: usize) -> (usize, Range<usize>) {
        let first = number * LARGEST;
        let skipped = self.offset.saturating_sub(first);
        let end = (first + LARGEST - self.offset).min(self.pages.len());
        (skipped, first + skipped - self.offset..end)
    }

    /// Returns a zone's pages in its free lists.
    pub(super) fn free(&self, zone: usize) -> u64 {
        self.free[zone].saturating_sub(self.unplaced[zone])
    }

    /// Notes that a block of this many pages was moved from this frame to another one of its zone.
    pub(super) fn moved(&mut self, frame: u32, pages: u64) {
        if let Some(zone) = self.zone_of(frame) {
            self.unplaced[zone] += pages;
        }
    }

    /// Notes that a block is freed. At a free frame, it is one that was moved there.
    pub(super) fn freed(&mut self, frame: u32, pages: u64) {
        if self.get(frame).used == Use::Free
            && let Some(zone) = self.zone_of(frame)
        {
            self.unplaced[zone] = self.unplaced[zone].saturating_sub(pages);
        }
    }

    /// Returns the zone that contains a frame.
    pub(super) fn zone_of(&self, frame: u32) -> Option<usize> {
        self.zones.iter().position(|z| z.contains(&(frame as usize)))
    }

    /// Returns the frames of a zone.
    pub(super) fn span(&self, zone: usize) -> Range<usize> {
        self.zones[zone].clone()
    }

    /// Returns the pages in a range of frames that lies in a zone.
    pub(super) fn within(&self, range: Range<usize>) -> &[Page] {
        &self.pages[range.start.min(self.pages.len())..range.end.min(self.pages.len())]
    }

    /// Returns the frames of the pageblock that contains a frame, as far as they belong to its
    /// zone.
    pub(super) fn block_of(&self, frame: usize) -> Range<usize> {
        let first = (frame + self.offset) / BLOCK * BLOCK;
        let range = first.saturating_sub(self.offset)..(first + BLOCK).saturating_sub(self.offset);
        match self.zones.iter().find(|z| z.contains(&frame)) {
            Some(zone) => range.start.max(zone.start)..range.end.min(zone.end),
            None => range,
        }
    }

    /// Returns the aligned range of 2^`order` frames of a zone with the fewest pages that are not
    /// free. For orders below a pageblock's, only the pageblock with the most free pages is
    /// searched. Each pageblock looked at is deducted from `budget`; `None` if it is used up.
    pub(super) fn nearest(&self, zone: usize, order: u8, budget: &mut u64) -> Option<Range<usize>> {
        let span = self.zones.get(zone)?;
        let aligned = |size: usize| {
            let first = (span.start + self.offset).next_multiple_of(size);
            (first..).step_by(size).take_while(move |f| f + size <= span.end + self.offset)
        };
        let looked = ((span.end - span.start) / BLOCK + 1) as u64;
        *budget = budget.checked_sub(looked)?;
        let size = 1usize << order;
        if size >= BLOCK {
            let free = |f: &usize| -> u64 {
                let blocks = &self.blocks[f / BLOCK..(f + size) / BLOCK];
                blocks.iter().map(|b| u64::from(b.free)).sum()
            };
            let best = aligned(size).max_by_key(|f| (free(f), std::cmp::Reverse(*f)))?;
            return Some(best - self.offset..best + size - self.offset);
        }
        let fullest =
            aligned(BLOCK).max_by_key(|f| (self.blocks[f / BLOCK].free, std::cmp::Reverse(*f)))?;
        let free = |f: &usize| {
            let range = f - self.offset..f + size - self.offset;
            self.pages[range].iter().filter(|p| p.used == Use::Free).count()
        };
        let best = (fullest..fullest + BLOCK)
            .step_by(size)
            .max_by_key(|f| (free(f), std::cmp::Reverse(*f)))?;
        Some(best - self.offset..best + size - self.offset)
    }
}
