//! Hooks that use the yard while it moves or prepares blocks for ranges: for compaction (spec §7.4) and for
//! contiguous areas (§4.12).

#![allow(unsafe_code)] // a lock

use crate::common;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use common::any::On;
use common::{Chosen, LINUX612, Machine, Reused, frames, o};
use lock_api::{GuardSend, RawMutex};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    CmaArea, Defences, Gfp, MigrateType, Observer, Order, Pfn, Platform, Priority, Reclaim,
    Relocation, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
const ENGINES: [Chosen; 2] = [LINUX612, &<Packed>::RULES];

type Y = On<'static, Hooks>;
/// What a hook does, with the block that it is called for (the target, of a move). Whether it did it.
type Does = fn(&Y, Pfn) -> bool;

#[derive(Default)]
struct Hooks {
    yard: RefCell<Weak<Y>>,
    relocate: Cell<Option<Does>>,
    prepare: Cell<Option<Does>>,
    area: OnceCell<CmaArea<'static, Alone>>,
    /// The pageblock that a hook isolated.
    isolated: Cell<Option<u64>>,
    /// Blocks that were to move into it afterwards.
    reused: Cell<u32>,
    /// The movable pages in use.
    pages: RefCell<BTreeSet<Pfn>>,
}

impl Hooks {
    fn yard(&self) -> Rc<Y> {
        self.yard.borrow().upgrade().expect("the yard is alive")
    }
}

impl Platform for Hooks {
    fn prepare(&self, pfn: Pfn, _: Order, _: Gfp) {
        if let Some(does) = self.prepare.take() {
            assert!(does(&self.yard(), pfn));
        }
    }
}

impl Reclaim for Hooks {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        if self.isolated.get() == Some(to.0 & !511) {
            self.reused.set(self.reused.get() + 1);
        }
        let Some(does) = self.relocate.get() else { return Relocation::Refused };
        if does(&self.yard(), to) {
            return Relocation::Refused;
        }
        let mut pages = self.pages.borrow_mut();
        assert!(pages.remove(&from) && pages.insert(to), "from {from} to {to}");
        Relocation::Moved
    }
}

impl Observer for Hooks {}
impl Defences for Hooks {}

fn yard(rules: Chosen) -> Rc<Y> {
    let all = Reused::under(rules, Machine::normal(8192).cpus(&[0]));
    let yard = Rc::new(Y::new(Hooks::default(), |hooks| all.next(hooks)));
    *yard.hooks().yard.borrow_mut() = Rc::downgrade(&yard);
    yard
}

/// Frees the first page in use, as its owner. Later ones are moved.
fn frees(y: &Y, _: Pfn) -> bool {
    y.hooks().relocate.set(Some(|_, _| false));
    let first = y.hooks().pages.borrow_mut().pop_first();
    first.is_some_and(|pfn| y.free(pfn, Order::ZERO).is_ok())
}

/// The hook has nothing to move then, which ends the migration of this block only.
#[test]
fn s4_12_a_block_that_its_owner_frees_does_not_fail_the_range() {
    for rules in ENGINES {
        let y = yard(rules);
        for _ in 0..600 {
            let pfn = y.alloc(Order::ZERO, MOVABLE).unwrap();
            y.set_movable(pfn, Order::ZERO, true).unwrap();
            y.hooks().pages.borrow_mut().insert(pfn);
        }
        let first = y.hooks().pages.borrow().first().unwrap().0;
        y.hooks().relocate.set(Some(frees));
        let range = frames(first..(first | 511) + 1);
        assert_eq!(y.alloc_contig(range, MigrateType::Movable, Gfp::KERNEL), Ok(()), "{rules:?}");
        assert_eq!(y.hooks().pages.borrow().len(), 599);
    }
}

/// Splits the block in use, as its owner. Its pages are moved later.
fn splits(y: &Y, _: Pfn) -> bool {
    y.hooks().relocate.set(Some(|_, _| false));
    let block = y.hooks().pages.borrow_mut().pop_first().unwrap();
    y.hooks().pages.replace((block.0..block.0 + 8).map(Pfn).collect());
    y.split(block, o(3), Order::ZERO).is_ok()
}

#[test]
fn s4_12_a_block_that_its_owner_splits_moves_in_pieces() {
    for rules in ENGINES {
        let y = yard(rules);
        let block = y.alloc(o(3), MOVABLE).unwrap();
        y.set_movable(block, o(3), true).unwrap();
        y.hooks().pages.borrow_mut().insert(block);
        y.hooks().relocate.set(Some(splits));
        let range = frames(block.0..block.0 + 8);
        assert_eq!(y.alloc_contig(range, MigrateType::Movable, Gfp::KERNEL), Ok(()), "{rules:?}");
        assert_eq!(y.hooks().pages.borrow().len(), 8);
        assert!(y.hooks().pages.borrow().range(block..Pfn(block.0 + 8)).next().is_none());
    }
}

/// Isolates the pageblock of a block, unless compaction holds other blocks of it.
fn isolates(y: &Y, to: Pfn) -> bool {
    let block = to.0 & !511;
    let isolated = y.isolate(frames(block..block + 512), MigrateType::Movable).is_ok();
    if isolated {
        y.drain_all(None);
        y.hooks().isolated.set(Some(block));
        y.hooks().relocate.set(None);
    }
    isolated
}

/// Spec §4.11: until its isolation ends, none of a pageblock's free pages is allocated. A place that a block
/// was to move to is free again when its owner refuses, but isolated meanwhile.
#[test]
fn s4_11_compaction_leaves_a_target_whose_pageblock_was_isolated() {
    for rules in ENGINES {
        let y = yard(rules);
        let mut all = BTreeSet::new();
        while let Ok(page) = y.alloc(o(0), MOVABLE) {
            y.set_movable(page, o(0), true).unwrap();
            all.insert(page);
        }
        all.retain(|page| page.0 % 3 == 0 || y.free(*page, o(0)).is_err());
        y.drain_all(None);
        y.hooks().pages.replace(all);
        y.hooks().relocate.set(Some(isolates));
        _ = y.compact_zone(NORMAL, None, Priority::SyncFull);
        let block = y.hooks().isolated.get().expect("a block was to move");
        assert_eq!(y.hooks().reused.get(), 0, "blocks were to move into the isolated pageblock");
        y.validate().unwrap();
        y.unisolate(frames(block..block + 512), MigrateType::Movable).unwrap();
        let pages = y.hooks().pages.take();
        pages.into_iter().for_each(|page| y.free(page, o(0)).unwrap());
        y.drain_all(None);
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!(info.free_exact, info.managed);
    }
}

/// A lock that must never be wanted while it is held.
struct Alone(AtomicBool);

// SAFETY: `swap` returns false to one thread at a time, which holds the lock until `unlock`. A thread to which
// it returns true panics in `lock`. `s4_12_the_pages_of_an_area_are_prepared_without_its_lock` depends on that.
unsafe impl RawMutex for Alone {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Alone(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        assert!(self.try_lock(), "the lock is held");
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}

#[test]
fn s4_12_the_pages_of_an_area_are_prepared_without_its_lock() {
    for rules in ENGINES {
        let y = yard(rules);
        let bits = Box::leak(Box::new([const { AtomicU64::new(0) }; 16]));
        let area = CmaArea::new(&y, frames(4096..5120), o(0), bits).unwrap();
        assert!(y.hooks().area.set(area).is_ok());
        y.hooks().prepare.set(Some(|y, first| {
            let area = y.hooks().area.get().unwrap();
            let more = area.alloc(y, 20, 1, Gfp::KERNEL).unwrap();
            more != first
        }));
        let area = y.hooks().area.get().unwrap();
        area.alloc(&y, 10, 1, Gfp::KERNEL).unwrap();
        assert_eq!(area.stats().used, 30);
        y.validate().unwrap();
    }
}
