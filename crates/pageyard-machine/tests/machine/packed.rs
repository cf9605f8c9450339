//! A yard on the packed engine: its shared lines are priced.

use std::cell::RefCell;

use pageyard::lines::Part;
use pageyard::policy::{Engine, Packed, StaticPolicy};
use pageyard::{CpuId, Gfp, Knobs, Order};
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
