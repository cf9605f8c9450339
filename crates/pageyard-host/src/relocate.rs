//! Blocks in use that may be moved: compaction makes large free blocks of what they leave.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pageyard::{Order, PAGE_SIZE, Pfn, Relocation};

use crate::held::{Class, Mutex, MutexGuard};

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
/// [`Movable`](crate::Movable) needs none.
///
/// # Safety
/// Whoever answers [`Moved`](Relocation::Moved) owned the block, has copied it, owns its new place
/// from now on, and sees to it that nobody uses the old one any more. What it does not own, it
/// answers [`Refused`](Relocation::Refused): also a block of its own that is there by now, but of
/// another order than [the one to move](Moving::order).
///
/// A panic counts as [`Refused`](Relocation::Refused), once the panic hook has run: the block must
/// still be where it was.
pub unsafe trait Relocator: Send + Sync {
    /// Moves a block, or does not. Called without any of the yard's locks, by the worker or by whoever
    /// makes a request that needs compaction; it *tries* locks that such a caller may hold. Requests
    /// that it makes may use the reserves and never lead to reclaim or compaction.
    fn relocate(&self, block: &Moving) -> Relocation;
}

/// Frames whose movable blocks share a list.
const BUCKET: u64 = 16;

/// The movable blocks by their first frames.
///
/// Compaction asks it for every block that it wants to move, on the thread of any request that
/// allocates. So nothing is allocated or dropped under its lock: there is a fixed number of lists, and
/// nodes are made before and dropped after it is held.
#[derive(Debug)]
pub(crate) struct Movables(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    buckets: Box<[Option<Box<Node>>]>,
    blocks: u64,
}

/// A movable block in its bucket's list.
#[derive(Debug)]
struct Node {
    pfn: Pfn,
    slot: Arc<Slot>,
    next: Option<Box<Node>>,
}

/// A movable block.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Held while the block's bytes are in use, or moved.
    pub(crate) busy: Mutex<()>,
    /// The first frame. Written with `busy` held.
    place: AtomicU64,
    /// The owner has `busy`, by a [`Pinned`](crate::Pinned).
    pub(crate) pinned: AtomicBool,
    pub(crate) order: Order,
}

impl Slot {
    pub(crate) fn new(pfn: Pfn, order: Order) -> Slot {
        let (busy, pinned) = (Mutex::new(Class::Movable, ()), AtomicBool::new(false));
        Slot { busy, place: AtomicU64::new(pfn.0), pinned, order }
    }

    pub(crate) fn place(&self) -> Pfn {
        Pfn(self.place.load(Relaxed))
    }
}

impl Table {
    fn bucket(&mut self, pfn: Pfn) -> Option<&mut Option<Box<Node>>> {
        let buckets = self.buckets.len() as u64;
        let at = (pfn.0 / BUCKET).checked_rem(buckets)?;
        self.buckets.get_mut(at as usize)
    }

    fn get(&mut self, pfn: Pfn) -> Option<&Arc<Slot>> {
        let mut at = self.bucket(pfn)?.as_deref();
        while let Some(node) = at {
            if node.pfn == pfn {
                return Some(&node.slot);
            }
            at = node.next.as_deref();
        }
        None
    }

    fn link(&mut self, mut node: Box<Node>) {
        if let Some(bucket) = self.bucket(node.pfn) {
            node.next = bucket.take();
            *bucket = Some(node);
            self.blocks += 1;
        }
    }

    fn unlink(&mut self, pfn: Pfn) -> Option<Box<Node>> {
        let mut at = self.bucket(pfn)?;
        while at.as_ref()?.pfn != pfn {
            at = &mut at.as_mut()?.next;
        }
        let mut node = at.take()?;
        *at = node.next.take();
        self.blocks -= 1;
        Some(node)
    }
}

impl Default for Movables {
    fn default() -> Self {
        Movables(Mutex::new(Class::Movables, Table::default()))
    }
}

impl Movables {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().blocks == 0
    }

    /// Adds a block of a yard of so many pages.
    pub(crate) fn add(&self, pages: u64, pfn: Pfn, slot: &Arc<Slot>) {
        let node = Box::new(Node { pfn, slot: slot.clone(), next: None });
        if self.table().buckets.is_empty() {
            let mut buckets = (0..pages.div_ceil(BUCKET)).map(|_| None).collect();
            let mut table = self.table();
            if table.buckets.is_empty() {
                std::mem::swap(&mut table.buckets, &mut buckets);
            }
            // Another thread's were faster: these go without the lock.
            drop(table);
        }
        self.table().link(node);
    }

    pub(crate) fn remove(&self, pfn: Pfn) {
        let node = self.table().unlink(pfn);
        drop(node);
    }

    /// Moves a block if it is one of these; `None` where it is not.
    pub(crate) fn relocate(&self, block: &Moving) -> Option<Relocation> {
        let slot = self.table().get(block.from)?.clone();
        if slot.order != block.order {
            // The block that was to move is gone, and another one is there, which wants another
            // place.
            return Some(Relocation::Refused);
        }
        let Some(_busy) = slot.busy.try_lock() else { return Some(Relocation::Busy) };
        // Its owner may have given it up between the two locks; from here on it cannot.
        if !self.table().get(block.from).is_some_and(|s| Arc::ptr_eq(s, &slot)) {
            return Some(Relocation::Refused);
        }
        // SAFETY: the slot is the block's owner and locked, so that nothing else uses its bytes; the
        // order is the slot's (`another_block_in_the_same_place_does_not_move`,
        // `movable_blocks_are_moved_together_with_their_contents`).
        unsafe { block.copy() };
        slot.place.store(block.to.0, Relaxed);
        let mut table = self.table();
        if let Some(mut node) = table.unlink(block.from) {
            node.pfn = block.to;
            table.link(node);
        }
        Some(Relocation::Moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooked_alloc::assert_free;

    fn order(n: u8) -> Order {
        Order::new(n).unwrap()
    }

    const FROM: Pfn = Pfn(1 << 20);
    const TO: Pfn = Pfn((1 << 20) + 64);

    /// A block of order 2 with sevens in it, of a yard of 1,024 pages; and room for it to move to.
    struct One {
        movables: Movables,
        slot: Arc<Slot>,
        old: Vec<u8>,
        new: Vec<u8>,
    }

    impl One {
        fn new() -> One {
            let (movables, slot) = (Movables::default(), Arc::new(Slot::new(FROM, order(2))));
            movables.add(1024, FROM, &slot);
            One { movables, slot, old: vec![7; 8 << 12], new: vec![0; 8 << 12] }
        }

        fn ask(&mut self, n: u8, from: Pfn) -> Option<Relocation> {
            let (old, new) = (NonNull::from(&mut self.old[..]), NonNull::from(&mut self.new[..]));
            let (old, new) = (old.cast(), new.cast());
            self.movables.relocate(&Moving { from, to: TO, order: order(n), old, new })
        }
    }

    /// What compaction found may be gone when it asks, and a block of another size be there.
    #[test]
    fn another_block_in_the_same_place_does_not_move() {
        let mut one = One::new();
        assert_eq!(one.ask(1, FROM), Some(Relocation::Refused));
        assert_eq!(one.ask(3, FROM), Some(Relocation::Refused));
        assert_eq!(one.slot.place(), FROM);
        assert_eq!(one.ask(2, TO), None, "not registered");
        assert_eq!(one.ask(2, FROM), Some(Relocation::Moved));
        assert_eq!(one.slot.place(), TO);
        let (moved, rest) = one.new.split_at(4 << 12);
        assert!(moved.iter().all(|&b| b == 7) && rest.iter().all(|&b| b == 0));
        assert_eq!(one.ask(2, FROM), None, "it is where it went");
        one.movables.remove(TO);
        assert!(one.movables.is_empty());
    }

    /// Busy, not refused: compaction asks again, as the guard may be dropped at any time.
    #[test]
    fn a_block_in_use_is_busy() {
        let mut one = One::new();
        let slot = one.slot.clone();
        let guard = slot.busy.lock();
        assert_eq!(one.ask(2, FROM), Some(Relocation::Busy));
        drop(guard);
        assert_eq!(one.ask(2, FROM), Some(Relocation::Moved));
    }

    #[test]
    fn blocks_that_share_a_list_are_told_apart() {
        let movables = Movables::default();
        // 1,024 pages in 64 lists: frames 1,024 apart share one too.
        let all: Vec<_> = (0..2048).map(|n| Arc::new(Slot::new(Pfn(n), order(0)))).collect();
        all.iter().for_each(|slot| movables.add(1024, slot.place(), slot));
        assert_eq!(movables.table().blocks, 2048);
        for slot in &all {
            let found = movables.table().get(slot.place()).cloned().unwrap();
            assert!(Arc::ptr_eq(&found, slot));
        }
        all.iter().step_by(3).for_each(|slot| movables.remove(slot.place()));
        for (n, slot) in all.iter().enumerate() {
            assert_eq!(movables.table().get(slot.place()).is_some(), n % 3 != 0);
        }
        assert_eq!(movables.table().blocks, 2048 - 683);
    }

    #[test]
    fn nothing_is_allocated_or_released_under_the_lock() {
        let movables = Movables::default();
        assert_free(
            || movables.0.try_lock().is_some(),
            || {
                for n in 0..100 {
                    movables.add(1024, Pfn(n), &Arc::new(Slot::new(Pfn(n), order(0))));
                }
                (0..100).for_each(|n| movables.remove(Pfn(n)));
            },
        );
        let mut one = One::new();
        let slot = one.slot.clone();
        let is_free = || slot.busy.try_lock().is_some();
        assert_free(is_free, || {
            assert_eq!(one.ask(2, FROM), Some(Relocation::Moved));
            one.movables.remove(TO);
        });
    }
}
