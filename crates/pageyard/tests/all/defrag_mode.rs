//! `vm.defrag_mode` (spec B.1): types mix in a pageblock only after reclaim and compaction declined, and
//! background reclaim balances whole pageblocks.

use crate::common;

use std::cell::{Cell, RefCell};

use common::any::On;
use common::state::State;
use common::view::normal;
use common::{Chosen, LINUX612, Lock, Y, o};
use pageyard::MigrateType::{Movable, Unmovable};
use pageyard::policy::{DefragMode, StaticPolicy};
use pageyard::{
    AllocError, Context, Defences, Event, Gfp, NodeId, Observer, Order, OwnedStorage, Pfn,
    Platform, Reclaim, ReclaimJob, ReclaimTask, TaskFlags, Yard, ZoneKind,
};

const DEFRAG: Chosen = &<DefragMode>::RULES;
const NORMAL: ZoneKind = ZoneKind::Normal;

/// Hooks that count what a request asks of them. There is nothing to reclaim.
#[derive(Default)]
struct Hooks {
    reclaims: Cell<u32>,
    ooms: Cell<u32>,
    flags: Cell<TaskFlags>,
    woken: RefCell<Vec<Order>>,
    /// The number of reclaims before each fallback.
    fallbacks: RefCell<Vec<u32>>,
}

impl Platform for Hooks {}
impl Defences for Hooks {}

impl Reclaim for Hooks {
    fn context(&self) -> Context {
        Context { flags: self.flags.get(), ..Context::default() }
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.reclaims.set(self.reclaims.get() + 1);
        0
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> pageyard::Oom {
        self.ooms.set(self.ooms.get() + 1);
        pageyard::Oom::Nothing
    }

    fn wake_reclaim(&self, _: NodeId, order: Order, _: ZoneKind) {
        self.woken.borrow_mut().push(order);
    }
}

impl Observer for Hooks {
    fn event(&self, _: pageyard::CpuId, event: Event) {
        if let Event::Fallback { .. } = event {
            self.fallbacks.borrow_mut().push(self.reclaims.get());
        }
    }
}

type H<'y> = On<'y, Hooks>;

/// Movable pageblocks, each with 16 free pages in one block: an unmovable request has to steal.
fn mixed() -> State {
    // The last attempt before the out-of-memory killer, at HIGH, cannot serve anything.
    let s = State::new(8192).set(|z| z.watermarks = [0, 0, 1000, 1000]);
    (0..16u64).fold(s, |s, b| s.free(b * 512, 4).used(b * 512 + 16..(b + 1) * 512, true))
}

fn with<T>(s: &State, rules: Chosen, f: impl FnOnce(&H<'_>) -> T) -> T {
    let layout = s.machine.layout();
    let needs = layout.needs_on::<Lock>(rules.engine).unwrap();
    let mut maps = OwnedStorage::for_needs(&needs).unwrap();
    let mut y: H<'_> = On::new(Hooks::default(), |hooks| Yard::with_policy(hooks, rules));
    y.init_blank(&layout, maps.storage()).unwrap();
    y.restore(NORMAL, s.records()).unwrap();
    f(&y)
}

fn fallbacks(y: &H<'_>) -> Vec<u32> {
    y.hooks().fallbacks.take()
}

#[test]
fn b1_types_mix_only_after_reclaim_declined() {
    with(&mixed(), DEFRAG, |y| {
        assert!(y.alloc(o(0), Gfp::KERNEL).is_ok());
        // Enough is free for the request, so reclaim is tried until it made no progress 16 times.
        assert_eq!((fallbacks(y), y.hooks().ooms.get()), (vec![17], 0));
    });
    with(&mixed(), LINUX612, |y| {
        assert!(y.alloc(o(0), Gfp::KERNEL).is_ok());
        assert_eq!(fallbacks(y), [0]);
    });
}

#[test]
fn b1_a_request_that_cannot_reclaim_mixes_types_on_its_second_attempt() {
    with(&mixed(), DEFRAG, |y| {
        assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok());
        assert_eq!(fallbacks(y), [0]);
        // The first attempt failed: it reached the slow path, which wakes background reclaim for
        // whole pageblocks.
        let woken = y.hooks().woken.take();
        assert_eq!(woken.first(), Some(&Order::HUGE), "{woken:?}");
    });
}

/// A request from inside a reclaim hook that may not use reserves.
#[test]
fn b1_a_task_that_frees_memory_mixes_types_instead_of_failing() {
    let inside = |y: &H<'_>| {
        y.hooks().flags.set(TaskFlags::MEMALLOC);
        y.alloc(o(0), Gfp::KERNEL | Gfp::NOMEMALLOC | Gfp::NOWARN)
    };
    with(&mixed(), DEFRAG, |y| {
        assert!(inside(y).is_ok());
        assert_eq!((fallbacks(y), y.hooks().reclaims.get()), (vec![0], 0));
    });
}

#[test]
fn b1_a_noretry_request_fails_instead_of_mixing_types() {
    let noretry = Gfp::KERNEL | Gfp::NORETRY | Gfp::NOWARN;
    with(&mixed(), DEFRAG, |y| {
        assert_eq!(y.alloc(o(0), noretry), Err(AllocError::NoMemory));
        assert_eq!((fallbacks(y), y.hooks().reclaims.get()), (vec![], 1));
    });
    with(&mixed(), LINUX612, |y| assert!(y.alloc(o(0), noretry).is_ok()));
}

#[test]
fn b1_a_whole_pageblock_is_claimed_at_once() {
    let s = (0..4u64)
        .fold(State::new(2560), |s, b| s.free(b * 512, 4).used(b * 512 + 16..(b + 1) * 512, true));
    s.free(2048, 9).run_under(DEFRAG, |y: &Y<'_>| {
        let page = y.alloc(o(0), Gfp::NOWAIT).unwrap();
        assert_eq!((page.0 >> 9, normal(y).label(2048)), (4, Unmovable));
        assert!((0..4).all(|b| normal(y).label(b * 512) == Movable));
    });
}

#[test]
fn b1_background_reclaim_counts_free_pages_of_whole_pageblocks_alone() {
    // Half of the memory is free, `whole` pageblocks of it wholly.
    for (rules, whole, is_balanced) in [(DEFRAG, 1, false), (DEFRAG, 8, true), (LINUX612, 1, true)]
    {
        let s = State::new(16 * 512).set(|z| z.watermarks = [1000, 1200, 1400, 1600]);
        let s = (0..8).map(|b| b * 1024).fold(s, |s, at| match at / 1024 < whole {
            true => s.free(at, 9).block(at + 512, 9, true),
            false => {
                let s = s.free(at, 8).block(at + 256, 8, true);
                s.free(at + 512, 8).block(at + 768, 8, true)
            }
        });
        with(&s, rules, |y| {
            assert!(y.alloc(o(10), Gfp::NOWAIT | Gfp::NOWARN).is_err());
            assert!(y.hooks().woken.take().iter().all(|&order| order == o(10)));
            let mut kswapd = y.kswapd(NodeId(0)).unwrap();
            let reclaims = |task| matches!(task, ReclaimTask::Reclaim(job) if job.order == o(10));
            assert!(reclaims(kswapd.next(0)));
            // A block of the order is there now.
            y.free(Pfn(512), o(9)).unwrap();
            assert_eq!(!reclaims(kswapd.next(512)), is_balanced, "{whole} whole pageblocks");
        });
    }
}
