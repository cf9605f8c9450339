//! Many blocks at once, at certain places, beside each other.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use pageyard::policy::{Linux612, Policy};
use pageyard::{
    AllocError, ContigError, Gfp, MigrateType, Order, PAGE_SIZE, Pfn, Place, PlaceError,
};

use crate::block::Block;
use crate::magazine::Kind;
use crate::memory::LARGEST;
use crate::yard::HostYard;

/// Blocks given back at once.
const BATCH: usize = 62;
/// Pages asked for at once.
const CHUNK: usize = 1024;

impl<P: Policy> HostYard<P> {
    /// Appends up to `n` single pages, as many as there are: per-CPU lists are locked once for many
    /// of them. Returns the number of pages appended.
    ///
    /// # Errors
    /// Flags that mean nothing. A lack of memory is none, also where it is `blocks` that cannot grow.
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
        let mut drained = false;
        while got < n {
            // What is asked for may be far more than there is.
            let wanted = (n - got).min(CHUNK);
            if blocks.try_reserve(wanted).is_err() {
                break;
            }
            // Reserved, so that nothing is asked for while the lists are at work.
            let each = |pfn| blocks.extend(self.block(pfn, Order::ZERO, kind));
            let more = self.raw().core().alloc_bulk_each(wanted, gfp, each)?;
            got += more;
            if more > 1 {
                continue;
            }
            // Memory is short, or the lists were busy: one by one.
            match self.alloc(Order::ZERO, gfp) {
                Ok(block) if got < n => {
                    blocks.push(block);
                    got += 1;
                }
                Ok(_) => {}
                Err(_) if more > 0 => {}
                Err(_) if !drained && self.drain_threads() > 0 => drained = true,
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Gives blocks back at once: per-CPU lists are locked once for many of them. As dropping each,
    /// but past what threads keep.
    pub fn free_bulk<'y>(&'y self, blocks: impl IntoIterator<Item = Block<'y, P>>) {
        let mut batch = Batch { yard: self, blocks: [(Pfn(0), Order::ZERO); BATCH], n: 0 };
        for block in blocks {
            if block.is_of(self) && self.is_here() {
                batch.push(block);
            }
        }
    }

    fn free_all(&self, batch: &[(Pfn, Order)]) {
        if self.raw().free_batch_owned(batch).is_err() {
            // A page was taken out of use meanwhile; the others go back.
            for &(pfn, order) in batch {
                let _ = self.raw().free_owned(pfn, order);
            }
        }
    }

    /// A block whose address is a multiple of `align` bytes: beyond its own size, to which every
    /// block is aligned up to 4 MiB.
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
        if !self.is_here() {
            return Err(AllocError::NoMemory.into());
        }
        let take = || {
            if align > LARGEST {
                return self.take_at_multiple(order, align, gfp);
            }
            // Up to here, addresses are multiples where frame numbers are.
            self.raw().core().alloc_with(
                order,
                gfp,
                Place { align: align / PAGE_SIZE, below: None },
            )
        };
        let pfn = match take() {
            Err(PlaceError::Alloc(AllocError::NoMemory)) if self.drain_threads() > 0 => take(),
            answer => answer,
        }?;
        let block = self.block(pfn, order, Kind::of(order, gfp));
        block.ok_or(AllocError::NoMemory.into())
    }

    /// Takes the first block whose address is a multiple of `align` and that is free. Each is asked
    /// for by itself: nothing else is taken meanwhile.
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
                // The flags, which are wrong everywhere.
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

    /// So many pages beside each other, however many; the first a multiple of `align` pages by its
    /// frame number. What threads keep is taken away first, as it would be in the way.
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
        // As single pages: that is how they are given back.
        let gfp = gfp.difference(Gfp::COMP);
        let first = self.raw().core().alloc_contig_pages(pages, align, all, t, gfp)?;
        let start = self.raw().region().address(first, pages).ok_or(ContigError::NoPlace)?;
        Ok(PageRange { yard: self, start, frames: first..Pfn(first.0 + pages) })
    }
}

/// Pages beside each other that somebody owns, as bytes; given back when dropped.
pub struct PageRange<'y, P: Policy = Linux612> {
    yard: &'y HostYard<P>,
    start: NonNull<u8>,
    frames: Range<Pfn>,
}

// SAFETY: a range is the only way to its bytes, as a box is, and comes from and goes back to a yard
// that any thread may use (`ranges_go_from_thread_to_thread`).
unsafe impl<P: Policy> Send for PageRange<'_, P> {}
// SAFETY: shared, a range gives out shared bytes only.
unsafe impl<P: Policy> Sync for PageRange<'_, P> {}

impl<P: Policy> PageRange<'_, P> {
    /// Its frames.
    pub fn frames(&self) -> Range<Pfn> {
        self.frames.clone()
    }

    /// Where its bytes are.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Where its bytes begin in the file of [`HostYard::fd`], for another process to map.
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
        // SAFETY: the pages are mapped and readable as long as the yard lives, were given by the
        // system as zeros, and are the range's alone (`ranges_are_larger_than_any_block`).
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
        if self.yard.is_here() && self.yard.raw().core().free_contig(self.frames()).is_err() {
            // A page was taken out of use meanwhile; the others go back.
            for pfn in self.frames.start.0..self.frames.end.0 {
                let _ = self.yard.raw().free(Pfn(pfn), Order::ZERO);
            }
        }
    }
}

impl<P: Policy> fmt::Debug for PageRange<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PageRange").field(&self.frames).finish()
    }
}

/// Blocks on their way back. What is left of them goes when this is dropped, also where the iterator
/// that they come from panics.
struct Batch<'y, P: Policy> {
    yard: &'y HostYard<P>,
    blocks: [(Pfn, Order); BATCH],
    n: usize,
}

impl<'y, P: Policy> Batch<'y, P> {
    fn push(&mut self, block: Block<'y, P>) {
        self.blocks[self.n] = block.into_raw();
        self.n += 1;
        if self.n == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let n = std::mem::take(&mut self.n);
        self.yard.free_all(&self.blocks[..n]);
    }
}

impl<P: Policy> Drop for Batch<'_, P> {
    fn drop(&mut self) {
        self.flush();
    }
}
