//! The items that threads hold, and the patterns in their pages.

use std::mem::ManuallyDrop;
use std::ops::Range;

use crate::found::Found;
use crate::owner::Owner;
use crate::raw::Heap;
use crate::tracked::TrackedYard;
use crate::yards::{Block, InYard, Movable, PageRange};
use allocator_api2::alloc::Global;
use pageyard::PAGE_SIZE;

const PAGE: usize = PAGE_SIZE as usize;
/// Offsets of the pattern in a page: both ends and two places between.
const PLACES: [usize; 4] = [0, 1360, 2728, PAGE - 8];

/// A collection in a yard, as long as the yard has memory.
pub(crate) type Rows = allocator_api2::vec::Vec<u8, InYard<'static, Global>>;

/// An item allocated from a yard.
pub(crate) enum Item {
    Block(Block<'static>),
    /// Pages allocated together.
    Bulk(Vec<Block<'static>>),
    Range(PageRange<'static>),
    /// Its pages are entered as owned only while it is locked; otherwise compaction moves it.
    Movable(Movable<'static>),
    Rows(Rows),
    Heap(Heap),
}

impl Item {
    /// Returns the block, or `None` for any other item.
    pub(crate) fn block(self) -> Option<Block<'static>> {
        if let Item::Block(block) = self { Some(block) } else { None }
    }
}

/// Receives one piece of an item: its frames and its bytes.
type Look<'a> = dyn FnMut(Range<u64>, &mut [u8]) -> Result<(), Found> + 'a;

/// Properties that stay with an item wherever it is kept.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) owner: Owner,
    /// Whether its pages carry patterns.
    patterns: bool,
    pages: u64,
}

/// An item whose pages are entered as owned. One that is dropped leaks. So a worker that ends with a
/// finding frees no page that still has an owner; else another thread might be allocated such a page
/// and report that first.
pub(crate) struct Held {
    item: ManuallyDrop<Item>,
    pub(crate) tracked: &'static TrackedYard,
    pub(crate) terms: Terms,
}

fn frames(first: u64, bytes: &[u8]) -> Range<u64> {
    first..first + (bytes.len() / PAGE) as u64
}

fn pattern(owner: Owner, page: usize, at: usize) -> u64 {
    (owner.number() ^ (page as u64) << 12 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns whether memory is zero. Checks all of the first pages, and only the pattern offsets of
/// the others.
fn is_zero(bytes: &[u8]) -> bool {
    let all = bytes.len().min(8 * PAGE);
    bytes[..all].iter().all(|&b| b == 0)
        && bytes[all..].chunks_exact(PAGE).all(|p| PLACES.iter().all(|&at| p[at] == 0))
}

impl Held {
    /// Enters the owner of an item that was just allocated, and writes its patterns.
    pub(crate) fn new(
        tracked: &'static TrackedYard,
        item: Item,
        owner: Owner,
        zero: bool,
        patterns: bool,
    ) -> Result<Held, Found> {
        let mut held = Held::entered(tracked, item, Terms { owner, patterns, pages: 0 });
        held.enter()?;
        let mut pages = 0;
        held.each(&mut |frames, bytes| {
            pages += frames.end - frames.start;
            if zero && !is_zero(bytes) {
                return Err(Found::NotZero { frame: frames.start, owner });
            }
            Ok(())
        })?;
        held.terms.pages = pages;
        held.mark()?;
        Ok(held)
    }

    /// Holds an item whose owner is entered already.
    pub(crate) fn entered(tracked: &'static TrackedYard, item: Item, terms: Terms) -> Held {
        Held { item: ManuallyDrop::new(item), tracked, terms }
    }

    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    pub(crate) fn pages(&self) -> u64 {
        self.terms.pages
    }

    /// Calls `f` for each piece of the item. A movable block's piece is entered as owned meanwhile.
    pub(crate) fn each(&mut self, f: &mut Look<'_>) -> Result<(), Found> {
        let Held { item, tracked, terms: Terms { owner, .. } } = self;
        match &mut **item {
            Item::Block(b) => f(frames(b.pfn().0, b), b),
            Item::Bulk(all) => all.iter_mut().try_for_each(|b| f(frames(b.pfn().0, b), b)),
            Item::Range(r) => f(frames(r.frames().start.0, r), r),
            Item::Movable(m) => {
                let mut pinned = m.lock();
                let frames = frames(pinned.pfn().0, &pinned);
                tracked.owners.acquire(frames.clone(), *owner)?;
                let done = f(frames.clone(), &mut pinned);
                // Even after a finding: compaction may move the block as soon as it is unlocked.
                tracked.owners.release(frames, *owner)?;
                done
            }
            Item::Rows(rows) => f(tracked.frames(rows.as_ptr(), rows.capacity()), rows),
            Item::Heap(heap) => f(tracked.frames(heap.as_ptr(), heap.size()), heap),
        }
    }

    /// Enters the owner of all pages.
    pub(crate) fn enter(&mut self) -> Result<(), Found> {
        let (tracked, owner) = (self.tracked, self.terms.owner);
        match *self.item {
            Item::Movable(_) => Ok(()),
            _ => self.each(&mut |frames, _| tracked.owners.acquire(frames, owner)),
        }
    }

    /// Removes the owner of all pages.
    pub(crate) fn leave(&mut self) -> Result<(), Found> {
        let (tracked, owner) = (self.tracked, self.terms.owner);
        match *self.item {
            Item::Movable(_) => Ok(()),
            _ => self.each(&mut |frames, _| tracked.owners.release(frames, owner)),
        }
    }

    /// Writes the patterns.
    pub(crate) fn mark(&mut self) -> Result<(), Found> {
        let (Terms { owner, patterns, .. }, mut n) = (self.terms, 0);
        if !patterns {
            return Ok(());
        }
        self.each(&mut |_, bytes| {
            for page in bytes.chunks_exact_mut(PAGE) {
                for at in PLACES {
                    page[at..at + 8].copy_from_slice(&pattern(owner, n, at).to_le_bytes());
                }
                n += 1;
            }
            Ok(())
        })
    }

    /// Fails if the pages do not carry the patterns.
    pub(crate) fn check(&mut self) -> Result<(), Found> {
        let (Terms { owner, patterns, .. }, mut n) = (self.terms, 0);
        if !patterns {
            return Ok(());
        }
        self.each(&mut |frames, bytes| {
            for (frame, words) in frames.zip(bytes.chunks_exact(PAGE)) {
                for at in PLACES {
                    let found = words[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
                    let expected = pattern(owner, n, at);
                    if found != expected {
                        return Err(Found::Pattern { frame, owner, at, expected, found });
                    }
                }
                n += 1;
            }
            Ok(())
        })
    }

    /// Removes the item's owner and checks its patterns, in preparation for the free.
    pub(crate) fn end(mut self) -> Result<Item, Found> {
        self.leave()?;
        self.check()?;
        Ok(self.into_item())
    }

    /// Returns the item, whose owner stays entered unless it was removed before.
    pub(crate) fn into_item(self) -> Item {
        ManuallyDrop::into_inner(self.item)
    }

    /// Checks the item and drops it.
    pub(crate) fn release(self) -> Result<(), Found> {
        self.end().map(drop)
    }

    /// Grows or shrinks the item.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Found> {
        self.check()?;
        self.leave()?;
        match &mut *self.item {
            Item::Rows(rows) => {
                rows.resize(bytes, 0);
                rows.shrink_to_fit();
            }
            Item::Heap(heap) => heap.resize(bytes),
            _ => {}
        }
        self.enter()?;
        self.mark()
    }
}

#[cfg(test)]
mod tests {
    use pageyard::{Gfp, Order};

    use super::*;
    use crate::Plan;
    use crate::actor::ALLOC;
    use crate::operations::NAMES;
    use crate::phase::Phase;

    fn tracked() -> &'static TrackedYard {
        let phase = Phase::new(&Plan { size: 16 << 20, ..Plan::new(1) }, 1);
        Box::leak(Box::new(TrackedYard::new(0, phase.yards[0], &NAMES).unwrap()))
    }

    #[test]
    fn a_dropped_item_is_not_freed() {
        let tracked = tracked();
        let block = tracked.yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let frame = block.pfn().0;
        let owner = Owner::new(1, ALLOC, 1, &NAMES);
        Held::new(tracked, Item::Block(block), owner, false, false).unwrap();
        assert_eq!(tracked.owners.release(frame..frame + 1, owner), Ok(()));
        assert!(tracked.yard.status().used > 0);
    }

    #[test]
    fn a_finding_in_a_movable_block_leaves_no_owner() {
        let tracked = tracked();
        let movable = tracked.yard.alloc_movable(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        let owner = Owner::new(1, ALLOC, 1, &NAMES);
        let mut held = Held::new(tracked, Item::Movable(movable), owner, false, true).unwrap();
        let mut frame = 0;
        let found = held.each(&mut |frames, _| {
            frame = frames.start;
            Err(Found::NotZero { frame, owner })
        });
        assert_eq!(found, Err(Found::NotZero { frame, owner }));
        assert_eq!(tracked.owners.acquire(frame..frame + 1, owner), Ok(()));
    }
}
