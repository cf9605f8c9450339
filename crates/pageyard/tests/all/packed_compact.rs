//! Compaction on the packed engine.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::common::any::{AnyHooks, On};
use pageyard::policy::Packed;
use pageyard::*;

type Moving = On<'static, Mover, AnyHooks<'static>, spin::mutex::SpinMutex<()>, Packed>;
type Answer = Box<dyn Fn(Pfn, Pfn) -> Relocation>;

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::MEMALLOC).union(Gfp::NOWARN);

/// Answers for the owners of movable blocks, and records what it was asked to move.
struct Mover {
    relocate: Answer,
    unevictable: bool,
    moves: RefCell<Vec<(Pfn, Pfn)>>,
}

impl Mover {
    /// One that moves every block.
    fn new() -> Self {
        Mover::with(|_, _| Relocation::Moved)
    }

    fn with(relocate: impl Fn(Pfn, Pfn) -> Relocation + 'static) -> Self {
        Mover { relocate: Box::new(relocate), unevictable: false, moves: RefCell::default() }
    }
}

impl Platform for Mover {}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        self.moves.borrow_mut().push((from, to));
        (self.relocate)(from, to)
    }

    fn is_unevictable(&self, _: Pfn, _: Order) -> bool {
        self.unevictable
    }
}

fn yard(mib: u64, mover: Mover) -> Moving {
    let usable = [1 << 32..(1 << 32) + (mib << 20)];
    On::new(mover, |hooks| Yard::from_memory_map(&usable, &[], 2, hooks).unwrap())
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Allocates all memory as movable pages, then frees those that do not stay.
fn leave(yard: &Moving, stays: impl Fn(u64) -> bool) -> Vec<Pfn> {
    let all: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, MOVABLE).ok()).collect();
    let (left, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|pfn| stays(pfn.0 - (1 << 20)));
    go.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    left
}

#[test]
fn compaction_empties_sparse_pageblocks() {
    let yard = yard(64, Mover::new());
    let mut left = leave(&yard, |n| n % 8 == 3 || n >= 12_000);
    let huge = || {
        let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
        blocks[9] + 2 * blocks[10]
    };
    let before = huge();
    yard.compact_all();
    yard.validate().unwrap();
    let moves = yard.hooks().moves.take();
    assert_eq!(yard.compact_stats().moved, moves.len() as u64);
    for (from, to) in moves {
        let place = left.iter_mut().find(|pfn| **pfn == from).expect("a page in use moved");
        *place = to;
    }
    assert!(huge() > before + 15, "{} of {before} and more", huge());
    left.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    yard.validate().unwrap();
    assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().free_exact, 64 << 8);
}

#[test]
fn compaction_leaves_locked_blocks() {
    let mover = Mover::with(|_, _| panic!("a locked block is moved"));
    let yard = yard(64, Mover { unevictable: true, ..mover });
    yard.set_knob("compact_unevictable_allowed", "0").unwrap();
    leave(&yard, |n| n % 8 == 3);
    yard.compact_all();
    yard.compact_zone(ZoneKind::Normal, Some(order(4)), Priority::SyncLight).unwrap();
    yard.validate().unwrap();
}

#[test]
fn compaction_ends_no_isolation_but_its_own() {
    let place: Rc<RefCell<Weak<Moving>>> = Rc::default();
    let isolated = Rc::new(Cell::new(None));
    let (here, mine) = (place.clone(), isolated.clone());
    let relocate = move |from: Pfn, _: Pfn| {
        let yard = here.borrow().upgrade().expect("the yard is alive");
        let range = from..Pfn(from.0 + 1);
        if mine.get().is_none() {
            // Ends compaction's isolation, then isolates the pageblock itself.
            yard.unisolate(range.clone(), MigrateType::Movable).unwrap();
            if yard.isolate(range, MigrateType::Movable).is_ok() {
                mine.set(Some(from));
            }
        }
        Relocation::Busy
    };
    let yard = Rc::new(yard(64, Mover::with(relocate)));
    *place.borrow_mut() = Rc::downgrade(&yard);
    leave(&yard, |n| n % 8 == 3);
    yard.compact_all();
    let pfn = isolated.get().expect("a pageblock was isolated");
    assert_eq!(yard.block_type(pfn), Some(MigrateType::Isolate));
    yard.unisolate(pfn..Pfn(pfn.0 + 1), MigrateType::Movable).unwrap();
    yard.validate().unwrap();
}

#[test]
fn compaction_of_a_zone_joins_half_used_pageblocks() {
    let yard = yard(64, Mover::new());
    // 500 pages stay in use, in two pageblocks.
    leave(&yard, |n| n < 1000 && n % 2 == 1);
    let whole = || yard.free_blocks(ZoneKind::Normal).unwrap()[9..].iter().sum::<u64>();
    let before = whole();
    yard.compact_all();
    let moved = yard.hooks().moves.borrow().len();
    assert!((244..=256).contains(&moved), "one pageblock is emptied: {moved} moves");
    assert_eq!(whole(), before + 1);
    yard.compact_all();
    assert_eq!(yard.hooks().moves.borrow().len(), moved, "no half-used pageblocks are left");
    yard.validate().unwrap();
}

/// Found by a review: compaction for a request moved nothing out of pageblocks that were half used, and the
/// request ended in the out-of-memory hook.
#[test]
fn s2_10_a_request_of_a_low_order_compacts_half_used_pageblocks() {
    for n in 1..=3 {
        let yard = yard(64, Mover::new());
        leave(&yard, |n| n % 2 == 0);
        assert!(yard.alloc(order(n), Gfp::NOWAIT).is_err(), "no block of this order is free");
        yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN).unwrap();
        let moved = yard.hooks().moves.borrow().len();
        assert!((256..=4096).contains(&moved), "{moved}");
        yard.validate().unwrap();
    }
}

/// Of 256 pageblocks that are half used, 128 hold an unmovable page and stay.
#[test]
fn s2_10_a_request_of_a_low_order_passes_over_pageblocks_that_stay() {
    let yard = yard(512, Mover::new());
    let left = leave(&yard, |n| n % 2 == 0);
    for page in left.into_iter().filter(|page| page.0 % 512 == 0).take(128) {
        yard.set_movable(page, Order::ZERO, false).unwrap();
    }
    yard.alloc(order(1), Gfp::KERNEL | Gfp::NOWARN).unwrap();
    yard.validate().unwrap();
}

/// A search for half-used pageblocks leaves no place behind all sparse ones, where the next run would begin.
#[test]
fn s7_4_a_refused_run_for_a_low_order_hides_no_sparse_pageblock() {
    let refuses = Rc::new(Cell::new(true));
    let answer = refuses.clone();
    let relocate = move |_, _| match answer.get() {
        true => Relocation::Refused,
        false => Relocation::Moved,
    };
    let yard = yard(512, Mover::with(relocate));
    leave(&yard, |n| n % if n < 8 * 512 { 4 } else { 2 } == 0);
    yard.compact_for(order(2), Gfp::KERNEL | Gfp::NOWARN, Priority::SyncLight).unwrap();
    refuses.set(false);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(5)), Priority::SyncLight);
    assert_eq!(done, Some(CompactResult::Success));
    yard.validate().unwrap();
}
