//! Movable blocks: compaction migrates them to make large free blocks.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pageyard::{Order, PAGE_SIZE, Pfn, Relocation};

use crate::held::{Class, Mutex, MutexGuard};

/// A block to move, passed to a [`Relocator`].
///
/// ```
/// use pageyard::Relocation;
/// use pageyard_host::{Moving, Relocator};
///
/// struct Owners;
/// // SAFETY: it moves nothing.
/// unsafe impl Relocator for Owners {
///     fn relocate(&self, block: &Moving) -> Relocation {
///         println!("block of order {} at frame {}", block.order(), block.from());
///         Relocation::Refused
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Moving {
    pub(crate) from: Pfn,
    pub(crate) to: Pfn,
    pub(crate) order: Order,
    pub(crate) old: NonNull<u8>,
    pub(crate) new: NonNull<u8>,
}

impl Moving {
    /// Returns the block's current first frame.
    pub fn from(&self) -> Pfn {
        self.from
    }

    /// Returns the first frame of the destination: free memory of the same size that nothing else
    /// uses.
    pub fn to(&self) -> Pfn {
        self.to
    }

    /// Returns the order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the address of the current bytes.
    pub fn old(&self) -> NonNull<u8> {
        self.old
    }

    /// Returns the address of the destination's bytes.
    pub fn new_place(&self) -> NonNull<u8> {
        self.new
    }

    fn bytes(&self) -> usize {
        (u64::from(self.order.pages()) * PAGE_SIZE) as usize
    }

    /// Copies all bytes to the destination.
    ///
    /// # Safety
    /// The caller owns the block, and nothing writes to it during the copy.
    pub unsafe fn copy(&self) {
        // SAFETY: both places are mapped, of this size, and do not overlap. The destination is the
        // allocator's, and by the caller's guarantee nothing writes to the source.
        unsafe { self.new.copy_from_nonoverlapping(self.old, self.bytes()) };
    }
}

/// An owner of blocks by number ([`Block::into_raw`](crate::Block::into_raw)) that can move them.
/// It is called for blocks [marked as movable](pageyard::Yard::set_movable).
/// [`Movable`](crate::Movable) needs none.
///
/// # Safety
/// An implementation that returns [`Moved`](Relocation::Moved) owned the block and has copied it.
/// It owns the new place from now on and ensures that nothing uses the old one. For blocks that it
/// does not own, it returns [`Refused`](Relocation::Refused). That includes a block of its own that
/// is at this frame by now, but of another order than [the one to move](Moving::order).
///
/// A panic counts as [`Refused`](Relocation::Refused), once the panic hook has run: the block must
/// still be where it was.
///
/// ```
/// use std::collections::HashSet;
/// use std::sync::Mutex;
/// use pageyard::{Order, Pfn, Relocation};
/// use pageyard_host::{Moving, Relocator};
///
/// /// Owns single pages by number.
/// struct Pages(Mutex<HashSet<Pfn>>);
///
/// // SAFETY: a page is copied and renumbered under the lock by which its owner finds it.
/// unsafe impl Relocator for Pages {
///     fn relocate(&self, block: &Moving) -> Relocation {
///         let Ok(mut pages) = self.0.try_lock() else { return Relocation::Busy };
///         if block.order() != Order::ZERO || !pages.remove(&block.from()) {
///             return Relocation::Refused;
///         }
///         // SAFETY: nothing accesses the page without the lock.
///         unsafe { block.copy() };
///         pages.insert(block.to());
///         Relocation::Moved
///     }
/// }
/// ```
pub unsafe trait Relocator: Send + Sync {
    /// Moves a block, or refuses. Called without any of the yard's locks, by the worker or on the
    /// thread of a request that needs compaction. Use `try_lock` on locks that such a caller may
    /// hold. Requests made in here may use the reserves and never lead to reclaim or compaction.
    fn relocate(&self, block: &Moving) -> Relocation;
}

/// Number of consecutive frames whose movable blocks share a list.
const BUCKET: u64 = 16;

/// The movable blocks by first frame.
///
/// Compaction looks up every block that it wants to move, on the thread of any request that
/// allocates. So nothing is allocated or dropped under the lock: the number of lists is fixed, and
/// nodes are allocated before and dropped after the lock is held.
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
    /// Held while the block's bytes are in use or being moved.
    pub(crate) busy: Mutex<()>,
    /// First frame. Written with `busy` held.
    place: AtomicU64,
    /// Set while a [`Pinned`](crate::Pinned) of the owner holds `busy`.
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

    /// Adds a block of a yard of `pages` pages.
    pub(crate) fn add(&self, pages: u64, pfn: Pfn, slot: &Arc<Slot>) {
        let node = Box::new(Node { pfn, slot: slot.clone(), next: None });
        if self.table().buckets.is_empty() {
            let mut buckets = (0..pages.div_ceil(BUCKET)).map(|_| None).collect();
            let mut table = self.table();
            if table.buckets.is_empty() {
                std::mem::swap(&mut table.buckets, &mut buckets);
            }
            // If another thread installed its buckets first, these are dropped without the lock.
            drop(table);
        }
        self.table().link(node);
    }

    pub(crate) fn remove(&self, pfn: Pfn) {
        let node = self.table().unlink(pfn);
        drop(node);
    }

    /// Moves a block if it is in this table; `None` otherwise.
    pub(crate) fn relocate(&self, block: &Moving) -> Option<Relocation> {
        let slot = self.table().get(block.from)?.clone();
        if slot.order != block.order {
            // The block that was to move is gone. Another one is there, which needs a different
            // destination.
            return Some(Relocation::Refused);
        }
        let Some(_busy) = slot.busy.try_lock() else { return Some(Relocation::Busy) };
        // The owner may have freed the block between the two locks; while `busy` is held, it
        // cannot.
        if !self.table().get(block.from).is_some_and(|s| Arc::ptr_eq(s, &slot)) {
            return Some(Relocation::Refused);
        }
        // SAFETY: the slot owns the block and is locked, so nothing else uses its bytes; the order
        // is the slot's (`a_reused_slot_does_not_move`,
        // `movable_blocks_keep_their_contents`).
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

    /// A block of order 2 filled with sevens, in a yard of 1,024 pages, and a destination for it.
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

    /// By the time compaction asks, the block that it found may be gone and one of another size be
    /// there.
    #[test]
    fn a_reused_slot_does_not_move() {
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

    /// Busy, not refused: compaction retries, because the guard may be dropped at any time.
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
    fn blocks_in_one_bucket_are_distinguished() {
        let movables = Movables::default();
        // 1,024 pages in 64 lists: frames 1,024 apart also share a list.
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
    fn the_table_lock_covers_no_allocation_or_release() {
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
