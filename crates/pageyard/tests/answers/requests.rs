//! Request rules at their boundaries (spec §2.7–2.10, §7.1, §7.3).

use std::panic::{AssertUnwindSafe, catch_unwind};

use pageyard::policy::{PageChecked, StaticPolicy};
use pageyard::tuning::Limits;
use pageyard::{
    Context, CpuId, Cpuset, FreeError, Gfp, MigrateType, NodeChoice, NodeId, NodeMask, Order, Pfn,
    ReclaimTask, TaskFlags, ZoneKind,
};

use crate::actor::{Actor, Script, Y};
use crate::common::state::State;
use crate::common::{self, LINUX612, Machine, leaked, o};

const ZONE: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 8192;
const NODE: NodeId = NodeId(0);
const ONCE: Gfp = Gfp::KERNEL.union(Gfp::NORETRY);

fn world(machine: &Machine) -> (&'static Y, &'static Actor) {
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = leaked(machine, actor, LINUX612);
    assert!(actor.yard.set(y).is_ok());
    (y, actor)
}

/// Lets the hooks own every page of a node.
fn fill(y: &Y, actor: &Actor, node: NodeId) {
    let gfp = Gfp::MEMALLOC | Gfp::NOWARN | Gfp::THISNODE;
    while let Ok(pfn) = y.alloc_on(node, Order::ZERO, gfp) {
        actor.state().owned.insert(pfn, Order::ZERO);
    }
}

/// A zone with this many free pages, none of them on a per-CPU list.
fn zone_with(free: u64, script: Script) -> (&'static Y, &'static Actor) {
    let (y, actor) = world(&Machine::normal(PAGES));
    fill(y, actor, NODE);
    actor.free(free as usize);
    y.drain_all(None);
    actor.begin(script);
    (y, actor)
}

fn min() -> u64 {
    Machine::normal(PAGES).run(|y| y.zone_info(ZONE).unwrap().watermarks[0])
}

fn lines(actor: &Actor, start: &str) -> Vec<String> {
    let log = actor.state().log.clone();
    log.lines().filter(|l| l.starts_with(start)).map(str::to_owned).collect()
}

fn has(actor: &Actor, text: &str) -> bool {
    actor.state().log.contains(text)
}

fn set_flags(actor: &Actor, flags: TaskFlags) {
    actor.state().context = Context { flags, ..Context::default() };
}

#[test]
fn s2_9_realtime_tasks_use_half_of_the_reserve_outside_interrupts() {
    for (flags, served) in [
        (TaskFlags::empty(), false),
        (TaskFlags::REALTIME, true),
        (TaskFlags::REALTIME | TaskFlags::INTERRUPT, false),
        (TaskFlags::INTERRUPT, false),
    ] {
        let (y, actor) = zone_with(min() * 3 / 4, |_, _| Some(0));
        set_flags(actor, flags);
        assert_eq!(y.alloc(o(0), ONCE).is_ok(), served, "{flags:?}");
    }
}

/// The priorities of the compactions that a failing request runs.
fn compactions(order: u8, gfp: Gfp) -> Vec<String> {
    let (y, actor) = zone_with(PAGES, |_, _| Some(0));
    // One page of each pair stays in use.
    actor.state().owned.clear();
    let all: Vec<Pfn> =
        std::iter::from_fn(|| y.alloc(o(0), Gfp::MEMALLOC | Gfp::NOWARN).ok()).collect();
    for pfn in all {
        if pfn.0.is_multiple_of(2) {
            y.free(pfn, o(0)).unwrap();
        }
    }
    y.drain_all(None);
    actor.state().log.clear();
    assert!(y.alloc(o(order), gfp).is_err());
    let log = actor.state().log.clone();
    let of = |line: &str| {
        line.split_once("priority: ").map(|(_, p)| p.trim_end_matches(" })").to_owned())
    };
    log.lines().filter(|l| l.contains("TryToCompact")).filter_map(of).collect()
}

#[test]
fn s2_10_costly_orders_and_types_that_stay_compact_before_they_reclaim() {
    let movable = Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY;
    assert_eq!(compactions(3, movable), ["SyncLight"]);
    assert_eq!(compactions(4, movable), ["Async", "Async"]);
    assert_eq!(compactions(3, ONCE), ["Async", "SyncLight"]);
    assert_eq!(compactions(1, ONCE | Gfp::RECLAIMABLE), ["Async", "SyncLight"]);
    assert_eq!(compactions(3, ONCE.difference(Gfp::IO)), [""; 0]);
    assert_eq!(compactions(3, Gfp::NOWAIT), [""; 0]);
    assert_eq!(compactions(3, Gfp::NOWAIT | Gfp::IO), [""; 0]);
    // Requests that may use the reserves reclaim first.
    assert_eq!(compactions(4, ONCE | Gfp::MEMALLOC), ["SyncLight"]);
}

#[test]
fn s2_10_reserves_are_taken_from_every_node() {
    let m = Machine::new().cpus(&[0, 1]).zone(ZONE, 0..PAGES).zone_on(1, ZONE, PAGES..2 * PAGES);
    let far = NodeChoice { preferred: None, allowed: NodeMask::only(NodeId(1)) };
    for (flags, served) in [(TaskFlags::empty(), false), (TaskFlags::MEMALLOC, true)] {
        let (y, actor) = world(&m);
        fill(y, actor, NodeId(1));
        actor.begin(|_, _| Some(0));
        set_flags(actor, flags);
        assert_eq!(y.alloc_on(far, o(0), ONCE).is_ok(), served, "{flags:?}");
    }
}

#[test]
fn s2_10_urgent_requests_that_may_not_sleep_leave_their_nodes() {
    let m = Machine::new().cpus(&[0, 1]).zone(ZONE, 0..PAGES).zone_on(1, ZONE, PAGES..2 * PAGES);
    let far = NodeChoice { preferred: None, allowed: NodeMask::only(NodeId(1)) };
    for (gfp, served) in [(Gfp::NOWAIT, false), (Gfp::ATOMIC, true)] {
        let (y, actor) = world(&m);
        fill(y, actor, NodeId(1));
        actor.begin(|_, _| Some(0));
        assert_eq!(y.alloc_on(far, o(0), gfp).is_ok(), served, "{gfp:?}");
    }
}

#[test]
fn s7_1_only_reclaimed_pages_end_hopelessness() {
    for (freed, hopeless) in [(0, true), (1, false)] {
        let (y, actor) = zone_with(0, |actor, hook| {
            (hook == "reclaim").then(|| usize::from(actor.state().clock > 1))
        });
        for _ in 0..16 {
            let mut kswapd = y.kswapd(NODE).unwrap();
            assert!(y.alloc(o(0), Gfp::NOWAIT).is_err());
            while let ReclaimTask::Reclaim(_) = kswapd.next(0) {}
        }
        assert!(y.is_hopeless(NODE));
        actor.state().clock = 1 + freed;
        assert!(y.alloc(o(0), ONCE).is_err());
        assert_eq!(y.is_hopeless(NODE), hopeless, "{freed} pages");
    }
}

#[test]
fn s7_3_requests_without_fs_wait_a_second_at_most() {
    for (gfp, wait) in [(ONCE, "None"), (ONCE.difference(Gfp::FS), "Some(1000000000)")] {
        let (y, actor) = zone_with(0, |_, _| Some(0));
        set_flags(actor, TaskFlags::USER);
        assert!(y.alloc(o(0), gfp).is_err());
        assert_eq!(lines(actor, "throttle"), [format!("throttle 0 {wait} false")]);
    }
}

#[test]
fn s2_10_the_last_attempt_before_the_killer_is_at_the_high_mark() {
    // Memory becomes free after the first reclaim, in the hook called right before the last
    // attempt.
    let (y, actor) = zone_with(0, |actor, hook| {
        let reclaimed = actor.state().log.contains("\nreclaim ");
        let first = actor.state().owned.len() as u64 == PAGES;
        Some(if hook == "context" && reclaimed && first { 200 } else { 0 })
    });
    let info = y.zone_info(ZONE).unwrap();
    assert!(info.watermarks[0] < 199 && info.watermarks[2] > 200, "{:?}", info.watermarks);
    assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
    assert!(has(actor, "out_of_memory"));
}

#[test]
fn s2_10_nomemalloc_requests_go_on_after_a_kill() {
    let (y, _) = zone_with(0, |_, hook| Some(if hook == "out_of_memory" { 1000 } else { 0 }));
    assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::NOMEMALLOC).is_ok());
}

#[test]
fn s2_7_a_cached_page_below_the_low_mark_wakes_reclaim() {
    let m = Machine::normal(PAGES).cpus(&[0, 0]);
    m.run(|y| {
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.free(pfn, o(0)).unwrap();
        assert!(y.pageset(ZONE, CpuId(0)).unwrap().count > 0 && y.hooks().wakes().is_empty());
        y.set_min_free_kbytes(PAGES * 4).unwrap();
        assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::MEMALLOC).is_ok());
        assert!(!y.hooks().wakes().is_empty());
    });
}

/// A cached block does not count as free for the watermark of its order.
#[test]
fn s3_7_a_cached_block_of_an_order_without_free_blocks_wakes_reclaim() {
    let mut s = State::new(8192).limits(63, 1000, 1000).cached(0, 3 * 3, &[0]);
    for p in 512..1536 {
        s = s.free(p * 2, 0);
    }
    for (pages, woken) in [(0, true), (1, false)] {
        let s = if pages == 1 { s.clone().free(4096, 3) } else { s.clone() };
        let s = s.label(0, MigrateType::Unmovable).set(|z| z.watermarks = [10, 20, 30, 40]);
        s.run(|y| {
            let _ = y.alloc(o(3), Gfp::NOWAIT);
            assert_eq!(!y.hooks().wakes().is_empty(), woken, "{pages}");
        });
    }
}

/// §3.4: the next request that may wake reclaim wakes it, even if a list serves the request.
#[test]
fn s3_4_a_boost_wakes_reclaim_at_the_next_attempt() {
    for (flags, woken) in [(0, 0), (1, 1)] {
        let s = State::new(8192).limits(63, 1000, 1000).free(4096, 10).free(5120, 10);
        let s = s.cached(0, 0, &[3, 4]).set(|z| (z.flags, z.boost) = (flags, 512));
        s.run(|y| {
            assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok());
            assert_eq!(y.hooks().wakes().len(), woken);
            assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok());
            assert_eq!(y.hooks().wakes().len(), 0, "once");
        });
    }
}

/// §5.7: "A page failing checks is leaked and the next tried".
#[test]
fn s5_7_a_refill_of_a_bad_page_is_followed_by_another() {
    let rules: common::Chosen = &<PageChecked as StaticPolicy>::RULES;
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = leaked(&Machine::normal(PAGES), actor, rules);
    assert!(y.set_pcp_limits(ZONE, Limits { batch: 1, high_min: 1, high_max: 1 }));
    while y.alloc(o(0), Gfp::NOWAIT).unwrap() != Pfn(6) {}
    // Pages whose number modulo `PAGES` is 7: page 7 alone.
    actor.state().mood.bad = PAGES;
    assert_eq!(y.alloc(o(0), Gfp::NOWAIT), Ok(Pfn(8)));
    assert_eq!(y.out_of_use(ZONE).unwrap().bad, 1);
    assert!(!has(actor, "wake_reclaim"), "the first attempt is served");
}

#[test]
fn s2_10_the_last_attempt_before_the_killer_stays_within_the_cpuset() {
    let m = Machine::new().cpus(&[0, 1]).zone(ZONE, 0..PAGES).zone_on(1, ZONE, PAGES..2 * PAGES);
    let (y, actor) = world(&m);
    fill(y, actor, NODE);
    actor.state().owned.clear();
    fill(y, actor, NodeId(1));
    // Memory of the other node becomes free after the first reclaim.
    actor.begin(|actor, hook| {
        let reclaimed = actor.state().log.contains("\nreclaim ");
        let first = actor.state().owned.len() as u64 == PAGES;
        Some(if hook == "context" && reclaimed && first { 2000 } else { 0 })
    });
    let near = NodeMask::only(NODE);
    let cpuset = Cpuset { allowed: near, hardwall: near.with(NodeId(1)) };
    actor.state().context = Context { cpuset: Some(cpuset), ..Context::default() };
    let _ = y.alloc(o(0), Gfp::KERNEL);
    assert!(has(actor, "out_of_memory"));
}

#[test]
fn s5_14_a_drain_schedules_another_tick() {
    let full: Vec<u64> = (0..20).collect();
    State::new(8192).limits(7, 10, 10).cached(0, 0, &full).run(|y| {
        assert!(y.tick(CpuId(0)));
        assert_eq!(y.pageset(ZONE, CpuId(0)).unwrap().count, 10);
        // The drain folded the parts, so the tick has nothing to do.
        assert!(!y.tick(CpuId(0)));
    });
}

/// A zone grows by a section at a time and serves at once, even below its marks.
#[test]
fn s2_8_a_grown_zone_serves_below_its_mark() {
    const SECTION: u64 = pageyard::SECTION_PAGES;
    let m = Machine::normal(4 * SECTION).knobs(|k| k.user_min_free_kbytes = Some(8 * SECTION));
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = common::deferred(&m, actor, LINUX612);
    let managed = || y.zone_info(ZONE).unwrap().managed;
    let before = managed();
    assert!(y.zone_info(ZONE).unwrap().watermarks[0] > 0);
    assert!(y.alloc(o(0), Gfp::NOWAIT).is_ok());
    assert_eq!(managed(), before + SECTION);
}

#[test]
fn s11_2_a_frame_of_a_bad_block_is_out_of_use() {
    let rules: common::Chosen = &<PageChecked as StaticPolicy>::RULES;
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = leaked(&Machine::normal(PAGES), actor, rules);
    while y.alloc(o(4), Gfp::NOWAIT).unwrap() != Pfn(0) {}
    actor.state().mood.bad = PAGES;
    y.free(Pfn(0), o(4)).unwrap();
    assert_eq!(y.out_of_use(ZONE).unwrap().bad, 16);
    assert_eq!(y.free(Pfn(0), o(4)), Err(FreeError::OutOfUse));
    assert_eq!(y.free(Pfn(1), o(0)), Err(FreeError::OutOfUse));
}

/// §6.2: if a hook panics, the blocks of a batch that are on no list return to their owner.
#[test]
fn s6_2_a_panic_in_a_batch_gives_back_what_is_not_freed() {
    let rules: common::Chosen = &<pageyard::policy::Unmapped as StaticPolicy>::RULES;
    let actor: &'static Actor = Box::leak(Box::new(Actor::new(1)));
    let y: &'static Y = leaked(&Machine::normal(PAGES), actor, rules);
    let orders = [o(4), o(0), o(4), o(4)];
    let batch: Vec<(Pfn, Order)> =
        orders.iter().map(|&order| (y.alloc(order, Gfp::NOWAIT).unwrap(), order)).collect();
    actor.panic_at(batch[2].0);
    let freed = catch_unwind(AssertUnwindSafe(|| y.free_batch(&batch)));
    assert!(freed.is_err());
    actor.panic_at(Pfn(u64::MAX));
    let again: Vec<bool> = batch.iter().map(|&(pfn, order)| y.free(pfn, order).is_ok()).collect();
    assert_eq!(again, [false, true, true, true], "the first block was free already");
    y.validate().unwrap();
}
