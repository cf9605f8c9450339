//! One pass of both scanners over a zone (spec §7.4).

use super::Job;
use super::capture::Wish;
use super::collected::{Batch, Held};
use crate::base::frame::{Kind, NIL, State};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, Order, PAGEBLOCK_PAGES, block_start};
use crate::base::unwind::Rollback;
use crate::embedder::compact_events::{CompactEvent, CompactResult, Mode};
use crate::embedder::config::Config;
use crate::embedder::hooks::{Defences, Reclaim, Relocation};
use crate::zone::at::At;
use crate::zone::compaction_state::Count;

/// Attempts per block whose owner is busy.
const ASYNC_TRIES: u8 = 3;
const SYNC_TRIES: u8 = 10;

pub(super) struct Pass<'z, 'a, C: Config> {
    pub(super) at: &'z At<'z, 'a, C>,
    pub(super) job: &'z Job,
    /// Whether blocks that reclaim must leave alone may be moved (`compact_unevictable_allowed`,
    /// §10).
    pub(super) unevictable: bool,
    /// Move only blocks of exactly this order, and only into free blocks that hold one.
    pub(super) only: Option<u8>,
    /// The next frame of the ascending scanner.
    pub(super) migrate: u32,
    /// The next frame of the descending scanner. It descends by pageblocks and ascends within each.
    pub(super) free: u32,
    pub(super) held: Held,
    pub(super) batch: Batch,
    /// The zone lock was held by another thread, and the run must not wait.
    pub(super) contended: bool,
    /// Consecutive fast searches that found nothing.
    pub(super) misses: u32,
    whole: bool,
    /// The score at which a proactive run stops.
    stop_at: u32,
    wish: Option<Wish>,
    captured: Option<u32>,
    /// The first frame freed by a move since this CPU's lists were last drained; [`NIL`] if there
    /// is none.
    moved_from: u32,
    /// Pages moved.
    pub(super) moved: u32,
}

/// The result of a pass.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) result: CompactResult,
    pub(super) captured: Option<u32>,
    /// Pages moved.
    pub(super) moved: u32,
}

impl Outcome {
    /// The outcome of a pass that did nothing.
    pub(super) fn none(result: CompactResult) -> Outcome {
        Outcome { result, captured: None, moved: 0 }
    }
}

/// The next step, taken by the pass itself to keep the stack shallow.
#[derive(Clone, Copy)]
pub(super) enum Next {
    /// Find a place for a block of this order.
    Find(u8),
    /// Free this block, whose contents have moved.
    GiveBack(u32, u8),
    /// Hold this block again, or free it: no block moved to it.
    PutBack(u32, u8),
    Done,
}

/// The result of asking the owner of one block to move it.
pub(super) enum Asked {
    /// It moved. The caller gives its old block back.
    Moved,
    /// It moved, but its owner also freed the old block, against the contract.
    Gone,
    /// It did not move, and may later, perhaps to another place. The caller puts the place back.
    Busy,
    /// It does not move. The caller puts the place back.
    Stays,
    /// It does not move, and there is no place to put back.
    Refused,
}

/// The result of a batch.
#[derive(PartialEq, Eq)]
enum Moved {
    All,
    /// Some blocks were not moved.
    Some,
    /// There is no free block left to move to.
    NoPlace,
}

impl<'z, 'a, C: Config> Pass<'z, 'a, C> {
    #[inline]
    pub(super) fn new(
        at: &'z At<'z, 'a, C>,
        job: &'z Job,
        unevictable: bool,
        stop_at: u32,
        only: Option<u8>,
    ) -> Pass<'z, 'a, C> {
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
            batch: Batch::default(),
            contended: false,
            misses: 0,
            whole,
            stop_at,
            wish,
            captured: None,
            moved_from: NIL,
            moved: 0,
        }
    }

    /// Runs the scanners from where they are until the pass is done.
    #[inline(always)]
    pub(super) fn run(&mut self) -> Outcome {
        self.trace_begin();
        let zone = self.at.zone;
        let cursors = &zone.compaction.migrate_at;
        // As long as an asynchronous run finds nothing, a synchronous one need not look there
        // either.
        let mut in_step =
            self.job.mode == Mode::Async && cursors[0].load(Relaxed) == cursors[1].load(Relaxed);
        let mut result = loop {
            if let Some(result) = self.finished() {
                break result;
            }
            self.collect();
            if self.batch.is_empty() {
                if in_step {
                    cursors[1].store(cursors[0].load(Relaxed), Relaxed);
                }
            } else {
                in_step = false;
                match self.move_batch() {
                    Moved::NoPlace if !self.met() => break CompactResult::Contended,
                    Moved::Some if self.job.direct && self.job.mode == Mode::Async => {
                        // The block that these belong to will not become free: continue with the
                        // next one.
                        let order = self.job.order.unwrap_or_default();
                        self.migrate = chunk_end(self.migrate.saturating_sub(1), order);
                        self.moved_from = NIL;
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
        self.trace_end(result);
        zone.compaction.count(Count::Moved, self.moved.into());
        Outcome { result, captured: self.captured.take(), moved: self.moved }
    }

    /// Returns whether both scanners are in one pageblock (§7.4).
    pub(super) fn met(&self) -> bool {
        block_start(self.free) <= block_start(self.migrate)
    }

    /// Returns the result if the pass ends now (§7.5).
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
            return if zone.has_flag(crate::zone::state::RECLAIM_ACTIVE) {
                CompactResult::PartialSkipped
            } else if zone.score() <= self.stop_at.into() {
                CompactResult::Success
            } else {
                CompactResult::Continue
            };
        }
        // Finish a pageblock once begun, so that no fallback has to mix types in it.
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

    /// Asks the owners of all blocks of the batch to move them, busy ones repeatedly, and frees the
    /// old blocks. Each step is called from here, so that their stack frames do not add up.
    #[inline(always)]
    fn move_batch(&mut self) -> Moved {
        self.batch.tries = if self.job.mode == Mode::Async { ASYNC_TRIES } else { SYNC_TRIES };
        loop {
            match self.move_next() {
                Next::Find(order) => self.refill(order),
                Next::Done => return self.end_batch(),
                next => self.free_next(next),
            }
        }
    }

    #[inline(always)]
    pub(super) fn free_next(&mut self, next: Next) {
        match next {
            Next::GiveBack(idx, order) => self.give_back(idx, order),
            Next::PutBack(idx, order) => self.put_back(idx, order),
            Next::Find(_) | Next::Done => {}
        }
    }

    /// Moves blocks of the batch until one must be freed or needs a place.
    #[inline(never)]
    fn move_next(&mut self) -> Next {
        loop {
            let Some((idx, order)) = self.batch.current() else {
                if !self.batch.begin_round() || self.captured.is_some() {
                    return Next::Done;
                }
                continue;
            };
            let place = self.held.take(&self.at.zone.map, order);
            if place.is_none() && !self.batch.no_place {
                if !self.batch.sought && self.held.has_room() {
                    self.batch.sought = true;
                    return Next::Find(order);
                }
                self.batch.no_place = self.held.is_empty();
            }
            let Some(to) = place else {
                self.batch.note_stayed(order);
                continue;
            };
            match self.move_block(idx, to, order) {
                Asked::Moved => {
                    self.batch.note_moved(order);
                    return Next::GiveBack(idx, order);
                }
                Asked::Busy => {
                    self.batch.keep(order);
                    return Next::PutBack(to, order);
                }
                Asked::Stays => {
                    self.batch.note_stayed(order);
                    return Next::PutBack(to, order);
                }
                Asked::Refused => self.batch.note_stayed(order),
                Asked::Gone => self.batch.note_moved(order),
            }
        }
    }

    /// Counts the results of the batch and traces them.
    #[inline(never)]
    fn end_batch(&mut self) -> Moved {
        let (migrated, failed) = self.batch.outcome();
        self.moved = self.moved.saturating_add(migrated);
        self.at.zone.compaction.count(Count::NotMoved, failed.into());
        self.at.tell(CompactEvent::Migratepages { migrated, failed });
        if self.batch.no_place {
            Moved::NoPlace
        } else if failed > 0 {
            Moved::Some
        } else {
            Moved::All
        }
    }

    /// Asks the owner of a block to move it to a held one.
    #[inline(never)]
    pub(super) fn move_block(&mut self, from: u32, to: u32, order: u8) -> Asked {
        let zone = self.at.zone;
        let (source, target) = (zone.map.frame(from), zone.map.frame(to));
        let was = source.state();
        let (Some(o), true) = (Order::new(order), is_source(was, order)) else {
            // It has been freed meanwhile.
            self.held.put(&zone.map, to, order);
            return Asked::Refused;
        };
        // Set first: the owner may free it before `relocate` returns.
        let state = State::new(Kind::Allocated, order, was.migrate_type());
        target.set_allocated(state.with_movable(true));
        if zone.map.poisoned_at_hand_out(to..to.saturating_add(o.pages())).is_some() {
            target.set_state(State::new(Kind::Held, order, was.migrate_type()));
            return Asked::Busy;
        }
        let (at, held) = (self.at, &mut self.held);
        let unmoved = Rollback::new(|| {
            // Unless the hook has freed it.
            if !target.begin_free_as(order) {
                return;
            }
            if self.at.rules().safety.fills() {
                at.give_up(to, order);
            } else {
                held.put(&zone.map, to, order);
            }
        });
        if self.at.rules().safety.unmap {
            at.hooks.map(zone.pfn(to), o);
        }
        let answer = at.hooks.relocate(zone.pfn(from), zone.pfn(to), o);
        unmoved.disarm();
        if answer == Relocation::Moved {
            if !source.begin_free_as(order) {
                return Asked::Gone;
            }
            source.set_state(State::new(Kind::Held, order, was.migrate_type()));
            zone.placed_pages.fetch_add(o.pages().into(), Relaxed);
            return Asked::Moved;
        }
        if !target.begin_free_as(order) {
            // The hook freed it, against the contract.
            return Asked::Refused;
        }
        // The owner may have begun to copy into it.
        let unfilled = Rollback::new(|| at.give_up(to, order));
        at.fill(to, order);
        unfilled.disarm();
        if answer == Relocation::Busy { Asked::Busy } else { Asked::Stays }
    }

    /// Holds a place again that no block moved to. While the hook ran, the place looked like a movable block
    /// in use, so another thread may have isolated its pageblock. Then the place is freed, to the list of
    /// isolated blocks. Isolation takes the zone lock, so it cannot begin during this call. A place with a
    /// faulty frame is freed without that frame.
    #[inline(never)]
    fn put_back(&mut self, to: u32, order: u8) {
        let at = self.at;
        let (locked, map) = (at.lock(), &at.zone.map);
        let frames = to..to.saturating_add(1 << order);
        if map.block_type(to) == MigrateType::Isolate || map.poisoned_at_hand_out(frames).is_some()
        {
            // A place is never larger than the block that was to move there.
            self.captured = self.captured.or(locked.free_piece(to, order, &mut self.wish));
        } else {
            self.held.put(map, to, order);
        }
    }

    /// Frees a block whose contents have moved, straight to the zone, so that it merges now.
    #[inline(never)]
    pub(super) fn give_back(&mut self, idx: u32, order: u8) {
        let at = self.at;
        if !at.prepare_free(idx, order) {
            return;
        }
        self.moved_from = self.moved_from.min(idx);
        let zone = at.lock();
        zone.slot.counters.direct_frees.add(order, zone.zone.map.block_type(idx));
        // A source is never larger than a pageblock.
        self.captured = self.captured.or(zone.free_piece(idx, order, &mut self.wish));
    }

    /// Drains this CPU's lists once the scanner has left the wanted block: pages on them may be all
    /// that keeps it from merging.
    #[inline(always)]
    fn drain_behind(&mut self) {
        let Some(order) = self.job.order else { return };
        if self.moved_from < chunk_start(self.migrate, order) {
            self.at.drain(self.at.cpu);
            self.moved_from = NIL;
        }
    }

    /// Frees the held blocks that were not needed. The next run finds them again.
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

    fn trace_begin(&self) {
        let zone = self.at.zone;
        let (zone_start, zone_end) = (zone.start, zone.end());
        let (migrate, free) = (zone.pfn(self.migrate), zone.pfn(self.free));
        let mode = self.job.mode;
        self.at.tell(CompactEvent::Begin { zone_start, migrate, free, zone_end, mode });
    }

    fn trace_end(&self, result: CompactResult) {
        let zone = self.at.zone;
        let (zone_start, zone_end) = (zone.start, zone.end());
        let (migrate, free) = (zone.pfn(self.migrate), zone.pfn(self.free));
        let mode = self.job.mode;
        self.at.tell(CompactEvent::End { zone_start, migrate, free, zone_end, mode, result });
    }

    fn count_scan(&self, all: Count, background: Count, scanned: u32, taken: u32) {
        let c = &self.at.zone.compaction;
        c.count(Count::Isolated, taken.into());
        c.count(all, scanned.into());
        if self.job.background {
            c.count(background, scanned.into());
        }
    }

    pub(super) fn scanned_for_sources(&self, start: u32, end: u32, scanned: u32, taken: u32) {
        self.count_scan(Count::MigrateScanned, Count::DaemonMigrateScanned, scanned, taken);
        let (start, end) = (self.at.zone.pfn(start), self.at.zone.pfn(end));
        self.at.tell(CompactEvent::IsolateMigratepages { start, end, scanned, taken });
    }

    pub(super) fn scanned_for_targets(&self, start: u32, end: u32, scanned: u32, taken: u32) {
        self.count_scan(Count::FreeScanned, Count::DaemonFreeScanned, scanned, taken);
        let (start, end) = (self.at.zone.pfn(start), self.at.zone.pfn(end));
        self.at.tell(CompactEvent::IsolateFreepages { start, end, scanned, taken });
    }
}

/// If a hook panics, no block stays held, and a captured block is free again.
impl<C: Config> Drop for Pass<'_, '_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.held.is_empty() && self.captured.is_none() {
            return;
        }
        self.wish = None;
        self.release();
        if let (Some(idx), Some(order)) = (self.captured, self.job.order)
            && self.at.zone.map.frame(idx).begin_free_as(order.get())
        {
            self.at.give_up(idx, order.get());
        }
    }
}

/// Returns whether this is the head of a block that its owner can move.
pub(super) fn is_source(state: State, order: u8) -> bool {
    state.is(Kind::Allocated, order) && state.is_movable()
}

/// Returns the first frame of the aligned block of an order that contains a frame.
pub(super) const fn chunk_start(idx: u32, order: Order) -> u32 {
    idx & !(order.pages() - 1)
}

/// Returns one past the last frame of the aligned block of an order that contains a frame.
pub(super) const fn chunk_end(idx: u32, order: Order) -> u32 {
    chunk_start(idx, order).saturating_add(order.pages())
}
