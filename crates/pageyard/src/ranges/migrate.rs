//! Empties a range of frames (spec §4.12) by migrating the movable blocks in use there.

use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::free_error::FreeError;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::node_mask::NodeChoice;
use crate::base::units::{Order, PAGEBLOCK_ORDER, Pfn, ZoneKind, each_block};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::hooks::{Defences, Reclaim, Relocation};
use crate::embedder::platform::Platform;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::blocks_of;
use crate::zone::at::At;
use crate::zone::state::Zone;

/// Blocks attempted together.
const BATCH: usize = 32;
/// Attempts per block.
const TRIES: usize = 5;

/// Where blocks migrate to.
#[derive(Clone, Copy)]
enum Targets {
    Anywhere(Gfp),
    InZone,
}

/// Outcome of an attempt to migrate one block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    Again,
    Never,
}

/// Returns whether this is the state of a block in use of this order that can move.
fn is_movable(state: State, order: Order) -> bool {
    state.is(Kind::Allocated, order.get()) && state.is_movable()
}

impl<'a, C: Config> Yard<'a, C> {
    /// Migrates the movable blocks that have a frame in the range to other places, wherever a movable user
    /// page may be, by requests with these flags of the caller's. A block that does not move ends the
    /// attempt without an error: it may be freed before the range is checked.
    ///
    /// # Errors
    /// [`ContigError::NoMemory`] if there is no place to migrate to.
    pub(crate) fn migrate_range(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
        gfp: Gfp,
    ) -> Result<(), ContigError> {
        self.migrate(at, frames, Targets::Anywhere(gfp))
    }

    /// The same, on the packed engine, to places in their own zone, which their owners may have asked for.
    /// No request finds these: the caller's context, nodes and zonelist say nothing about the zone that it
    /// compacts. Watermarks do not either, since as many pages become free as are taken.
    ///
    /// # Errors
    /// [`ContigError::NoMemory`] if there is no place to migrate to.
    pub(crate) fn migrate_in_zone(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
    ) -> Result<(), ContigError> {
        self.migrate(at, frames, Targets::InZone)
    }

    #[inline(always)]
    fn migrate(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
        targets: Targets,
    ) -> Result<(), ContigError> {
        if self.must_not_move() {
            return Ok(());
        }
        let mut idx = at.zone.movable_over(frames.start).unwrap_or(frames.start);
        while idx < frames.end {
            let first = idx;
            for _ in 0..BATCH {
                at.zone.next_movable(&mut idx, frames.end);
            }
            // Searched anew each time instead of remembered: no other block can appear in isolated
            // pageblocks.
            for _ in 0..TRIES {
                let mut from = first;
                while let Some((block, order)) = at.zone.next_movable(&mut from, idx) {
                    match self.relocate_one(at, block, order, frames, targets)? {
                        Step::Done | Step::Again => {}
                        Step::Never => return Ok(()),
                    }
                }
            }
            if at.zone.next_movable(&mut { first }, idx).is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether the caller is inside a hook that frees or moves memory: it moves nothing, or a hook
    /// that asks for a range or for compaction would be called from within itself without end.
    pub(crate) fn must_not_move(&self) -> bool {
        self.reclaimers.has(self.task())
    }

    /// Attempts to migrate one block.
    #[inline(always)]
    fn relocate_one(
        &self,
        at: &At<'_, 'a, C>,
        from: u32,
        order: Order,
        frames: &Range<u32>,
        targets: Targets,
    ) -> Result<Step, ContigError> {
        if !is_movable(at.zone.state(from), order) {
            // It was freed, or became part of another block, since it was found.
            return Ok(Step::Done);
        }
        let to = self.target(at, order, frames, targets).ok_or(ContigError::NoMemory)?;
        Ok(self.relocate_to(at.zone, from, to, order))
    }

    /// Has a block moved to another that was allocated for it, and frees what is left. Outlined to keep
    /// its locals off the stack below the requests for places.
    #[inline(never)]
    fn relocate_to(&self, zone: &Zone<'a, C::Lock>, head: u32, to: Pfn, order: Order) -> Step {
        let from = zone.pfn(head);
        // Set before the move: afterwards its owner may free it at any time.
        let _ = self.set_movable(to, order, true);
        let refused = Rollback::new(|| self.return_unprepared(to, order));
        let moved = self.as_reclaimer(|| self.hooks.relocate(from, to, order));
        refused.disarm();
        // A free that fails here means that the block was already freed, against the contract. The
        // final check of the range notices.
        match moved {
            Relocation::Moved => self.free_prepared(from, order),
            Relocation::Busy | Relocation::Refused => self.free_prepared(to, order),
        }
        match moved {
            Relocation::Moved => Step::Done,
            Relocation::Busy => Step::Again,
            // Its owner freed it while a place for it was found.
            Relocation::Refused if !is_movable(zone.state(head), order) => Step::Done,
            Relocation::Refused => Step::Never,
        }
    }

    /// Migrates the movable blocks in use as whole pageblocks that have a frame in these pageblocks.
    /// On the packed engine such a pageblock cannot be isolated, so they move first, and the range's
    /// isolation fails if another request takes their place meanwhile. Returns false if there was no place
    /// for one of them.
    #[inline(never)]
    pub(crate) fn move_whole_blocks(&self, at: &At<'_, 'a, C>, blocks: &Range<u32>) -> bool {
        let Some(region) = at.zone.region().filter(|_| !self.must_not_move()) else { return true };
        for block in each_block(blocks.clone()) {
            for _ in 0..TRIES {
                let Some((head, state)) = at.zone.block_over(block) else { break };
                let Some(order) = Order::new(state.order()).filter(|o| o.get() >= PAGEBLOCK_ORDER)
                else {
                    break;
                };
                if state.kind() != Kind::Allocated || !state.is_movable() {
                    break;
                }
                let here = at.take_packed_outside(region, order.get(), blocks);
                let here = here.map(|to| at.zone.pfn(to));
                let Some(to) = here.or_else(|| self.take_whole_elsewhere(at, order)) else {
                    return false;
                };
                match self.relocate_to(at.zone, head, to, order) {
                    Step::Done => break,
                    Step::Again => {}
                    Step::Never => return true,
                }
            }
        }
        true
    }

    /// Allocates a movable block in another zone that may serve requests for this one's, as such a
    /// request would: the zone keeps what it reserves for others (§3.3).
    #[inline(never)]
    fn take_whole_elsewhere(&self, at: &At<'_, 'a, C>, order: Order) -> Option<Pfn> {
        let gfp = target_flags(Gfp::USER | Gfp::NOWARN, at.zone.kind);
        let req = self.request(order, gfp, NodeChoice::LOCAL).ok()?;
        if self.hooks.fail(order, gfp) {
            return None;
        }
        let others = self.zones_for(&req).filter(|zone| zone.id() != at.zone.id());
        others.into_iter().find_map(|zone| {
            let may_use = req.may_use(zone.node, AllocFlags::CPUSET);
            if !may_use || !zone.can_spare_for(order.get(), req.highest, AllocFlags::WMARK_MIN) {
                return None;
            }
            let at = self.at(zone, req.cpu)?;
            let to = at.take_packed_outside(zone.region()?, order.get(), &(0..0))?;
            Some(zone.pfn(to))
        })
    }

    /// Frees a block that has no owner any more. If a hook panics, the block is out of use or free,
    /// not leaked. Out of line: inlined frees would enlarge the stack frame below the request for
    /// the next place.
    #[inline(never)]
    fn free_prepared(&self, pfn: Pfn, order: Order) {
        let unfinished = Rollback::new(|| self.return_unprepared(pfn, order));
        if self.is_packed() {
            let freed = self.free_rest_packed(pfn, order);
            // Without a CPU the page goes to the zone instead, as below.
            if !matches!(freed, Err(FreeError::UnknownCpu(_))) {
                unfinished.disarm();
            }
            return;
        }
        let left = self.begin_free(pfn, order);
        if let Err(FreeError::UnknownCpu(_)) = left {
            // The hooks name an unknown CPU, which they did not when the request began.
            return;
        }
        let free = left.ok().filter(|(at, idx)| at.prepare_free(*idx, order.get()));
        unfinished.disarm();
        if let Some((at, idx)) = free {
            at.free_prepared(idx, order.get());
        }
    }

    /// Allocates a block outside the pageblocks of the range to migrate to. The free lists hold
    /// none inside, but a per-CPU list may still hold a page freed while they were being isolated.
    /// Inlined, because a whole request runs on the stack below this.
    #[inline(always)]
    fn target(
        &self,
        at: &At<'_, 'a, C>,
        order: Order,
        frames: &Range<u32>,
        targets: Targets,
    ) -> Option<Pfn> {
        let blocks = blocks_of(frames);
        let Targets::Anywhere(gfp) = targets else {
            return self.target_in_zone(at.zone, order, &blocks);
        };
        let gfp = target_flags(gfp, at.zone.kind);
        for _ in 0..TRIES {
            if self.hooks.fail(order, gfp) {
                return None;
            }
            let to = self.alloc_rest(NodeChoice::LOCAL, order, gfp).ok()?;
            let inside = at.zone.index_of(to).is_some_and(|idx| blocks.contains(&idx));
            if !inside {
                return Some(to);
            }
            // Its pageblock is isolated, so the free goes to the zone and the page stays there.
            self.free_prepared(to, order);
        }
        None
    }

    /// Allocates a block of a zone on the packed engine outside these pageblocks, which are isolated.
    #[inline(never)]
    fn target_in_zone(
        &self,
        zone: &Zone<'a, C::Lock>,
        order: Order,
        blocks: &Range<u32>,
    ) -> Option<Pfn> {
        const GFP: Gfp = Gfp::USER.union(Gfp::MOVABLE).union(Gfp::NOWARN);
        if self.hooks.fail(order, GFP) {
            return None;
        }
        // Not the CPU of the caller, whose hooks may have changed it.
        let at = self.at(zone, self.hooks.cpu())?;
        let t = zone.movable_type();
        for _ in 0..TRIES {
            let idx = at.take_packed(order.get(), t, AllocFlags::CMA)?;
            let to = zone.pfn(idx);
            if !blocks.contains(&idx) {
                self.prepare_alloc(at.cpu, to, order, t, GFP);
                return Some(to);
            }
            self.return_unprepared(to, order);
        }
        None
    }
}

/// Returns the flags for allocating a place to migrate to: a movable user page. The request tries
/// as hard as the caller's flags allow, but gives up in the end.
fn target_flags(gfp: Gfp, kind: ZoneKind) -> Gfp {
    let mut flags = gfp & (Gfp::USER | Gfp::NOWARN) | Gfp::MOVABLE | Gfp::RETRY_MAYFAIL;
    if kind == ZoneKind::Movable {
        flags |= Gfp::HIGHMEM;
    }
    flags
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the head of the movable block in use that extends over the frame from below.
    fn movable_over(&self, idx: u32) -> Option<u32> {
        let (head, state) = self.block_over(idx)?;
        let over = head < idx && state.kind() == Kind::Allocated;
        (over && state.is_movable()).then_some(head)
    }

    /// Returns the head of an unmovable block that extends over the frame from below and is in use,
    /// or being freed: that may be undone.
    pub(crate) fn unmovable_over(&self, idx: u32) -> Option<u32> {
        let (head, state) = self.block_over(idx)?;
        let over = head < idx && matches!(state.kind(), Kind::Allocated | Kind::BeingFreed);
        (over && !state.is_movable()).then_some(head)
    }

    /// Returns the next movable block in use that begins at or after `idx` and before `end`, and
    /// advances `idx` past it. Reads without a lock, so the caller must check the result again.
    fn next_movable(&self, idx: &mut u32, end: u32) -> Option<(u32, Order)> {
        while *idx < end {
            let here = *idx;
            let state = self.state(here);
            *idx = match state.kind() {
                Kind::Tail | Kind::Reserved | Kind::Poisoned => here + 1,
                _ => here.saturating_add(1 << state.order()),
            };
            if state.kind() == Kind::Allocated && state.is_movable() {
                return Some((here, Order::new(state.order())?));
            }
        }
        None
    }
}
