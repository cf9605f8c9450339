//! The thread cache: each thread's own blocks in front of the allocator, filled and emptied in
//! bulk.
//!
//! The allocator behind counts blocks in the cache as in use. So that none are stranded, they are
//! freed:
//!
//! - when the thread ends,
//! - when a tick finds blocks of a kind unused since the last one,
//! - before a request fails,
//! - when a zone falls below its low watermark; after that, threads keep nothing until a tick finds
//!   that the zone has room for all that they may keep.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use pageyard::{Gfp, Order};
use serde::{Deserialize, Serialize};

use crate::barrier;
use crate::callback::guarded;
use crate::fork::Birthplace;
use crate::magazine::{self, KINDS, Kind, Magazine, ORDERS, ROOM, Reading, Ready, Tally, add};
use crate::roster::{Limits, Roster};

/// Size of the thread cache ([`Builder::thread_cache`](crate::Builder::thread_cache)).
///
/// ```
/// use pageyard_host::{Builder, ThreadCache};
///
/// let yard = Builder::new(16 << 20).thread_cache(ThreadCache::Off).build()?;
/// assert!(!yard.thread_cache_stats().on);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThreadCache {
    /// Sized by the yard: up to 126 single pages and 4 blocks of 2 MiB per thread and type, and from
    /// 256 MiB on up to 63 blocks of 8 KiB, 31 of 16 and 15 of 32. All threads together keep at most a
    /// quarter of the yard. No cache if the policy checks pages or fills them on free (§11).
    #[default]
    Auto,
    /// No cache: every request goes to the per-CPU lists.
    Off,
    /// A fixed number of blocks per thread and type, for as many threads as fit in a quarter of the
    /// yard. An error if the policy checks or fills pages on alloc and free (§11): the cache would
    /// hide them from the allocator, which does that.
    Blocks {
        /// Single pages, at most 126.
        pages: u32,
        /// Blocks of 8 KiB, as many of 16 KiB and as many of 32 KiB, at most 126 each.
        larger: u32,
        /// Blocks of 2 MiB, at most 126.
        huge: u32,
    },
}

impl ThreadCache {
    /// Returns whether the sizes are within the maximum.
    pub(crate) fn is_possible(self) -> bool {
        match self {
            ThreadCache::Blocks { pages, larger, huge } => {
                pages.max(larger).max(huge) as usize <= ROOM
            }
            _ => true,
        }
    }

    /// Returns the limits for a yard of `yard` pages; `fills`: the policy checks or fills pages.
    fn limits(self, yard: u64, fills: bool) -> Option<Limits> {
        let blocks: [u32; KINDS] = match self {
            _ if fills => return None,
            ThreadCache::Off => return None,
            ThreadCache::Auto => {
                let pages = (yard / 1024).min(ROOM as u64) as u32;
                let huge = (yard >> 15).min(4) as u32;
                Kind::ALL.map(|kind| match kind.order() {
                    Order::ZERO => pages,
                    Order::HUGE => huge,
                    // In a small yard they would leave fewer threads a cache.
                    _ if yard < 1 << 16 => 0,
                    order => pages >> order.get(),
                })
            }
            ThreadCache::Blocks { pages, larger, huge } => {
                Kind::ALL.map(|kind| match kind.order() {
                    Order::ZERO => pages,
                    Order::HUGE => huge,
                    _ => larger,
                })
            }
        };
        let limits = Limits { blocks, threads: 0 };
        let threads = (yard / 4).checked_div(limits.pages()).unwrap_or(0) as usize;
        (threads > 0).then_some(Limits { threads, ..limits })
    }
}

/// The allocator behind the cache.
pub(crate) trait CacheBackend: Send + Sync {
    /// Fills these slots with single pages. Returns how many. When memory is short, none or one.
    fn alloc(&self, gfp: Gfp, to: &mut [Option<Ready>]) -> usize;
    /// Frees blocks of a kind. Blocks still known to be zero are recorded as never allocated.
    fn free(&self, kind: Kind, blocks: &[Option<Ready>]);
    /// Returns how many more pages threads could keep, spread over the nodes evenly, before the
    /// tightest zone falls below its low watermark; negative if it is below.
    fn room(&self) -> i64;
    /// Returns the address range of the memory of the caller's node: start and bytes.
    fn near(&self) -> (usize, usize);
}

/// Statistics of a yard's thread cache.
///
/// ```
/// use pageyard_host::{Builder, ThreadCacheStats};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let stats: ThreadCacheStats = yard.thread_cache_stats();
/// println!("{} requests served by the caches of {} threads", stats.hits, stats.threads);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadCacheStats {
    /// Whether there is a cache: not if it was disabled, or if the system has no `membarrier`.
    pub on: bool,
    /// Threads that have a magazine.
    pub threads: usize,
    /// Pages in it.
    pub pages: u64,
    /// Blocks in it, by order.
    pub blocks: [u64; ORDERS],
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests of these by order.
    pub hits_by_order: [u64; ORDERS],
    /// Number of refills, and pages fetched by them.
    pub refills: u64,
    /// See `refills`.
    pub refilled_pages: u64,
    /// Number of times a thread freed blocks because its magazine was full or the thread ended, and
    /// their pages.
    pub flushes: u64,
    /// See `flushes`.
    pub flushed_pages: u64,
    /// Number of times blocks were drained from a thread's magazine, and their pages.
    pub drains: u64,
    /// See `drains`.
    pub drained_pages: u64,
    /// Number of times a zone was found below its low watermark.
    pub presses: u64,
    /// Set while threads keep nothing: a zone was below its low watermark, and no tick
    /// ([`HostYard::tick`](crate::HostYard::tick), or the worker's) has found enough room since.
    pub pressed: bool,
}

/// One thread's part of a thread cache.
///
/// ```
/// use pageyard_host::Builder;
///
/// let yard = Builder::new(16 << 20).build()?;
/// for one in yard.thread_cache_threads() {
///     println!("thread {}: {} pages", one.thread, one.pages);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadCacheUse {
    /// Thread ID of the system.
    pub thread: u32,
    /// Pages in the magazine.
    pub pages: u64,
    /// Requests served from the magazine.
    pub hits: u64,
    /// Number of refills.
    pub refills: u64,
    /// Number of times the thread freed blocks in bulk.
    pub flushes: u64,
    /// Number of times the magazine was drained.
    pub drains: u64,
}

/// A yard's thread cache; the first thing that a request looks at.
pub(crate) struct ThreadCaches {
    /// 0 if there is no cache.
    id: u64,
    shared: Option<Arc<Shared>>,
}

/// State shared by the threads that use the cache.
struct Shared {
    id: u64,
    backend: Arc<dyn CacheBackend>,
    born: Birthplace,
    roster: Roster,
    /// How often blocks were freed from the cache.
    given_back: AtomicU64,
    /// Counters of magazines of ended threads.
    past: Tally,
    past_hits: [AtomicU64; ORDERS],
}

thread_local! {
    /// Set while the thread is on a slow path. Requests made there bypass the cache, so that a
    /// program's allocator built on a yard may serve them.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static MEMBERSHIPS: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

/// Marks the thread as being on a slow path.
struct Busy;

impl Busy {
    fn begin() -> Option<Busy> {
        // Not `then_some`: it would construct a `Busy` and drop it when the thread is already busy.
        (!BUSY.replace(true)).then(|| Busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

/// A thread's magazines; released when the thread ends.
struct Memberships(RefCell<Vec<(Weak<Shared>, Arc<Magazine>)>>);

impl Drop for Memberships {
    fn drop(&mut self) {
        // Nothing below uses the cache again: seats are cleared first, and this list is no longer
        // reachable.
        magazine::forget_all();
        // Borrowed if a callback ends the process in the middle of a join.
        let all = self.0.try_borrow_mut().map(|mut all| std::mem::take(&mut *all));
        for (shared, magazine) in all.unwrap_or_default() {
            if let Some(shared) = shared.upgrade() {
                shared.end(&magazine);
                // May be the last reference, if the yard is dropped at this moment. It then drops
                // the embedder's values, which must not unwind out of the thread's exit.
                guarded(|| drop(shared));
            }
        }
    }
}

fn thread_number() -> u32 {
    // SAFETY: `gettid` takes no arguments.
    unsafe { libc::gettid() as u32 }
}

impl ThreadCaches {
    /// Creates the cache of a yard of `pages` pages; `fills`: the policy checks or fills pages.
    pub(crate) fn new(
        how: ThreadCache,
        pages: u64,
        fills: bool,
        backend: Arc<dyn CacheBackend>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let limits = how.limits(pages, fills).filter(|_| barrier::is_available());
        let Some(limits) = limits else { return ThreadCaches { id: 0, shared: None } };
        let id = NEXT.fetch_add(1, Relaxed);
        let shared = Shared {
            id,
            backend,
            born: Birthplace::here(),
            roster: Roster::new(limits),
            given_back: AtomicU64::new(0),
            past: Tally::default(),
            past_hits: Default::default(),
        };
        ThreadCaches { id, shared: Some(Arc::new(shared)) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.id != 0
    }

    /// Takes a block from the thread's magazine.
    #[inline(always)]
    pub(crate) fn pop(&self, kind: Kind) -> Option<Ready> {
        magazine::with_mine(self.id, |m| m.pop(kind))
    }

    /// Puts a block into the thread's magazine. On `false` the caller keeps the block.
    #[inline(always)]
    pub(crate) fn push(&self, kind: Kind, start: NonNull<u8>) -> bool {
        magazine::with_mine(self.id, |m| m.push(kind, start).then_some(())).is_some()
    }

    /// Refills the thread's magazine with pages and returns one for the caller, whose `pop` failed.
    #[inline]
    pub(crate) fn refill(&self, kind: Kind, gfp: Gfp) -> Option<Ready> {
        if self.is_closed(kind) {
            return None;
        }
        self.shared.as_ref()?.refill(kind, gfp)
    }

    /// Makes room for a block that `push` refused, and keeps it. On `false` the caller keeps the
    /// block.
    #[inline]
    pub(crate) fn make_room(&self, kind: Kind, start: NonNull<u8>) -> bool {
        if self.is_closed(kind) {
            return false;
        }
        self.shared.as_ref().is_some_and(|s| s.make_room(kind, start).is_some())
    }

    /// Returns whether the caller has seen the thread's magazine, and it is neither refilled nor
    /// flushed: while memory is short, and for other blocks than single pages.
    #[inline]
    fn is_closed(&self, kind: Kind) -> bool {
        let is_pressed = || self.shared.as_ref().is_some_and(|s| s.roster.is_pressed());
        magazine::has_mine(self.id) && (!kind.is_single() || is_pressed())
    }

    /// Drains all magazines.
    pub(crate) fn drain(&self) {
        if let Some(shared) = self.shared.as_ref().filter(|s| s.born.is_here()) {
            shared.drain(Magazine::has);
        }
    }

    /// Returns how often blocks were freed from the cache.
    #[inline]
    pub(crate) fn given_back(&self) -> u64 {
        self.shared.as_ref().map_or(0, |s| s.given_back.load(Relaxed))
    }

    /// Drains what was not used since the last tick; all magazines if memory is short.
    pub(crate) fn tick(&self) {
        let Some(shared) = &self.shared else { return };
        if shared.backend.room() < 0 {
            shared.press();
        } else if shared.stays_pressed() {
            // Drain what a busy owner kept when its magazine was to be drained.
            shared.drain(Magazine::has);
        } else {
            shared.drain(Magazine::is_idle);
            shared.roster.list().iter().for_each(|m| m.note_activity());
        }
    }

    pub(crate) fn stats(&self) -> ThreadCacheStats {
        let here = self.shared.as_ref().filter(|s| s.born.is_here());
        here.map_or_else(ThreadCacheStats::default, |s| s.stats())
    }

    pub(crate) fn threads(&self) -> Vec<ThreadCacheUse> {
        let here = self.shared.as_ref().filter(|s| s.born.is_here());
        let Some(shared) = here else { return Vec::new() };
        let of = |m: &Arc<Magazine>| {
            let reading = m.reading();
            let (pages, hits) = (reading.pages(), reading.all_hits());
            let [refills, flushes, drains] =
                [&m.tally.refills, &m.tally.flushes, &m.tally.drains].map(|n| n.load(Relaxed));
            ThreadCacheUse { thread: m.thread, pages, hits, refills, flushes, drains }
        };
        let mut all = Vec::new();
        loop {
            let list = shared.roster.list();
            if list.len() <= all.capacity() {
                all.extend(list.iter().map(of));
                return all;
            }
            // Reserving memory may need the lock, to drain the magazines.
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
    /// Marks the thread as being on a slow path. Returns `None` if it already is, or in a child
    /// after a fork, where a lock may be held by a thread that no longer exists.
    fn begin(&self) -> Option<Busy> {
        if self.born.is_here() { Busy::begin() } else { None }
    }

    /// Returns the calling thread's magazine. Creates one if there is none yet and the number of
    /// threads allows it.
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
            // SAFETY: the thread's list keeps the magazine alive until the thread ends and has
            // cleared all seats. It is removed from the list earlier only after the yard is gone,
            // whose ID is never reused (`a_yard_is_dropped_before_its_threads_exit`,
            // `an_exiting_thread_frees_its_cache`).
            unsafe { magazine::set_mine(self.id, Arc::as_ptr(&magazine)) };
            Some(magazine)
        };
        MEMBERSHIPS.try_with(of).ok().flatten()
    }

    /// Creates one more magazine, unless the roster is full.
    fn join(&self) -> Option<Arc<Magazine>> {
        if self.roster.is_full() {
            return None;
        }
        let magazine: Arc<Magazine> = Magazine::on_heap(thread_number()).into();
        let (start, bytes) = self.backend.near();
        magazine.set_near(start, bytes);
        self.roster.join(&magazine).then_some(magazine)
    }

    #[cold]
    fn refill(self: &Arc<Self>, kind: Kind, gfp: Gfp) -> Option<Ready> {
        let _busy = self.begin()?;
        let mine = self.mine()?;
        // Another yard of the thread may have taken the seat, so that the caller's `pop` did not
        // look into this magazine.
        let kept = mine.pop(kind);
        if kept.is_some() || self.roster.is_pressed() || !kind.is_single() {
            return kept;
        }
        let wanted = (mine.limit(kind) / 2) as usize;
        if wanted < 2 {
            return None;
        }
        let (start, bytes) = self.backend.near();
        if !mine.set_near(start, bytes) {
            // The blocks in the magazine are from the node that the thread left.
            self.empty(&mine);
        }
        let mut got = [None; ROOM];
        let n = self.backend.alloc(gfp.difference(Gfp::ZERO), &mut got[..wanted]);
        if !self.born.is_here() {
            // A callback of the request forked, and the blocks may be the parent's.
            return None;
        }
        if n < 2 && self.backend.room() < wanted as i64 {
            self.press();
        }
        let (first, rest) = got[..n].split_first()?;
        let kept = mine.fill(kind, rest);
        add(&mine.tally.refills, 1);
        add(&mine.tally.refilled, n as u64);
        // The magazine was claimed, or its limit lowered, in the meantime.
        self.give_back(kind, &rest[kept..]);
        *first
    }

    #[cold]
    fn make_room(self: &Arc<Self>, kind: Kind, start: NonNull<u8>) -> Option<()> {
        let _busy = self.begin()?;
        let mine = self.mine()?;
        if self.roster.is_pressed() || !mine.is_near(start) {
            return None;
        }
        let limit = mine.limit(kind) as usize;
        if limit == 0 {
            return None;
        }
        // If the push succeeds, only the seat was missing.
        if !mine.push(kind, start) {
            if !kind.is_single() {
                return None;
            }
            let mut cold = [None; ROOM];
            let n = mine.take_cold(kind, limit.div_ceil(2), &mut cold);
            let kept = mine.push(kind, start);
            self.flush(&mine, kind, &cold[..n]);
            return kept.then_some(());
        }
        Some(())
    }

    /// Frees blocks to the allocator behind.
    fn give_back(&self, kind: Kind, blocks: &[Option<Ready>]) {
        if !blocks.is_empty() {
            self.backend.free(kind, blocks);
            self.given_back.fetch_add(1, Relaxed);
        }
    }

    fn flush(&self, mine: &Magazine, kind: Kind, blocks: &[Option<Ready>]) {
        if !blocks.is_empty() {
            add(&mine.tally.flushes, 1);
            add(&mine.tally.flushed, blocks.len() as u64 * u64::from(kind.order().pages()));
            self.give_back(kind, blocks);
        }
    }

    /// Frees all blocks of the magazine. Called by the owner.
    fn empty(&self, mine: &Magazine) {
        for kind in Kind::ALL {
            let mut all = [None; ROOM];
            let n = mine.take_cold(kind, ROOM, &mut all);
            self.flush(mine, kind, &all[..n]);
        }
    }

    /// Removes the magazine of a thread that ends, and frees its blocks.
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
            for (past, now) in self.past_hits.iter().zip(mine.reading().hits) {
                add(past, now);
            }
        });
    }

    /// Drains the kinds of magazines that `meant` selects.
    fn drain(&self, meant: impl Fn(&Magazine, Kind) -> bool) {
        let _busy = Busy::begin();
        let any = |m: &Magazine| Kind::ALL.iter().any(|&kind| meant(m, kind));
        self.roster.drain(any, barrier::all_threads, |m| self.take(m, &meant));
    }

    /// Frees the blocks of a claimed magazine that `meant` selects.
    fn take(&self, m: &Magazine, meant: impl Fn(&Magazine, Kind) -> bool) {
        let mut pages = 0;
        for kind in Kind::ALL.into_iter().filter(|&kind| meant(m, kind)) {
            let mut all = [None; ROOM];
            let n = m.take_all(kind, &mut all);
            self.give_back(kind, &all[..n]);
            pages += n as u64 * u64::from(kind.order().pages());
        }
        if pages > 0 {
            add(&m.tally.drains, 1);
            add(&m.tally.drained, pages);
        }
    }

    /// Stops threads from keeping blocks, because a zone is below its low watermark.
    fn press(&self) {
        let _busy = Busy::begin();
        self.roster.press(barrier::all_threads, |m| self.take(m, Magazine::has));
    }

    /// Returns whether threads still must not keep blocks. They may again once all of them, spread
    /// over the nodes evenly, could fill up without any zone falling below its low watermark. Called by
    /// ticks only: requests would contend for the lock as long as memory is short.
    fn stays_pressed(&self) -> bool {
        self.roster.relax(|| self.backend.room())
    }

    fn stats(&self) -> ThreadCacheStats {
        let list = self.roster.list();
        let sum = |of: fn(&Tally) -> &AtomicU64| {
            let now: u64 = list.iter().map(|m| of(&m.tally).load(Relaxed)).sum();
            now + of(&self.past).load(Relaxed)
        };
        // Before the refills: `requests::Requests` depends on it.
        let mut now = Reading::default();
        for magazine in list.iter() {
            let reading = magazine.reading();
            now.blocks = std::array::from_fn(|order| now.blocks[order] + reading.blocks[order]);
            now.hits = std::array::from_fn(|order| now.hits[order] + reading.hits[order]);
        }
        now.hits = std::array::from_fn(|n| now.hits[n] + self.past_hits[n].load(Relaxed));
        ThreadCacheStats {
            on: true,
            threads: list.len(),
            pages: now.pages(),
            blocks: now.blocks,
            hits: now.all_hits(),
            hits_by_order: now.hits,
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

#[cfg(test)]
mod tests;
