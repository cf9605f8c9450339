//! Contiguous ranges (spec §4.12): exactly these frames, emptied of what can move.

use core::fmt;
use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::Gfp;
use crate::base::units::{CpuId, MigrateType, Order, Pfn};
use crate::base::unwind::{Finally, Rollback};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::ranges::isolate::{IsolateError, Purpose, blocks_of};
use crate::request::free::{BatchError, FreeError};
use crate::zone::area::End;
use crate::zone::at::{At, Locked};
use crate::zone::state::Zone;

/// Why a contiguous range was not to be had. Nothing is taken then, though blocks may have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContigError {
    /// The range means nothing, or a pageblock that it touches refuses to be isolated.
    Isolate(IsolateError),
    /// This frame of the range is still in use.
    Busy(Pfn),
    /// What is in use there could move, but there is no free block for it to move to.
    NoMemory,
    /// One block was asked for ([`Gfp::COMP`]), and the range is not exactly one: 2^order pages,
    /// aligned, no larger than the largest order, and not part of a larger free block.
    NotABlock,
    /// No place was found among those asked for.
    NoPlace,
    /// An alignment is a power of two, in pages.
    BadAlign(u64),
}

impl ContigError {
    /// The kernel's error number: -16 (EBUSY), -12 (ENOMEM) or -22 (EINVAL).
    pub const fn errno(self) -> i32 {
        match self {
            ContigError::Isolate(e) => e.errno(),
            ContigError::Busy(_) => -16,
            ContigError::NoMemory | ContigError::NoPlace => -12,
            ContigError::NotABlock | ContigError::BadAlign(_) => -22,
        }
    }

    /// Whether another place may do: what is in the way is in the way here.
    pub(crate) const fn is_busy(self) -> bool {
        self.errno() == -16
    }
}

impl fmt::Display for ContigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContigError::Isolate(e) => e.fmt(f),
            ContigError::Busy(p) => write!(f, "frame {p} is still in use"),
            ContigError::NoMemory => {
                f.write_str("no free block is left to move what is in use there to")
            }
            ContigError::NotABlock => {
                f.write_str("the range is not exactly one block of order 0 to 10")
            }
            ContigError::NoPlace => f.write_str("no place that was asked for can be emptied"),
            ContigError::BadAlign(n) => {
                write!(f, "an alignment of {n} pages; it must be a power of two")
            }
        }
    }
}

impl core::error::Error for ContigError {}

impl From<IsolateError> for ContigError {
    fn from(e: IsolateError) -> Self {
        ContigError::Isolate(e)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Takes exactly the frames of a range (spec §4.12), which must lie in one zone. Watermarks do
    /// not matter.
    ///
    /// Every pageblock that the range touches is [isolated](Yard::isolate), so an unmovable page
    /// beside the range, but in its first or last pageblock, refuses it. What is in use in the
    /// range is [moved](crate::Reclaim::relocate) elsewhere. At the end, taken or not, those pageblocks
    /// have type `t`, also if another caller held them isolated; those that were CMA blocks before
    /// they were isolated are CMA blocks again.
    ///
    /// Where the policy checks pages, one that is bad refuses the range, and is out of use (§11.2).
    ///
    /// The frames are the caller's as single pages, to be given back by
    /// [`free_contig`](Yard::free_contig) or one by one; with [`Gfp::COMP`] as one block. Of the
    /// other flags, `gfp` says how the pages are [prepared](Platform::prepare), and how hard room
    /// is sought for what moves.
    ///
    /// # Errors
    /// [`ContigError`].
    pub fn alloc_contig(
        &self,
        range: Range<Pfn>,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<(), ContigError> {
        let (at, frames) = self.frames_of(range, t)?;
        let whole = blocks_of(&frames);
        let order = if gfp.contains(Gfp::COMP) {
            let block = block_of(frames.start.into(), frames.end.into());
            Some(block.ok_or(ContigError::NotABlock)?)
        } else {
            None
        };
        {
            // Also where a hook panics.
            let _isolation = Finally(|| at.unisolate(whole.clone(), t));
            at.isolate(whole.clone(), t, Purpose::Use)?;
            self.empty_and_take(&at, &frames, order, Purpose::Use, gfp)?;
            at.occupy_range(&frames, order.unwrap_or_default(), t)?;
        }
        let order = order.unwrap_or_default();
        let blocks = || frames.clone().step_by(1 << order.get()).map(|idx| at.zone.pfn(idx));
        let undelivered = Rollback::new(|| {
            blocks().for_each(|pfn| self.return_unprepared(pfn, order));
        });
        blocks().for_each(|pfn| self.report_and_prepare(at.cpu, pfn, order, t, gfp));
        undelivered.disarm();
        Ok(())
    }

    /// Gives back a range of single pages, ascending, as [`free`](Yard::free) does each (§4.12), or
    /// the one block that a range taken with [`Gfp::COMP`] is.
    ///
    /// # Errors
    /// The first frame that is not a caller's as a single page; nothing has changed.
    pub fn free_contig(&self, range: Range<Pfn>) -> Result<(), BatchError> {
        self.free_contig_each(range, || {})
    }

    /// [`free_contig`](Self::free_contig) that tells of each page once it is free.
    pub(crate) fn free_contig_each(
        &self,
        range: Range<Pfn>,
        mut each: impl FnMut(),
    ) -> Result<(), BatchError> {
        if let Some(order) = block_of(range.start.0, range.end.0)
            && self.owned(range.start, order).is_ok()
        {
            self.free(range.start, order).map_err(|error| BatchError { index: 0, error })?;
            (0..order.pages()).for_each(|_| each());
            return Ok(());
        }
        let pages = || (range.start.0..range.end.0).map(Pfn);
        let fault = |index, error| BatchError { index, error };
        // One CPU for all of them, whatever the platform says meanwhile.
        let cpu = self.hooks.cpu();
        if self.home(cpu).is_none() {
            return Err(fault(0, FreeError::UnknownCpu(cpu)));
        }
        for (index, pfn) in pages().enumerate() {
            let owned = self.owned(pfn, Order::ZERO);
            if let Err(error) = owned.and_then(|(zone, idx)| zone.begin_free(idx, Order::ZERO)) {
                self.roll_back_frees(pages().take(index));
                return Err(fault(index, error));
            }
        }
        for pfn in pages() {
            let Some((zone, idx)) = self.locate(pfn) else { continue };
            let Some(at) = self.at(zone, cpu) else { continue };
            // Where a hook panics, the pages that are left stay with their owner.
            let unfinished = Rollback::new(|| self.roll_back_frees((pfn.0..range.end.0).map(Pfn)));
            at.take_back(idx, Order::ZERO.get());
            unfinished.disarm();
            each();
        }
        Ok(())
    }

    /// The isolated range is drained, emptied, and pulled off the free lists; memory that is to
    /// leave is gone then.
    pub(crate) fn empty_and_take(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
        order: Option<Order>,
        purpose: Purpose,
        gfp: Gfp,
    ) -> Result<(), ContigError> {
        self.drain_zone(at);
        self.migrate_range(at, frames, gfp)?;
        at.lock().take_range(frames, order.is_some(), purpose)
    }

    /// Drains all CPUs' lists of a zone (§5.16).
    pub(crate) fn drain_zone(&self, at: &At<'_, 'a, C>) {
        let _turn = self.draining.lock();
        (0..self.cpus).for_each(|cpu| at.drain(CpuId(cpu)));
    }
}

/// The order, if a range from `start` to `end` is exactly one block.
fn block_of(start: u64, end: u64) -> Option<Order> {
    let pages = end.wrapping_sub(start);
    if !pages.is_power_of_two() || start & pages.wrapping_sub(1) != 0 {
        return None;
    }
    Order::new(pages.trailing_zeros() as u8)
}

impl<C: Config> At<'_, '_, C> {
    /// An emptied range becomes its caller's, in blocks of one order. Where a page of a block is
    /// bad, that block is out of use (§11.2), as is a frame that was poisoned since the range was
    /// emptied; the rest is free again, still isolated.
    #[inline(never)]
    fn occupy_range(
        &self,
        frames: &Range<u32>,
        order: Order,
        t: MigrateType,
    ) -> Result<(), ContigError> {
        let map = &self.zone.map;
        // Frames that are on no list and belong to no block: all that can happen to them is that
        // they are poisoned.
        let blocks = || frames.clone().step_by(1 << order.get());
        let bad = blocks().fold(None, |bad: Option<u32>, idx| {
            let good = self.passes_alloc_check(idx, order.get());
            bad.or((!good).then_some(idx))
        });
        let bad = bad.or_else(|| {
            let state = State::new(Kind::Allocated, order.get(), t);
            blocks().for_each(|idx| map.frame(idx).set_allocated(state));
            map.poisoned_at_hand_out(frames.clone())
        });
        let Some(bad) = bad else { return Ok(()) };
        let locked = self.lock();
        for idx in blocks().filter(|&i| map.frame(i).state().kind() != Kind::Bad) {
            locked.free_around(idx, order.get());
        }
        Err(ContigError::Busy(self.zone.pfn(bad)))
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Takes the free blocks that cover the range off their lists, and frees what they have beside
    /// it page by page, still isolated. Nothing changes unless all of the range is free, but for
    /// what may go with it.
    #[inline(never)]
    fn take_range(
        &self,
        frames: &Range<u32>,
        exactly: bool,
        purpose: Purpose,
    ) -> Result<(), ContigError> {
        let z = self.zone;
        let map = &z.map;
        let outer = z.free_over(frames.start);
        let mut idx = outer;
        while idx < frames.end {
            let state = map.frame(idx).state();
            let takes = match state.kind() {
                Kind::Free => map.block_type(idx) == MigrateType::Isolate,
                Kind::Poisoned => purpose == Purpose::Leave,
                _ => false,
            };
            if !takes {
                return Err(ContigError::Busy(z.pfn(idx)));
            }
            idx = idx.saturating_add(1 << state.order());
        }
        let end = idx;
        if exactly && (outer != frames.start || end != frames.end) {
            return Err(ContigError::NotABlock);
        }
        idx = outer;
        while idx < end {
            let state = map.frame(idx).state();
            if state.kind() == Kind::Free {
                self.unlist(idx, state.order(), state.migrate_type(), true);
                self.account(-(1 << state.order()), state.migrate_type());
            }
            idx = idx.saturating_add(1 << state.order());
        }
        for idx in (outer..frames.start).chain(frames.end..end) {
            self.free_one(idx, 0, map.block_type(idx), End::Head);
        }
        if purpose == Purpose::Leave {
            // Under this hold of the lock: no frame may be made good in between.
            self.forget(frames);
        }
        Ok(())
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Whether the frame is part of a block on a per-CPU list.
    pub(crate) fn is_cached(&self, pfn: Pfn) -> bool {
        let Some(idx) = self.index_of(pfn) else { return false };
        self.map.block_over(idx).is_some_and(|(_, state)| state.kind() == Kind::Cached)
    }
}
