//! Compaction of parts of pageblocks on the packed engine: makes an aligned run of free frames in a pageblock
//! that has other blocks as well, some of which perhaps cannot move.

use core::ops::Range;

use lock_api::RawMutex;

use super::Job;
use super::packed::{BATCH, Part, frames_of};
use super::pass::Outcome;
use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{COSTLY_ORDER, MigrateType, Order, PAGEBLOCK_ORDER};
use crate::embedder::compact_events::{CompactResult, Mode};
use crate::embedder::config::Config;
use crate::packed::Region;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::Purpose;
use crate::zone::at::At;
use crate::zone::state::Zone;

/// Runs of one pageblock that are tried: an owner may refuse to move its block.
const TRIES: usize = 8;

/// A run that can be emptied: first those from which the fewest pages move, then by place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    used: u32,
    first: u32,
}

impl<'a, C: Config> Yard<'a, C> {
    /// Makes a run of a job's order, below that of a pageblock, in one of the zone's pageblocks. Begins
    /// where the last call ended, with one pageblock, then with more of them together. Tries as many as
    /// `most` batches have, or for a low order all: otherwise the request would end in the out-of-memory
    /// hook beside free memory (§2.10).
    #[inline(never)]
    pub(super) fn empty_runs(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        order: Order,
        job: &Job,
        most: usize,
    ) -> Outcome {
        let len = region.blocks.len();
        let mut outcome = Outcome::none(CompactResult::Complete);
        if order.get() >= PAGEBLOCK_ORDER || len == 0 {
            return outcome;
        }
        let is_low = order.get() <= COSTLY_ORDER && job.mode != Mode::Async;
        let mut left = if is_low { usize::MAX } else { most.saturating_mul(BATCH) };
        let cursor = &at.zone.compaction.free_at;
        let start = cursor.load(Relaxed);
        let start = if start < len { start } else { 0 };
        // For an impatient request only in pageblocks of its type (§7.4).
        let is_picky = job.direct && job.mode == Mode::Async;
        let mut blocks = (start..len).chain(0..start).filter(|&block| {
            region.blocks.is_open(block)
                && (!is_picky || region.blocks.block_type(block) == job.migrate_type)
                && self.next_run(at, block, order, None).is_some()
        });
        let mut size = 1;
        while outcome.result != CompactResult::Success {
            let mut batch = [None; BATCH];
            for (slot, block) in batch.iter_mut().take(size.min(left)).zip(&mut blocks) {
                *slot = Some(block);
            }
            let Some(last) = batch.iter().rev().find_map(|&block| block) else { break };
            cursor.store(last + 1, Relaxed);
            let Some(pages) = self.empty_packed(at, region, Part::Run(order), &batch) else {
                break;
            };
            outcome.moved += pages;
            if at.zone.is_served(order, job) {
                outcome.result = CompactResult::Success;
            }
            left = left.saturating_sub(size);
            size = (size * 2).min(BATCH);
        }
        outcome
    }

    /// Moves the blocks of one run out of an isolated pageblock, or of others while owners refuse.
    pub(super) fn empty_run(
        &self,
        at: &At<'_, 'a, C>,
        region: &Region<'a, C::Lock>,
        block: u32,
        order: Order,
    ) -> Result<(), ContigError> {
        let mut last = None;
        for _ in 0..TRIES {
            let Some(run) = self.next_run(at, block, order, last) else { break };
            let frames = run.first..run.first + order.pages();
            self.migrate_for_compaction(at, &frames)?;
            if frames.into_iter().all(|idx| region.blocks.is_set(idx)) {
                break;
            }
            last = Some(run);
        }
        Ok(())
    }

    /// Returns the best run of a pageblock that can be emptied and follows `last`.
    fn next_run(
        &self,
        at: &At<'_, 'a, C>,
        block: u32,
        order: Order,
        last: Option<Candidate>,
    ) -> Option<Candidate> {
        let mut best = None;
        for first in frames_of(block).step_by(order.pages() as usize) {
            let frames = first..first + order.pages();
            let Some(used) = movable_pages(at.zone, &frames, order) else { continue };
            let run = Some(Candidate { used, first });
            if run > last && (best.is_none() || run < best) && self.may_empty(at, frames) {
                best = run;
            }
        }
        best
    }
}

/// Returns the pages that would move out of a run of an order, or `None` if it cannot be emptied: something
/// does not move, or needs a place that is as large.
fn movable_pages<R: RawMutex>(
    zone: &Zone<'_, R>,
    frames: &Range<u32>,
    order: Order,
) -> Option<u32> {
    if zone.unmovable_in(frames.clone(), MigrateType::Movable, Purpose::Use).is_some() {
        return None;
    }
    let mut used = 0;
    for idx in frames.clone() {
        let state = zone.state(idx);
        match state.kind() {
            Kind::Allocated if state.order() >= order.get() => return None,
            Kind::Allocated => used += 1 << state.order(),
            // Of a block whose head lies before the run.
            Kind::Tail if idx == frames.start => return None,
            _ => {}
        }
    }
    Some(used)
}
