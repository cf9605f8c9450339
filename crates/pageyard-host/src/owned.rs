//! Blocks and ranges that keep their yard alive, for values that own both.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use pageyard::policy::{Packed, Policy};
use pageyard::{AllocError, ContigError, Gfp, Order, PAGE_SIZE, Pfn};

use crate::block::{Block, Tagged};
use crate::bulk::PageRange;
use crate::yard::HostYard;

/// A reference to the yard of a block.
///
/// The last one drops the yard, without waiting for the yard's thread: a block may be dropped where
/// a callback on that thread waits for the caller, and in such a callback itself.
pub(crate) struct YardRef<P: Policy>(ManuallyDrop<Arc<HostYard<P>>>);

impl<P: Policy> YardRef<P> {
    pub(crate) fn new(yard: Arc<HostYard<P>>) -> YardRef<P> {
        YardRef(ManuallyDrop::new(yard))
    }
}

impl<P: Policy> Deref for YardRef<P> {
    type Target = Arc<HostYard<P>>;

    fn deref(&self) -> &Arc<HostYard<P>> {
        &self.0
    }
}

impl<P: Policy> Drop for YardRef<P> {
    fn drop(&mut self) {
        // SAFETY: taken once, because nothing uses the value after its drop
        // (`the_last_block_drops_the_yard`).
        let yard = unsafe { ManuallyDrop::take(&mut self.0) };
        // Of references that are dropped at once, one gets the yard.
        if let Some(yard) = Arc::into_inner(yard) {
            yard.drop_without_waiting();
        }
    }
}

/// A block that keeps its yard alive: a [`Block`] without a lifetime, so that a value may own a yard
/// and blocks of it. Allocated by [`HostYard::alloc_owned`], or made of any block by
/// [`Block::into_owned`].
///
/// Allocation and drop change the yard's reference count, which all threads share. A [`Block`]
/// does not.
///
/// The last reference to a yard may be a block's. Then the drop of the block drops the yard. Unlike
/// the drop of a [`HostYard`], that does not wait for the yard's thread to exit: a callback that it
/// runs (a shrinker, a relocator, a listener) may still run when the drop returns. So blocks may be
/// dropped anywhere, also in such callbacks and under locks that these wait for.
///
/// This holds for blocks alone: the drop of an `Arc<HostYard>` that is the last reference waits. A
/// value that owns both, and may be dropped in a callback, declares the yard before its blocks, as
/// below: fields are dropped in the order of their declaration.
///
/// A callback that owns blocks of its own yard keeps the yard alive for good; let it hold a
/// [`Weak`](std::sync::Weak) (`examples/buffer_pool.rs`).
///
/// ```
/// use std::sync::Arc;
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, HostYard, OwnedBlock};
///
/// struct Pool {
///     yard: Arc<HostYard>,
///     frames: Vec<OwnedBlock>,
/// }
///
/// let yard = Arc::new(Builder::new(16 << 20).build()?);
/// let mut pool = Pool { yard, frames: Vec::new() };
/// let mut frame = pool.yard.alloc_owned(Order::ZERO, Gfp::KERNEL)?;
/// frame[0] = 7;
/// pool.frames.push(frame);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedBlock<P: Policy = Packed> {
    block: Tagged,
    // Dropped last.
    yard: YardRef<P>,
}

// SAFETY: a block owns its bytes exclusively, like a box. The last one drops its yard on its
// thread, so the yard must be movable too (`owned_blocks_are_dropped_on_other_threads`).
unsafe impl<P: Policy> Send for OwnedBlock<P> where Arc<HostYard<P>>: Send {}
// SAFETY: a shared block gives out shared bytes and its yard only.
unsafe impl<P: Policy> Sync for OwnedBlock<P> where Arc<HostYard<P>>: Sync {}

impl<P: Policy> OwnedBlock<P> {
    /// # Safety
    /// `block` must be allocated in `yard` and owned by the caller alone; the yard must be exclusive.
    #[inline]
    pub(crate) unsafe fn new(yard: Arc<HostYard<P>>, block: Tagged) -> Self {
        OwnedBlock { block, yard: YardRef::new(yard) }
    }

    /// Returns the yard.
    pub fn yard(&self) -> &Arc<HostYard<P>> {
        &self.yard.0
    }

    /// Returns the first frame.
    pub fn pfn(&self) -> Pfn {
        self.yard().pfn_at(self.as_ptr())
    }

    /// Returns the order.
    pub fn order(&self) -> Order {
        self.block.order()
    }

    /// Returns the address of the bytes.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.block.start()
    }

    /// Makes a block that borrows its yard, for methods that take one. Fails with the block itself
    /// if it belongs to another yard.
    ///
    /// # Errors
    /// The block, unchanged.
    pub fn into_block(self, yard: &HostYard<P>) -> Result<Block<'_, P>, Self> {
        if !ptr::eq(&**self.yard(), yard) {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `this.yard` is read once: it is not used again, and `this` is not dropped. The yard is
        // borrowed by the caller, so this is not its last reference
        // (`blocks_change_between_borrowed_and_owned`).
        drop(unsafe { ptr::read(&this.yard) });
        // SAFETY: the block belongs to this function alone; it is the yard's (as above).
        Ok(unsafe { Block::of(yard, this.block) })
    }
}

impl<P: Policy> Deref for OwnedBlock<P> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for a `Block`; the reference keeps the yard and its memory alive
        // (`the_last_block_drops_the_yard`).
        unsafe { slice::from_raw_parts(self.as_ptr().as_ptr(), self.block.bytes()) }
    }
}

impl<P: Policy> DerefMut for OwnedBlock<P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the block is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.block.bytes()) }
    }
}

impl<P: Policy> Drop for OwnedBlock<P> {
    fn drop(&mut self) {
        // `yard` is dropped after this.
        self.yard.0.free_block(self.as_ptr(), self.order(), self.block.kind());
    }
}

impl<P: Policy> fmt::Debug for OwnedBlock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("OwnedBlock");
        text.field("pfn", &self.pfn()).field("order", &self.order()).finish()
    }
}

/// Contiguous pages that keep their yard alive: a [`PageRange`] without a lifetime. Allocated by
/// [`HostYard::alloc_range_owned`], or made by [`PageRange::into_owned`]. The notes at
/// [`OwnedBlock`] apply.
///
/// ```
/// use std::sync::Arc;
/// use pageyard::Gfp;
/// use pageyard_host::{Builder, OwnedRange};
///
/// let yard = Arc::new(Builder::new(32 << 20).build()?);
/// let range: OwnedRange = yard.alloc_range_owned(2048, 1, Gfp::KERNEL)?;
/// drop(yard);
/// assert_eq!(range.len(), 8 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedRange<P: Policy = Packed> {
    start: NonNull<u8>,
    frames: Range<Pfn>,
    // Dropped last.
    yard: YardRef<P>,
}

// SAFETY: as for `OwnedBlock` (`owned_blocks_are_dropped_on_other_threads`).
unsafe impl<P: Policy> Send for OwnedRange<P> where Arc<HostYard<P>>: Send {}
// SAFETY: a shared range gives out shared bytes and its yard only.
unsafe impl<P: Policy> Sync for OwnedRange<P> where Arc<HostYard<P>>: Sync {}

impl<P: Policy> OwnedRange<P> {
    /// # Safety
    /// The pages are allocated in this exclusive yard as single pages, begin at `start`, and belong
    /// to the caller alone.
    pub(crate) unsafe fn new(
        yard: Arc<HostYard<P>>,
        start: NonNull<u8>,
        frames: Range<Pfn>,
    ) -> Self {
        OwnedRange { start, frames, yard: YardRef::new(yard) }
    }

    /// Returns the yard.
    pub fn yard(&self) -> &Arc<HostYard<P>> {
        &self.yard.0
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
        (self.frames.start.0 - self.yard().raw().region().first().0) * PAGE_SIZE
    }

    /// Makes a range that borrows its yard. Fails with the range itself if it belongs to another
    /// yard.
    ///
    /// # Errors
    /// The range, unchanged.
    pub fn into_range(self, yard: &HostYard<P>) -> Result<PageRange<'_, P>, Self> {
        if !ptr::eq(&**self.yard(), yard) {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `this.yard` is read once: it is not used again, and `this` is not dropped. The yard is
        // borrowed by the caller, so this is not its last reference
        // (`ranges_change_between_borrowed_and_owned`).
        drop(unsafe { ptr::read(&this.yard) });
        // SAFETY: the range belongs to this function alone; it is the yard's (as above).
        Ok(unsafe { PageRange::new(yard, this.start, this.frames.clone()) })
    }

    fn bytes(&self) -> usize {
        ((self.frames.end.0 - self.frames.start.0) * PAGE_SIZE) as usize
    }
}

impl<P: Policy> Deref for OwnedRange<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for a `PageRange`; the reference keeps the yard and its memory alive
        // (`the_last_block_drops_the_yard`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> DerefMut for OwnedRange<P> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the range is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> Drop for OwnedRange<P> {
    fn drop(&mut self) {
        // `yard` is dropped after this.
        self.yard.0.free_range(self.frames());
    }
}

impl<P: Policy> fmt::Debug for OwnedRange<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedRange").field(&self.frames).finish()
    }
}

impl<P: Policy> Block<'_, P> {
    /// Makes a block that keeps its yard alive instead of borrowing it. Fails with the block itself
    /// if it belongs to another yard.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pageyard::{Gfp, Order};
    /// use pageyard_host::Builder;
    ///
    /// let yard = Arc::new(Builder::new(16 << 20).build()?);
    /// let aligned = yard.alloc_aligned(Order::ZERO, 1 << 20, Gfp::KERNEL)?;
    /// let owned = aligned.into_owned(&yard).expect("the yard's");
    /// drop(yard);
    /// assert_eq!(owned.len(), 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The block, unchanged.
    pub fn into_owned(self, yard: &Arc<HostYard<P>>) -> Result<OwnedBlock<P>, Self> {
        if !self.is_of(yard) {
            return Err(self);
        }
        // SAFETY: the block belongs to this function alone, and is the yard's
        // (`blocks_change_between_borrowed_and_owned`).
        Ok(unsafe { OwnedBlock::new(yard.clone(), self.into_tagged()) })
    }
}

impl<P: Policy> PageRange<'_, P> {
    /// Makes a range that keeps its yard alive instead of borrowing it. Fails with the range itself
    /// if it belongs to another yard.
    ///
    /// # Errors
    /// The range, unchanged.
    pub fn into_owned(self, yard: &Arc<HostYard<P>>) -> Result<OwnedRange<P>, Self> {
        if !self.is_of(yard) {
            return Err(self);
        }
        let (start, frames) = (self.as_ptr(), self.frames());
        std::mem::forget(self);
        // SAFETY: the range was forgotten, so it belongs to this function alone; it is the yard's
        // (`ranges_change_between_borrowed_and_owned`).
        Ok(unsafe { OwnedRange::new(yard.clone(), start, frames) })
    }
}

impl<P: Policy> HostYard<P> {
    /// Allocates a block that keeps this yard alive ([`OwnedBlock`]).
    ///
    /// # Errors
    /// As [`alloc`](HostYard::alloc).
    pub fn alloc_owned(
        self: &Arc<Self>,
        order: Order,
        gfp: Gfp,
    ) -> Result<OwnedBlock<P>, AllocError> {
        self.alloc(order, gfp)?.into_owned(self).map_err(|_| AllocError::NoMemory)
    }

    /// Allocates contiguous pages that keep this yard alive ([`OwnedRange`]).
    ///
    /// # Errors
    /// As [`alloc_range`](HostYard::alloc_range).
    pub fn alloc_range_owned(
        self: &Arc<Self>,
        pages: u64,
        align: u64,
        gfp: Gfp,
    ) -> Result<OwnedRange<P>, ContigError> {
        self.alloc_range(pages, align, gfp)?.into_owned(self).map_err(|_| ContigError::NoMemory)
    }
}
