//! Many blocks at once, blocks with larger alignment, and contiguous ranges.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use pageyard::policy::{Packed, Policy};
use pageyard::{
    AllocError, ContigError, Gfp, MigrateType, Order, PAGE_SIZE, Pfn, Place, PlaceError,
};

use crate::block::Block;
use crate::free_batch::FreeBatch;
use crate::magazine::Kind;
use crate::memory::LARGEST;
use crate::service::Meanwhile;
use crate::yard::HostYard;

/// Pages requested per batch.
const CHUNK: usize = 1024;

impl<P: Policy> HostYard<P> {
    /// Allocates up to `n` single pages and appends them to `blocks`. Locks the per-CPU lists once
    /// for many pages. Returns the number of pages appended.
    ///
    /// # Errors
    /// Fails only on invalid flags; a shortage returns fewer pages, also if `blocks` cannot grow.
    pub fn alloc_bulk<'y>(
        &'y self,
        n: usize,
        gfp: Gfp,
        blocks: &mut Vec<Block<'y, P>>,
    ) -> Result<usize, AllocError> {
        if !self.is_here() {
            return Ok(0);
        }
        let kind = Kind::of(Order::ZERO, gfp);
        let mut got = 0;
        while got < n {
            // `n` may be far more than the yard has.
            let wanted = (n - got).min(CHUNK);
            if blocks.try_reserve(wanted).is_err() {
                break;
            }
            // Reserved above, so that nothing is allocated while the lists are locked.
            let each = |pfn| blocks.extend(self.block(pfn, Order::ZERO, kind));
            let more = self.raw().core().alloc_bulk_each(wanted, gfp, each)?;
            got += more;
            if more > 1 {
                continue;
            }
            // Memory is short, or the lists were busy: allocate one by one.
            match self.alloc(Order::ZERO, gfp) {
                Ok(block) if got < n => {
                    blocks.push(block);
                    got += 1;
                }
                Ok(_) => {}
                Err(_) if more > 0 => {}
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Frees blocks in bulk, locking the per-CPU lists once for many of them. Equivalent to
    /// dropping each, except that it bypasses the thread cache.
    pub fn free_bulk<'y>(&'y self, blocks: impl IntoIterator<Item = Block<'y, P>>) {
        // Dropped, and so freed, also if the iterator panics.
        let mut batch = FreeBatch::new(self.raw());
        for block in blocks {
            if block.is_of(self) && self.is_here() {
                let (pfn, order) = block.into_raw();
                batch.push(pfn, order);
            }
        }
    }

    /// Allocates a block whose address is a multiple of `align` bytes. Without this, every block is
    /// aligned to its own size, up to 4 MiB.
    ///
    /// # Errors
    /// As [`Yard::alloc_with`](pageyard::Yard::alloc_with), with the alignment in pages.
    pub fn alloc_aligned(
        &self,
        order: Order,
        align: u64,
        gfp: Gfp,
    ) -> Result<Block<'_, P>, PlaceError> {
        if !align.is_power_of_two() {
            return Err(PlaceError::BadAlign(align.div_ceil(PAGE_SIZE)));
        }
        let bytes = u64::from(order.pages()) * PAGE_SIZE;
        if align <= bytes {
            return Ok(self.alloc(order, gfp)?);
        }
        let pfn = self.request(order, gfp, || {
            if align > LARGEST {
                return self.take_at_multiple(order, align, gfp);
            }
            // Up to `LARGEST`, addresses are aligned if frame numbers are.
            let place = Place { align: align / PAGE_SIZE, below: None };
            self.raw().core().alloc_with(order, gfp, place)
        })?;
        let block = self.block(pfn, order, Kind::of(order, gfp));
        block.ok_or(AllocError::NoMemory.into())
    }

    /// Allocates the first free block whose address is a multiple of `align`. Tries one place at a
    /// time, so that it holds nothing else in the meantime.
    fn take_at_multiple(&self, order: Order, align: u64, gfp: Gfp) -> Result<Pfn, PlaceError> {
        let region = self.raw().region();
        let none = AllocError::NoMemory.into();
        let Some(start) = region.address(region.first(), 1) else { return Err(none) };
        let start = start.addr().get() as u64;
        let end = start + region.pages() * PAGE_SIZE;
        let Some(first) = start.checked_next_multiple_of(align) else { return Err(none) };
        let mut at = first;
        while at < end {
            let pfn = Pfn(region.first().0 + (at - start) / PAGE_SIZE);
            match self.raw().core().alloc_at(pfn, order, gfp) {
                Ok(()) => return Ok(pfn),
                // Invalid flags fail at every place.
                Err(PlaceError::Alloc(error)) if error != AllocError::NoMemory => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
            let Some(next) = at.checked_add(align) else { break };
            at = next;
        }
        Err(none)
    }

    /// Allocates any number of contiguous pages; the first frame number is a multiple of `align`
    /// pages. Drains the threads' magazines first, because their pages would be in the way.
    ///
    /// # Errors
    /// As [`Yard::alloc_contig_pages`](pageyard::Yard::alloc_contig_pages).
    pub fn alloc_range(
        &self,
        pages: u64,
        align: u64,
        gfp: Gfp,
    ) -> Result<PageRange<'_, P>, ContigError> {
        if !self.is_here() {
            return Err(ContigError::NoMemory);
        }
        self.drain_threads();
        let t = gfp.migrate_type().unwrap_or(MigrateType::Movable);
        let all = self.raw().region().frames();
        // As single pages, because they are freed as single pages.
        let gfp = gfp.difference(Gfp::COMP);
        let isolating = Meanwhile::add(&self.raw().service().isolating, 1);
        let first = self.raw().core().alloc_contig_pages(pages, align, all, t, gfp)?;
        drop(isolating);
        if !self.is_here() {
            return Err(ContigError::NoMemory);
        }
        self.raw().service().requests.count_range(pages);
        let start = self.raw().region().address(first, pages).ok_or(ContigError::NoPlace)?;
        Ok(PageRange { yard: self, start, frames: first..Pfn(first.0 + pages) })
    }
}

impl<P: Policy> HostYard<P> {
    /// Frees a range for its owner.
    pub(crate) fn free_range(&self, frames: Range<Pfn>) {
        if self.is_here() && self.raw().core().free_contig(frames.clone()).is_err() {
            // A page was taken out of use in the meantime; free the others.
            for pfn in frames.start.0..frames.end.0 {
                let _ = self.raw().free(Pfn(pfn), Order::ZERO);
            }
        }
    }
}

/// Owned contiguous pages, accessible as bytes and freed on drop.
///
/// ```
/// use pageyard::Gfp;
/// use pageyard_host::{Builder, PageRange};
///
/// // 8 MiB in one piece: more than the largest block.
/// let yard = Builder::new(32 << 20).build()?;
/// let range: PageRange<'_> = yard.alloc_range(2048, 1, Gfp::KERNEL)?;
/// assert_eq!(range.len(), 8 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PageRange<'y, P: Policy = Packed> {
    yard: &'y HostYard<P>,
    start: NonNull<u8>,
    frames: Range<Pfn>,
}

// SAFETY: a range owns its bytes exclusively, like a box, and its yard may be used by any thread
// (`ranges_are_freed_on_other_threads`).
unsafe impl<P: Policy> Send for PageRange<'_, P> {}
// SAFETY: a shared range gives out shared bytes only.
unsafe impl<P: Policy> Sync for PageRange<'_, P> {}

impl<'y, P: Policy> PageRange<'y, P> {
    /// # Safety
    /// The pages are allocated in this exclusive yard as single pages, begin at `start`, and belong
    /// to the caller alone.
    pub(crate) unsafe fn new(
        yard: &'y HostYard<P>,
        start: NonNull<u8>,
        frames: Range<Pfn>,
    ) -> Self {
        PageRange { yard, start, frames }
    }

    /// Returns whether the range belongs to this yard.
    pub(crate) fn is_of(&self, yard: &HostYard<P>) -> bool {
        std::ptr::eq(self.yard, yard)
    }

    /// Returns the frames.
    pub fn frames(&self) -> Range<Pfn> {
        self.frames.clone()
    }

    /// Returns the address of the bytes.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the offset of the bytes in the file of [`HostYard::fd`], for another process to map.
    pub fn offset(&self) -> u64 {
        (self.frames.start.0 - self.yard.raw().region().first().0) * PAGE_SIZE
    }

    fn bytes(&self) -> usize {
        ((self.frames.end.0 - self.frames.start.0) * PAGE_SIZE) as usize
    }
}

impl<P: Policy> Deref for PageRange<'_, P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped and readable as long as the yard lives, were initialised to
        // zero by the system, and belong to the range alone
        // (`ranges_may_exceed_the_largest_block`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> DerefMut for PageRange<'_, P> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the range is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> Drop for PageRange<'_, P> {
    fn drop(&mut self) {
        self.yard.free_range(self.frames());
    }
}

impl<P: Policy> fmt::Debug for PageRange<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PageRange").field(&self.frames).finish()
    }
}
