//! The cache in front of the allocator: each thread's own blocks, filled and emptied in bulk.
//!
//! What lies here is in use to the allocator behind it. So that nothing is stranded, it is given
//! back when the thread ends, when a tick finds it unused since the last one, before a request
//! fails, and when a zone falls below its low watermark; until the zone has room again for all that
//! threads may keep, they keep nothing then.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use pageyard::{Gfp, Order};

use crate::barrier;
use crate::callback::guarded;
use crate::fork::Birthplace;
use crate::magazine::{self, Kind, Magazine, ROOM, Ready, Tally, add};
use crate::roster::{Limits, Roster};

/// What threads keep ready without a lock ([`Builder::thread_cache`](crate::Builder::thread_cache)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThreadCache {
    /// As much as suits the yard's size: up to 126 single pages and 4 blocks of 2 MiB of each type
    /// a thread, a quarter of the yard for all threads together. Nothing where the policy looks at
    /// pages or fills them when they are freed (§11).
    #[default]
    Auto,
    /// Nothing: every request takes the way of the per-CPU lists.
    Off,
    /// So many blocks of each type a thread, for as many threads as a quarter of the yard is
    /// enough for. An error where the policy checks pages or fills them as they change hands (§11):
    /// the allocator behind the cache, which does that, would not see them.
    Blocks {
        /// Single pages, at most 126.
        pages: u32,
        /// Blocks of 2 MiB, at most 126.
        huge: u32,
    },
}

impl ThreadCache {
    /// Whether there can be so many.
    pub(crate) fn is_possible(self) -> bool {
        match self {
            ThreadCache::Blocks { pages, huge } => pages.max(huge) as usize <= ROOM,
            _ => true,
        }
    }

    /// Limits for a yard of so many pages.
    fn limits(self, yard: u64, fills: bool) -> Option<Limits> {
        let (pages, huge) = match self {
            _ if fills => return None,
            ThreadCache::Off => return None,
            ThreadCache::Auto => ((yard / 1024).min(ROOM as u64), (yard >> 15).min(4)),
            ThreadCache::Blocks { pages, huge } => (pages.into(), huge.into()),
        };
        let each = 3 * pages + 2 * huge * u64::from(Kind::HugeMovable.order().pages());
        let threads = (yard / 4).checked_div(each).unwrap_or(0);
        let blocks = Kind::ALL.map(|kind| if kind.is_huge() { huge } else { pages } as u32);
        (threads > 0).then_some(Limits { blocks, threads: threads as usize })
    }
}

/// The allocator behind the cache.
pub(crate) trait Backing: Send + Sync {
    /// Single pages, each given to `each`: at most as many, none or one where there is a lack.
    fn take(&self, n: usize, gfp: Gfp, each: &mut dyn FnMut(Ready)) -> usize;
    /// Takes back blocks of a kind; that they were not handed out if they are still known to be
    /// zeros.
    fn give(&self, kind: Kind, blocks: &[Option<Ready>]);
    /// By how many pages the tightest zone is above its low watermark.
    fn room(&self) -> i64;
    /// Where the memory of the caller's node lies: an address, and bytes.
    fn near(&self) -> (usize, usize);
}

/// What the front cache of a yard did, and has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadCacheStats {
    /// Whether there is one: not where it was switched off, or the system has no `membarrier`.
    pub on: bool,
    /// Threads that have a part of it.
    pub threads: usize,
    /// Pages in it.
    pub pages: u64,
    /// Requests that it served at once.
    pub hits: u64,
    /// How often a thread fetched pages, and how many.
    pub refills: u64,
    /// See `refills`.
    pub refilled_pages: u64,
    /// How often a thread gave blocks back because it had too many, or ended, and their pages.
    pub flushes: u64,
    /// See `flushes`.
    pub flushed_pages: u64,
    /// How often blocks were taken away from a thread, and their pages.
    pub drains: u64,
    /// See `drains`.
    pub drained_pages: u64,
    /// How often a zone was found below its low watermark.
    pub presses: u64,
    /// Since then there was never room enough: threads keep nothing at the moment.
    pub pressed: bool,
}

/// One thread's part of a front cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadCacheUse {
    /// The thread, as the system numbers it.
    pub thread: u32,
    /// Pages that it has.
    pub pages: u64,
    /// Requests that they served at once.
    pub hits: u64,
    /// How often it fetched pages.
    pub refills: u64,
    /// How often it gave blocks back.
    pub flushes: u64,
    /// How often its blocks were taken away.
    pub drains: u64,
}

/// A yard's part of the cache; what a request looks at first.
pub(crate) struct ThreadCaches {
    /// 0 where there is no cache.
    id: u64,
    shared: Option<Arc<Shared>>,
}

/// What threads that use the cache share.
struct Shared {
    id: u64,
    backing: Arc<dyn Backing>,
    born: Birthplace,
    roster: Roster,
    /// Of magazines that are gone.
    past: Tally,
    past_hits: AtomicU64,
}

thread_local! {
    /// The thread is on a slow way; what it asks for on the way, it gets behind the cache. So an
    /// allocator of the program's that is made of a yard may serve what this needs.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static MEMBERSHIPS: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

/// Says that the thread is on a slow way.
struct Busy;

impl Busy {
    fn begin() -> Option<Busy> {
        // Not `then_some`: that makes a `Busy`, and drops it, where the thread is busy already.
        (!BUSY.replace(true)).then(|| Busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

/// A thread's magazines; given up when it ends.
struct Memberships(RefCell<Vec<(Weak<Shared>, Arc<Magazine>)>>);

impl Drop for Memberships {
    fn drop(&mut self) {
        // Nothing of what follows goes through the cache again: seats are left first, and there
        // is no way back to this list.
        magazine::forget_seats();
        // In use where a callback ends the process in the middle of a join.
        let all = self.0.try_borrow_mut().map(|mut all| std::mem::take(&mut *all));
        for (shared, magazine) in all.unwrap_or_default() {
            if let Some(shared) = shared.upgrade() {
                shared.end(&magazine);
                // The last reference, where the yard is dropped at this moment: with it go values of
                // the embedder's, which must not unwind out of a thread's end.
                guarded(|| drop(shared));
            }
        }
    }
}

fn thread_number() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() as u32 }
}

impl ThreadCaches {
    /// For a yard of so many pages, whose policy fills pages or not.
    pub(crate) fn new(
        how: ThreadCache,
        pages: u64,
        fills: bool,
        backing: Arc<dyn Backing>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let limits = how.limits(pages, fills).filter(|_| barrier::is_available());
        let Some(limits) = limits else { return ThreadCaches { id: 0, shared: None } };
        let id = NEXT.fetch_add(1, Relaxed);
        let shared = Shared {
            id,
            backing,
            born: Birthplace::here(),
            roster: Roster::new(limits),
            past: Tally::default(),
            past_hits: AtomicU64::new(0),
        };
        ThreadCaches { id, shared: Some(Arc::new(shared)) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.id != 0
    }

    /// A block of the thread's own.
    #[inline(always)]
    pub(crate) fn pop(&self, kind: Kind) -> Option<Ready> {
        magazine::with_mine(self.id, |m| m.pop(kind))
    }

    /// Keeps a block. `false`: it is still the caller's.
    #[inline(always)]
    pub(crate) fn push(&self, kind: Kind, start: NonNull<u8>) -> bool {
        magazine::with_mine(self.id, |m| m.push(kind, start).then_some(())).is_some()
    }

    /// Fetches pages for the thread, and one for the caller, who found none.
    #[inline]
    pub(crate) fn refill(&self, kind: Kind, gfp: Gfp) -> Option<Ready> {
        if kind.is_huge() && magazine::has_seat(self.id) {
            // They are not fetched in advance.
            return None;
        }
        self.shared.as_ref()?.refill(kind, gfp)
    }

    /// Keeps a block for which there was no room. `false`: it is still the caller's.
    #[inline]
    pub(crate) fn make_room(&self, kind: Kind, start: NonNull<u8>) -> bool {
        if kind.is_huge() && magazine::has_seat(self.id) {
            // Nor given back together: there is little to share.
            return false;
        }
        self.shared.as_ref().is_some_and(|s| s.make_room(kind, start).is_some())
    }

    /// Takes everything away from all threads; how many pages.
    pub(crate) fn drain(&self) -> u64 {
        self.shared.as_ref().filter(|s| s.born.is_here()).map_or(0, |s| s.drain(|_| true))
    }

    /// Takes away what nobody used since the last time; everything, where memory is short.
    pub(crate) fn tick(&self) {
        let Some(shared) = &self.shared else { return };
        if shared.backing.room() < 0 {
            shared.press();
        } else if shared.stays_pressed() {
            // What a busy owner kept when its magazine was to be taken away.
            shared.drain(|_| true);
        } else {
            shared.drain(Magazine::is_idle);
        }
    }

    pub(crate) fn stats(&self) -> ThreadCacheStats {
        let here = self.shared.as_ref().filter(|s| s.born.is_here());
        here.map_or_else(ThreadCacheStats::default, |s| s.stats())
    }

    pub(crate) fn threads(&self) -> Vec<ThreadCacheUse> {
        let here = self.shared.as_ref().filter(|s| s.born.is_here());
        let Some(shared) = here else { return Vec::new() };
        let of = |m: &Arc<Magazine>| ThreadCacheUse {
            thread: m.thread,
            pages: m.pages(),
            hits: m.hits(),
            refills: m.tally.refills.load(Relaxed),
            flushes: m.tally.flushes.load(Relaxed),
            drains: m.tally.drains.load(Relaxed),
        };
        let mut all = Vec::new();
        loop {
            let list = shared.roster.list();
            if list.len() <= all.capacity() {
                all.extend(list.iter().map(of));
                return all;
            }
            // What allocates may need the lock, to drain the magazines.
            let n = list.len();
            drop(list);
            all.reserve(n);
        }
    }
}

impl fmt::Debug for ThreadCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl Shared {
    /// Says that the thread is on a slow way; `None` where it is already, or must not be: in a
    /// child, where another thread may have been inside for good.
    fn begin(&self) -> Option<Busy> {
        if self.born.is_here() { Busy::begin() } else { None }
    }

    /// The calling thread's magazine, a new one if there is none yet and there may be one more.
    fn mine(self: &Arc<Self>) -> Option<Arc<Magazine>> {
        let of = |list: &Memberships| {
            let mut list = list.0.try_borrow_mut().ok()?;
            let known = list.iter().find(|(yard, _)| std::ptr::eq(yard.as_ptr(), &**self));
            let magazine = match known {
                Some((_, magazine)) => magazine.clone(),
                None => {
                    list.retain(|(yard, _)| yard.strong_count() > 0);
                    let magazine = self.join()?;
                    list.push((Arc::downgrade(self), magazine.clone()));
                    magazine
                }
            };
            // SAFETY: the thread's list keeps it alive, until it ends and has left all seats. It is
            // taken off the list before only when the yard is gone, whose number is never used again
            // (`yards_go_while_threads_that_used_them_stay`, `a_thread_that_ends_leaves_nothing`).
            unsafe { magazine::sit(self.id, Arc::as_ptr(&magazine)) };
            Some(magazine)
        };
        MEMBERSHIPS.try_with(of).ok().flatten()
    }

    /// A magazine more.
    fn join(&self) -> Option<Arc<Magazine>> {
        if self.roster.is_full() {
            return None;
        }
        let magazine = Arc::new(Magazine::new(thread_number()));
        let (start, bytes) = self.backing.near();
        magazine.set_near(start, bytes);
        self.roster.join(&magazine).then_some(magazine)
    }

    #[cold]
    fn refill(self: &Arc<Self>, kind: Kind, gfp: Gfp) -> Option<Ready> {
        let _busy = self.begin()?;
        let mine = self.mine()?;
        if self.stays_pressed() || kind.is_huge() {
            return None;
        }
        let wanted = (mine.limit(kind) / 2) as usize;
        if wanted < 2 {
            return None;
        }
        let (start, bytes) = self.backing.near();
        if !mine.set_near(start, bytes) {
            // What it had was of the node that the thread was on.
            self.empty(&mine);
        }
        let mut got = [None; ROOM];
        let mut n = 0;
        let gfp = gfp.difference(Gfp::ZERO);
        self.backing.take(wanted, gfp, &mut |block| {
            if let Some(slot) = got.get_mut(n) {
                *slot = Some(block);
                n += 1;
            }
        });
        if n < 2 && self.backing.room() < wanted as i64 {
            self.press();
        }
        let (first, rest) = got[..n].split_first()?;
        let kept = mine.fill(kind, rest);
        add(&mine.tally.refills, 1);
        add(&mine.tally.refilled, n as u64);
        // It was taken away, or limited, meanwhile.
        self.backing.give(kind, &rest[kept..]);
        *first
    }

    #[cold]
    fn make_room(self: &Arc<Self>, kind: Kind, start: NonNull<u8>) -> Option<()> {
        let _busy = self.begin()?;
        let mine = self.mine()?;
        if self.stays_pressed() || !mine.is_near(start) {
            return None;
        }
        let limit = mine.limit(kind) as usize;
        if limit == 0 {
            return None;
        }
        // There was only no seat.
        if !mine.push(kind, start) {
            let mut cold = [None; ROOM];
            let n = mine.take_cold(kind, limit.div_ceil(2), &mut cold);
            let kept = mine.push(kind, start);
            self.flush(&mine, kind, &cold[..n]);
            return kept.then_some(());
        }
        Some(())
    }

    fn flush(&self, mine: &Magazine, kind: Kind, blocks: &[Option<Ready>]) {
        if !blocks.is_empty() {
            add(&mine.tally.flushes, 1);
            add(&mine.tally.flushed, blocks.len() as u64 * u64::from(kind.order().pages()));
            self.backing.give(kind, blocks);
        }
    }

    /// By the owner: gives all of it back.
    fn empty(&self, mine: &Magazine) {
        for kind in Kind::ALL {
            let mut all = [None; ROOM];
            let n = mine.take_cold(kind, ROOM, &mut all);
            self.flush(mine, kind, &all[..n]);
        }
    }

    /// The owner ends.
    fn end(&self, mine: &Arc<Magazine>) {
        if !self.born.is_here() {
            return;
        }
        self.roster.leave(mine, || {
            self.empty(mine);
            let (t, p) = (&mine.tally, &self.past);
            for (now, past) in [
                (&t.refills, &p.refills),
                (&t.refilled, &p.refilled),
                (&t.flushes, &p.flushes),
                (&t.flushed, &p.flushed),
                (&t.drains, &p.drains),
                (&t.drained, &p.drained),
            ] {
                add(past, now.load(Relaxed));
            }
            add(&self.past_hits, mine.hits());
        });
    }

    /// Takes everything away from the threads that are meant; how many pages.
    fn drain(&self, meant: impl Fn(&Magazine) -> bool) -> u64 {
        let _busy = Busy::begin();
        let mut pages = 0;
        self.roster.drain(meant, barrier::all_threads, |m| pages += self.take_all(m));
        pages
    }

    /// What lies in a magazine that is ours for the moment goes back.
    fn take_all(&self, m: &Magazine) -> u64 {
        let mut pages = 0;
        for kind in Kind::ALL {
            let mut all = [None; ROOM];
            let n = m.take_all(kind, &mut all);
            self.backing.give(kind, &all[..n]);
            pages += n as u64 * u64::from(kind.order().pages());
        }
        if pages > 0 {
            add(&m.tally.drains, 1);
            add(&m.tally.drained, pages);
        }
        pages
    }

    /// A zone is below its low watermark: threads keep nothing.
    fn press(&self) {
        let _busy = Busy::begin();
        let take = |m: &Magazine| {
            self.take_all(m);
        };
        self.roster.press(barrier::all_threads, take);
    }

    /// Whether threads may keep nothing. They may again once all of them could fill up and no zone
    /// would fall below its low watermark.
    fn stays_pressed(&self) -> bool {
        self.roster.relax(|| self.backing.room())
    }

    fn stats(&self) -> ThreadCacheStats {
        let list = self.roster.list();
        let sum = |of: fn(&Tally) -> &AtomicU64| {
            let now: u64 = list.iter().map(|m| of(&m.tally).load(Relaxed)).sum();
            now + of(&self.past).load(Relaxed)
        };
        ThreadCacheStats {
            on: true,
            threads: list.len(),
            pages: list.iter().map(|m| m.pages()).sum(),
            hits: list.iter().map(|m| m.hits()).sum::<u64>() + self.past_hits.load(Relaxed),
            refills: sum(|t| &t.refills),
            refilled_pages: sum(|t| &t.refilled),
            flushes: sum(|t| &t.flushes),
            flushed_pages: sum(|t| &t.flushed),
            drains: sum(|t| &t.drains),
            drained_pages: sum(|t| &t.drained),
            presses: self.roster.presses(),
            pressed: self.roster.is_pressed(),
        }
    }
}

/// Blocks as the allocator behind wants them, a batch at a time.
pub(crate) fn in_batches(
    kind: Kind,
    blocks: &[Option<Ready>],
    mut pfn: impl FnMut(Ready) -> Option<pageyard::Pfn>,
    mut give: impl FnMut(&[(pageyard::Pfn, Order)]),
) {
    const BATCH: usize = 62;
    for chunk in blocks.chunks(BATCH) {
        let mut batch = [(pageyard::Pfn(0), kind.order()); BATCH];
        let mut n = 0;
        for block in chunk.iter().flatten() {
            if let Some(pfn) = pfn(*block) {
                batch[n].0 = pfn;
                n += 1;
            }
        }
        give(&batch[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_slow_path_leaves_the_outer_one_busy() {
        let outer = Busy::begin();
        assert!(outer.is_some());
        assert!(Busy::begin().is_none());
        assert!(BUSY.get(), "the outer slow path goes on");
        drop(outer);
        assert!(!BUSY.get());
    }
}
