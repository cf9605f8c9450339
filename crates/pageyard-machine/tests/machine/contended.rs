//! The allocator after a run in which all CPUs contend with each other.

use std::cell::RefCell;

use pageyard::{CpuId, Gfp};
use pageyard_machine::{LockKind, Options};

use crate::common::{Owners, P, check_all_free, free_blocks, machine, with_yard};

#[test]
fn the_core_keeps_its_invariants_on_224_cpus() {
    for lock in [LockKind::Queued, LockKind::TestAndSet] {
        let options = Options { memory: Some(4 << 30), lock, ..Options::default() };
        let machine = machine("2x56", options);
        with_yard::<P, (), _>(&machine, (), |yard| {
            let start = free_blocks(yard);
            let owners = Owners::default();
            // Blocks that another task will free.
            let passed = RefCell::new(Vec::new());
            machine
                .run(|s| {
                    let (owners, passed) = (&owners, &passed);
                    for cpu in 0..224 {
                        s.spawn(CpuId(cpu), move |task| {
                            for _ in 0..6 {
                                let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::RECLAIMABLE]
                                    [task.random(3) as usize];
                                for _ in 0..task.random(120) {
                                    let order = [0, 0, 0, 0, 1, 2, 3, 9][task.random(8) as usize];
                                    let pfn = owners.alloc(yard, order, gfp).unwrap();
                                    passed.borrow_mut().push((pfn, order));
                                }
                                for _ in 0..task.random(120) {
                                    let n = passed.borrow().len() as u64;
                                    if n == 0 {
                                        break;
                                    }
                                    let at = task.random(n) as usize;
                                    let (pfn, order) = passed.borrow_mut().swap_remove(at);
                                    owners.free(yard, pfn, order);
                                }
                                if task.random(50) == 0 {
                                    yard.drain_all(None);
                                }
                            }
                        });
                    }
                    s.spawn_ticks(yard);
                })
                .unwrap();
            let stats = machine.stats();
            let contended: u64 = stats.zone_locks().map(|l| l.contended).sum();
            assert!(contended > 1000, "{stats}");
            assert_times_add_up(&stats);
            for (pfn, order) in passed.take() {
                owners.free(yard, pfn, order);
            }
            assert!(owners.is_empty());
            check_all_free(yard, &start);
        });
    }
}

/// Asserts that every CPU's time is accounted for, and that CPUs and locks count the same waits.
fn assert_times_add_up(stats: &pageyard_machine::Stats) {
    for (n, cpu) in stats.cpus.iter().enumerate() {
        let sum = cpu.busy() + cpu.idle;
        assert_eq!(sum / 1000, stats.elapsed_ns, "CPU {n}");
    }
    let zone: u64 = stats.zone_locks().map(|l| l.waited).sum();
    let all: u64 = stats.locks.iter().map(|l| l.waited).sum();
    let total = stats.total();
    assert_eq!((total.zone_wait, total.other_wait), (zone, all - zone));
    for lock in stats.zone_locks() {
        assert_eq!(lock.waits.total(), lock.contended);
        assert_eq!(lock.holds.total(), lock.acquired);
        assert_eq!(lock.alloc_holds.total() + lock.free_holds.total(), lock.acquired);
        assert_eq!(lock.held_alloc + lock.held_free, lock.held);
        assert!(lock.alloc_holds.total() > 0 && lock.free_holds.total() > 0);
        assert!(lock.held <= stats.elapsed_ns * 1000, "one holder at a time");
    }
}

#[test]
fn the_core_and_the_machine_measure_a_zone_lock_alike() {
    let options = Options { memory: Some(64 << 20), ..Options::default() };
    let machine = machine("desktop", options);
    with_yard::<P, (), _>(&machine, (), |yard| {
        machine
            .run(|s| {
                for cpu in 0..4 {
                    s.spawn(CpuId(cpu), move |task| {
                        let order = pageyard::Order::new(5).unwrap();
                        for _ in 0..200 {
                            let pfn = yard.alloc(order, Gfp::KERNEL).unwrap();
                            task.think(100);
                            yard.free(pfn, order).unwrap();
                        }
                    });
                }
            })
            .unwrap();
        let zone = yard.zone_ids().next().unwrap();
        let (ours, core) = (machine.stats(), yard.zone_stats(zone).unwrap());
        let ours = ours.zone_locks().next().unwrap();
        assert_eq!(ours.acquired, 1600);
        assert!(ours.contended > 300, "{}", ours.contended);
        // The core measures in whole nanoseconds, from its request on. The machine does not count
        // taking a free lock as a wait, and counts fetching its cache lines as part of the hold.
        let near = |a: u64, b: u64| a.abs_diff(b) * 10 < a.max(b);
        let (machine, core) = ((ours.waited + ours.held) / 1000, core.wait_ns + core.hold_ns);
        assert!(near(machine, core), "{machine} {core}");
    });
}
