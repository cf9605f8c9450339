//! Compaction on the packed engine.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

mod limits;
mod served;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use crate::common::any::{AnyHooks, On};
use pageyard::policy::Packed;
use pageyard::*;

type Moving = On<'static, Mover, AnyHooks<'static>, spin::mutex::SpinMutex<()>, Packed>;
type Answer = Box<dyn Fn(Pfn, Pfn) -> Relocation>;

/// Of a request that tries as hard as it can without the out-of-memory hook.
const PATIENT: Gfp = Gfp::RETRY_MAYFAIL.union(Gfp::NOWARN);

/// Answers for the owners of movable blocks, and records what it was asked to move.
struct Mover {
    relocate: Answer,
    is_locked: Box<dyn Fn(Pfn) -> bool>,
    cpu: Rc<Cell<u32>>,
    moves: RefCell<Vec<(Pfn, Pfn)>>,
}

impl Mover {
    /// One that moves every block.
    fn new() -> Self {
        Mover::with(|_, _| Relocation::Moved)
    }

    /// One that refuses to move the blocks that stay.
    fn refusing(stays: impl Fn(Pfn) -> bool + 'static) -> Self {
        Mover::with(move |from, _| match stays(from) {
            true => Relocation::Refused,
            false => Relocation::Moved,
        })
    }

    fn with(relocate: impl Fn(Pfn, Pfn) -> Relocation + 'static) -> Self {
        Mover {
            relocate: Box::new(relocate),
            is_locked: Box::new(|_| false),
            cpu: Rc::default(),
            moves: RefCell::default(),
        }
    }
}

impl Platform for Mover {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        self.moves.borrow_mut().push((from, to));
        (self.relocate)(from, to)
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        (self.is_locked)(pfn)
    }
}

fn yard(mib: u64, mover: Mover) -> Moving {
    let usable = [1 << 32..(1 << 32) + (mib << 20)];
    On::new(mover, |hooks| Yard::from_memory_map(&usable, &[], 2, hooks).unwrap())
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn take_all(yard: &Moving, n: u8, gfp: Gfp) -> Vec<Pfn> {
    let gfp = gfp | Gfp::MEMALLOC | Gfp::NOWARN;
    std::iter::from_fn(|| yard.alloc(order(n), gfp).ok()).collect()
}

/// Allocates all memory as movable pages, then frees those that do not stay.
fn leave(yard: &Moving, stays: impl Fn(u64) -> bool) -> Vec<Pfn> {
    leave_of(yard, Gfp::HIGHUSER_MOVABLE, stays)
}

/// Like [`leave`], with pages that were requested by these flags.
fn leave_of(yard: &Moving, gfp: Gfp, stays: impl Fn(u64) -> bool) -> Vec<Pfn> {
    let all = take_all(yard, 0, gfp);
    let (left, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|pfn| stays(pfn.0 - (1 << 20)));
    go.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    left
}

/// Leaves every second page in use, in pageblocks of the type that the flags ask for: one page of each does
/// not move.
fn leave_mixed(yard: &Moving, gfp: Gfp) {
    for page in leave_of(yard, gfp, |n| n % 2 == 0) {
        yard.set_movable(page, Order::ZERO, page.0 % 512 != 0).unwrap();
    }
}
