//! One pass of both scanners over a zone (spec §7.4).

use lock_api::RawMutex;

use super::capture::Wish;
use super::sources::Batch;
use super::targets::Held;
use super::{CompactEvent, CompactResult, Count, Job, Mode, block_start};
use crate::frame::{Kind, NIL, State};
use crate::platform::{Platform, Relocation};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::units::{Order, PAGEBLOCK_PAGES, Pfn};
use crate::unwind::Rollback;
use crate::zone::At;

/// How often a busy block is asked for.
const ASYNC_TRIES: u32 = 3;
const SYNC_TRIES: u32 = 10;

pub(super) struct Pass<'z, 'a, R: RawMutex, E: Platform, P: Policy> {
    pub(super) at: At<'z, 'a, R, E, P>,
    pub(super) job: &'z Job,
    /// Blocks that reclaim must leave alone may be moved (`compact_unevictable_allowed`, §10).
    pub(super) unevictable: bool,
    /// Only blocks of exactly this order are moved, and only into free blocks that hold them.
    pub(super) only: Option<u8>,
    /// The next frame of the ascending scanner.
    pub(super) migrate: u32,
    /// The next frame of the descending scanner: it goes pageblock by pageblock, ascending inside.
    pub(super) free: u32,
    pub(super) held: Held,
    /// Somebody held the zone lock, and the run is not to wait.
    pub(super) contended: bool,
    /// Fast searches in vain, one after the other.
    pub(super) misses: u32,
    whole: bool,
    /// The score at which a proactive run stops.
    stop_at: u64,
    wish: Option<Wish>,
    captured: Option<u32>,
    /// Frames from here on were given back since this CPU's lists were last drained.
    moved_from: Option<u32>,
    pub(super) moved: u64,
    /// Frames looked at by the ascending scanner, and by the descending one.
    scanned: [u64; 2],
}

/// What a pass came to.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) result: CompactResult,
    pub(super) captured: Option<u32>,
    /// Pages moved.
    pub(super) moved: u64,
}

impl Outcome {
    /// Nothing was done.
    pub(super) fn none(result: CompactResult) -> Outcome {
        Outcome { result, captured: None, moved: 0 }
    }
}

/// What became of a batch.
#[derive(PartialEq, Eq)]
enum Moved {
    All,
    /// Some blocks stayed.
    Some,
    /// There is no free block left to move anything to.
    NoPlace,
}

impl<'z, 'a, R: RawMutex, E: Platform, P: Policy> Pass<'z, 'a, R, E, P> {
    pub(super) fn new(
        at: At<'z, 'a, R, E, P>,
        job: &'z Job,
        unevictable: bool,
        stop_at: u64,
        only: Option<u8>,
    ) -> Pass<'z, 'a, R, E, P> {
        let zone = at.zone;
        let (first, last) = (zone.first_index(), block_start(zone.map.len().saturating_sub(1)));
        let c = &zone.compaction;
        let (mut migrate, mut free, mut whole) = (first, last, job.whole);
        if !job.whole {
            let kept = c.free_at.load(Relaxed);
            if (block_start(first)..last).contains(&kept) {
                free = kept;
            }
            let kept = c.migrate_at[usize::from(job.mode != Mode::Async)].load(Relaxed);
            if (first..zone.map.len()).contains(&kept) {
                migrate = kept;
            }
            whole = migrate <= first;
        }
        let wish = match job.order {
            Some(order) if job.direct => Some(Wish { order, migrate_type: job.migrate_type }),
            _ => None,
        };
        Pass {
            at,
            job,
            unevictable,
            only,
            migrate,
            free,
            held: Held::none(),
            contended: false,
            misses: 0,
            whole,
            stop_at,
            wish,
            captured: None,
            moved_from: None,
            moved: 0,
            scanned: [0; 2],
        }
    }

    /// From where the scanners are until the pass is done.
    pub(super) fn run(&mut self) -> Outcome {
        self.tell_begin();
        let zone = self.at.zone;
        let cursors = &zone.compaction.migrate_at;
        // While an asynchronous run finds nothing at all, a synchronous one need not look there.
        let mut in_step =
            self.job.mode == Mode::Async && cursors[0].load(Relaxed) == cursors[1].load(Relaxed);
        let mut result = loop {
            if let Some(result) = self.finished() {
                break result;
            }
            let mut batch = Batch::default();
            self.collect(&mut batch);
            if batch.is_empty() {
                if in_step {
                    cursors[1].store(cursors[0].load(Relaxed), Relaxed);
                }
            } else {
                in_step = false;
                match self.move_batch(&mut batch) {
                    Moved::NoPlace if !self.met() => break CompactResult::Contended,
                    Moved::Some if self.job.direct && self.job.mode == Mode::Async => {
                        // The block that these belong to will not become free: on to the next.
                        let order = self.job.order.unwrap_or_default();
                        self.migrate = chunk_end(self.migrate.saturating_sub(1), order);
                        self.moved_from = None;
                    }
                    _ => {}
                }
            }
            self.drain_behind();
            if self.captured.is_some() {
                break CompactResult::Success;
            }
        };
        self.release();
        if let Some(order) = self.only
            && result == CompactResult::Complete
        {
            self.pack(order);
        }
        if self.captured.is_some() {
            result = CompactResult::Success;
        }
        self.tell_end(result);
        let c = &zone.compaction;
        let [migrate, free] = self.scanned;
        c.count(Count::MigrateScanned, migrate);
        c.count(Count::FreeScanned, free);
        c.count(Count::Moved, self.moved);
        if self.job.background {
            c.count(Count::DaemonMigrateScanned, migrate);
            c.count(Count::DaemonFreeScanned, free);
        }
        Outcome { result, captured: self.captured.take(), moved: self.moved }
    }

    /// Both scanners are in one pageblock (§7.4).
    pub(super) fn met(&self) -> bool {
        block_start(self.free) <= block_start(self.migrate)
    }

    /// How the pass ends, if it does now (§7.5).
    #[inline(never)]
    fn finished(&self) -> Option<CompactResult> {
        let answer = self.verdict();
        let result = match answer {
            CompactResult::Continue | CompactResult::NoSuitablePage if self.contended => {
                CompactResult::Contended
            }
            answer => answer,
        };
        let zone = self.at.zone.id();
        self.at.tell(CompactEvent::Finished { zone, order: self.job.order, result });
        match result {
            CompactResult::Continue | CompactResult::NoSuitablePage => None,
            result => Some(result),
        }
    }

    fn verdict(&self) -> CompactResult {
        let zone = self.at.zone;
        if self.met() {
            zone.reset_cursors();
            if self.job.direct {
                zone.compaction.flush.store(true, Relaxed);
            }
            return if self.whole {
                CompactResult::Complete
            } else {
                CompactResult::PartialSkipped
            };
        }
        if self.job.proactive {
            return if zone.has_flag(crate::zone::RECLAIM_ACTIVE) {
                CompactResult::PartialSkipped
            } else if zone.score() <= self.stop_at {
                CompactResult::Success
            } else {
                CompactResult::Continue
            };
        }
        // A pageblock that was begun is finished, so that no fallback has to mix types in it.
        let Some(order) = self.job.order.filter(|_| self.migrate.is_multiple_of(PAGEBLOCK_PAGES))
        else {
            return CompactResult::Continue;
        };
        if zone.has_block_for(order, self.job.migrate_type) {
            CompactResult::Success
        } else {
            CompactResult::NoSuitablePage
        }
    }

    /// Asks the owners of all blocks of a batch, busy ones again, and gives back what was moved
    /// away from.
    #[inline(never)]
    fn move_batch(&mut self, batch: &mut Batch) -> Moved {
        let floor = batch.block_end();
        let tries = if self.job.mode == Mode::Async { ASYNC_TRIES } else { SYNC_TRIES };
        let (mut moved, mut failed, mut no_place) = (0, 0, false);
        for _ in 0..tries {
            let mut left = batch.pages();
            batch.retain(|idx, order| {
                let pages = 1 << order;
                let outcome = if no_place {
                    None
                } else {
                    let place = self.place(order, left, floor);
                    no_place = place.is_none() && self.held.is_empty();
                    place.map(|to| self.move_block(idx, to, order))
                };
                left -= pages;
                match outcome {
                    Some(Relocation::Moved) => moved += pages,
                    Some(Relocation::Busy) => return true,
                    Some(Relocation::Refused) | None => failed += pages,
                }
                false
            });
            if batch.is_empty() || self.captured.is_some() {
                break;
            }
        }
        failed += batch.pages();
        self.moved += u64::from(moved);
        self.at.zone.compaction.count(Count::NotMoved, failed.into());
        self.at.tell(CompactEvent::Migratepages { migrated: moved, failed });
        if no_place {
            Moved::NoPlace
        } else if failed > 0 {
            Moved::Some
        } else {
            Moved::All
        }
    }

    /// Asks the owner of a block to move it to a held one.
    #[inline(never)]
    pub(super) fn move_block(&mut self, from: u32, to: u32, order: u8) -> Relocation {
        let zone = self.at.zone;
        let (source, target) = (zone.map.frame(from), zone.map.frame(to));
        let was = source.state();
        let (Some(o), true) = (Order::new(order), is_source(was, order)) else {
            // It has been freed meanwhile.
            self.held.put(&zone.map, to, order);
            return Relocation::Refused;
        };
        // The owner may free it before `relocate` has even returned.
        let state = State::new(Kind::Allocated, order, was.migrate_type());
        target.hand_out(state.with_movable(true));
        if zone.map.poisoned_at_hand_out(to..to.saturating_add(o.pages())).is_some() {
            // Failed while it was held: what is left of it is free again.
            target.set_state(State::new(Kind::Held, order, was.migrate_type()));
            let freed = self.at.lock().free_held(to, order, &mut self.wish);
            self.captured = self.captured.or(freed);
            return Relocation::Busy;
        }
        let (at, held) = (self.at, &mut self.held);
        let refused = Rollback::new(|| {
            if self.at.rules().safety.fills() {
                at.give_up(to, order);
            } else {
                held.put(&zone.map, to, order);
            }
        });
        if self.at.rules().safety.unmap {
            at.env.map(zone.pfn(to), o);
        }
        let answer = at.env.relocate(zone.pfn(from), zone.pfn(to), o);
        if answer == Relocation::Moved {
            refused.disarm();
            if source.leave_as(order) {
                source.set_state(State::new(Kind::Held, order, was.migrate_type()));
                self.give_back(from, order);
            }
        } else {
            // Its owner may have begun to copy.
            at.fill(to, order);
            refused.disarm();
            self.held.put(&zone.map, to, order);
        }
        answer
    }

    /// A block that was moved away from becomes free: straight to the zone, so that it merges now.
    fn give_back(&mut self, idx: u32, order: u8) {
        let at = self.at;
        if !at.leaves_owner(idx, order) {
            return;
        }
        self.moved_from = Some(self.moved_from.map_or(idx, |first| first.min(idx)));
        let zone = at.lock();
        zone.slot.counters.direct_frees.add(order, zone.zone.map.block_type(idx));
        // No source is larger than a pageblock.
        self.captured = self.captured.or(zone.free_piece(idx, order, &mut self.wish));
    }

    /// Once the scanner has left the block that is wanted, pages of it on this CPU's lists are all
    /// that may keep it from merging.
    #[inline(never)]
    fn drain_behind(&mut self) {
        let (Some(order), Some(first)) = (self.job.order, self.moved_from) else { return };
        if first < chunk_start(self.migrate, order) {
            self.at.drain(self.at.cpu);
            self.moved_from = None;
        }
    }

    /// Gives back the places that were not needed. The next run finds them again.
    #[inline(never)]
    pub(super) fn release(&mut self) {
        let zone = self.at.zone;
        let mut highest = None;
        while !self.held.is_empty() {
            let locked = self.at.lock();
            let mut pages = 0;
            while pages < super::CLUSTER
                && let Some((idx, order)) = self.held.take_any(&zone.map)
            {
                pages += 1 << order;
                highest = highest.max(Some(idx));
                self.captured = self.captured.or(locked.free_held(idx, order, &mut self.wish));
            }
            if pages == 0 {
                break;
            }
        }
        if let Some(block) = highest.map(block_start) {
            let kept = zone.compaction.free_at.load(Relaxed);
            if kept != NIL && block > kept {
                zone.compaction.free_at.store(block, Relaxed);
            }
        }
    }

    fn ends(&self) -> (Pfn, Pfn) {
        let zone = self.at.zone;
        (zone.start, Pfn(zone.start.0.saturating_add(zone.spanned)))
    }

    fn tell_begin(&self) {
        let (zone_start, zone_end) = self.ends();
        let (migrate, free) = (self.at.zone.pfn(self.migrate), self.at.zone.pfn(self.free));
        let mode = self.job.mode;
        self.at.tell(CompactEvent::Begin { zone_start, migrate, free, zone_end, mode });
    }

    fn tell_end(&self, result: CompactResult) {
        let (zone_start, zone_end) = self.ends();
        let (migrate, free) = (self.at.zone.pfn(self.migrate), self.at.zone.pfn(self.free));
        let mode = self.job.mode;
        self.at.tell(CompactEvent::End { zone_start, migrate, free, zone_end, mode, result });
    }

    pub(super) fn scanned_for_sources(&mut self, start: u32, end: u32, scanned: u32, taken: u32) {
        self.scanned[0] += u64::from(scanned);
        self.at.zone.compaction.count(Count::Isolated, taken.into());
        let (start, end) = (self.at.zone.pfn(start), self.at.zone.pfn(end));
        self.at.tell(CompactEvent::IsolateMigratepages { start, end, scanned, taken });
    }

    pub(super) fn scanned_for_targets(&mut self, start: u32, end: u32, scanned: u32, taken: u32) {
        self.scanned[1] += u64::from(scanned);
        self.at.zone.compaction.count(Count::Isolated, taken.into());
        let (start, end) = (self.at.zone.pfn(start), self.at.zone.pfn(end));
        self.at.tell(CompactEvent::IsolateFreepages { start, end, scanned, taken });
    }
}

/// Where a hook panics, nothing stays held, and what was captured is free again.
impl<R: RawMutex, E: Platform, P: Policy> Drop for Pass<'_, '_, R, E, P> {
    fn drop(&mut self) {
        self.wish = None;
        self.release();
        if let (Some(idx), Some(order)) = (self.captured, self.job.order)
            && self.at.zone.map.frame(idx).leave_as(order.get())
        {
            self.at.give_up(idx, order.get());
        }
    }
}

/// Whether this is the head of a block that its owner can move.
pub(super) fn is_source(state: State, order: u8) -> bool {
    state.is(Kind::Allocated, order) && state.is_movable()
}

/// The first frame of the block of an order that holds a frame.
pub(super) const fn chunk_start(idx: u32, order: Order) -> u32 {
    idx & !(order.pages() - 1)
}

/// One past the last frame of the block of an order that holds a frame.
pub(super) const fn chunk_end(idx: u32, order: Order) -> u32 {
    chunk_start(idx, order).saturating_add(order.pages())
}
