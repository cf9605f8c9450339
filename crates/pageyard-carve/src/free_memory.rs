//! Which memory is free according to a memory map, and where maps fit in it.

use core::ops::Range;

use pageyard::{NodeId, PAGE_SIZE, Pfn, ZoneKind, ZoneSpec};

/// The zones of a node by address, as on x86-64 (§1.2): each kind with its end frame.
const ZONES: [(ZoneKind, Pfn); 3] = [
    (ZoneKind::Dma, Pfn::containing(16 << 20)),
    (ZoneKind::Dma32, Pfn::containing(4 << 30)),
    (ZoneKind::Normal, Pfn(u64::MAX / PAGE_SIZE + 1)),
];

/// Memory as firmware describes it: usable ranges and those of them in use, as iterators over
/// physical addresses in bytes.
///
/// Ranges may be in any order, and may overlap or adjoin; empty ones are ignored. Usable ranges are
/// rounded inward to whole pages, reserved ranges outward. [`MemoryMap`](crate::MemoryMap) makes an
/// allocator of slices of ranges; this type is for boot code that converts its loader's entries as
/// it reads them, and creates the allocator itself.
///
/// ```
/// use pageyard::Pfn;
/// use pageyard_carve::FreeMemory;
///
/// // Address, size and type, as in an e820 map.
/// let entries = [(0, 0x9_fc00, 1), (0x10_0000, 0x70_0000, 1), (0xfec0_0000, 0x1000, 2)];
/// let usable = entries.iter().filter(|e| e.2 == 1).map(|e| e.0..e.0 + e.1);
/// let image = 0x20_0000..0x34_5678;
/// let memory = FreeMemory::new(usable, [image].into_iter());
///
/// assert!(memory.runs().eq([Pfn(0)..Pfn(0x9f), Pfn(0x100)..Pfn(0x800)]));
/// assert_eq!(memory.place(0x100, 0x1000), Some(Pfn(0x700)..Pfn(0x800)));
/// ```
#[derive(Clone, Debug)]
pub struct FreeMemory<U, R> {
    usable: U,
    reserved: R,
}

impl<U, R> FreeMemory<U, R>
where
    U: Iterator<Item = Range<u64>> + Clone,
    R: Iterator<Item = Range<u64>> + Clone,
{
    /// Describes memory that is usable, except for what is reserved. Both iterators are run several
    /// times, and must yield the same each time.
    pub const fn new(usable: U, reserved: R) -> Self {
        FreeMemory { usable, reserved }
    }

    /// Iterates over the usable frames, reserved ones included, as disjoint ranges, ascending. No
    /// two adjoin.
    pub fn runs(&self) -> impl Iterator<Item = Range<Pfn>> + Clone + '_ {
        let mut done = 0;
        core::iter::from_fn(move || {
            let pages = || self.usable.clone().map(|r| whole_pages(&r)).filter(|r| !r.is_empty());
            let mut run = pages().filter(|r| r.end > done).min_by_key(|r| r.start)?;
            while let Some(next) = pages().find(|r| r.start <= run.end && r.end > run.end) {
                run.end = next.end;
            }
            done = run.end;
            Some(Pfn(run.start)..Pfn(run.end))
        })
    }

    /// Iterates over [`runs`](Self::runs) without the frames of `except`.
    pub fn runs_without(&self, except: Range<Pfn>) -> impl Iterator<Item = Range<Pfn>> + '_ {
        let parts = move |run: Range<Pfn>| {
            [run.start..except.start.min(run.end), except.end.max(run.start)..run.end]
        };
        self.runs().flat_map(parts).filter(|part| !part.is_empty())
    }

    /// Iterates over the frames that reserved ranges touch, range by range, as they are given.
    pub fn reserved(&self) -> impl Iterator<Item = Range<Pfn>> + '_ {
        self.reserved.clone().map(|r| touched_pages(&r))
    }

    /// Writes the zones that have memory, each from its first to its last usable frame: DMA below
    /// 16 MiB, DMA32 below 4 GiB, Normal above (§1.2). All are of node 0. Returns those written.
    pub fn zones<'z>(&self, to: &'z mut [ZoneSpec; 3]) -> &'z [ZoneSpec] {
        let (mut from, mut n) = (Pfn(0), 0);
        for (kind, end) in ZONES {
            let parts = || self.runs().filter(|r| r.start < end && r.end > from);
            let span = parts().map(|r| r.start).min().zip(parts().map(|r| r.end).max());
            if let (Some((first, last)), Some(zone)) = (span, to.get_mut(n)) {
                *zone = ZoneSpec { kind, node: NodeId(0), span: first.max(from)..last.min(end) };
                n += 1;
            }
            from = end;
        }
        to.get(..n).unwrap_or(&[])
    }

    /// Returns a free run of `pages` frames for the allocator's maps: the highest one below 4 GiB,
    /// or above if there is none. Memory below is preferred because all of it is mapped early.
    ///
    /// `direct_map` is the virtual address of physical address 0. The frame at the virtual address 0
    /// is not used, as no slice may begin there.
    pub fn place(&self, pages: u64, direct_map: usize) -> Option<Range<Pfn>> {
        let low = Pfn::containing(4 << 30).0;
        self.place_below(pages, low, direct_map)
            .or_else(|| self.place_below(pages, u64::MAX, direct_map))
    }

    fn place_below(&self, pages: u64, below: u64, direct_map: usize) -> Option<Range<Pfn>> {
        let zero = Pfn((direct_map as u64).wrapping_neg() / PAGE_SIZE);
        let runs = self.runs().map(|r| if r.start == zero { Pfn(zero.0 + 1)..r.end } else { r });
        runs.filter_map(|run| self.place_in(&run, pages, below)).last()
    }

    fn place_in(&self, run: &Range<Pfn>, pages: u64, below: u64) -> Option<Range<Pfn>> {
        let mut end = run.end.0.min(below);
        loop {
            let start = end.checked_sub(pages).filter(|&start| start >= run.start.0)?;
            let used = self.reserved().filter(|r| r.start.0 < end && r.end.0 > start);
            match used.map(|r| r.start.0).min() {
                Some(lowest) => end = lowest,
                None => return Some(Pfn(start)..Pfn(end)),
            }
        }
    }
}

/// Returns the whole pages of a range of addresses.
fn whole_pages(r: &Range<u64>) -> Range<u64> {
    r.start.div_ceil(PAGE_SIZE)..r.end / PAGE_SIZE
}

/// Returns the pages that a range of addresses touches.
fn touched_pages(r: &Range<u64>) -> Range<Pfn> {
    if r.is_empty() {
        return Pfn(0)..Pfn(0);
    }
    Pfn(r.start / PAGE_SIZE)..Pfn(r.end.div_ceil(PAGE_SIZE))
}

#[cfg(test)]
mod tests {
    use core::iter::{empty, once};

    use super::*;

    #[test]
    fn maps_never_begin_at_the_virtual_address_0() {
        let memory = FreeMemory::new(once(0..16 * PAGE_SIZE), empty());
        assert_eq!(memory.place(16, 0), None);
        assert_eq!(memory.place(15, 0), Some(Pfn(1)..Pfn(16)));
        assert_eq!(memory.place(16, 1 << 30), Some(Pfn(0)..Pfn(16)));
    }

    /// A range of one page inside the run, an empty one inside it, and one at its end.
    #[test]
    fn maps_avoid_reserved_pages() {
        let reserved = [0x5800..0x5801, 0x3000..0x3000, 0xf000..0x2_0000];
        let memory = FreeMemory::new(once(0x1000..0x1_0000), reserved.into_iter());
        assert_eq!(memory.place(9, 0), Some(Pfn(6)..Pfn(15)));
        assert_eq!(memory.place(10, 0), None);
        let low = FreeMemory::new([0x1000..0x6000, 6 << 30..7 << 30].into_iter(), empty());
        assert_eq!(low.place(5, 0), Some(Pfn(1)..Pfn(6)), "below 4 GiB");
        assert_eq!(low.place(6, 0), Some(Pfn((7 << 18) - 6)..Pfn(7 << 18)), "above");
    }

    #[test]
    fn runs_without_a_range_keep_both_sides() {
        let memory = FreeMemory::new([0x1000..0x8000, 0x9000..0xa000].into_iter(), empty());
        let runs = |except: Range<u64>| {
            let parts = memory.runs_without(Pfn(except.start)..Pfn(except.end));
            let mut found = [(0, 0); 4];
            let n = found.iter_mut().zip(parts).map(|(to, r)| *to = (r.start.0, r.end.0)).count();
            (found, n)
        };
        assert_eq!(runs(3..5), ([(1, 3), (5, 8), (9, 10), (0, 0)], 3));
        assert_eq!(runs(1..8), ([(9, 10), (0, 0), (0, 0), (0, 0)], 1));
        assert_eq!(runs(0..1), ([(1, 8), (9, 10), (0, 0), (0, 0)], 2));
    }
}
