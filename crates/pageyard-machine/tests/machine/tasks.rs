//! Interactions of tasks: sharing a CPU, sleeping, waiting, passing data.

use std::cell::{Cell, RefCell};

use pageyard::CpuId;
use pageyard_machine::{Machine, Options, Pipe, Stop, WaitQueue};

use crate::common::{machine, round_costs};

fn desktop() -> Machine {
    machine(
        "desktop",
        Options { memory: Some(64 << 20), costs: round_costs(), ..Options::default() },
    )
}

#[test]
fn tasks_of_a_cpu_take_turns_by_time_slices() {
    let machine = desktop();
    let log = RefCell::new(Vec::new());
    machine
        .run(|s| {
            for n in 0..2 {
                let log = &log;
                s.spawn(CpuId(0), move |task| {
                    // A slice is 100 us: two and a half of them.
                    task.think(250_000);
                    log.borrow_mut().push((n, task.now()));
                });
            }
        })
        .unwrap();
    // 0, 1, 0, 1, then 0's last half slice from 400 us on, and 1's; each switch costs 1 us.
    assert_eq!(*log.borrow(), [(0, 450_000 + 4000), (1, 500_000 + 5000)]);
    let cpu = machine.stats().cpus[0];
    assert_eq!((cpu.think, cpu.switch), (500_000_000, 5_000_000));
}

#[test]
fn a_sleeping_task_releases_its_cpu_and_wakes_in_time() {
    let machine = desktop();
    machine
        .run(|s| {
            s.spawn(CpuId(0), |task| {
                task.sleep(10_000);
                // The CPU was idle: waking up costs 2 us.
                assert_eq!(task.now(), 12_000);
                task.sleep_until(5);
                task.sleep_until(12_000);
                assert_eq!(task.now(), 12_000, "that time has passed: the task keeps its CPU");
            });
            s.spawn(CpuId(1), |task| {
                task.think(3000);
            });
        })
        .unwrap();
    let stats = machine.stats();
    assert_eq!(stats.elapsed_ns, 12_000);
    assert_eq!((stats.cpus[0].idle, stats.cpus[0].switch), (10_000_000, 2_000_000));
    assert_eq!((stats.cpus[1].idle, stats.cpus[1].think), (9_000_000, 3_000_000));
}

#[test]
fn a_waiting_task_sleeps_until_woken() {
    let machine = desktop();
    let (queue, ready) = (WaitQueue::new(), Cell::new(false));
    machine
        .run(|s| {
            s.spawn(CpuId(0), |task| {
                task.sync();
                while !ready.get() {
                    queue.wait(task);
                }
                assert_eq!(task.now(), 7000 + 2000);
            });
            s.spawn(CpuId(1), |task| {
                task.think(7000);
                task.sync();
                ready.set(true);
                assert!(queue.wake_one(task));
                assert!(!queue.wake_one(task));
            });
        })
        .unwrap();
    assert_eq!(machine.stats().total().other_wait, 0, "no task spins");
}

#[test]
fn a_pipe_keeps_the_order_and_its_bound() {
    let machine = desktop();
    let pipe = Pipe::new(3);
    let got = RefCell::new(Vec::new());
    machine
        .run(|s| {
            s.spawn(CpuId(0), |task| {
                for n in 0..20 {
                    pipe.send(task, n).unwrap();
                    assert!(pipe.len() <= 3);
                    task.think(100);
                }
                pipe.close(task);
                assert_eq!(pipe.send(task, 99), Err(99));
            });
            s.spawn(CpuId(1), |task| {
                while let Some(n) = pipe.receive(task) {
                    got.borrow_mut().push(n);
                    task.think(1000);
                }
            });
        })
        .unwrap();
    assert!(got.borrow().iter().copied().eq(0..20));
    assert!(pipe.is_empty());
}

#[test]
fn a_task_can_migrate_and_spawn_tasks() {
    let machine = desktop();
    let cpus = RefCell::new(Vec::new());
    machine
        .run(|s| {
            let cpus = &cpus;
            s.spawn(CpuId(0), move |task| {
                task.think(5000);
                task.migrate(CpuId(2));
                cpus.borrow_mut().push((task.cpu(), task.now()));
                task.spawn(CpuId(3), move |task| {
                    cpus.borrow_mut().push((task.cpu(), task.now()));
                });
            });
        })
        .unwrap();
    // Each moves to an idle CPU: 2 us.
    assert_eq!(*cpus.borrow(), [(CpuId(2), 7000), (CpuId(3), 9000)]);
}

#[test]
fn a_daemon_runs_concurrently_and_does_not_delay_the_end() {
    let machine = desktop();
    let ticks = Cell::new(0);
    machine
        .run(|s| {
            s.spawn_daemon(CpuId(0), |task| {
                loop {
                    task.sleep(50_000);
                    ticks.set(ticks.get() + 1);
                }
            });
            s.spawn(CpuId(0), |task| {
                for _ in 0..600 {
                    task.think(1000);
                    task.sync();
                }
            });
        })
        .unwrap();
    // Long before the slice of 100 us ends. Each tick costs the other task two switches of 1 us, so
    // the 600 us end at 625, and ticks are 52 us apart.
    assert_eq!(ticks.get(), 12);
}

#[test]
fn a_woken_daemon_runs_before_the_tasks_of_its_cpu() {
    let machine = desktop();
    let (alarm, woken) = (WaitQueue::new(), Cell::new(0));
    machine
        .run(|s| {
            s.spawn_daemon(CpuId(0), |task| {
                alarm.wait(task);
                woken.set(task.now());
            });
            for _ in 0..3 {
                s.spawn(CpuId(0), |task| {
                    for _ in 0..200 {
                        task.think(1000);
                        task.sync();
                    }
                });
            }
            s.spawn(CpuId(1), |task| {
                task.think(20_000);
                task.sync();
                alarm.wake_one(task);
            });
        })
        .unwrap();
    // Two switches, or one and the rest of a microsecond of work; not after the slices of two tasks.
    assert!((20_000..25_000).contains(&woken.get()), "{}", woken.get());
}

#[test]
fn runs_are_consecutive_and_counted_separately() {
    let machine = desktop();
    let once = || machine.run(|s| s.spawn(CpuId(1), |task| task.think(1000))).unwrap();
    once();
    once();
    // An idle CPU wakes up for the second run.
    assert_eq!(machine.stats().elapsed_ns, 1000 + 3000);
    machine.reset_stats();
    assert_eq!(machine.stats().elapsed_ns, 0);
    once();
    assert_eq!((machine.stats().elapsed_ns, machine.now()), (3000, 7000));
}

#[test]
#[should_panic(expected = "what the task says")]
fn a_panic_of_a_task_propagates_and_unwinds_the_others() {
    struct Told<'c>(&'c Cell<bool>);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let machine = desktop();
    let told = Cell::new(false);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        machine.run(|s| {
            s.spawn(CpuId(0), |task| {
                let _told = Told(&told);
                task.sleep(1_000_000);
            });
            s.spawn(CpuId(1), |_| panic!("what the task says"));
        })
    }));
    assert!(told.get());
    std::panic::resume_unwind(result.unwrap_err());
}

/// Counts its drops.
struct Counted<'c>(&'c Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_stopped_run_ends_early_and_unwinds_every_task() {
    let stop = Stop::default();
    let machine = machine(
        "desktop",
        Options { memory: Some(64 << 20), stop: stop.clone(), ..Options::default() },
    );
    let (dropped, reached) = (Cell::new(0), Cell::new(0));
    let queue = WaitQueue::new();
    let error = machine
        .run(|s| {
            let (dropped, reached, queue, stop) = (&dropped, &reached, &queue, &stop);
            s.spawn(CpuId(0), move |task| {
                let _counted = Counted(dropped);
                queue.wait(task);
                reached.set(reached.get() + 1);
            });
            s.spawn(CpuId(1), move |task| {
                let _counted = Counted(dropped);
                task.sleep(1_000_000);
                stop.request();
                // No other task is due: this one gives up by itself.
                task.check_stop();
                reached.set(reached.get() + 1);
            });
            s.spawn(CpuId(2), move |task| {
                let _counted = Counted(dropped);
                loop {
                    task.sleep(1000);
                }
            });
        })
        .unwrap_err();
    assert!(error.is_stop());
    assert_eq!(error.to_string(), "stopped on request");
    assert_eq!((dropped.get(), reached.get()), (3, 0));
}
