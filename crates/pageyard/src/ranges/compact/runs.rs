//! Compaction of parts of pageblocks on the packed engine: makes an aligned run of free frames in a pageblock
//! that has other blocks as well, some of which perhaps cannot move.

use core::ops::Range;

use lock_api::RawMutex;

use super::packed::{BATCH, Emptied, Packing, Part, frames_of};
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{COSTLY_ORDER, Order, PAGEBLOCK_ORDER};
use crate::embedder::compact_events::Mode;
use crate::embedder::config::Config;
use crate::ranges::isolate::Purpose;
use crate::zone::state::Zone;

/// Pageblocks that an impatient request looks at for a run that could be made, since nothing defers it after
/// it finds none (§7.6).
const MOST_SEEN_ASYNC: usize = 512;

/// Runs of a pageblock that are tried first for a request of a low order.
const FIRST_RUNS: u32 = 4;

/// Pageblocks of which all runs are tried then.
const MOST_LOW: usize = 1024;

impl<C: Config> Packing<'_, '_, C> {
    /// Makes a run of the job's order, if that is below a pageblock's, in one of the zone's pageblocks.
    /// Begins where the last call ended, with one pageblock, then with more of them together. For a low
    /// order it tries a few runs of all of them, then all runs of many: otherwise the request would end in the
    /// out-of-memory hook beside free memory (§2.10). Returns whether the block is available.
    #[inline(never)]
    pub(super) fn make_run(&mut self) -> bool {
        let (at, region, job) = (self.at, self.region, self.job);
        let Some(order) = job.order.filter(|order| order.get() < PAGEBLOCK_ORDER) else {
            return false;
        };
        let compaction = &at.zone.compaction;
        let is_impatient = job.direct && job.mode == Mode::Async;
        let cursor = if is_impatient { &compaction.impatient_at } else { &compaction.free_at };
        let most = if is_impatient { MOST_SEEN_ASYNC } else { usize::MAX };
        let len = region.blocks.len();
        let seek = |packing: &mut Self| {
            let start = Some(cursor.load(Relaxed)).filter(|&start| start < len).unwrap_or(0);
            let mut blocks = (start..len).chain(0..start);
            let served = packing.make_run_in(&mut blocks.by_ref().take(most), order, is_impatient);
            cursor.store(blocks.next().unwrap_or(start), Relaxed);
            served
        };
        if order.get() > COSTLY_ORDER || job.mode == Mode::Async {
            return seek(self);
        }
        (self.left, self.most_runs) = (usize::MAX, FIRST_RUNS);
        seek(self)
            || self.left_runs.get() && {
                (self.left, self.most_runs) = (MOST_LOW, u32::MAX);
                seek(self)
            }
    }

    /// Makes a run in one of these pageblocks, of the job's type alone if `is_picky` (§7.4).
    fn make_run_in(
        &mut self,
        blocks: &mut impl Iterator<Item = u32>,
        order: Order,
        is_picky: bool,
    ) -> bool {
        let (region, job) = (self.region, self.job);
        let mut size = 1;
        loop {
            let mut batch = [None; BATCH];
            let found = blocks.by_ref().filter(|&block| {
                region.blocks.is_open(block)
                    && (!is_picky || region.blocks.block_type(block) == job.migrate_type)
                    && self.has_run_to_make(block, order)
            });
            // The search passes none that is not tried.
            let together = size.min(self.left).min(self.most_together());
            for (slot, block) in batch.iter_mut().take(together).zip(found) {
                *slot = Some(block);
            }
            if batch[0].is_none() {
                break;
            }
            match self.empty(Part::Run(order), &batch) {
                Emptied::None => {}
                Emptied::Some { made } if made && self.is_served() => return true,
                Emptied::Some { .. } => size = (size * 2).min(BATCH),
            }
        }
        false
    }

    /// Returns whether all blocks of a run in a pageblock may move.
    fn has_run_to_make(&self, block: u32, order: Order) -> bool {
        self.runs_of(block, order).any(|(frames, _)| self.may_empty(frames))
    }

    /// Moves the blocks of one run out of an isolated pageblock, or of others while owners refuse: first
    /// one of few pages. Returns whether the run is free.
    pub(super) fn empty_run(&self, block: u32, order: Order) -> bool {
        let mut is_free = false;
        let mut tried = 0;
        self.runs(block, order, &mut |mut frames| {
            if tried == self.most_runs {
                self.left_runs.set(true);
                return true;
            }
            tried += 1;
            self.migrate(&frames);
            is_free = frames.all(|idx| self.region.blocks.is_set(idx));
            is_free
        });
        is_free
    }

    /// Calls `each` with the runs of a pageblock that can be emptied, until it returns true: those of which
    /// at most a quarter moves, then a half, then others, each by place. Returns whether it did.
    fn runs(&self, block: u32, order: Order, each: &mut dyn FnMut(Range<u32>) -> bool) -> bool {
        let pages = order.pages();
        [0..pages / 4 + 1, pages / 4 + 1..pages / 2 + 1, pages / 2 + 1..pages + 1].into_iter().any(
            |used| {
                self.runs_of(block, order).any(|(frames, moves)| {
                    used.contains(&moves) && self.may_empty(frames.clone()) && each(frames)
                })
            },
        )
    }

    /// Returns the runs of a pageblock that can be emptied, with the pages that would move.
    fn runs_of(&self, block: u32, order: Order) -> impl Iterator<Item = (Range<u32>, u32)> {
        let zone = self.at.zone;
        let runs = frames_of(block).step_by(order.pages() as usize);
        runs.map(move |first| first..first + order.pages())
            .filter_map(move |frames| Some((frames.clone(), movable_pages(zone, &frames, order)?)))
    }
}

/// Returns the pages that would move out of a run of an order, or `None` if it cannot be emptied: something
/// does not move, or needs a place that is as large.
fn movable_pages<R: RawMutex>(
    zone: &Zone<'_, R>,
    frames: &Range<u32>,
    order: Order,
) -> Option<u32> {
    let is_inside = || zone.block_over(frames.start).is_some_and(|(head, _)| head < frames.start);
    if zone.unmovable_head_in(frames.clone(), Purpose::Use).is_some() || is_inside() {
        return None;
    }
    let used = frames.clone().map(|idx| zone.state(idx)).filter(|s| s.kind() == Kind::Allocated);
    used.map(|state| (state.order() < order.get()).then_some(1 << state.order())).sum()
}
