//! Snapshots of zones on the packed engine, restored into blank yards (spec §1.3, §4.11, §9.2, §11.3).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use crate::common::ops::config;
use crate::common::state::{State, cpu};
use crate::common::view::Seen;
use crate::common::{Chosen, Lock, Machine, Reused, all_records, frames, o, records};
use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{
    CpuId, FreeError, Gfp, Hooked, MigrateType, NodeId, Order, Pfn, Record, ReleaseError,
    SECTION_PAGES, Yard, ZoneId, ZoneInfo, ZoneKind, ZoneRecord,
};

const PACKED: Chosen = &<Packed>::RULES;
const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;

type Y<'y> = Yard<'y, Hooked<Lock, crate::common::Stage, Chosen>>;

/// Four CPUs, and memory with reserved frames, a hole, and edges inside pageblocks.
fn machine() -> Machine {
    Machine::new()
        .span(NORMAL, 300..20_300)
        .usable(300..9_000)
        .usable(10_500..20_300)
        .reserved(2000..2100)
        .reserved(5120..5632)
        .cpus(&[0, 0, 0, 0])
}

/// Brings a zone into a state with blocks of all types and orders in use, cached and in depots,
/// with isolated pageblocks and faulty frames.
fn used(y: &Y<'_>) -> Vec<(Pfn, Order)> {
    let types = [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE]
        .map(|g| g | Gfp::NOWARN);
    let orders = [0, 0, 0, 0, 1, 2, 3, 0, 4, 6, 0, 5];
    let mut held: Vec<_> = [9, 10].map(|n| (y.alloc(o(n), types[2]).unwrap(), o(n))).to_vec();
    for n in 0..1200usize {
        y.hooks().on(n as u32 % 4);
        let order = o(orders[n % orders.len()]);
        if let Ok(pfn) = y.alloc(order, types[n / 7 % 3]) {
            held.push((pfn, order));
        }
        if n % 2 == 1 && !held.is_empty() {
            let (pfn, order) = held.swap_remove(n * 7 % held.len());
            y.free(pfn, order).unwrap();
        }
    }
    // Full magazines for the depot.
    y.hooks().on(1);
    let pages: Vec<_> = (0..400).map(|_| y.alloc(Order::ZERO, types[2]).unwrap()).collect();
    pages.into_iter().for_each(|pfn| y.free(pfn, Order::ZERO).unwrap());
    y.hooks().on(0);
    held
}

#[test]
fn s1_3_a_snapshot_of_the_packed_engine_is_restored() {
    let machine = machine();
    machine.run_under(PACKED, |y: &Y<'_>| {
        let later = [17_920, 18_176, 18_432, 18_688].map(Pfn);
        later.iter().for_each(|&p| y.alloc_at(p, o(8), Gfp::HIGHUSER_MOVABLE).unwrap());
        // One faulty frame in use, one out of use. Frees to their pageblocks bypass magazines.
        let bad = y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        let good = Pfn(20_000);
        y.poison_frame(bad).unwrap();
        y.poison_frame(good).unwrap();
        y.drain_all(None);
        let mut held = used(y);
        held.push((bad, Order::ZERO));
        // Isolated pageblocks. A block is freed into one of them afterwards.
        let (last, rest) = later.split_last().unwrap();
        rest.iter().for_each(|&pfn| y.free_direct(pfn, o(8)).unwrap());
        y.isolate(frames(17_920..18_944), MigrateType::Movable).unwrap();
        y.free(*last, o(8)).unwrap();
        y.validate().unwrap();
        let before = all_records(y);
        let info = y.zone_info(NORMAL).unwrap();
        assert!(info.cached > 500, "CPUs and depots keep {}", info.cached);

        let twin = Machine { knobs: y.knobs(), ..machine.clone() };
        twin.restored(PACKED, &before, |z| {
            z.validate().unwrap();
            let after = all_records(z);
            Seen::of(&after[0].1).expect(&Seen::of(&before[0].1));
            let restored = z.zone_info(NORMAL).unwrap();
            let idle = |z: &ZoneInfo| z.free_exact + z.cached;
            assert_eq!(idle(&restored), idle(&info));
            assert!(
                restored.cached > info.cached / 4 * 3,
                "{} of {}",
                restored.cached,
                info.cached
            );
            assert_eq!(z.pageblocks(NORMAL), y.pageblocks(NORMAL));
            assert_eq!((z.is_poisoned(bad), z.is_poisoned(good)), (Some(true), Some(true)));
            // The owners free their blocks, and no page is lost.
            for &(pfn, order) in &held {
                z.free(pfn, order).unwrap();
                assert_ne!(z.free(pfn, order), Ok(()));
            }
            z.unpoison_frame(bad).unwrap();
            z.unpoison_frame(good).unwrap();
            z.unisolate(frames(17_920..18_944), MigrateType::Movable).unwrap();
            z.drain_all(None);
            z.validate().unwrap();
            let end = z.zone_info(NORMAL).unwrap();
            assert_eq!((end.free_exact, end.cached), (end.managed, 0));
        });
    });
}

/// The snapshot of a drained zone is restored record by record.
#[test]
fn s1_3_a_drained_zone_gives_the_same_records_again() {
    let machine = machine();
    machine.run_under(PACKED, |y: &Y<'_>| {
        used(y);
        y.drain_all(None);
        let before = all_records(y);
        let twin = Machine { knobs: y.knobs(), ..machine.clone() };
        twin.restored(PACKED, &before, |z| assert_eq!(all_records(z), before));
    });
}

/// The engines' snapshots have one format. Unlike the exact engine, this one merges free neighbours.
#[test]
fn s1_3_each_engine_restores_the_others_snapshots() {
    let machine = machine();
    for (from, to) in [(&<Linux612>::RULES, PACKED), (PACKED, &<Linux612>::RULES)] {
        machine.run_under(from, |y: &Y<'_>| {
            let held = used(y);
            y.drain_all(None);
            let all = all_records(y);
            let free = y.zone_info(NORMAL).unwrap().free_exact;
            machine.restored(to, &all, |z| {
                assert_eq!(z.zone_info(NORMAL).unwrap().free_exact, free);
                held.iter().for_each(|&(pfn, order)| z.free(pfn, order).unwrap());
                z.drain_all(None);
                let end = z.zone_info(NORMAL).unwrap();
                assert_eq!(end.free_exact, end.managed);
                if to.engine == PACKED.engine {
                    z.validate().unwrap();
                }
            });
        });
    }
}

/// Every kind of record, in a zone that `validate` accepts.
fn everything() -> State {
    State::new(4096)
        .cpus(&[0, 0])
        .label(2, MigrateType::Isolate)
        .label(3, MigrateType::Reclaimable)
        .free(0, 10)
        .free(1024, 8)
        .free(1536, 4)
        .used(1552..1560, false)
        .block(2048, 10, true)
        .cached(0, 0, &[1560, 1562, 1564])
        .cached(1, 4, &[1568, 1570])
        .cpu(1, |c| (c.diff, c.threshold) = (-5, 9))
        .set(|z| (z.nr_free, z.managed) = (1024 + 16 + 5, 1024 + 256 + 16 + 8 + 1024 + 3 + 4))
}

/// The records of a snapshot come from the caller.
#[test]
fn a_panic_or_a_refusal_while_a_zone_is_restored_leaves_it_blank() {
    let state = everything();
    let faulty = [Record::Poisoned { pfn: Pfn(2050) }, Record::Poisoned { pfn: Pfn(3700) }];
    let mut all = state.set(|z| z.managed += 1).records();
    all.extend(faulty);
    let reused = Reused::under(PACKED, machine_of(&all));
    for n in 0..=all.len() {
        let mut y: Y<'_> = reused.next_blank(Default::default());
        let blank = records(&y, NORMAL);
        let some = || all.iter().copied().enumerate();
        let panics = some().map(|(i, r)| if i == n { panic!("planted") } else { r });
        let told = catch_unwind(AssertUnwindSafe(|| y.restore(NORMAL, panics)));
        assert_eq!(told.is_err(), n < all.len());
        if n < all.len() {
            assert_eq!(records(&y, NORMAL), blank);
            y.validate().unwrap();
            // The same record twice.
            let again = some().chain(some().skip(n).take(1)).map(|(_, r)| r);
            if !matches!(all[n], Record::Cpu(_)) {
                y.restore(NORMAL, again).unwrap_err();
                assert_eq!(records(&y, NORMAL), blank);
                y.validate().unwrap();
            }
            y.restore(NORMAL, all.iter().copied()).unwrap();
        }
        y.validate().unwrap();
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!((info.free, info.free_exact, info.cached), (1045, 1040, 7));
        assert_eq!(y.is_poisoned(Pfn(3700)), Some(true));
    }
}

fn machine_of(all: &[Record]) -> Machine {
    let cpus = all.iter().filter(|r| matches!(r, Record::Cpu(_))).count();
    Machine::normal(4096).cpus(&vec![0; cpus])
}

#[test]
fn snapshots_that_contradict_themselves_are_refused() {
    let refused = |state: State, more: &[Record], says: &str| {
        let all: Vec<Record> = state.records().into_iter().chain(more.iter().copied()).collect();
        state.machine.blank_under(PACKED, |y: &mut Y<'_>| {
            let blank = records(y, NORMAL);
            let e = y.restore(NORMAL, all.iter().copied()).unwrap_err();
            assert!(e.to_string().contains(says), "{e}, not {says}");
            assert_eq!(records(y, NORMAL), blank);
            y.validate().unwrap();
        });
    };
    let free = State::new(4096).free(0, 10);
    refused(free.clone().free(512, 3), &[], "overlaps another one");
    refused(free.clone().free_as(1024, 3, MigrateType::Unmovable), &[], "another type's list");
    refused(free.clone().set(|z| z.nr_free -= 1), &[], "the free counter is not");
    refused(
        free.clone().cpu(0, |c| (c.diff, c.threshold) = (1, 1)),
        &[],
        "the free counter is not",
    );
    refused(free.clone().set(|z| z.isolated_blocks = 1), &[], "number of isolated pageblocks");
    refused(free.clone().label(5, MigrateType::HighAtomic), &[], "smaller than its pageblocks");
    refused(free.clone().cpu(0, |c| c.tuning.count = 1), &[], "not what its lists hold");
    refused(free.clone().set(|z| z.managed = 1023), &[], "more pages in blocks");
    let block = (Pfn(2048), o(3));
    refused(free.clone(), &[Record::Guard { pfn: block.0, order: block.1 }], "no guards");
    refused(free.clone(), &[Record::Bad { pfn: block.0, order: block.1 }], "no bad blocks");
    refused(free.clone(), &[Record::Poisoned { pfn: Pfn(7) }], "neither allocated nor bad");
    let twice = Record::Poisoned { pfn: Pfn(2048) };
    refused(free.clone(), &[twice, twice], "faulty already");
    let list = |cpu, list| Record::Cached { cpu: CpuId(cpu), list, pfn: Pfn(2048) };
    refused(free.clone(), &[list(0, 14)], "14 lists");
    refused(free, &[list(7, 0)], "no such CPU");
}

/// 40 huge blocks on the list of one CPU, more than magazines and depots keep.
fn many_huge() -> State {
    let pfns: Vec<u64> = (0..40).map(|n| n * 512).collect();
    State::new(40 * 512).limits(63, 30_000, 60_000).cached(0, 13, &pfns)
}

/// What does not fit into magazines is whole at once, before it is known whether the restore succeeds.
#[test]
fn a_refused_restore_leaves_no_huge_block_behind() {
    let state = many_huge();
    let bad = Record::Bad { pfn: Pfn(0), order: Order::ZERO };
    let in_use = (0..40).fold(State::new(40 * 512), |s, n| s.block(n * 512, 9, true));
    state.machine.blank_under(PACKED, |y: &mut Y<'_>| {
        let blank = records(y, NORMAL);
        y.restore(NORMAL, state.records().into_iter().chain([bad])).unwrap_err();
        assert_eq!(records(y, NORMAL), blank);
        y.validate().unwrap();
        y.restore(NORMAL, in_use.records()).unwrap();
        y.validate().unwrap();
        assert_eq!(y.alloc(o(9), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok(), None);
    });
}

/// Spec §4.11: lists are not drained when pageblocks are isolated.
#[test]
fn s4_11_listed_blocks_of_isolated_pageblocks_are_restored_as_free_ones() {
    let all = MigrateType::Isolate;
    let huge = (0..40).fold(many_huge(), |s, n| if n % 4 == 3 { s } else { s.label(n, all) });
    let small_pages: Vec<u64> = (0..400).map(|n| n * 4).collect();
    let small = State::new(4096).set(|z| z.managed = 400).limits(63, 5000, 5000);
    let small = small.label(1, all).label(2, all).cached(0, 1, &small_pages);
    for (state, isolated) in [(huge, 30 * 512), (small, 2 * 128)] {
        state.machine.blank_under(PACKED, |y: &mut Y<'_>| {
            y.restore(NORMAL, state.records()).unwrap();
            y.validate().unwrap();
            y.drain_all(None);
            y.validate().unwrap();
            let free = y.zone_info(NORMAL).unwrap().free_exact;
            let cached = u64::try_from(state.cpus[0].tuning.count).unwrap();
            assert_eq!(free, cached - isolated);
            while let Ok(page) = y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
                assert_ne!(y.block_type(page), Some(all), "{page}");
            }
            y.validate().unwrap();
        });
    }
}

/// Spec §4.12: free CMA pages are counted once in a zone that had areas before.
#[test]
fn s4_12_cma_pages_are_counted_once_after_another_restore() {
    let machine = Machine::normal(2 * S);
    let mut y: Y<'_> = Reused::under(PACKED, machine).next(Default::default());
    let area = frames(4096..8192);
    y.make_cma(area.clone()).unwrap();
    let all = records(&y, NORMAL);
    let supply = y.supply(NORMAL).unwrap();
    assert_eq!(supply.cma, 4096);
    y.isolate(area.clone(), MigrateType::Cma).unwrap();
    y.unisolate(area, MigrateType::Movable).unwrap();
    y.offline(frames(0..2 * S)).unwrap();
    let bad = Record::Bad { pfn: Pfn(0), order: Order::ZERO };
    y.restore(NORMAL, all.iter().copied().chain([bad])).unwrap_err();
    assert_eq!(y.supply(NORMAL).unwrap().cma, 0);
    y.restore(NORMAL, all).unwrap();
    assert_eq!(y.supply(NORMAL).unwrap(), supply);
    y.validate().unwrap();
}

/// What a snapshot says of a pageblock.
#[derive(Clone, Copy, Debug)]
enum Whole {
    Free,
    InUse,
    /// On the list of a CPU.
    Listed(u32),
    /// Single pages on the list of a CPU; the others are in use.
    Pages(u32),
}

fn whole() -> impl Strategy<Value = (MigrateType, Whole)> {
    let label = prop_oneof![
        4 => Just(MigrateType::Movable),
        1 => Just(MigrateType::Isolate),
        1 => Just(MigrateType::Cma),
    ];
    let cpu = || 0..2u32;
    let of = prop_oneof![
        1 => Just(Whole::Free),
        1 => Just(Whole::InUse),
        4 => cpu().prop_map(Whole::Listed),
        1 => cpu().prop_map(Whole::Pages),
    ];
    (label, of)
}

/// The state of a zone of these pageblocks.
fn zone_of(all: &[(MigrateType, Whole)]) -> State {
    let state = State::new(512 * all.len() as u64).cpus(&[0, 0]).limits(63, 9000, 90_000);
    (0..).zip(all).fold(state, |state, (n, &(label, of))| {
        let (first, state) = (n * 512, state.label(n as usize, label));
        let every_fourth = (0..128).map(|n| first + 4 * n);
        match of {
            Whole::Free => state.free(first, 9),
            Whole::InUse => state.block(first, 9, true),
            Whole::Listed(cpu) => state.cached(cpu, 13, &[first]),
            Whole::Pages(cpu) => {
                let state = state.cached(cpu, 1, &every_fourth.collect::<Vec<_>>());
                (first..first + 512).filter(|n| n % 4 != 0).fold(state, |s, n| s.block(n, 0, true))
            }
        }
    })
}

/// Restores one state, after a restore of another one was refused, and allocates everything. No page has two
/// owners, and no page of an isolated pageblock is allocated. The states have more listed blocks than magazines
/// have room for.
fn restored_pages_have_one_owner(refused: &[(MigrateType, Whole)], all: &[(MigrateType, Whole)]) {
    let (refused, state) = (zone_of(refused), zone_of(all));
    state.machine.blank_under(PACKED, |y: &mut Y<'_>| {
        let bad = Record::Bad { pfn: Pfn(0), order: Order::ZERO };
        y.restore(NORMAL, refused.records().into_iter().chain([bad])).unwrap_err();
        y.restore(NORMAL, state.records()).unwrap();
        y.validate().unwrap();
        y.drain_all(None);
        y.validate().unwrap();
        let mut owned: BTreeMap<Pfn, Order> = BTreeMap::new();
        for record in state.records() {
            if let Record::Allocated { pfn, order, .. } = record {
                owned.insert(pfn, order);
            }
        }
        while let Ok(page) = y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            assert_ne!(y.block_type(page), Some(MigrateType::Isolate), "{page}");
            let below = owned.range(..=page).next_back();
            let taken = below.filter(|(pfn, order)| page.0 < pfn.0 + u64::from(order.pages()));
            assert_eq!(taken, None, "{page} has two owners");
            owned.insert(page, Order::ZERO);
        }
        owned.into_iter().for_each(|(pfn, order)| y.free(pfn, order).unwrap());
        for (n, (label, _)) in (0..).zip(all) {
            if *label == MigrateType::Isolate {
                y.unisolate(frames(n * 512..n * 512 + 512), MigrateType::Movable).unwrap();
            }
        }
        y.drain_all(None);
        y.validate().unwrap();
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!(info.free_exact, info.managed);
    });
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whole_pageblocks_are_restored_in_any_state(
        refused in prop::collection::vec(whole(), 64),
        all in prop::collection::vec(whole(), 64),
    ) {
        restored_pages_have_one_owner(&refused, &all);
    }
}

/// Spec §8.5: a CPU that is offline has no lists; §5.5: lists that are disabled have nothing.
#[test]
fn magazines_are_restored_only_if_usable() {
    let machine = Machine::normal(4096).cpus(&[0, 0]);
    let mut y: Y<'_> = Reused::under(PACKED, machine).next_blank(Default::default());
    let all = everything().records();
    assert!(y.cpu_dead(CpuId(1)));
    let refused = y.restore(NORMAL, all.iter().copied()).unwrap_err();
    assert!(refused.to_string().contains("the CPU is down"), "{refused}");
    let without = |r: &Record| !matches!(r, Record::Cached { cpu: CpuId(1), .. });
    let as_down = |r: Record| match r {
        Record::Cpu(c) if c.cpu == CpuId(1) => Record::Cpu(cpu(1)),
        Record::Zone(z) => Record::Zone(ZoneRecord { nr_free: 1040, ..z }),
        r => r,
    };
    let left = all.into_iter().filter(without).map(as_down);
    let managed = |r: Record| match r {
        Record::Zone(z) => Record::Zone(ZoneRecord { managed: z.managed - 4, ..z }),
        r => r,
    };
    y.restore(NORMAL, left.map(managed)).unwrap();
    y.validate().unwrap();
    let machine = Machine::normal(4096).cpus(&[0, 0]);
    let mut y: Y<'_> = Reused::under(PACKED, machine).next_blank(Default::default());
    std::mem::forget(y.disable_pcp(NORMAL).unwrap());
    let refused = y.restore(NORMAL, everything().records()).unwrap_err();
    assert!(refused.to_string().contains("lists are disabled"), "{refused}");
}

/// Records of one whole section, free.
fn section(start: u64) -> Vec<Record> {
    let free = (0..S).step_by(1024).fold(State::new(S), |s, pfn| s.free(pfn, 10));
    let mut all = free.set(|z| z.watermarks = [0, 1, 2, 3]).records();
    for record in &mut all {
        if let Record::Block { pfn, .. } | Record::Free { pfn, .. } = record {
            pfn.0 += start;
        }
    }
    all.retain(|r| !matches!(r, Record::Cpu(_)));
    all
}

/// Spec §2.5: a node that has memory again serves requests again. §11: its faulty frame stays out
/// of use.
#[test]
fn an_emptied_and_restored_packed_zone_serves_its_node() {
    let machine = Machine::new().zone_on(0, NORMAL, 0..S).zone_on(1, NORMAL, S..2 * S).cpus(&[1]);
    let second = ZoneId { node: NodeId(1), kind: NORMAL };
    let mut y: Y<'_> = Reused::under(PACKED, machine).next(Default::default());
    y.offline(frames(S..2 * S)).unwrap();
    assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE).is_err(), "the node is empty");
    y.restore(second, section(S)).unwrap();
    let page = y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE).unwrap();
    assert!(page.0 >= S, "{page}");
    y.validate().unwrap();
    y.free(page, o(0)).unwrap();
    assert!(y.zone_info(second).unwrap().cached > 0, "its magazines are in use");
    y.poison_frame(Pfn(S + 7)).unwrap();
    y.offline(frames(S..2 * S)).unwrap();
    let refused = y.restore(second, section(S)).unwrap_err();
    assert!(refused.to_string().contains("faulty"), "{refused}");
    assert_eq!(y.is_poisoned(Pfn(S + 7)), Some(true));
    y.online(frames(S..2 * S)).unwrap();
    assert!(y.alloc_at(Pfn(S + 7), o(0), Gfp::KERNEL).is_err(), "a faulty frame was allocated");
    y.validate().unwrap();
}

/// A snapshot does not distinguish reserved memory from holes.
#[test]
fn memory_of_a_restored_packed_zone_is_not_released() {
    let machine = Machine::normal(4096).reserved(100..200).reserved(1024..2048);
    let all = machine.run_under(PACKED, |y: &Y<'_>| all_records(y));
    machine.restored(PACKED, &all, |y: &Y<'_>| {
        assert_eq!(all_records(y), all);
        assert_eq!(y.release(frames(100..200)), Err(ReleaseError::Hole(Pfn(100))));
        assert_eq!(y.release(frames(1024..1025)), Err(ReleaseError::Hole(Pfn(1024))));
        assert_eq!(y.free(Pfn(100), Order::ZERO), Err(FreeError::Reserved));
        y.validate().unwrap();
    });
}
