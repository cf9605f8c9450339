//! Interleavings: planted bugs are found and reproduced; the allocator has none of them.

use std::cell::{Cell, RefCell};

use lock_api::Mutex;
use pageyard::{CpuId, Defences, Gfp, Observer, Order, Pfn, Platform, Reclaim, ZoneKind};
use pageyard_machine::explore::{Explored, Explorer};
use pageyard_machine::{Machine, MachineSpec, SimLock, Stuck};

use crate::common::{Owners, P, check_all_free, free_blocks, with_yard};

fn desktop() -> MachineSpec {
    MachineSpec::shipped("desktop").unwrap()
}

/// Reads under the lock and writes under the lock, but releases it in between.
fn lost_update(machine: &Machine) -> Result<(), Stuck> {
    let counter = Mutex::<SimLock, u32>::new(0);
    let counter = &counter;
    machine.run(|s| {
        for cpu in 0..2 {
            s.spawn(CpuId(cpu), move |_| {
                let seen = *counter.lock();
                *counter.lock() = seen + 1;
            });
        }
    })?;
    assert_eq!(*counter.lock(), 2, "an update was lost");
    Ok(())
}

/// Fails only if the first task stalls inside the lock while the second one gives up.
fn impatient(machine: &Machine) -> Result<(), Stuck> {
    let lock = Mutex::<SimLock, ()>::new(());
    let (lock, served) = (&lock, Cell::new(false));
    let served = &served;
    machine.run(|s| {
        s.spawn(CpuId(0), move |task| {
            let _held = lock.lock();
            (0..5).for_each(|_| task.sync());
        });
        s.spawn(CpuId(1), move |_| {
            served.set((0..12).any(|_| lock.try_lock().is_some()));
        });
    })?;
    assert!(served.get(), "gave up");
    Ok(())
}

fn crossed(machine: &Machine) -> Result<(), Stuck> {
    let (a, b) = (Mutex::<SimLock, ()>::new(()), Mutex::<SimLock, ()>::new(()));
    let (a, b) = (&a, &b);
    machine.run(|s| {
        s.spawn(CpuId(0), move |_| drop((a.lock(), b.lock())));
        s.spawn(CpuId(1), move |_| drop((b.lock(), a.lock())));
    })
}

#[test]
fn planted_bugs_are_found_and_reproducible() {
    type Bug = (fn(&Machine) -> Result<(), Stuck>, &'static str);
    let bugs: [Bug; 3] =
        [(lost_update, "an update was lost"), (impatient, "gave up"), (crossed, "deadlock")];
    for (bug, why) in bugs {
        for how in [Explorer::random(1, 2000), Explorer::exhaustive(2, 20_000)] {
            let found = how.run(&desktop(), bug).expect_err(why);
            assert!(found.why.contains(why), "{found}");
            let again = Explorer::replay(&found.schedule).run(&desktop(), bug).expect_err(why);
            assert_eq!((&again.why, &again.schedule), (&found.why, &found.schedule));
            if let Some(seed) = found.seed {
                let again = Explorer::random(seed, 1).run(&desktop(), bug).expect_err(why);
                assert_eq!(again, found);
            }
        }
    }
}

#[test]
fn an_endless_schedule_is_detected() {
    let spin = |machine: &Machine| {
        machine.run(|s| {
            s.spawn(CpuId(0), |task| {
                loop {
                    task.sync();
                }
            });
        })
    };
    let found = Explorer::random(1, 1).run(&desktop(), spin).unwrap_err();
    assert!(found.why.contains("does not end"), "{found}");
}

#[test]
fn correct_code_is_explored_completely() {
    let right = |machine: &Machine| {
        let counter = Mutex::<SimLock, u32>::new(0);
        let counter = &counter;
        machine.run(|s| {
            for cpu in 0..3 {
                s.spawn(CpuId(cpu), move |_| *counter.lock() += 1);
            }
        })?;
        assert_eq!(*counter.lock(), 3);
        Ok(())
    };
    let explored = Explorer::exhaustive(3, 100_000).run(&desktop(), right).unwrap();
    assert!(explored.complete && explored.schedules > 100, "{explored:?}");
    let few = Explorer::exhaustive(3, 10).run(&desktop(), right).unwrap();
    assert!(!few.complete && few.schedules == 10);
    // Without preemptions, only the order of the three tasks varies.
    let explored = Explorer::exhaustive(0, 100_000).run(&desktop(), right).unwrap();
    assert_eq!(explored.schedules, 6);
}

/// Three CPUs, one zone: requests, frees by other CPUs, a drain.
fn requests(machine: &Machine) -> Result<(), Stuck> {
    with_yard::<P, (), _>(machine, (), |yard| {
        let start = free_blocks(yard);
        let owners = Owners::default();
        let passed = RefCell::new(Vec::<(Pfn, u8)>::new());
        machine.run(|s| {
            let (owners, passed) = (&owners, &passed);
            for cpu in 0..3 {
                s.spawn(CpuId(cpu), move |_| {
                    for order in [0, 1, 4] {
                        let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC][cpu as usize];
                        let pfn = owners.alloc(yard, order, gfp).unwrap();
                        passed.borrow_mut().push((pfn, order));
                        let (pfn, order) = passed.borrow_mut().remove(0);
                        owners.free(yard, pfn, order);
                    }
                    if cpu == 2 {
                        yard.drain_all(Some(ZoneKind::Normal.into()));
                        yard.tick(CpuId(2));
                    }
                });
            }
        })?;
        for (pfn, order) in passed.take() {
            owners.free(yard, pfn, order);
        }
        assert!(owners.is_empty());
        check_all_free(yard, &start);
        Ok(())
    })
}

/// Makes requests fail where the schedule says so.
struct Failing<'m>(&'m Machine);

impl Platform for Failing<'_> {}
impl Reclaim for Failing<'_> {}
impl Observer for Failing<'_> {}

impl Defences for Failing<'_> {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        self.0.choose(2) == 1
    }
}

#[test]
fn hook_failures_are_explored() {
    let pair = |machine: &Machine, gives_back: bool| {
        with_yard::<P, _, _>(machine, Failing(machine), |yard| {
            let start = free_blocks(yard);
            machine.run(|s| {
                s.spawn(CpuId(0), move |_| {
                    let Ok(first) = yard.alloc(Order::ZERO, Gfp::KERNEL) else { return };
                    let Ok(second) = yard.alloc(Order::ZERO, Gfp::KERNEL) else {
                        if gives_back {
                            yard.free(first, Order::ZERO).unwrap();
                        }
                        return;
                    };
                    yard.free(first, Order::ZERO).unwrap();
                    yard.free(second, Order::ZERO).unwrap();
                });
            })?;
            check_all_free(yard, &start);
            Ok(())
        })
    };
    let all = Explorer::exhaustive(0, 100);
    let found = all.run(&desktop(), |m| pair(m, false)).unwrap_err();
    assert!(found.schedule.ends_with(",1"), "only the second one fails: {found}");
    let explored = all.run(&desktop(), |m| pair(m, true)).unwrap();
    assert_eq!(explored, Explored { schedules: 3, complete: true });
}

/// `PAGEYARD_SCHEDULES=100000 cargo test -p pageyard-machine --test machine explore` explores more.
#[test]
fn the_allocator_under_random_schedules_with_stalls() {
    let asked = std::env::var("PAGEYARD_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let explored = Explorer::random(0x5eed, asked.unwrap_or(100))
        .run(&desktop(), requests)
        .unwrap_or_else(|found| panic!("{found}"));
    println!("requests: {} schedules", explored.schedules);
}

#[test]
fn the_allocator_under_all_schedules_with_one_preemption() {
    let two = |machine: &Machine| {
        with_yard::<P, (), _>(machine, (), |yard| {
            let start = free_blocks(yard);
            machine.run(|s| {
                for cpu in 0..2 {
                    s.spawn(CpuId(cpu), move |_| {
                        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                        yard.free(pfn, Order::ZERO).unwrap();
                        yard.drain_all(None);
                    });
                }
            })?;
            check_all_free(yard, &start);
            Ok(())
        })
    };
    let explored = Explorer::exhaustive(1, 5000)
        .run(&desktop(), two)
        .unwrap_or_else(|found| panic!("{found}"));
    println!("two CPUs, all with one preemption: {} schedules", explored.schedules);
    assert!(explored.complete && explored.schedules > 20, "{explored:?}");
}
