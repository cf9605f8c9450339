//! The slow path (spec §2.9–2.11, §7.3): every request terminates, whatever the embedder's hooks
//! do.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::common;
use common::any::{SharedHooks, shared_hooks};
use common::state::State;
use common::{Chosen, LINUX612, Lock, Machine, leaked, o};
use pageyard::{
    AllocError, Context, Defences, Gfp, Hooked, MigrateType, NodeId, Observer, Oom, Order, Pfn,
    Platform, Reclaim, ReclaimJob, TaskFlags, Throttle, VmEvent, Yard, ZoneId, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 1 << 13;

type Y = Yard<'static, Hooked<Lock, SharedHooks<'static>, Chosen>>;

thread_local! {
    static CONTEXT: Cell<Context> = Cell::new(Context::default());
}

/// Hooks whose behaviour the test sets, and which count their calls.
#[derive(Default)]
struct Hooks {
    yard: OnceLock<&'static Y>,
    /// Pages that each reclaim claims to have freed, without freeing them.
    claims: AtomicU64,
    /// Pages that each reclaim really frees.
    frees: AtomicU32,
    /// Whether reclaim allocates.
    reenters: AtomicBool,
    reclaimable: AtomicU64,
    oom: AtomicU32,
    oom_reenters: AtomicBool,
    oom_lies: AtomicBool,
    /// Whether the out-of-memory killer picks the requesting task.
    oom_picks_asker: AtomicBool,
    /// Whether an interrupt during reclaim allocates.
    interrupted: AtomicBool,
    /// Whether the cpuset's cookie changes at every read.
    restless: AtomicBool,
    patience: AtomicU32,
    now: AtomicU64,
    held: std::sync::Mutex<Vec<Pfn>>,
    reclaims: AtomicU32,
    ooms: AtomicU32,
    throttles: AtomicU32,
    warnings: AtomicU32,
    nested: std::sync::Mutex<Vec<Result<Pfn, AllocError>>>,
}

impl Hooks {
    fn yard(&self) -> &'static Y {
        self.yard.get().copied().unwrap()
    }

    fn free_held(&self, n: u32) -> u64 {
        let mut held = self.held.lock().unwrap();
        let n = (n as usize).min(held.len());
        let at = held.len() - n;
        let pages = held.split_off(at);
        drop(held);
        for pfn in pages {
            self.yard().free(pfn, Order::ZERO).unwrap();
        }
        n as u64
    }

    fn nest(&self) {
        let got = self.yard().alloc(Order::ZERO, Gfp::KERNEL);
        self.nested.lock().unwrap().push(got);
    }
}

impl Platform for Hooks {
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
}

impl Reclaim for Hooks {
    fn context(&self) -> Context {
        let mut context = CONTEXT.with(Cell::get);
        if self.restless.load(Relaxed) {
            context.cookie = self.now.fetch_add(1, Relaxed);
        }
        context
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.reclaims.fetch_add(1, Relaxed);
        if self.reenters.load(Relaxed) {
            self.nest();
        }
        if self.interrupted.load(Relaxed) {
            let task =
                CONTEXT.replace(Context { flags: TaskFlags::INTERRUPT, ..Context::default() });
            let got = self.yard().alloc(Order::ZERO, Gfp::ATOMIC);
            CONTEXT.set(task);
            self.nested.lock().unwrap().push(got);
        }
        self.claims.load(Relaxed) + self.free_held(self.frees.load(Relaxed))
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        self.reclaimable.load(Relaxed)
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        self.ooms.fetch_add(1, Relaxed);
        if self.oom_reenters.load(Relaxed) {
            self.nest();
        }
        if self.oom_picks_asker.load(Relaxed) {
            CONTEXT.set(Context { flags: TaskFlags::OOM_VICTIM, ..Context::default() });
            return Oom::Progress;
        }
        let freed = self.free_held(self.oom.load(Relaxed));
        if freed > 0 || self.oom_lies.load(Relaxed) { Oom::Progress } else { Oom::Nothing }
    }

    fn throttle(&self, _: NodeId, _: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        assert!(!enough());
        self.throttles.fetch_add(1, Relaxed);
        Throttle::Done
    }

    fn keep_trying(&self, _: Order, tries: u32) -> bool {
        tries <= self.patience.load(Relaxed)
    }
}

impl Observer for Hooks {
    fn warn(&self, _: Order, _: Gfp) {
        self.warnings.fetch_add(1, Relaxed);
    }
}

impl Defences for Hooks {}

/// A zone with every page held by the hooks.
fn full() -> (&'static Y, &'static Hooks) {
    let hooks: &'static Hooks = Box::leak(Box::default());
    let yard: &'static Y = leaked(&Machine::normal(PAGES), shared_hooks(hooks), LINUX612);
    assert!(hooks.yard.set(yard).is_ok());
    let gfp = Gfp::MEMALLOC | Gfp::NOWARN;
    let all: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order::ZERO, gfp).ok()).collect();
    assert_eq!(all.len() as u64, PAGES);
    *hooks.held.lock().unwrap() = all;
    (yard, hooks)
}

#[test]
fn s2_10_a_reclaim_without_progress_ends_after_one_round() {
    let (y, h) = full();
    assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
    assert_eq!((h.reclaims.load(Relaxed), h.ooms.load(Relaxed)), (1, 1));
    assert_eq!(y.vm_events().get(VmEvent::AllocStallNormal), 1);
}

#[test]
fn s2_10_a_victim_does_not_kill_again() {
    let (y, h) = full();
    h.oom_picks_asker.store(true, Relaxed);
    let got = y.alloc(o(0), Gfp::KERNEL);
    CONTEXT.set(Context::default());
    // The victim's second attempt uses the reserves, then fails.
    assert_eq!((got, h.ooms.load(Relaxed)), (Err(AllocError::NoMemory), 2));
}

#[test]
fn s2_10_an_interrupt_does_not_inherit_reclaimer_status() {
    for (interrupted, served) in [(false, true), (true, false)] {
        let (y, h) = full();
        // Fewer pages than any mark.
        h.free_held(2);
        h.interrupted.store(interrupted, Relaxed);
        h.reenters.store(!interrupted, Relaxed);
        let _ = y.alloc(o(0), Gfp::KERNEL | Gfp::NORETRY);
        let nested = h.nested.lock().unwrap();
        assert_eq!(nested.first().map(Result::is_ok), Some(served), "{interrupted}");
    }
}

#[test]
fn s2_10_without_io_nothing_is_compacted_and_costly_requests_reclaim_once() {
    let (y, h) = full();
    h.claims.store(1, Relaxed);
    let gfp = Gfp::NOIO | Gfp::NOWARN;
    assert!(y.alloc(o(4), gfp | Gfp::NORETRY).is_err());
    assert_eq!(h.reclaims.load(Relaxed), 1, "reclaim runs although compaction cannot");
    assert!(y.alloc(o(4), gfp | Gfp::RETRY_MAYFAIL).is_err());
    assert_eq!(h.reclaims.load(Relaxed), 2, "RETRY_MAYFAIL does not retry without compaction");
    assert_eq!(y.compact_stats().stall, 0);
}

#[test]
fn s2_10_retries_without_progress_end_after_sixteen() {
    let (y, h) = full();
    h.reclaimable.store(PAGES, Relaxed);
    assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
    assert_eq!((h.reclaims.load(Relaxed), h.ooms.load(Relaxed)), (17, 1));
}

#[test]
fn endless_claimed_reclaim_progress_terminates() {
    let (y, h) = full();
    h.claims.store(1, Relaxed);
    h.reclaimable.store(PAGES, Relaxed);
    assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
    let rounds = u64::from(h.reclaims.load(Relaxed));
    assert!((17..100).contains(&rounds), "{rounds} rounds without a free page");
}

#[test]
fn all_hooks_misreporting_terminates() {
    let (y, h) = full();
    h.claims.store(1, Relaxed);
    h.reclaimable.store(PAGES, Relaxed);
    h.oom_lies.store(true, Relaxed);
    h.restless.store(true, Relaxed);
    for order in [0, 2, 4, 9] {
        assert_eq!(y.alloc(o(order), Gfp::KERNEL), Err(AllocError::NoMemory), "order {order}");
    }
}

#[test]
fn slow_reclaim_eventually_serves_the_request() {
    let (y, h) = full();
    h.frees.store(1, Relaxed);
    h.reclaimable.store(PAGES, Relaxed);
    // Each round frees one page, at first to this CPU's list, until the zone is above MIN.
    let min = y.zone_info(ZONE).unwrap().watermarks[0];
    let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
    let rounds = u64::from(h.reclaims.load(Relaxed));
    assert!((min..PAGES / 2).contains(&rounds), "{rounds} rounds for a mark of {min}");
    y.free(pfn, o(0)).unwrap();
}

#[test]
fn s7_3_a_reclaim_that_frees_enough_serves_the_request() {
    let (y, h) = full();
    h.frees.store(1000, Relaxed);
    let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
    assert_eq!(h.reclaims.load(Relaxed), 1);
    assert!(!y.is_pfmemalloc(pfn));
}

#[test]
fn a_reclaim_hook_may_allocate() {
    let (y, h) = full();
    h.reenters.store(true, Relaxed);
    h.oom_reenters.store(true, Relaxed);
    assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
    let nested = h.nested.lock().unwrap().clone();
    assert_eq!(nested, [Err(AllocError::NoMemory); 2], "nested requests fail without reclaiming");
    assert_eq!((h.reclaims.load(Relaxed), h.ooms.load(Relaxed)), (1, 1));
}

#[test]
fn s2_11_memory_freeing_tasks_use_all_reserves_and_are_marked() {
    let (y, h) = full();
    h.free_held(1);
    y.drain_all(None);
    h.reenters.store(true, Relaxed);
    assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
    let nested = h.nested.lock().unwrap().clone();
    let pfn = nested[0].unwrap();
    assert!(y.is_pfmemalloc(pfn));
    y.free(pfn, o(0)).unwrap();
    assert!(!y.is_pfmemalloc(pfn));
}

#[test]
fn s2_10_noretry_requests_reclaim_once() {
    for gfp in [Gfp::KERNEL | Gfp::NORETRY, Gfp::NOWAIT] {
        let (y, h) = full();
        h.reclaimable.store(PAGES, Relaxed);
        assert!(y.alloc(o(0), gfp).is_err());
        let once = u32::from(gfp.contains(Gfp::DIRECT_RECLAIM));
        assert_eq!((h.reclaims.load(Relaxed), h.ooms.load(Relaxed)), (once, 0), "{gfp:?}");
    }
    let (y, h) = full();
    h.reclaimable.store(PAGES, Relaxed);
    assert!(y.alloc(o(4), Gfp::KERNEL).is_err(), "costly");
    assert_eq!((h.reclaims.load(Relaxed), h.ooms.load(Relaxed)), (1, 0));
    assert!(y.alloc(o(4), Gfp::KERNEL | Gfp::RETRY_MAYFAIL).is_err());
    assert_eq!(h.reclaims.load(Relaxed), 2, "RETRY_MAYFAIL reclaims once, but finds no block");
    assert_eq!(h.ooms.load(Relaxed), 0);
}

#[test]
fn s2_10_requests_that_never_kill() {
    for gfp in [Gfp::KERNEL | Gfp::THISNODE, Gfp::KERNEL | Gfp::RETRY_MAYFAIL] {
        let (y, h) = full();
        assert!(y.alloc(o(0), gfp).is_err());
        assert_eq!(h.ooms.load(Relaxed), 0, "{gfp:?}");
    }
    let (y, h) = full();
    CONTEXT.with(|c| c.set(Context { flags: TaskFlags::DUMPING, ..Context::default() }));
    assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
    CONTEXT.with(|c| c.set(Context::default()));
    assert_eq!(h.ooms.load(Relaxed), 0);
    // Without FS the killer is not called. The request retries, but terminates.
    assert!(y.alloc(o(0), Gfp::NOFS).is_err());
    assert_eq!(h.ooms.load(Relaxed), 0);
}

#[test]
fn s2_10_a_kill_serves_the_request() {
    let (y, h) = full();
    h.oom.store(1000, Relaxed);
    assert!(y.alloc(o(0), Gfp::KERNEL).is_ok());
    assert_eq!(h.ooms.load(Relaxed), 1);
}

#[test]
fn s2_10_nofail_retries_until_the_embedder_stops_it() {
    let (y, h) = full();
    h.patience.store(3, Relaxed);
    assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::NOFAIL).is_err());
    assert_eq!(h.reclaims.load(Relaxed), 4);
    // One free page suffices: the last attempt ignores the marks.
    h.free_held(1);
    y.drain_all(None);
    assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::NOFAIL).is_ok());
}

/// The last attempts of a request that must not fail take from the first reserve, and nothing else that
/// its flags allowed before.
#[test]
fn s2_10_the_last_attempts_of_nofail_take_no_cma_pages() {
    let s = State::new(2048).label(1, MigrateType::Cma).limits(1, 0, 0);
    let s = (512..712).step_by(2).fold(s, |s, p| s.free(p, 0)).set(|z| z.watermarks = [150; 4]);
    s.run(|y: &common::Y<'_>| {
        let nofail = Gfp::HIGHUSER_MOVABLE | Gfp::NOFAIL | Gfp::NOWARN;
        assert!(y.alloc(o(0), nofail).is_err(), "100 pages, of which 100 are not for it");
    });
}

#[test]
fn s7_3_only_user_requests_wait_for_background_reclaim() {
    let (y, h) = full();
    assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
    assert_eq!(h.throttles.load(Relaxed), 0);
    CONTEXT.with(|c| c.set(Context { flags: TaskFlags::USER, ..Context::default() }));
    assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
    assert_eq!(h.throttles.load(Relaxed), 1);
    h.free_held(PAGES as u32 / 2);
    y.drain_all(None);
    assert!(y.alloc(o(0), Gfp::KERNEL).is_ok());
    CONTEXT.with(|c| c.set(Context::default()));
    assert_eq!(h.throttles.load(Relaxed), 1);
}

#[test]
fn s2_10_failures_are_reported_once_in_ten_seconds() {
    let (y, h) = full();
    let fail = |gfp| assert!(y.alloc(o(0), gfp).is_err());
    let warnings = || h.warnings.load(Relaxed);
    h.now.store(1, Relaxed);
    fail(Gfp::KERNEL | Gfp::NOWARN);
    assert_eq!(warnings(), 0);
    fail(Gfp::KERNEL);
    fail(Gfp::KERNEL);
    assert_eq!(warnings(), 1);
    h.now.store(10_000_000_001, Relaxed);
    fail(Gfp::KERNEL);
    assert_eq!(warnings(), 2);
}

#[test]
fn two_concurrent_reclaimers_both_terminate() {
    let (y, h) = full();
    h.reenters.store(true, Relaxed);
    h.reclaimable.store(PAGES, Relaxed);
    h.frees.store(3, Relaxed);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..50 {
                    if let Ok(pfn) = y.alloc(o(0), Gfp::KERNEL) {
                        h.held.lock().unwrap().push(pfn);
                    }
                }
            });
        }
    });
}

/// Many tasks, each inside a reclaim that waits for the reclaim of the next task.
#[derive(Default)]
struct Crowd {
    yard: OnceLock<&'static Y>,
    task: AtomicU64,
    inside: std::sync::Mutex<std::collections::BTreeSet<u64>>,
    again: AtomicU32,
    served: AtomicU32,
}

const CROWD: u64 = 100;
const ONCE: Gfp = Gfp::KERNEL.union(Gfp::NORETRY).union(Gfp::NOWARN);

impl Platform for Crowd {}

impl Reclaim for Crowd {
    fn task(&self) -> Option<u64> {
        Some(self.task.load(Relaxed))
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        let (me, yard) = (self.task.load(Relaxed), self.yard.get().unwrap());
        if !self.inside.lock().unwrap().insert(me) {
            self.again.fetch_add(1, Relaxed);
            return 0;
        }
        if me + 1 < CROWD {
            self.task.store(me + 1, Relaxed);
            assert!(yard.alloc(Order::ZERO, ONCE).is_err());
            self.task.store(me, Relaxed);
        }
        self.served.fetch_add(yard.alloc(Order::ZERO, ONCE).is_ok().into(), Relaxed);
        self.inside.lock().unwrap().remove(&me);
        0
    }
}

impl Observer for Crowd {}
impl Defences for Crowd {}

/// §2.10: every reclaiming task is recognised, however many there are.
#[test]
fn a_hundred_reclaimers_are_all_recognised() {
    let crowd: &'static Crowd = Box::leak(Box::default());
    let yard = leaked(&Machine::normal(4 * PAGES), shared_hooks(crowd), LINUX612);
    assert!(crowd.yard.set(yard).is_ok());
    while yard.alloc(Order::ZERO, Gfp::NOWAIT).is_ok() {}
    for _ in 0..2 {
        assert!(yard.alloc(Order::ZERO, ONCE).is_err());
    }
    assert_eq!(crowd.again.load(Relaxed), 0, "a task's reclaim called reclaim for the same task");
    assert_eq!(crowd.served.load(Relaxed), 2 * CROWD as u32, "reclaimers may use all reserves");
    // Afterwards no task counts as a reclaimer.
    assert!(crowd.inside.lock().unwrap().is_empty());
    assert!((0..10_000).all(|task| {
        crowd.task.store(task, Relaxed);
        yard.alloc(Order::ZERO, Gfp::NOWAIT).is_err()
    }));
}
