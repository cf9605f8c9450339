//! A thread's own blocks of a yard, which it takes and puts back without a lock.
//!
//! Others take them away by a handshake that costs the owner two plain stores (see
//! [`barrier`](crate::barrier)): the owner says that he is inside, then looks whether the magazine
//! is taken; who takes it away says so, lets all threads pass a barrier, then looks whether the
//! owner is inside. The blocks were measured against arrays by CPU in restartable sequences
//! (`examples/front.rs`): as fast, and this works on any architecture and with any C library.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use pageyard::{Gfp, MigrateType, Order, PAGE_SIZE, PAGEBLOCK_ORDER};

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, light_barrier};

/// The most blocks of a kind.
pub(crate) const ROOM: usize = 126;
/// Bits that are 0 in the address of a page.
pub(crate) const TAG: usize = PAGE_SIZE as usize - 1;
/// Kinds of blocks.
pub(crate) const KINDS: usize = 5;

/// What a magazine keeps apart: single pages and those of 2 MiB, by their type, so that types mix
/// no more than they do while the blocks are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Unmovable,
    Movable,
    Reclaimable,
    HugeUnmovable,
    HugeMovable,
}

/// Requests that any block of the type on the thread's node will do for.
const PLAIN: Gfp = Gfp::DMA.union(Gfp::DMA32).union(Gfp::THISNODE).union(Gfp::ACCOUNT).complement();

impl Kind {
    pub(crate) const ALL: [Kind; KINDS] =
        [Kind::Unmovable, Kind::Movable, Kind::Reclaimable, Kind::HugeUnmovable, Kind::HugeMovable];

    /// Of what such a request gets; `None`: a magazine has nothing for it.
    #[inline(always)]
    pub(crate) fn of(order: Order, gfp: Gfp) -> Option<Kind> {
        if PLAIN.contains(gfp) { Kind::of_type(order, gfp.migrate_type()?) } else { None }
    }

    /// Of a block of a type.
    #[inline(always)]
    pub(crate) fn of_type(order: Order, t: MigrateType) -> Option<Kind> {
        match (order.get(), t) {
            (0, MigrateType::Unmovable) => Some(Kind::Unmovable),
            (0, MigrateType::Movable) => Some(Kind::Movable),
            (0, MigrateType::Reclaimable) => Some(Kind::Reclaimable),
            (PAGEBLOCK_ORDER, MigrateType::Unmovable) => Some(Kind::HugeUnmovable),
            (PAGEBLOCK_ORDER, MigrateType::Movable) => Some(Kind::HugeMovable),
            _ => None,
        }
    }

    pub(crate) fn is_huge(self) -> bool {
        matches!(self, Kind::HugeUnmovable | Kind::HugeMovable)
    }

    pub(crate) fn order(self) -> Order {
        let order = if self.is_huge() { PAGEBLOCK_ORDER } else { 0 };
        Order::new(order).unwrap_or_default()
    }
}

/// A block in a magazine: where it is, and in the lowest bit whether it is known to be zeros.
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
        // All of the tag: so the compiler sees that the bits are 0.
        without(self.0, TAG)
    }
}

/// A page's address without what was added to it.
#[inline(always)]
pub(crate) fn without(tagged: NonNull<u8>, tag: usize) -> NonNull<u8> {
    // SAFETY: no page begins at 0, so another bit is set than those of the tag, which is smaller
    // than a page (`what_is_known_to_be_zero_is_known_once`).
    unsafe { NonNull::new_unchecked(tagged.as_ptr().map_addr(|a| a & !(tag & TAG))) }
}

/// Blocks of one kind; the last in is the first out.
#[repr(C, align(64))]
struct Stack {
    /// How many there are in the lowest bits, above them how many were ever popped: so that one
    /// addition counts both.
    head: AtomicU64,
    /// How many it may have, at most [`ROOM`]: anybody sets it.
    limit: AtomicU64,
    /// One more than there may be: any count that fits in its bits is an index.
    blocks: [AtomicPtr<u8>; COUNT as usize + 1],
}

/// The bits of the count.
const COUNT: u64 = 127;

impl Stack {
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

    fn hits(&self) -> u64 {
        self.head.load(Relaxed) / (COUNT + 1)
    }

    #[inline(always)]
    fn pop(&self) -> Option<Ready> {
        let head = self.head.load(Relaxed);
        let count = head & COUNT;
        if count == 0 {
            return None;
        }
        let block = self.blocks[(count - 1) as usize].load(Relaxed);
        // One more hit, one block less; the hits wrap after years.
        self.head.store(head.wrapping_add(COUNT), Relaxed);
        // SAFETY: `push` and `fill` wrote what lies below the count, none of it null
        // (`a_limit_that_changes_during_a_fill_neither_loses_nor_doubles_a_block`; loom's `fill`).
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
        // The limit is below the most that the count can be.
        self.head.store(head.wrapping_add(1), Relaxed);
        true
    }

    /// Pushes as many of `blocks` as fit, the first of them on top; how many of them, from the first.
    fn fill(&self, blocks: &[Option<Ready>]) -> usize {
        let head = self.head.load(Relaxed);
        let count = (head & COUNT) as usize;
        // Read once: another thread may lower it at any time, and what is counted here must be what
        // is pushed.
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

    /// Takes the `n` blocks that lie there longest.
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

/// Counters of slow ways; the owner's, or of whoever has taken the magazine away.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) refills: AtomicU64,
    pub(crate) refilled: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) drains: AtomicU64,
    pub(crate) drained: AtomicU64,
}

/// A plain addition: one writes at a time.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// One thread's blocks of one yard.
#[repr(C, align(128))]
pub(crate) struct Magazine {
    /// The owner is at the stacks. Only he writes it.
    inside: AtomicU32,
    /// Somebody else is, or will be. Written under the lock of the yard's list of magazines.
    taken: AtomicU32,
    /// What lies on the owner's node: addresses from here on, and how many.
    near: AtomicUsize,
    near_bytes: AtomicUsize,
    /// The owner, as the system numbers threads.
    pub(crate) thread: u32,
    pub(crate) tally: Tally,
    /// What the activity was when it was last asked for.
    seen: AtomicU64,
    stacks: [Stack; KINDS],
}

impl Magazine {
    pub(crate) fn new(thread: u32) -> Magazine {
        Magazine {
            inside: AtomicU32::default(),
            taken: AtomicU32::default(),
            near: AtomicUsize::new(0),
            near_bytes: AtomicUsize::new(0),
            thread,
            tally: Tally::default(),
            seen: AtomicU64::new(0),
            stacks: std::array::from_fn(|_| Stack::new()),
        }
    }

    /// The owner's way to the stacks; `None` while the magazine is taken.
    #[inline(always)]
    fn enter<T>(&self, f: impl FnOnce(&[Stack; KINDS]) -> Option<T>) -> Option<T> {
        self.inside.store(1, Relaxed);
        light_barrier();
        let answer = if self.taken.load(Acquire) == 0 { f(&self.stacks) } else { None };
        self.inside.store(0, Release);
        answer
    }

    /// By the owner: a block of the kind.
    #[inline(always)]
    pub(crate) fn pop(&self, kind: Kind) -> Option<Ready> {
        self.enter(|stacks| stacks[kind as usize].pop())
    }

    /// By the owner: keeps a block, whose contents are anything. `false`: it does not.
    #[inline(always)]
    pub(crate) fn push(&self, kind: Kind, start: NonNull<u8>) -> bool {
        self.is_near(start)
            && self.enter(|s| s[kind as usize].push(Ready(start)).then_some(())).is_some()
    }

    /// Whether a block lies on the owner's node.
    #[inline(always)]
    pub(crate) fn is_near(&self, start: NonNull<u8>) -> bool {
        let at = start.as_ptr().addr().wrapping_sub(self.near.load(Relaxed));
        at < self.near_bytes.load(Relaxed)
    }

    /// By the owner: blocks on his node lie there. Whether he is still on the node he was on.
    pub(crate) fn set_near(&self, start: usize, bytes: usize) -> bool {
        let was = self.near.load(Relaxed);
        self.near.store(start, Relaxed);
        self.near_bytes.store(bytes, Relaxed);
        was == start || was == 0
    }

    /// Keeps fetched blocks, as many as fit, the first of them on top. Returns how many of `blocks`
    /// the magazine has now, counted from the first: the caller still has exactly the rest. For the
    /// owner.
    pub(crate) fn fill(&self, kind: Kind, blocks: &[Option<Ready>]) -> usize {
        #[cfg(feature = "planted")]
        if crate::planted::FILL_READS_LIMIT_AGAIN.load(Relaxed) {
            return self.fill_as_it_was(kind, blocks);
        }
        self.enter(|stacks| Some(stacks[kind as usize].fill(blocks))).unwrap_or(0)
    }

    /// [`fill`](Magazine::fill) as it once was: each push reads the limit again.
    #[cfg(feature = "planted")]
    fn fill_as_it_was(&self, kind: Kind, blocks: &[Option<Ready>]) -> usize {
        let put = self.enter(|stacks| {
            let stack = &stacks[kind as usize];
            let room = stack.limit.load(Relaxed).saturating_sub(stack.count());
            let n = blocks.len().min(room as usize);
            Some(blocks[..n].iter().rev().flatten().take_while(|b| stack.push(**b)).count())
        });
        put.unwrap_or(0)
    }

    /// By the owner: gives up the `n` blocks that lie there longest; how many there were.
    pub(crate) fn take_cold(&self, kind: Kind, n: usize, to: &mut [Option<Ready>]) -> usize {
        self.enter(|stacks| Some(stacks[kind as usize].take_cold(n, to))).unwrap_or(0)
    }

    pub(crate) fn limit(&self, kind: Kind) -> u32 {
        self.stacks[kind as usize].limit.load(Relaxed) as u32
    }

    /// By anybody: how many blocks of a kind it may have from now on. What it has, it keeps.
    pub(crate) fn set_limit(&self, kind: Kind, limit: u32) {
        self.stacks[kind as usize].limit.store(u64::from(limit).min(ROOM as u64), Relaxed);
    }

    /// Pages in it, as seen from afar.
    pub(crate) fn pages(&self) -> u64 {
        let pages = |k: &Kind| self.stacks[*k as usize].count() * u64::from(k.order().pages());
        Kind::ALL.iter().map(pages).sum()
    }

    /// Requests that it served.
    pub(crate) fn hits(&self) -> u64 {
        self.stacks.iter().map(Stack::hits).sum()
    }

    /// Whether nothing happened to it since this was asked before; one asks at a time.
    pub(crate) fn is_idle(&self) -> bool {
        let slow = self.tally.refills.load(Relaxed) + self.tally.flushes.load(Relaxed);
        let now = self.hits().wrapping_add(slow << 24).wrapping_add(self.pages() << 48);
        self.seen.swap(now, Relaxed) == now
    }

    /// By another than the owner: says that he wants it. To be followed by a barrier, and in any
    /// case by [`give_up`](Magazine::give_up).
    pub(crate) fn claim(&self) {
        self.taken.store(1, Relaxed);
    }

    pub(crate) fn is_claimed(&self) -> bool {
        self.taken.load(Relaxed) != 0
    }

    /// After the barrier: whether the owner is outside, and so will stay there.
    pub(crate) fn is_left(&self) -> bool {
        self.inside.load(Acquire) == 0
    }

    /// By the one whose it is now: takes what is there.
    pub(crate) fn take_all(&self, kind: Kind, to: &mut [Option<Ready>; ROOM]) -> usize {
        self.stacks[kind as usize].take_cold(ROOM, to)
    }

    /// It is the owner's again.
    pub(crate) fn give_up(&self) {
        self.taken.store(0, Release);
    }
}

/// Bytes of a kind's blocks.
pub(crate) fn bytes(kind: Kind) -> usize {
    (u64::from(kind.order().pages()) * PAGE_SIZE) as usize
}

/// How many yards a thread finds its magazines of at once; with more, it searches.
const SEATS: usize = 4;

/// A yard's number, and the thread's magazine of it.
#[derive(Clone, Copy)]
struct Seat {
    yard: u64,
    magazine: *const Magazine,
}

/// Of no yard: not even of those without a cache, which all have number 0.
const EMPTY: Seat = Seat { yard: u64::MAX, magazine: ptr::null() };

thread_local! {
    // Without a destructor, so that finding it is an addition to the thread pointer.
    static SEAT: [Cell<Seat>; SEATS] = const { [const { Cell::new(EMPTY) }; SEATS] };
}

/// Whether the calling thread finds its magazine of a yard at once.
#[inline(always)]
pub(crate) fn has_seat(yard: u64) -> bool {
    SEAT.with(|seats| seats[yard as usize % SEATS].get().yard == yard)
}

/// Asks the calling thread's magazine of a yard; `None` where it has none at hand. Yards have
/// numbers above 0 that are never used again.
#[inline(always)]
pub(crate) fn with_mine<T>(yard: u64, f: impl FnOnce(&Magazine) -> Option<T>) -> Option<T> {
    SEAT.with(|seats| {
        let seat = seats[yard as usize % SEATS].get();
        if seat.yard != yard {
            return None;
        }
        // SAFETY: whoever sits there keeps the magazine alive for as long as the yard is asked for and
        // the seat is not left (`sit`); and nothing in `f` leaves it
        // (`yards_go_while_threads_that_used_them_stay`).
        f(unsafe { &*seat.magazine })
    })
}

/// The thread finds this magazine from now on.
///
/// # Safety
/// It lives until [`forget_seats`] was called on this thread, or nobody asks for the yard any more.
pub(crate) unsafe fn sit(yard: u64, magazine: *const Magazine) {
    SEAT.with(|seats| seats[yard as usize % SEATS].set(Seat { yard, magazine }));
}

/// The calling thread finds no magazine of any yard any more.
pub(crate) fn forget_seats() {
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
    fn the_last_in_is_the_first_out_and_no_more_than_allowed() {
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
        assert_eq!(m.hits(), 2);
    }

    #[test]
    fn blocks_of_another_node_are_not_kept() {
        let m = magazine();
        assert!(!m.push(Kind::Movable, block(1001)));
        assert!(m.push(Kind::Movable, block(1000)));
    }

    #[test]
    fn what_is_known_to_be_zero_is_known_once() {
        let m = magazine();
        assert_eq!(m.fill(Kind::Movable, &[Some(Ready::new(block(1), true))]), 1);
        let got = m.pop(Kind::Movable).unwrap();
        assert!(got.is_zero());
        assert_eq!(got.start(), block(1));
        m.push(Kind::Movable, got.start());
        assert!(!m.pop(Kind::Movable).unwrap().is_zero());
    }

    #[test]
    fn a_limit_that_changes_during_a_fill_neither_loses_nor_doubles_a_block() {
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
        assert!(m.is_left());
        assert!(m.pop(Kind::Movable).is_none() && !m.push(Kind::Movable, block(2)));
        let mut all = [None; ROOM];
        assert_eq!(m.take_all(Kind::Movable, &mut all), 1);
        m.give_up();
        assert!(m.pop(Kind::Movable).is_none() && m.push(Kind::Movable, block(2)));
    }

    #[test]
    fn idle_is_what_nobody_used() {
        let m = magazine();
        m.is_idle();
        assert!(m.is_idle());
        m.push(Kind::Movable, block(1));
        assert!(!m.is_idle());
        assert!(m.is_idle());
        m.pop(Kind::Movable);
        m.push(Kind::Movable, block(1));
        assert!(!m.is_idle(), "the same blocks are there, but it was used");
    }
}
