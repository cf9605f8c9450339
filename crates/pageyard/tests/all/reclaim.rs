//! The queries and reports of a background reclaimer (spec §3.4, §3.7, §3.9).

use crate::common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use common::any::any_hooks;
use common::state::State;
use common::{LINUX612, Machine, Y, leaked, o};
use pageyard::{
    Defences, Gfp, Mark, NodeCaches, NodeReclaim, NodeReclaimJob, Observer, Oom, Platform, Reclaim,
    ReclaimJob, ZoneId, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;

/// 1024 pages free by the lists and the exact sum, marks 100, 200, 300, 400.
fn state(nr_free: i64, diff: i32) -> State {
    State::new(4096)
        .free(1024, 10)
        .set(|z| {
            z.watermarks = [100, 200, 300, 400];
            z.nr_free = nr_free;
        })
        .cpu(0, |c| (c.diff, c.threshold) = (diff, 100))
}

fn passes(s: &State, mark: Mark, order: u8) -> bool {
    s.run(|y: &Y<'_>| y.passes(ZONE, mark, o(order), ZONE).unwrap())
}

#[test]
fn s3_7_a_mark_is_passed_by_more_than_itself_and_the_rest_of_a_block() {
    assert!(passes(&state(301, 0), Mark::High, 0));
    assert!(!passes(&state(300, 0), Mark::High, 0));
    assert!(passes(&state(300, 0), Mark::Low, 0));
    assert!(passes(&state(308, 0), Mark::High, 3) && !passes(&state(307, 0), Mark::High, 3));
    let boosted = state(350, 0).set(|z| z.boost = 50);
    assert!(!passes(&boosted, Mark::High, 0) && passes(&boosted, Mark::Low, 0));
}

#[test]
fn s3_7_an_order_needs_a_block() {
    let s = State::new(4096).free(1024, 3).set(|z| {
        z.watermarks = [100, 200, 300, 400];
        z.nr_free = 4000;
    });
    assert!(passes(&s, Mark::High, 3) && !passes(&s, Mark::High, 4));
}

#[test]
fn s3_7_the_safe_form_sums_the_parts_below_the_drift_mark() {
    // Everything is allocated, but part of that is still pending in the CPU's part of the counter.
    Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
        y.set_min_free_kbytes(0).unwrap();
        while y.alloc(o(0), Gfp::MEMALLOC).is_ok() {}
        let info = y.zone_info(ZONE).unwrap();
        assert!(info.free > 0 && info.free_exact == 0 && info.watermarks[0] == 0, "{info:?}");
        assert_eq!(y.passes(ZONE, Mark::Min, o(0), ZONE), Some(false));
    });
    // Restored zones have no drift mark, so only the counter is used.
    assert!(!passes(&state(290, 50), Mark::High, 0));
}

#[test]
fn s3_4_reclaim_removes_the_boost_it_saw() {
    state(2000, 0).set(|z| z.boost = 700).run(|y: &Y<'_>| {
        assert!(y.lower_boost(ZONE, 512));
        assert_eq!(y.zone_info(ZONE).unwrap().boost, 188);
        assert!(y.lower_boost(ZONE, 512));
        assert_eq!(y.zone_info(ZONE).unwrap().boost, 0);
        assert!(!y.lower_boost(ZoneKind::Dma, 1));
    });
}

#[test]
fn s3_9_total_reserve() {
    state(1024, 0).run(|y: &Y<'_>| {
        let managed = y.zone_info(ZONE).unwrap().managed;
        assert_eq!(y.total_reserve(), managed.min(300));
    });
    let s = state(1024, 0).set(|z| z.lowmem_reserve = [900, 900, 40, 70, 70]);
    s.run(|y: &Y<'_>| {
        let managed = y.zone_info(ZONE).unwrap().managed;
        assert_eq!(
            y.total_reserve(),
            managed.min(370),
            "the largest reserve for its own and higher zones"
        );
    });
}

thread_local! {
    /// The request that hooks make.
    static REQUEST: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    /// Number of hooks that this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CALLS: RefCell<BTreeMap<&'static str, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Allocates in every hook that frees or counts memory.
struct Allocating;

impl Allocating {
    fn called(hook: &'static str) {
        assert_eq!(DEPTH.replace(DEPTH.get() + 1), 0, "{hook} was called inside another such hook");
        CALLS.with_borrow_mut(|calls| *calls.entry(hook).or_default() += 1);
        REQUEST.with_borrow(|request| request.as_ref().expect("a request is set")());
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl Platform for Allocating {}

impl Reclaim for Allocating {
    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        Self::called("reclaim");
        1
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        Self::called("reclaimable");
        0
    }

    fn node_caches(&self, _: &NodeReclaimJob) -> Option<NodeCaches> {
        Self::called("node_caches");
        None
    }

    fn node_reclaim(&self, _: &NodeReclaimJob) -> NodeReclaim {
        Self::called("node_reclaim");
        NodeReclaim::Full
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        Self::called("out_of_memory");
        Oom::Nothing
    }
}

impl Observer for Allocating {}
impl Defences for Allocating {}

/// §2.10: a request made inside a hook that frees or counts memory calls no other such hook.
#[test]
fn a_hook_that_counts_memory_may_allocate() {
    let machine = Machine::normal(4096).knobs(|k| k.zone_reclaim_mode = 1);
    let y = leaked(&machine, any_hooks(&Allocating), LINUX612);
    REQUEST.set(Some(Box::new(|| {
        for order in [0, 1, 4] {
            _ = y.alloc(o(order), Gfp::KERNEL | Gfp::NOWARN);
        }
    })));
    while y.alloc(o(0), Gfp::MEMALLOC | Gfp::NOWARN).is_ok() {}
    for order in [0, 3] {
        assert!(y.alloc(o(order), Gfp::KERNEL | Gfp::NOWARN).is_err());
    }
    let called: Vec<_> = CALLS.take().into_keys().collect();
    let all = ["node_caches", "node_reclaim", "out_of_memory", "reclaim", "reclaimable"];
    assert_eq!(called, all);
    REQUEST.set(None);
}
