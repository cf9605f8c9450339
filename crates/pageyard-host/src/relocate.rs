//! Blocks that may be moved while somebody owns them: what compaction makes large free blocks of.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use pageyard::policy::{Linux612, Policy};
use pageyard::{Order, PAGE_SIZE, Pfn, Relocation};

use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// A block that is to move, for a [`Relocator`].
#[derive(Debug)]
pub struct Moving {
    pub(crate) from: Pfn,
    pub(crate) to: Pfn,
    pub(crate) order: Order,
    pub(crate) old: NonNull<u8>,
    pub(crate) new: NonNull<u8>,
}

impl Moving {
    /// Where it is.
    pub fn from(&self) -> Pfn {
        self.from
    }

    /// Where it is to go: free memory of the same size that nobody else has.
    pub fn to(&self) -> Pfn {
        self.to
    }

    /// Its order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Its bytes now.
    pub fn old(&self) -> NonNull<u8> {
        self.old
    }

    /// Its bytes afterwards.
    pub fn new_place(&self) -> NonNull<u8> {
        self.new
    }

    fn bytes(&self) -> usize {
        (u64::from(self.order.pages()) * PAGE_SIZE) as usize
    }

    /// Copies all of it.
    ///
    /// # Safety
    /// The caller owns the block, and nobody writes to it meanwhile.
    pub unsafe fn copy(&self) {
        // SAFETY: both places are mapped, as large as said and apart from each other; the new one is
        // the allocator's, and the old one is not written to, by the caller's word.
        unsafe { self.new.copy_from_nonoverlapping(self.old, self.bytes()) };
    }
}

/// Somebody who owns blocks by their numbers ([`Block::into_raw`](crate::Block::into_raw)) and can
/// move them. It is asked for blocks that were [said to be movable](pageyard::Yard::set_movable).
/// [`Movable`] needs none.
///
/// # Safety
/// Whoever answers [`Moved`](Relocation::Moved) owned the block, has copied it, owns its new place
/// from now on, and sees to it that nobody uses the old one any more. What it does not own, it
/// answers [`Refused`](Relocation::Refused): also a block of its own that is there by now, but of
/// another order than [the one to move](Moving::order).
pub unsafe trait Relocator: Send + Sync {
    /// Moves a block, or does not. Called without any of the yard's locks, by the worker or by whoever
    /// makes a request that needs compaction; it *tries* locks that such a caller may hold.
    fn relocate(&self, block: &Moving) -> Relocation;
}

/// Who owns which of the movable blocks.
#[derive(Debug, Default)]
pub(crate) struct Movables(Mutex<HashMap<Pfn, Arc<Slot>>>);

/// A movable block.
#[derive(Debug)]
struct Slot {
    /// Where it is; locked while somebody uses it, or moves it.
    place: Mutex<Pfn>,
    order: Order,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Movables {
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Moves a block if it is one of these; `None` where it is not.
    pub(crate) fn relocate(&self, block: &Moving) -> Option<Relocation> {
        let slot = lock(&self.0).get(&block.from).cloned()?;
        if slot.order != block.order {
            // The block that was to move is gone, and another one is there, which wants another
            // place.
            return Some(Relocation::Refused);
        }
        let mut place = match slot.place.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(Relocation::Busy),
        };
        let mut all = lock(&self.0);
        // Its owner may have given it up between the two locks.
        let own = all.get(&block.from).is_some_and(|s| Arc::ptr_eq(s, &slot));
        if !own || *place != block.from {
            return Some(Relocation::Refused);
        }
        // SAFETY: the slot is the block's owner, and locked, so that nobody has its bytes.
        unsafe { block.copy() };
        *place = block.to;
        all.remove(&block.from);
        all.insert(block.to, slot.clone());
        Some(Relocation::Moved)
    }
}

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
        let slot = Arc::new(Slot { place: Mutex::new(pfn), order });
        // It stays where it is until that is said: whoever looked at what was here before may ask.
        let here = lock(&slot.place);
        lock(&yard.service().movables.0).insert(pfn, slot.clone());
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
    /// moved, or somebody else has it: in a child after a fork for ever, if that was so just then.
    pub fn lock(&self) -> Pinned<'_> {
        let pfn = lock(&self.slot.place);
        let pages = u64::from(self.order().pages());
        let region = self.yard.region();
        let start = region.address(*pfn, pages).expect("a block of the yard's");
        Pinned { pfn, start, bytes: (pages * PAGE_SIZE) as usize }
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
        let pfn = lock(&self.slot.place);
        lock(&self.yard.service().movables.0).remove(&pfn);
        let _ = self.yard.free(*pfn, self.order());
    }
}

/// The bytes of a [`Movable`], which stay where they are as long as this lives.
#[derive(Debug)]
pub struct Pinned<'m> {
    pfn: MutexGuard<'m, Pfn>,
    start: NonNull<u8>,
    bytes: usize,
}

impl Pinned<'_> {
    /// Where the block is at the moment.
    pub fn pfn(&self) -> Pfn {
        *self.pfn
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are mapped as long as the yard lives, which the movable borrows, and the
        // slot's lock is held, so that they are this guard's alone.
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
    use super::*;

    /// What compaction found may be gone when it asks, and a block of another size be there.
    #[test]
    fn another_block_in_the_same_place_does_not_move() {
        let order = |n| Order::new(n).unwrap();
        let (from, to) = (Pfn(1 << 20), Pfn((1 << 20) + 64));
        let movables = Movables::default();
        let slot = Arc::new(Slot { place: Mutex::new(from), order: order(2) });
        lock(&movables.0).insert(from, slot.clone());
        let (mut old, mut new) = (vec![7u8; 8 << 12], vec![0u8; 8 << 12]);
        let mut asked = |n, from| {
            let (old, new) =
                (NonNull::from(&mut old[..]).cast(), NonNull::from(&mut new[..]).cast());
            movables.relocate(&Moving { from, to, order: order(n), old, new })
        };
        assert_eq!(asked(1, from), Some(Relocation::Refused));
        assert_eq!(asked(3, from), Some(Relocation::Refused));
        assert_eq!(*lock(&slot.place), from);
        assert_eq!(asked(2, to), None, "nobody's");
        assert_eq!(asked(2, from), Some(Relocation::Moved));
        assert_eq!(*lock(&slot.place), to);
        assert!(new[..4 << 12].iter().all(|&b| b == 7) && new[4 << 12..].iter().all(|&b| b == 0));
    }
}
