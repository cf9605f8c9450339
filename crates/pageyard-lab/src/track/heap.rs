//! The heap as a map of pageblocks over time.

use pageyard::{MigrateType, PAGEBLOCK_PAGES, Pfn};
use serde::{Deserialize, Serialize};

use super::series::{as_many, ascending};

/// The heap over time as frames of cells. A cell is a pageblock or, on a large heap, several
/// neighbouring pageblocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeapTrack {
    /// Pageblocks that have memory.
    pub pageblocks: u64,
    /// Number of pageblocks, in ascending order, that share a cell; the last cell may have fewer.
    /// The cell's type is the most common type of its pageblocks (the lower type if two are equally
    /// common). Its fullness is that of all its pageblocks together.
    pub blocks_per_cell: u64,
    /// Time of each frame.
    pub times_ns: Vec<u64>,
    /// Base pages in use in each frame.
    pub in_use: Vec<u64>,
    /// The frames. Each cell is two hexadecimal digits: its type (0 unmovable, 1 movable, 2
    /// reclaimable, 3 highatomic, 4 CMA, 5 isolate) and its fullness.
    pub frames: Vec<String>,
}

/// A cell of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The type of its pageblocks.
    pub migrate_type: u8,
    /// 0: all free; 15: all in use; 1 to 14: in equal steps between. Pages on per-CPU lists count
    /// as free.
    pub fullness: u8,
}

impl Cell {
    /// Creates a cell with `used` of its `pages` pages in use.
    pub(super) fn new(migrate_type: u8, used: u64, pages: u64) -> Cell {
        let fullness = match used {
            0 => 0,
            _ if used >= pages => 15,
            _ => 1 + used * 14 / pages,
        };
        Cell { migrate_type, fullness: fullness as u8 }
    }

    /// Returns the cell's two digits.
    pub(super) fn digits(self) -> [char; 2] {
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
        [digit(self.migrate_type), digit(self.fullness)]
    }
}

impl HeapTrack {
    /// Checks the form, as [`Track::check`](super::Track) does.
    pub(super) fn check(&self) -> Result<(), String> {
        let times = self.times_ns.len();
        ascending("heap/times_ns", &self.times_ns)?;
        as_many("heap/in_use", self.in_use.len(), times)?;
        as_many("heap/frames", self.frames.len(), times)?;
        let all = self.frames.first().map_or(0, String::len);
        for (i, frame) in self.frames.iter().enumerate() {
            let digits = frame.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
            if !digits || frame.is_empty() || frame.len() % 2 != 0 || frame.len() != all {
                return Err(format!(
                    "heap/frames/{i} is not a map; expected two hexadecimal digits per cell, as \
                     many as in the first"
                ));
            }
            if let Some(c) = frame.bytes().step_by(2).find(|c| !(b'0'..=b'5').contains(c)) {
                return Err(format!("heap/frames/{i} has a cell of type {}", char::from(c)));
            }
        }
        Ok(())
    }

    /// Returns the cells of a frame; empty if there is no such frame.
    pub fn cells(&self, frame: usize) -> Vec<Cell> {
        let Some(frame) = self.frames.get(frame) else { return Vec::new() };
        let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
        let cell = |b: &[u8]| Cell { migrate_type: digit(b[0]), fullness: digit(b[1]) };
        frame.as_bytes().chunks_exact(2).map(cell).collect()
    }
}

/// Pages in use per pageblock, updated as blocks are allocated and freed.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    /// Ranges of pageblocks with memory: the number of the first pageblock, and the index of its
    /// count.
    spans: Vec<(u64, usize)>,
    used: Vec<u32>,
    pub(super) in_use: u64,
}

const PAGES: u64 = PAGEBLOCK_PAGES as u64;

impl Usage {
    /// Creates counts for memory in these ranges of frames, in ascending order.
    pub(super) fn new(memory: &[std::ops::Range<Pfn>]) -> Usage {
        let mut spans: Vec<(u64, usize)> = Vec::new();
        let mut blocks = 0;
        let mut end = 0;
        for range in memory {
            let first = (range.start.0 / PAGES).max(end);
            end = range.end.0.div_ceil(PAGES).max(first);
            if end > first {
                spans.push((first, blocks));
                blocks += (end - first) as usize;
            }
        }
        Usage { spans, used: vec![0; blocks], in_use: 0 }
    }

    pub(super) fn blocks(&self) -> usize {
        self.used.len()
    }

    /// Adds (`sign` 1) or removes (`sign` -1) a block of `pages` pages in use.
    pub(super) fn change(&mut self, pfn: Pfn, pages: u64, sign: i64) {
        self.in_use = self.in_use.saturating_add_signed(pages as i64 * sign);
        let (mut at, end) = (pfn.0, pfn.0 + pages);
        while at < end {
            let next = (at / PAGES + 1) * PAGES;
            let part = next.min(end) - at;
            if let Some(used) = self.place(at / PAGES).and_then(|i| self.used.get_mut(i)) {
                *used = used.saturating_add_signed(part as i32 * sign as i32);
            }
            at = next;
        }
    }

    fn place(&self, block: u64) -> Option<usize> {
        let span = self.spans.partition_point(|s| s.0 <= block).checked_sub(1)?;
        let (first, at) = self.spans[span];
        Some(at + (block - first) as usize)
    }

    /// Returns a frame with this many pageblocks per cell.
    pub(super) fn frame(&self, per_cell: usize, type_of: &dyn Fn(Pfn) -> MigrateType) -> String {
        let mut frame = String::with_capacity(2 * self.used.len().div_ceil(per_cell));
        let firsts = self.spans.iter().enumerate().flat_map(|(i, &(first, at))| {
            let end = self.spans.get(i + 1).map_or(self.used.len(), |next| next.1);
            (0..(end - at) as u64).map(move |n| first + n)
        });
        let mut firsts = firsts;
        for used in self.used.chunks(per_cell) {
            let mut types = [0u32; 16];
            for block in firsts.by_ref().take(used.len()) {
                types[type_of(Pfn(block * PAGES)) as usize & 15] += 1;
            }
            // `max_by_key` returns the last maximum, so the reversed order yields the lowest type.
            let most = (0..16).rev().max_by_key(|&t| types[t]).unwrap_or(0);
            let sum = used.iter().map(|&n| u64::from(n)).sum();
            let cell = Cell::new(most as u8, sum, used.len() as u64 * PAGES);
            frame.extend(cell.digits());
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_follows_blocks_across_pageblocks_and_holes() {
        // Two ranges with a hole of two pageblocks between them.
        let mut u = Usage::new(&[Pfn(512)..Pfn(1536), Pfn(2560)..Pfn(3072)]);
        assert_eq!(u.blocks(), 3);
        u.change(Pfn(512), 1024, 1);
        u.change(Pfn(2560), 1, 1);
        u.change(Pfn(1024), 256, -1);
        assert_eq!((u.used.as_slice(), u.in_use), (&[512, 256, 1][..], 769));
        let kind =
            |pfn: Pfn| if pfn.0 >= 2560 { MigrateType::Movable } else { MigrateType::Unmovable };
        assert_eq!(u.frame(1, &kind), "0f0811");
        // Two unmovable pageblocks together, three quarters full. The last cell has only one
        // pageblock.
        assert_eq!(u.frame(2, &kind), "0b11");
        let heap = HeapTrack { frames: vec![u.frame(2, &kind)], ..HeapTrack::default() };
        assert_eq!(heap.cells(0)[1], Cell { migrate_type: 1, fullness: 1 });
        assert!(heap.cells(1).is_empty());
    }

    #[test]
    fn fullness_is_extreme_only_at_the_extremes() {
        let full = |used| Cell::new(1, used, 512).fullness;
        assert_eq!([0, 1, 36, 37, 511, 512].map(full), [0, 1, 1, 2, 14, 15]);
    }
}
