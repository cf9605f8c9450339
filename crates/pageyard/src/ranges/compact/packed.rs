//! Compaction on the packed engine: empties the sparsest movable pageblocks into the others. The
//! engine packs with each request and free; what is left are pageblocks whose blocks stay allocated.
//! Where that does not make the block that is wanted, it empties parts of pageblocks ([`runs`](super::runs)).

use core::cell::Cell;
use core::ops::Range;

use super::Job;
use super::pass::Outcome;
use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{Movable, Reclaimable, Unmovable};
use crate::base::units::{Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::base::unwind::Finally;
use crate::embedder::compact_events::{CompactResult, Mode};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::packed::{BUCKETS, Region, Sparsest};
use crate::ranges::contig::ContigError;
use crate::zone::at::At;
use crate::zone::compaction_state::Count;

/// Pageblocks that are emptied together, since all CPUs are drained for them.
pub(super) const BATCH: usize = 8;
/// Batches of one run for a request, and of an impatient one.
const MOST: usize = 8;
const MOST_ASYNC: usize = 1;
/// Parts of a zone after which a proactive run looks whether it has done enough.
const PARTS: usize = 64;

/// What is moved out of a pageblock.
#[derive(Clone, Copy)]
pub(super) enum Part {
    All,
    /// What an aligned run of an order needs. The pageblock keeps its type.
    Run(Order),
}

impl<'a, C: Config> Yard<'a, C> {
    /// Compacts a zone for a job, and counts what moved: empties sparse pageblocks, then parts of others.
    #[inline(never)]
    pub(super) fn compact_packed(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        job: &Job,
    ) -> Outcome {
        let most = match job.mode {
            _ if job.whole => usize::MAX,
            Mode::Async => MOST_ASYNC,
            _ => MOST,
        };
        let mut outcome = self.empty_sparse(at, region, job, most);
        if let Some(order) = job.order.filter(|_| outcome.result != CompactResult::Success) {
            let runs = self.empty_runs(at, region, order, job, most);
            outcome = Outcome { moved: outcome.moved + runs.moved, ..runs };
        }
        at.zone.compaction.count(Count::Moved, outcome.moved.into());
        outcome
    }

    /// Empties movable pageblocks, the emptiest first, until the job's block is available, or until the
    /// other pageblocks have no more room: for a block, those that are more than half free, and for one of
    /// whole pageblocks then others, one by one, unless the job is impatient. If all of a zone is to be
    /// compacted, so are pageblocks of other types that hold nothing but movable blocks, which become
    /// movable. A run of a few pageblocks that all stayed is followed by one that begins behind them.
    #[inline(never)]
    fn empty_sparse(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        job: &Job,
        most: usize,
    ) -> Outcome {
        // What gains more room than it moves, or whatever makes room.
        let (half, any) = (BUCKETS / 2 + 1, 1);
        let passes: &[_] = match job.order {
            None if job.proactive => &[(Movable, any, BATCH)],
            None => &[(Movable, any, BATCH), (Unmovable, any, BATCH), (Reclaimable, any, BATCH)],
            Some(order) if order.get() >= PAGEBLOCK_ORDER && job.mode != Mode::Async => {
                &[(Movable, half, BATCH), (Movable, any, 1)]
            }
            Some(_) => &[(Movable, half, BATCH)],
        };
        // The score looks at all pageblocks, so not after each batch of a large zone.
        let step = (region.blocks.len() as usize / (PARTS * BATCH)).max(1);
        let cursor = &at.zone.compaction.migrate_at[usize::from(job.mode != Mode::Async)];
        let start = cursor.load(Relaxed);
        let mut next = start;
        let mut moved = 0;
        let mut result = CompactResult::Complete;
        'passes: for &(t, least, size) in passes {
            let mut search = Sparsest::new(t, start, least);
            let by_pairs =
                size == 1 && job.order.is_some_and(|order| order.get() > PAGEBLOCK_ORDER);
            for n in 1.. {
                if n > most {
                    break 'passes;
                }
                let mut batch = [None; BATCH];
                let sought = batch.get_mut(..size).unwrap_or_default();
                region.sparse_blocks(&mut search, least, sought);
                let is_last = sought.iter().any(Option::is_none);
                // A block larger than a pageblock needs this one's neighbour too.
                if let ([Some(block), buddy, ..], true) = (&mut batch, by_pairs) {
                    *buddy = Some(*block ^ 1);
                }
                let Some(pages) = self.empty_packed(at, region, Part::All, &batch) else { break };
                moved += pages;
                next = if moved == 0 { search.place() } else { start };
                // The first batch drained all CPUs.
                if (n == 1 || pages > 0)
                    && job.order.is_some_and(|order| at.zone.is_served(order, job))
                {
                    result = CompactResult::Success;
                    break 'passes;
                }
                let enough = job.proactive
                    && n % step == 0
                    && at.zone.score() <= super::stop_at(self.proactiveness());
                if enough {
                    break 'passes;
                }
                if is_last {
                    next = 0;
                    break;
                }
            }
        }
        if next != start {
            cursor.store(next, Relaxed);
        }
        Outcome { result, captured: None, moved }
    }

    /// Moves a part of these pageblocks elsewhere. Returns the pages that left them, or `None` if
    /// there is nowhere to move to. If all of these stay, the next ones may still move.
    pub(super) fn empty_packed(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        part: Part,
        blocks: &[Option<u32>],
    ) -> Option<u32> {
        let isolated = [const { Cell::new(None) }; BATCH];
        let all = || isolated.iter().filter_map(Cell::get);
        let end = |block| {
            let t = match part {
                Part::All => Movable,
                Part::Run(_) => region.blocks.block_type(block),
            };
            at.lock().end_compaction(region, block, t);
        };
        // Ends the isolation also if a hook panics.
        let _isolation = Finally(|| all().for_each(end));
        for (slot, &block) in isolated.iter().zip(blocks.iter().flatten()) {
            let frames = frames_of(block);
            let (may_empty, tested) = match part {
                Part::All => (self.may_empty(at, frames.clone()), frames),
                Part::Run(_) => (true, frames.start..frames.start),
            };
            if may_empty && at.lock().isolate_for_compaction(region, block, &tested) {
                slot.set(Some(block));
            }
        }
        if all().next().is_none() {
            return Some(0);
        }
        at.drain_packed_zone();
        let free = || all().map(|block| region.blocks.free_in(block)).sum::<u32>();
        let before = free();
        let moved = all().try_for_each(|block| match part {
            Part::All => self.migrate_for_compaction(at, &frames_of(block)),
            Part::Run(order) => self.empty_run(at, region, block, order),
        });
        at.flush_packed();
        let pages = free().saturating_sub(before);
        (moved.is_ok() || pages > 0).then_some(pages)
    }

    /// Migrates what is movable in a range. A place is taken only where that needs no reclaim and no
    /// further compaction.
    pub(super) fn migrate_for_compaction(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
    ) -> Result<(), ContigError> {
        self.migrate_range(at, frames, Gfp::NOWARN)
    }
}

pub(super) fn frames_of(block: u32) -> Range<u32> {
    block * PAGEBLOCK_PAGES..(block + 1) * PAGEBLOCK_PAGES
}

impl<C: Config> Yard<'_, C> {
    /// Returns whether the owners of all blocks in these frames allow compaction to move them. One that is
    /// locked keeps them as they are.
    pub(super) fn may_empty(&self, at: &At<'_, '_, C>, frames: Range<u32>) -> bool {
        if self.knobs.lock().compact_unevictable_allowed {
            return true;
        }
        frames.into_iter().all(|idx| {
            let state = at.zone.state(idx);
            let order = Order::new(state.order()).unwrap_or_default();
            let locked = || self.hooks.is_unevictable(at.zone.pfn(idx), order);
            state.kind() != Kind::Allocated || !self.as_reclaimer(locked)
        })
    }
}
