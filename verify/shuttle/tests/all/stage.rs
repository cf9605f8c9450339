//! Three threads as three CPUs: a lock that yields at every operation, and a platform that yields
//! at every event of the core, whether locks are held or not, and records the owners of blocks.
#![allow(unsafe_code)] // locks over shuttle's atomics

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use lock_api::RawMutex;
use pageyard::policy::StaticPolicy;
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, Observer, Order, Pfn, Platform, Reclaim, Relocation, Yard,
    ZoneKind,
};
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use crate::common::check::{Owned, check};
use crate::common::{Machine, o};

/// Number of pages in the machine.
pub(crate) const PAGES: u64 = 3072;

/// A spin lock whose every operation is a scheduling point.
pub(crate) struct Turns(AtomicBool);

// SAFETY: only one swap from false to true can succeed before the next unlock.
unsafe impl RawMutex for Turns {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Turns(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}

/// The planted bug: CPU 1 does not wait for a lock that it must take. It does respect locks that it
/// only tries. So two CPUs never use a CPU's lists, which are behind such a lock, at once; the zone
/// lock protects no data of its own.
pub(crate) struct Impatient(Turns);

// SAFETY: none; the tests that use it only wait for locks over `()`.
unsafe impl RawMutex for Impatient {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Impatient(Turns::INIT);
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        if CPU.with(Cell::get) == 1 {
            self.0.try_lock();
        } else {
            self.0.lock();
        }
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.unlock() };
    }
}

shuttle::thread_local! {
    pub(crate) static CPU: Cell<u32> = Cell::new(0);
}

/// The blocks in use, by first frame.
#[derive(Default)]
pub(crate) struct Stage {
    blocks: Mutex<BTreeMap<Pfn, Order>>,
}

impl Stage {
    pub(crate) fn own(&self, pfn: Pfn, order: Order) {
        let end = Pfn(pfn.0 + u64::from(order.pages()));
        let mut blocks = self.blocks.lock().unwrap();
        if let Some((p, o)) = blocks.range(..end).next_back() {
            assert!(p.0 + u64::from(o.pages()) <= pfn.0, "{pfn} was handed out twice");
        }
        blocks.insert(pfn, order);
    }

    pub(crate) fn disown(&self) -> Option<(Pfn, Order)> {
        self.blocks.lock().unwrap().pop_first()
    }
}

impl Platform for Stage {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn pause(&self) {
        thread::yield_now();
    }
}

impl Reclaim for Stage {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        thread::yield_now();
        let mut blocks = self.blocks.lock().unwrap();
        if blocks.get(&from) != Some(&order) {
            return Relocation::Refused;
        }
        blocks.remove(&from);
        blocks.insert(to, order);
        Relocation::Moved
    }
}

impl Observer for Stage {
    fn event(&self, _: CpuId, _: Event) {
        thread::yield_now();
    }
}

impl Defences for Stage {}

pub(crate) type Y<'y, R, P> = Yard<'y, Hooked<R, Stage, P>>;

/// What each of the three threads does.
pub(crate) type Part<R, P> = fn(&Y<'_, R, P>, u32);

/// Runs three threads as three CPUs, then frees what is left, drains and checks.
pub(crate) fn scenario<R, P>(each: Part<R, P>) -> impl Fn() + Send + Sync
where
    R: RawMutex + Send + Sync + 'static,
    P: StaticPolicy + Send + Sync + 'static,
{
    move || {
        let m = Machine::normal(PAGES).cpus(&[0, 0, 1, 0]);
        m.run_on(Stage::default(), |y: &Y<'_, R, P>| {
            thread::scope(|s| {
                for cpu in 0..3 {
                    s.spawn(move || {
                        CPU.with(|c| c.set(cpu));
                        each(y, cpu);
                    });
                }
            });
            while free_one(y) {}
            y.drain_all(None);
            check(y, &m, &Owned::new());
            let info = y.zone_info(ZoneKind::Normal).unwrap();
            assert_eq!((info.free_exact, info.cached), (PAGES, 0));
            assert_eq!(y.zone_stats(ZoneKind::Normal).unwrap().type_check_failures, 0);
        });
    }
}

/// Allocates a block, which any thread may free from now on.
pub(crate) fn take<R: RawMutex, P: StaticPolicy>(y: &Y<'_, R, P>, order: u8, gfp: Gfp) {
    if let Ok(pfn) = y.alloc(o(order), gfp) {
        if gfp.contains(Gfp::MOVABLE) {
            y.set_movable(pfn, o(order), true).unwrap();
        }
        y.hooks().own(pfn, o(order));
    }
}

/// Frees a block of any owner. Returns whether there was one.
pub(crate) fn free_one<R: RawMutex, P: StaticPolicy>(y: &Y<'_, R, P>) -> bool {
    let next = y.hooks().disown();
    if let Some((pfn, order)) = next {
        y.free(pfn, order).unwrap();
    }
    next.is_some()
}

/// Requests of several orders, and a free on this CPU after each.
pub(crate) fn requests<R: RawMutex, P: StaticPolicy>(y: &Y<'_, R, P>, cpu: u32) {
    for order in [0, 1, 0, 4] {
        take(y, order, [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC][cpu as usize]);
        free_one(y);
    }
}
