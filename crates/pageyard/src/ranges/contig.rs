//! Contiguous ranges (spec §4.12): allocates exactly the given frames, after migrating what is
//! movable.

use core::fmt;
use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::free_error::FreeError;
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, Order, Pfn};
use crate::base::unwind::{Finally, Rollback};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::embedder::policy::Proposals;
use crate::ranges::isolate::{IsolateError, Purpose, blocks_of};
use crate::request::free::BatchError;
use crate::zone::area::End;
use crate::zone::at::{At, Locked};
use crate::zone::state::Zone;

/// Why a contiguous range could not be allocated. Nothing is allocated then, though blocks may have
/// moved.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let range = page..Pfn(page.0 + 1);
/// let taken = yard.alloc_contig(range, MigrateType::Movable, Gfp::KERNEL);
/// assert!(matches!(taken, Err(error) if error.errno() == -16));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContigError {
    /// The range is invalid, or a pageblock that it touches cannot be isolated.
    Isolate(IsolateError),
    /// This frame of the range is still in use.
    Busy(Pfn),
    /// The blocks in use are movable, but there is no free block to migrate to.
    NoMemory,
    /// [`Gfp::COMP`] asks for one block, and the range is not exactly one: 2^order pages, aligned,
    /// at most the largest order, and not part of a larger free block.
    NotABlock,
    /// No suitable place was found.
    NoPlace,
    /// The alignment is not a power of two, in pages.
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

    /// Returns whether another place may succeed: the obstacle is local to this one.
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
                f.write_str("no free block to which the contents could be moved")
            }
            ContigError::NotABlock => {
                f.write_str("the range is not exactly one block of order 0 to 10")
            }
            ContigError::NoPlace => f.write_str(
                "no range that satisfies the request can be \
                 vacated",
            ),
            ContigError::BadAlign(n) => {
                write!(f, "alignment of {n} pages; expected a power of two")
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

/// The error of a range that could not be isolated: if there was no room for whole pageblocks that can
/// move, that is the reason.
pub(super) fn no_room(is_room: bool, e: IsolateError) -> ContigError {
    match e {
        IsolateError::Unmovable(_) if !is_room => ContigError::NoMemory,
        e => e.into(),
    }
}

/// A range that is allocated, in blocks of one order, and not handed out yet.
pub(super) struct TakenRange<'y, 'a, C: Config> {
    at: At<'y, 'a, C>,
    frames: Range<u32>,
    order: Order,
}

impl<'a, C: Config> Yard<'a, C> {
    /// Allocates exactly the frames of a range (spec §4.12), which must lie in one zone. Watermarks
    /// are not checked.
    ///
    /// Every pageblock that the range touches is [isolated](Yard::isolate). An unmovable page
    /// outside the range, but in its first or last pageblock, therefore makes the call fail. Blocks
    /// in use in the range are [migrated](crate::Reclaim::relocate) elsewhere.
    ///
    /// At the end, whether the call succeeds or not, those pageblocks have type `t`, even if
    /// another caller had isolated them. Those that were CMA blocks before their isolation are CMA
    /// blocks again. Under a policy with [`steered`](crate::policy::Rules::steered), an isolation that
    /// is refused ends no other.
    ///
    /// If the policy checks pages, a bad one makes the call fail and goes out of use (§11.2).
    ///
    /// The frames are allocated as single pages, to be freed with
    /// [`free_contig`](Yard::free_contig) or one by one; with [`Gfp::COMP`] as one block. The other
    /// flags in `gfp` determine how the pages are [prepared](Platform::prepare), and how hard the
    /// call tries to find room for migrated blocks.
    ///
    /// # Errors
    /// [`ContigError`].
    pub fn alloc_contig(
        &self,
        range: Range<Pfn>,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<(), ContigError> {
        self.prepare_contig(self.take_contig(range, t, gfp)?, t, gfp);
        Ok(())
    }

    /// Takes the frames of a range for a caller of [`alloc_contig`](Yard::alloc_contig).
    pub(super) fn take_contig(
        &self,
        range: Range<Pfn>,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<TakenRange<'_, 'a, C>, ContigError> {
        let (at, frames) = self.frames_of(range, t)?;
        let whole = blocks_of(&frames);
        let order = if gfp.contains(Gfp::COMP) {
            let block = block_of(frames.start.into(), frames.end.into());
            Some(block.ok_or(ContigError::NotABlock)?)
        } else {
            None
        };
        {
            let is_room = self.move_whole_blocks(&at, &whole);
            let isolate = || {
                let isolated = at.isolate(whole.clone(), t, Purpose::Use);
                isolated.map_err(|e| no_room(is_room, e))
            };
            // Where pageblocks are evacuated in the background, an isolation that is refused must not
            // end evacuation's: the range might be isolated by another caller when evacuation ends it.
            let ends_others = !self.policy.steers();
            if !ends_others {
                isolate()?;
            }
            // Ends the isolation also if a hook panics.
            let _isolation = Finally(|| at.unisolate(whole.clone(), t));
            if ends_others {
                isolate()?;
            }
            self.empty_and_take(&at, &frames, order, Purpose::Use, gfp)?;
            if !at.zone.is_packed() {
                at.occupy_range(&frames, order.unwrap_or_default(), t)?;
            }
        }
        Ok(TakenRange { at, frames, order: order.unwrap_or_default() })
    }

    /// Hands out a range that was taken. It is free again if a hook panics.
    pub(super) fn prepare_contig(&self, taken: TakenRange<'_, 'a, C>, t: MigrateType, gfp: Gfp) {
        let TakenRange { at, frames, order } = taken;
        let blocks = || frames.clone().step_by(1 << order.get()).map(|idx| at.zone.pfn(idx));
        let undelivered = Rollback::new(|| {
            blocks().for_each(|pfn| self.return_unprepared(pfn, order));
        });
        blocks().for_each(|pfn| self.report_and_prepare(at.cpu, pfn, order, t, gfp));
        undelivered.disarm();
    }

    /// Frees a range of single pages in ascending order, each as by [`free`](Yard::free) (§4.12),
    /// or the one block of a range allocated with [`Gfp::COMP`].
    ///
    /// # Errors
    /// The first frame that is not allocated as a single page; nothing has changed.
    pub fn free_contig(&self, range: Range<Pfn>) -> Result<(), BatchError> {
        self.free_contig_each(range, || {})
    }

    /// Like [`free_contig`](Self::free_contig), and calls `each` once per freed page.
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
        // One CPU for all of them, even if the thread migrates meanwhile.
        let cpu = self.hooks.cpu();
        if self.cpu_zones(cpu).is_none() {
            return Err(fault(0, FreeError::UnknownCpu(cpu)));
        }
        for (index, pfn) in pages().enumerate() {
            let left = match self.locate(pfn) {
                None => Err(FreeError::Foreign),
                Some((zone, idx)) => match zone.region() {
                    Some(region) if region.begin_leaving::<false>(idx, 0) => Ok(()),
                    Some(region) => Err(region.why_not(pfn, Order::ZERO)),
                    None => zone.begin_free(idx, Order::ZERO),
                },
            };
            if let Err(error) = left {
                self.roll_back_frees(pages().take(index));
                return Err(fault(index, error));
            }
        }
        for pfn in pages() {
            let Some((zone, idx)) = self.locate(pfn) else { continue };
            let Some(at) = self.at(zone, cpu) else { continue };
            // If a hook panics, the remaining pages stay allocated.
            let unfinished = Rollback::new(|| self.roll_back_frees((pfn.0..range.end.0).map(Pfn)));
            match zone.region() {
                None => at.free_block_checked(idx, Order::ZERO.get()),
                Some(_) => self.finish_free_packed(&at, idx, Order::ZERO),
            }
            unfinished.disarm();
            each();
        }
        Ok(())
    }

    /// Drains and migrates the isolated range and takes it off the free lists; on the packed engine it
    /// is allocated then. With [`Purpose::Leave`] the memory is removed.
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
        if at.zone.is_packed() {
            // What other CPUs freed into the range meanwhile is collected a word at a time.
            self.drain_zone(at);
        }
        match at.zone.region() {
            None => at.lock().take_range(frames, order.is_some(), purpose),
            Some(region) => {
                at.lock().take_packed_range(region, frames, purpose, order.unwrap_or_default())
            }
        }
    }

    /// Drains all CPUs' lists of a zone (§5.16).
    pub(crate) fn drain_zone(&self, at: &At<'_, 'a, C>) {
        let _busy = self.draining.lock();
        if at.zone.is_packed() {
            return at.drain_packed_zone();
        }
        (0..self.cpus).for_each(|cpu| at.drain(CpuId(cpu)));
    }
}

/// Returns the order if the range from `start` to `end` is exactly one block.
fn block_of(start: u64, end: u64) -> Option<Order> {
    let pages = end.wrapping_sub(start);
    if !pages.is_power_of_two() || start & pages.wrapping_sub(1) != 0 {
        return None;
    }
    Order::new(pages.trailing_zeros() as u8)
}

impl<C: Config> At<'_, '_, C> {
    /// Allocates an emptied range to its caller, in blocks of one order. A block with a bad page
    /// goes out of use (§11.2), as does a frame that was poisoned since the range was emptied. In
    /// that case the rest is freed again, still isolated.
    #[inline(never)]
    fn occupy_range(
        &self,
        frames: &Range<u32>,
        order: Order,
        t: MigrateType,
    ) -> Result<(), ContigError> {
        let map = &self.zone.map;
        // These frames are on no list and in no block, so the only concurrent change is poisoning.
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
        let Some(bad) = bad else {
            let pages = frames.end.wrapping_sub(frames.start);
            self.zone.placed_pages.fetch_add(pages.into(), Relaxed);
            return Ok(());
        };
        let locked = self.lock();
        for idx in blocks().filter(|&i| map.frame(i).state().kind() != Kind::Bad) {
            locked.free_around(idx, order.get());
        }
        Err(ContigError::Busy(self.zone.pfn(bad)))
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Takes the free blocks that cover the range off their lists and frees the parts outside it
    /// page by page, still isolated. Changes nothing unless the whole range is free. With
    /// [`Purpose::Leave`], poisoned frames count as free.
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
            // Under the same hold of the lock, so that no frame is unpoisoned in between.
            self.forget(frames);
        }
        Ok(())
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns whether the frame may be part of a block on a per-CPU list. A block that merges or splits
    /// there (`OwnedBlocks`) has no head meanwhile, and the zone lock does not keep its CPU from that: a frame
    /// without a head may be one of its.
    pub(crate) fn may_be_cached(&self, idx: u32) -> bool {
        self.map.block_over(idx).is_none_or(|(_, state)| state.kind() == Kind::Cached)
    }
}
