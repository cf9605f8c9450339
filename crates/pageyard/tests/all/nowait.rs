//! Spec B.2: requests and frees that never wait, from inside any other operation.

use crate::common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use common::any::{AnyHooks, On};
use common::by_thread::{self, ByThread, by_thread};
use common::interpose::{Interposed, MUST_NOT_WAIT, REFUSES, WAITED};
use common::{Chosen, LINUX612, Lock, Machine, Reused, Stage, Y, deferred, frames, o};
use pageyard::policy::{
    Base, ChunkedDrain, Engine, Linux618, OwnedBlocks, Packed, StaticPolicy, TypeChecked, Vanilla,
};
use pageyard::{
    AllocError, Context, CpuId, Defences, Event, FreeError, Gfp, Hooked, MigrateType, NodeId,
    Observer, Order, Pfn, Platform, Reclaim, ReclaimJob, ReclaimTask, SECTION_PAGES, Yard,
    ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 1 << 14;
const CPU: CpuId = CpuId(0);

/// What an event interrupts its operation with.
type Interrupt = Box<dyn FnMut(&Interrupted, Event)>;

thread_local! {
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
    static CPU_NOW: Cell<u32> = const { Cell::new(0) };
    static PREPARE_PANICS: Cell<bool> = const { Cell::new(false) };
}

fn try_alloc(y: &Interrupted, order: u8, gfp: Gfp) -> Result<Pfn, AllocError> {
    MUST_NOT_WAIT.set(true);
    let answer = y.try_alloc(o(order), gfp);
    MUST_NOT_WAIT.set(false);
    answer
}

fn free_nowait(y: &Interrupted, pfn: Pfn, order: u8) -> Result<(), FreeError> {
    MUST_NOT_WAIT.set(true);
    let answer = y.free_nowait(pfn, o(order));
    MUST_NOT_WAIT.set(false);
    answer
}

type Interrupted = On<'static, Hooks, AnyHooks<'static>, Interposed>;

/// Hooks whose events interrupt the operation that they report, some of them under its locks.
#[derive(Default)]
struct Hooks {
    yard: OnceLock<&'static Interrupted>,
}

impl Platform for Hooks {
    fn cpu(&self) -> CpuId {
        CpuId(CPU_NOW.get())
    }

    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        assert!(!PREPARE_PANICS.get(), "prepare panics");
    }
}
impl Reclaim for Hooks {}
impl Defences for Hooks {}
impl Observer for Hooks {
    fn event(&self, _: CpuId, event: Event) {
        let interrupt = INTERRUPT.with_borrow_mut(Option::take);
        if let (Some(mut interrupt), Some(yard)) = (interrupt, self.yard.get()) {
            interrupt(yard, event);
            INTERRUPT.with_borrow_mut(|i| *i = Some(interrupt));
        }
    }
}

fn interrupted(rules: Chosen) -> &'static Interrupted {
    let all = Reused::under(rules, Machine::normal(PAGES).cpus(&[0, 0]));
    let y = Interrupted::new(Hooks::default(), |hooks| all.next(hooks)).leak();
    assert!(y.hooks().yard.set(y).is_ok());
    y
}

/// Calls `f`, interrupted at each event by `interrupt`.
fn interrupt_with(interrupt: impl FnMut(&Interrupted, Event) + 'static, f: impl FnOnce()) {
    INTERRUPT.set(Some(Box::new(interrupt)));
    f();
    INTERRUPT.set(None);
}

fn free(y: &Interrupted) -> u64 {
    y.zone_info(ZONE).unwrap().free_exact
}

const POLICIES: [Chosen; 7] = [
    &<TypeChecked>::RULES,
    &Base::RULES,
    &<Vanilla>::RULES,
    &Linux618::RULES,
    &<OwnedBlocks>::RULES,
    &<ChunkedDrain>::RULES,
    &Packed::RULES,
];

/// Every operation, interrupted at each of its events by requests and frees that do not wait.
#[test]
fn b2_nothing_waits_and_no_page_is_lost() {
    for rules in POLICIES {
        let y = interrupted(rules);
        y.make_cma(frames(0..512)).unwrap();
        let mut kept: Vec<(Pfn, u8)> = Vec::new();
        let all = std::rc::Rc::new(RefCell::new(Vec::new()));
        let left = all.clone();
        let interrupt = move |y: &Interrupted, _: Event| {
            // First a free: on the packed engine no request succeeds where this CPU's lock is held.
            if kept.len() > 20 {
                let (pfn, order) = kept.remove(0);
                free_nowait(y, pfn, order).unwrap();
                assert_eq!(free_nowait(y, pfn, order), Err(FreeError::DoubleFree));
            }
            for order in [0, 1, 3] {
                let room = kept.len() < 40;
                if room && let Ok(pfn) = try_alloc(y, order, Gfp::HIGHUSER_MOVABLE) {
                    kept.push((pfn, order));
                }
            }
            left.replace(kept.clone());
        };
        interrupt_with(interrupt, || {
            for round in 0..3 {
                let gfp =
                    [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::NOWAIT | Gfp::RECLAIMABLE][round];
                let orders = [0, 0, 0, 1, 3, 4, 9];
                let blocks: Vec<(Pfn, u8)> = (0..)
                    .map(|i| orders[i % orders.len()])
                    .map_while(|order| Some((y.alloc(o(order), gfp | Gfp::NOWARN).ok()?, order)))
                    .collect();
                assert!(blocks.len() > 100, "{}", blocks.len());
                for (i, &(pfn, order)) in blocks.iter().enumerate() {
                    CPU_NOW.set((i % 2) as u32);
                    y.free(pfn, o(order)).unwrap();
                }
                CPU_NOW.set(0);
                y.tick(CPU);
                if y.isolate(frames(512..1536), MigrateType::Movable).is_ok() {
                    y.drain_all(None);
                    y.unisolate(frames(512..1536), MigrateType::Movable).unwrap();
                }
                drop(y.disable_pcp(ZONE));
                y.drain_all(None);
            }
        });
        for (pfn, order) in all.take() {
            free_nowait(y, pfn, order).unwrap();
        }
        y.drain_all(None);
        y.validate().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(free(y), PAGES);
    }
}

#[test]
fn b2_a_queued_page_is_freed_by_the_next_holder_of_the_zone_lock() {
    let takers: [fn(&Interrupted); 6] = [
        |y| _ = y.tick(CPU),
        |y| {
            // Of a thread whose CPU the layout does not have.
            CPU_NOW.set(7);
            y.validate().unwrap_or_else(|e| panic!("{e}"));
            CPU_NOW.set(0);
        },
        |y| y.drain_all(None),
        |y| y.drain_cpu(CpuId(1), None),
        |y| y.validate().unwrap_or_else(|e| panic!("{e}")),
        |y| _ = y.snapshot(ZONE, |_| {}),
    ];
    for taker in takers {
        let y = interrupted(LINUX612);
        let page = y.alloc(o(0), Gfp::KERNEL).unwrap();
        // The drain of a page is reported under the zone lock and the lock of the lists.
        let interrupt = move |y: &Interrupted, event: Event| {
            if matches!(event, Event::Drain { .. }) && free_nowait(y, page, 0).is_ok() {
                assert_eq!(try_alloc(y, 0, Gfp::KERNEL), Err(AllocError::NoMemory));
            }
        };
        interrupt_with(interrupt, || y.drain_cpu(CPU, None));
        assert_eq!(free(y), PAGES - 1, "the page is on the queue, everything else is in the zone");
        assert_eq!(y.free(page, o(0)), Err(FreeError::DoubleFree));
        taker(y);
        assert_eq!(free(y), PAGES);
    }
}

/// A yard whose memory is in use but for reserves, and most of it then freed to the queue.
fn queued(rules: Chosen) -> &'static Interrupted {
    let y = interrupted(rules);
    let page = y.alloc(o(0), Gfp::KERNEL).unwrap();
    let all = |order, gfp| std::iter::from_fn(move || y.alloc(o(order), gfp | Gfp::NOWARN).ok());
    let mut blocks: Vec<Pfn> = all(9, Gfp::NOWAIT).collect();
    all(0, Gfp::ATOMIC | Gfp::MEMALLOC).for_each(drop);
    // A page on the lists, whose drain is reported under the locks.
    y.free(page, o(0)).unwrap();
    assert!(blocks.len() > 20);
    let interrupt = move |y: &Interrupted, event: Event| {
        if matches!(event, Event::Drain { .. }) {
            blocks.drain(..).for_each(|pfn| free_nowait(y, pfn, 9).unwrap());
        }
    };
    interrupt_with(interrupt, || y.drain_cpu(CPU, None));
    assert!(free(y) < 512, "the blocks are on the queue");
    y
}

#[test]
fn b2_a_request_that_lacks_memory_gets_what_is_queued() {
    for rules in [LINUX612, &<OwnedBlocks>::RULES] {
        for (order, gfp) in [
            (0, Gfp::ATOMIC),
            (0, Gfp::NOWAIT),
            (0, Gfp::KERNEL | Gfp::NORETRY),
            (0, Gfp::KERNEL),
            (9, Gfp::KERNEL),
        ] {
            assert!(queued(rules).alloc(o(order), gfp | Gfp::NOWARN).is_ok(), "{order} {gfp:?}");
        }
        assert!(try_alloc(queued(rules), 0, Gfp::empty()).is_ok());
    }
}

#[test]
fn b2_queued_pages_below_the_watermark_serve_no_ordinary_request() {
    let y = interrupted(LINUX612);
    let all = std::iter::from_fn(|| y.alloc(o(0), Gfp::MEMALLOC | Gfp::NOWARN).ok());
    let pages: Vec<Pfn> = all.take(PAGES as usize).collect();
    let (cached, queued) = (pages[0], pages[1]);
    y.free(cached, o(0)).unwrap();
    let interrupt = move |y: &Interrupted, event: Event| {
        if matches!(event, Event::Drain { .. }) {
            free_nowait(y, queued, 0).unwrap();
        }
    };
    interrupt_with(interrupt, || y.drain_cpu(CPU, None));
    assert_eq!(free(y), 1, "the other page is on the queue");
    assert_eq!(y.alloc(o(0), Gfp::NOWAIT | Gfp::NOWARN), Err(AllocError::NoMemory));
    assert_eq!(free(y), 2);
}

#[test]
fn b2_background_reclaim_counts_what_is_queued() {
    let y = queued(LINUX612);
    let mut kswapd = y.kswapd(NodeId(0)).unwrap();
    assert!(!matches!(kswapd.next(0), ReclaimTask::Reclaim(_)));
}

#[test]
fn b2_a_request_whose_preparation_panics_waits_for_no_lock() {
    for rules in [LINUX612, &<OwnedBlocks>::RULES, &Packed::RULES] {
        let y = interrupted(rules);
        for cpu in [1, 0] {
            CPU_NOW.set(cpu);
            let page = y.alloc(o(0), Gfp::KERNEL).unwrap();
            y.free(page, o(0)).unwrap();
        }
        let panics = |y: &Interrupted| {
            PREPARE_PANICS.set(true);
            let call = std::panic::AssertUnwindSafe(|| try_alloc(y, 0, Gfp::KERNEL));
            let answer = std::panic::catch_unwind(call);
            PREPARE_PANICS.set(false);
            MUST_NOT_WAIT.set(false);
            assert!(!WAITED.get(), "a request that must not wait did");
            answer.is_err()
        };
        assert!(panics(y));
        // The drain of CPU 1 holds the zone lock, and the lock of that CPU's lists.
        let panicked = std::rc::Rc::new(Cell::new(0));
        let count = panicked.clone();
        let interrupt = move |y: &Interrupted, event: Event| {
            if matches!(event, Event::Drain { .. }) {
                count.set(count.get() + u32::from(panics(y)));
            }
        };
        interrupt_with(interrupt, || y.drain_cpu(CpuId(1), None));
        assert!(panicked.get() > 0 || rules.engine == Engine::Packed, "no request in the drain");
        y.drain_all(None);
        y.validate().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(free(y), PAGES);
    }
}

/// Records which hooks run.
#[derive(Debug, Default)]
struct Told {
    hooks: Mutex<Vec<&'static str>>,
    seconds: AtomicU64,
}

impl Told {
    fn tell(&self, name: &'static str) {
        self.hooks.lock().unwrap().push(name);
    }

    /// The hooks since the last call, each once.
    fn all(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut *self.hooks.lock().unwrap()).into_iter().collect()
    }
}

impl Platform for Told {
    fn now(&self) -> u64 {
        self.tell("now");
        self.seconds.fetch_add(1, Relaxed) * 1_000_000_000
    }

    fn pause(&self) {
        self.tell("pause");
    }

    fn drain_on_failure(&self) -> bool {
        self.tell("drain_on_failure");
        false
    }
}
impl Reclaim for Told {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn is_plain(&self, _: Gfp) -> bool {
        self.tell("is_plain");
        false
    }

    fn context(&self) -> Context {
        self.tell("context");
        Context::default()
    }

    fn task(&self) -> Option<u64> {
        self.tell("task");
        None
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.tell("reclaim");
        0
    }

    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.tell("wake_reclaim");
    }

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        self.tell("report_free");
        true
    }
}
impl Observer for Told {
    fn warn(&self, _: Order, _: Gfp) {
        self.tell("warn");
    }
}
impl Defences for Told {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        self.tell("fail");
        false
    }
}

/// The documentation of both functions names these: their callers must know what runs in an interrupt.
#[test]
fn b2_other_hooks_than_the_documented_ones_do_not_run() {
    for rules in [LINUX612, &Packed::RULES] {
        Machine::normal(PAGES).run_with(Told::default(), rules, |y: &On<'_, Told>| {
            let block = y.alloc(o(10), Gfp::KERNEL).unwrap();
            // A free begins the next report only after all that is free was reported.
            while y.report_free_blocks().is_some() {}
            y.hooks().all();
            y.free_nowait(block, o(10)).unwrap();
            assert_eq!(y.hooks().all(), ["now"].into());
            std::iter::from_fn(|| y.try_alloc(o(0), Gfp::KERNEL).ok()).for_each(drop);
            assert_eq!(y.hooks().all(), ["context", "fail", "is_plain"].into());
        });
    }
}

/// On the packed engine `free_nowait` counts a block that it returns to the zone, even while other CPUs
/// hold the CPU's lock and the zone lock.
#[test]
fn b2_a_free_counts_while_locks_are_taken() {
    let y = interrupted(&Packed::RULES);
    let blocks: Vec<_> = [0, 3, 4, 9, 10].map(|n| (n, y.alloc(o(n), Gfp::KERNEL).unwrap())).into();
    // Another CPU has every lock.
    REFUSES.set(true);
    blocks.into_iter().for_each(|(order, pfn)| free_nowait(y, pfn, order).unwrap());
    REFUSES.set(false);
    let totals = y.zone_totals(ZONE).unwrap();
    assert_eq!(totals.alloc_pages, totals.free_pages);
    assert_eq!(y.zone_info(ZONE).unwrap().in_use(), 0);
    y.validate().unwrap();
}

#[test]
fn b2_only_orders_of_the_per_cpu_lists_and_no_reserves() {
    for rules in [LINUX612, &Packed::RULES] {
        Machine::normal(PAGES).run_under(rules, |y: &Y<'_>| {
            assert!(y.try_alloc(o(3), Gfp::KERNEL).is_ok());
            assert_eq!(y.try_alloc(o(10), Gfp::KERNEL), Err(AllocError::NoMemory));
            assert_eq!(
                y.try_alloc(o(0), Gfp::MOVABLE | Gfp::RECLAIMABLE),
                Err(AllocError::BadType)
            );
            let urgent = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::HIGH;
            let taken = std::iter::from_fn(|| y.try_alloc(o(0), urgent).ok()).count() as u64;
            let min = y.zone_info(ZONE).unwrap().watermarks[0];
            let left = PAGES - 8 - taken;
            // The lists may hold pages that the mark no longer lets out.
            assert!(min > 0 && left >= min && left < min + 128, "{left} left, MIN {min}");
            assert!(y.hooks().wakes().is_empty(), "background reclaim is not woken");
            assert!(y.alloc(o(0), urgent | Gfp::NOWARN).is_ok());
        });
    }
}

#[test]
fn b2_a_deferred_zone_does_not_grow() {
    let y = deferred(&Machine::normal(4 * SECTION_PAGES), Stage::default(), LINUX612);
    let managed = || y.zone_info(ZONE).unwrap().managed;
    for order in [9, 0] {
        while y.try_alloc(o(order), Gfp::KERNEL).is_ok() {}
        assert_eq!(managed(), SECTION_PAGES);
    }
    assert!(y.alloc(o(9), Gfp::NOWAIT).is_ok() && managed() > SECTION_PAGES);
}

#[test]
fn b2_a_free_that_does_not_wait_leaves_the_list_above_high() {
    Machine::normal(1 << 16).run(|y: &Y<'_>| {
        let pages: Vec<Pfn> = (0..9000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
        let drains = || y.cpu_stats(ZONE, CPU).unwrap().drains.iter().sum::<u64>();
        let before = drains();
        pages[1..].iter().for_each(|&p| y.free_nowait(p, o(0)).unwrap());
        let tuning = y.pageset(ZONE, CPU).unwrap();
        assert!(tuning.count > tuning.limits.high_max && drains() == before, "{tuning:?}");
        y.free(pages[0], o(0)).unwrap();
        assert!(drains() > before, "the next free drains");
        y.validate().unwrap_or_else(|e| panic!("{e}"));
    });
}

#[test]
fn b2_disabled_lists_and_isolated_pageblocks_take_nothing() {
    Machine::normal(1 << 16).run(|y: &Y<'_>| {
        let count = || y.pageset(ZONE, CPU).unwrap().count;
        let pages: Vec<Pfn> =
            (0..3).map(|_| y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
        y.drain_all(None);
        let disabled = y.disable_pcp(ZONE).unwrap();
        y.free_nowait(pages[0], o(0)).unwrap();
        assert_eq!(count(), 0);
        drop(disabled);
        y.set_movable(pages[1], o(0), true).unwrap();
        y.set_movable(pages[2], o(0), true).unwrap();
        let block = pages[1].0 & !511;
        y.isolate(frames(block..block + 512), MigrateType::Movable).unwrap();
        y.free_nowait(pages[1], o(0)).unwrap();
        assert_eq!(count(), 0);
    });
}

/// Threads that interrupt each other's holds: some requests and frees wait, some do not.
#[test]
fn b2_no_page_has_two_owners() {
    const THREADS: u32 = 4;
    const STEPS: u32 = 30_000;
    for rules in [LINUX612, &<ChunkedDrain>::RULES, &<OwnedBlocks>::RULES, &Packed::RULES] {
        // Two CPUs for all threads, so that lists are busy too.
        let machine = Machine::normal(PAGES).cpus(&[0, 0]);
        let owned: Vec<AtomicBool> = (0..PAGES).map(|_| AtomicBool::new(false)).collect();
        let (served, left) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        machine.run_on_under(by_thread(), rules, |y: &Yard<'_, Hooked<Lock, ByThread, Chosen>>| {
            std::thread::scope(|s| {
                for thread in 0..THREADS {
                    let (owned, served, left) = (&owned, &served, &left);
                    s.spawn(move || {
                        by_thread::CPU.set(thread % 2);
                        let (mut mine, mut random) = (Vec::new(), u64::from(thread) + 1);
                        for step in 0..STEPS {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            let waits = random & 1 == 0;
                            if random >> 8 & 15 < 8 && mine.len() < 1000 {
                                let order = [0, 0, 1, 3][(random >> 16 & 3) as usize];
                                let block = match waits {
                                    true => y.alloc(o(order), Gfp::NOWAIT | Gfp::NOWARN),
                                    false => y.try_alloc(o(order), Gfp::HIGHUSER_MOVABLE),
                                };
                                let Ok(pfn) = block else { continue };
                                served.fetch_add(u32::from(!waits), Relaxed);
                                for f in pfn.0..pfn.0 + (1 << order) {
                                    assert!(!owned[f as usize].swap(true, SeqCst), "frame {f:#x}");
                                }
                                mine.push((pfn, order));
                            } else if !mine.is_empty() {
                                let at = (random >> 16) as usize % mine.len();
                                let (pfn, order) = mine.swap_remove(at);
                                for f in pfn.0..pfn.0 + (1 << order) {
                                    assert!(owned[f as usize].swap(false, SeqCst), "frame {f:#x}");
                                }
                                let freed = match waits {
                                    true => y.free(pfn, o(order)),
                                    false => y.free_nowait(pfn, o(order)),
                                };
                                freed.unwrap();
                            }
                            if step % 512 == 0 {
                                y.tick(CpuId(thread % 2));
                                y.drain_cpu(CpuId(1 - thread % 2), None);
                            }
                        }
                        left.lock().unwrap().append(&mut mine);
                    });
                }
            });
            let left = left.lock().unwrap();
            left.iter().for_each(|&(pfn, order)| y.free_nowait(pfn, o(order)).unwrap());
            assert!(served.load(Relaxed) > 1000);
            y.drain_all(None);
            y.validate().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES);
        });
    }
}
