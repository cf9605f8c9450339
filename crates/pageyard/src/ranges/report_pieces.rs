//! Free-page reporting of pieces: free blocks in pageblocks that are partly in use. Not in the kernel.
//!
//! The allocator does not note which pieces were reported: the next request would change it, and a note
//! for each frame would cost every request. The embedder knows, for it sees each page that is allocated
//! ([`Platform::prepare`]), and says which blocks are worth a report.

use core::ops::Range;

use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::units::{MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, block_end};
use crate::base::watermark::LOW;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::platform::Platform;
use crate::ranges::reporting::Batch;
use crate::zone::at::At;

impl<C: Config> Yard<'_, C> {
    /// Reports free blocks in the pageblocks of a range of frames to [`Reclaim::report_free`] that are
    /// smaller than [`Reclaim::report_order`] and a pageblock, down to `least`: those for which `is_wanted`
    /// returns true, and at most `most` pages. [`report_free_pages`](Yard::report_free_pages) reports the
    /// larger ones.
    ///
    /// For embedders that return memory to the system although its pageblocks are partly in use. They
    /// are not told twice of a block only if `is_wanted` remembers: it should return whether any page
    /// of the block has been [prepared](Platform::prepare) since the block was last reported.
    ///
    /// A block is as large as the free memory around it allows: on the packed engine at most 64 pages.
    /// Blocks on per-CPU lists and in isolated pageblocks are not reported, on the packed engine also
    /// none in pageblocks of a CMA area or of the highatomic reserve. At any time at most 32 blocks are
    /// not available to requests, and at most a quarter of the free pages above the LOW mark.
    ///
    /// Returns the number of pages that the hook accepted. Stops when the hook refuses, at a block that
    /// would exceed `most`, and in a zone that has no such block to spare. `is_wanted` is called without any
    /// lock of the allocator, and must not allocate. Frames outside the zones are skipped.
    ///
    /// ```
    /// # use pageyard::*;
    /// struct Balloon;
    /// impl Reclaim for Balloon {
    ///     const REPORT_ORDER: Option<Order> = Some(Order::HUGE);
    ///     fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool { true }
    /// }
    /// # type Lock = spin::mutex::SpinMutex<()>;
    /// let hooks = Parts::new(()).reclaim(Balloon);
    /// let yard: Yard<'_, Hooked<Lock, Parts<(), Balloon>>> =
    ///     Yard::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, hooks)?;
    /// let page = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    /// yard.drain_all(None);
    /// // The rest of its pageblock.
    /// let done = yard.report_free_pieces(page..Pfn(page.0 + 1), Order::ZERO, u64::MAX, |_, _| true);
    /// assert_eq!(done, 511);
    /// # Ok::<(), InitError>(())
    /// ```
    pub fn report_free_pieces(
        &self,
        frames: Range<Pfn>,
        least: Order,
        most: u64,
        mut is_wanted: impl FnMut(Pfn, Order) -> bool,
    ) -> u64 {
        let Some(whole) = self.hooks.report_order() else { return 0 };
        let orders = least.get()..whole.get().min(PAGEBLOCK_ORDER);
        let cpu = self.hooks.cpu();
        let mut done = 0;
        for zone in self.zones.iter().filter(|z| z.is_populated()) {
            let (first, end) = (frames.start.max(zone.start), frames.end.min(zone.end()));
            let Some(at) = self.at(zone, cpu).filter(|_| first < end && !orders.is_empty()) else {
                continue;
            };
            // Whole pageblocks, as far as they lie in the zone.
            let block = u64::from(PAGEBLOCK_PAGES);
            let first = Pfn(first.0 / block * block).max(zone.start);
            let last = [Pfn(end.0 - 1), Pfn(zone.end().0 - 1)].map(|pfn| zone.index_of(pfn));
            let (Some(mut idx), [Some(last), Some(zone_last)]) = (zone.index_of(first), last)
            else {
                continue;
            };
            while idx <= last {
                let end = block_end(idx).min(zone_last + 1);
                match at.report_pieces(idx..end, &orders, most, &mut is_wanted, &mut done) {
                    Told::All => idx = end,
                    Told::NothingToSpare => break,
                    Told::Refused => return done,
                }
            }
        }
        done
    }
}

/// How the report of a pageblock's pieces ended.
enum Told {
    All,
    NothingToSpare,
    Refused,
}

impl<C: Config> At<'_, '_, C> {
    /// Reports the pieces of a pageblock that are wanted, and adds their pages to `done`.
    fn report_pieces(
        &self,
        frames: Range<u32>,
        orders: &Range<u8>,
        most: u64,
        is_wanted: &mut impl FnMut(Pfn, Order) -> bool,
        done: &mut u64,
    ) -> Told {
        let mut idx = frames.start;
        while idx < frames.end {
            let above = self.zone.supply_exact().free;
            let spare = above.saturating_sub(self.zone.watermarks.effective(LOW)) / 4;
            let mut room = spare.min(most.saturating_sub(*done));
            let mut batch = Batch::new();
            while !batch.is_full() {
                let Some((next, order)) = self.next_piece(idx..frames.end, orders) else {
                    idx = frames.end;
                    break;
                };
                idx = next;
                let pages = u64::from(order.pages());
                if is_wanted(self.zone.pfn(idx), order) {
                    if pages > room {
                        break;
                    }
                    room -= pages;
                    batch.push(self.zone.pfn(idx), order);
                }
                idx += order.pages();
            }
            if batch.is_empty() {
                return if idx < frames.end { Told::NothingToSpare } else { Told::All };
            }
            self.take_pieces(&mut batch);
            *done += self.report_batch(&mut batch);
            if batch.refused {
                return Told::Refused;
            }
        }
        Told::All
    }

    /// Returns the first free block of one of these orders that begins in a part of a pageblock, and its
    /// order. May be stale.
    fn next_piece(&self, frames: Range<u32>, orders: &Range<u8>) -> Option<(u32, Order)> {
        if let Some(region) = self.zone.region() {
            return region.next_piece(frames, orders);
        }
        let mut idx = frames.start;
        while idx < frames.end {
            let state = self.zone.map.get(idx.into())?.state();
            let order = state.order();
            if orders.contains(&order) && state.is(Kind::Free, order) {
                return Some((idx, Order::new(order)?));
            }
            // The zone may start anywhere.
            idx = (idx + 1).next_multiple_of(1 << orders.start);
        }
        None
    }

    /// Takes those blocks that are still free, and drops the others from the batch.
    fn take_pieces(&self, batch: &mut Batch) {
        let zone = self.zone;
        if let Some(region) = zone.region() {
            return batch.retain(|pfn, order| {
                zone.index_of(pfn).is_some_and(|idx| region.begin_piece(idx, order.get()))
            });
        }
        let locked = self.lock();
        batch.retain(|pfn, order| {
            let Some(idx) = zone.index_of(pfn) else { return false };
            let state = zone.map.frame(idx).state();
            state.is(Kind::Free, order.get())
                && state.migrate_type() != MigrateType::Isolate
                && locked.hold_as_is(idx, order.get())
        });
    }
}
