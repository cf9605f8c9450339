//! The hooks, which do real work and are scheduling points, and the shadow map of owners.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pageyard::policy::StaticPolicy;
use pageyard::{
    CmaArea, CpuId, Defences, Event, Gfp, Hooked, NodeId, Observer, Oom, Order, PageState, Pfn,
    Platform, Reclaim, ReclaimJob, Record, Relocation, Yard, ZoneId, ZoneKind,
};

use crate::common::o;
use crate::schedule::{Lock, SleepingLock, locks_held, pause, point, quietly};

/// A yard whose hooks can call it.
pub(crate) type Y<'y, P> = Yard<'y, Hooked<Lock, World<'y, P>, P>>;

thread_local! {
    /// The CPU of the thread.
    pub(crate) static CPU: Cell<u32> = const { Cell::new(0) };
    /// The number of poisoned frames when the thread last called a hook that moves a block.
    static MOVED_AT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The CMA area of a state.
pub(crate) type Area<'a> = CmaArea<'a, SleepingLock>;

/// An allocated block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) order: Order,
    /// The actor that may free the block, or [`STATE`].
    pub(crate) owner: usize,
    pub(crate) movable: bool,
}

/// The owner of blocks that the state, not an actor, has allocated.
pub(crate) const STATE: usize = 9;

/// Every frame's owner, and other facts returned to callers.
#[derive(Default)]
pub(crate) struct Table {
    /// By first frame.
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Poisoned frames, each with the number of frames poisoned before it.
    pub(crate) poisoned: BTreeMap<u64, u64>,
    pub(crate) isolated: Vec<Range<Pfn>>,
    /// The block that several actors free, and how many frees succeeded.
    pub(crate) same: Option<(Pfn, Order)>,
    pub(crate) same_freed: u32,
    /// The first violation of a rule.
    complaint: Option<String>,
}

impl Table {
    pub(crate) fn complain(&mut self, why: String) {
        self.complaint.get_or_insert(why);
    }

    /// Enters a block for its owner: all of it must be memory, and free.
    fn insert(&mut self, pfn: Pfn, block: Block) {
        let (first, end) = (pfn.0, pfn.0 + u64::from(block.order.pages()));
        if first % u64::from(block.order.pages()) != 0 {
            self.complain(format!("{pfn} of {block:?} is misaligned"));
        }
        let before = self.blocks.range(..end).next_back();
        if let Some((&p, b)) = before.filter(|(p, b)| *p + u64::from(b.order.pages()) > first) {
            let other =
                format!("{pfn} of {block:?} was handed out, and is part of {p:#x} of {b:?}");
            self.complain(other);
        }
        self.blocks.insert(first, block);
    }

    /// Checks that no frame that had been poisoned at time `since` is allocated.
    fn is_good(&mut self, pfn: Pfn, order: Order, since: u64, what: &str) {
        let frames = pfn.0..pfn.0 + u64::from(order.pages());
        if let Some((p, _)) = self.poisoned.range(frames).find(|(_, n)| **n < since) {
            let why = format!("{p:#x} was poisoned, then {what} in the block at {pfn}");
            self.complain(why);
        }
    }
}

/// The hooks' state.
pub(crate) struct World<'y, P: StaticPolicy> {
    table: Mutex<Table>,
    clock: AtomicU64,
    /// Number of frames poisoned so far.
    poisonings: AtomicU64,
    /// Whether the report hook poisons a frame of each block that it is given.
    pub(crate) poisons_reported: AtomicBool,
    /// Number of contiguous ranges requested so far. Each ends the isolation of what it touches,
    /// even if another caller isolated it (§4.12).
    ranges: AtomicU64,
    /// Calls of the out-of-memory hook that have not returned.
    killers: AtomicU64,
    yard: OnceLock<&'y Y<'y, P>>,
}

impl<'y, P: StaticPolicy> World<'y, P> {
    pub(crate) fn new() -> Self {
        World {
            table: Mutex::default(),
            clock: AtomicU64::new(0),
            poisonings: AtomicU64::new(0),
            poisons_reported: AtomicBool::new(false),
            ranges: AtomicU64::new(0),
            killers: AtomicU64::new(0),
            yard: OnceLock::new(),
        }
    }

    pub(crate) fn set_yard(&self, yard: &'y Y<'y, P>) {
        assert!(self.yard.set(yard).is_ok());
    }

    /// Locks the table. It is never locked at a scheduling point.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        self.table().complaint.clone()
    }

    /// Returns the number of frames poisoned so far.
    pub(crate) fn poisonings(&self) -> u64 {
        self.poisonings.load(Relaxed)
    }

    /// Returns the number of contiguous ranges requested so far.
    pub(crate) fn ranges(&self) -> u64 {
        self.ranges.load(Relaxed)
    }

    /// Returns the result of `ask`, which requests a contiguous range.
    pub(crate) fn range<T>(&self, ask: impl FnOnce() -> T) -> T {
        let answer = ask();
        self.ranges.fetch_add(1, Relaxed);
        answer
    }

    /// Notes that a frame is poisoned. Called after `poison_frame` has returned.
    pub(crate) fn poisoned(&self, pfn: Pfn) {
        let n = self.poisonings.fetch_add(1, Relaxed);
        self.table().poisoned.insert(pfn.0, n);
    }

    /// Notes the result of a request that began after `since` poisonings.
    pub(crate) fn own(&self, pfn: Pfn, block: Block, since: u64) {
        let mut t = self.table();
        t.is_good(pfn, block.order, since, "handed out");
        t.insert(pfn, block);
    }

    /// Removes a block from its owner, which is about to act on it.
    pub(crate) fn disown(&self, pfn: Pfn) -> Option<Block> {
        self.table().blocks.remove(&pfn.0)
    }

    /// A hook call: a scheduling point, with no lock of the core held.
    #[track_caller]
    fn hook(&self, what: &'static str) {
        if locks_held() > 0 {
            self.table().complain(format!("the hook {what} is called with a lock held"));
        }
        point(what);
    }

    /// Frees a movable block of the state's. Returns the number of pages.
    pub(crate) fn reclaim_one(&self) -> u64 {
        let Some(yard) = self.yard.get() else { return 0 };
        let mut t = self.table();
        let mut all = t.blocks.iter();
        let Some((&pfn, &block)) = all.find(|(_, b)| b.owner == STATE && b.movable) else {
            return 0;
        };
        t.blocks.remove(&pfn);
        drop(t);
        if let Err(e) = yard.free(Pfn(pfn), block.order) {
            self.table().complain(format!("reclaim's free of {pfn:#x} was refused: {e}"));
        }
        block.order.pages().into()
    }
}

impl<P: StaticPolicy> Platform for World<'_, P> {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1_000_000_000, Relaxed)
    }

    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        self.hook("prepare");
    }

    fn pause(&self) {
        self.hook("pause");
        pause();
    }
}

impl<P: StaticPolicy> Reclaim for World<'_, P> {
    const REPORT_ORDER: Option<Order> = Order::new(5);

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.hook("relocate");
        let since = MOVED_AT.replace(Some(self.poisonings()));
        let mut t = self.table();
        let Some(&block) = t.blocks.get(&from.0).filter(|b| b.order == order && b.movable) else {
            return Relocation::Refused;
        };
        // The target may be poisoned at the last moment, but not before the previous block moved.
        if let Some(since) = since {
            t.is_good(to, order, since, "data was moved there");
        }
        t.blocks.remove(&from.0);
        t.insert(to, block);
        drop(t);
        point("relocated");
        Relocation::Moved
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        self.hook("is_unevictable");
        pfn.0.is_multiple_of(7)
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.hook("reclaim");
        (0..4).map(|_| self.reclaim_one()).sum()
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        let t = self.table();
        t.blocks.values().filter(|b| b.owner == STATE && b.movable).count() as u64
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        if self.killers.fetch_add(1, Relaxed) > 0 {
            self.table().complain("out_of_memory is called while another call is at work".into());
        }
        self.hook("out_of_memory");
        let freed = self.reclaim_one();
        self.killers.fetch_sub(1, Relaxed);
        if freed > 0 { Oom::Progress } else { Oom::Nothing }
    }

    fn keep_trying(&self, _: Order, tries: u32) -> bool {
        self.hook("keep_trying");
        pause();
        tries < 2
    }

    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.hook("wake_reclaim");
    }

    fn wake_compaction(&self, _: NodeId) {
        self.hook("wake_compaction");
    }

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.hook("report_free");
        let mut t = self.table();
        for &(pfn, order) in blocks {
            let end = pfn.0 + u64::from(order.pages());
            let owned = t.blocks.range(pfn.0..end).next().map(|(&p, _)| p);
            if let Some(p) = owned {
                t.complain(format!("{p:#x} is in use, and reported as free in the block at {pfn}"));
            }
        }
        drop(t);
        if self.poisons_reported.load(Relaxed)
            && let Some(yard) = self.yard.get()
        {
            for &(pfn, _) in blocks {
                if yard.poison_frame(pfn).is_ok() {
                    self.poisoned(pfn);
                }
            }
        }
        true
    }
}

impl<P: StaticPolicy> Observer for World<'_, P> {
    const SEES_TUNING: bool = true;

    fn event(&self, _: CpuId, _: Event) {
        point("event");
    }
}

impl<P: StaticPolicy> Defences for World<'_, P> {
    fn page_state(&self, _: Pfn) -> PageState {
        point("page_state");
        PageState::UNUSED
    }

    fn poison(&self, _: Pfn, _: Order) {
        self.hook("poison");
    }

    fn unmap(&self, _: Pfn, _: Order) {
        self.hook("unmap");
    }

    fn map(&self, _: Pfn, _: Order) {
        self.hook("map");
    }
}

/// One actor on its CPU.
pub(crate) struct Hand<'h, 'y, P: StaticPolicy> {
    pub(crate) y: &'h Y<'y, P>,
    /// The actor, or [`STATE`].
    pub(crate) me: usize,
    pub(crate) area: Option<&'h Area<'h>>,
    /// The first frame of the ranges that operations use.
    pub(crate) base: u64,
}

impl<'y, P: StaticPolicy> Hand<'_, 'y, P> {
    pub(crate) fn world(&self) -> &World<'y, P> {
        self.y.hooks()
    }

    /// Returns the same hand for another actor.
    pub(crate) fn acting_as(&self, me: usize) -> Self {
        Hand { me, ..*self }
    }

    pub(crate) fn complain(&self, why: impl Into<String>) {
        self.world().table().complain(why.into());
    }

    /// Notes a request's result. Returns whether it was served.
    pub(crate) fn own(&self, pfn: Option<Pfn>, order: u8, gfp: Gfp, since: u64) -> bool {
        let Some(pfn) = pfn else { return false };
        let movable = gfp.contains(Gfp::MOVABLE);
        if movable && let Err(e) = self.y.set_movable(pfn, o(order), true) {
            self.complain(format!("set_movable of {pfn}, just allocated, was refused: {e}"));
        }
        self.world().own(pfn, Block { order: o(order), owner: self.me, movable }, since);
        true
    }

    /// Requests a block with `way`.
    pub(crate) fn take<E>(
        &self,
        order: u8,
        gfp: Gfp,
        way: impl FnOnce(Order, Gfp) -> Result<Pfn, E>,
    ) -> bool {
        let since = self.world().poisonings();
        self.own(way(o(order), gfp).ok(), order, gfp, since)
    }

    pub(crate) fn alloc(&self, order: u8, gfp: Gfp) -> bool {
        self.take(order, gfp, |order, gfp| self.y.alloc(order, gfp))
    }

    /// Notes that a range was allocated as single pages.
    pub(crate) fn own_range(&self, range: Range<Pfn>, since: u64) {
        let single = Block { order: Order::ZERO, owner: self.me, movable: false };
        (range.start.0..range.end.0).for_each(|p| self.world().own(Pfn(p), single, since));
    }

    /// Takes the first of this actor's blocks of an order out of the table.
    pub(crate) fn lift(&self, order: u8) -> Option<(Pfn, Order)> {
        let mut t = self.world().table();
        let mine = |b: &Block| b.owner == self.me && b.order.get() == order;
        let pfn = t.blocks.iter().find(|(_, b)| mine(b)).map(|(&p, _)| p)?;
        t.blocks.remove(&pfn);
        Some((Pfn(pfn), o(order)))
    }

    /// Returns the first of this actor's blocks.
    pub(crate) fn mine(&self) -> Option<u64> {
        let t = self.world().table();
        t.blocks.iter().find(|(_, b)| b.owner == self.me).map(|(&p, _)| p)
    }

    /// Takes any of this actor's blocks out of the table.
    pub(crate) fn lift_any(&self) -> Option<(Pfn, Order)> {
        let mut t = self.world().table();
        let pfn = t.blocks.iter().find(|(_, b)| b.owner == self.me).map(|(&p, _)| p)?;
        t.blocks.remove(&pfn).map(|b| (Pfn(pfn), b.order))
    }

    /// Runs `way` on one of this actor's blocks; it must not fail.
    pub(crate) fn with<E: std::fmt::Display>(
        &self,
        order: u8,
        what: &str,
        way: impl FnOnce(Pfn, Order) -> Result<(), E>,
    ) -> Option<Pfn> {
        let (pfn, order) = self.lift(order)?;
        if let Err(e) = way(pfn, order) {
            self.complain(format!("{what} of {pfn} of order {} was refused: {e}", order.get()));
        }
        Some(pfn)
    }

    /// Frees one of this actor's blocks.
    pub(crate) fn free(&self, order: u8) {
        self.with(order, "free", |pfn, order| self.y.free(pfn, order));
    }

    /// Returns pageblocks relative to the state's base.
    pub(crate) fn blocks(&self, r: Range<u64>) -> Range<Pfn> {
        Pfn(self.base + r.start * 512)..Pfn(self.base + r.end * 512)
    }

    /// Returns frames relative to the state's base.
    pub(crate) fn frames(&self, r: Range<u64>) -> Range<Pfn> {
        Pfn(self.base + r.start)..Pfn(self.base + r.end)
    }

    pub(crate) fn zone(&self) -> ZoneId {
        ZoneKind::Normal.into()
    }

    /// Returns whether the frame's pageblock has memory, without a scheduling point.
    pub(crate) fn is_memory(&self, pfn: u64) -> bool {
        let here = |r| matches!(r, Record::Block { pfn: p, .. } if p.0 >> 9 == pfn >> 9);
        let mut found = false;
        quietly(|| self.y.snapshot(self.zone(), |r| found |= here(r)));
        found
    }

    /// Returns the types of pageblocks, without a scheduling point.
    pub(crate) fn types(&self, r: Range<Pfn>) -> Vec<Option<pageyard::MigrateType>> {
        quietly(|| (r.start.0..r.end.0).step_by(512).map(|p| self.y.block_type(Pfn(p))).collect())
    }
}
