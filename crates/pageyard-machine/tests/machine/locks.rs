//! The order in which CPUs get a lock, when, and what that costs, compared with examples computed
//! by hand.

use lock_api::Mutex;
use pageyard::{CpuId, ZoneKind};
use pageyard_machine::{Level, LockKind, LockName, LockStats, Machine, Options, SimLock, Stalls};

use crate::common::{machine, round_costs};

type Lock = Mutex<SimLock, Vec<u32>>;

/// Two sockets of 20 cores at distance 21; each shares a cache.
fn two_sockets(options: Options) -> Machine {
    machine("2x20", Options { memory: Some(64 << 20), costs: round_costs(), ..options })
}

fn only_lock(machine: &Machine) -> LockStats {
    let stats = machine.stats();
    assert_eq!(stats.locks.len(), 1);
    stats.locks[0].clone()
}

/// Each of these CPUs thinks for the given time, then holds the lock for 100 ns. Returns the order
/// in which they got it.
fn contend(machine: &Machine, asks: &[(u32, u64)]) -> Vec<u32> {
    contend_for(machine, Lock::new(Vec::new()), asks)
}

fn contend_for(machine: &Machine, lock: Lock, asks: &[(u32, u64)]) -> Vec<u32> {
    machine
        .run(|s| {
            for &(cpu, think) in asks {
                let lock = &lock;
                s.spawn(CpuId(cpu), move |task| {
                    task.think(think);
                    let mut held = lock.lock();
                    held.push(cpu);
                    task.think(100);
                });
            }
        })
        .unwrap();
    lock.into_inner()
}

#[test]
fn a_queued_lock_is_fair_and_costs_the_distance() {
    let machine = two_sockets(Options::default());
    // CPU 1 is a neighbour of CPU 0, CPU 20 is on the other socket.
    assert_eq!(contend(&machine, &[(0, 0), (1, 30), (20, 20)]), [0, 20, 1]);
    let lock = only_lock(&machine);
    // CPU 0 holds it from 10 to 111; CPU 20 from 111 + 5 + 100 to 317; CPU 1 from 317 + 5 + 100.
    assert_eq!(machine.stats().elapsed_ns, 422 + 101);
    assert_eq!((lock.acquired, lock.contended, lock.refused), (3, 2, 0));
    assert_eq!((lock.waited, lock.longest_wait), ((216 - 20 + 422 - 30) * 1000, 392_000));
    assert_eq!((lock.held, lock.longest_held), (3 * 101_000, 101_000));
    assert_eq!(lock.passed[Level::Remote(21).index()], 2);
    assert_eq!(lock.passed.iter().sum::<u64>(), 2);
    assert_eq!(lock.name, LockName::Other(0));
}

#[test]
fn a_free_lock_costs_the_distance_to_its_last_owner() {
    for (second, way) in [(0, 0), (40, 0), (1, 50), (20, 100)] {
        let machine = two_sockets(Options::default());
        contend(&machine, &[(0, 0), (second, 1000)]);
        // CPU 40 is the other thread of CPU 0's core: it thinks at 1.6 times the price. Tasks on
        // one CPU switch, which costs 1000 ns.
        let start = [(0, 111 + 1000 + 1000), (40, 1600)];
        let start = start.iter().find(|s| s.0 == second).map_or(1000, |s| s.1);
        assert_eq!(machine.stats().elapsed_ns, start + 10 + way + 101, "CPU {second}");
        let passed: u64 = only_lock(&machine).passed.iter().sum();
        assert_eq!(passed, u64::from(second != 0));
    }
}

#[test]
fn a_test_and_set_lock_favours_the_nearest_and_costs_per_waiter() {
    let mut near_first = 0;
    for seed in 0..100 {
        let machine =
            two_sockets(Options { seed, lock: LockKind::TestAndSet, ..Options::default() });
        // CPU 20 requests the lock first.
        let order = contend(&machine, &[(0, 0), (1, 30), (20, 20)]);
        let elapsed = machine.stats().elapsed_ns;
        if order == [0, 1, 20] {
            near_first += 1;
            // 111 + 5 + 50 + one more waiter 2, then 5 + 100 and none.
            assert_eq!(elapsed, 168 + 101 + 105 + 101);
        } else {
            assert_eq!(order, [0, 20, 1]);
            assert_eq!(elapsed, 218 + 101 + 105 + 101);
        }
    }
    // At half the distance, twice as likely.
    assert!((55..80).contains(&near_first), "{near_first} of 100");
}

#[test]
fn lines_protected_by_a_zone_lock_follow_it() {
    let machine = two_sockets(Options::default());
    let lock = Lock::new(Vec::new());
    let name = LockName::Zone(ZoneKind::Normal.into());
    machine.name_locks(name, || drop(lock.lock()));
    assert_eq!(contend_for(&machine, lock, &[(0, 0), (1, 20)]), [0, 1]);
    // The allocator touches nothing: each hold costs one block's 3.96 ns. CPU 0 holds the lock from
    // 10 to 114.96; CPU 1 waits until 114.96 + 5 + 50, fetches two lines, and ends at 169.96 + 100
    // + 104.96.
    let stats = machine.stats();
    assert_eq!(stats.elapsed_ns, 374);
    let lock = only_lock(&machine);
    assert_eq!((lock.name, lock.acquired, lock.contended), (name, 2, 1));
    assert_eq!((lock.waited, lock.held, lock.longest_held), (149_960, 309_920, 204_960));
    assert_eq!((lock.holds.total(), lock.waits.total()), (2, 1));
    assert_eq!((lock.waits.quantile(990), lock.holds.quantile(500)), (144, 104));
    assert_eq!((stats.total().zone_wait, stats.total().busy()), (149_960, 114_960 + 374_920));
    assert_eq!(stats.zone_lock_share(), 306_115);
}

#[test]
fn a_failed_try_lock_continues() {
    let machine = two_sockets(Options::default());
    let lock = Lock::new(Vec::new());
    machine
        .run(|s| {
            let lock = &lock;
            s.spawn(CpuId(0), |task| {
                let _held = lock.lock();
                task.think(100);
            });
            s.spawn(CpuId(1), |task| {
                task.think(50);
                assert!(lock.try_lock().is_none());
                // The attempt, and the cache line.
                assert_eq!(task.now(), 50 + 10 + 50);
                task.think(1000);
                assert!(lock.try_lock().is_some());
            });
        })
        .unwrap();
    let lock = only_lock(&machine);
    assert_eq!((lock.acquired, lock.contended, lock.refused), (2, 0, 1));
}

#[test]
fn a_stalled_holder_blocks_waiters() {
    let stalls = Some(Stalls { of: 1, in_all: 1, ns: 5000 });
    let machine = two_sockets(Options { stalls, ..Options::default() });
    contend(&machine, &[(0, 0), (1, 20)]);
    let lock = only_lock(&machine);
    assert_eq!(lock.longest_held, (5000 + 101) * 1000);
    assert_eq!(machine.stats().total().stall, 10_000_000);
    assert_eq!(machine.stats().elapsed_ns, 5111 + 55 + 5000 + 101);
}

#[test]
fn a_deadlock_error_names_the_waiters() {
    let machine = two_sockets(Options::default());
    let (a, b) = (Lock::new(Vec::new()), Lock::new(Vec::new()));
    let stuck = machine
        .run(|s| {
            let both = [(0, &a, &b), (1, &b, &a)];
            for (cpu, first, second) in both {
                s.spawn(CpuId(cpu), move |task| {
                    let _first = first.lock();
                    task.think(1000);
                    let _second = second.lock();
                });
            }
        })
        .unwrap_err();
    let text = stuck.to_string();
    assert!(text.contains("task 0 on CPU 0 waits for lock Other(1), which task 1 holds"), "{text}");
    assert!(text.contains("task 1 on CPU 1 waits for lock Other(0), which task 0 holds"), "{text}");
}

#[test]
#[should_panic(expected = "belongs to another machine")]
fn locks_of_another_machine_are_rejected() {
    let lock = Lock::new(Vec::new());
    for _ in 0..2 {
        let lock = &lock;
        let machine = two_sockets(Options::default());
        machine.run(|s| s.spawn(CpuId(0), move |_| drop(lock.lock()))).unwrap();
    }
}

#[test]
#[should_panic(expected = "held before the run")]
fn a_lock_held_outside_a_run_is_not_granted() {
    let machine = two_sockets(Options::default());
    let lock = Lock::new(Vec::new());
    machine.run(|s| s.spawn(CpuId(0), |_| drop(lock.lock()))).unwrap();
    let _held = lock.lock();
    let _ = machine.run(|s| s.spawn(CpuId(0), |_| drop(lock.lock())));
}

/// A lock of the tasks' own is outside the allocator: its waits are no zone lock's, and holding it
/// is the tasks' work.
#[test]
fn a_lock_of_the_tasks_is_no_part_of_the_allocator() {
    let machine = two_sockets(Options::default());
    let lock = machine.lock(7);
    machine
        .run(|s| {
            for cpu in [0, 1] {
                let lock = &lock;
                s.spawn(CpuId(cpu), move |task| task.hold(lock, 100));
            }
        })
        .unwrap();
    let stats = machine.stats();
    let found = only_lock(&machine);
    assert_eq!((found.name, found.acquired, found.contended), (LockName::Task(7), 2, 1));
    // Both request it at 0. One holds it from 10 to 111, the other from 111 + 5 + 50 on.
    assert_eq!(stats.elapsed_ns, 166 + 101);
    let total = stats.total();
    assert_eq!((total.other_wait, total.zone_wait, total.alloc), (166_000, 0, 0));
    assert_eq!(stats.task_lock_wait(), Some(166_000));
    assert_eq!(stats.task_lock_share(), Some(439_153));
    machine.reset_stats();
    assert_eq!(machine.stats().task_lock_share(), None);
}
