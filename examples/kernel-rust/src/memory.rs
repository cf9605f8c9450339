//! The memory map: usable and reserved ranges, the zones, room for the allocator's maps.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use pageyard::{NodeId, PAGE_SIZE, Pfn, ZoneSpec};

/// A few ranges of frames.
#[derive(Default)]
pub struct Ranges {
    list: [Range<Pfn>; 24],
    n: usize,
}

impl Ranges {
    fn push(&mut self, range: Range<Pfn>) {
        if !range.is_empty() {
            self.list[self.n] = range;
            self.n += 1;
        }
    }

    pub fn get(&self) -> &[Range<Pfn>] {
        &self.list[..self.n]
    }
}

/// The memory of the machine.
#[derive(Default)]
pub struct Memory {
    pub usable: Ranges,
    pub reserved: Ranges,
}

impl Memory {
    /// Adds usable memory: its whole pages.
    pub fn add(&mut self, bytes: Range<u64>) {
        self.usable.push(Pfn(bytes.start.div_ceil(PAGE_SIZE))..Pfn::containing(bytes.end));
    }

    /// Reserves every page that the bytes touch.
    pub fn reserve(&mut self, bytes: Range<u64>) {
        self.reserved.push(Pfn::containing(bytes.start)..Pfn(bytes.end.div_ceil(PAGE_SIZE)));
    }

    /// Returns the zones that have memory, each from its first usable frame to its last.
    pub fn zones(&self, out: &mut [ZoneSpec; 3]) -> usize {
        let mut n = 0;
        for &(kind, ref bytes) in crate::arch::ZONES {
            let zone = Pfn::containing(bytes.start)..Pfn::containing(bytes.end);
            let usable = self.usable.get().iter();
            let parts = usable.filter(|r| r.start < zone.end && r.end > zone.start);
            let start = parts.clone().map(|r| r.start.max(zone.start)).min();
            let end = parts.map(|r| r.end.min(zone.end)).max();
            if let (Some(start), Some(end)) = (start, end) {
                out[n] = ZoneSpec { kind, node: NodeId(0), span: start..end };
                n += 1;
            }
        }
        n
    }

    /// Returns the largest usable range.
    pub fn largest(&self) -> Range<Pfn> {
        let largest = self.usable.get().iter().max_by_key(|r| r.end.0 - r.start.0);
        largest.expect("the loader reports no memory").clone()
    }

    /// Takes and reserves memory at the end of the largest usable range.
    pub fn take(&mut self, bytes: usize) -> &'static mut [MaybeUninit<u8>] {
        let range = self.largest();
        let pages = (bytes as u64).div_ceil(PAGE_SIZE);
        let taken = Pfn(range.end.0.saturating_sub(pages))..range.end;
        let clash = |r: &Range<Pfn>| r.start < taken.end && r.end > taken.start;
        assert!(
            taken.start >= range.start && !self.reserved.get().iter().any(clash),
            "the largest range of memory has no room for {pages} pages of maps"
        );
        self.reserved.push(taken.clone());
        // SAFETY: the pages are memory, mapped at their address. They were not reserved, so nothing
        // uses them, and are reserved now, so neither the allocator nor a second call takes them.
        unsafe { slice::from_raw_parts_mut(taken.start.address() as *mut _, bytes) }
    }

    /// Forgets all usable ranges but one.
    #[cfg(feature = "pinned")]
    pub fn keep_only(&mut self, range: Range<Pfn>) {
        self.usable = Ranges::default();
        self.usable.push(range);
    }

    /// Calls `each` for the parts of a range that are not reserved.
    pub fn free_parts(&self, range: Range<Pfn>, mut each: impl FnMut(Range<Pfn>)) {
        let mut at = range.start;
        while at < range.end {
            let reserved = || self.reserved.get().iter();
            if let Some(r) = reserved().find(|r| r.contains(&at)) {
                at = r.end;
                continue;
            }
            let next = reserved().map(|r| r.start).filter(|&start| start > at).min();
            let end = next.map_or(range.end, |next| next.min(range.end));
            each(at..end);
            at = end;
        }
    }
}
