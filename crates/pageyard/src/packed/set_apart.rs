//! Pageblocks that are set apart for some requests: those of CMA areas (spec §4.12), and those reserved
//! for high-order atomic requests (§3.8).
//!
//! Such a pageblock is active all the time, so it is never whole, and no CPU refills from it. A set of
//! its own lists it, and frees into it bypass the magazines. It is isolated before it is set apart, and
//! to end that. The zone lock serialises these changes.

use core::ops::Range;

use lock_api::RawMutex;

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::blocks::Blocks;
use crate::packed::cpu::NONE;
use crate::packed::inventory::SHORT_SEARCH;
use crate::packed::label::Meta;
use crate::packed::region::Region;
use crate::packed::set::BlockSet;

impl<'a> Blocks<'a> {
    /// Returns whether a pageblock was ever set apart.
    #[inline(always)]
    pub(crate) fn has_set_apart(&self) -> bool {
        self.notes.has_set_apart()
    }

    /// The pageblocks that are set apart with type `t`. No bucket of these types is used otherwise.
    pub(crate) fn set_apart(&self, t: MigrateType) -> BlockSet<'a> {
        self.partial(t, 1)
    }

    /// Lists a pageblock whose label says that it is set apart.
    pub(super) fn list_set_apart(&self, block: u32, t: MigrateType) {
        self.notes.note_set_apart();
        self.set_apart(t).insert(block);
        self.free_set_apart.add(t, self.free_in(block).into());
    }

    /// Removes a pageblock whose label says that it is isolated.
    pub(super) fn unlist_set_apart(&self, block: u32, t: MigrateType) {
        self.set_apart(t).remove(block);
        self.free_set_apart.add(t, -i64::from(self.free_in(block)));
    }

    /// Counts pages of a pageblock that became free, or were taken if negative, if it is set apart. Callers ask
    /// [`has_set_apart`](Self::has_set_apart) first, so that the label is not read for nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn note_set_apart(&self, block: u32, pages: i64) {
        let meta = self.meta(block);
        if meta.is_set_apart() && !meta.is_isolated() {
            self.free_set_apart.add(meta.migrate_type(), pages);
        }
    }

    /// Returns whether a pageblock is set apart, or was until it was isolated.
    pub(crate) fn is_set_apart(&self, block: u32) -> bool {
        self.meta(block).is_set_apart()
    }

    /// Returns the pages of the highatomic reserve and of CMA pageblocks, free or not.
    #[cold]
    #[inline(never)]
    pub(crate) fn pages_set_apart(&self) -> (u64, u64) {
        self.sum_set_apart(|_| PAGEBLOCK_PAGES)
    }

    /// Returns the free pages of the highatomic reserve and those of CMA pageblocks.
    pub(crate) fn free_in_set_apart(&self) -> (u64, u64) {
        let counted = |t| self.free_set_apart.of(t).load(Relaxed).max(0) as u64;
        (counted(MigrateType::HighAtomic), counted(MigrateType::Cma))
    }

    /// Counts these pages again. What is freed or taken while a pageblock is set apart, or that ends, may be
    /// counted twice or not at all. If a counter changes meanwhile, it keeps its error until the next call.
    pub(crate) fn recount_set_apart(&self) {
        if self.has_set_apart() {
            let counters =
                [MigrateType::HighAtomic, MigrateType::Cma].map(|t| self.free_set_apart.of(t));
            let seen = counters.map(|counter| counter.load(Relaxed));
            let (highatomic, cma) = self.sum_set_apart(|block| self.free_in(block));
            for ((counter, seen), sum) in counters.into_iter().zip(seen).zip([highatomic, cma]) {
                _ = counter.compare_exchange(seen, sum as i64, Relaxed, Relaxed);
            }
        }
    }

    fn sum_set_apart(&self, pages: impl Fn(u32) -> u32) -> (u64, u64) {
        if !self.has_set_apart() {
            return (0, 0);
        }
        let sum = |t| self.set_apart(t).listed().map(|block| u64::from(pages(block))).sum();
        (sum(MigrateType::HighAtomic), sum(MigrateType::Cma))
    }

    /// Returns whether a pageblock that is set apart with type `t` has an aligned free run of an order
    /// below that of a pageblock. Without `all` this is a short search.
    pub(crate) fn has_run_set_apart(&self, order: u8, t: MigrateType, all: bool) -> bool {
        let most = if all { usize::MAX } else { SHORT_SEARCH as usize };
        let mut blocks = self.set_apart(t).listed().take(most);
        self.has_set_apart()
            && order < PAGEBLOCK_ORDER
            && blocks.any(|block| self.has_free_run(block, order))
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Takes a block from a pageblock that is set apart with type `from`, for a request of type `t`.
    /// Blocks of whole pageblocks are not taken from these.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_set_apart(
        &self,
        cpu: u32,
        order: u8,
        t: MigrateType,
        from: MigrateType,
    ) -> Option<u32> {
        if order >= PAGEBLOCK_ORDER {
            return None;
        }
        let domain = self.here(cpu).domain;
        let is_from = |meta| meta == Meta::set_apart(from);
        let take_from = |block| {
            let take = || self.blocks.take_where(block, order, domain, is_from);
            core::iter::from_fn(take).find(|&frame| self.is_sound(frame, order, domain))
        };
        // Those before it are full, or were when the last block was taken.
        let last = self.blocks.free_set_apart.last(from);
        let start = last.load(Relaxed);
        let all = || self.blocks.set_apart(from).listed();
        let behind = all().skip_while(|&block| block <= start);
        let mut others = behind.chain(all().take_while(|&block| block < start));
        let frame = take_from(start).or_else(|| {
            others.find_map(|block| take_from(block).inspect(|_| last.store(block, Relaxed)))
        })?;
        self.note_loose(-(1i64 << order));
        self.set_allocated(frame, order, t);
        Some(frame)
    }

    /// Returns the first frame of these that is neither free in the zone nor part of a block in use: a CPU
    /// or a depot has it, or an operation is about to free it or to hand it out. The first frame is not
    /// inside a block.
    pub(crate) fn first_in_transit(&self, frames: Range<u32>) -> Option<u32> {
        let mut frame = frames.start;
        while frame < frames.end {
            let state = self.state(frame)?;
            let is_here = || state.is_absent() || state.is_faulty() || self.blocks.is_set(frame);
            frame = match state.allocated() {
                Some(order) => frame.saturating_add(order.pages()),
                None if is_here() => frame + 1,
                None => return Some(frame),
            };
        }
        None
    }

    /// Ends the use of a pageblock by a CPU that refills from it. The caller holds the CPU's lock.
    pub(crate) fn release_current(&self, cpu: u32, block: u32) {
        let Some(part) = self.cpus.get(cpu as usize) else { return };
        for current in part.shared.current() {
            if current.load(Relaxed) == block {
                current.store(NONE, Relaxed);
                self.blocks.release(block, self.here(cpu).domain);
            }
        }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::base::units::{CpuId, Order, Pfn};
    use crate::packed::OwnedStorage;

    #[test]
    fn frames_of_magazines_are_in_transit_and_no_others() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(600)).unwrap();
        region.reserve(Pfn(600)..Pfn(700));
        assert!(region.mark(590) && region.take_marked(590));
        let t = MigrateType::Movable;
        assert!(region.take_exact(16, 3, t) && region.take_exact(40, 0, t));
        // Absent, reserved, faulty, in use or free as bits.
        assert_eq!(region.first_in_transit(0..1024), None);
        region.free(CpuId(0), Pfn(40), Order::ZERO).unwrap();
        assert_eq!(region.first_in_transit(0..1024), Some(40));
        assert_eq!(region.first_in_transit(41..1024), None);
    }
}
