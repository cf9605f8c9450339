//! Compaction in every form while other threads allocate and free: no frame has two owners, and
//! every page keeps its contents (spec §7.4–7.8, §9.9).

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::owners::*;
use common::{Chosen, Machine, o};
use pageyard::policy::{Linux612, Packed, StaticPolicy, TypeChecked, Vanilla};
use pageyard::{CpuId, Gfp, NodeId, Pfn, Priority, Relocation, ZoneKind};

const PAGES: u64 = 24_576;
const STEPS: usize = 60_000;

fn work(y: &Y<'_>, cpu: u32) {
    CPU.set(cpu);
    let mut random = Random(cpu.into());
    for step in 0..STEPS {
        match random.below(10) {
            0..6 => {
                let order = [0, 0, 0, 0, 1, 2, 3, 4, 9][random.below(9)];
                let (gfp, movable) = match random.below(8) {
                    0 => (Gfp::KERNEL, false),
                    1 => (Gfp::KERNEL | Gfp::RECLAIMABLE, false),
                    _ => (Gfp::HIGHUSER_MOVABLE, true),
                };
                take(y, order, gfp, movable);
            }
            _ => {
                put_near(y, Pfn(random.below(PAGES as usize) as u64));
            }
        }
        if step % 1000 == 0 {
            y.drain_cpu(CpuId(cpu), None);
        }
    }
}

fn run(rules: Chosen) {
    let m = Machine::normal(PAGES).cpus(&[0; 5]);
    let answer: Answer = |pfn, _| match pfn.0 % 17 {
        0 => Relocation::Refused,
        1 => Relocation::Busy,
        _ => Relocation::Moved,
    };
    m.run_with(Owners::answering(answer), rules, |y: &Y<'_>| {
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            let workers: Vec<_> = (0..2).map(|cpu| s.spawn(move || work(y, cpu))).collect();
            let done = &done;
            s.spawn(move || {
                CPU.set(2);
                while !done.load(Relaxed) {
                    y.compact_zone(ZoneKind::Normal, None, Priority::SyncFull);
                    thread::yield_now();
                }
            });
            s.spawn(move || {
                CPU.set(3);
                let mut random = Random(3);
                while !done.load(Relaxed) {
                    let order = [1, 4, 9, 10][random.below(4)];
                    let how = [Priority::Async, Priority::SyncLight, Priority::SyncFull];
                    let gfp = [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL][random.below(2)];
                    let got = y.compact_for(o(order), gfp, how[random.below(3)]).unwrap();
                    if let Some(pfn) = got.captured {
                        y.free(pfn, o(order)).unwrap();
                    }
                    y.request_compaction(NodeId(0), o(order), ZoneKind::Normal);
                    y.hooks().clock.fetch_add(100_000_000, Relaxed);
                    y.compact_background(NodeId(0));
                    y.forget_skip_hints(NodeId(0));
                    thread::yield_now();
                }
            });
            workers.into_iter().for_each(|w| w.join().unwrap());
            done.store(true, Relaxed);
        });
        assert!(y.compact_stats().moved > 0);
        y.drain_all(None);
        all_is_well(y, &m);
        while put_near(y, Pfn(0)) {}
        y.drain_all(None);
        all_is_well(y, &m);
        assert_eq!(huge_free(y), PAGES / 512);
        assert_eq!(y.zone_stats(ZoneKind::Normal).unwrap().type_check_failures, 0);
    });
}

#[test]
fn contents_survive_under_linux612() {
    run(&<TypeChecked<Linux612>>::RULES);
}

#[test]
fn contents_survive_under_vanilla() {
    run(&<Vanilla>::RULES);
}

#[test]
fn contents_survive_on_the_packed_engine() {
    run(&Packed::RULES);
}
