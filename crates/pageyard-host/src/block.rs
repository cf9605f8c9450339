//! A block that somebody owns.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use pageyard::policy::{Linux612, Policy};
use pageyard::{Order, PAGE_SIZE, Pfn};

use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// Pages of a [`HostYard`](crate::HostYard), as bytes; given back when dropped. Their contents are
/// what was there before, or zeros where that was asked for.
pub struct Block<'y, P: Policy = Linux612> {
    yard: &'y RawYard<P, HostLock>,
    start: NonNull<u8>,
    pfn: Pfn,
    order: Order,
}

// SAFETY: a block is the only way to its bytes, as a box is, and comes from and goes back to a yard
// that any thread may use.
unsafe impl<P: Policy> Send for Block<'_, P> {}
// SAFETY: shared, a block gives out shared bytes only.
unsafe impl<P: Policy> Sync for Block<'_, P> {}

impl<'y, P: Policy> Block<'y, P> {
    /// # Safety
    /// The block is allocated in this exclusive yard, and the caller's alone.
    pub(crate) unsafe fn new(
        yard: &'y RawYard<P, HostLock>,
        pfn: Pfn,
        order: Order,
    ) -> Option<Self> {
        let start = yard.region().address(pfn, order.pages().into())?;
        Some(Block { yard, start, pfn, order })
    }

    /// Its first frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Its order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Where its bytes are.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives up the ownership without giving the block back: it is in use until
    /// [`HostYard::from_raw`](crate::HostYard::from_raw) makes it a block again.
    pub fn into_raw(self) -> (Pfn, Order) {
        let raw = (self.pfn, self.order);
        std::mem::forget(self);
        raw
    }

    fn bytes(&self) -> usize {
        (u64::from(self.order.pages()) * PAGE_SIZE) as usize
    }
}

impl<P: Policy> Deref for Block<'_, P> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped and readable as long as the yard lives, were given by the
        // system as zeros, and are the block's alone.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> DerefMut for Block<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the block is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes()) }
    }
}

impl<P: Policy> Drop for Block<'_, P> {
    #[inline]
    fn drop(&mut self) {
        // It fails only where a page of it was taken out of use meanwhile; then it stays out.
        let _ = self.yard.free(self.pfn, self.order);
    }
}

impl<P: Policy> fmt::Debug for Block<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("pfn", &self.pfn).field("order", &self.order).finish()
    }
}
