//! Blocks that their owner lets compaction move.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pageyard::policy::{Linux612, Policy};
use pageyard::{Order, PAGE_SIZE, Pfn};

use crate::held::MutexGuard;
use crate::lock::HostLock;
use crate::raw_yard::RawYard;
use crate::relocate::Slot;

/// Pages that the yard may move while nobody looks at them; made by
/// [`HostYard::alloc_movable`](crate::HostYard::alloc_movable), given back when dropped.
pub struct Movable<'y, P: Policy = Linux612> {
    yard: &'y RawYard<P, HostLock>,
    slot: Arc<Slot>,
}

impl<'y, P: Policy> Movable<'y, P> {
    /// # Safety
    /// The block is allocated in this exclusive yard at this order, and the caller's alone.
    pub(crate) unsafe fn new(yard: &'y RawYard<P, HostLock>, pfn: Pfn, order: Order) -> Self {
        let slot = Arc::new(Slot::new(pfn, order));
        // Compaction may have found another block here, and ask for this one before it is movable.
        let here = slot.busy.lock();
        yard.service().movables.add(yard.region().pages(), pfn, &slot);
        // It is allocated at this order, so this cannot fail; if it did, it would not be moved.
        let _ = yard.core().set_movable(pfn, order, true);
        drop(here);
        Movable { yard, slot }
    }

    /// Its order.
    pub fn order(&self) -> Order {
        self.slot.order
    }

    /// Its bytes, which stay where they are until the guard is dropped. Waits where it is being
    /// moved, or another thread has a guard: in a child after a fork for ever, if that was so just
    /// then. A guard that is forgotten ([`mem::forget`](std::mem::forget)) keeps the block locked and
    /// in its place until the `Movable` is dropped.
    pub fn lock(&self) -> Pinned<'_> {
        let busy = self.slot.busy.lock();
        self.slot.pinned.store(true, Relaxed);
        let (pfn, pages) = (self.slot.place(), u64::from(self.order().pages()));
        let region = self.yard.region();
        let start = region.address(pfn, pages).expect("a block of the yard's");
        let bytes = (pages * PAGE_SIZE) as usize;
        Pinned { pfn, start, bytes, slot: &self.slot, _busy: busy }
    }
}

impl<P: Policy> fmt::Debug for Movable<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Movable").field("slot", &self.slot).finish()
    }
}

impl<P: Policy> Drop for Movable<'_, P> {
    fn drop(&mut self) {
        if !self.yard.service().born.is_here() {
            return;
        }
        // A guard borrows this, so there is none; but one may have been forgotten, and have the lock
        // for good. Then nothing moves the block.
        let forgotten = self.slot.pinned.load(Relaxed);
        let moving = (!forgotten).then(|| self.slot.busy.lock());
        let pfn = self.slot.place();
        self.yard.service().movables.remove(pfn);
        drop(moving);
        let _ = self.yard.free(pfn, self.order());
    }
}

/// The bytes of a [`Movable`], which stay where they are as long as this lives.
#[derive(Debug)]
pub struct Pinned<'m> {
    pfn: Pfn,
    start: NonNull<u8>,
    bytes: usize,
    slot: &'m Slot,
    _busy: MutexGuard<'m, ()>,
}

impl Pinned<'_> {
    /// Where the block is at the moment.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // The lock is released after this.
        self.slot.pinned.store(false, Relaxed);
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped as long as the yard lives, which the movable borrows, and the
        // slot's lock is held, so that they are this guard's alone and do not move
        // (`a_block_in_use_is_busy`, `movable_blocks_are_moved_together_with_their_contents`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pinned<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the guard is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}
