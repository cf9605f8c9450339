//! The same seed gives the same bytes.

use std::cell::RefCell;

use pageyard::{CpuId, Gfp};
use pageyard_machine::{LockKind, Options, Pipe, Stalls};

use crate::common::{Owners, P, machine, with_yard};

/// A bit of every operation. Returns everything observable as text.
fn run(name: &str, seed: u64, options: Options) -> String {
    let machine = machine(name, Options { seed, memory: Some(256 << 20), ..options });
    let out = RefCell::new(String::new());
    with_yard::<P, (), _>(&machine, (), |yard| {
        let owners = Owners::default();
        let pipes: Vec<_> = (0..4).map(|_| Pipe::new(5)).collect();
        let cpus = yard.cpus().min(24);
        machine
            .run(|s| {
                let (owners, pipes, out) = (&owners, &pipes, &out);
                for cpu in 0..cpus {
                    s.spawn(CpuId(cpu), move |task| {
                        let pipe = &pipes[cpu as usize % 4];
                        for n in 0..60 {
                            task.think(task.random_exponential(700));
                            let order = [0, 0, 0, 1, 3, 2][task.random(6) as usize];
                            let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE][task.random(2) as usize];
                            let Some(pfn) = owners.alloc(yard, order, gfp) else { continue };
                            task.touch_bytes(pfn, 4096);
                            if pipe.send(task, (pfn, order)).is_err() {
                                owners.free(yard, pfn, order);
                            }
                            if let Some((pfn, order)) = pipe.receive(task) {
                                task.touch_bytes(pfn, 4096);
                                let line = format!("{cpu} {n} {} {pfn} {order}\n", task.now());
                                out.borrow_mut().push_str(&line);
                                owners.free(yard, pfn, order);
                            }
                            if task.random(20) == 0 {
                                task.migrate(CpuId(task.random(cpus.into()) as u32));
                            }
                        }
                    });
                }
                s.spawn_ticks(yard);
            })
            .unwrap();
        assert!(owners.is_empty());
    });
    let stats = machine.stats();
    out.into_inner() + &format!("{stats}{stats:?}")
}

#[test]
fn only_the_same_seed_gives_the_same_bytes() {
    let stalls = Some(Stalls { of: 1, in_all: 100, ns: 20_000 });
    for options in [
        Options::default(),
        Options { lock: LockKind::TestAndSet, stalls, ..Options::default() },
        Options { look_ahead_ns: 0, ..Options::default() },
    ] {
        for name in ["desktop", "2x20"] {
            let first = run(name, 1, options.clone());
            assert!(first == run(name, 1, options.clone()), "{name} {options:?}");
            assert!(first != run(name, 2, options.clone()), "{name} {options:?}");
        }
    }
}

/// The order of tasks and their random draws, which depend on no cost and no allocator, are the
/// same on every host.
#[test]
fn results_do_not_depend_on_the_host() {
    let hash = |text: &str| {
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    };
    let order = {
        let machine = machine("2x20", Options { seed: 7, ..Options::default() });
        let log = RefCell::new(String::new());
        machine
            .run(|s| {
                for cpu in 0..80 {
                    let log = &log;
                    s.spawn(CpuId(cpu), move |task| {
                        for _ in 0..10 {
                            let ns = task.random_exponential(1000);
                            task.think(ns);
                            task.sync();
                            log.borrow_mut().push_str(&format!("{cpu} {ns} {}\n", task.now()));
                        }
                    });
                }
            })
            .unwrap();
        log.into_inner()
    };
    assert_eq!(hash(&order), 0x8a80_6aeb_74f9_5c62, "{:#x}", hash(&order));
}
