//! Many pages at once, contiguous if possible: for program images, page caches and other memory that
//! is mapped page by page but cheaper to handle in few pieces.
//!
//! The spec does not define this call. It makes requests of §4 in an order of its own.

use core::fmt;
use core::mem;
use core::ops::Range;

use crate::allocator::yard::Yard;
use crate::base::free_error::FreeError;
use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeChoice;
use crate::base::units::{MAX_ORDER, MigrateType, Order, Pfn};
use crate::embedder::config::Config;
use crate::request::alloc::AllocError;

/// Why [`Yard::alloc_range_or_scatter`] allocated nothing.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let none = &mut [];
/// assert_eq!(yard.alloc_range_or_scatter(3, Gfp::KERNEL, none), Err(ScatterError::TooManyRanges));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScatterError {
    /// A request for a single page failed.
    Alloc(AllocError),
    /// The memory found lies in more ranges than the caller has room for.
    TooManyRanges,
}

impl fmt::Display for ScatterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScatterError::Alloc(e) => e.fmt(f),
            ScatterError::TooManyRanges => {
                f.write_str("the memory found lies in more ranges than there is room for")
            }
        }
    }
}

impl core::error::Error for ScatterError {}

impl<'a, C: Config> Yard<'a, C> {
    /// Allocates `pages` single pages in as few contiguous ranges as possible: as one range, else as
    /// blocks that are as large as possible, down to single frames. Writes the ranges to the start of
    /// `ranges` and returns their number. Ranges that adjoin are merged.
    ///
    /// Only requests for single pages reclaim, compact or fail; larger blocks are taken if they are
    /// free. One range of more than the largest block is [migrated](Yard::alloc_contig_pages)
    /// together if `gfp` allows direct reclaim, and a zone has the pages above its LOW watermark.
    ///
    /// All pages are allocated or none is. If a hook panics, none is: all go back to the zone, without
    /// further hooks. Free a range with [`free_contig`](Yard::free_contig), or each page on its own.
    /// [`Gfp::COMP`] is ignored.
    ///
    /// ```
    /// # use pageyard::*;
    /// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
    /// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
    /// let mut ranges = [const { Pfn(0)..Pfn(0) }; 8];
    /// let n = yard.alloc_range_or_scatter(300, Gfp::KERNEL, &mut ranges)?;
    /// assert_eq!(ranges[..n].iter().map(|r| r.end.0 - r.start.0).sum::<u64>(), 300);
    /// for range in &ranges[..n] {
    ///     yard.free_contig(range.clone()).unwrap();
    /// }
    /// # Ok::<(), ScatterError>(())
    /// ```
    ///
    /// # Errors
    /// [`ScatterError`]; the contents of `ranges` are then unspecified.
    pub fn alloc_range_or_scatter(
        &self,
        pages: u64,
        gfp: Gfp,
        ranges: &mut [Range<Pfn>],
    ) -> Result<usize, ScatterError> {
        let gfp = gfp - Gfp::COMP;
        let req = self.request(Order::ZERO, gfp, NodeChoice::LOCAL).map_err(ScatterError::Alloc)?;
        if pages == 0 {
            return Ok(0);
        }
        let mut taken = Taken { yard: self, ranges, len: 0 };
        if !taken.one_range(pages, gfp, req.migrate_type)?
            && let Err(error) = taken.scattered(pages, gfp)
        {
            taken.give_back();
            return Err(error);
        }
        Ok(taken.keep())
    }
}

/// Ranges of single pages, allocated so far. Dropped by a panic of a hook: returns them.
struct Taken<'t, 'y, 'a, C: Config> {
    yard: &'y Yard<'a, C>,
    ranges: &'t mut [Range<Pfn>],
    len: usize,
}

impl<C: Config> Taken<'_, '_, '_, C> {
    /// Allocates all pages as one range, if that needs nothing but free memory, or migration.
    fn one_range(&mut self, pages: u64, gfp: Gfp, t: MigrateType) -> Result<bool, ScatterError> {
        if self.ranges.is_empty() {
            return Err(ScatterError::TooManyRanges);
        }
        let order = pages.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
        let start = match Order::new(u8::try_from(order).unwrap_or(u8::MAX)) {
            Some(order) => self.block(order, gfp),
            None => self.migrated(pages, gfp, t),
        };
        let Some(start) = start else { return Ok(false) };
        self.push(start..Pfn(start.0.wrapping_add(pages)))?;
        // What the block has beyond the pages.
        if let Some(order) = Order::new(order as u8) {
            let end = start.0.wrapping_add(order.pages().into());
            let mut rest = [Pfn(start.0.wrapping_add(pages))..Pfn(end)];
            Taken { yard: self.yard, ranges: &mut rest, len: 1 }.give_back();
        }
        Ok(true)
    }

    /// Allocates more than the largest block as one range. Not inlined: the stack that it takes is not
    /// that of requests without direct reclaim.
    #[inline(never)]
    fn migrated(&self, pages: u64, gfp: Gfp, t: MigrateType) -> Option<Pfn> {
        if !gfp.contains(Gfp::DIRECT_RECLAIM) {
            return None;
        }
        let wanted = i64::try_from(pages).ok()?;
        let roomy = |zone| self.yard.above_low(zone).is_some_and(|spare| spare >= wanted);
        let spans = self.yard.zone_ids().filter(|&zone| roomy(zone));
        let spans = spans.filter_map(|zone| self.yard.zone(zone).map(|z| z.start..z.end()));
        spans.filter_map(|span| self.yard.alloc_contig_pages(pages, 1, span, t, gfp).ok()).next()
    }

    /// Allocates blocks of falling orders.
    fn scattered(&mut self, pages: u64, gfp: Gfp) -> Result<(), ScatterError> {
        let (mut left, mut order) = (pages, Order::MAX);
        while left > 0 {
            let fits = Order::new(left.ilog2().min(MAX_ORDER.into()) as u8).unwrap_or_default();
            order = order.min(fits);
            let start = match self.block(order, gfp) {
                Some(start) => start,
                None if order > Order::ZERO => {
                    order = Order::new(order.get().wrapping_sub(1)).unwrap_or_default();
                    continue;
                }
                None => self.yard.alloc(Order::ZERO, gfp).map_err(ScatterError::Alloc)?,
            };
            let pages = u64::from(order.pages());
            self.push(start..Pfn(start.0.wrapping_add(pages)))?;
            left = left.wrapping_sub(pages);
        }
        Ok(())
    }

    /// Allocates a block as single pages, if there is a free one.
    fn block(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let effort = Gfp::DIRECT_RECLAIM | Gfp::KSWAPD_RECLAIM | Gfp::NOFAIL | Gfp::RETRY_MAYFAIL;
        let gfp = (gfp - effort) | Gfp::NORETRY | Gfp::NOWARN;
        let pfn = self.yard.alloc(order, gfp).ok()?;
        // Only another caller that frees the block without owning it makes this fail.
        self.yard.split(pfn, order, Order::ZERO).ok()?;
        Some(pfn)
    }

    /// Remembers a range.
    fn push(&mut self, range: Range<Pfn>) -> Result<(), ScatterError> {
        let last = self.len.checked_sub(1).and_then(|last| self.ranges.get_mut(last));
        if let Some(last) = last {
            if last.end == range.start {
                last.end = range.end;
                return Ok(());
            }
            if range.end == last.start {
                last.start = range.start;
                return Ok(());
            }
        }
        if let Some(slot) = self.ranges.get_mut(self.len) {
            *slot = range;
            self.len += 1;
            return Ok(());
        }
        let mut own = [range];
        Taken { yard: self.yard, ranges: &mut own, len: 1 }.give_back();
        Err(ScatterError::TooManyRanges)
    }

    /// Hands all pages to the caller. Returns the number of ranges.
    fn keep(self) -> usize {
        let len = self.len;
        mem::forget(self);
        len
    }

    /// Frees all pages as their owner would.
    fn give_back(mut self) {
        while let Some(range) = self.len.checked_sub(1).and_then(|last| self.ranges.get_mut(last)) {
            while range.start < range.end {
                // If a hook panics, the page is still allocated, and `drop` returns it.
                if let Err(FreeError::UnknownCpu(_)) = self.yard.free(range.start, Order::ZERO) {
                    self.yard.return_unprepared(range.start, Order::ZERO);
                }
                range.start = Pfn(range.start.0.wrapping_add(1));
            }
            self.len -= 1;
        }
    }
}

impl<C: Config> Drop for Taken<'_, '_, '_, C> {
    /// Returns all pages to the zone without calling a hook.
    fn drop(&mut self) {
        for range in self.ranges.iter().take(self.len) {
            let pages = (range.start.0..range.end.0).map(Pfn);
            pages.for_each(|pfn| self.yard.return_unprepared(pfn, Order::ZERO));
        }
    }
}
