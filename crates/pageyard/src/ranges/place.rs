//! Allocation at a place of the caller's choice: at a given frame, aligned beyond the block's size,
//! or below an address. Drivers and firmware tables need this.
//!
//! The spec does not define these calls; they follow its nearest relatives. A block at a given
//! frame is taken as compaction takes a free block (§7.4): above the unboosted MIN mark. A search
//! goes through the free lists as §4.3 does: own type, CMA for movable pages, then stealing (§4.5).

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::node_mask::NodeChoice;
use crate::base::units::{MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn};
use crate::embedder::config::Config;
use crate::embedder::hooks::Defences;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::{Purpose, blocks_of};
use crate::request::alloc::{AllocError, Request};
use crate::zone::at::Locked;
use crate::zone::state::Zone;

/// Constraints on where a block may lie.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::Place;
///
/// let below = Pfn::containing(0x1_0200_0000);
/// let place = Place { align: 64, below: Some(below) };
/// let block = yard.alloc_with(Order::ZERO, Gfp::KERNEL, place)?;
/// assert!(block < below && block.0 % 64 == 0);
/// # Ok::<(), PlaceError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The block's first frame is a multiple of this: a power of two, in pages. A block is always
    /// aligned to its own size.
    pub align: u64,
    /// All frames of the block lie below this one.
    pub below: Option<Pfn>,
}

impl Default for Place {
    /// No constraint.
    fn default() -> Self {
        Place { align: 1, below: None }
    }
}

/// Why a block could not be allocated at the chosen place. Nothing is allocated then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceError {
    /// The request is invalid, or there is no such block.
    Alloc(AllocError),
    /// The alignment is not a power of two, in pages.
    BadAlign(u64),
    /// The frame is not a multiple of the block's size.
    Misaligned(Pfn),
    /// The frame lies in no zone.
    Foreign(Pfn),
    /// The frame is a hole, or was never given to the allocator.
    Reserved(Pfn),
    /// The frame is in use or [out of use](crate::OutOfUse). Also returned if this request itself
    /// found a bad page in the block (§11.2).
    InUse(Pfn),
    /// The frame is free, but its pageblock cannot serve this request. It is isolated (§4.11), it
    /// is highatomic (§3.8), or it is CMA and the request is not movable.
    Withheld(Pfn, MigrateType),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Alloc(e) => e.fmt(f),
            PlaceError::BadAlign(n) => {
                write!(f, "alignment of {n} pages; expected a power of two")
            }
            PlaceError::Misaligned(p) => {
                write!(f, "frame {p} is not a multiple of the block's size")
            }
            PlaceError::Foreign(p) => write!(f, "frame {p} is in no zone of this allocator"),
            PlaceError::Reserved(p) => write!(f, "frame {p} is reserved"),
            PlaceError::InUse(p) => write!(f, "frame {p} is in use"),
            PlaceError::Withheld(p, t) => {
                write!(f, "frame {p} is free, but in a pageblock of type {t}")
            }
        }
    }
}

impl core::error::Error for PlaceError {}

impl From<AllocError> for PlaceError {
    fn from(e: AllocError) -> Self {
        PlaceError::Alloc(e)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Allocates the block of 2^`order` pages that begins at `pfn`. Only `gfp`'s type and the flags
    /// that [`prepare`](crate::Platform::prepare) reads matter; the frame determines the zone.
    ///
    /// All of the block must be free. Per-CPU lists are drained if they hold a part of it, but
    /// nothing is migrated ([`alloc_contig`](Yard::alloc_contig) does that). The zone must keep its
    /// MIN watermark.
    ///
    /// # Errors
    /// [`PlaceError`] names the first frame that is not available.
    pub fn alloc_at(&self, pfn: Pfn, order: Order, gfp: Gfp) -> Result<(), PlaceError> {
        if self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory.into());
        }
        let req = self.request(order, gfp, NodeChoice::LOCAL)?;
        if pfn.0 & u64::from(order.pages() - 1) != 0 {
            return Err(PlaceError::Misaligned(pfn));
        }
        let (zone, idx) = self.locate(pfn).ok_or(PlaceError::Foreign(pfn))?;
        if !zone.is_populated() {
            return Err(PlaceError::InUse(pfn));
        }
        let at =
            self.at(zone, req.cpu).ok_or(PlaceError::Alloc(AllocError::UnknownCpu(req.cpu)))?;
        let flags = AllocFlags::of(gfp, req.migrate_type);
        if let Some(region) = zone.region() {
            at.take_packed_at(region, idx, order.get(), req.migrate_type, flags)?;
            self.prepare_alloc(req.cpu, pfn, order, req.migrate_type, gfp);
            return Ok(());
        }
        let take = || at.lock().take_at(idx, order.get(), req.migrate_type, flags);
        match take() {
            Err(PlaceError::InUse(p))
                if zone.index_of(p).is_some_and(|i| zone.may_be_cached(i)) =>
            {
                self.drain_zone(&at);
                take()
            }
            answer => answer,
        }?;
        if !at.passes_alloc_check(idx, order.get()) {
            return Err(PlaceError::InUse(pfn));
        }
        self.prepare_alloc(req.cpu, pfn, order, req.migrate_type, gfp);
        Ok(())
    }

    /// Allocates a block as [`alloc`](Yard::alloc) does, but only at a place that meets `place`.
    ///
    /// If not every block meets the constraints, the free lists of each zone are searched under its
    /// lock, first above the LOW watermark and without stealing from other types. Per-CPU lists are
    /// drained before the request fails. Nothing is migrated or reclaimed
    /// ([`alloc_contig_pages`](Yard::alloc_contig_pages) migrates).
    ///
    /// # Errors
    /// [`PlaceError::BadAlign`], or [`PlaceError::Alloc`].
    pub fn alloc_with(&self, order: Order, gfp: Gfp, place: Place) -> Result<Pfn, PlaceError> {
        if !place.align.is_power_of_two() {
            return Err(PlaceError::BadAlign(place.align));
        }
        let req = self.request(order, gfp, NodeChoice::LOCAL)?;
        let limit = place.below.unwrap_or(Pfn(u64::MAX));
        // Zones without memory count too: theirs may come online before the block is allocated.
        let mut reachable =
            self.zones.iter().filter(|z| z.kind <= req.highest && req.asked.contains(z.node));
        if place.align <= order.pages().into() && reachable.all(|z| z.end() <= limit) {
            return Ok(self.alloc(order, gfp)?);
        }
        Ok(self.alloc_constrained(&req, order, gfp, place.align, limit)?)
    }

    /// Outlined, so that its frame is not on the stack of requests without a constraint.
    #[inline(never)]
    fn alloc_constrained(
        &self,
        req: &Request,
        order: Order,
        gfp: Gfp,
        align: u64,
        limit: Pfn,
    ) -> Result<Pfn, AllocError> {
        if self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory);
        }
        let wanted = Wanted { order: order.get(), align, limit };
        let pfn = self.walk(gfp, || self.search(req, gfp, wanted)).ok_or(AllocError::NoMemory)?;
        self.prepare_alloc(req.cpu, pfn, order, req.migrate_type, gfp);
        Ok(pfn)
    }

    /// Searches the free lists of all zones, then once more with the per-CPU lists drained.
    fn search(&self, req: &Request, gfp: Gfp, wanted: Wanted) -> Option<Pfn> {
        let derived = AllocFlags::of(gfp, req.migrate_type);
        let low = AllocFlags::WMARK_LOW | derived | AllocFlags::NOFRAGMENT;
        let slow = AllocFlags::slow(gfp, wanted.order, req.migrate_type);
        let zones = || self.zones_for(req).filter(|z| z.start < wanted.limit);
        for drained in [false, true] {
            for flags in [low, slow] {
                for zone in zones() {
                    let Some(at) = self.at(zone, req.cpu) else { continue };
                    let mark = zone.watermarks.effective(flags.mark());
                    if !zone.watermark_fast(wanted.order, mark, req.highest, flags) {
                        continue;
                    }
                    if let Some(region) = zone.region() {
                        let Wanted { order, align, limit } = wanted;
                        let t = req.migrate_type;
                        match at.take_packed_placed(region, order, align, Pfn(0)..limit, t) {
                            Some(idx) => return Some(zone.pfn(idx)),
                            None => continue,
                        }
                    }
                    // Not in the loop condition: the lock would then be held to the end of the
                    // body.
                    let take = || at.lock().take_placed(wanted, req.migrate_type, flags);
                    while let Some(idx) = take() {
                        // A bad block goes out of use; try the next place (§5.7).
                        if at.passes_alloc_check(idx, wanted.order) {
                            return Some(zone.pfn(idx));
                        }
                    }
                }
            }
            if !drained {
                for zone in zones() {
                    if let Some(at) = self.at(zone, req.cpu) {
                        self.drain_zone(&at);
                    }
                }
            }
        }
        None
    }

    /// Allocates `pages` contiguous pages inside `within`, the first a multiple of `align`. Tries
    /// the zones that `gfp` allows and takes the first place that
    /// [`alloc_contig`](Yard::alloc_contig) can empty. See there for `t`, `gfp` and how to free the
    /// pages.
    ///
    /// - [`ContigError::NoPlace`] if no place could be emptied.
    /// - [`ContigError::NoMemory`] if there is no room to migrate to.
    /// - [`ContigError::BadAlign`] if `align` is not a power of two.
    /// - [`ContigError::NotABlock`] if `gfp` has [`COMP`](Gfp::COMP), and `pages` is not a block's size.
    /// - [`ContigError::Isolate`] if `pages` is 0 or `t` is invalid.
    pub fn alloc_contig_pages(
        &self,
        pages: u64,
        align: u64,
        within: core::ops::Range<Pfn>,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, ContigError> {
        self.contig_search(&self.contig_wanted(pages, align, t, gfp)?, &within, &mut 0)
    }

    /// Checks what a search for contiguous pages looks for.
    pub(super) fn contig_wanted(
        &self,
        pages: u64,
        align: u64,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<ContigWanted, ContigError> {
        if !align.is_power_of_two() {
            return Err(ContigError::BadAlign(align));
        }
        // One block begins at a multiple of its size.
        let is_block = pages.is_power_of_two() && pages <= u64::from(Order::MAX.pages());
        let align = match gfp.contains(Gfp::COMP) && pages > 0 {
            true if !is_block => return Err(ContigError::NotABlock),
            true => align.max(pages),
            false => align,
        };
        let req = self.request(Order::ZERO, gfp, NodeChoice::LOCAL);
        Ok(ContigWanted { req: req.map_err(|_| ContigError::NoPlace)?, pages, align, t, gfp })
    }

    /// Searches as [`alloc_contig_pages`](Self::alloc_contig_pages). Adds the number of pageblocks
    /// looked at to `looks`.
    pub(super) fn contig_search(
        &self,
        wanted: &ContigWanted,
        within: &core::ops::Range<Pfn>,
        looks: &mut u64,
    ) -> Result<Pfn, ContigError> {
        // `None` repeats the walk if the zonelists changed; a result ends it.
        let found = self.walk(wanted.gfp, || self.contig_place(wanted, within, looks));
        found.unwrap_or(Err(ContigError::NoPlace))
    }

    /// Tries each place in the zones of a request. `None` if all of them are busy.
    fn contig_place(
        &self,
        wanted: &ContigWanted,
        within: &core::ops::Range<Pfn>,
        looks: &mut u64,
    ) -> Option<Result<Pfn, ContigError>> {
        let &ContigWanted { ref req, pages, align, t, gfp } = wanted;
        for zone in self.zones_for(req) {
            let end = within.end.min(zone.end());
            let mut from = within.start.max(zone.start);
            while let Some(range) = aligned_range(from, pages, align, end) {
                let start = range.start;
                // Places that overlap a refused one are not worth another full attempt.
                let next = Pfn(start.0.saturating_add(pages.max(align)));
                if let Some(after) = zone.past_obstacle(range.start, pages, t, looks) {
                    from = after;
                    continue;
                }
                from = match self.alloc_contig(range, t, gfp) {
                    Ok(()) => return Some(Ok(start)),
                    Err(e) if e.is_busy() => next,
                    Err(e) => return Some(Err(e)),
                };
            }
        }
        None
    }
}

/// Returns the first aligned range at or after `from` that ends at or before `end`.
fn aligned_range(from: Pfn, pages: u64, align: u64, end: Pfn) -> Option<core::ops::Range<Pfn>> {
    let start = from.0.checked_next_multiple_of(align)?;
    let last = start.checked_add(pages)?;
    (last <= end.0).then_some(Pfn(start)..Pfn(last))
}

/// What a search for contiguous pages looks for: a range of `pages` whose first is a multiple of
/// `align`, for [`alloc_contig`](Yard::alloc_contig), in the zones of the request.
pub(super) struct ContigWanted {
    req: Request,
    pages: u64,
    align: u64,
    t: MigrateType,
    gfp: Gfp,
}

/// What a search of the free lists looks for.
#[derive(Clone, Copy)]
struct Wanted {
    order: u8,
    align: u64,
    limit: Pfn,
}

impl Wanted {
    /// Returns whether the first frames of a free block, which has at least the wanted order, are a suitable
    /// place. The block is aligned to its size, so no other place in it has a larger alignment or a lower end.
    fn fits(&self, block: Pfn) -> bool {
        let end = block.0.saturating_add(1 << self.order);
        block.0.is_multiple_of(self.align) && end <= self.limit.0
    }
}

impl<C: Config> Locked<'_, '_, C> {
    fn take_at(
        &self,
        idx: u32,
        order: u8,
        t: MigrateType,
        flags: AllocFlags,
    ) -> Result<(), PlaceError> {
        let z = self.zone;
        let end = idx.saturating_add(1 << order);
        let head = z.free_over(idx);
        let mut i = head;
        while i < end {
            let state = z.map.frame(i).state();
            let pfn = z.pfn(i);
            match state.kind() {
                Kind::Free => {}
                Kind::Reserved => return Err(PlaceError::Reserved(pfn)),
                _ => {
                    return Err(PlaceError::InUse(pfn));
                }
            }
            let list = state.migrate_type();
            let cma = list == MigrateType::Cma && flags.contains(AllocFlags::CMA);
            if !list.is_mergeable() && !cma {
                return Err(PlaceError::Withheld(pfn.max(z.pfn(idx)), list));
            }
            i = i.saturating_add(1 << state.order());
        }
        if !z.can_spare(order, flags) {
            return Err(AllocError::NoMemory.into());
        }
        // Either one free block around all of it, or several that fill it: whole pageblocks may lie
        // side by side unmerged.
        i = head;
        while i < end {
            let found = z.map.frame(i).state();
            self.carve(i, found, i.max(idx), order.min(found.order()));
            i = i.saturating_add(1 << found.order());
        }
        self.occupy(idx, order, t);
        Ok(())
    }

    fn take_placed(&self, wanted: Wanted, t: MigrateType, flags: AllocFlags) -> Option<u32> {
        let z = self.zone;
        let cma = flags.contains(AllocFlags::CMA).then_some(MigrateType::Cma);
        let other = !flags.contains(AllocFlags::NOFRAGMENT);
        let other = t.fallbacks().into_iter().filter(|_| other);
        for list in [t].into_iter().chain(cma).chain(other) {
            for order in wanted.order..=MAX_ORDER {
                let mut free = z.areas.list(order, list).iter(&z.map);
                let Some(idx) = free.find(|&idx| wanted.fits(z.pfn(idx))) else { continue };
                if list != t && list != MigrateType::Cma {
                    z.counters.mismatches.add(1);
                }
                self.carve(idx, z.map.frame(idx).state(), idx, wanted.order);
                self.occupy(idx, wanted.order, t);
                return Some(idx);
            }
        }
        None
    }

    /// Allocates the frames of a block that is on no list. Whole pageblocks get the request's type,
    /// as when they are claimed (§4.4).
    fn occupy(&self, idx: u32, order: u8, t: MigrateType) {
        let z = self.zone;
        let end = idx.saturating_add(1 << order);
        if order >= PAGEBLOCK_ORDER {
            let mut block = idx;
            while block < end {
                if z.map.block_type(block).is_mergeable() {
                    z.map.set_block_type(block, self.effective_type(t));
                }
                block = block.saturating_add(PAGEBLOCK_PAGES);
            }
        }
        z.map.frame(idx).set_allocated(State::new(Kind::Allocated, order, t));
        z.counters.pages_taken.add(1 << order);
        self.slot.counters.direct_allocs.add(order, t);
        self.note_taken(idx, order, t);
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns where a range must begin to avoid everything that would refuse its isolation
    /// (§4.11), or `None` if there is no visible obstacle. Reads without the lock, only to save an
    /// attempt.
    fn past_obstacle(
        &self,
        start: Pfn,
        pages: u64,
        t: MigrateType,
        looks: &mut u64,
    ) -> Option<Pfn> {
        let first = self.index_of(start)?;
        let blocks = blocks_of(&(first..first.wrapping_add(pages as u32)));
        // The last obstacle counts: every range that begins before it contains it. So the last
        // pageblock comes first, and those before an obstacle are not looked at.
        let mut end = blocks.end;
        while end > blocks.start {
            let block = end.saturating_sub(PAGEBLOCK_PAGES);
            *looks = looks.wrapping_add(1);
            let isolated = self.block_type(block) == MigrateType::Isolate;
            if isolated || self.unmovable_in(block..end, t, Purpose::Use).is_some() {
                return Some(self.pfn(end));
            }
            end = block;
        }
        None
    }
}
