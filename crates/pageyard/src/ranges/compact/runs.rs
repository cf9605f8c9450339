//! Compaction of parts of pageblocks on the packed engine: makes an aligned run of free frames in a pageblock
//! that has other blocks as well, some of which perhaps cannot move.

use core::ops::Range;

use lock_api::RawMutex;

use super::packed::{BATCH, Emptied, Packing, Part, frames_of};
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{COSTLY_ORDER, MigrateType, Order, PAGEBLOCK_ORDER};
use crate::embedder::compact_events::Mode;
use crate::embedder::config::Config;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::Purpose;
use crate::zone::state::Zone;

impl<C: Config> Packing<'_, '_, C> {
    /// Makes a run of the job's order, if that is below a pageblock's, in one of the zone's pageblocks.
    /// Begins where the last call ended, with one pageblock, then with more of them together. For a low
    /// order it tries all of them: otherwise the request would end in the out-of-memory hook beside free
    /// memory (§2.10). Returns whether the block is available.
    #[inline(never)]
    pub(super) fn make_run(&mut self) -> bool {
        let (at, region, job) = (self.at, self.region, self.job);
        let Some(order) = job.order.filter(|order| order.get() < PAGEBLOCK_ORDER) else {
            return false;
        };
        if order.get() <= COSTLY_ORDER && job.mode != Mode::Async {
            self.left = usize::MAX;
        }
        let len = region.blocks.len();
        let cursor = &at.zone.compaction.free_at;
        let start = cursor.load(Relaxed);
        let start = if start < len { start } else { 0 };
        // For an impatient request only in pageblocks of its type (§7.4).
        let is_picky = job.direct && job.mode == Mode::Async;
        let mut blocks = (start..len).chain(0..start);
        let mut size = 1;
        while self.left > 0 {
            let mut batch = [None; BATCH];
            let found = blocks.by_ref().filter(|&block| {
                region.blocks.is_open(block)
                    && (!is_picky || region.blocks.block_type(block) == job.migrate_type)
                    && self.runs(block, order, &mut |_| true)
            });
            for (slot, block) in batch.iter_mut().take(size.min(self.left)).zip(found) {
                *slot = Some(block);
            }
            let Some(last) = batch.iter().rev().find_map(|&block| block) else { break };
            cursor.store(last + 1, Relaxed);
            match self.empty(Part::Run(order), &batch) {
                Emptied::None => {}
                Emptied::NoRoom => break,
                Emptied::Some { made } if made && self.is_served() => return true,
                Emptied::Some { .. } => size = (size * 2).min(BATCH),
            }
        }
        false
    }

    /// Moves the blocks of one run out of an isolated pageblock, or of others while owners refuse: first
    /// one of few pages. Returns whether the run is free.
    pub(super) fn empty_run(&self, block: u32, order: Order) -> Result<bool, ContigError> {
        let mut done = Ok(false);
        self.runs(block, order, &mut |frames| {
            done = match self.migrate(&frames) {
                // A large block has no place; blocks of other runs may have one.
                Err(_) if self.has_room() => Ok(false),
                Err(e) => Err(e),
                Ok(()) => Ok(frames.into_iter().all(|idx| self.region.blocks.is_set(idx))),
            };
            done != Ok(false)
        });
        done
    }

    /// Calls `each` with the runs of a pageblock that can be emptied, until it returns true: those of which
    /// at most a quarter moves, then a half, then others, each by place. Returns whether it did.
    fn runs(&self, block: u32, order: Order, each: &mut dyn FnMut(Range<u32>) -> bool) -> bool {
        let pages = order.pages();
        [0..pages / 4 + 1, pages / 4 + 1..pages / 2 + 1, pages / 2 + 1..pages + 1].into_iter().any(
            |used| {
                frames_of(block).step_by(pages as usize).any(|first| {
                    let frames = first..first + pages;
                    let moves = movable_pages(self.at.zone, &frames, order);
                    moves.is_some_and(|n| used.contains(&n))
                        && self.may_empty(frames.clone())
                        && each(frames)
                })
            },
        )
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
    if zone.unmovable_in(frames.clone(), MigrateType::Movable, Purpose::Use).is_some()
        || is_inside()
    {
        return None;
    }
    let used = frames.clone().map(|idx| zone.state(idx)).filter(|s| s.kind() == Kind::Allocated);
    used.map(|state| (state.order() < order.get()).then_some(1 << state.order())).sum()
}
