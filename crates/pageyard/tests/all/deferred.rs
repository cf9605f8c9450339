//! Deferred initialisation (spec §8.2), and what is computed when it ends (§8.3).

use crate::common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::any::{Timed, any_hooks};
use common::by_thread::{CPU, by_thread};
use common::check::check;
use common::{Chosen, LINUX612, Machine, Reused, Stage, Y, deferred, o};
use pageyard::policy::{Base, EarlyLimits, SixBatches, StaticPolicy};
use pageyard::tuning::Limits;
use pageyard::{
    CpuId, Defences, Gfp, NodeChoice, NodeId, NodeMask, Observer, Order, Pfn, Platform, Reclaim,
    SECTION_PAGES, ZoneId, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;

fn managed(y: &Y<'_>, zone: impl Into<ZoneId>) -> u64 {
    y.zone_info(zone).unwrap().managed
}

/// §8.2: only the last zone of each node is deferred, except for one section.
#[test]
fn s8_2_one_section_of_each_last_zone_is_initialised_at_once() {
    let machine = Machine::new()
        .zone_on(0, ZoneKind::Dma32, 0..2 * S)
        .zone_on(0, NORMAL, 2 * S..8 * S)
        .zone_on(1, NORMAL, 8 * S + 512..16 * S)
        .cpus(&[0, 1]);
    let y = deferred(&machine, Stage::default(), LINUX612);
    let node1 = ZoneId { node: NodeId(1), kind: NORMAL };
    assert_eq!(managed(y, ZoneKind::Dma32), 2 * S, "not a last zone");
    assert_eq!(managed(y, NORMAL), S);
    assert_eq!(managed(y, node1), 2 * S - 512, "at least one section, up to a section's end");
    assert_eq!(y.zone_info(NORMAL).unwrap().present, 6 * S);

    assert!(y.init_section(NodeId(1)));
    assert_eq!((managed(y, NORMAL), managed(y, node1)), (S, 3 * S - 512));
    assert!(y.finish_deferred());
    assert_eq!((managed(y, NORMAL), managed(y, node1)), (6 * S, 8 * S - 512));
    assert!(!y.init_section(NodeId(0)) && !y.init_section(NodeId(2)));
    check(y, &machine, &Default::default());
}

/// §8.2: deferred initialisation ends in the state that immediate initialisation gives, with holes,
/// reserved ranges and ends that are not section-aligned.
#[test]
fn s8_2_deferred_initialisation_ends_in_the_same_state() {
    let machine = Machine::new()
        .span(NORMAL, 512 + 7..9 * S + 1000)
        .usable(600..3 * S + 77)
        .usable(5 * S + 5..9 * S + 990)
        .reserved(2 * S - 10..2 * S + 10)
        .reserved(7 * S..8 * S)
        .knobs(|k| k.huge_pages = true);
    let y = deferred(&machine, Stage::default(), LINUX612);
    assert!(y.finish_deferred());
    let late = common::view::view(y, NORMAL);
    machine.run(|whole: &Y<'_>| {
        let whole = common::view::view(whole, NORMAL);
        assert_eq!(late.zone, whole.zone);
        assert_eq!(late.blocks, whole.blocks);
        assert_eq!(late.cpus, whole.cpus);
        assert!(late.all_free().eq(whole.all_free()), "the same lists in the same order");
    });
    check(y, &machine, &Default::default());
}

/// §8.2, §2.8 step 6: a request that fails its watermark grows the zone and is served, without help
/// from another thread.
#[test]
fn s8_2_requests_grow_the_zone() {
    let machine = Machine::normal(6 * S);
    let y = deferred(&machine, Stage::default(), LINUX612);
    let mut owned = common::check::Owned::new();
    let atomic = Gfp::ATOMIC | Gfp::NOWARN;
    for i in 0.. {
        let Ok(pfn) = y.alloc(Order::MAX, atomic) else { break };
        owned.insert(pfn, Order::MAX);
        assert_eq!(managed(y, NORMAL) % S, 0, "block {i}");
    }
    assert_eq!(managed(y, NORMAL), 6 * S);
    // Everything but the pages below the watermark was allocated.
    assert!(owned.len() as u64 * 1024 > 6 * S - 2048, "{} blocks", owned.len());
    let wakes = y.hooks().wakes();
    assert!(wakes.len() < 8, "reclaim is not woken while sections remain: {wakes:?}");
    assert!(y.finish_deferred());
    check(y, &machine, &owned);
}

/// §2.8 step 7: a request that passes its watermark but finds no block grows the zone, too.
#[test]
fn s2_8_a_request_without_watermarks_grows_the_zone() {
    #[derive(Debug)]
    struct Reclaimer;
    impl Platform for Reclaimer {}

    impl Reclaim for Reclaimer {
        fn is_plain(&self, _: Gfp) -> bool {
            false
        }

        fn context(&self) -> pageyard::Context {
            pageyard::Context::default()
        }
    }

    impl Observer for Reclaimer {}
    impl Defences for Reclaimer {}
    let machine = Machine::normal(4 * S);
    let y = deferred(&machine, any_hooks(&Reclaimer), LINUX612);
    let mut n = 0;
    while y.alloc(Order::MAX, Gfp::KERNEL | Gfp::MEMALLOC | Gfp::NOWARN).is_ok() {
        n += 1;
    }
    assert_eq!(n * 1024, 4 * S, "all of it: no watermark applies");
}

/// §2.8 step 6: a zone grows before a request ignores its watermark, here that of a node which only the
/// last attempt may use.
#[test]
fn s2_8_a_failed_watermark_grows_the_zone_before_it_is_ignored() {
    let machine =
        Machine::new().zone_on(0, NORMAL, 0..S).zone_on(1, NORMAL, S..5 * S).cpus(&[0, 1]);
    let y = deferred(&machine, Stage::default(), LINUX612);
    y.set_min_free_kbytes(4 * 90_000).unwrap();
    let there = ZoneId { node: NodeId(1), kind: NORMAL };
    assert!(y.zone_info(there).unwrap().watermarks[0] > S);
    let here = Gfp::MEMALLOC | Gfp::THISNODE | Gfp::NOWARN;
    while y.alloc_on(NodeId(0), o(0), here).is_ok() {}
    assert_eq!(managed(y, there), S);
    let only = NodeChoice { preferred: Some(NodeId(0)), allowed: NodeMask::only(NodeId(0)) };
    assert!(y.alloc_on(only, o(0), Gfp::MEMALLOC | Gfp::NOWARN).unwrap() >= Pfn(S));
    assert_eq!(managed(y, there), 2 * S);
}

/// §2.8 step 7: a request that holds its watermark but finds no block grows the zone, here before it mixes
/// types. One that must not wait does not.
#[test]
fn s2_8_a_request_grows_the_zone_before_it_mixes_types() {
    let y = deferred(&Machine::normal(4 * S), Stage::default(), LINUX612);
    for block in (0..S).step_by(512) {
        y.alloc_at(Pfn(block), o(0), Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    assert!(y.alloc(o(0), Gfp::KERNEL).unwrap() >= Pfn(S));
    assert_eq!(managed(y, NORMAL), 2 * S);
}

/// §8.2: threads initialise while others allocate and free; no page is lost or handed out twice.
#[test]
fn s8_2_threads_initialise_while_others_allocate() {
    for round in 0..4u64 {
        let machine = Machine::new()
            .zone_on(0, NORMAL, 0..12 * S)
            .zone_on(1, NORMAL, 12 * S..24 * S)
            .reserved(3 * S + 100..3 * S + 300)
            .cpus(&[0, 0, 1, 1, 0, 1]);
        let y = deferred(&machine, by_thread(), LINUX612);
        let owned = std::thread::scope(|s| {
            for cpu in 0..3u16 {
                s.spawn(move || {
                    CPU.set(cpu.into());
                    while y.init_section(NodeId(cpu % 2)) {}
                });
            }
            let users: Vec<_> = (3..6u32)
                .map(|cpu| {
                    s.spawn(move || {
                        CPU.set(cpu);
                        let mut mine = Vec::new();
                        for i in 0..3000u64 {
                            let order = o([0, 0, 1, 3, 9, 10][((i + round) % 6) as usize]);
                            if let Ok(pfn) = y.alloc(order, Gfp::KERNEL | Gfp::NOWARN) {
                                mine.push((pfn, order));
                            }
                            if i % 3 == 0 && !mine.is_empty() {
                                let (pfn, order) = mine.swap_remove(i as usize % mine.len());
                                y.free(pfn, order).unwrap();
                            }
                        }
                        mine
                    })
                })
                .collect();
            users.into_iter().flat_map(|u| u.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(y.finish_deferred());
        let set: BTreeSet<Pfn> = owned.iter().map(|b| b.0).collect();
        assert_eq!(set.len(), owned.len(), "a block was handed out twice");
        let totals: u64 = y.zone_ids().map(|z| y.zone_info(z).unwrap().managed).sum();
        assert_eq!(totals, 24 * S - 200);
        check(y, &machine, &owned.into_iter().collect());
    }
}

/// A platform on which one thread stops in the middle of a section until a request calls `pause`.
#[derive(Debug, Default)]
struct Halting {
    halted: AtomicBool,
    released: AtomicBool,
}

std::thread_local! { static HALTS: Cell<bool> = const { Cell::new(false) }; }

impl Platform for Halting {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    // Called after a section's descriptors are written, before its blocks are freed.
    fn now(&self) -> u64 {
        if HALTS.get() {
            self.halted.store(true, Relaxed);
            while !self.released.load(Relaxed) {
                std::thread::yield_now();
            }
        }
        0
    }

    fn pause(&self) {
        self.released.store(true, Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl Reclaim for Halting {}

impl Observer for Halting {
    const MEASURE_LOCKS: bool = true;
}

impl Defences for Halting {}

/// §8.2: while another thread initialises the last section, a request waits instead of failing.
#[test]
fn s8_2_requests_wait_for_a_section_that_another_thread_has() {
    for way in ["with watermarks", "without", "in bulk"] {
        let machine = Machine::normal(3 * S).cpus(&[0, 0]);
        let all = Reused::new(machine);
        let y: &Timed<'_, Halting> =
            Timed::new(Halting::default(), |hooks| all.next_deferred(hooks)).leak();
        CPU.set(0);
        assert!(y.init_section(NodeId(0)));
        let other = std::thread::spawn(move || {
            CPU.set(1);
            HALTS.set(true);
            y.init_section(NodeId(0))
        });
        while !y.hooks().halted.load(Relaxed) {
            std::thread::yield_now();
        }
        assert!(
            !y.init_section(NodeId(0)) && !y.finish_deferred(),
            "the other thread has the section"
        );
        let mut got = 0;
        while got < 2 * S + 8192 {
            let gfp = Gfp::KERNEL | Gfp::NOWARN;
            let one = |gfp| y.alloc(Order::MAX, gfp).map_or(0, |_| Order::MAX.pages().into());
            let more = match way {
                "with watermarks" => one(gfp),
                "without" => one(gfp | Gfp::MEMALLOC),
                _ => y.alloc_bulk_each(4096, gfp, |_| ()).unwrap() as u64,
            };
            assert!(more > 1, "{way}: {got} pages, then {more}");
            got += more;
        }
        assert!(y.hooks().released.load(Relaxed), "no request waited");
        assert!(other.join().unwrap() && y.finish_deferred());
    }
}

/// §8.2, §6.1: a bulk request grows the zone no further than it needs.
#[test]
fn s8_2_bulk_requests_grow_the_zone() {
    let machine = Machine::normal(6 * S);
    let y = deferred(&machine, Stage::default(), LINUX612);
    let mut slots = vec![None; 2 * S as usize];
    assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut slots), Ok(slots.len()));
    assert_eq!(managed(y, NORMAL), 3 * S, "no further");
    let mut owned: common::check::Owned =
        slots.into_iter().map(|p| (p.unwrap(), Order::ZERO)).collect();
    let each = |pfn| assert!(owned.insert(pfn, Order::ZERO).is_none());
    assert_eq!(y.alloc_bulk_each(3 * S as usize, Gfp::KERNEL, each), Ok(3 * S as usize));
    assert_eq!(managed(y, NORMAL), 6 * S);
    assert!(y.finish_deferred());
    check(y, &machine, &owned);
}

/// The pagesets of seed figures A.5, by batch and high: two sockets, here with four CPUs each.
fn pagesets(rules: Chosen) -> Vec<(i32, i32, usize)> {
    let gib = 1 << 18;
    // The zones of a Linux machine: DMA of 15 MiB, DMA32 below 4 GiB, the rest.
    let machine = Machine::new()
        .zone_on(0, ZoneKind::Dma, 1..3841)
        .zone_on(0, ZoneKind::Dma32, 4096..4096 + 176128)
        .zone_on(0, NORMAL, 4 * gib..6 * gib)
        .zone_on(1, NORMAL, 6 * gib..8 * gib)
        .cpus(&[0, 0, 0, 0, 1, 1, 1, 1]);
    let y = deferred(&machine, Stage::default(), rules);
    while y.init_section(NodeId(0)) || y.init_section(NodeId(1)) {}
    assert!(y.finish_deferred());
    let mut all = Vec::<(i32, i32, usize)>::new();
    for zone in y.zone_ids() {
        for cpu in 0..8 {
            let Limits { batch, high_min, high_max } = y.pageset(zone, CpuId(cpu)).unwrap().limits;
            assert!(high_min <= high_max);
            match all.iter_mut().find(|a| (a.0, a.1) == (batch, high_min)) {
                Some(a) => a.2 += 1,
                None => all.push((batch, high_min, 1)),
            }
        }
    }
    all.sort_unstable();
    all
}

/// A.5, C.2, §8.3: a quarter of the pagesets each with 1/0 and 63/378, half with 7/42, where limits
/// are computed before deferred initialisation has finished and never again; with the repair, three
/// quarters with 63/378.
#[test]
fn a_5_the_seeds_pagesets() {
    assert_eq!(
        pagesets(&<EarlyLimits<SixBatches<Base>>>::RULES),
        [(1, 0, 8), (7, 42, 16), (63, 378, 8)]
    );
    assert_eq!(pagesets(&<SixBatches<Base>>::RULES), [(1, 0, 8), (63, 378, 24)]);
}

/// §8.3 under the rules of 6.12: the batch is the same, `high` follows the low watermark.
#[test]
fn s8_3_limits_are_computed_for_all_of_the_zone() {
    let machine = Machine::normal(16 * S);
    let y = deferred(&machine, Stage::default(), LINUX612);
    let limits = |y: &Y<'_>| y.pageset(NORMAL, CpuId(0)).unwrap().limits;
    let marks = |y: &Y<'_>| y.zone_info(NORMAL).unwrap().watermarks;
    let (early, early_marks) = (limits(y), marks(y));
    assert_eq!(early.batch, 7);
    while y.init_section(NodeId(0)) {}
    assert_eq!((limits(y), marks(y)), (early, early_marks), "not recomputed yet");
    y.finish_deferred();
    // The marks by which memory above the high mark is counted (§3.1) are the early ones.
    let kb = pageyard::watermark::min_free_kbytes((16 * S - early_marks[2]) * 4);
    assert_eq!(marks(y)[0], kb / 4);
    assert_eq!(limits(y).high_min, marks(y)[1] as i32, "one CPU's share of the low mark");
    assert_eq!(limits(y).batch, 63);

    let y = deferred(&machine, Stage::default(), &<EarlyLimits>::RULES);
    y.finish_deferred();
    assert_eq!(
        y.pageset(NORMAL, CpuId(0)).unwrap().limits,
        early,
        "the defect: limits are never recomputed"
    );
    assert_eq!(y.zone_info(NORMAL).unwrap().watermarks, marks(deferred_done(&machine)));
}

fn deferred_done(machine: &Machine) -> &'static Y<'static> {
    let y = deferred(machine, Stage::default(), LINUX612);
    y.finish_deferred();
    y
}
