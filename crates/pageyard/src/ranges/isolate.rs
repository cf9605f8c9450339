//! Isolation (spec §4.11): no page of an isolated pageblock is allocated until the isolation ends,
//! so that a range can be emptied and stays empty.

use core::fmt;
use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CpuId, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, ZoneKind, each_block,
};
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::zone::area::End;
use crate::zone::at::{At, Locked};
use crate::zone::state::Zone;

/// The purpose of isolating and emptying a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The caller will use the frames.
    Use,
    /// The memory is removed (§8.4). Faulty frames may be part of it.
    Leave,
}

/// Why a range was not isolated. Pageblocks isolated by the call are no longer isolated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// The range has no frames, or ends before it starts.
    EmptyRange,
    /// A frame of the range lies in no zone, or in another zone than the first frame.
    OutsideZone(Pfn),
    /// Pageblocks cannot get this type. Highatomic blocks are reserved by requests, and the
    /// isolated type is the one to be replaced.
    BadType(MigrateType),
    /// The pageblock that begins at this frame extends beyond an edge of the zone.
    ZoneEdge(Pfn),
    /// The pageblock that begins at this frame is already isolated, or another caller ended its
    /// isolation too early ([`make_cma`](Yard::make_cma)).
    Isolated(Pfn),
    /// This frame is reserved or out of use, or its owner cannot move it.
    Unmovable(Pfn),
    /// The hooks named a CPU that the layout does not contain.
    UnknownCpu(CpuId),
}

impl IsolateError {
    /// The kernel's error number: -16 (EBUSY) if a later attempt may succeed, else -22 (EINVAL).
    pub const fn errno(self) -> i32 {
        match self {
            IsolateError::ZoneEdge(_) | IsolateError::Isolated(_) | IsolateError::Unmovable(_) => {
                -16
            }
            _ => -22,
        }
    }
}

impl fmt::Display for IsolateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolateError::EmptyRange => f.write_str("the range has no frames"),
            IsolateError::OutsideZone(p) => {
                write!(f, "frame {p} is in no zone, or not in that of the range's first frame")
            }
            IsolateError::BadType(t) => {
                write!(
                    f,
                    "invalid type {t} for a range; expected unmovable, movable, reclaimable \
                     or CMA"
                )
            }
            IsolateError::ZoneEdge(p) => {
                write!(f, "the pageblock at {p} crosses a boundary of its zone")
            }
            IsolateError::Isolated(p) => write!(f, "the pageblock at {p} is already isolated"),
            IsolateError::Unmovable(p) => {
                write!(f, "frame {p} is reserved or out of use, or in use and not movable")
            }
            IsolateError::UnknownCpu(c) => {
                write!(f, "the platform runs on CPU {}, which is offline or not in the layout", c.0)
            }
        }
    }
}

impl core::error::Error for IsolateError {}

impl<'a, C: Config> Yard<'a, C> {
    /// Isolates every pageblock that the range touches (spec §4.11). Until
    /// [`unisolate`](Yard::unisolate), none of its free pages is allocated, and pages freed into it
    /// stay there.
    ///
    /// Fails if a pageblock is already isolated, or if a frame of the range is:
    ///
    /// - reserved;
    /// - held by compaction or reporting at the moment;
    /// - [out of use](crate::OutOfUse); or
    /// - in use and not [movable](Yard::set_movable).
    ///
    /// In the movable zone the last two do not matter. A CMA block is accepted whatever
    /// it holds if `t` is [`Cma`](MigrateType::Cma), and rejected otherwise. Pages on per-CPU lists
    /// stay there and may still be allocated: [drain](Yard::drain_all) the lists afterwards.
    ///
    /// If a later pageblock cannot be isolated, those already isolated by this call get type `t`.
    ///
    /// # Errors
    /// [`IsolateError`] names the first frame or pageblock that prevents isolation.
    pub fn isolate(&self, range: Range<Pfn>, t: MigrateType) -> Result<(), IsolateError> {
        let (at, frames) = self.frames_of(range, t)?;
        at.isolate(frames, t, Purpose::Use)
    }

    /// Ends the isolation of every pageblock that the range touches. Isolated pageblocks get type
    /// `t`, whatever they had before (spec §4.11); others are unchanged. Under a policy with
    /// [`isolate_bit`](crate::policy::Rules::isolate_bit), each gets the type it had before.
    ///
    /// # Errors
    /// [`IsolateError`] for an invalid range or type; nothing has changed then.
    pub fn unisolate(&self, range: Range<Pfn>, t: MigrateType) -> Result<(), IsolateError> {
        let (at, frames) = self.frames_of(range, t)?;
        for block in each_block(blocks_of(&frames)) {
            let locked = at.lock();
            let t = if at.rules().isolate_bit { at.own_type(block) } else { t };
            locked.unisolate_block(block, t);
        }
        Ok(())
    }

    /// Resolves a range to this CPU's access to its zone and the range's indices there.
    #[allow(clippy::type_complexity)] // A pair needs no name of its own.
    pub(crate) fn frames_of(
        &self,
        range: Range<Pfn>,
        t: MigrateType,
    ) -> Result<(At<'_, 'a, C>, Range<u32>), IsolateError> {
        if !t.is_mergeable() && t != MigrateType::Cma {
            return Err(IsolateError::BadType(t));
        }
        if range.start >= range.end {
            return Err(IsolateError::EmptyRange);
        }
        let (zone, first) =
            self.locate(range.start).ok_or(IsolateError::OutsideZone(range.start))?;
        if range.end > zone.end() {
            return Err(IsolateError::OutsideZone(zone.end()));
        }
        let pages = range.end.0.wrapping_sub(range.start.0) as u32;
        let cpu = self.hooks.cpu();
        let at = self.at(zone, cpu).ok_or(IsolateError::UnknownCpu(cpu))?;
        Ok((at, first..first.wrapping_add(pages)))
    }
}

/// Returns the pageblocks that a range touches, from the first index of the first one to the end of
/// the last one.
pub(crate) fn blocks_of(frames: &Range<u32>) -> Range<u32> {
    let mask = PAGEBLOCK_PAGES - 1;
    frames.start & !mask..frames.end.wrapping_add(mask) & !mask
}

impl<C: Config> At<'_, '_, C> {
    /// Isolates the first pageblock, the last one, then those between, with one hold of the zone
    /// lock for each.
    pub(crate) fn isolate(
        &self,
        frames: Range<u32>,
        t: MigrateType,
        purpose: Purpose,
    ) -> Result<(), IsolateError> {
        let blocks = blocks_of(&frames);
        let (first, last) = (blocks.start, blocks.end.wrapping_sub(PAGEBLOCK_PAGES));
        let one = |block| match self.zone.region() {
            None => self.lock().isolate_block(block, &frames, t, purpose),
            Some(region) => self.isolate_packed(region, block, &frames, t, purpose),
        };
        one(first)?;
        if last == first {
            return Ok(());
        }
        if let Err(e) = one(last) {
            self.unisolate(first..first + PAGEBLOCK_PAGES, t);
            return Err(e);
        }
        for block in each_block(first + PAGEBLOCK_PAGES..last) {
            if let Err(e) = one(block) {
                self.unisolate(first..block, t);
                self.unisolate(last..blocks.end, t);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Ends an isolation made by the allocator itself. CMA blocks stay CMA ones, whatever isolated
    /// them: the type is a promise to the owner of their area. Under a policy with `isolate_bit`, all
    /// blocks get the type they had.
    pub(crate) fn unisolate(&self, frames: Range<u32>, t: MigrateType) {
        for block in each_block(blocks_of(&frames)) {
            let locked = self.lock();
            let own = self.own_type(block);
            let keeps = self.rules().isolate_bit || own == MigrateType::Cma;
            locked.unisolate_block(block, if keeps { own } else { t });
        }
    }

    /// Returns a pageblock's type; while it is isolated, the type it had before. Zone lock.
    fn own_type(&self, block: u32) -> MigrateType {
        match self.zone.region() {
            None => self.zone.map.own_type(block),
            Some(region) => region.blocks.block_type(block / PAGEBLOCK_PAGES),
        }
    }
}

impl<C: Config> Locked<'_, '_, C> {
    fn isolate_block(
        &self,
        block: u32,
        frames: &Range<u32>,
        t: MigrateType,
        purpose: Purpose,
    ) -> Result<(), IsolateError> {
        let z = self.zone;
        let was = z.map.block_type(block);
        if was == MigrateType::Isolate {
            return Err(IsolateError::Isolated(z.pfn(block)));
        }
        let end = block.saturating_add(PAGEBLOCK_PAGES);
        let tested = frames.start.max(block)..frames.end.min(end);
        if let Some(idx) = z.unmovable_in(tested, t, purpose) {
            return Err(IsolateError::Unmovable(z.pfn(idx)));
        }
        if !self.relabel(block, MigrateType::Isolate) {
            return Err(IsolateError::ZoneEdge(z.pfn(block)));
        }
        z.isolated_blocks.fetch_add(1, Relaxed);
        let leaves = purpose == Purpose::Leave && !self.rules().isolate_bit;
        if was == MigrateType::HighAtomic && leaves {
            // The pageblock is removed, or becomes movable again: it leaves the reserve either way.
            z.shrink_reserve(1);
        }
        Ok(())
    }

    pub(crate) fn unisolate_block(&self, block: u32, t: MigrateType) {
        let z = self.zone;
        if let Some(region) = z.region() {
            return self.unisolate_packed(region, block, t);
        }
        if z.map.block_type(block) != MigrateType::Isolate {
            return;
        }
        let state = z.map.frame(block).state();
        let buddy = block ^ PAGEBLOCK_PAGES;
        // Only this case needs a merge. Any other merge took place while the block was isolated, or
        // is done by relabelling.
        if state.is(Kind::Free, PAGEBLOCK_ORDER)
            && z.map.frame(buddy).state().is(Kind::Free, PAGEBLOCK_ORDER)
            && z.map.block_type(buddy) != MigrateType::Isolate
        {
            let t = self.effective_type(t);
            self.unlist(block, PAGEBLOCK_ORDER, state.migrate_type(), false);
            self.account(-(PAGEBLOCK_PAGES as i32), state.migrate_type());
            z.map.set_block_type(block, t);
            z.report.without_news(|| self.free_one(block, PAGEBLOCK_ORDER, t, End::Tail));
        } else {
            self.relabel(block, t);
        }
        let isolated = z.isolated_blocks.load(Relaxed);
        z.isolated_blocks.store(isolated.saturating_sub(1), Relaxed);
    }

    /// Gives a pageblock another type, free pages included. A free block that extends beyond it is
    /// taken off its list and freed again in pieces. Returns `false` at an edge of the zone.
    fn relabel(&self, block: u32, t: MigrateType) -> bool {
        let map = &self.zone.map;
        if self.zone.whole_block(block).is_none() {
            return false;
        }
        let large = self.zone.free_over(block);
        let state = map.frame(large).state();
        if state.kind() == Kind::Free && state.order() > PAGEBLOCK_ORDER {
            let was = state.migrate_type();
            self.check_type(large, was);
            self.unlist(large, state.order(), was, false);
            self.account(-(1 << state.order()), was);
            map.set_block_type(block, self.effective_type(t));
            self.free_pieces(large, state.order(), End::Head);
        } else {
            self.convert(block, map.block_type(block), t);
        }
        true
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the head of the free block that contains the frame, else the frame itself. The
    /// caller must hold the zone lock.
    pub(crate) fn free_over(&self, idx: u32) -> u32 {
        let free = self.map.block_over(idx).filter(|(_, state)| state.kind() == Kind::Free);
        free.map_or(idx, |(head, _)| head)
    }

    /// Returns the first frame, within one pageblock, that keeps it from being isolated (§4.11).
    /// Only heads count, as in the kernel; the other frames of a block in use are skipped. The
    /// frames of a held block do count: it is about to be freed or allocated.
    pub(crate) fn unmovable_in(
        &self,
        frames: Range<u32>,
        t: MigrateType,
        purpose: Purpose,
    ) -> Option<u32> {
        let first = frames.start;
        if self.block_type(first) == MigrateType::Cma {
            return if t == MigrateType::Cma { None } else { Some(first) };
        }
        // The tail of a held block is about to be freed or allocated like its head.
        if self.block_over(first).is_some_and(|(_, state)| state.kind() == Kind::Held) {
            return Some(first);
        }
        self.unmovable_head_in(frames, purpose)
    }

    /// Like [`unmovable_in`](Self::unmovable_in), for frames that are neither CMA nor begin inside a block.
    pub(crate) fn unmovable_head_in(&self, frames: Range<u32>, purpose: Purpose) -> Option<u32> {
        let mut idx = frames.start;
        // Whatever a MOVABLE zone has in use passes as movable.
        let anything = self.kind == ZoneKind::Movable;
        while idx < frames.end {
            let state = self.state(idx);
            idx = match state.kind() {
                // Blocks held by compaction are about to be allocated or freed.
                Kind::Reserved | Kind::Held => return Some(idx),
                Kind::Poisoned if purpose == Purpose::Leave => idx + 1,
                // Guards and faulty frames stay where they are.
                Kind::Guard | Kind::Bad | Kind::Poisoned if !anything => return Some(idx),
                Kind::Allocated | Kind::BeingFreed if !anything && !state.is_movable() => {
                    return Some(idx);
                }
                Kind::Tail => idx + 1,
                Kind::Free
                | Kind::Cached
                | Kind::Allocated
                | Kind::BeingFreed
                | Kind::Guard
                | Kind::Bad
                | Kind::Poisoned => idx.saturating_add(1 << state.order()),
            };
        }
        None
    }
}
