//! Blocks that somebody owns, and the requests for them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use pageyard::policy::{Linux612, Policy};
use pageyard::{AllocError, FreeError, Gfp, NodeId, Order, PAGE_SIZE, Pfn};

use crate::magazine::{Kind, TAG, without};
use crate::yard::HostYard;

/// Pages of a [`HostYard`](crate::HostYard), as bytes; given back when dropped. Their contents are
/// what was there before, or zeros where that was asked for.
pub struct Block<'y, P: Policy = Linux612> {
    yard: &'y HostYard<P>,
    /// Where it is; its order, and as what the front cache keeps it, in the bits that are 0 in the
    /// address of a page. So a block is two words, handed over in registers.
    start: NonNull<u8>,
}

/// Bits of the order.
const ORDER: usize = 0xf;
/// Where the kind begins, with 0 for none.
const KIND: u32 = 4;

// SAFETY: a block is the only way to its bytes, as a box is, and comes from and goes back to a yard
// that any thread may use (`blocks_go_from_thread_to_thread`).
unsafe impl<P: Policy> Send for Block<'_, P> {}
// SAFETY: shared, a block gives out shared bytes only.
unsafe impl<P: Policy> Sync for Block<'_, P> {}

impl<'y, P: Policy> Block<'y, P> {
    /// # Safety
    /// The block of this order begins there, is allocated in this exclusive yard, and the caller's
    /// alone.
    #[inline(always)]
    pub(crate) unsafe fn new(
        yard: &'y HostYard<P>,
        start: NonNull<u8>,
        order: Order,
        kind: Option<Kind>,
    ) -> Self {
        let kind = kind.map_or(0, |kind| kind as usize + 1);
        let tag = usize::from(order.get()) | kind << KIND;
        // Nothing is there that would have to be cleared; but so the compiler knows the tag.
        Block { yard, start: without(start, TAG).map_addr(|a| a | tag) }
    }

    /// Whether it is this yard's.
    pub(crate) fn is_of(&self, yard: &HostYard<P>) -> bool {
        std::ptr::eq(self.yard, yard)
    }

    /// Its first frame.
    pub fn pfn(&self) -> Pfn {
        self.yard.pfn_at(self.as_ptr())
    }

    /// Its order.
    #[inline(always)]
    pub fn order(&self) -> Order {
        Order::new((self.start.as_ptr().addr() & ORDER) as u8).unwrap_or_default()
    }

    #[inline(always)]
    fn kind(&self) -> Option<Kind> {
        let kind = (self.start.as_ptr().addr() & TAG) >> KIND;
        Kind::ALL.get(kind.wrapping_sub(1)).copied()
    }

    /// Where its bytes are.
    #[inline(always)]
    pub fn as_ptr(&self) -> NonNull<u8> {
        without(self.start, TAG)
    }

    /// Gives up the ownership without giving the block back: it is in use until
    /// [`HostYard::from_raw`](crate::HostYard::from_raw) makes it a block again.
    pub fn into_raw(self) -> (Pfn, Order) {
        let raw = (self.pfn(), self.order());
        std::mem::forget(self);
        raw
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        (u64::from(self.order().pages()) * PAGE_SIZE) as usize
    }
}

impl<P: Policy> Deref for Block<'_, P> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped and readable as long as the yard lives, were given by the
        // system as zeros, and are the block's alone (`threads_that_wander_never_share_a_page`,
        // `a_full_yard_says_so_and_recovers`).
        unsafe { slice::from_raw_parts(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> DerefMut for Block<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the block is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> Drop for Block<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.yard.take_back(self.as_ptr(), self.order(), self.kind());
    }
}

impl<P: Policy> fmt::Debug for Block<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("pfn", &self.pfn()).field("order", &self.order()).finish()
    }
}

impl<P: Policy> HostYard<P> {
    /// A block of 2^`order` pages; zeros where `gfp` says [`ZERO`](Gfp::ZERO).
    ///
    /// # Errors
    /// As [`Yard::alloc`](pageyard::Yard::alloc); above all, there is none. In a child after a fork, there is none ever.
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Block<'_, P>, AllocError> {
        let (start, kind) = self.take_block(order, gfp)?;
        // SAFETY: it is allocated, of this order, and known to no one else
        // (`pages_have_one_owner_while_pressure_comes_and_goes`, `threads_that_wander_never_share_a_page`).
        Ok(unsafe { Block::new(self, start, order, kind) })
    }

    /// A block that was just allocated.
    pub(crate) fn block(&self, pfn: Pfn, order: Order, kind: Option<Kind>) -> Option<Block<'_, P>> {
        let start = self.start_of(pfn, order)?;
        // SAFETY: it was just allocated, and is known to no one else
        // (`threads_that_wander_never_share_a_page`, `pages_come_and_go_many_at_once`).
        Some(unsafe { Block::new(self, start, order, kind) })
    }

    /// The same, preferably of a node.
    ///
    /// # Errors
    /// As [`Yard::alloc_on`](pageyard::Yard::alloc_on); and as [`alloc`](HostYard::alloc).
    pub fn alloc_on(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
    ) -> Result<Block<'_, P>, AllocError> {
        if !self.is_here() {
            return Err(AllocError::NoMemory);
        }
        let pfn = match self.raw().alloc_on(node, order, gfp) {
            Err(AllocError::NoMemory) if self.drain_threads() > 0 => {
                self.raw().alloc_on(node, order, gfp)
            }
            answer => answer,
        }
        .inspect_err(|&error| self.note_failure(error, order, gfp))?;
        self.block(pfn, order, Kind::of(order, gfp)).ok_or(AllocError::NoMemory)
    }

    /// What [`Block::into_raw`] took apart, together again; `None` where the frames are not of this
    /// yard.
    ///
    /// # Safety
    /// The numbers are those of a block of this yard whose ownership was given up, and that was not
    /// made a block again since.
    #[inline]
    pub unsafe fn from_raw(&self, pfn: Pfn, order: Order) -> Option<Block<'_, P>> {
        let kind = Kind::of_type(order, self.raw().core().block_type(pfn)?);
        self.block(pfn, order, kind)
    }

    /// Gives back a block whose ownership was given up: past the front cache, to the allocator,
    /// which checks it. So a block that is given back twice in a row is an error the second time,
    /// unless it was handed out again in between.
    ///
    /// # Safety
    /// As [`from_raw`](HostYard::from_raw), and nobody uses its memory any more.
    ///
    /// # Errors
    /// As [`Yard::free`](pageyard::Yard::free). In a child after a fork, nothing is done and nothing said.
    pub unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_here() { self.raw().free(pfn, order) } else { Ok(()) }
    }
}
