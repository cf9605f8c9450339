//! A yard on the packed engine: its shared lines are priced.

use std::cell::{Cell, RefCell};

use pageyard::lines::{Access, Part, Shared, set_hook};
use pageyard::packed::OwnedStorage;
use pageyard::policy::{Engine, Packed, StaticPolicy};
use pageyard::{CpuId, Gfp, Knobs, MigrateType, Order, Pfn};
use pageyard_machine::{Machine, Memory, Options, SimYard, Stats, Task, unpriced};

use crate::common::{machine, with_yard};

fn with_packed<T>(machine: &Machine, f: impl FnOnce(&SimYard<'_, Packed>) -> T) -> T {
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let memory = Memory::for_layout_on(Engine::Packed, &layout).unwrap();
    let mut rooms = memory.rooms();
    f(&machine.yard::<Packed, ()>(&layout, memory.storage(&mut rooms), ()).unwrap())
}

fn small(name: &str, seed: u64) -> Machine {
    machine(name, Options { seed, memory: Some(256 << 20), ..Options::default() })
}

/// Runs `program` on the first `cpus` CPUs, and checks that all memory is free afterwards.
fn run(
    machine: &Machine,
    cpus: u32,
    program: impl Fn(&Task<'_, '_>, &SimYard<'_, Packed>) + Copy,
) -> Stats {
    with_packed(machine, |yard| {
        machine
            .run(|s| {
                for cpu in 0..cpus {
                    s.spawn(CpuId(cpu), move |task| program(task, yard));
                }
                s.spawn_ticks(yard);
            })
            .unwrap();
        yard.drain_all(None);
        yard.validate().unwrap();
        for zone in yard.zone_ids() {
            let info = yard.zone_info(zone).unwrap();
            assert_eq!((info.free_exact, info.cached), (info.managed, 0), "{zone:?}");
        }
    });
    machine.stats()
}

fn churn(task: &Task<'_, '_>, yard: &SimYard<'_, Packed>) {
    let mut held = Vec::new();
    for _ in 0..600 {
        task.think(task.random_exponential(300));
        let order = Order::new([0, 0, 0, 0, 3, 9][task.random(6) as usize]).unwrap();
        if task.random(2) == 0 {
            held.extend(yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN).ok().map(|pfn| (pfn, order)));
        } else if !held.is_empty() {
            let (pfn, order) = held.swap_remove(task.random(held.len() as u64) as usize);
            yard.free(pfn, order).unwrap();
        }
    }
    held.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
}

#[test]
fn only_the_same_seed_gives_the_same_bytes() {
    let text = |seed| {
        let stats = run(&small("2x20", seed), 40, churn);
        assert!(stats.line_share() > 0, "{stats}");
        format!("{stats}{stats:?}")
    };
    let first = text(1);
    assert!(first == text(1));
    assert!(first != text(2));
}

#[test]
fn a_hot_pair_waits_for_no_line() {
    let machine = small("2x20", 1);
    with_packed(&machine, |yard| {
        // The first round fills each CPU's magazine.
        for pairs in [1, 2_000] {
            machine.reset_stats();
            let round = move |task: &Task<'_, '_>| {
                for _ in 0..pairs {
                    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                    task.think(100);
                    yard.free(pfn, Order::ZERO).unwrap();
                }
            };
            machine.run(|s| (0..80).for_each(|cpu| s.spawn(CpuId(cpu), round))).unwrap();
        }
    });
    let stats = machine.stats();
    // The first requests find lines that other CPUs used in the round before.
    assert!(stats.line_share() < 1_000 && stats.zone_lock_share() == 0, "{stats}");
}

/// Blocks that magazines do not keep come from the zone, which all CPUs share.
#[test]
fn a_line_that_all_cpus_write_is_named() {
    let stats = run(&small("2x20", 1), 40, |task, yard| {
        for _ in 0..200 {
            let order = Order::new(5).unwrap();
            let Ok(pfn) = yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN) else { continue };
            task.think(100);
            yard.free(pfn, order).unwrap();
        }
    });
    let (name, share) = stats.busiest_line().unwrap();
    assert!(share > 10_000, "{stats}");
    let text = stats.to_string();
    assert!(text.contains(&name.to_string()), "{text}");
    let shared = [Part::FreeCounter, Part::Loose, Part::Words, Part::Index, Part::Labels];
    assert!(shared.contains(&name.part), "{text}");
}

#[test]
fn observers_pay_nothing_and_the_exact_engine_has_no_priced_lines() {
    let times = RefCell::new(Vec::new());
    run(&small("desktop", 1), 1, |task, yard| {
        let zone = yard.zone_ids().next().unwrap();
        for look in [true, false] {
            let before = task.now();
            let free = || yard.free_blocks(zone).unwrap();
            if look {
                unpriced(free)
            } else {
                free()
            };
            times.borrow_mut().push(task.now() - before);
        }
    });
    assert!(times.borrow()[0] == 0 && times.borrow()[1] > 0, "{times:?}");

    let machine = small("desktop", 1);
    with_yard::<crate::common::P, (), _>(&machine, (), |yard| {
        machine
            .run(|s| {
                s.spawn(CpuId(0), move |_| {
                    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                    yard.free(pfn, Order::ZERO).unwrap();
                });
            })
            .unwrap();
    });
    assert!(machine.stats().parts.is_empty());
    assert_eq!(Packed::NAME, "Packed");
}

/// A simulator prices the memory whose addresses it knows.
#[test]
fn all_memory_that_cpus_share_is_named_once() {
    let machine = small("2x20", 1);
    let mut all: Vec<Shared> = Vec::new();
    with_packed(&machine, |yard| yard.for_each_shared(|shared| all.push(shared)));
    all.retain(|shared| !shared.bytes.is_empty());
    let mut zones: Vec<_> = all.iter().map(|shared| shared.zone).collect();
    zones.sort();
    zones.dedup();
    assert!(zones.len() >= 2, "{zones:?}");
    for zone in zones {
        // By purpose: the number of each piece's first element, and its elements.
        let pieces = |part| {
            let of_part = all.iter().filter(move |s| (s.zone, s.part) == (zone, part));
            let elements = |s: &Shared| (s.first, s.bytes.len() / s.element);
            of_part.map(elements).collect::<Vec<_>>()
        };
        let count = |part| match pieces(part)[..] {
            [(0, n)] => n,
            ref other => panic!("{zone:?} {part:?}: {other:?}"),
        };
        let blocks = count(Part::Words);
        assert_eq!(count(Part::States), 512 * blocks);
        assert_eq!([Part::Labels, Part::Routes].map(count), [blocks; 2]);
        // Two sets of whole pageblocks, and six types of eight buckets.
        assert_eq!(count(Part::Index), 50);
        assert_eq!(count(Part::Links), count(Part::Magazines));
        assert_eq!(count(Part::Cpus), 80);
        // Five orders of three types.
        let domains = pieces(Part::Depots).len();
        assert_eq!((pieces(Part::Depots), count(Part::NodeDepot)), (vec![(0, 15); domains], 15));
        let numbers = |n: usize| (0..n).map(|number| (number, 1)).collect::<Vec<_>>();
        assert_eq!(pieces(Part::Empties), numbers(domains));
        assert_eq!(pieces(Part::NodeEmpties), [(domains, 1)]);
        assert_eq!(pieces(Part::Sparse), numbers(domains + 1));
        assert_eq!(pieces(Part::Upkeep), numbers(domains + 1));
        let ones = [Part::Levels, Part::DepotPages, Part::Isolated, Part::Returned, Part::Loose];
        assert_eq!((ones.map(count), count(Part::FreeCounter)), ([1; 5], 1));
    }
    all.sort_by_key(|shared| shared.bytes.start);
    assert!(all.is_sorted_by(|a, b| a.bytes.end <= b.bytes.start), "two pieces overlap");
}

type Step<'s> = &'s dyn Fn(&SimYard<'_, Packed>, &mut Vec<Pfn>);

/// Runs steps on one CPU. Returns a function that tells how often the last one accessed memory of a
/// purpose.
fn accesses(steps: &[Step<'_>]) -> impl Fn(Part) -> u64 + use<> {
    let machine = small("desktop", 1);
    let held = RefCell::new(Vec::new());
    with_packed(&machine, |yard| {
        for step in steps {
            machine.reset_stats();
            let held = &held;
            let run = move |_: &Task<'_, '_>| step(yard, &mut held.borrow_mut());
            machine.run(|s| s.spawn(CpuId(0), run)).unwrap();
        }
    });
    let parts = machine.stats().parts;
    move |part| parts.iter().filter(|(p, _)| *p == part).map(|(_, stats)| stats.accesses).sum()
}

fn take(order: u8) -> impl Fn(&SimYard<'_, Packed>, &mut Vec<Pfn>) {
    move |yard, held| held.push(yard.alloc(Order::new(order).unwrap(), Gfp::KERNEL).unwrap())
}

#[test]
fn a_block_from_a_pageblock_that_stays_sparse_costs_few_accesses() {
    let quarter = take(7);
    let of = accesses(&[&quarter, &quarter]);
    // One word of the first quarter, two of the second one twice, then all are counted.
    assert_eq!(of(Part::Words), 1 + 2 * 2 + 8);
    // Two looks whether the pageblock is open; the bucket is compared, exchanged, and confirmed.
    assert_eq!(of(Part::Labels), 2 + 5);
    assert_eq!(of(Part::Routes), 1, "it is read and stays");
    assert_eq!(of(Part::Sparse), 0);
}

#[test]
fn pageblocks_that_cannot_serve_a_request_cost_it_nothing() {
    let [half, quarter, eighth] = [8, 7, 6].map(take);
    // An eighth of a pageblock is free, or nothing of it.
    let with = accesses(&[&half, &quarter, &eighth, &half, &quarter]);
    let without = accesses(&[&half, &quarter, &eighth, &eighth, &half, &quarter]);
    for part in [Part::Words, Part::Labels, Part::Index] {
        assert_eq!(with(part), without(part), "{part:?}");
    }

    // Every second page of a pageblock is free, or none.
    let labels = |frees: bool| {
        let pages: Step<'_> = &|yard, held| {
            (0..512).for_each(|_| take(0)(yard, held));
            for &pfn in held.iter().filter(|pfn| frees && pfn.0 % 2 == 0) {
                yard.free(pfn, Order::ZERO).unwrap();
            }
            yard.drain_all(None);
        };
        accesses(&[pages, &take(1)])(Part::Labels)
    };
    assert_eq!(labels(true), labels(false));
}

thread_local! {
    /// Accesses by kind: fetches, updates.
    static KINDS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

/// Counts the fetches and updates of an operation.
fn kinds(operation: impl FnOnce()) -> [u32; 2] {
    KINDS.set([0; 2]);
    let before = set_hook(Some(|_, access| {
        let [fetches, updates] = KINDS.get();
        let is = |kind| u32::from(access == kind);
        KINDS.set([fetches + is(Access::Fetch), updates + is(Access::Update)]);
    }));
    operation();
    set_hook(before);
    KINDS.get()
}

#[test]
fn a_free_that_a_magazine_takes_has_one_exchange_or_none() {
    let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add(region.frames()).unwrap();
    let (cpu, o) = (CpuId(0), Order::ZERO);
    let alloc = || region.alloc(cpu, o, MigrateType::Movable).unwrap();
    let pages = [alloc(), alloc(), alloc()];
    assert_eq!(kinds(|| region.free(cpu, pages[0], o).unwrap()), [0, 1]);
    assert_eq!(kinds(|| region.free_owned(cpu, pages[1], o).unwrap()), [0, 0]);
    assert_eq!(kinds(|| _ = alloc()), [0, 0]);
}

#[test]
fn frees_to_the_zone_fetch_each_word_before_they_write_it() {
    let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add(region.frames()).unwrap();
    let (cpu, o) = (CpuId(0), Order::ZERO);
    let alloc = |_| region.alloc(cpu, o, MigrateType::Movable).unwrap();
    let pages: Vec<Pfn> = (0..4096).map(alloc).collect();
    let free = |pages: &[Pfn]| pages.iter().for_each(|&pfn| region.free(cpu, pfn, o).unwrap());
    // The magazines and depots are full after that.
    free(&pages[..2048]);
    let before = region.counts(cpu).unwrap().returned;
    let [fetches, _] = kinds(|| free(&pages[2048..]));
    let returned = region.counts(cpu).unwrap().returned - before;
    assert_eq!((u64::from(fetches) * 64, returned), (2048, 2048));
}
