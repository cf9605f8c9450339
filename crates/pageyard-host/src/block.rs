//! Owned blocks, and the requests for them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use pageyard::policy::{Packed, Policy};
use pageyard::{AllocError, FreeError, Gfp, NodeId, Order, PAGE_SIZE, Pfn};

use crate::magazine::{Kind, TAG, without};
use crate::yard::HostYard;

/// An owned block of a [`HostYard`](crate::HostYard), accessible as bytes and freed on drop. Its
/// contents are arbitrary old data, or zeros if they were requested.
///
/// ```
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Block, Builder};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let mut block: Block<'_> = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// block[..5].copy_from_slice(b"hello");
/// assert_eq!(block.len(), 4096);
/// drop(block); // free again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Block<'y, P: Policy = Packed> {
    yard: &'y HostYard<P>,
    block: Tagged,
}

/// Address of a block, with the order and the thread cache's kind in the bits that are 0 in the
/// address of a page. So a block is two words, passed in registers.
#[derive(Clone, Copy)]
pub(crate) struct Tagged(NonNull<u8>);

/// Mask of the order.
const ORDER: usize = 0xf;
/// Shift of the kind; 0 means none.
const KIND: u32 = 4;

impl Tagged {
    #[inline(always)]
    fn new(start: NonNull<u8>, order: Order, kind: Option<Kind>) -> Tagged {
        let kind = kind.map_or(0, |kind| kind as usize + 1);
        let tag = usize::from(order.get()) | kind << KIND;
        // The tag bits are 0 already; clearing them lets the compiler know.
        Tagged(without(start, TAG).map_addr(|a| a | tag))
    }

    #[inline(always)]
    pub(crate) fn order(self) -> Order {
        Order::new((self.0.as_ptr().addr() & ORDER) as u8).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> Option<Kind> {
        let kind = (self.0.as_ptr().addr() & TAG) >> KIND;
        Kind::ALL.get(kind.wrapping_sub(1)).copied()
    }

    #[inline(always)]
    pub(crate) fn start(self) -> NonNull<u8> {
        without(self.0, TAG)
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> usize {
        (u64::from(self.order().pages()) * PAGE_SIZE) as usize
    }
}

// SAFETY: a block owns its bytes exclusively, like a box, and its yard may be used by any thread
// (`blocks_are_freed_on_other_threads`).
unsafe impl<P: Policy> Send for Block<'_, P> {}
// SAFETY: a shared block gives out shared bytes only.
unsafe impl<P: Policy> Sync for Block<'_, P> {}

impl<'y, P: Policy> Block<'y, P> {
    /// # Safety
    /// A block of this order begins at `start`. It is allocated in this exclusive yard and belongs
    /// to the caller alone.
    #[inline(always)]
    pub(crate) unsafe fn new(
        yard: &'y HostYard<P>,
        start: NonNull<u8>,
        order: Order,
        kind: Option<Kind>,
    ) -> Self {
        Block { yard, block: Tagged::new(start, order, kind) }
    }

    /// # Safety
    /// A block that belongs to the caller alone is there, allocated in this exclusive yard.
    pub(crate) unsafe fn of(yard: &'y HostYard<P>, block: Tagged) -> Self {
        Block { yard, block }
    }

    /// Releases ownership without freeing the block.
    pub(crate) fn into_tagged(self) -> Tagged {
        let block = self.block;
        std::mem::forget(self);
        block
    }

    /// Returns whether the block belongs to this yard.
    pub(crate) fn is_of(&self, yard: &HostYard<P>) -> bool {
        std::ptr::eq(self.yard, yard)
    }

    /// Returns the first frame.
    pub fn pfn(&self) -> Pfn {
        self.yard.pfn_at(self.as_ptr())
    }

    /// Returns the order.
    #[inline(always)]
    pub fn order(&self) -> Order {
        self.block.order()
    }

    /// Returns the address of the bytes.
    #[inline(always)]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.block.start()
    }

    /// Releases ownership without freeing the block. It stays in use until
    /// [`HostYard::from_raw`](crate::HostYard::from_raw) makes it a block again.
    pub fn into_raw(self) -> (Pfn, Order) {
        let raw = (self.pfn(), self.order());
        std::mem::forget(self);
        raw
    }
}

impl<P: Policy> Deref for Block<'_, P> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped and readable as long as the yard lives, were initialised to
        // zero by the system, and belong to the block alone
        // (`migrating_threads_never_share_a_page`, `a_full_yard_fails_and_recovers`).
        unsafe { slice::from_raw_parts(self.as_ptr().as_ptr(), self.block.bytes()) }
    }
}

impl<P: Policy> DerefMut for Block<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the block is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.block.bytes()) }
    }
}

impl<P: Policy> Drop for Block<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.yard.free_block(self.as_ptr(), self.order(), self.block.kind());
    }
}

impl<P: Policy> fmt::Debug for Block<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("pfn", &self.pfn()).field("order", &self.order()).finish()
    }
}

impl<P: Policy> HostYard<P> {
    /// Allocates a block of 2^`order` pages, zeroed if `gfp` contains [`ZERO`](Gfp::ZERO).
    ///
    /// # Errors
    /// As [`Yard::alloc`](pageyard::Yard::alloc), most often [`NoMemory`](AllocError::NoMemory). In
    /// a child after a fork, always [`NoMemory`](AllocError::NoMemory).
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Block<'_, P>, AllocError> {
        let (start, kind) = self.alloc_block(order, gfp)?;
        // SAFETY: it is allocated at this order and not known elsewhere
        // (`pages_have_one_owner_under_changing_pressure`,
        // `migrating_threads_never_share_a_page`).
        Ok(unsafe { Block::new(self, start, order, kind) })
    }

    /// Makes an owned block of a block that was just allocated.
    pub(crate) fn block(&self, pfn: Pfn, order: Order, kind: Option<Kind>) -> Option<Block<'_, P>> {
        let start = self.start_of(pfn, order)?;
        // SAFETY: it was just allocated and is not known elsewhere
        // (`migrating_threads_never_share_a_page`, `bulk_requests_use_the_thread_cache`).
        Some(unsafe { Block::new(self, start, order, kind) })
    }

    /// Like [`alloc`](HostYard::alloc), preferably on a node.
    ///
    /// # Errors
    /// As [`Yard::alloc_on`](pageyard::Yard::alloc_on); and as [`alloc`](HostYard::alloc).
    pub fn alloc_on(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
    ) -> Result<Block<'_, P>, AllocError> {
        let pfn = self.request(order, gfp, || self.raw().alloc_on(node, order, gfp))?;
        self.block(pfn, order, Kind::of(order, gfp)).ok_or(AllocError::NoMemory)
    }

    /// Makes an owned block again of the result of [`Block::into_raw`]; `None` if the frames are
    /// not of this yard.
    ///
    /// # Safety
    /// `pfn` and `order` are those of a block of this yard whose ownership was released by
    /// [`Block::into_raw`] and has not been restored since.
    #[inline]
    pub unsafe fn from_raw(&self, pfn: Pfn, order: Order) -> Option<Block<'_, P>> {
        let kind = Kind::of_type(order, self.raw().core().block_type(pfn)?);
        self.block(pfn, order, kind)
    }

    /// Frees a block whose ownership was released. It bypasses the thread cache and goes to the
    /// allocator, which checks it. So a double free is an error, unless the block was allocated
    /// again in between.
    ///
    /// # Safety
    /// As [`from_raw`](HostYard::from_raw), and nothing uses the memory any more.
    ///
    /// # Errors
    /// As [`Yard::free`](pageyard::Yard::free). In a child after a fork, does nothing and returns
    /// `Ok`.
    pub unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_here() { self.raw().free(pfn, order) } else { Ok(()) }
    }
}
