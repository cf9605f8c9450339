//! Compaction on the packed engine: empties the sparsest movable pageblocks into the others. The
//! engine packs with each request and free; what is left are pageblocks whose blocks stay allocated.

use core::cell::Cell;
use core::ops::Range;

use super::Job;
use super::pass::Outcome;
use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType::{Movable, Reclaimable, Unmovable};
use crate::base::units::{COSTLY_ORDER, Order, PAGEBLOCK_PAGES};
use crate::base::unwind::Finally;
use crate::embedder::compact_events::{CompactResult, Mode};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::packed::{BUCKETS, Region, Sparsest};
use crate::zone::at::At;
use crate::zone::compaction_state::Count;

/// Pageblocks that are emptied together, since all CPUs are drained for them.
const BATCH: usize = 8;
/// Batches of one run for a request, and of an impatient one.
const MOST: usize = 8;
const MOST_ASYNC: usize = 1;
/// Parts of a zone after which a proactive run looks whether it has done enough.
const PARTS: usize = 64;

impl<'a, C: Config> Yard<'a, C> {
    /// Empties movable pageblocks, the emptiest first, until the job's block is available, or until the
    /// other pageblocks have no more room. Only those that are more than half free, with two exceptions. A
    /// request of a low order that nothing else would serve has the others emptied too. If all of a zone is
    /// to be compacted, so are pageblocks of other types that hold nothing but movable blocks, which become
    /// movable. A run of a few pageblocks that all stayed is followed by one that begins behind them.
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
        // What gains more room than it moves, or whatever makes room.
        let (half, any) = (BUCKETS / 2 + 1, 1);
        let passes: &[_] = match job.order {
            None if !job.proactive => {
                &[(Movable, any, most), (Unmovable, any, most), (Reclaimable, any, most)]
            }
            // It would end in the out-of-memory hook beside free memory (§2.10): the last pass looks at
            // the whole zone, however many of its pageblocks stay.
            Some(order) if job.direct && order.get() <= COSTLY_ORDER && job.mode != Mode::Async => {
                &[(Movable, half, most), (Movable, any, usize::MAX)]
            }
            _ => &[(Movable, half, most)],
        };
        // The score looks at all pageblocks, so not after each batch of a large zone.
        let step = (region.blocks.len() as usize / (PARTS * BATCH)).max(1);
        let cursor = &at.zone.compaction.migrate_at[usize::from(job.mode != Mode::Async)];
        let start = cursor.load(Relaxed);
        let mut next = start;
        let mut moved = 0;
        let mut result = CompactResult::Complete;
        'passes: for &(t, least, most) in passes {
            // One that looks at the whole zone neither begins at the place that the last run left, nor
            // leaves one.
            let goes_on = most != usize::MAX;
            let start = if goes_on { start } else { 0 };
            let mut search = Sparsest::new(t, start, least);
            for n in 1..=most {
                let mut batch = [None; BATCH];
                region.sparse_blocks(&mut search, least, &mut batch);
                let Some(pages) = self.empty_packed(at, region, &batch) else { break };
                moved += pages;
                if goes_on {
                    next = if moved == 0 { search.place() } else { start };
                }
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
                if batch.iter().any(Option::is_none) {
                    next = if goes_on { 0 } else { next };
                    break;
                }
            }
        }
        if next != start {
            cursor.store(next, Relaxed);
        }
        at.zone.compaction.count(Count::Moved, moved.into());
        Outcome { result, captured: None, moved }
    }

    /// Moves what is in these pageblocks elsewhere. Returns the pages that left them, or `None` if
    /// there is nowhere to move to. If all of these stay, the next ones may still move.
    fn empty_packed(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        blocks: &[Option<u32>],
    ) -> Option<u32> {
        let frames = |block: u32| block * PAGEBLOCK_PAGES..(block + 1) * PAGEBLOCK_PAGES;
        let isolated = [const { Cell::new(None) }; BATCH];
        let all = || isolated.iter().filter_map(Cell::get);
        // Ends the isolation also if a hook panics.
        let _isolation = Finally(|| all().for_each(|b| at.lock().end_compaction(region, b)));
        for (slot, &block) in isolated.iter().zip(blocks.iter().flatten()) {
            if self.may_empty(at, frames(block)) && at.lock().isolate_for_compaction(region, block)
            {
                slot.set(Some(block));
            }
        }
        if all().next().is_none() {
            return Some(0);
        }
        at.drain_packed_zone();
        let free = || all().map(|block| region.blocks.free_in(block)).sum::<u32>();
        let before = free();
        // A place is taken only where that needs no reclaim and no further compaction.
        let moved = all().try_for_each(|b| self.migrate_range(at, &frames(b), Gfp::NOWARN));
        at.flush_packed();
        let pages = free().saturating_sub(before);
        (moved.is_ok() || pages > 0).then_some(pages)
    }
}

impl<C: Config> Yard<'_, C> {
    /// Returns whether the owners of all blocks in a pageblock allow compaction to move them. One
    /// that is locked keeps its pageblock as it is.
    fn may_empty(&self, at: &At<'_, '_, C>, frames: Range<u32>) -> bool {
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
