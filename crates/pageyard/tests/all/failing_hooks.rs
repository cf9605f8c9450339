//! Fails each hook call in turn: the first of a scenario, the second, and so on until none is left.
//! Whatever fails, every request terminates, invariants hold, and no page is lost.
//!
//! Long scenarios skip calls by default. To fail every one:
//! `PAGEYARD_EVERY_CALL=1 cargo test -p pageyard --test all _hooks`.

use crate::common;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use common::any::{AnyHooks, any_hooks};
use common::check::{Owned, check};
use common::{Chosen, LINUX612, Lock, Machine, frames, leaked, o, step};
use pageyard::poison::Corruption;
use pageyard::policy::{Linux612, Packed, Poisoned, StaticPolicy, TypeChecked};
use pageyard::{
    Context, Defences, Gfp, Hooked, MigrateType, NodeCaches, NodeId, NodeReclaim, NodeReclaimJob,
    Observer, Oom, Order, PageState, Pfn, Platform, Reclaim, ReclaimJob, Relocation, SECTION_PAGES,
    TaskFlags, Throttle, Yard, ZoneId, ZoneKind,
};

type Y = Yard<'static, Hooked<Lock, AnyHooks<'static>, Chosen>>;

/// Blocks by their first frame, with their order and whether they may move.
type Blocks = BTreeMap<Pfn, (Order, bool)>;

/// Hooks that work, except for one call.
struct Hooks {
    yard: OnceCell<&'static Y>,
    /// Hook calls until the one that fails; 0: none fails.
    left: Cell<u64>,
    /// The hook whose call failed.
    failed: Cell<Option<&'static str>>,
    called: RefCell<BTreeSet<&'static str>>,
    blocks: RefCell<Blocks>,
    /// Pages that reclaim may free.
    cache: RefCell<Vec<Pfn>>,
    now: Cell<u64>,
    /// Whether the clock jumps, backwards too.
    jumps: bool,
    /// Plants a defect that the test must find: reclaim forgets a page when it is interrupted.
    forgets: bool,
}

impl Hooks {
    fn leaked(jumps: bool, forgets: bool) -> &'static Self {
        Box::leak(Box::new(Hooks {
            yard: OnceCell::new(),
            left: Cell::new(0),
            failed: Cell::new(None),
            called: RefCell::default(),
            blocks: RefCell::default(),
            cache: RefCell::default(),
            now: Cell::new(0),
            jumps,
            forgets,
        }))
    }

    /// Whether this call fails.
    fn fails(&self, hook: &'static str) -> bool {
        self.called.borrow_mut().insert(hook);
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            self.failed.set(Some(hook));
        }
        left == 1
    }

    fn own(&self, pfn: Pfn, order: Order, movable: bool) {
        let end = Pfn(pfn.0 + u64::from(order.pages()));
        let mut blocks = self.blocks.borrow_mut();
        if let Some((p, (o, _))) = blocks.range(..end).next_back() {
            assert!(p.0 + u64::from(o.pages()) <= pfn.0, "{pfn} was handed out twice");
        }
        blocks.insert(pfn, (order, movable));
    }

    fn free_cached(&self, n: u64) -> u64 {
        let mut freed = 0;
        while freed < n
            && let Some(pfn) = self.cache.borrow_mut().pop()
        {
            if self.blocks.borrow_mut().remove(&pfn).is_some() {
                self.yard.get().unwrap().free(pfn, Order::ZERO).unwrap();
                freed += 1;
            }
        }
        freed
    }
}

impl Platform for Hooks {
    fn now(&self) -> u64 {
        self.now.set(self.now.get() + 1_000_000);
        let turn = self.now.get() / 1_000_000;
        match turn % 7 {
            0 if self.jumps => 0,
            1 if self.jumps => u64::MAX,
            2 if self.jumps => turn << 40,
            _ => self.now.get(),
        }
    }
}

impl Reclaim for Hooks {
    const REPORT_ORDER: Option<Order> = Order::new(9);

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        if self.fails("relocate") {
            return Relocation::Refused;
        }
        if self.blocks.borrow().get(&from) != Some(&(order, true)) {
            return Relocation::Refused;
        }
        self.blocks.borrow_mut().remove(&from);
        self.own(to, order, true);
        self.cache.borrow_mut().iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
        Relocation::Moved
    }

    fn is_unevictable(&self, _: Pfn, _: Order) -> bool {
        self.fails("is_unevictable")
    }

    fn is_plain(&self, _: Gfp) -> bool {
        !self.fails("is_plain")
    }

    fn context(&self) -> Context {
        let killed = self.fails("context");
        let flags = if killed { TaskFlags::OOM_VICTIM } else { TaskFlags::USER };
        Context { flags, ..Context::default() }
    }

    fn dirty_ok(&self, _: NodeId) -> bool {
        !self.fails("dirty_ok")
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        if self.fails("reclaim") {
            if self.forgets
                && let Some(pfn) = self.cache.borrow_mut().pop()
            {
                self.blocks.borrow_mut().remove(&pfn);
            }
            return 0;
        }
        self.free_cached(job.pages)
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        if self.fails("reclaimable") { 0 } else { self.cache.borrow().len() as u64 }
    }

    fn node_reclaim(&self, _: &NodeReclaimJob) -> NodeReclaim {
        if self.fails("node_reclaim") {
            return NodeReclaim::Full;
        }
        if self.free_cached(8) > 0 { NodeReclaim::Some } else { NodeReclaim::Full }
    }

    fn node_caches(&self, _: &NodeReclaimJob) -> Option<NodeCaches> {
        self.fails("node_caches");
        None
    }

    fn throttle(&self, _: NodeId, _: Option<u64>, _: &dyn Fn() -> bool) -> Throttle {
        if self.fails("throttle") { Throttle::Killed } else { Throttle::Done }
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        if !self.fails("out_of_memory") && self.free_cached(64) > 0 {
            Oom::Progress
        } else {
            Oom::Nothing
        }
    }

    fn keep_trying(&self, _: Order, tries: u32) -> bool {
        !self.fails("keep_trying") && tries < 3
    }

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        !self.fails("report_free")
    }
}

impl Observer for Hooks {}

impl Defences for Hooks {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        self.fails("fail")
    }

    fn page_state(&self, _: Pfn) -> PageState {
        let refcount = u32::from(self.fails("page_state"));
        PageState { refcount, ..PageState::UNUSED }
    }

    fn check_poison(&self, _: Pfn, _: Order) -> Option<Corruption> {
        let wrong = Corruption { first: 7, last: 7, single_bit: true };
        self.fails("check_poison").then_some(wrong)
    }
}

/// The environment of one run of a scenario.
struct Run {
    y: &'static Y,
    h: &'static Hooks,
    k: u64,
}

impl Run {
    /// Ends the setup: hook calls count from here.
    fn begin(&self) {
        self.h.called.borrow_mut().clear();
        self.h.left.set(self.k);
    }

    fn take(&self, order: u8, gfp: Gfp) -> Option<Pfn> {
        let pfn = self.y.alloc(o(order), gfp | Gfp::NOWARN).ok()?;
        let movable = gfp.contains(Gfp::MOVABLE);
        self.h.own(pfn, o(order), movable);
        if movable {
            self.y.set_movable(pfn, o(order), true).unwrap();
        }
        Some(pfn)
    }

    /// Moves all remaining pages to the embedder's cache, which reclaim frees.
    fn fill(&self, keep: usize) {
        let gfp = Gfp::HIGHUSER_MOVABLE.difference(Gfp::RECLAIM) | Gfp::MEMALLOC;
        while let Some(pfn) = self.take(0, gfp) {
            self.h.cache.borrow_mut().push(pfn);
        }
        // Free every second page, at most `keep`, so that single pages are free but no larger
        // blocks.
        let pages: Vec<Pfn> =
            self.h.blocks.borrow().keys().copied().step_by(2).take(keep).collect();
        // Sorted, as the keys are.
        self.h.cache.borrow_mut().retain(|pfn| pages.binary_search(pfn).is_err());
        for pfn in pages {
            if let Some((order, _)) = self.h.blocks.borrow_mut().remove(&pfn) {
                self.y.free(pfn, order).unwrap();
            }
        }
    }

    fn give_all(&self) {
        self.h.cache.borrow_mut().clear();
        for (pfn, (order, _)) in std::mem::take(&mut *self.h.blocks.borrow_mut()) {
            self.y.free(pfn, order).unwrap();
        }
    }
}

/// Requests of every kind while memory is short: every step of the slow path.
fn slow_path(r: &Run) {
    r.fill(300);
    requests(r);
}

/// The same while hardly anything is free, in magazines either.
fn scarce(r: &Run) {
    r.fill(40);
    requests(r);
}

/// The same while single pages are free, but no larger blocks.
fn pieces(r: &Run) {
    r.fill(2000);
    requests(r);
}

fn requests(r: &Run) {
    r.begin();
    for gfp in [Gfp::KERNEL, Gfp::ATOMIC, Gfp::HIGHUSER_MOVABLE | Gfp::WRITE, Gfp::NOIO] {
        (0..3).for_each(|_| _ = r.take(0, gfp));
    }
    for (order, gfp) in [
        (4, Gfp::KERNEL),
        (9, Gfp::HIGHUSER_MOVABLE | Gfp::RETRY_MAYFAIL),
        (3, Gfp::KERNEL | Gfp::NORETRY),
        (2, Gfp::KERNEL | Gfp::NOFAIL),
        (0, Gfp::KERNEL | Gfp::NOFAIL),
        (0, Gfp::ATOMIC | Gfp::NOMEMALLOC),
    ] {
        r.take(order, gfp);
    }
    let mut slots = [None; 20];
    r.y.alloc_bulk(Gfp::KERNEL | Gfp::NOWARN, &mut slots).unwrap();
    slots.into_iter().flatten().for_each(|p| r.h.own(p, o(0), false));
    r.y.unreserve_highatomic(MigrateType::Movable, true);
}

/// Exhausts memory, so that the out-of-memory hook must free pages.
fn exhaustion(r: &Run) {
    r.fill(0);
    let before = r.h.cache.borrow().len();
    r.h.cache.borrow_mut().truncate(20);
    r.begin();
    (0..30).for_each(|_| _ = r.take(0, Gfp::KERNEL));
    assert!(before > 20);
    r.take(0, Gfp::KERNEL | Gfp::NOFAIL);
}

/// Blocks that move: compaction, isolation, contiguous ranges; and free page reporting.
fn moves(r: &Run) {
    for n in 0..400 {
        r.take([0, 1, 0, 2][n % 4], Gfp::HIGHUSER_MOVABLE);
    }
    let some: Vec<Pfn> = r.h.blocks.borrow().keys().copied().step_by(3).collect();
    for pfn in some {
        let (order, _) = r.h.blocks.borrow_mut().remove(&pfn).unwrap();
        r.y.free(pfn, order).unwrap();
    }
    r.begin();
    r.y.compact_node(NodeId(0));
    let range = frames(MIDDLE..MIDDLE + 1024);
    if r.y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL).is_ok() {
        r.y.free_contig(range.clone()).unwrap();
    }
    if r.y.isolate(range.clone(), MigrateType::Movable).is_ok() {
        r.y.unisolate(range, MigrateType::Movable).unwrap();
    }
    r.give_all();
    r.y.drain_all(None);
    while r.y.report_free_pages(ZoneKind::Normal, Order::ZERO, 512) > 0 {}
    r.y.report_free_pieces(Pfn(0)..Pfn(u64::MAX), Order::ZERO, u64::MAX, |_, _| true);
}

/// A section goes offline with blocks in use, and comes back.
fn sections(r: &Run) {
    for _ in 0..40 {
        r.take(0, Gfp::HIGHUSER_MOVABLE);
        r.take(9, Gfp::HIGHUSER_MOVABLE);
    }
    let used = r.h.blocks.borrow().keys().next().map_or(0, |p| p.0 / SECTION_PAGES);
    let section = frames(used * SECTION_PAGES..(used + 1) * SECTION_PAGES);
    r.begin();
    if r.y.offline(section.clone()).is_ok() {
        r.y.online(section).unwrap();
    }
}

const MIDDLE: u64 = 2048;

fn small() -> Machine {
    Machine::new()
        .zone_on(0, ZoneKind::Normal, 0..4096)
        .zone_on(1, ZoneKind::Normal, 4096..6144)
        .cpus(&[0, 1])
        .knobs(|k| {
            k.zone_reclaim_mode = 1;
            k.compact_unevictable_allowed = false;
        })
}

/// Large enough that free blocks may be off their lists while they are reported.
fn medium() -> Machine {
    Machine::normal(16_384).cpus(&[0]).knobs(|k| k.compact_unevictable_allowed = false)
}

fn large() -> Machine {
    Machine::normal(2 * SECTION_PAGES).cpus(&[0])
}

/// How often a scenario ran, and which hooks it called.
struct Tried {
    runs: u64,
    hooks: BTreeSet<&'static str>,
}

/// Runs the scenario once for each call of `range`, in steps of `step`, with that call failing.
fn each_in_turn(
    rules: Chosen,
    machine: &Machine,
    scenario: fn(&Run),
    range: Range<u64>,
    step: usize,
    (jumps, forgets): (bool, bool),
) -> Tried {
    let mut hooks = BTreeSet::new();
    for (n, k) in range.step_by(step).enumerate() {
        let h = Hooks::leaked(jumps, forgets);
        let y: &'static Y = leaked(machine, any_hooks(h), rules);
        assert!(h.yard.set(y).is_ok());
        let run = Run { y, h, k };
        scenario(&run);
        let failed = h.failed.get();
        hooks.extend(h.called.borrow().iter());
        h.left.set(0);
        let owned: Owned = h.blocks.borrow().iter().map(|(&p, &(o, _))| (p, o)).collect();
        let checked = || {
            check(y, machine, &owned);
            run.give_all();
            y.drain_all(None);
            check(y, machine, &Owned::new());
        };
        let at = format!("call {k}, {failed:?}");
        let _named = Named(&at);
        checked();
        if failed.is_none() {
            return Tried { runs: n as u64 + 1, hooks };
        }
    }
    panic!("every run of the range had a failing call");
}

/// Prints the failing call if the test panics.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with {} failing", self.0);
        }
    }
}

fn tell(name: &str, tried: &Tried, wanted: &[&str]) {
    println!("{name}: {} runs, {:?}", tried.runs, tried.hooks);
    for hook in wanted {
        assert!(tried.hooks.contains(hook), "{name}: {hook} was never called");
    }
}

#[test]
fn every_step_of_the_slow_path() {
    let tried = each_in_turn(
        &<TypeChecked>::RULES,
        &small(),
        slow_path,
        1..20_000,
        step(1),
        (false, false),
    );
    let wanted = ["fail", "is_plain", "context", "dirty_ok", "reclaim", "node_reclaim", "throttle"];
    tell("ladder", &tried, &wanted);
    let tried =
        each_in_turn(&<TypeChecked>::RULES, &small(), pieces, 1..20_000, step(4), (false, false));
    tell("pieces", &tried, &["relocate", "is_unevictable"]);
    let tried = each_in_turn(LINUX612, &small(), exhaustion, 1..20_000, step(4), (false, false));
    tell("exhaustion", &tried, &["reclaim", "reclaimable", "out_of_memory", "keep_trying"]);
}

#[test]
fn migration_succeeds_or_fails() {
    let tried =
        each_in_turn(&<TypeChecked>::RULES, &medium(), moves, 1..20_000, step(2), (false, false));
    tell("moves", &tried, &["relocate", "is_unevictable", "report_free"]);
    let tried =
        each_in_turn(&<TypeChecked>::RULES, &large(), sections, 1..20_000, step(5), (false, false));
    tell("sections", &tried, &["relocate"]);
}

#[test]
fn hooks_fail_on_the_packed_engine() {
    let run = |machine: &Machine, scenario, every, wanted: &[&str]| {
        let rules = &Packed::RULES;
        let tried = each_in_turn(rules, machine, scenario, 1..20_000, step(every), (false, false));
        tell("packed", &tried, wanted);
    };
    run(&small(), slow_path, 2, &["fail", "reclaim"]);
    run(&small(), scarce, 2, &["throttle"]);
    run(&small(), pieces, 4, &["fail"]);
    run(&small(), exhaustion, 4, &["reclaim", "out_of_memory"]);
    run(&medium(), moves, 2, &["relocate"]);
    run(&large(), sections, 5, &["relocate"]);
}

/// §11.1, §11.4: a page found bad is taken out of use; no other page is lost.
#[test]
fn bad_pages_are_found() {
    let tried = each_in_turn(
        &<Poisoned<Linux612>>::RULES,
        &small(),
        slow_path,
        1..200_000,
        step(31),
        (false, false),
    );
    tell("ladder with checks", &tried, &["page_state", "check_poison"]);
}

/// The clock jumps to the end of time, and back.
#[test]
fn a_jumping_clock_is_tolerated() {
    // No call fails.
    let none = 1 << 40..1 << 41;
    for scenario in [slow_path, pieces, exhaustion] {
        each_in_turn(&<TypeChecked>::RULES, &small(), scenario, none.clone(), 1, (true, false));
    }
    each_in_turn(&<TypeChecked>::RULES, &medium(), moves, none, 1, (true, false));
}

#[test]
#[should_panic(expected = "is in use, but has no owner")]
fn a_leaked_page_is_detected() {
    each_in_turn(&<TypeChecked>::RULES, &small(), slow_path, 1..20_000, 1, (false, true));
}
