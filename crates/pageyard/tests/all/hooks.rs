//! What the embedder is promised about its hooks: which are called without any allocator lock held
//! ([`Platform`]), and when.

use crate::common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use common::any::{AnyHooks, On};
use common::interpose::{HELD, Interposed, RELEASED};
use common::{Chosen, LINUX612, Machine, frames, o};
use pageyard::poison::Corruption;
use pageyard::policy::{InitOnFree, Poisoned, StaticPolicy, Unmapped};
use pageyard::{
    Context, CpuId, Defences, Event, Gfp, HotplugError, NodeId, Observer, Oom, Order, Pfn, Place,
    Platform, Reclaim, ReclaimJob, Relocation, SECTION_PAGES, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;

type Y<'y, H> = On<'y, H, AnyHooks<'static>, Interposed>;

/// Panics if a hook that may take long is called with a lock held.
#[derive(Default)]
struct Hooks {
    calls: RefCell<BTreeMap<&'static str, u32>>,
    movable: RefCell<BTreeSet<Pfn>>,
}

impl Hooks {
    fn called(&self, hook: &'static str) {
        assert_eq!(HELD.get(), 0, "{hook} is called without any lock");
        *self.calls.borrow_mut().entry(hook).or_default() += 1;
    }

    /// Asserts that each of these hooks was called, so that the lock check covered it.
    fn saw(&self, hooks: &[&str]) {
        for hook in hooks {
            assert!(self.calls.borrow().contains_key(hook), "{hook} was never called");
        }
    }
}

impl Platform for Hooks {
    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        self.called("prepare");
    }

    fn pause(&self) {
        self.called("pause");
    }
}

impl Reclaim for Hooks {
    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.called("wake_reclaim");
    }

    fn wake_compaction(&self, _: NodeId) {
        self.called("wake_compaction");
    }

    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        self.called("relocate");
        let mut movable = self.movable.borrow_mut();
        if !movable.remove(&from) {
            return Relocation::Refused;
        }
        movable.insert(to);
        Relocation::Moved
    }

    fn context(&self) -> Context {
        self.called("context");
        Context::default()
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.called("reclaim");
        0
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        self.called("out_of_memory");
        Oom::Nothing
    }

    fn keep_trying(&self, _: Order, tries: u32) -> bool {
        self.called("keep_trying");
        tries < 2
    }

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        self.called("report_free");
        true
    }
}

impl Observer for Hooks {
    fn warn(&self, _: Order, _: Gfp) {
        self.called("warn");
    }
}

impl Defences for Hooks {
    fn zero(&self, _: Pfn, _: Order) -> bool {
        self.called("zero");
        true
    }

    fn poison(&self, _: Pfn, _: Order) {
        self.called("poison");
    }

    fn check_poison(&self, _: Pfn, _: Order) -> Option<Corruption> {
        self.called("check_poison");
        None
    }

    fn map(&self, _: Pfn, _: Order) {
        self.called("map");
    }

    fn unmap(&self, _: Pfn, _: Order) {
        self.called("unmap");
    }
}

/// The contract of [`Platform`]: only observing hooks may be called with locks held.
#[test]
fn hooks_are_called_without_locks_by_single_requests() {
    Machine::normal(8192).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        for i in 0..9000 {
            if let Ok(pfn) = y.alloc(o(0), Gfp::ATOMIC)
                && i % 9 == 0
            {
                y.free(pfn, o(0)).unwrap();
            }
        }
        assert!(y.alloc(o(5), Gfp::NOWAIT).is_err());
    });
}

#[test]
fn hooks_are_called_without_locks_by_bulk_requests_in_an_array() {
    Machine::normal(8192).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut [None; 8]), Ok(8));
    });
}

#[test]
fn hooks_are_called_without_locks_by_bulk_requests_as_a_list() {
    Machine::normal(8192).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        let mut held = 0;
        y.alloc_bulk_each(8, Gfp::KERNEL, |_| held = held.max(HELD.get())).unwrap();
        assert_eq!(held, 0, "the caller's code may allocate, read counters, panic");
    });
}

#[test]
fn hooks_are_called_without_locks_by_placed_requests() {
    Machine::normal(8192).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        for place in [
            Place { align: 64, ..Place::default() },
            Place { below: Some(Pfn(8000)), ..Place::default() },
        ] {
            y.alloc_with(o(3), Gfp::KERNEL, place).unwrap();
        }
    });
}

/// The hook that fills memory runs when memory is initialised, onlined and unpoisoned (§8.1, §8.4,
/// §11.3–11.6).
fn memory_that_comes(rules: Chosen, fills: &'static str) {
    let machine = Machine::new().span(NORMAL, 0..4 * S).usable(0..S).usable(2 * S..3 * S);
    machine.run_with(Hooks::default(), rules, |y: &Y<'_, Hooks>| {
        let hooks = y.hooks();
        let count = || hooks.calls.borrow().get(fills).copied().unwrap_or(0);
        assert_eq!(count() as u64, (2 * S) >> 10, "§8.1: the largest blocks");
        y.online(frames(S..2 * S)).unwrap();
        assert_eq!(count() as u64, (3 * S) >> 10, "§8.4");
        y.poison_frame(Pfn(77)).unwrap();
        let before = count();
        y.unpoison_frame(Pfn(77)).unwrap();
        assert_eq!(count(), before + 1, "§11.3");
        assert_eq!(y.zone_info(NORMAL).unwrap().free_exact, 3 * S);
    });
}

#[test]
fn s11_4_onlined_memory_is_poisoned_without_locks() {
    memory_that_comes(&<Poisoned>::RULES, "poison");
}

#[test]
fn s11_5_onlined_memory_is_zeroed_without_locks() {
    memory_that_comes(&<InitOnFree>::RULES, "zero");
}

#[test]
fn s11_6_onlined_memory_is_unmapped_without_locks() {
    memory_that_comes(&<Unmapped>::RULES, "unmap");
}

/// §8.4: offlining moves blocks without locks held, so that the embedder can allocate, change
/// limits and disable lists meanwhile. Only other hotplug operations wait.
#[test]
fn s8_4_offlining_calls_hooks_without_locks() {
    Machine::normal(4 * S).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        let hooks = y.hooks();
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN;
        for _ in 0..2 * S {
            let pfn = y.alloc(o(0), gfp).unwrap();
            hooks.movable.borrow_mut().insert(pfn);
            y.set_movable(pfn, o(0), true).unwrap();
        }
        let gone = hooks.movable.borrow().iter().next().unwrap().0 & !(S - 1);
        y.offline(frames(gone..gone + S)).unwrap();
        hooks.saw(&["relocate"]);
        // Offlining retries an immovable block, then fails.
        let fixed = y.alloc(o(0), Gfp::KERNEL).unwrap();
        let start = fixed.0 & !(S - 1);
        let refused = y.offline(frames(start..start + S));
        assert!(matches!(refused, Err(HotplugError::Refused(_))), "{refused:?}");
    });
}

/// §2.10: the last step calls its hooks without locks.
#[test]
fn s2_10_out_of_memory_is_reported_without_locks() {
    Machine::normal(8192).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        let hooks = y.hooks();
        while y.alloc(o(0), Gfp::KERNEL).is_ok() {}
        while y.alloc(o(0), Gfp::KERNEL | Gfp::NOFAIL).is_ok() {}
        hooks.saw(&["wake_reclaim", "reclaim", "out_of_memory", "keep_trying", "warn"]);
    });
}

/// §5.5: limits that change while a zone's lists are disabled are in force afterwards; guards nest.
#[test]
fn s5_5_limits_change_while_lists_are_disabled() {
    Machine::normal(1 << 18).run_with(Hooks::default(), LINUX612, |y: &Y<'_, Hooks>| {
        let limits = || y.pageset(NORMAL, CpuId(0)).unwrap().limits;
        let before = limits();
        let first = y.disable_pcp(NORMAL).unwrap();
        assert_eq!(HELD.get(), 0, "the guard holds no lock");
        let disabled = limits();
        let second = y.disable_pcp(NORMAL).unwrap();
        y.set_percpu_pagelist_high_fraction(8).unwrap();
        assert_eq!(limits(), disabled);
        drop(first);
        assert_eq!(limits(), disabled, "the second guard still disables the lists");
        drop(second);
        assert!(limits() != disabled && limits() != before);
    });
}

/// Panics if a free is reported when the block may already have another owner: after a lock was
/// released.
struct Early;

impl Platform for Early {}
impl Reclaim for Early {}

impl Observer for Early {
    fn event(&self, _: CpuId, event: Event) {
        if matches!(event, Event::Free { .. }) {
            assert_eq!(RELEASED.get(), 0, "no lock was released since the free began");
        }
    }
}

impl Defences for Early {}

/// `mm_page_free` is recorded before the page reaches a list (§9.5), so another CPU's event for the
/// same frame can only come later.
#[test]
fn s9_5_a_free_is_reported_before_the_block_is_on_a_list() {
    // Large enough for a list that takes single pages back without a drain.
    Machine::normal(1 << 18).run_with(Early, LINUX612, |y: &Y<'_, Early>| {
        for order in [0, 0, 5] {
            let pfn = y.alloc(o(order), Gfp::KERNEL).unwrap();
            RELEASED.set(0);
            y.free(pfn, o(order)).unwrap();
        }
    });
}
