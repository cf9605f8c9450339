//! Compaction on the packed engine: empties the sparsest movable pageblocks into the others. The
//! engine packs with each request and free; what is left are pageblocks whose blocks stay allocated.
//! Where that does not make the block that is wanted, it empties parts of pageblocks ([`runs`](super::runs)).

use core::cell::Cell;
use core::ops::Range;

use super::Job;
use super::pass::Outcome;
use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{Movable, Reclaimable, Unmovable};
use crate::base::units::{Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::base::unwind::Finally;
use crate::base::watermark::HIGH;
use crate::embedder::compact_events::{CompactResult, Mode};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::packed::{BUCKETS, Region, Sparsest};
use crate::zone::at::At;
use crate::zone::compaction_state::Count;

/// Most pageblocks that are emptied together, since all CPUs are drained for them. A run for a block
/// begins with one.
pub(super) const BATCH: usize = 8;
/// Pageblocks of one run for a request, and of an impatient one.
const MOST: usize = 64;
const MOST_ASYNC: usize = 8;
/// Pageblocks that a request looks at for sparse ones that can be emptied; one that is impatient or for which
/// a run will do.
const MOST_SEEN: usize = 1024;
const MOST_SEEN_FIRST: usize = 64;

/// One compaction of a zone.
pub(super) struct Packing<'p, 'a, C: Config> {
    pub(super) yard: &'p Yard<'a, C>,
    pub(super) at: &'p At<'p, 'a, C>,
    pub(super) region: &'p Region<'a, C::Lock>,
    pub(super) job: &'p Job,
    /// Pageblocks that it may still try.
    pub(super) left: usize,
    pub(super) moved: u32,
    has_drained: bool,
    /// Runs that are tried in one pageblock.
    pub(super) most_runs: u32,
    /// A pageblock had more of them.
    pub(super) left_runs: Cell<bool>,
    /// The settings, which may change meanwhile.
    moves_locked: bool,
    stop_at: u64,
}

/// What is moved out of a pageblock.
#[derive(Clone, Copy)]
pub(super) enum Part {
    All,
    /// What an aligned run of an order needs.
    Run(Order),
}

/// The outcome of an attempt to empty pageblocks.
#[derive(Clone, Copy)]
pub(super) enum Emptied {
    /// None of them can be emptied.
    None,
    /// Some were tried. `made`: there may be a block now that was not there.
    Some { made: bool },
}

impl<'a, C: Config> Yard<'a, C> {
    /// Compacts a zone for a job: empties sparse pageblocks, then parts of others.
    #[inline(never)]
    pub(super) fn compact_packed(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        job: &Job,
    ) -> Outcome {
        let left = match job.mode {
            _ if job.whole => usize::MAX,
            Mode::Async => MOST_ASYNC,
            _ => MOST,
        };
        let mut packing = Packing {
            yard: self,
            at,
            region,
            job,
            left,
            moved: 0,
            has_drained: false,
            most_runs: u32::MAX,
            left_runs: Cell::new(false),
            moves_locked: self.setting(|knobs| knobs.compact_unevictable_allowed),
            stop_at: super::stop_at(self.proactiveness()),
        };
        let served = packing.empty_sparse() || packing.empty_used_by_cpus() || {
            packing.left = left;
            packing.make_run()
        };
        at.zone.compaction.count(Count::Moved, packing.moved.into());
        let result = if served { CompactResult::Success } else { CompactResult::Complete };
        Outcome { result, captured: None, moved: packing.moved }
    }
}

impl<C: Config> Packing<'_, '_, C> {
    /// Empties movable pageblocks, the emptiest first, until the job's block is available, or until the
    /// other pageblocks have no more room: for a block, those that are more than half free, and for one of
    /// whole pageblocks then others, unless the job is impatient. If all of a zone is to be compacted, so
    /// are pageblocks of other types that hold nothing but movable blocks. A run of a few pageblocks that
    /// all stayed is followed by one that begins behind them. Returns whether the block is available.
    #[inline(never)]
    fn empty_sparse(&mut self) -> bool {
        let (zone, job) = (self.at.zone, self.job);
        // What gains more room than it moves, or whatever makes room.
        let (half, any) = (BUCKETS / 2 + 1, 1);
        let all = BUCKETS;
        let is_large = job.order.is_some_and(|order| order.get() >= PAGEBLOCK_ORDER);
        let is_pair = job.order.is_some_and(|order| order.get() > PAGEBLOCK_ORDER);
        let movable = zone.movable_type();
        let passes: &[_] = match job.order {
            None if job.proactive => &[(movable, all, any)],
            None => &[(Movable, all, any), (Unmovable, all, any), (Reclaimable, all, any)],
            Some(_) if is_large && job.mode != Mode::Async => {
                &[(movable, all, half), (movable, half - 1, any)]
            }
            Some(_) => &[(movable, all, half)],
        };
        let cursor = &zone.compaction.migrate_at[usize::from(job.mode != Mode::Async)];
        let start = if job.whole { 0 } else { cursor.load(Relaxed) };
        let most_seen = match job.order {
            None => usize::MAX,
            Some(_) if is_large && job.mode != Mode::Async => MOST_SEEN,
            Some(_) => MOST_SEEN_FIRST,
        };
        let mut seen = 0;
        let mut next = start;
        let mut served = false;
        'passes: for &(t, most, least) in passes {
            let mut search =
                Sparsest::new(t, start.max(Sparsest::place_of(most)), least, most_seen);
            let mut size = if job.order.is_some() { 1 } else { BATCH };
            loop {
                let together = size.min(self.left).min(self.most_together());
                if together == 0 {
                    break 'passes;
                }
                let mut batch = [None; BATCH];
                let sought = batch.get_mut(..together).unwrap_or_default();
                self.region.sparse_blocks(&mut search, least, sought);
                let is_last = sought.iter().any(Option::is_none);
                // A block larger than a pageblock needs a pair of them.
                if let ([Some(block), buddy, ..], true) = (&mut batch, is_pair) {
                    *buddy = Some(*block ^ 1);
                }
                match self.empty(Part::All, &batch) {
                    Emptied::None => {}
                    Emptied::Some { made } => {
                        size = if is_pair { 1 } else { (size * 2).min(BATCH) };
                        served = made && self.is_served();
                    }
                }
                next = if self.moved == 0 { search.place() } else { start };
                seen += batch.iter().flatten().count();
                let has_enough = || job.proactive && self.at.zone.score() <= self.stop_at;
                if served || seen >= most_seen || has_enough() {
                    break 'passes;
                }
                if is_last {
                    next = 0;
                    break;
                }
            }
        }
        if next != start && !job.whole {
            cursor.store(next, Relaxed);
        }
        served
    }

    /// For a block of whole pageblocks, ends the use of pageblocks from which CPUs refill, which no search
    /// finds, and empties sparse ones again. Returns whether the block is available.
    #[inline(never)]
    fn empty_used_by_cpus(&mut self) -> bool {
        let is_large = self.job.order.is_some_and(|order| order.get() >= PAGEBLOCK_ORDER);
        if !is_large || self.job.mode == Mode::Async || self.has_drained {
            return false;
        }
        self.at.drain_packed_zone();
        self.has_drained = true;
        self.is_served() || self.empty_sparse()
    }

    pub(super) fn is_served(&self) -> bool {
        self.job.order.is_some_and(|order| self.at.zone.is_served(order, self.job))
    }

    /// Moves a part of these pageblocks elsewhere in the zone, and counts what moved.
    pub(super) fn empty(&mut self, part: Part, blocks: &[Option<u32>]) -> Emptied {
        let (at, region) = (self.at, self.region);
        let isolated = [const { Cell::new(None) }; BATCH];
        let all = || isolated.iter().filter_map(Cell::get);
        // Ends the isolation also if a hook panics.
        let _isolation = Finally(|| all().for_each(|b| at.lock().end_compaction(region, b)));
        let isolate = || {
            let mut has_new = false;
            for (slot, &block) in isolated.iter().zip(blocks.iter().flatten()) {
                if slot.get().is_none() && self.isolate(part, block) {
                    slot.set(Some(block));
                    has_new = true;
                }
            }
            has_new
        };
        let has_active = || blocks.iter().flatten().any(|&block| region.blocks.is_active(block));
        let (has_isolated, were_active) = (isolate(), has_active());
        if !has_isolated && !were_active {
            return Emptied::None;
        }
        // Frames of these pageblocks that CPUs keep come back, and CPUs refill from other pageblocks. Those that
        // they refilled from can be isolated then.
        at.drain_packed_zone();
        if were_active && isolate() {
            at.drain_packed_zone();
        }
        let first_drain = !core::mem::replace(&mut self.has_drained, true);
        let free = || all().map(|block| region.blocks.free_in(block)).sum::<u32>();
        let before = free();
        let mut made = first_drain;
        for block in all() {
            match part {
                Part::All => self.migrate(&frames_of(block)),
                Part::Run(order) => made |= self.empty_run(block, order),
            }
        }
        at.flush_packed();
        let pages = free().saturating_sub(before);
        self.moved += pages;
        self.left = self.left.saturating_sub(all().count());
        Emptied::Some { made: made || matches!(part, Part::All) && pages > 0 }
    }

    /// Returns how many pageblocks compaction may isolate together. No request gets the free pages of an
    /// isolated pageblock, and each page that moves out of it takes a free page elsewhere. So the zone must stay
    /// above HIGH plus the largest boost: another request may boost the watermarks meanwhile. A request may
    /// isolate one pageblock (of order 10 a pair) in any case.
    pub(super) fn most_together(&self) -> usize {
        let zone = self.at.zone;
        let high = zone.watermarks.base(HIGH).saturating_add(zone.boost_cap().unwrap_or(0));
        let spare = zone.supply().free.saturating_sub(high) / u64::from(PAGEBLOCK_PAGES);
        spare.clamp(self.job.order.is_some().into(), BATCH as u64) as usize
    }

    /// Isolates a pageblock, for a run whatever else is in it.
    fn isolate(&self, part: Part, block: u32) -> bool {
        let frames = frames_of(block);
        let (may_empty, tested) = match part {
            Part::All => (self.may_empty(frames.clone()), frames),
            Part::Run(_) => (true, frames.start..frames.start),
        };
        may_empty && self.at.lock().isolate_for_compaction(self.region, block, &tested)
    }

    /// Returns whether the owners of all blocks in these frames allow compaction to move them. One that is
    /// locked keeps them as they are.
    pub(super) fn may_empty(&self, mut frames: Range<u32>) -> bool {
        let zone = self.at.zone;
        let is_locked = |idx| {
            let state = zone.state(idx);
            let order = Order::new(state.order()).unwrap_or_default();
            let locked = || self.yard.hooks.is_unevictable(zone.pfn(idx), order);
            state.kind() == Kind::Allocated && self.yard.as_reclaimer(locked)
        };
        self.moves_locked || !frames.any(is_locked)
    }

    /// Migrates what is movable in a range. A block without a place ends the attempt, but others may still have
    /// one: it may be large, or all free pages may lie in the isolated pageblocks.
    pub(super) fn migrate(&self, frames: &Range<u32>) {
        _ = self.yard.migrate_in_zone(self.at, frames);
    }
}

pub(super) fn frames_of(block: u32) -> Range<u32> {
    block * PAGEBLOCK_PAGES..(block + 1) * PAGEBLOCK_PAGES
}
