//! Every hook call and every caller's closure panics in its turn. The panic ends the operation; the
//! yard stays consistent, no block is lost, and none has two owners. Long scenarios skip calls,
//! unless `PAGEYARD_EVERY_CALL` is set.

use crate::common;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;

use common::any::On;
use common::state::State;
use common::{Chosen, LINUX612, Lock, Machine, Reused, frames, o};
use pageyard::poison::Corruption;
use pageyard::policy::{InitOnFree, Packed, Poisoned, StaticPolicy, Unmapped};
use pageyard::{
    CmaArea, Context, CpuId, Defences, Gfp, MigrateType, NodeCaches, NodeId, NodeReclaim,
    NodeReclaimJob, Observer, Oom, Order, Pfn, Platform, Priority, Reclaim, ReclaimJob, Relocation,
    SECTION_PAGES, Throttle, ZoneId, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;
const MOVABLE: MigrateType = MigrateType::Movable;
const QUIET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

/// The panic payload of these tests.
const PANIC: &str = "the hook panics";

/// Panics without output on stderr: there are thousands of panics.
fn panics() -> ! {
    resume_unwind(Box::new(PANIC))
}

/// Counts calls, and panics in one of them.
#[derive(Default)]
struct Hooks {
    left: Cell<u64>,
    panicked: Cell<Option<&'static str>>,
    called: RefCell<BTreeSet<&'static str>>,
    blocks: RefCell<BTreeMap<Pfn, (Order, bool)>>,
    /// Whether blocks answer that they are busy.
    busy: Cell<bool>,
}

impl Hooks {
    fn call(&self, hook: &'static str) {
        self.called.borrow_mut().insert(hook);
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            self.panicked.set(Some(hook));
            panics();
        }
    }

    fn own(&self, pfn: Pfn, order: Order, movable: bool) {
        let end = Pfn(pfn.0 + u64::from(order.pages()));
        let mut blocks = self.blocks.borrow_mut();
        if let Some((p, (of, _))) = blocks.range(..end).next_back() {
            assert!(p.0 + u64::from(of.pages()) <= pfn.0, "{pfn} was handed out twice");
        }
        blocks.insert(pfn, (order, movable));
    }
}

impl Platform for Hooks {
    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        self.call("prepare");
    }

    fn pause(&self) {
        self.call("pause");
    }
}

impl Reclaim for Hooks {
    const REPORT_ORDER: Option<Order> = Order::new(9);

    fn is_plain(&self, _: Gfp) -> bool {
        self.call("is_plain");
        false
    }

    fn context(&self) -> Context {
        self.call("context");
        Context { flags: pageyard::TaskFlags::USER, ..Context::default() }
    }

    fn task(&self) -> Option<u64> {
        self.call("task");
        Some(7)
    }

    fn dirty_ok(&self, _: NodeId) -> bool {
        self.call("dirty_ok");
        true
    }

    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.call("reclaim");
        1
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        self.call("reclaimable");
        0
    }

    fn node_reclaim(&self, _: &NodeReclaimJob) -> NodeReclaim {
        self.call("node_reclaim");
        NodeReclaim::Full
    }

    fn node_caches(&self, _: &NodeReclaimJob) -> Option<NodeCaches> {
        self.call("node_caches");
        None
    }

    fn throttle(&self, _: NodeId, _: Option<u64>, _: &dyn Fn() -> bool) -> Throttle {
        self.call("throttle");
        Throttle::Done
    }

    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        self.call("out_of_memory");
        Oom::Nothing
    }

    fn keep_trying(&self, _: Order, tries: u32) -> bool {
        self.call("keep_trying");
        tries < 2
    }

    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.call("wake_reclaim");
    }

    fn wake_compaction(&self, _: NodeId) {
        self.call("wake_compaction");
    }

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.call("relocate");
        if self.busy.get() {
            return Relocation::Busy;
        }
        if self.blocks.borrow_mut().remove(&from) != Some((order, true)) {
            return Relocation::Refused;
        }
        self.own(to, order, true);
        Relocation::Moved
    }

    fn is_unevictable(&self, _: Pfn, _: Order) -> bool {
        self.call("is_unevictable");
        false
    }

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        self.call("report_free");
        true
    }
}

impl Observer for Hooks {
    fn warn(&self, _: Order, _: Gfp) {
        self.call("warn");
    }
}

impl Defences for Hooks {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        self.call("fail");
        false
    }

    fn zero(&self, _: Pfn, _: Order) -> bool {
        self.call("zero");
        true
    }

    fn poison(&self, _: Pfn, _: Order) {
        self.call("poison");
    }

    fn check_poison(&self, _: Pfn, _: Order) -> Option<Corruption> {
        self.call("check_poison");
        None
    }

    fn map(&self, _: Pfn, _: Order) {
        self.call("map");
    }

    fn unmap(&self, _: Pfn, _: Order) {
        self.call("unmap");
    }
}

/// Runs something that may panic by plan. Returns `None` after such a panic.
fn tried<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(answer) => Some(answer),
        Err(e) => {
            if e.downcast_ref() != Some(&PANIC) {
                resume_unwind(e);
            }
            None
        }
    }
}

type Y = On<'static, Hooks>;

struct Run<'y> {
    y: &'y Y,
}

impl Run<'_> {
    fn h(&self) -> &Hooks {
        self.y.hooks()
    }

    fn take(&self, order: u8, gfp: Gfp) -> Option<Pfn> {
        let pfn = tried(|| self.y.alloc(o(order), gfp))?.ok()?;
        let movable = gfp.contains(Gfp::MOVABLE);
        self.h().own(pfn, o(order), movable);
        if movable {
            self.y.set_movable(pfn, o(order), true).unwrap();
        }
        Some(pfn)
    }

    /// Frees a block. If that panics, the block stays with its owner.
    fn give(&self, pfn: Pfn, free: impl Fn(Pfn, Order) -> bool) {
        let (order, _) = self.h().blocks.borrow()[&pfn];
        if tried(|| assert!(free(pfn, order))).is_some() {
            self.h().blocks.borrow_mut().remove(&pfn);
        }
    }

    /// Settles blocks whose free panicked, so that the caller cannot know which are free. Frees
    /// those that are still allocated.
    fn sort_out(&self, blocks: &[(Pfn, Order)], done: bool) {
        for (pfn, order) in blocks {
            if !done {
                let left = self.h().left.replace(0);
                _ = self.y.free(*pfn, *order);
                self.h().left.set(left);
            }
            self.h().blocks.borrow_mut().remove(pfn);
        }
    }

    fn requests(&self) {
        let y = self.y;
        let all: Vec<Pfn> =
            [(0, QUIET), (3, QUIET | Gfp::WRITE), (9, QUIET | Gfp::MOVABLE), (5, QUIET)]
                .into_iter()
                .filter_map(|(order, gfp)| self.take(order, gfp))
                .collect();
        for (i, pfn) in all.into_iter().enumerate() {
            self.give(pfn, |pfn, order| match i {
                0 => y.free_direct(pfn, order).is_ok(),
                1 => y.free_owned(pfn, order).is_ok(),
                _ => y.free(pfn, order).is_ok(),
            });
        }
        let mut slots = [None; 10];
        _ = tried(|| y.alloc_bulk(QUIET, &mut slots).unwrap());
        slots.into_iter().flatten().for_each(|p| self.h().own(p, o(0), false));
        // The caller's closure panics too.
        _ = tried(|| {
            y.alloc_bulk_each(100, QUIET, |p| {
                self.h().own(p, o(0), false);
                self.h().call("each");
            })
        });
        let batch: Vec<(Pfn, Order)> =
            self.h().blocks.borrow().iter().map(|(&p, &(o, _))| (p, o)).collect();
        let done = tried(|| y.free_batch(&batch).unwrap()).is_some();
        self.sort_out(&batch, done);
        if let Some(pfn) = self.take(3, QUIET) {
            let parts = [(0, 0), (4, 2), (2, 1), (1, 0)].map(|(at, n)| (Pfn(pfn.0 + at), o(n)));
            self.h().blocks.borrow_mut().remove(&pfn);
            let left = tried(|| y.free_shared(pfn, o(3)).unwrap()).is_none();
            let left = if left { &parts[..] } else { &parts[..1] };
            self.sort_out(left, false);
        }
    }

    fn ranges(&self) {
        let (y, range) = (self.y, frames(S + 100..S + 110));
        let taken = tried(|| y.alloc_contig(range.clone(), MOVABLE, QUIET));
        if taken.is_some_and(|taken| taken.is_ok()) {
            let pages: Vec<_> = (range.start.0..range.end.0).map(|p| (Pfn(p), o(0))).collect();
            let done = tried(|| y.free_contig(range).unwrap()).is_some();
            self.sort_out(&pages, done);
        }
        if tried(|| y.make_cma(frames(S + 1024..S + 2048))) == Some(Ok(())) {
            let bits = [const { AtomicU64::new(0) }; 1];
            let area = frames(S + 2048..S + 3072);
            let area: Option<CmaArea<'_, Lock>> =
                tried(|| CmaArea::new(y, area, o(5), &bits).unwrap());
            if let Some(area) = area {
                let taken = tried(|| area.alloc(y, 40, 1, QUIET));
                assert_eq!(area.stats().used > 0, matches!(taken, Some(Ok(_))));
                if let Some(Ok(pfn)) = taken {
                    let pages: Vec<_> = (pfn.0..pfn.0 + 40).map(|p| (Pfn(p), o(0))).collect();
                    let done = tried(|| area.free(y, pfn, 40).unwrap()).is_some();
                    self.sort_out(&pages, done);
                }
            }
        }
        if matches!(tried(|| y.poison_frame(Pfn(S + 5000))), Some(Ok(_))) {
            _ = tried(|| y.unpoison_frame(Pfn(S + 5000)).unwrap());
        }
    }

    /// Fragmented memory: requests that get one range, requests that do not, and frees of them.
    fn scattered(&self) {
        let y = self.y;
        let left = self.h().left.replace(0);
        while self.take(10, Gfp::MEMALLOC | Gfp::NOWARN).is_some() {}
        let blocks: Vec<Pfn> = self.h().blocks.borrow().keys().copied().take(4).collect();
        for (i, pfn) in blocks.into_iter().enumerate() {
            self.h().blocks.borrow_mut().remove(&pfn);
            y.split(pfn, o(10), o(0)).unwrap();
            for page in pfn.0..pfn.0 + 1024 {
                match i {
                    0..3 => y.free(Pfn(page), o(0)).unwrap(),
                    _ if page % 2 == 0 => y.free(Pfn(page), o(0)).unwrap(),
                    _ => self.h().own(Pfn(page), o(0), false),
                }
            }
        }
        y.drain_all(None);
        self.h().left.set(left);
        let gfp = QUIET | Gfp::MEMALLOC;
        for (pages, room) in [(300, 1), (1200, 2), (2780, 40), (2800, 9), (1 << 20, 999)] {
            let mut ranges = vec![Pfn(0)..Pfn(0); room];
            let taken = tried(|| y.alloc_range_or_scatter(pages, gfp, &mut ranges));
            let Some(Ok(n)) = taken else { continue };
            for range in &ranges[..n] {
                let pages: Vec<_> = (range.start.0..range.end.0).map(|p| (Pfn(p), o(0))).collect();
                pages.iter().for_each(|&(pfn, _)| self.h().own(pfn, o(0), false));
                let done = tried(|| y.free_contig(range.clone()).unwrap()).is_some();
                self.sort_out(&pages, done);
            }
        }
    }

    fn moves(&self) {
        let y = self.y;
        let owned: Vec<_> = self.h().blocks.borrow().iter().map(|(&p, &(o, _))| (p, o)).collect();
        self.sort_out(&owned, false);
        let all: Vec<Pfn> = (0..60).filter_map(|_| self.take(0, QUIET | Gfp::MOVABLE)).collect();
        for pfn in all.into_iter().step_by(3) {
            self.give(pfn, |pfn, order| y.free(pfn, order).is_ok());
        }
        for busy in [true, false] {
            self.h().busy.set(busy);
            if tried(|| y.offline(frames(0..S)).is_ok()) == Some(true) {
                _ = tried(|| y.online(frames(0..S)).unwrap());
            }
        }
        _ = tried(|| y.compact_node(NodeId(0)));
        let captured = tried(|| y.compact_for(o(4), QUIET, Priority::SyncFull).unwrap());
        if let Some(Some(pfn)) = captured.map(|c| c.captured) {
            self.h().own(pfn, o(4), false);
            self.sort_out(&[(pfn, o(4))], false);
        }
        _ = tried(|| y.report_free_pages(NORMAL, Order::MAX, 4096));
        _ = tried(|| y.report_free_pieces(frames(0..S), Order::ZERO, u64::MAX, |_, _| true));
    }

    /// Requests when no memory is left.
    fn shortage(&self) {
        let left = self.h().left.replace(0);
        for order in [10, 4, 0] {
            while self.take(order, Gfp::MEMALLOC | Gfp::NOWARN).is_some() {}
        }
        self.h().left.set(left);
        for (order, gfp) in [
            (0, Gfp::KERNEL),
            (4, QUIET | Gfp::RETRY_MAYFAIL),
            (0, QUIET | Gfp::NOFAIL),
            (1, Gfp::ATOMIC),
        ] {
            self.take(order, gfp);
        }
        // A panic in reclaim leaves no state behind: the task's requests still reclaim.
        self.h().left.set(0);
        self.h().called.borrow_mut().remove("reclaim");
        assert_eq!(self.take(0, QUIET), None);
        assert!(
            self.h().called.borrow().contains("reclaim"),
            "the task still counts as a reclaimer"
        );
    }
}

/// Runs the scenario once for each hook call, with that call panicking.
fn each_in_turn(rules: Chosen, step: usize, scenario: fn(&Run<'_>), wanted: &[&str]) {
    let machine = Machine::normal(2 * S).cpus(&[0]).knobs(|k| {
        k.zone_reclaim_mode = 1;
        k.compact_unevictable_allowed = false;
    });
    let all = Reused::under(rules, machine);
    let mut called = BTreeSet::new();
    for n in (1u64..).step_by(common::step(step)) {
        let y: Y = On::new(Hooks::default(), |hooks| all.next(hooks));
        let h = y.hooks();
        h.left.set(n);
        scenario(&Run { y: &y });
        let panicked = h.panicked.get();
        called.append(&mut h.called.borrow_mut());
        h.left.set(0);
        if let Err(e) = y.validate() {
            panic!("call {n}, {panicked:?}: {e}");
        }
        for (pfn, (order, _)) in std::mem::take(&mut *h.blocks.borrow_mut()) {
            y.free(pfn, order).unwrap();
        }
        y.drain_all(None);
        y.validate().unwrap();
        let (info, out) = (y.zone_info(NORMAL).unwrap(), y.out_of_use(NORMAL).unwrap());
        let fills = rules.safety != pageyard::policy::Safety::OFF;
        assert!(fills || out.bad == 0, "call {n}, {panicked:?}: {out:?}");
        let here = format!("call {n}, {panicked:?}: {out:?}");
        assert_eq!(info.free_exact + out.pages(), info.managed, "{here}: a page is lost");
        assert!(info.managed == 2 * S || info.managed == S, "{here}");
        assert_eq!(y.pageblocks(NORMAL).unwrap()[MigrateType::Isolate as usize], 0, "{here}");
        if panicked.is_none() {
            break;
        }
    }
    for hook in wanted {
        assert!(called.contains(hook), "{hook} was never called: {called:?}");
    }
}

fn everything(r: &Run<'_>) {
    r.requests();
    r.moves();
    r.ranges();
}

#[test]
fn a_panic_in_a_request_or_a_free_loses_nothing() {
    let wanted = ["fail", "prepare", "is_plain", "context", "dirty_ok", "each"];
    each_in_turn(LINUX612, 1, |r| r.requests(), &wanted);
}

#[test]
fn a_panic_while_many_pages_are_taken_loses_nothing() {
    each_in_turn(LINUX612, 41, |r| r.scattered(), &["fail", "prepare"]);
    each_in_turn(&<InitOnFree>::RULES, 97, |r| r.scattered(), &["zero"]);
}

#[test]
fn a_panic_while_blocks_move_loses_nothing() {
    let wanted = ["relocate", "is_unevictable", "report_free", "pause", "prepare"];
    each_in_turn(LINUX612, 11, everything, &wanted);
}

#[test]
fn a_panic_under_memory_shortage_loses_nothing() {
    let wanted = [
        "reclaim",
        "reclaimable",
        "node_reclaim",
        "node_caches",
        "throttle",
        "out_of_memory",
        "keep_trying",
        "warn",
        "wake_reclaim",
    ];
    each_in_turn(LINUX612, 1, |r| r.shortage(), &wanted);
}

#[test]
fn a_panic_on_the_packed_engine_loses_nothing() {
    let wanted = ["fail", "prepare", "is_plain", "context", "dirty_ok", "each"];
    each_in_turn(&Packed::RULES, 1, |r| r.requests(), &wanted);
    each_in_turn(&Packed::RULES, 41, |r| r.scattered(), &["fail", "prepare"]);
    each_in_turn(&Packed::RULES, 19, everything, &["relocate", "prepare"]);
    each_in_turn(&Packed::RULES, 1, |r| r.shortage(), &["reclaim", "out_of_memory", "warn"]);
}

#[test]
fn a_panic_while_memory_is_filled_loses_no_count() {
    each_in_turn(&<InitOnFree>::RULES, 37, everything, &["zero"]);
    each_in_turn(&<Poisoned>::RULES, 37, everything, &["poison", "check_poison"]);
    each_in_turn(&<Unmapped>::RULES, 37, everything, &["map", "unmap"]);
}

/// §8.2: if filling a section panics, it is not managed; the others are, and initialisation
/// finishes.
#[test]
fn a_panic_while_a_section_is_initialised_leaves_it_reserved() {
    let all = Reused::under(&<InitOnFree>::RULES, Machine::normal(3 * S).cpus(&[0]));
    let y: Y = On::new(Hooks::default(), |hooks| all.next_deferred(hooks));
    let before = y.zone_info(NORMAL).unwrap().managed;
    y.hooks().left.set(5);
    assert_eq!(tried(|| y.init_section(NodeId(0))), None);
    assert!(y.finish_deferred(), "a thread still claims the section");
    y.validate().unwrap();
    let info = y.zone_info(NORMAL).unwrap();
    assert_eq!((info.managed, info.present), (before + S, 3 * S));
    // The section is reserved, so it can be released.
    let section = (0..3 * S).step_by(S as usize).map(|start| Pfn(start)..Pfn(start + S));
    let released = section.filter(|s| y.release(s.clone()).is_ok()).count();
    y.validate().unwrap();
    assert_eq!((released, y.zone_info(NORMAL).unwrap().managed), (1, 3 * S));
}

/// The records of a snapshot come from the caller.
#[test]
fn a_panic_while_a_zone_is_restored_leaves_it_blank() {
    let state = State::new(4096)
        .free(1024, 10)
        .label(0, MigrateType::Cma)
        .free(0, 4)
        .used(16..20, true)
        .set(|z| z.managed = 1044);
    let records = state.records();
    let all = Reused::new(state.machine.clone());
    for n in 0..records.len() {
        let mut y: Y = On::new(Hooks::default(), |hooks| all.next_blank(hooks));
        let some = records.iter().copied().enumerate().map(|(i, record)| {
            if i == n {
                panics();
            }
            record
        });
        assert_eq!(tried(|| y.restore(NORMAL, some)), None);
        assert_eq!(y.zone_info(NORMAL).unwrap().present, 0);
        y.validate().unwrap();
        y.restore(NORMAL, records.iter().copied()).unwrap();
        y.validate().unwrap();
        assert_eq!(y.hooks().cpu(), CpuId(0));
    }
}
