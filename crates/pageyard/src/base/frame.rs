//! The frame descriptor, the pageblock table, and the map that holds both for one zone.
//!
//! A descriptor is 16 bytes. Its fields are relaxed atomics. Each state of a frame has one owner of
//! the descriptor: the zone lock's holder while the frame is free, the per-CPU list lock's holder
//! while it is cached, and the caller while it is allocated. Plain loads and stores are therefore
//! enough, except for the step that begins a free. Callers may be wrong there, and only one of
//! several concurrent frees may succeed. Because the fields are atomics, a caller's mistake can
//! corrupt a result but is never undefined behaviour.
//!
//! Only the first frame of a block, its *head*, describes the block. Every other frame of it is a
//! *tail*. The allocator maintains this at every split and merge, so one comparison checks a free
//! (spec §11.8).

use core::ops::Range;

use crate::base::sync::frames::{
    AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::base::units::{
    MAX_ORDER, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, block_end, block_start,
};

/// "No frame" in a link.
pub(crate) const NIL: u32 = u32::MAX;

/// One frame's descriptor. The embedder provides the memory; all zero is a valid initial state.
///
/// ```
/// use pageyard::Frame;
///
/// // The descriptors of 64 MiB, without a heap.
/// static FRAMES: [Frame; 16384] = [const { Frame::new() }; 16384];
/// assert_eq!(size_of_val(&FRAMES), 16 * 16384);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Frame {
    next: AtomicU32,
    prev: AtomicU32,
    state: AtomicU32,
    /// Flags that survive every change of state, and above them a word of the frame's pageblock.
    /// Zone lock.
    marks: AtomicU32,
}

/// The memory of this frame is faulty ([`Yard::poison_frame`](crate::Yard::poison_frame)).
const POISONED: u32 = 1;
/// The frame was reserved at the start and released since
/// ([`Yard::release`](crate::Yard::release)).
const RELEASED: u32 = 2;
/// Bits of a word above the marks.
pub(crate) const WORD_BITS: u32 = 24;
const WORD_SHIFT: u32 = 32 - WORD_BITS;

/// What the frame is (low bits of its state word).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A hole, or memory never given to the allocator. Zero, so that a fresh map is all reserved.
    Reserved = 0,
    /// Not the first frame of its block.
    Tail = 1,
    /// Head of a block on a free list.
    Free = 2,
    /// Head of a block on a per-CPU list.
    Cached = 3,
    /// Head of a block that a caller owns.
    Allocated = 4,
    /// Head of a block that compaction or reporting has taken off the lists temporarily. It is
    /// neither free nor owned by a caller.
    Held = 5,
    /// Head of a block on its way from its owner to a list. One free owns it; others are refused.
    BeingFreed = 6,
    /// Head of a guard: a block kept off the lists so that no caller uses it (§11.6).
    Guard = 8,
    /// Head of a block that contains a bad page, permanently out of use (§11.2).
    Bad = 9,
    /// Out of use because its memory is faulty (§11.3).
    Poisoned = 10,
}

/// A frame's state word: kind, order, the type of the list it is on (or was taken from), and
/// whether its owner can move it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(u32);

const ORDER_SHIFT: u32 = 4;
const TYPE_SHIFT: u32 = 8;
const MOVABLE_BIT: u32 = 1 << 12;
/// In the state of a reserved frame: it is memory, not a hole.
const MEMORY_BIT: u32 = 1 << 13;
const PFMEMALLOC_BIT: u32 = 1 << 14;
const REPORTED_BIT: u32 = 1 << 15;
/// In the state of a cached block: it is on a list of the CPU that owns its pageblock.
const AT_OWNER_BIT: u32 = 1 << 16;

impl State {
    pub(crate) const TAIL: State = State(Kind::Tail as u32);
    pub(crate) const RESERVED: State = State(Kind::Reserved as u32);
    /// Memory in use from the start, which [`Yard::release`](crate::Yard::release) frees.
    pub(crate) const RESERVED_MEMORY: State = State(Kind::Reserved as u32 | MEMORY_BIT);

    #[inline(always)]
    pub(crate) const fn new(kind: Kind, order: u8, t: MigrateType) -> State {
        State(kind as u32 | (order as u32) << ORDER_SHIFT | (t as u32) << TYPE_SHIFT)
    }

    #[inline(always)]
    pub(crate) const fn kind(self) -> Kind {
        match self.0 & 0xf {
            1 => Kind::Tail,
            2 => Kind::Free,
            3 => Kind::Cached,
            4 => Kind::Allocated,
            5 => Kind::Held,
            6 => Kind::BeingFreed,
            8 => Kind::Guard,
            9 => Kind::Bad,
            10 => Kind::Poisoned,
            _ => Kind::Reserved,
        }
    }

    #[inline(always)]
    pub(crate) const fn order(self) -> u8 {
        ((self.0 >> ORDER_SHIFT) & 0xf) as u8
    }

    #[inline(always)]
    pub(crate) const fn migrate_type(self) -> MigrateType {
        MigrateType::from_bits(self.0 >> TYPE_SHIFT)
    }

    /// Compares kind and order only: the single comparison of a checked free and of a merge.
    #[inline(always)]
    pub(crate) const fn is(self, kind: Kind, order: u8) -> bool {
        self.0 & 0xff == kind as u32 | (order as u32) << ORDER_SHIFT
    }

    #[inline(always)]
    pub(crate) const fn is_movable(self) -> bool {
        self.0 & MOVABLE_BIT != 0
    }

    /// Whether a cached block is on a list of the CPU that owns its pageblock.
    #[inline(always)]
    pub(crate) const fn is_at_owner(self) -> bool {
        self.0 & (0xf | AT_OWNER_BIT) == Kind::Cached as u32 | AT_OWNER_BIT
    }

    pub(crate) const fn at_owner(self) -> State {
        State(self.0 | AT_OWNER_BIT)
    }

    pub(crate) const fn with_movable(self, movable: bool) -> State {
        State(if movable { self.0 | MOVABLE_BIT } else { self.0 & !MOVABLE_BIT })
    }

    /// Returns whether the block was allocated with all reserves available (§2.11).
    pub(crate) const fn is_pfmemalloc(self) -> bool {
        self.0 & PFMEMALLOC_BIT != 0
    }

    pub(crate) const fn with_pfmemalloc(self) -> State {
        State(self.0 | PFMEMALLOC_BIT)
    }

    /// Returns this state with another kind.
    #[inline(always)]
    const fn with_kind(self, kind: Kind) -> State {
        State(self.0 & !0xf | kind as u32)
    }

    /// Returns whether the block was reported and has not left its list since (§9.9). Taking it off
    /// the list writes a new state, which clears the mark.
    pub(crate) const fn is_reported(self) -> bool {
        self.0 & REPORTED_BIT != 0
    }

    pub(crate) const fn with_reported(self) -> State {
        State(self.0 | REPORTED_BIT)
    }
}

impl Frame {
    /// Returns the descriptor of a reserved frame.
    pub const fn new() -> Self {
        Frame {
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            state: AtomicU32::new(0),
            marks: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_state(&self, s: State) {
        self.state.store(s.0, Relaxed);
    }

    /// Makes the block allocated. The release pairs with the acquire of any free of the block,
    /// valid or not. That free therefore sees every change made to the frame while it was on a
    /// list.
    #[inline(always)]
    pub(crate) fn set_allocated(&self, s: State) {
        self.state.store(s.0, Release);
    }

    /// Begins the free of a block that the caller saw as allocated. Of several concurrent frees
    /// exactly one gets `true`; the others change nothing.
    #[inline(always)]
    pub(crate) fn begin_free(&self, seen: State) -> bool {
        let leaving = seen.with_kind(Kind::BeingFreed);
        self.state.compare_exchange(seen.0, leaving.0, Acquire, Relaxed).is_ok()
    }

    /// Like [`begin_free`](Self::begin_free), for a caller that has not read the state yet.
    #[inline]
    pub(crate) fn begin_free_as(&self, order: u8) -> bool {
        self.change_allocated(order, |seen| seen.with_kind(Kind::BeingFreed))
    }

    /// Like [`begin_free`](Self::begin_free), but the caller guarantees that no other thread frees
    /// the block.
    #[inline(always)]
    pub(crate) fn begin_free_unraced(&self) {
        self.set_state(self.state().with_kind(Kind::BeingFreed));
    }

    /// Rolls back `begin_free`: the block belongs to its owner again.
    #[inline]
    pub(crate) fn roll_back_free(&self) {
        self.set_allocated(self.state().with_kind(Kind::Allocated));
    }

    /// Changes the state of a block that is allocated at this order. Returns `false` if there is
    /// none.
    pub(crate) fn change_allocated(&self, order: u8, to: impl Fn(State) -> State) -> bool {
        let change = |seen| {
            let seen = State(seen);
            seen.is(Kind::Allocated, order).then(|| to(seen).0)
        };
        self.state.fetch_update(Acquire, Relaxed, change).is_ok()
    }

    #[inline(always)]
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn prev(&self) -> u32 {
        self.prev.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_next(&self, idx: u32) {
        self.next.store(idx, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn set_prev(&self, idx: u32) {
        self.prev.store(idx, Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.marks.load(Relaxed) & POISONED != 0
    }

    pub(crate) fn set_poisoned(&self, poisoned: bool) {
        self.mark(POISONED, poisoned);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.marks.load(Relaxed) & RELEASED != 0
    }

    pub(crate) fn set_released(&self, released: bool) {
        self.mark(RELEASED, released);
    }

    /// Returns the frame's word, 0 at first. What it means depends on the frame's place in its
    /// pageblock (`zone/owned.rs`).
    #[inline(always)]
    pub(crate) fn word(&self) -> u32 {
        self.marks.load(Relaxed) >> WORD_SHIFT
    }

    /// Sets the frame's word, of [`WORD_BITS`] bits. Zone lock.
    pub(crate) fn set_word(&self, word: u32) {
        let marks = self.marks.load(Relaxed) & ((1 << WORD_SHIFT) - 1);
        self.marks.store(word << WORD_SHIFT | marks, Relaxed);
    }

    /// Sets or clears a mark. Zone lock, so that no other mark is lost.
    fn mark(&self, mark: u32, on: bool) {
        let others = self.marks.load(Relaxed) & !mark;
        self.marks.store(if on { others | mark } else { others }, Relaxed);
    }
}

/// A block that was seen to be allocated.
#[derive(Clone, Copy)]
pub(crate) struct Owned<'a> {
    pub(crate) idx: u32,
    /// Descriptor of its head.
    pub(crate) frame: &'a Frame,
    /// State of the head when it was read.
    pub(crate) seen: State,
}

/// One pageblock's entry: three bits of type and the compaction skip bit (spec §1.4). Read without
/// a lock and changed under the zone lock. All zero is a valid initial state.
///
/// Isolation is a bit beside the type, so the type that the pageblock had is known until its
/// isolation ends.
///
/// ```
/// use pageyard::{PAGEBLOCK_PAGES, Pageblock};
///
/// static BLOCKS: [Pageblock; 16384 / PAGEBLOCK_PAGES as usize] = [const { Pageblock::new() }; 32];
/// assert_eq!(size_of_val(&BLOCKS), 32);
/// ```
#[derive(Debug, Default)]
pub struct Pageblock(AtomicU8);

/// Set while no frame of the block is memory.
const ABSENT: u8 = 0x80;
/// Set while the block contains a poisoned frame that is still in use.
const TAINTED: u8 = 0x40;
const TYPE_MASK: u8 = 0x7;
/// Set while compaction may skip the block (§7.4).
const SKIP: u8 = 0x8;
/// Set while the block is isolated.
const ISOLATED: u8 = 0x10;

#[inline(always)]
fn type_in(entry: u8) -> MigrateType {
    // Types from 5 on are read as isolated, as is every type with the bit.
    MigrateType::from_bits(u32::from(if entry & ISOLATED == 0 { entry } else { TYPE_MASK }))
}

impl Pageblock {
    /// Returns the entry of a pageblock of unmovable memory.
    pub const fn new() -> Self {
        Pageblock(AtomicU8::new(0))
    }

    #[inline(always)]
    fn migrate_type(&self) -> MigrateType {
        type_in(self.0.load(Relaxed))
    }

    /// Returns the pageblock's type if a block in it may go straight to a per-CPU list. It must be
    /// one of the three list types, not isolated and not tainted by a poisoned frame; one comparison
    /// checks all.
    #[inline(always)]
    pub(crate) fn listed_type(&self) -> Option<MigrateType> {
        match self.0.load(Relaxed) & (TYPE_MASK | ISOLATED | TAINTED) {
            0 => Some(MigrateType::Unmovable),
            1 => Some(MigrateType::Movable),
            2 => Some(MigrateType::Reclaimable),
            _ => None,
        }
    }
}

/// The descriptors and pageblocks of one zone.
///
/// An *index* counts frames from `base`, the zone's first frame rounded down to the largest block.
/// The buddy of index `i` at order `o` is therefore `i ^ (1 << o)` (spec §1.6). The frames before
/// the zone's start stay reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    frames: &'a [Frame],
    blocks: &'a [Pageblock],
}

/// Descriptor for an index outside the map: reserved, on no list. No frame outside ever becomes
/// free, so the lists never hold such an index and the allocator never writes to it.
static OUTSIDE: Frame = Frame::new();
static NO_BLOCK: Pageblock = Pageblock(AtomicU8::new(ABSENT));

impl<'a> Map<'a> {
    pub(crate) const EMPTY: Map<'a> = Map { frames: &[], blocks: &[] };

    pub(crate) fn new(frames: &'a [Frame], blocks: &'a [Pageblock]) -> Self {
        Map { frames, blocks }
    }

    /// Returns the number of frames in the map, including those before the zone's start.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.frames.len() as u32
    }

    #[inline(always)]
    pub(crate) fn frame(&self, idx: u32) -> &'a Frame {
        match self.frames.get(idx as usize) {
            Some(f) => f,
            None => &OUTSIDE,
        }
    }

    /// Returns the frame at an index, or `None` if it lies outside, as [`NIL`] does.
    #[inline(always)]
    pub(crate) fn get(&self, idx: u64) -> Option<&'a Frame> {
        self.frames.get(usize::try_from(idx).ok()?)
    }

    /// Returns `pages` consecutive frames from `idx`, or none if they reach outside the map.
    #[inline(always)]
    pub(crate) fn run(&self, idx: u32, pages: u32) -> &'a [Frame] {
        let first = idx as usize;
        self.frames.get(first..first + pages as usize).unwrap_or(&[])
    }

    #[inline(always)]
    fn block(&self, idx: u32) -> &'a Pageblock {
        self.pageblock(idx).unwrap_or(&NO_BLOCK)
    }

    /// Sets the state of consecutive frames. No other thread may use them.
    pub(crate) fn set_states(&self, idx: u32, pages: u32, state: State) {
        for f in self.run(idx, pages) {
            f.set_state(state);
        }
    }

    /// Returns the type of the pageblock that contains the frame.
    #[inline(always)]
    pub(crate) fn block_type(&self, idx: u32) -> MigrateType {
        self.block(idx).migrate_type()
    }

    /// Returns the type of a block's pageblock if the block may go to a per-CPU list: the pageblock
    /// is not isolated, and no frame of the block is poisoned. Call it under the list's lock: isolation
    /// and poisoning change the pageblock's entry first and look at the lists afterwards.
    #[inline]
    pub(crate) fn cached_type(&self, idx: u32, order: u8) -> Option<MigrateType> {
        let t = self.block_type(idx);
        let faulty = self.is_tainted(idx, order) && self.has_poisoned(idx, order);
        (!faulty && t != MigrateType::Isolate).then_some(t)
    }

    /// Returns whether a frame of the block is poisoned.
    #[inline(never)]
    pub(crate) fn has_poisoned(&self, idx: u32, order: u8) -> bool {
        self.run(idx, 1 << order).iter().any(Frame::is_poisoned)
    }

    /// Returns the entry of the pageblock that contains the frame.
    #[inline(always)]
    pub(crate) fn pageblock(&self, idx: u32) -> Option<&'a Pageblock> {
        self.blocks.get((idx >> PAGEBLOCK_ORDER) as usize)
    }

    /// Returns the block that contains a frame: the index and the state of its head. `None` if no
    /// head is found. The state of an allocated block may change at any moment.
    pub(crate) fn block_over(&self, idx: u32) -> Option<(u32, State)> {
        // Only the nearest head below can contain the frame.
        let (order, head, state) = (0..=MAX_ORDER)
            .map(|order| (order, idx & !((1u32 << order) - 1)))
            .map(|(order, head)| (order, head, self.frame(head).state()))
            .find(|(_, _, state)| state.kind() != Kind::Tail)?;
        let reaches = state.kind() != Kind::Reserved && state.order() >= order;
        reaches.then_some((head, state))
    }

    /// Returns whether a pageblock of this block has a poisoned frame that is still in use.
    #[inline]
    pub(crate) fn is_tainted(&self, idx: u32, order: u8) -> bool {
        let mut i = idx;
        let end = idx.saturating_add(1 << order);
        while i < end {
            if self.block(i).0.load(Relaxed) & TAINTED != 0 {
                return true;
            }
            i = i.saturating_add(PAGEBLOCK_PAGES);
        }
        false
    }

    /// Marks a frame as poisoned. A frame state read afterwards is newer than any allocation for
    /// which [`poisoned_at_hand_out`](Map::poisoned_at_hand_out) missed the mark. Zone lock.
    pub(crate) fn poison(&self, idx: u32) {
        self.frame(idx).set_poisoned(true);
        self.refresh_taint(idx);
        fence(SeqCst);
    }

    /// Returns the first poisoned frame of blocks just [allocated](Frame::set_allocated) without a
    /// lock that [`poison`](Map::poison), or a drain after it, would wait for. Either this call
    /// sees the mark, or the caller of `poison` sees that the frame is allocated.
    pub(crate) fn poisoned_at_hand_out(&self, frames: Range<u32>) -> Option<u32> {
        fence(SeqCst);
        let mut idx = frames.start;
        while idx < frames.end {
            let end = block_end(idx).min(frames.end);
            if self.is_tainted(idx, 0) {
                let poisoned = |&i: &u32| self.frame(i).is_poisoned();
                if let Some(found) = (idx..end).find(poisoned) {
                    return Some(found);
                }
            }
            idx = end;
        }
        None
    }

    /// Recomputes whether the frame's pageblock is tainted. Zone lock.
    pub(crate) fn refresh_taint(&self, idx: u32) {
        let Some(b) = self.pageblock(idx) else { return };
        let first = block_start(idx) as usize;
        let in_use = |f: &Frame| f.is_poisoned() && f.state().kind() != Kind::Poisoned;
        let tainted = self.frames.iter().skip(first).take(PAGEBLOCK_PAGES as usize).any(in_use);
        let keep = b.0.load(Relaxed) & !TAINTED;
        b.0.store(if tainted { keep | TAINTED } else { keep }, Relaxed);
    }

    /// Relabels the pageblock that contains the frame and keeps its skip bit. If it becomes isolated,
    /// its own type stays too. Zone lock.
    pub(crate) fn set_block_type(&self, idx: u32, t: MigrateType) {
        if let Some(b) = self.pageblock(idx) {
            let was = b.0.load(Relaxed);
            let keep = was & !(TYPE_MASK | ABSENT | ISOLATED);
            let label = match t {
                MigrateType::Isolate => was & TYPE_MASK | ISOLATED,
                t => t as u8,
            };
            b.0.store(keep | label, Relaxed);
        }
    }

    /// Returns the pageblock's type; while it is isolated, the type it had before.
    pub(crate) fn own_type(&self, idx: u32) -> MigrateType {
        MigrateType::from_bits((self.block(idx).0.load(Relaxed) & TYPE_MASK).into())
    }

    /// Relabels every pageblock of a block of order `PAGEBLOCK_ORDER` or more.
    pub(crate) fn set_range_type(&self, idx: u32, order: u8, t: MigrateType) {
        let end = idx.saturating_add(1 << order);
        let mut i = idx;
        while i < end {
            self.set_block_type(i, t);
            i += PAGEBLOCK_PAGES;
        }
    }

    /// Returns whether compaction found nothing in the pageblock at its last scan (§7.4).
    pub(crate) fn is_skipped(&self, idx: u32) -> bool {
        self.block(idx).0.load(Relaxed) & SKIP != 0
    }

    /// Records that compaction found nothing in the pageblock. Needs no lock: a concurrent relabel
    /// may lose the hint but not the label.
    pub(crate) fn set_skipped(&self, idx: u32) {
        if let Some(b) = self.blocks.get((idx >> PAGEBLOCK_ORDER) as usize) {
            b.0.fetch_or(SKIP, Relaxed);
        }
    }

    /// Makes compaction scan every pageblock again.
    pub(crate) fn clear_skips(&self) {
        for b in self.blocks {
            b.0.fetch_and(!SKIP, Relaxed);
        }
    }

    /// Marks frames as reserved and pageblocks as absent after their memory was removed.
    pub(crate) fn clear_range(&self, idx: u32, pages: u32) {
        for f in self.run(idx, pages) {
            f.set_state(State::RESERVED);
            f.set_released(false);
        }
        let (first, n) = ((idx >> PAGEBLOCK_ORDER) as usize, (pages >> PAGEBLOCK_ORDER) as usize);
        for b in self.blocks.get(first..first + n).unwrap_or(&[]) {
            b.0.store(ABSENT, Relaxed);
        }
    }

    pub(crate) fn block_is_absent(&self, idx: u32) -> bool {
        self.block(idx).0.load(Relaxed) & ABSENT != 0
    }

    /// Makes every frame reserved and every pageblock absent.
    pub(crate) fn clear(&self) {
        self.reserve(0, self.len());
        self.clear_blocks();
    }

    /// Makes consecutive frames reserved and clears their marks. No other thread may use them.
    pub(crate) fn reserve(&self, idx: u32, pages: u32) {
        for f in self.run(idx, pages) {
            f.set_state(State::RESERVED);
            f.marks.store(0, Relaxed);
        }
    }

    /// Makes every pageblock absent. The frames must be reserved already.
    pub(crate) fn clear_blocks(&self) {
        for b in self.blocks {
            b.0.store(ABSENT, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_takes_16_bytes() {
        assert_eq!(size_of::<Frame>(), 16);
        assert_eq!(size_of::<Pageblock>(), 1);
    }

    #[test]
    fn fields_of_the_state_word_are_independent() {
        let s = State::new(Kind::Allocated, 10, MigrateType::Isolate).with_movable(true);
        assert_eq!(
            (s.kind(), s.order(), s.migrate_type()),
            (Kind::Allocated, 10, MigrateType::Isolate)
        );
        assert!(s.is_movable() && s.is(Kind::Allocated, 10));
        assert!(!s.is(Kind::Allocated, 9) && !s.is(Kind::Free, 10));
    }

    #[test]
    fn begin_free_succeeds_once_and_keeps_other_state() {
        let frame = Frame::new();
        let s = State::new(Kind::Allocated, 3, MigrateType::Reclaimable).with_movable(true);
        frame.set_allocated(s);
        assert!(!frame.begin_free_as(2), "another order");
        assert!(frame.begin_free(s) && !frame.begin_free(s) && !frame.begin_free_as(3));
        let leaving = frame.state();
        assert!(leaving.is(Kind::BeingFreed, 3) && leaving.is_movable());
        frame.roll_back_free();
        assert_eq!(frame.state(), s);
        assert!(frame.begin_free_as(3));
    }
}
