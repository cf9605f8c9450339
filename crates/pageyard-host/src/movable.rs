//! Blocks that compaction may move.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pageyard::policy::{Packed, Policy};
use pageyard::{Order, PAGE_SIZE, Pfn};

use crate::held::MutexGuard;
use crate::lock::HostLock;
use crate::raw_yard::RawYard;
use crate::relocate::Slot;

/// A block that compaction may move while it is not locked. Allocated by
/// [`HostYard::alloc_movable`](crate::HostYard::alloc_movable), freed on drop.
///
/// ```
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, Movable};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let block: Movable<'_> = yard.alloc_movable(Order::ZERO, Gfp::KERNEL)?;
/// block.lock().fill(7);
/// // Compaction may have moved it, with its contents.
/// assert_eq!(block.lock()[0], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Movable<'y, P: Policy = Packed> {
    yard: &'y RawYard<P, HostLock>,
    slot: Arc<Slot>,
}

impl<'y, P: Policy> Movable<'y, P> {
    /// # Safety
    /// The block is allocated in this exclusive yard at this order, and belongs to the caller
    /// alone.
    pub(crate) unsafe fn new(yard: &'y RawYard<P, HostLock>, pfn: Pfn, order: Order) -> Self {
        let slot = Arc::new(Slot::new(pfn, order));
        // Compaction may have found an earlier block here, and ask for this one before it is marked
        // as movable.
        let here = slot.busy.lock();
        yard.service().movables.add(yard.region().pages(), pfn, &slot);
        // Cannot fail, because the block is allocated at this order. If it did, the block would not
        // be moved.
        let _ = yard.core().set_movable(pfn, order, true);
        drop(here);
        Movable { yard, slot }
    }

    /// Returns the order.
    pub fn order(&self) -> Order {
        self.slot.order
    }

    /// Returns the bytes, which stay in place until the guard is dropped.
    ///
    /// Waits while the block is being moved or another thread holds a guard. In a child after a
    /// fork, it waits forever if that was the case at the time of the fork. A forgotten guard
    /// ([`mem::forget`](std::mem::forget)) keeps the block locked and in place until the `Movable`
    /// is dropped.
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
        // A guard borrows this, so none is left. But a guard may have been forgotten, which holds
        // the lock forever; then nothing moves the block.
        let forgotten = self.slot.pinned.load(Relaxed);
        let moving = (!forgotten).then(|| self.slot.busy.lock());
        let pfn = self.slot.place();
        self.yard.service().movables.remove(pfn);
        drop(moving);
        let _ = self.yard.free(pfn, self.order());
    }
}

/// The bytes of a [`Movable`], which stay in place as long as this lives.
///
/// ```
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, Pinned};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let block = yard.alloc_movable(Order::ZERO, Gfp::KERNEL)?;
/// let bytes: Pinned<'_> = block.lock();
/// assert_eq!(bytes.len(), 4096);
/// let place = bytes.pfn(); // until `bytes` is dropped
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pinned<'m> {
    pfn: Pfn,
    start: NonNull<u8>,
    bytes: usize,
    slot: &'m Slot,
    _busy: MutexGuard<'m, ()>,
}

impl Pinned<'_> {
    /// Returns the first frame of the block at the moment.
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
        // SAFETY: the pages are mapped as long as the yard lives, which the movable borrows. The
        // slot's lock is held, so that they are this guard's alone and do not move
        // (`a_block_in_use_is_busy`, `movable_blocks_keep_their_contents`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pinned<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the guard is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use pageyard::Gfp;

    use super::*;
    use crate::Builder;

    #[test]
    fn a_locked_block_has_all_its_bytes() {
        let yard = Builder::new(16 << 20).tick(None).build().unwrap();
        for order in [0, 1, 9] {
            let order = Order::new(order).unwrap();
            let block: Movable<'_> = yard.alloc_movable(order, Gfp::KERNEL).unwrap();
            assert_eq!(block.order(), order);
            let mut bytes = block.lock();
            assert_eq!(bytes.len(), 4096 << order.get());
            assert_eq!(yard.pfn_at(NonNull::from(&mut bytes[0])), bytes.pfn());
            let place = bytes.pfn();
            drop(bytes);
            let text = format!("{block:?}");
            assert!(text.starts_with("Movable") && text.contains(&place.0.to_string()), "{text}");
        }
    }

    /// Also if the owner has used it before.
    #[test]
    fn a_block_is_not_freed_while_it_is_moved() {
        let yard = Builder::new(16 << 20).tick(None).build().unwrap();
        let block: Movable<'_> = yard.alloc_movable(Order::ZERO, Gfp::KERNEL).unwrap();
        block.lock().fill(1);
        let (slot, freed) = (block.slot.clone(), AtomicBool::new(false));
        let moving = slot.busy.lock();
        std::thread::scope(|s| {
            let owner = s.spawn(|| {
                drop(block);
                freed.store(true, Relaxed);
            });
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!freed.load(Relaxed));
            drop(moving);
            owner.join().unwrap();
        });
        assert!(yard.raw().service().movables.is_empty());
    }
}
