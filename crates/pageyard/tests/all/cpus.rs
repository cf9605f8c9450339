//! CPUs that go online and offline (spec §8.5, §5.4, §9.3).

use crate::common;

use common::by_thread::{CPU, by_thread};
use common::{LINUX612, Machine, Y, check::check, o};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    AllocError, BatchError, CpuId, FreeError, Gfp, Hooked, Pfn, Record, ZoneKind, stat_threshold,
};

const NORMAL: ZoneKind = ZoneKind::Normal;

fn high_min(y: &Y<'_>, zone: impl Into<pageyard::ZoneId>, cpu: u32) -> i32 {
    y.pageset(zone, CpuId(cpu)).unwrap().limits.high_min
}

/// §8.5, §5.16: the zone gets back the pages on a dead CPU's lists and its part of the counter.
#[test]
fn s8_5_an_offline_cpu_is_drained() {
    let machine = Machine::normal(65536).cpus(&[0, 0]);
    machine.run(|y: &Y<'_>| {
        y.hooks().on(1);
        let kept = y.alloc(o(0), Gfp::KERNEL).unwrap();
        let freed = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.free(freed, o(0)).unwrap();
        assert!(y.zone_info(NORMAL).unwrap().cached > 0);

        y.hooks().on(0);
        assert!(y.cpu_dead(CpuId(1)));
        assert!(!y.cpu_dead(CpuId(1)), "it is dead already");
        assert!(!y.is_up(CpuId(1)) && y.cpus_up() == 1);
        assert_eq!(y.zone_info(NORMAL).unwrap().cached, 0);
        let dead = common::view::view(y, NORMAL);
        assert_eq!(dead.cpus[1].diff, 0, "§9.2: folded");
        check(y, &machine, &[(kept, o(0))].into());
        y.free(kept, o(0)).unwrap();
        assert_eq!(
            y.zone_info(NORMAL).unwrap().free_exact + y.zone_info(NORMAL).unwrap().cached,
            65536
        );
    });
}

/// §8.5: no operation runs on a CPU that is down, not even on the fast path.
#[test]
fn s8_5_an_offline_cpu_is_rejected() {
    Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.cpu_dead(CpuId(1));
        y.hooks().on(1);
        let unknown = FreeError::UnknownCpu(CpuId(1));
        assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::UnknownCpu(CpuId(1))));
        assert_eq!(y.free(pfn, o(0)), Err(unknown));
        assert_eq!(y.free_direct(pfn, o(0)), Err(unknown));
        assert_eq!(y.free_batch(&[(pfn, o(0))]), Err(BatchError { index: 0, error: unknown }));
        // A change of limits must not open its lists again.
        y.set_percpu_pagelist_high_fraction(8).unwrap();
        assert_eq!(y.free(pfn, o(0)), Err(unknown));

        assert!(y.cpu_up(CpuId(1)));
        assert!(!y.cpu_up(CpuId(1)), "it is up already");
        assert_eq!(y.free(pfn, o(0)), Ok(()));
        assert_eq!(y.alloc(o(0), Gfp::KERNEL), Ok(pfn), "the page it has just freed");
        assert!(!y.cpu_up(CpuId(2)) && !y.cpu_dead(CpuId(2)), "the layout does not name it");
    });
}

/// §8.5, §5.4: limits are divided among the CPUs that are up. While a CPU comes up, it counts once
/// more, in the zones of other nodes too.
#[test]
fn s8_5_limits_follow_the_cpus() {
    let machine = Machine::new()
        .zone_on(0, NORMAL, 0..1 << 20)
        .zone_on(1, NORMAL, 1 << 20..2 << 20)
        .cpus(&[0, 0, 1, 1]);
    let node1 = pageyard::ZoneId { node: pageyard::NodeId(1), kind: NORMAL };
    machine.run(|y: &Y<'_>| {
        let low = y.zone_info(NORMAL).unwrap().watermarks[1] as i32;
        let low1 = y.zone_info(node1).unwrap().watermarks[1] as i32;
        assert_eq!((high_min(y, NORMAL, 0), high_min(y, node1, 0)), (low / 2, low1 / 2));
        y.cpu_dead(CpuId(1));
        assert_eq!((high_min(y, NORMAL, 0), high_min(y, node1, 0)), (low, low1 / 2));
        assert_eq!(
            y.pageset(NORMAL, CpuId(1)).unwrap().limits.high_max,
            0,
            "its lists keep nothing"
        );
        y.cpu_up(CpuId(1));
        assert_eq!((high_min(y, NORMAL, 1), high_min(y, node1, 1)), (low / 2, low1 / 3));
        // Every zone counts its CPUs exactly again.
        y.cpu_dead(CpuId(1));
        assert_eq!((high_min(y, NORMAL, 0), high_min(y, node1, 0)), (low, low1 / 2));
        // A node without CPUs: all CPUs that are up share its limit.
        y.cpu_dead(CpuId(0));
        assert_eq!(high_min(y, NORMAL, 2), low / 2);
        // The node's first CPU gets the whole limit.
        y.cpu_up(CpuId(0));
        assert_eq!(high_min(y, NORMAL, 0), low);
    });
}

/// §9.3: the thresholds depend on the number of CPUs that are up on all nodes.
#[test]
fn s9_3_thresholds_follow_the_cpus() {
    let machine = Machine::normal(1 << 20).cpus(&[0; 8]);
    machine.run(|y: &Y<'_>| {
        let now = || common::view::view(y, NORMAL).cpus[0].threshold;
        assert_eq!(now(), stat_threshold(8, 1 << 20));
        (4..8).for_each(|c| assert!(y.cpu_dead(CpuId(c))));
        assert_eq!(now(), stat_threshold(4, 1 << 20));
        assert_ne!(now(), stat_threshold(8, 1 << 20));
        (4..8).for_each(|c| assert!(y.cpu_up(CpuId(c))));
        assert_eq!(now(), stat_threshold(8, 1 << 20));
    });
}

/// §9.3: a lower threshold leaves the CPUs' parts of the free counter as they are, so a part may be above
/// it. A snapshot taken then is restored.
#[test]
fn s9_3_a_snapshot_after_the_threshold_fell_is_restored() {
    let machine = Machine::normal(1 << 20).cpus(&[0; 256]);
    // Blocks that leave a part of more than the lower threshold: 8 of 16 pages each, or one refill of 64.
    for (rules, blocks, order) in [(LINUX612, 8, 4), (&<Packed>::RULES, 1, 0)] {
        machine.run_under(rules, |y| {
            let held: Vec<Pfn> =
                (0..blocks).map(|_| y.alloc(o(order), Gfp::KERNEL).unwrap()).collect();
            (100..256).for_each(|c| assert!(y.cpu_dead(CpuId(c))));
            let state = common::all_records(y);
            let part = state[0].1.iter().find_map(|record| match record {
                Record::Cpu(c) if c.cpu == CpuId(0) => Some((c.diff.unsigned_abs(), c.threshold)),
                _ => None,
            });
            let (part, threshold) = part.unwrap();
            assert!(part > threshold, "{part} {threshold}: nothing is tested");
            // No threshold is above 125, so no part is.
            let mut records = state[0].1.clone();
            for record in &mut records {
                if let Record::Cpu(c) = record {
                    c.diff = 126;
                }
            }
            machine.blank_under(rules, |again| {
                let refused = again.restore(NORMAL, records).unwrap_err();
                assert_eq!(refused.what, "the CPU's part exceeds any threshold");
            });
            machine.restored(rules, &state, |again| {
                let free = |y: &pageyard::Yard<'_, _>| {
                    let info = y.zone_info(NORMAL).unwrap();
                    info.free_exact + info.cached
                };
                assert_eq!(free(again), free(y));
                held.iter().for_each(|&pfn| again.free(pfn, o(order)).unwrap());
                again.drain_all(None);
                again.validate().unwrap();
                let info = again.zone_info(NORMAL).unwrap();
                assert_eq!((info.free_exact, info.cached), (info.managed, 0));
            });
        });
    }
}

/// §8.5 under load: CPUs go online and offline while others allocate and free; no page is lost.
#[test]
fn s8_5_under_load() {
    let machine = Machine::normal(32768).cpus(&[0; 4]);
    machine.run_on_under(
        by_thread(),
        LINUX612,
        |y: &pageyard::Yard<'_, Hooked<common::Lock, _, _>>| {
            std::thread::scope(|s| {
                for cpu in 0..2 {
                    s.spawn(move || {
                        CPU.set(cpu);
                        for i in 0..4000u32 {
                            let order = o((i % 4) as u8);
                            let a = y.alloc(order, Gfp::KERNEL).unwrap();
                            y.free(a, order).unwrap();
                        }
                    });
                }
                s.spawn(|| {
                    CPU.set(2);
                    for _ in 0..300 {
                        assert!(y.cpu_dead(CpuId(3)));
                        assert!(y.cpu_up(CpuId(3)));
                        // Use the CPU for a while.
                        CPU.set(3);
                        let a: Vec<Pfn> =
                            (0..8).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
                        a.iter().for_each(|&p| y.free(p, o(0)).unwrap());
                        CPU.set(2);
                    }
                });
            });
            check(y, &machine, &Default::default());
        },
    );
}
