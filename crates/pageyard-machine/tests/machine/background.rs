//! The kernel's threads on the machine.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pageyard::{CpuId, Gfp, NodeId, Order};

use crate::common::{P, small, with_yard};

#[test]
fn s5_14_ticks_decay_high_after_a_burst() {
    let machine = small("desktop");
    with_yard::<P, (), _>(&machine, (), |yard| {
        let zone = yard.zone_ids().next().unwrap();
        let high = || yard.pageset(zone, CpuId(2)).unwrap();
        machine
            .run(|s| {
                s.spawn(CpuId(2), |task| {
                    let mut pages = Vec::new();
                    for _ in 0..3000 {
                        pages.push(yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
                    }
                    for pfn in pages {
                        yard.free(pfn, Order::ZERO).unwrap();
                    }
                    let t = high();
                    assert!(t.high > t.limits.high_min, "{t:?}");
                    task.sleep(60_000_000_000);
                    let t = high();
                    assert_eq!(t.high, t.limits.high_min);
                });
                s.spawn_ticks(yard);
            })
            .unwrap();
        let ticks = yard.cpu_stats(zone, CpuId(2)).unwrap().ticks;
        assert!((59..=61).contains(&ticks), "{ticks}");
    });
}

#[test]
fn s10_ticks_follow_the_knob() {
    let machine = small("desktop");
    with_yard::<P, (), _>(&machine, (), |yard| {
        yard.set_knob("stat_interval", "10").unwrap();
        let run = machine.run(|s| {
            s.spawn(CpuId(2), |task| task.sleep(100_000_000_000));
            s.spawn_ticks(yard);
        });
        run.unwrap();
        let zone = yard.zone_ids().next().unwrap();
        let ticks = yard.cpu_stats(zone, CpuId(2)).unwrap().ticks;
        assert!((9..=11).contains(&ticks), "{ticks}");
    });
}

#[test]
fn s7_1_background_reclaim_wakes_and_keeps_requests_succeeding() {
    let run = |with_kswapd: bool| {
        let machine = small("desktop");
        with_yard::<P, (), _>(&machine, (), |yard| {
            // Page cache, oldest first.
            let cache = RefCell::new(VecDeque::new());
            let (failed, reclaimed) = (Cell::new(0), Cell::new(0));
            machine
                .run(|s| {
                    let (cache, failed, reclaimed) = (&cache, &failed, &reclaimed);
                    s.spawn(CpuId(0), move |task| {
                        for _ in 0..30_000 {
                            // Slow enough for kswapd to nap for 100 ms between two rounds.
                            task.think(100_000);
                            task.sync();
                            match yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE) {
                                Ok(pfn) => cache.borrow_mut().push_back(pfn),
                                Err(_) => failed.set(failed.get() + 1),
                            }
                        }
                    });
                    if with_kswapd {
                        s.spawn_kswapd(yard, NodeId(0), CpuId(1), move |task, job| {
                            let mut freed = 0;
                            while freed < job.pages.max(32) {
                                task.think(500);
                                task.sync();
                                let Some(pfn) = cache.borrow_mut().pop_front() else { break };
                                yard.free(pfn, Order::ZERO).unwrap();
                                freed += 1;
                            }
                            reclaimed.set(reclaimed.get() + freed);
                            freed
                        });
                        s.spawn_kcompactd(yard, NodeId(0), CpuId(2));
                    }
                })
                .unwrap();
            (failed.get(), reclaimed.get())
        })
    };
    // 64 MiB are 16,384 pages.
    let (failed, reclaimed) = run(true);
    assert_eq!(failed, 0);
    assert!((13_616..20_000).contains(&reclaimed), "{reclaimed}");
    assert!(run(false).0 > 13_000);
}
