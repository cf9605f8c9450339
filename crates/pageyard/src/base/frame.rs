//! The frame descriptor, the pageblock table, and the map that holds both for one zone.
//!
//! A descriptor is 16 bytes. Its fields are relaxed atomics: whoever holds the lock of a frame's
//! present state owns it (the zone lock while it is free, a per-CPU list's lock while it is
//! cached, the caller while it is allocated), so plain loads and stores are all that is needed, but
//! for the step by which a block leaves its owner: callers may be wrong, and only one of them may
//! succeed. Being atomics, a caller's mistake can spoil an answer but never be undefined behaviour.
//!
//! Only the first frame of a block, its *head*, says what the block is. Every other frame of it
//! is a *tail*. The allocator keeps that true at every split and merge, which is what lets a
//! free be checked by one comparison (spec §11.8).

use core::ops::Range;

use crate::base::sync::frames::{
    AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::base::units::{MAX_ORDER, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};

/// "No frame" in a link.
pub(crate) const NIL: u32 = u32::MAX;

/// One frame's descriptor. Memory for them comes from the embedder; all zero is a valid start.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Frame {
    next: AtomicU32,
    prev: AtomicU32,
    state: AtomicU32,
    /// What outlives every change of state; zone lock.
    marks: AtomicU8,
}

/// The memory of this frame is faulty ([`Yard::poison_frame`](crate::Yard::poison_frame)).
const POISONED: u8 = 1;

/// What the frame is (low bits of its state word).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A hole, or memory that was never handed over. Zero, so that fresh maps are all reserved.
    Reserved = 0,
    /// Not the first frame of its block.
    Tail = 1,
    /// Head of a block on a free list.
    Free = 2,
    /// Head of a block on a per-CPU list.
    Cached = 3,
    /// Head of a block that a caller owns.
    Allocated = 4,
    /// Head of a block that compaction or reporting has taken off the lists for a moment: it is
    /// neither free nor anyone's.
    Held = 5,
    /// Head of a block on its way from its owner to a list: one free has it, and others are refused.
    BeingFreed = 6,
    /// Head of a block that is off the lists so that nobody touches it (§11.6).
    Guard = 8,
    /// Head of a block with a bad page in it, out of use for good (§11.2).
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
const PFMEMALLOC_BIT: u32 = 1 << 14;
const REPORTED_BIT: u32 = 1 << 15;

impl State {
    pub(crate) const TAIL: State = State(Kind::Tail as u32);
    pub(crate) const RESERVED: State = State(Kind::Reserved as u32);

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

    /// Kind and order alone: the one comparison of a checked free, and of a merge.
    #[inline(always)]
    pub(crate) const fn is(self, kind: Kind, order: u8) -> bool {
        self.0 & 0xff == kind as u32 | (order as u32) << ORDER_SHIFT
    }

    #[inline(always)]
    pub(crate) const fn is_movable(self) -> bool {
        self.0 & MOVABLE_BIT != 0
    }

    pub(crate) const fn with_movable(self, movable: bool) -> State {
        State(if movable { self.0 | MOVABLE_BIT } else { self.0 & !MOVABLE_BIT })
    }

    /// Taken with all reserves open (§2.11).
    pub(crate) const fn is_pfmemalloc(self) -> bool {
        self.0 & PFMEMALLOC_BIT != 0
    }

    pub(crate) const fn with_pfmemalloc(self) -> State {
        State(self.0 | PFMEMALLOC_BIT)
    }

    /// The same of another kind.
    #[inline(always)]
    const fn with_kind(self, kind: Kind) -> State {
        State(self.0 & !0xf | kind as u32)
    }

    /// A free block that was reported and has not left its list since (§9.9): whoever takes it off
    /// writes a new state, and the mark is gone.
    pub(crate) const fn is_reported(self) -> bool {
        self.0 & REPORTED_BIT != 0
    }

    pub(crate) const fn with_reported(self) -> State {
        State(self.0 | REPORTED_BIT)
    }
}

impl Frame {
    /// A descriptor of a reserved frame.
    pub const fn new() -> Self {
        Frame {
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            state: AtomicU32::new(0),
            marks: AtomicU8::new(0),
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

    /// A block becomes its owner's. Whoever frees it, rightly or not, has seen this, and so all that
    /// was done to the frame while it was on a list.
    #[inline(always)]
    pub(crate) fn set_allocated(&self, s: State) {
        self.state.store(s.0, Release);
    }

    /// The block leaves its owner, who has seen that it is allocated. However many free it at once,
    /// one is told `true`; for the others nothing has changed.
    #[inline(always)]
    pub(crate) fn begin_free(&self, seen: State) -> bool {
        let leaving = seen.with_kind(Kind::BeingFreed);
        self.state.compare_exchange(seen.0, leaving.0, Acquire, Relaxed).is_ok()
    }

    /// The same for one who has not looked yet.
    #[inline]
    pub(crate) fn begin_free_as(&self, order: u8) -> bool {
        self.change_allocated(order, |seen| seen.with_kind(Kind::BeingFreed))
    }

    /// The same for one who knows that nobody else frees the block.
    #[inline(always)]
    pub(crate) fn begin_free_unraced(&self) {
        self.set_state(self.state().with_kind(Kind::BeingFreed));
    }

    /// The block is its owner's again: its free did not come about.
    #[inline]
    pub(crate) fn roll_back_free(&self) {
        self.set_allocated(self.state().with_kind(Kind::Allocated));
    }

    /// Changes the state of a block that is allocated at this order; `false` where there is none.
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
        self.marks.store(if poisoned { POISONED } else { 0 }, Relaxed);
    }
}

/// A block that a caller was seen to own.
#[derive(Clone, Copy)]
pub(crate) struct Owned<'a> {
    pub(crate) idx: u32,
    /// Its head's descriptor,
    pub(crate) frame: &'a Frame,
    /// and what that said.
    pub(crate) seen: State,
}

/// One pageblock's entry: three bits of type and the compaction skip bit (spec §1.4), read
/// without a lock and changed under the zone lock. All zero is a valid start.
#[derive(Debug, Default)]
pub struct Pageblock(AtomicU8);

/// Set while none of the block's frames is memory.
const ABSENT: u8 = 0x80;
/// Set while a poisoned frame of the block is not out of use yet.
const TAINTED: u8 = 0x40;
const TYPE_MASK: u8 = 0x7;
/// Set while compaction need not look into the block (§7.4).
const SKIP: u8 = 0x8;
/// Set while a CMA block is isolated.
const ISOLATED_CMA: u8 = 0x10;

impl Pageblock {
    /// An entry of a pageblock of unmovable memory.
    pub const fn new() -> Self {
        Pageblock(AtomicU8::new(0))
    }

    #[inline(always)]
    fn migrate_type(&self) -> MigrateType {
        MigrateType::from_bits(self.0.load(Relaxed).into())
    }

    /// The pageblock's type if a block in it may go to a per-CPU list: it is not isolated, and no
    /// poisoned frame is about. To be asked under the list's lock: isolation and poison change the
    /// entry first and drain the lists afterwards.
    #[inline]
    pub(crate) fn cached_type(&self) -> Option<MigrateType> {
        let entry = self.0.load(Relaxed);
        let t = MigrateType::from_bits(entry.into());
        (entry & TAINTED == 0 && t != MigrateType::Isolate).then_some(t)
    }

    /// The pageblock's type if a block in it may go straight to a per-CPU list: one of the three
    /// types, and no poisoned frame about. One comparison answers for both.
    #[inline(always)]
    pub(crate) fn listed_type(&self) -> Option<MigrateType> {
        match self.0.load(Relaxed) & (TYPE_MASK | TAINTED) {
            0 => Some(MigrateType::Unmovable),
            1 => Some(MigrateType::Movable),
            2 => Some(MigrateType::Reclaimable),
            _ => None,
        }
    }
}

/// The descriptors and pageblocks of one zone.
///
/// An *index* counts frames from `base`, the zone's first frame rounded down to the largest
/// block, so that the buddy of index `i` at order `o` is simply `i ^ (1 << o)` (spec §1.6). The
/// frames before the zone's start are reserved for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    frames: &'a [Frame],
    blocks: &'a [Pageblock],
}

/// What an index outside the map reads as: reserved, on no list. Nothing ever becomes free there,
/// so the lists never hold such an index and nothing is written to it.
static OUTSIDE: Frame = Frame::new();
static NO_BLOCK: Pageblock = Pageblock(AtomicU8::new(ABSENT));

impl<'a> Map<'a> {
    pub(crate) const EMPTY: Map<'a> = Map { frames: &[], blocks: &[] };

    pub(crate) fn new(frames: &'a [Frame], blocks: &'a [Pageblock]) -> Self {
        Map { frames, blocks }
    }

    /// Frames in the map, those before the zone's start included.
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

    /// The frame at an index that may lie outside, as [`NIL`] does.
    #[inline(always)]
    pub(crate) fn get(&self, idx: u64) -> Option<&'a Frame> {
        self.frames.get(usize::try_from(idx).ok()?)
    }

    /// Neighbouring frames; none where they reach outside.
    #[inline(always)]
    pub(crate) fn run(&self, idx: u32, pages: u32) -> &'a [Frame] {
        let first = idx as usize;
        self.frames.get(first..first + pages as usize).unwrap_or(&[])
    }

    #[inline(always)]
    fn block(&self, idx: u32) -> &'a Pageblock {
        self.pageblock(idx).unwrap_or(&NO_BLOCK)
    }

    /// Gives neighbouring frames one state. Nobody else may work on them.
    pub(crate) fn set_states(&self, idx: u32, pages: u32, state: State) {
        for f in self.run(idx, pages) {
            f.set_state(state);
        }
    }

    /// The type of the pageblock that holds the frame.
    #[inline(always)]
    pub(crate) fn block_type(&self, idx: u32) -> MigrateType {
        self.block(idx).migrate_type()
    }

    /// As [`Pageblock::cached_type`], of the pageblock that holds the frame.
    #[inline]
    pub(crate) fn cached_type(&self, idx: u32) -> Option<MigrateType> {
        self.block(idx).cached_type()
    }

    /// The entry of the pageblock that holds the frame.
    #[inline(always)]
    pub(crate) fn pageblock(&self, idx: u32) -> Option<&'a Pageblock> {
        self.blocks.get((idx >> PAGEBLOCK_ORDER) as usize)
    }

    /// The block that a frame is part of: its head, and what that says. `None` where there is none to
    /// be seen; a block in somebody's hands may change at any moment.
    pub(crate) fn block_over(&self, idx: u32) -> Option<(u32, State)> {
        // Only the nearest head below can be the one.
        let (order, head, state) = (0..=MAX_ORDER)
            .map(|order| (order, idx & !((1u32 << order) - 1)))
            .map(|(order, head)| (order, head, self.frame(head).state()))
            .find(|(_, _, state)| state.kind() != Kind::Tail)?;
        let reaches = state.kind() != Kind::Reserved && state.order() >= order;
        reaches.then_some((head, state))
    }

    /// Whether a poisoned frame in this block's pageblocks is not out of use yet.
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

    /// Marks a frame as poisoned. What the frame's state says afterwards is newer than what
    /// [`poisoned_at_hand_out`](Map::poisoned_at_hand_out) left unseen. Zone lock.
    pub(crate) fn poison(&self, idx: u32) {
        self.frame(idx).set_poisoned(true);
        self.refresh_taint(idx);
        fence(SeqCst);
    }

    /// The first poisoned frame of blocks that have just been [handed out](Frame::set_allocated) without
    /// a lock that [`poison`](Map::poison) or a drain after it would wait for. Either this sees the
    /// mark, or whoever marked the frame sees that it is allocated.
    pub(crate) fn poisoned_at_hand_out(&self, frames: Range<u32>) -> Option<u32> {
        fence(SeqCst);
        let mut idx = frames.start;
        while idx < frames.end {
            let end = ((idx | (PAGEBLOCK_PAGES - 1)).saturating_add(1)).min(frames.end);
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

    /// Finds out again whether the frame's pageblock is tainted. Zone lock.
    pub(crate) fn refresh_taint(&self, idx: u32) {
        let Some(b) = self.pageblock(idx) else { return };
        let first = (idx & !(PAGEBLOCK_PAGES - 1)) as usize;
        let in_use = |f: &Frame| f.is_poisoned() && f.state().kind() != Kind::Poisoned;
        let tainted = self.frames.iter().skip(first).take(PAGEBLOCK_PAGES as usize).any(in_use);
        let keep = b.0.load(Relaxed) & !TAINTED;
        b.0.store(if tainted { keep | TAINTED } else { keep }, Relaxed);
    }

    /// Relabels the pageblock that holds the frame; its skip bit stays. Zone lock held.
    pub(crate) fn set_block_type(&self, idx: u32, t: MigrateType) {
        if let Some(b) = self.pageblock(idx) {
            let was = b.0.load(Relaxed);
            let keep = was & !(TYPE_MASK | ABSENT | ISOLATED_CMA);
            let isolated_cma = t == MigrateType::Isolate
                && (was & TYPE_MASK == MigrateType::Cma as u8 || was & ISOLATED_CMA != 0);
            let mark = if isolated_cma { ISOLATED_CMA } else { 0 };
            b.0.store(keep | mark | t as u8, Relaxed);
        }
    }

    /// Whether the pageblock is isolated and was a CMA one before.
    pub(crate) fn is_isolated_cma(&self, idx: u32) -> bool {
        self.block(idx).0.load(Relaxed) & ISOLATED_CMA != 0
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

    /// Whether compaction found nothing in the pageblock when it last looked (§7.4).
    pub(crate) fn is_skipped(&self, idx: u32) -> bool {
        self.block(idx).0.load(Relaxed) & SKIP != 0
    }

    /// Compaction found nothing in the pageblock. Needs no lock: a relabelling at the same moment
    /// may lose the hint, never the label.
    pub(crate) fn set_skipped(&self, idx: u32) {
        if let Some(b) = self.blocks.get((idx >> PAGEBLOCK_ORDER) as usize) {
            b.0.fetch_or(SKIP, Relaxed);
        }
    }

    /// Compaction is to look everywhere again.
    pub(crate) fn clear_skips(&self) {
        for b in self.blocks {
            b.0.fetch_and(!SKIP, Relaxed);
        }
    }

    /// Frames and pageblocks that are no memory any more.
    pub(crate) fn clear_range(&self, idx: u32, pages: u32) {
        self.set_states(idx, pages, State::RESERVED);
        let (first, n) = ((idx >> PAGEBLOCK_ORDER) as usize, (pages >> PAGEBLOCK_ORDER) as usize);
        for b in self.blocks.get(first..first + n).unwrap_or(&[]) {
            b.0.store(ABSENT, Relaxed);
        }
    }

    pub(crate) fn block_is_absent(&self, idx: u32) -> bool {
        self.block(idx).0.load(Relaxed) & ABSENT != 0
    }

    /// Every frame reserved, every pageblock without memory.
    pub(crate) fn clear(&self) {
        self.reserve(0, self.len());
        self.clear_blocks();
    }

    /// Neighbouring frames reserved, whatever was there before.
    pub(crate) fn reserve(&self, idx: u32, pages: u32) {
        for f in self.run(idx, pages) {
            f.set_state(State::RESERVED);
            f.set_poisoned(false);
        }
    }

    /// Every pageblock without memory; the frames must say that they are reserved already.
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
    fn state_word_keeps_its_parts_apart() {
        let s = State::new(Kind::Allocated, 10, MigrateType::Isolate).with_movable(true);
        assert_eq!(
            (s.kind(), s.order(), s.migrate_type()),
            (Kind::Allocated, 10, MigrateType::Isolate)
        );
        assert!(s.is_movable() && s.is(Kind::Allocated, 10));
        assert!(!s.is(Kind::Allocated, 9) && !s.is(Kind::Free, 10));
    }

    #[test]
    fn a_block_leaves_once_and_keeps_what_else_is_known_of_it() {
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
