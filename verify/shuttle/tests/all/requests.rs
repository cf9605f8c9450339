//! Whole requests of three threads, concurrent with every other operation on a yard.

use pageyard::policy::*;
use pageyard::{CpuId, FreeError, Gfp, MigrateType, Order, Pfn, ZoneKind};
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use shuttle::thread;

use crate::common::check::{Owned, check};
use crate::common::{Machine, o};
use crate::schedules::{explore, find};
use crate::stage::*;

type C = TypeChecked;
type Two = TypeChecked<TwoPassBulkFree<Step9>>;
const NORMAL: ZoneKind = ZoneKind::Normal;

#[test]
fn requests_with_remote_frees() {
    explore("requests", 200, scenario::<Turns, C>(requests));
    explore("requests in two passes", 200, scenario::<Turns, Two>(requests));
}

#[test]
fn requests_with_ticks_and_drains() {
    let each: Part<Turns, C> = |y, cpu| match cpu {
        0 => requests(y, 0),
        1 => {
            y.tick(CpuId(0));
            y.drain_all(None);
            free_one(y);
        }
        _ => {
            y.drain_all(Some(NORMAL.into()));
            requests(y, 2);
        }
    };
    explore("ticks and drains", 200, scenario(each));
}

#[test]
fn requests_with_disabled_lists_and_settings() {
    let each: Part<Turns, C> = |y, cpu| match cpu {
        0 => requests(y, 0),
        1 => {
            let guard = y.disable_pcp(NORMAL).unwrap();
            requests(y, 1);
            drop(guard);
        }
        _ => {
            y.set_min_free_kbytes(400).unwrap();
            y.set_percpu_pagelist_high_fraction(8).unwrap();
        }
    };
    explore("disabled lists and settings", 200, scenario(each));
}

/// §8.5: the last CPU goes offline and online while limits change and another CPU drains.
#[test]
fn requests_with_cpu_hotplug() {
    let each: Part<Turns, C> = |y, cpu| match cpu {
        0 => requests(y, 0),
        1 => {
            // Pages that CPU 3 left on its lists earlier.
            CPU.with(|c| c.set(3));
            (0..3).for_each(|_| take(y, 0, Gfp::KERNEL));
            free_one(y);
            CPU.with(|c| c.set(1));
            assert!(y.cpu_dead(CpuId(3)));
            let lists = y.pageset(NORMAL, CpuId(3)).unwrap();
            assert_eq!(lists.count, 0, "a CPU that is down has no pages");
            requests(y, 1);
            assert!(y.cpu_up(CpuId(3)));
        }
        _ => {
            y.drain_cpu(CpuId(3), None);
            y.set_percpu_pagelist_high_fraction(8).unwrap();
            drop(y.disable_pcp(NORMAL).unwrap());
            y.tick(CpuId(3));
        }
    };
    explore("a CPU goes and comes back", 200, scenario(each));
}

/// §4.11, §4.12: pageblocks are isolated, and a contiguous range is allocated, while others
/// allocate and free.
#[test]
fn requests_with_isolation_and_contiguous_ranges() {
    let each: Part<Turns, C> = |y, cpu| match cpu {
        0 => {
            (0..3).for_each(|_| take(y, 0, Gfp::HIGHUSER_MOVABLE));
            requests(y, 1);
        }
        1 => {
            let range = Pfn(0)..Pfn(512);
            if y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL).is_ok() {
                y.free_contig(range).unwrap();
            }
        }
        _ => {
            let range = Pfn(1024)..Pfn(1536);
            if y.isolate(range.clone(), MigrateType::Movable).is_ok() {
                requests(y, 2);
                y.unisolate(range, MigrateType::Movable).unwrap();
            }
        }
    };
    explore("isolation and contiguous ranges", 200, scenario(each));
}

#[test]
fn s8_3_watermarks_follow_the_last_written_setting() {
    let each: Part<Turns, C> =
        |y, cpu| y.set_min_free_kbytes([400, 800, 1600][cpu as usize]).unwrap();
    explore("three settings", 200, scenario(each));
    explore("two settings", 300, || {
        Machine::normal(PAGES).run_on(Stage::default(), |y: &Y<'_, Turns, C>| {
            thread::scope(|s| {
                for kb in [400, 800] {
                    s.spawn(move || y.set_min_free_kbytes(kb).unwrap());
                }
            });
            let min = y.zone_info(NORMAL).unwrap().watermarks[0];
            assert_eq!(min, y.knobs().min_free_kbytes / 4);
        });
    });
}

/// The planted bug: a lock that one CPU does not wait for. It is found within some schedules.
#[test]
fn a_lock_that_one_cpu_ignores_is_detected() {
    let small: Part<Impatient, C> = |y, cpu| {
        (0..2).for_each(|_| take(y, 4, [Gfp::KERNEL, Gfp::ATOMIC, Gfp::NOWAIT][cpu as usize]));
        free_one(y);
    };
    let found = find(200, scenario(small)).expect_err("two threads are in the zone at once");
    // The seed reproduces it.
    let again = crate::schedules::one(found.seed, scenario(small)).expect_err("as before");
    assert_eq!(again.why, found.why);
    // The text of `validate`, or that of the map of owners; no other panic counts.
    let why = &found.why;
    assert!(
        why.starts_with("Normal of node 0: ") || why.ends_with(" was handed out twice"),
        "{why}"
    );
    println!("found with {:#x}: {}", found.seed, found.why);
}

/// How a thread frees a block that the other threads free too.
type Way = fn(&Y<'_, Turns, C>, Pfn, Order) -> Result<(), FreeError>;

/// Three threads free the same blocks, each in its way: exactly one free of each block succeeds.
fn everybody_frees(ways: [Way; 3]) -> impl Fn() + Send + Sync {
    move || {
        let m = Machine::normal(PAGES).cpus(&[0, 0, 1, 0]);
        m.run_on(Stage::default(), |y: &Y<'_, Turns, C>| {
            let blocks = [0, 4, 0, 3].map(|order| {
                let order = o(order);
                (y.alloc(order, Gfp::KERNEL).unwrap(), order, AtomicU32::new(0))
            });
            thread::scope(|s| {
                for (cpu, way) in (0..).zip(ways) {
                    let blocks = &blocks;
                    s.spawn(move || {
                        CPU.with(|c| c.set(cpu));
                        for (pfn, order, freed) in blocks {
                            if way(y, *pfn, *order).is_ok() {
                                freed.fetch_add(1, SeqCst);
                            }
                        }
                    });
                }
            });
            for (pfn, order, freed) in &blocks {
                assert_eq!(freed.load(SeqCst), 1, "{pfn} of order {} was freed", order.get());
            }
            y.drain_all(None);
            check(y, &m, &Owned::new());
        });
    }
}

/// §11.8: exactly one of several frees of a block succeeds.
#[test]
fn frees_of_the_same_blocks() {
    let free: Way = |y, pfn, order| y.free(pfn, order);
    let direct: Way = |y, pfn, order| y.free_direct(pfn, order);
    let batch: Way = |y, pfn, order| y.free_batch(&[(pfn, order)]).map_err(|e| e.error);
    explore("the same blocks", 200, everybody_frees([free; 3]));
    explore("the same blocks in three ways", 200, everybody_frees([free, direct, batch]));
}

/// Another thread says of blocks whether they can move, which does not end their use.
fn a_block_is_freed_while_it_changes<P: StaticPolicy + Send + Sync + 'static>(way: FreeAll<P>) {
    let name = format!("{}: free beside set_movable", P::NAME);
    explore(&name, 100, move || {
        let m = Machine::normal(PAGES).cpus(&[0, 0, 1, 0]);
        m.run_on(Stage::default(), |y: &Y<'_, Turns, P>| {
            let blocks = [0, 4, 0, 3].map(|n| (y.alloc(o(n), Gfp::KERNEL).unwrap(), o(n)));
            thread::scope(|s| {
                s.spawn(move || way(y, &blocks));
                s.spawn(move || {
                    for (pfn, order) in blocks {
                        // Refused once the block is free.
                        for movable in [true, false, true] {
                            let _ = y.set_movable(pfn, order, movable);
                        }
                    }
                });
            });
            y.drain_all(None);
            check(y, &m, &Owned::new());
        });
    });
}

/// Frees all blocks in one way. None may be refused.
type FreeAll<P> = fn(&Y<'_, Turns, P>, &[(Pfn, Order)]);

#[test]
fn blocks_are_freed_while_another_thread_changes_what_can_move() {
    fn each<P: StaticPolicy + Send + Sync + 'static>() {
        a_block_is_freed_while_it_changes::<P>(|y, all| {
            all.iter().for_each(|&(pfn, order)| y.free(pfn, order).unwrap());
        });
        a_block_is_freed_while_it_changes::<P>(|y, all| {
            all.iter().for_each(|&(pfn, order)| y.free_direct(pfn, order).unwrap());
        });
        a_block_is_freed_while_it_changes::<P>(|y, all| y.free_batch(all).unwrap());
    }
    each::<C>();
    each::<Packed>();
}

/// The planted bug: `free_owned` by threads that free the same block concurrently.
#[test]
fn false_owners_are_detected() {
    let owned: Way = |y, pfn, order| y.free_owned(pfn, order);
    let found = find(200, everybody_frees([owned; 3])).expect_err("a block is freed twice");
    assert!(found.why.contains("was freed") && found.why.contains("left: 2"), "{}", found.why);
    println!("found with {:#x}: {}", found.seed, found.why);
}
