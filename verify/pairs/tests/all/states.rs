//! The states in which pairs begin, and what must hold once everything has been freed.

use std::ops::Range;

use pageyard::policy::{Engine, StaticPolicy};
use pageyard::{
    CpuId, Gfp, MigrateType, Order, OwnedStorage, Pfn, Record, SECTION_PAGES, Yard, ZoneId,
    ZoneKind,
};
use pageyard_pairs_atomics::AtomicU64;

use crate::common::state::State as Written;
use crate::common::{Machine, o, records};
use crate::schedule::Lock;
use crate::world::{Area, CPU, Hand, STATE, World, Y};

/// How a yard starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Whole,
    Deferred,
    /// A zone of [`small`] with pageblocks in the highatomic reserve. Requests would reserve some only in
    /// a zone of 51,200 pages.
    Reserve,
}

/// A named state.
pub(crate) struct State<P: StaticPolicy> {
    pub(crate) name: &'static str,
    machine: Machine,
    start: Start,
    /// The first frame of the ranges that operations use.
    base: u64,
    /// A CMA area, in frames relative to the base.
    area: Option<Range<u64>>,
    prepare: fn(&Hand<'_, '_, P>),
}

/// CPUs: one for each of three actors, and one for none.
const CPUS: [u16; 4] = [0, 0, 0, 0];
/// The CPU of no actor.
pub(crate) const OTHER: CpuId = CpuId(3);
/// Ten pageblocks: enough for mobility grouping (§2.4).
const SMALL: u64 = 5120;
/// Frames between the start of the zone and the start of the section.
const BEFORE: u64 = 3072;
const SECTION: Range<u64> = SECTION_PAGES..2 * SECTION_PAGES;

/// Frames that the state "reserved" keeps from the start. No pageblock boundary.
pub(crate) const RESERVED: Range<u64> = 700..1900;

fn small() -> Machine {
    Machine::normal(SMALL).cpus(&CPUS)
}

/// A section that can go offline and online, and a few pageblocks that stay.
fn sections() -> Machine {
    Machine::new().zone(ZoneKind::Normal, SECTION.start - BEFORE..SECTION.end).cpus(&CPUS)
}

/// Returns all states.
pub(crate) fn states<P: StaticPolicy>() -> Vec<State<P>> {
    let plain = |name, prepare| State {
        name,
        machine: small(),
        start: Start::Whole,
        base: 0,
        area: None,
        prepare,
    };
    let of = |machine, base, state: State<P>| State { machine, base, ..state };
    vec![
        plain("fresh", |_| {}),
        plain("fragmented", fragment),
        plain("exhausted", exhaust),
        State {
            start: Start::Reserve,
            ..plain("highatomic", |h| {
                assert!(h.y.zone_info(h.zone()).is_some_and(|z| z.reserved_highatomic > 0));
                (0..2).for_each(|_| _ = h.alloc(3, Gfp::ATOMIC));
            })
        },
        plain("cached", |h| {
            // Fill each CPU's lists.
            for cpu in [0, 1, 2, OTHER.0] {
                CPU.set(cpu);
                let mut blocks = 0;
                while blocks < 90 && h.alloc(u8::from(blocks % 8 == 7) * 3, Gfp::HIGHUSER_MOVABLE) {
                    blocks += 1;
                }
                while h.lift_any().is_some_and(|(pfn, order)| h.y.free(pfn, order).is_ok()) {}
            }
        }),
        State { area: Some(1024..3072), ..plain("cma", |_| {}) },
        of(
            Machine::new()
                .zone_on(0, ZoneKind::Normal, 0..SMALL)
                .zone_on(1, ZoneKind::Normal, 8192..8192 + SMALL)
                .zone_on(1, ZoneKind::Movable, 16384..16384 + 1024)
                .distances(&[10, 20, 20, 10])
                .cpus(&[0, 1, 0, 1]),
            0,
            plain("nodes", |_| {}),
        ),
        of(small().reserved(RESERVED), 0, plain("reserved", |_| {})),
        of(sections(), SECTION.start, plain("online", |_| {})),
        of(
            Machine { usable: vec![Pfn(SECTION.start - BEFORE)..Pfn(SECTION.start)], ..sections() },
            SECTION.start,
            plain("offline", |_| {}),
        ),
        State {
            start: Start::Deferred,
            ..of(
                Machine::new()
                    .zone(ZoneKind::Normal, SECTION.start - 1024..SECTION.end + 2048)
                    .cpus(&CPUS),
                SECTION.end,
                plain("deferred", |_| {}),
            )
        },
    ]
}

/// Returns the snapshot of a zone in which everything is free, two pageblocks in the highatomic reserve.
fn with_reserve() -> Vec<Record> {
    let state = Written::new(SMALL).cpus(&CPUS).limits(63, 0, 512);
    let state = [3, 4].into_iter().fold(state, |s, block| s.label(block, MigrateType::HighAtomic));
    let state = (0..SMALL / 512).fold(state, |s, block| s.free(block * 512, 9));
    state.set(|z| z.reserved_highatomic = 1024).records()
}

/// Allocates blocks of order 3 and frees every other one. Two of three are movable.
fn fragment<P: StaticPolicy>(h: &Hand<'_, '_, P>) {
    let flags =
        |i: u64| [Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL][i as usize % 3];
    let mut i = 0;
    while h.alloc(3, flags(i).difference(Gfp::RECLAIM) | Gfp::MEMALLOC | Gfp::NOWARN) {
        i += 1;
    }
    let all: Vec<u64> = h.world().table().blocks.keys().copied().collect();
    for pfn in all.into_iter().skip(1).step_by(2) {
        h.world().disown(Pfn(pfn));
        h.y.free(Pfn(pfn), o(3)).expect("the state's own block");
    }
    h.y.drain_all(None);
}

/// Allocates all but a few pages. Some of the allocated blocks can be reclaimed.
fn exhaust<P: StaticPolicy>(h: &Hand<'_, '_, P>) {
    for order in [10, 9, 4, 0] {
        let movable = if order == 0 { Gfp::HIGHUSER_MOVABLE } else { Gfp::KERNEL };
        let gfp = movable.difference(Gfp::RECLAIM) | Gfp::MEMALLOC | Gfp::NOWARN;
        let keep = u64::from(order == 9 || order == 0) * 40;
        let free = || h.y.zone_info(h.zone()).map_or(0, |z| z.free_exact);
        while free() > (1 << order) + keep && h.alloc(order, gfp) {}
    }
}

/// Runs `f` on a yard in the given state.
pub(crate) fn with_yard<P: StaticPolicy, T>(
    state: &State<P>,
    f: impl FnOnce(&Hand<'_, '_, P>) -> T,
) -> T {
    let layout = state.machine.layout();
    let needs = layout.needs_on::<Lock>(P::RULES.engine).unwrap();
    let mut maps = OwnedStorage::for_needs(&needs).unwrap();
    let storage = maps.storage();
    let world = World::new();
    let mut yard: Y<'_, P> = match state.start {
        Start::Whole => Yard::new(&layout, storage, world),
        Start::Deferred => Yard::deferred(&layout, storage, world),
        Start::Reserve => Yard::blank(&layout, storage, world),
    }
    .unwrap();
    if state.start == Start::Reserve {
        yard.restore(ZoneKind::Normal, with_reserve()).unwrap();
    }
    yard.hooks().set_yard(&yard);
    let bitmap: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    CPU.set(0);
    let area = state.area.clone().map(|r| {
        Area::new(&yard, Pfn(r.start)..Pfn(r.end), Order::ZERO, &bitmap)
            .expect("everything is free")
    });
    let h = Hand { y: &yard, me: STATE, area: area.as_ref(), base: state.base };
    (state.prepare)(&h);
    CPU.set(0);
    f(&h)
}

/// Frees everything and checks that nothing is missing.
pub(crate) fn settle<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> Result<(), String> {
    let y = h.y;
    let said = |what: &str, e: &dyn std::fmt::Display| Err(format!("{what}: {e}"));
    let complaint = || h.world().complaint().map_or(Ok(()), Err);
    complaint()?;
    y.validate().or_else(|e| said("after the operations", &e))?;
    CPU.set(0);
    let isolated = std::mem::take(&mut h.world().table().isolated);
    for range in isolated {
        y.unisolate(range, MigrateType::Movable).or_else(|e| said("unisolate", &e))?;
    }
    for cpu in (0..y.cpus()).map(CpuId).filter(|&c| !y.is_up(c)).collect::<Vec<_>>() {
        y.cpu_up(cpu);
    }
    let same = h.world().table().same;
    if let Some((pfn, order)) = same {
        let freed = h.world().table().same_freed;
        match freed {
            0 => y.free(pfn, order).or_else(|e| said("the last free of the shared block", &e))?,
            1 => {}
            n => return Err(format!("{n} frees of the block at {pfn} succeeded")),
        }
    }
    let blocks = std::mem::take(&mut h.world().table().blocks);
    for (pfn, block) in blocks {
        let what = || format!("the last free of {pfn:#x} of {block:?}");
        y.free(Pfn(pfn), block.order).or_else(|e| said(&what(), &e))?;
    }
    while !y.finish_deferred() {}
    for pfn in RESERVED.map(Pfn) {
        // What is still reserved.
        _ = y.release(pfn..Pfn(pfn.0 + 1));
    }
    y.drain_all(None);
    (0..y.cpus()).map(CpuId).for_each(|cpu| _ = y.tick(cpu));
    let poisoned = std::mem::take(&mut h.world().table().poisoned);
    if !poisoned.is_empty() {
        let mut all = Vec::new();
        for order in [9, 0].map(o) {
            let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
            all.extend(std::iter::from_fn(|| Some((y.alloc(order, gfp).ok()?, order))));
        }
        for (pfn, order) in all {
            let frames = pfn.0..pfn.0 + u64::from(order.pages());
            if let Some((frame, _)) = poisoned.range(frames).next() {
                return Err(format!("{frame:#x} is poisoned, then handed out"));
            }
            y.free(pfn, order).or_else(|e| said("free", &e))?;
        }
        y.drain_all(None);
    }
    for (pfn, _) in poisoned {
        y.unpoison_frame(Pfn(pfn)).or_else(|e| said("unpoison_frame", &e))?;
    }
    let excess = |zone| {
        let kept = y.pageblocks(zone).map_or(0, |types| types[MigrateType::HighAtomic as usize]);
        let reserved = y.zone_info(zone).map_or(0, |z| z.reserved_highatomic);
        // As in Linux, the reserve still counts a pageblock that isolation took from it (§3.8).
        match P::RULES.engine {
            Engine::Exact if reserved > 512 * kept => Ok(reserved - 512 * kept),
            _ => equal(zone, "reserved highatomic pages", reserved, 512 * kept).map(|()| 0),
        }
    };
    let excesses: Vec<_> =
        y.zone_ids().map(|zone| Ok((zone, excess(zone)?))).collect::<Result<_, String>>()?;
    while y.unreserve_highatomic(MigrateType::Movable, true) {}
    complaint()?;
    y.validate().or_else(|e| said("after everything was given back", &e))?;
    excesses.into_iter().try_for_each(|(zone, excess)| is_whole(h, zone, excess))
}

fn equal<T: PartialEq + std::fmt::Debug>(
    zone: ZoneId,
    what: &str,
    is: T,
    should: T,
) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{zone}: {what}: {is:?}, not {should:?}")) }
}

/// Checks that every page of the zone's memory is free, and that nothing else is left behind but this
/// excess of the reserve's count.
fn is_whole<P: StaticPolicy>(h: &Hand<'_, '_, P>, zone: ZoneId, excess: u64) -> Result<(), String> {
    let y = h.y;
    let info = y.zone_info(zone).ok_or("a zone is gone")?;
    let all = records(y, zone);
    let blocks = all.iter().filter(|r| matches!(r, Record::Block { .. })).count();
    let memory = 512 * blocks as u64;
    equal(zone, "managed pages", info.managed, memory)?;
    equal(zone, "present pages", info.present, memory)?;
    equal(zone, "free pages", info.free_exact, memory)?;
    equal(zone, "cached pages", info.cached, 0)?;
    equal(zone, "pages reserved", info.reserved_highatomic, excess)?;
    equal(zone, "reclaim is at work", info.reclaim_active, false)?;
    let mut limits = None;
    for record in all {
        match record {
            Record::Zone(z) => {
                equal(zone, "isolated pageblocks", z.isolated_blocks, 0)?;
                limits = Some(z.limits);
            }
            Record::Cpu(c) if memory > 0 => {
                equal(zone, "a CPU's limits", Some(c.tuning.limits), limits)?
            }
            _ => {}
        }
    }
    Ok(())
}
