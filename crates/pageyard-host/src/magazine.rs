//! A thread's own blocks of a yard, which it pops and pushes without a lock.
//!
//! Other threads claim a magazine by a handshake that costs the owner two plain stores (see
//! [`barrier`](crate::barrier)). The owner sets `inside`, then checks `taken`. The claimer sets
//! `taken`, makes all threads pass a barrier, then checks `inside`. Per-CPU arrays in restartable
//! sequences were measured against this (`examples/thread_cache.rs`): they are no faster, and this
//! works on any architecture and with any C library.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

use pageyard::{Gfp, MAX_ORDER, MigrateType, Order, PAGE_SIZE, PAGEBLOCK_ORDER};

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, COUNT_BITS, light_barrier};

/// Maximum number of blocks of a kind.
pub(crate) const ROOM: usize = COUNT as usize - 1;
/// Mask of the count in a stack's head.
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Number of orders.
pub(crate) const ORDERS: usize = MAX_ORDER as usize + 1;
/// Bits that are 0 in the address of a page.
pub(crate) const TAG: usize = PAGE_SIZE as usize - 1;
/// Number of kinds.
pub(crate) const KINDS: usize = 11;

/// Kinds that a magazine keeps apart, by order and migrate type: the orders that per-CPU lists keep, of
/// reclaimable memory single pages alone. So the cache mixes types no more than blocks in use do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Unmovable,
    Movable,
    Reclaimable,
    Unmovable8K,
    Movable8K,
    Unmovable16K,
    Movable16K,
    Unmovable32K,
    Movable32K,
    HugeUnmovable,
    HugeMovable,
}

/// Flags of requests that any block of the type on the thread's node satisfies.
const PLAIN: Gfp = Gfp::DMA.union(Gfp::DMA32).union(Gfp::THISNODE).union(Gfp::ACCOUNT).complement();

impl Kind {
    pub(crate) const ALL: [Kind; KINDS] = [
        Kind::Unmovable,
        Kind::Movable,
        Kind::Reclaimable,
        Kind::Unmovable8K,
        Kind::Movable8K,
        Kind::Unmovable16K,
        Kind::Movable16K,
        Kind::Unmovable32K,
        Kind::Movable32K,
        Kind::HugeUnmovable,
        Kind::HugeMovable,
    ];

    /// Returns the kind of block that a request gets; `None` if a magazine does not keep it.
    #[inline(always)]
    pub(crate) fn of(order: Order, gfp: Gfp) -> Option<Kind> {
        if PLAIN.contains(gfp) { Kind::of_type(order, gfp.migrate_type()?) } else { None }
    }

    /// Returns the kind of a block of this order and type.
    #[inline(always)]
    pub(crate) fn of_type(order: Order, t: MigrateType) -> Option<Kind> {
        match (order.get(), t) {
            (0, MigrateType::Unmovable) => Some(Kind::Unmovable),
            (0, MigrateType::Movable) => Some(Kind::Movable),
            (0, MigrateType::Reclaimable) => Some(Kind::Reclaimable),
            (1, MigrateType::Unmovable) => Some(Kind::Unmovable8K),
            (1, MigrateType::Movable) => Some(Kind::Movable8K),
            (2, MigrateType::Unmovable) => Some(Kind::Unmovable16K),
            (2, MigrateType::Movable) => Some(Kind::Movable16K),
            (3, MigrateType::Unmovable) => Some(Kind::Unmovable32K),
            (3, MigrateType::Movable) => Some(Kind::Movable32K),
            (PAGEBLOCK_ORDER, MigrateType::Unmovable) => Some(Kind::HugeUnmovable),
            (PAGEBLOCK_ORDER, MigrateType::Movable) => Some(Kind::HugeMovable),
            _ => None,
        }
    }

    /// Returns whether these are single pages, which are refilled and flushed many at a time. Of the
    /// others a magazine keeps only what its thread frees: there are few to share.
    pub(crate) fn is_single(self) -> bool {
        self.order() == Order::ZERO
    }

    pub(crate) fn order(self) -> Order {
        let order = match self {
            Kind::Unmovable | Kind::Movable | Kind::Reclaimable => 0,
            Kind::Unmovable8K | Kind::Movable8K => 1,
            Kind::Unmovable16K | Kind::Movable16K => 2,
            Kind::Unmovable32K | Kind::Movable32K => 3,
            Kind::HugeUnmovable | Kind::HugeMovable => PAGEBLOCK_ORDER,
        };
        Order::new(order).unwrap_or_default()
    }
}

/// A block in a magazine: its address, and in the lowest bit whether it is known to be zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready(NonNull<u8>);

impl Ready {
    #[inline(always)]
    pub(crate) fn new(start: NonNull<u8>, zero: bool) -> Ready {
        Ready(start.map_addr(|a| a | usize::from(zero)))
    }

    #[inline(always)]
    pub(crate) fn is_zero(self) -> bool {
        self.0.addr().get() & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn start(self) -> NonNull<u8> {
        // Clears the whole tag, so that the compiler knows that these bits are 0.
        without(self.0, TAG)
    }
}

/// Returns a page's address without its tag bits.
#[inline(always)]
pub(crate) fn without(tagged: NonNull<u8>, tag: usize) -> NonNull<u8> {
    // SAFETY: no page begins at 0, so a bit outside the tag is set, because the tag is smaller than
    // a page (`known_zero_is_reported_once`).
    unsafe { NonNull::new_unchecked(tagged.as_ptr().map_addr(|a| a & !(tag & TAG))) }
}

/// Blocks of one kind, in last-in, first-out order.
#[repr(C, align(64))]
struct Stack {
    /// Number of blocks in the lowest bits; above them the number of blocks ever popped. One
    /// addition updates both.
    head: AtomicU64,
    /// Maximum number of blocks, at most [`ROOM`]; any thread may set it.
    limit: AtomicU64,
    /// One more than [`ROOM`], so that any value of the count bits is a valid index.
    blocks: [AtomicPtr<u8>; COUNT as usize + 1],
}

impl Stack {
    #[allow(dead_code)] // see `Magazine::new`
    fn new() -> Stack {
        Stack {
            head: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            blocks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    fn count(&self) -> u64 {
        self.head.load(Relaxed) & COUNT
    }

    #[inline(always)]
    fn pop(&self) -> Option<Ready> {
        let head = self.head.load(Relaxed);
        let count = head & COUNT;
        if count == 0 {
            return None;
        }
        let block = self.blocks[(count - 1) as usize].load(Relaxed);
        // One hit more, one block less; the hits wrap after years.
        self.head.store(head.wrapping_add(COUNT), Relaxed);
        // SAFETY: `push` and `fill` wrote the slots below the count, none of them null
        // (`a_limit_change_during_a_fill_keeps_blocks_intact`; loom's `fill`).
        Some(Ready(unsafe { NonNull::new_unchecked(block) }))
    }

    #[inline(always)]
    fn push(&self, block: Ready) -> bool {
        let head = self.head.load(Relaxed);
        let count = head & COUNT;
        if count >= self.limit.load(Relaxed) {
            return false;
        }
        self.blocks[count as usize].store(block.0.as_ptr(), Relaxed);
        // The limit is below the maximum of the count bits, so this does not carry.
        self.head.store(head.wrapping_add(1), Relaxed);
        true
    }

    /// Pushes as many of `blocks` as fit, the first on top. Returns how many of them it took, from
    /// the first.
    fn fill(&self, blocks: &[Option<Ready>]) -> usize {
        let head = self.head.load(Relaxed);
        let count = (head & COUNT) as usize;
        // Read once: another thread may lower the limit at any time, and exactly the blocks counted
        // here must be pushed.
        let room = (self.limit.load(Relaxed) as usize).saturating_sub(count);
        let n = blocks.len().min(room);
        let mut pushed = 0;
        for block in blocks[..n].iter().rev().flatten() {
            self.blocks[count + pushed].store(block.0.as_ptr(), Relaxed);
            pushed += 1;
        }
        self.head.store(head.wrapping_add(pushed as u64), Relaxed);
        n
    }

    /// Removes the `n` oldest blocks.
    fn take_cold(&self, n: usize, to: &mut [Option<Ready>]) -> usize {
        let head = self.head.load(Relaxed);
        let count = (head & COUNT) as usize;
        let n = n.min(count).min(to.len());
        for (slot, to) in self.blocks.iter().zip(&mut to[..n]) {
            *to = NonNull::new(slot.load(Relaxed)).map(Ready);
        }
        for at in n..count {
            self.blocks[at - n].store(self.blocks[at].load(Relaxed), Relaxed);
        }
        self.head.store(head - n as u64, Relaxed);
        n
    }
}

/// Slow path counters, written by the owner or by the thread that claimed the magazine.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) refills: AtomicU64,
    pub(crate) refilled: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) drains: AtomicU64,
    pub(crate) drained: AtomicU64,
}

/// Adds without a locked instruction: there is one writer at a time.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// What a magazine holds and has served, by order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Blocks in it.
    pub(crate) blocks: [u64; ORDERS],
    /// Requests served.
    pub(crate) hits: [u64; ORDERS],
}

impl Reading {
    /// Returns the pages of these blocks.
    pub(crate) fn pages(&self) -> u64 {
        self.blocks.iter().enumerate().map(|(order, n)| n << order).sum()
    }

    pub(crate) fn all_hits(&self) -> u64 {
        self.hits.iter().sum()
    }
}

/// One thread's blocks of one yard.
#[repr(C, align(128))]
pub(crate) struct Magazine {
    /// Set while the owner uses the stacks. Only the owner writes it.
    inside: AtomicU32,
    /// Set while another thread has claimed the magazine. Written under the lock of the yard's list
    /// of magazines.
    taken: AtomicU32,
    /// Address range of the owner's node: start and length in bytes.
    near: AtomicUsize,
    near_bytes: AtomicUsize,
    /// Thread ID of the owner.
    pub(crate) thread: u32,
    pub(crate) tally: Tally,
    /// Activity of each kind at the last call of `note_activity`.
    seen: [AtomicU64; KINDS],
    stacks: [Stack; KINDS],
}

impl Magazine {
    #[allow(dead_code)] // of loom's models and of tests
    pub(crate) fn new(thread: u32) -> Magazine {
        Magazine {
            inside: AtomicU32::default(),
            taken: AtomicU32::default(),
            near: AtomicUsize::new(0),
            near_bytes: AtomicUsize::new(0),
            thread,
            tally: Tally::default(),
            seen: std::array::from_fn(|_| AtomicU64::new(0)),
            stacks: std::array::from_fn(|_| Stack::new()),
        }
    }

    /// As [`new`](Magazine::new), but the magazine, of 12 KiB, is on no stack: a thread's first request may
    /// run on one of 16.
    pub(crate) fn on_heap(thread: u32) -> Box<Magazine> {
        let layout = Layout::new::<Magazine>();
        // SAFETY: the size is not 0. Zero is a magazine without blocks, all fields being numbers,
        // pointers and arrays of these; it is allocated by the layout of a box, which frees it
        // (`a_magazine_on_the_heap_is_empty`).
        let mut magazine = unsafe {
            let place = alloc_zeroed(layout);
            if place.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(place.cast::<Magazine>())
        };
        magazine.thread = thread;
        magazine
    }

    /// Runs `f` on the stacks for the owner; `None` while the magazine is claimed.
    #[inline(always)]
    fn enter<T>(&self, f: impl FnOnce(&[Stack; KINDS]) -> Option<T>) -> Option<T> {
        self.inside.store(1, Relaxed);
        light_barrier();
        let answer = if self.taken.load(Acquire) == 0 { f(&self.stacks) } else { None };
        self.inside.store(0, Release);
        answer
    }

    /// Pops a block of the kind. Called by the owner.
    #[inline(always)]
    pub(crate) fn pop(&self, kind: Kind) -> Option<Ready> {
        self.enter(|stacks| stacks[kind as usize].pop())
    }

    /// Keeps a block with arbitrary contents; `false` if it does not. Called by the owner.
    #[inline(always)]
    pub(crate) fn push(&self, kind: Kind, start: NonNull<u8>) -> bool {
        self.is_near(start)
            && self.enter(|s| s[kind as usize].push(Ready(start)).then_some(())).is_some()
    }

    /// Returns whether a block lies on the owner's node.
    #[inline(always)]
    pub(crate) fn is_near(&self, start: NonNull<u8>) -> bool {
        let at = start.as_ptr().addr().wrapping_sub(self.near.load(Relaxed));
        at < self.near_bytes.load(Relaxed)
    }

    /// Sets the address range of the owner's node. Returns whether the owner is still on the same
    /// node. Called by the owner.
    pub(crate) fn set_near(&self, start: usize, bytes: usize) -> bool {
        let was = self.near.load(Relaxed);
        self.near.store(start, Relaxed);
        self.near_bytes.store(bytes, Relaxed);
        was == start || was == 0
    }

    /// Keeps fetched blocks, as many as fit, the first on top. Returns how many of `blocks` the
    /// magazine took, counted from the first; the caller still owns exactly the rest. Called by the
    /// owner.
    pub(crate) fn fill(&self, kind: Kind, blocks: &[Option<Ready>]) -> usize {
        #[cfg(feature = "planted")]
        if crate::planted::FILL_READS_LIMIT_AGAIN.load(Relaxed) {
            return self.fill_rereading_limit(kind, blocks);
        }
        self.enter(|stacks| Some(stacks[kind as usize].fill(blocks))).unwrap_or(0)
    }

    /// [`fill`](Magazine::fill) with a past defect: each push reads the limit again.
    #[cfg(feature = "planted")]
    fn fill_rereading_limit(&self, kind: Kind, blocks: &[Option<Ready>]) -> usize {
        let put = self.enter(|stacks| {
            let stack = &stacks[kind as usize];
            let room = stack.limit.load(Relaxed).saturating_sub(stack.count());
            let n = blocks.len().min(room as usize);
            Some(blocks[..n].iter().rev().flatten().take_while(|b| stack.push(**b)).count())
        });
        put.unwrap_or(0)
    }

    /// Removes the `n` oldest blocks and returns their number. Called by the owner.
    pub(crate) fn take_cold(&self, kind: Kind, n: usize, to: &mut [Option<Ready>]) -> usize {
        self.enter(|stacks| Some(stacks[kind as usize].take_cold(n, to))).unwrap_or(0)
    }

    pub(crate) fn limit(&self, kind: Kind) -> u32 {
        self.stacks[kind as usize].limit.load(Relaxed) as u32
    }

    /// Sets how many blocks of a kind the magazine may keep; blocks above the limit stay. Called by
    /// any thread.
    pub(crate) fn set_limit(&self, kind: Kind, limit: u32) {
        self.stacks[kind as usize].limit.store(u64::from(limit).min(ROOM as u64), Relaxed);
    }

    /// Returns the number of pages in it; may be stale when read by another thread.
    pub(crate) fn pages(&self) -> u64 {
        let pages = |k: &Kind| self.stacks[*k as usize].count() * u64::from(k.order().pages());
        Kind::ALL.iter().map(pages).sum()
    }

    /// Returns what it holds and has served. Another thread reads each kind as it is at one moment.
    pub(crate) fn reading(&self) -> Reading {
        let mut all = Reading::default();
        for kind in Kind::ALL {
            let head = self.stacks[kind as usize].head.load(Relaxed);
            let order = usize::from(kind.order().get());
            all.hits[order] += head / (COUNT + 1);
            all.blocks[order] += head & COUNT;
        }
        all
    }

    /// Returns whether it has blocks of the kind; may be stale when read by another thread.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.stacks[kind as usize].count() > 0
    }

    /// Returns a number that differs if the owner used the kind in the meantime.
    fn activity(&self, kind: Kind) -> u64 {
        let head = self.stacks[kind as usize].head.load(Relaxed);
        if !kind.is_single() {
            // Neither refilled nor flushed, so that every use changes the head.
            return head;
        }
        let slow = self.tally.refills.load(Relaxed) + self.tally.flushes.load(Relaxed);
        head.wrapping_add(slow << 48)
    }

    /// Returns whether the magazine has blocks of the kind that its owner has not used since
    /// `note_activity`.
    pub(crate) fn is_idle(&self, kind: Kind) -> bool {
        self.has(kind) && self.activity(kind) == self.seen[kind as usize].load(Relaxed)
    }

    /// Begins another period for `is_idle`.
    pub(crate) fn note_activity(&self) {
        Kind::ALL.iter().for_each(|&k| self.seen[k as usize].store(self.activity(k), Relaxed));
    }

    /// Announces the claim of a thread other than the owner. A barrier must follow, and in any case
    /// [`release_claim`](Magazine::release_claim).
    pub(crate) fn claim(&self) {
        self.taken.store(1, Relaxed);
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.taken.load(Relaxed) != 0
    }

    /// Returns whether the owner is outside, and so stays outside until `release_claim`. Called
    /// after the barrier.
    pub(crate) fn owner_is_outside(&self) -> bool {
        self.inside.load(Acquire) == 0
    }

    /// Drains a kind. The caller must hold the claim.
    pub(crate) fn take_all(&self, kind: Kind, to: &mut [Option<Ready>; ROOM]) -> usize {
        self.stacks[kind as usize].take_cold(ROOM, to)
    }

    /// Releases the claim.
    pub(crate) fn release_claim(&self) {
        self.taken.store(0, Release);
    }
}

/// Returns the size of a block of a kind in bytes.
pub(crate) fn bytes(kind: Kind) -> usize {
    (u64::from(kind.order().pages()) * PAGE_SIZE) as usize
}

/// Number of yards whose magazine a thread finds directly; beyond that it searches.
const SEATS: usize = 4;

/// A yard's ID and the thread's magazine for it.
#[derive(Clone, Copy)]
struct Seat {
    yard: u64,
    magazine: *const Magazine,
}

/// Matches no yard, not even those without a cache, whose ID is 0.
const EMPTY: Seat = Seat { yard: u64::MAX, magazine: ptr::null() };

thread_local! {
    // Without a destructor, so that the access is an offset from the thread pointer.
    static SEAT: [Cell<Seat>; SEATS] = const { [const { Cell::new(EMPTY) }; SEATS] };
}

/// Returns whether the calling thread finds its magazine of a yard directly.
#[inline(always)]
pub(crate) fn has_mine(yard: u64) -> bool {
    SEAT.with(|seats| seats[yard as usize % SEATS].get().yard == yard)
}

/// Runs `f` on the calling thread's magazine of a yard; `None` if it has no seat. Yard IDs are
/// above 0 and never reused.
#[inline(always)]
pub(crate) fn with_mine<T>(yard: u64, f: impl FnOnce(&Magazine) -> Option<T>) -> Option<T> {
    SEAT.with(|seats| {
        let seat = seats[yard as usize % SEATS].get();
        if seat.yard != yard {
            return None;
        }
        // SAFETY: the caller of `set_mine` keeps the magazine alive until the seat is cleared or
        // the yard is no longer used. Nothing in `f` clears the seat
        // (`a_yard_is_dropped_before_its_threads_exit`).
        f(unsafe { &*seat.magazine })
    })
}

/// Sets the calling thread's magazine of a yard.
///
/// # Safety
/// The magazine lives until [`forget_all`] is called on this thread, or the yard is no longer
/// used.
pub(crate) unsafe fn set_mine(yard: u64, magazine: *const Magazine) {
    SEAT.with(|seats| seats[yard as usize % SEATS].set(Seat { yard, magazine }));
}

/// Clears all seats of the calling thread.
pub(crate) fn forget_all() {
    SEAT.with(|seats| seats.iter().for_each(|seat| seat.set(EMPTY)));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn block(n: usize) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(n * PAGE_SIZE as usize)).unwrap()
    }

    fn magazine() -> Magazine {
        let m = Magazine::new(1);
        m.set_near(PAGE_SIZE as usize, 1000 * PAGE_SIZE as usize);
        m.set_limit(Kind::Movable, 4);
        m
    }

    #[test]
    fn a_magazine_is_a_bounded_stack() {
        let m = magazine();
        assert!((1..=4).all(|n| m.push(Kind::Movable, block(n))));
        assert!(!m.push(Kind::Movable, block(5)));
        assert!(!m.push(Kind::Unmovable, block(5)));
        assert!(m.pop(Kind::Unmovable).is_none());
        let mut cold = [None; ROOM];
        assert_eq!(m.take_cold(Kind::Movable, 2, &mut cold), 2);
        assert_eq!(
            cold[..2].iter().flatten().map(|b| b.start()).collect::<Vec<_>>(),
            [block(1), block(2)]
        );
        let out = [(); 3].map(|()| m.pop(Kind::Movable).map(Ready::start));
        assert_eq!(out, [Some(block(4)), Some(block(3)), None]);
        assert_eq!(m.reading().all_hits(), 2);
    }

    #[test]
    fn blocks_of_another_node_are_not_cached() {
        let m = magazine();
        assert!(!m.push(Kind::Movable, block(1001)));
        assert!(m.push(Kind::Movable, block(1000)));
    }

    #[test]
    fn known_zero_is_reported_once() {
        let m = magazine();
        assert_eq!(m.fill(Kind::Movable, &[Some(Ready::new(block(1), true))]), 1);
        let got = m.pop(Kind::Movable).unwrap();
        assert!(got.is_zero());
        assert_eq!(got.start(), block(1));
        m.push(Kind::Movable, got.start());
        assert!(!m.pop(Kind::Movable).unwrap().is_zero());
    }

    #[test]
    fn a_limit_change_during_a_fill_keeps_blocks_intact() {
        let (m, done) = (magazine(), AtomicBool::new(false));
        let blocks: Vec<_> = (1..=8).map(|n| Some(Ready::new(block(n), false))).collect();
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Relaxed) {
                    m.set_limit(Kind::Movable, 0);
                    m.set_limit(Kind::Movable, 8);
                }
            });
            let keeps_what_it_says = |_| {
                let n = m.fill(Kind::Movable, &blocks);
                let kept = std::iter::from_fn(|| m.pop(Kind::Movable)).map(Ready::start);
                kept.eq(blocks[..n].iter().flatten().map(|b| b.start()))
            };
            let rounds = if cfg!(miri) { 50 } else { 500_000 };
            let well = (0..rounds).all(keeps_what_it_says);
            done.store(true, Relaxed);
            assert!(well, "the magazine has other blocks than it says");
        });
    }

    #[test]
    fn a_claimed_magazine_is_closed_to_its_owner() {
        let m = magazine();
        m.push(Kind::Movable, block(1));
        m.claim();
        assert!(m.owner_is_outside());
        assert!(m.pop(Kind::Movable).is_none() && !m.push(Kind::Movable, block(2)));
        let mut all = [None; ROOM];
        assert_eq!(m.take_all(Kind::Movable, &mut all), 1);
        m.release_claim();
        assert!(m.pop(Kind::Movable).is_none() && m.push(Kind::Movable, block(2)));
    }

    #[test]
    fn an_owner_that_is_inside_is_waited_for() {
        let m = magazine();
        assert!(m.owner_is_outside() && !m.is_claimed());
        let inside = m.enter(|_| {
            m.claim();
            Some((m.owner_is_outside(), m.is_claimed()))
        });
        assert_eq!(inside, Some((false, true)));
        assert!(m.owner_is_outside());
        assert_eq!(m.enter(|_| Some(())), None, "while it is claimed");
        m.release_claim();
        assert_eq!(m.enter(|_| Some(())), Some(()));
    }

    /// Returns whether pages, and whether blocks of 2 MiB, are idle, and begins another period.
    fn idle(m: &Magazine) -> (bool, bool) {
        let idle = (m.is_idle(Kind::Movable), m.is_idle(Kind::HugeMovable));
        m.note_activity();
        idle
    }

    #[test]
    fn unused_kinds_are_idle() {
        let m = magazine();
        m.set_limit(Kind::HugeMovable, 4);
        assert!(m.push(Kind::Movable, block(1)) && m.push(Kind::HugeMovable, block(512)));
        assert_eq!(idle(&m), (false, false));
        assert_eq!(idle(&m), (true, true));
        m.pop(Kind::Movable);
        m.push(Kind::Movable, block(1));
        assert_eq!(idle(&m), (false, true), "the same pages are there, but they were used");
        m.pop(Kind::HugeMovable);
        m.push(Kind::HugeMovable, block(512));
        assert_eq!(idle(&m), (true, false));
        m.pop(Kind::Movable);
        m.pop(Kind::HugeMovable);
        m.note_activity();
        assert_eq!(idle(&m), (false, false), "nothing is there");
    }

    #[test]
    fn activity_on_slow_paths_is_not_idle() {
        let m = magazine();
        m.set_limit(Kind::HugeMovable, 4);
        assert!(m.push(Kind::Movable, block(1)) && m.push(Kind::HugeMovable, block(512)));
        m.note_activity();
        for counter in [&m.tally.flushes, &m.tally.refills, &m.tally.flushes] {
            add(counter, 1);
            assert_eq!(idle(&m), (false, true), "blocks of 2 MiB are moved one by one");
            assert_eq!(idle(&m), (true, true));
        }
    }

    #[test]
    fn every_hit_is_counted() {
        let m = magazine();
        // More than a byte can count.
        for n in 1..=150 {
            assert!(m.push(Kind::Movable, block(1)) && m.push(Kind::Movable, block(2)));
            assert_eq!(m.pages(), 2);
            assert_eq!(m.pop(Kind::Movable).map(Ready::start), Some(block(2)));
            assert_eq!(m.pop(Kind::Movable).map(Ready::start), Some(block(1)));
            assert_eq!((m.reading().all_hits(), m.pages()), (2 * n, 0));
        }
    }

    #[test]
    fn a_reading_counts_by_order() {
        let m = magazine();
        for kind in [Kind::Movable16K, Kind::Unmovable16K, Kind::HugeMovable] {
            m.set_limit(kind, 4);
        }
        assert!((1..=4).all(|n| m.push(Kind::Movable, block(n))));
        assert!((101..=104).all(|n| m.push(Kind::HugeMovable, block(n))));
        assert!((5..=7).all(|n| m.push(Kind::Movable16K, block(4 * n))));
        assert!(m.push(Kind::Unmovable16K, block(4 * 8)));
        assert!(m.pop(Kind::Movable).is_some() && m.pop(Kind::Movable16K).is_some());
        assert!((0..2).all(|_| m.pop(Kind::HugeMovable).is_some()));
        let reading = m.reading();
        assert_eq!([0, 1, 2, 9].map(|order| reading.blocks[order]), [3, 0, 3, 2]);
        assert_eq!([0, 1, 2, 9].map(|order| reading.hits[order]), [1, 0, 1, 2]);
        assert_eq!((reading.pages(), reading.all_hits()), (3 + 3 * 4 + 2 * 512, 4));
        assert_eq!(m.pages(), reading.pages());
    }

    #[test]
    fn a_full_magazine_keeps_the_order_of_its_blocks() {
        let m = magazine();
        m.set_limit(Kind::Movable, u32::MAX);
        assert!((1..=ROOM).all(|n| m.push(Kind::Movable, block(n))));
        assert!(!m.push(Kind::Movable, block(ROOM + 1)));
        assert_eq!(m.pages(), ROOM as u64);
        let mut cold = [None; ROOM];
        assert_eq!(m.take_cold(Kind::Movable, 50, &mut cold), 50);
        let starts = |blocks: &[Option<Ready>]| -> Vec<_> {
            blocks.iter().flatten().map(|b| b.start()).collect()
        };
        assert_eq!(starts(&cold), (1..=50).map(block).collect::<Vec<_>>());
        // Those that are left, in between; the first of what is filled is on top.
        let more = [Some(Ready::new(block(201), true)), Some(Ready::new(block(202), false))];
        assert_eq!(m.fill(Kind::Movable, &more), 2);
        let mut all = [None; ROOM];
        assert_eq!(m.take_all(Kind::Movable, &mut all), ROOM - 50 + 2);
        let wanted: Vec<_> = (51..=ROOM).chain([202, 201]).map(block).collect();
        assert_eq!(starts(&all), wanted);
        assert_eq!((m.pages(), m.reading().all_hits()), (0, 0));
    }

    #[test]
    fn a_magazine_on_the_heap_is_empty() {
        let m = Magazine::on_heap(7);
        assert_eq!((m.thread, m.pages(), m.reading().all_hits()), (7, 0, 0));
        assert!(!m.push(Kind::Movable, block(1)), "it may keep nothing yet");
        m.set_near(PAGE_SIZE as usize, 1000 * PAGE_SIZE as usize);
        m.set_limit(Kind::Movable, 4);
        assert!(m.push(Kind::Movable, block(1)) && m.pop(Kind::Movable).is_some());
    }

    #[test]
    fn a_kind_is_its_place_among_all() {
        for (n, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, n);
            let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
            let of = types.into_iter().filter(|&t| Kind::of_type(kind.order(), t) == Some(kind));
            assert_eq!(of.count(), 1, "{kind:?}");
        }
    }

    #[test]
    fn only_plain_requests_have_a_kind() {
        let (one, huge) = (Order::ZERO, Order::HUGE);
        let (movable, reclaimable) = (Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE);
        for (order, gfp, kind) in [
            (one, Gfp::KERNEL, Some(Kind::Unmovable)),
            (one, movable, Some(Kind::Movable)),
            (one, reclaimable | Gfp::ZERO, Some(Kind::Reclaimable)),
            (huge, Gfp::KERNEL, Some(Kind::HugeUnmovable)),
            (huge, movable, Some(Kind::HugeMovable)),
            (huge, reclaimable, None),
            (Order::new(1).unwrap(), Gfp::KERNEL, Some(Kind::Unmovable8K)),
            (Order::new(2).unwrap(), movable, Some(Kind::Movable16K)),
            (Order::new(2).unwrap(), reclaimable, None),
            (Order::new(3).unwrap(), movable | Gfp::ZERO, Some(Kind::Movable32K)),
            (Order::new(4).unwrap(), Gfp::KERNEL, None),
            (Order::MAX, movable, None),
            (one, Gfp::KERNEL | Gfp::THISNODE, None),
            (one, Gfp::KERNEL | Gfp::DMA, None),
            (one, movable | Gfp::RECLAIMABLE, None),
        ] {
            assert_eq!(Kind::of(order, gfp), kind, "{order:?} {gfp:?}");
            if let Some(kind) = kind {
                assert_eq!((kind.order(), kind.is_single()), (order, order == one));
                assert_eq!(bytes(kind) as u64, u64::from(order.pages()) * PAGE_SIZE);
            }
        }
    }
}
