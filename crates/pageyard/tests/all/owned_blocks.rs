//! Policy `OwnedBlocks`: a CPU claims whole pageblocks, and their pages return to its lists.

use crate::common;

use std::cell::Cell;

use common::by_thread::{ByThread, CPU};
use common::check::{Owned, check, free_in_pageblocks};
use common::interpose::{Interposed, at_each_point};
use common::view::{normal, view};
use common::{Chosen, LINUX612, Machine, Reused, Y, frames, o};
use pageyard::policy::{
    BulkFree, ChunkedDrain, Guarded, NoHighOrder, OwnedBlocks, PageChecked, Rules, StaticPolicy,
    TwoPassBulkFree, TypeChecked, Vanilla,
};
use pageyard::tuning::Limits;
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, MigrateType, Observer, Order, Pfn, Platform, Reclaim,
    Yard, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 1 << 15;
const OWNED: Chosen = &<TypeChecked<OwnedBlocks>>::RULES;
/// Free memory is movable at first, so these requests find whole blocks of their type.
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

/// A machine whose two CPUs may each keep 2,048 pages.
fn machine() -> Machine {
    Machine::normal(PAGES).cpus(&[0, 0])
}

fn cached(y: &Y<'_>, cpu: u32) -> i32 {
    y.pageset(ZONE, CpuId(cpu)).unwrap().count
}

fn pages(y: &Y<'_>, n: usize) -> Vec<Pfn> {
    (0..n).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect()
}

fn block_of(pfn: Pfn) -> u64 {
    pfn.0 >> 9
}

fn valid<R: lock_api::RawMutex, E: pageyard::Hooks>(y: &Yard<'_, Hooked<R, E, Chosen>>) {
    y.validate().unwrap_or_else(|e| panic!("{e}"));
}

/// Everything is free again after a drain.
fn nothing_lost<R: lock_api::RawMutex, E: pageyard::Hooks>(y: &Yard<'_, Hooked<R, E, Chosen>>) {
    y.drain_all(None);
    valid(y);
    let info = y.zone_info(ZONE).unwrap();
    assert_eq!((info.free_exact, info.cached), (info.managed, 0));
}

#[test]
fn page_freed_by_another_cpu_returns_to_its_owner() {
    let frees: [fn(&Y<'_>, &[Pfn]); 3] = [
        |y, all| all.iter().for_each(|&p| y.free(p, o(0)).unwrap()),
        |y, all| all.iter().for_each(|&p| y.free_rest(p, o(0)).unwrap()),
        |y, all| y.free_batch_of(o(0), all).unwrap(),
    ];
    for free in frees {
        let counts = |rules| {
            machine().run_under(rules, |y| {
                let all = pages(y, 100);
                let (owner, other) = (cached(y, 0), cached(y, 1));
                y.hooks().on(1);
                free(y, &all);
                valid(y);
                let gained = (cached(y, 0) - owner, cached(y, 1) - other);
                y.hooks().on(0);
                let again = pages(y, 100);
                assert_eq!(y.zone_stats(ZONE).unwrap().type_check_failures, 0);
                let last_first = again.iter().eq(all.iter().rev());
                free(y, &again);
                nothing_lost(y);
                (gained, last_first)
            })
        };
        assert_eq!(counts(OWNED), ((100, 0), true));
        assert_eq!(counts(LINUX612), ((0, 100), false));
    }
}

#[test]
fn frees_of_another_cpu_are_counted_once() {
    machine().run_under(OWNED, |y| {
        let all = pages(y, 50);
        y.hooks().on(1);
        all.iter().for_each(|&p| y.free(p, o(0)).unwrap());
        let frees = |cpu| y.cpu_stats(ZONE, CpuId(cpu)).unwrap().frees.blocks();
        assert_eq!((frees(0), frees(1)), (50, 0), "counted where the list is");
    });
}

#[test]
fn batch_over_pages_of_two_owners_goes_to_both() {
    machine().run_under(OWNED, |y| {
        let mut all = pages(y, 30);
        y.hooks().on(1);
        all.extend(pages(y, 30));
        let before = [0, 1].map(|c| cached(y, c));
        // Owners alternate.
        let mixed: Vec<Pfn> = (0..30).flat_map(|i| [all[i], all[30 + i]]).collect();
        y.free_batch_of(o(0), &mixed).unwrap();
        assert_eq!([0, 1].map(|c| cached(y, c)), before.map(|n| n + 30));
        nothing_lost(y);
    });
}

/// Drains CPU 0, whose pages were freed in an order that leaves no neighbours together. Returns the
/// orders of the blocks that went to the zone.
fn drained(rules: Chosen) -> Vec<u8> {
    machine().run_under(rules, |y| {
        // One hold of the zone lock drains 2,016 pages.
        assert!(y.set_pcp_limits(ZONE, Limits { batch: 63, high_min: 600, high_max: 3000 }));
        let all = pages(y, 512);
        y.hooks().on(1);
        (0..512).for_each(|i| y.free(all[i * 37 % 512], o(0)).unwrap());
        y.hooks().watch();
        y.drain_all(None);
        let events = y.hooks().events();
        let orders = events.iter().filter_map(|&e| match e {
            Event::Drain { order, .. } => Some(order.get()),
            _ => None,
        });
        let orders: Vec<u8> = orders.collect();
        let pages: i64 = events
            .iter()
            .map(|&e| if let Event::BulkFree { pages, .. } = e { pages.into() } else { 0 })
            .sum();
        assert_eq!(pages, orders.iter().map(|&o| 1 << o).sum::<i64>(), "counted in pages");
        nothing_lost(y);
        orders
    })
}

#[test]
fn drain_returns_own_pages_as_a_whole_block() {
    for rules in [
        OWNED,
        &<OwnedBlocks<TwoPassBulkFree>>::RULES,
        &<OwnedBlocks<NoHighOrder>>::RULES,
        &<OwnedBlocks<Vanilla>>::RULES,
    ] {
        assert_eq!(drained(rules), [9], "{:?}", rules.bulk_free);
    }
    assert!(drained(LINUX612).len() >= 512, "block by block");
}

#[test]
fn drain_merges_no_more_pages_than_it_was_to_take() {
    for rules in [OWNED, &<OwnedBlocks<TwoPassBulkFree>>::RULES] {
        machine().run_under(rules, |y| {
            let all = pages(y, 512);
            all[1..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
            let limits = Limits { batch: 16, high_min: 100, high_max: 100 };
            assert!(y.set_pcp_limits(ZONE, limits));
            y.hooks().watch();
            y.free(all[0], o(0)).unwrap();
            let drained = y.hooks().events().into_iter().find_map(|e| match e {
                Event::BulkFree { pages, .. } => Some(pages),
                _ => None,
            });
            assert_eq!(drained, Some(84), "`high` less a batch");
            nothing_lost(y);
        });
    }
}

#[test]
fn merge_stops_at_an_allocated_buddy() {
    for rules in [OWNED, &<OwnedBlocks<TwoPassBulkFree>>::RULES] {
        machine().run_under(rules, |y| {
            let all = pages(y, 512);
            let (kept, freed) = (all[100], [&all[..100], &all[101..]].concat());
            freed.iter().for_each(|&p| y.free(p, o(0)).unwrap());
            y.drain_all(None);
            valid(y);
            let v = normal(y);
            assert_eq!(v.allocated.keys().copied().collect::<Vec<_>>(), [kept.0]);
            // The parts beside the kept page, one of each order.
            let first = kept.0 & !511;
            let mut beside: Vec<u8> = v
                .all_free()
                .filter(|f| f.0 >= first && f.0 < first + 512)
                .map(|(_, order, _)| order)
                .collect();
            beside.sort_unstable();
            assert_eq!(beside, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
            y.free(kept, o(0)).unwrap();
            nothing_lost(y);
        });
    }
}

/// Refills since `watch`, and the orders that the zone gave.
fn refills(y: &Y<'_>) -> (usize, Vec<u8>) {
    let events = y.hooks().events();
    let refills = events.iter().filter(|e| matches!(e, Event::Refill { .. })).count();
    let taken = events.iter().filter_map(|&e| match e {
        Event::ZoneLocked { order, .. } => Some(order.get()),
        _ => None,
    });
    (refills, taken.collect())
}

#[test]
fn refill_claims_a_whole_block_and_splits_it_without_the_zone() {
    machine().run_under(OWNED, |y| {
        y.hooks().watch();
        let single = y.alloc(o(0), MOVABLE).unwrap();
        assert_eq!(refills(y), (1, vec![9]));
        assert_eq!(cached(y, 0), 511);
        let holds = y.zone_stats(ZONE).unwrap().lock_holds;
        let large = y.alloc(o(3), MOVABLE).unwrap();
        let middle = y.alloc(o(1), MOVABLE).unwrap();
        let singles = pages(y, 400);
        assert_eq!(y.zone_stats(ZONE).unwrap().lock_holds, holds, "no refill");
        for p in singles.iter().chain([&large, &middle]) {
            assert_eq!(block_of(*p), block_of(single));
        }
        valid(y);
    });
}

#[test]
fn refill_prefers_own_fragments_to_whole_blocks() {
    machine().run_under(OWNED, |y| {
        let mine = pages(y, 10);
        y.hooks().on(1);
        let theirs = pages(y, 10);
        assert_ne!(block_of(mine[0]), block_of(theirs[0]));
        // The fragments of CPU 1 are drained last, so they are the first ones on the free lists.
        y.drain_cpu(CpuId(0), None);
        y.drain_cpu(CpuId(1), None);
        valid(y);
        y.hooks().on(0).watch();
        let p = y.alloc(o(0), MOVABLE).unwrap();
        assert_eq!(block_of(p), block_of(mine[0]));
        assert!(refills(y).1.iter().all(|&order| order < 9), "no whole block");
        // Those that another CPU freed to the zone are found too.
        y.free_direct(p, o(0)).unwrap();
        y.drain_cpu(CpuId(0), None);
        y.hooks().on(1);
        y.free_direct(mine[0], o(0)).unwrap();
        y.hooks().on(0);
        let got = pages(y, 503);
        assert!(got.iter().all(|&p| block_of(p) == block_of(mine[0])));
        valid(y);
    });
}

#[test]
fn recovered_fragments_merge_again() {
    machine().run_under(OWNED, |y| {
        let all = pages(y, 300);
        y.drain_cpu(CpuId(0), None);
        let more = pages(y, 100);
        all.iter().chain(&more).for_each(|&p| y.free(p, o(0)).unwrap());
        y.hooks().watch();
        y.drain_cpu(CpuId(0), None);
        let blocks = y.hooks().events().iter().filter(|e| matches!(e, Event::Drain { .. })).count();
        assert!(blocks < 20, "{blocks}");
        nothing_lost(y);
    });
}

#[test]
fn refill_without_room_for_a_block_takes_parts_of_blocks() {
    machine().run_under(OWNED, |y| {
        let limits = Limits { batch: 8, high_min: 64, high_max: 64 };
        assert!(y.set_pcp_limits(ZONE, limits));
        y.hooks().watch();
        let first = y.alloc(o(0), MOVABLE).unwrap();
        assert!(cached(y, 0) < 64, "no whole block");
        // The rest of the block comes before another whole block.
        let parts = pages(y, 200);
        assert!(parts.iter().all(|&p| block_of(p) == block_of(first)));
        assert!(!y.hooks().events().iter().any(|e| matches!(e, Event::Fallback { .. })));
        // The block has no owner: another CPU keeps what it frees.
        y.hooks().on(1);
        let before = cached(y, 1);
        y.free(first, o(0)).unwrap();
        assert_eq!(cached(y, 1), before + 1);
        valid(y);
    });
}

#[test]
fn refill_without_memory_of_its_type_claims_and_steals_as_before() {
    let answers = |rules| {
        Machine::normal(4096).cpus(&[0]).run_under(rules, |y| {
            let all: Vec<Pfn> =
                std::iter::from_fn(|| y.alloc(o(0), MOVABLE | Gfp::MEMALLOC).ok()).collect();
            y.drain_all(None);
            all.iter().step_by(40).for_each(|&p| y.free_direct(p, o(0)).unwrap());
            y.hooks().watch();
            let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
            let stolen = std::iter::from_fn(|| y.alloc(o(0), gfp).ok()).count();
            let fell =
                y.hooks().events().iter().filter(|e| matches!(e, Event::Fallback { .. })).count();
            valid(y);
            (all.len(), stolen, fell)
        })
    };
    let (all, stolen, fell) = answers(OWNED);
    assert_eq!((all, stolen), (4096, 4096usize.div_ceil(40)));
    assert!(fell > 0);
    assert_eq!(answers(LINUX612), (all, stolen, fell));
}

#[test]
fn no_block_is_claimed_while_memory_is_short() {
    machine().run_under(OWNED, |y| {
        assert!(y.set_reclaim_active(ZONE, true));
        y.hooks().watch();
        y.alloc(o(0), MOVABLE).unwrap();
        assert!(cached(y, 0) < 512);
        assert!(y.set_reclaim_active(ZONE, false));
        y.drain_all(None);
        y.alloc(o(0), MOVABLE).unwrap();
        assert_eq!(cached(y, 0), 511);
    });
}

#[test]
fn part_taken_by_another_cpu_returns_to_the_owner() {
    machine().run_under(OWNED, |y| {
        let kept = pages(y, 10);
        y.drain_cpu(CpuId(0), None);
        // CPU 1 has no room for a whole block, so it takes parts of CPU 0's.
        let limits = Limits { batch: 8, high_min: 64, high_max: 64 };
        assert!(y.set_pcp_limits(ZONE, limits));
        y.hooks().on(1);
        let theirs = pages(y, 8);
        assert!(theirs.iter().all(|&p| block_of(p) == block_of(kept[0])));
        valid(y);
        let before = (cached(y, 0), cached(y, 1));
        y.free(theirs[0], o(0)).unwrap();
        assert_eq!((cached(y, 0), cached(y, 1)), (before.0 + 1, before.1));
        theirs[1..].iter().chain(&kept).for_each(|&p| y.free(p, o(0)).unwrap());
        valid(y);
        nothing_lost(y);
    });
}

/// Frees, on CPU 1, a page of a block of CPU 0 after `end`. Returns whether it went to CPU 0.
fn still_owned(end: impl Fn(&Y<'_>, u64)) -> bool {
    machine().run_under(OWNED, |y| {
        let all = pages(y, 20);
        all.iter().for_each(|&p| y.set_movable(p, o(0), true).unwrap());
        end(y, all[0].0 & !511);
        valid(y);
        y.hooks().on(1);
        let before = (cached(y, 0), cached(y, 1));
        y.free(all[0], o(0)).unwrap();
        let owned = cached(y, 0) > before.0;
        valid(y);
        y.hooks().on(1);
        all[1..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
        nothing_lost(y);
        owned
    })
}

#[test]
fn ownership_ends_with_isolation_claims_and_cpus_but_not_with_drains() {
    let range = |block: u64| frames(block..block + 512);
    assert!(still_owned(|_, _| {}));
    assert!(still_owned(|y, _| y.drain_all(None)));
    assert!(still_owned(|y, _| {
        y.tick(CpuId(0));
    }));
    assert!(!still_owned(|y, block| {
        y.isolate(range(block), MigrateType::Movable).unwrap();
        y.drain_all(None);
        valid(y);
        y.unisolate(range(block), MigrateType::Movable).unwrap();
    }));
    assert!(!still_owned(|y, _| {
        y.hooks().on(1);
        assert!(y.cpu_dead(CpuId(0)));
        valid(y);
        assert!(y.cpu_up(CpuId(0)));
    }));
}

#[test]
fn ownership_ends_when_a_request_claims_the_block() {
    Machine::normal(1024).cpus(&[0, 0]).knobs(|k| k.huge_pages = false).run_under(OWNED, |y| {
        let limits = |high| Limits { batch: 8, high_min: high, high_max: high };
        assert!(y.set_pcp_limits(ZONE, limits(600)));
        let mine = y.alloc(o(0), MOVABLE | Gfp::MEMALLOC).unwrap();
        if y.block_type(mine) != Some(MigrateType::Movable) {
            return; // too small for grouping
        }
        y.drain_all(None);
        assert!(y.set_pcp_limits(ZONE, limits(64)));
        y.hooks().on(1);
        while y.block_type(mine) == Some(MigrateType::Movable) {
            y.alloc(o(4), Gfp::KERNEL | Gfp::MEMALLOC).unwrap();
        }
        valid(y);
        let before = cached(y, 1);
        y.free(mine, o(0)).unwrap();
        assert_eq!(cached(y, 1), before + 1);
        valid(y);
    });
}

#[test]
fn blocks_made_cma_or_reserved_have_no_owner() {
    machine().run_under(OWNED, |y| {
        let mine = y.alloc(o(0), MOVABLE).unwrap();
        let other = y.alloc(o(0), Gfp::KERNEL).unwrap();
        let block = mine.0 & !511;
        y.free(mine, o(0)).unwrap();
        y.drain_all(None);
        y.make_cma(frames(block..block + 512)).unwrap();
        valid(y);
        // High-order atomic requests reserve the block that served them.
        y.drain_cpu(CpuId(0), None);
        let urgent = Gfp::ATOMIC;
        let reserved: Vec<Pfn> = (0..200).filter_map(|_| y.alloc(o(4), urgent).ok()).collect();
        valid(y);
        reserved.iter().for_each(|&p| y.free(p, o(4)).unwrap());
        y.free(other, o(0)).unwrap();
        y.drain_all(None);
        valid(y);
    });
}

#[test]
fn every_page_can_be_allocated() {
    machine().run_under(OWNED, |y| {
        let gfp = [Gfp::KERNEL | Gfp::MEMALLOC, MOVABLE | Gfp::MEMALLOC];
        let mut n = 0;
        let mut all = Vec::new();
        loop {
            y.hooks().on(n as u32 % 2);
            match y.alloc(o(0), gfp[n / 1000 % 2]) {
                Ok(p) => all.push(p),
                Err(_) => {
                    let before = y.zone_info(ZONE).unwrap().cached;
                    y.drain_all(None);
                    if before == 0 {
                        break;
                    }
                }
            }
            n += 1;
        }
        assert_eq!(all.len() as u64, y.zone_info(ZONE).unwrap().managed);
        valid(y);
        for (i, p) in all.into_iter().enumerate() {
            y.hooks().on(i as u32 / 100 % 2);
            y.free(p, o(0)).unwrap();
        }
        nothing_lost(y);
    });
}

/// A small random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

const CPUS: u32 = 4;

/// Random operations of four CPUs, with the blocks that callers own recorded outside the yard.
fn random_run(rules: Chosen, seed: u64, steps: usize) {
    let m = Machine::normal(16 * 1024).reserved(700..705).cpus(&[0; CPUS as usize]);
    m.run_under(rules, |y| {
        let before = free_in_pageblocks(&view(y, ZONE));
        let mut r = Random(seed);
        let mut owned = Owned::new();
        let mut down = None;
        let mut isolated = None;
        for step in 0..steps {
            let cpu = r.below(CPUS as usize) as u32;
            if down == Some(cpu) {
                continue;
            }
            y.hooks().on(cpu);
            match r.below(40) {
                0..12 => {
                    let order = [0, 0, 0, 0, 0, 1, 2, 3, 4, 9][r.below(10)];
                    let gfp = [Gfp::KERNEL, MOVABLE, MOVABLE | Gfp::RECLAIMABLE, Gfp::ATOMIC];
                    let gfp = gfp[r.below(4)];
                    for _ in 0..1 + (r.below(300) >> order) {
                        let Ok(p) = y.alloc(o(order), gfp) else { break };
                        let movable = gfp.contains(Gfp::MOVABLE);
                        y.set_movable(p, o(order), movable).unwrap();
                        assert!(owned.insert(p, o(order)).is_none(), "{p} has two owners");
                    }
                }
                12..28 => {
                    let start = Pfn(r.below(16 * 1024) as u64);
                    let some: Vec<(Pfn, Order)> =
                        owned.range(start..).take(r.below(300)).map(|(&p, &o)| (p, o)).collect();
                    for (p, _) in &some {
                        owned.remove(p);
                    }
                    if r.below(3) == 0 {
                        y.free_batch(&some).unwrap();
                    } else {
                        some.iter().for_each(|&(p, o)| y.free(p, o).unwrap());
                    }
                }
                28..30 => {
                    y.tick(CpuId(cpu));
                }
                30 => y.drain_cpu(CpuId(r.below(CPUS as usize) as u32), None),
                31 => y.drain_all(None),
                32 => {
                    y.set_reclaim_active(ZONE, r.below(2) == 0);
                }
                33 => {
                    let other = (cpu + 1) % CPUS;
                    if down.take().is_some_and(|c| y.cpu_up(CpuId(c))) {
                        continue;
                    }
                    assert!(y.cpu_dead(CpuId(other)));
                    assert_eq!(cached(y, other), 0);
                    down = Some(other);
                }
                34..36 => {
                    if let Some(range) = isolated.take() {
                        y.unisolate(range, MigrateType::Movable).unwrap();
                        continue;
                    }
                    let block = (2 + r.below(28) as u64) << 9;
                    let range = frames(block..block + 1024);
                    if y.isolate(range.clone(), MigrateType::Movable).is_ok() {
                        y.drain_all(None);
                        let v = normal(y);
                        let inside = |p: u64| (block..block + 1024).contains(&p);
                        assert!(v.all_cached().all(|(p, _, _)| !inside(p)), "drained");
                        isolated = Some(range);
                    }
                }
                36 => {
                    let guard = y.disable_pcp(ZONE).unwrap();
                    let some: Vec<_> = owned.iter().take(50).map(|(&p, &o)| (p, o)).collect();
                    for (p, o) in some {
                        owned.remove(&p);
                        y.free(p, o).unwrap();
                    }
                    assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
                    drop(guard);
                }
                37 => {
                    let high = [64, 600, 3000][r.below(3)];
                    let limits = Limits { batch: 31, high_min: 64, high_max: high };
                    assert!(y.set_pcp_limits(ZONE, limits));
                }
                38 => {
                    let all = frames(0..16 * 1024);
                    if let Ok(p) = y.alloc_contig_pages(700, 1, all, MigrateType::Movable, MOVABLE)
                    {
                        y.free_contig(frames(p.0..p.0 + 700)).unwrap();
                    }
                }
                _ => {
                    y.unreserve_highatomic(MigrateType::Movable, true);
                }
            }
            if step % 16 == 0 {
                valid(y);
                let in_use: Owned =
                    normal(y).allocated.iter().map(|(&p, &(n, _))| (Pfn(p), o(n))).collect();
                assert_eq!(in_use, owned);
            }
        }
        if let Some(range) = isolated {
            y.unisolate(range, MigrateType::Movable).unwrap();
        }
        down.into_iter().for_each(|c| assert!(y.cpu_up(CpuId(c))));
        for (i, (p, o)) in owned.into_iter().enumerate() {
            y.hooks().on(i as u32 / 7 % CPUS);
            y.free(p, o).unwrap();
        }
        y.drain_all(None);
        check(y, &m, &Owned::new());
        assert_eq!(free_in_pageblocks(&view(y, ZONE)), before, "all memory is free and merged");
        assert_eq!(y.zone_stats(ZONE).unwrap().type_check_failures, 0);
    });
}

#[test]
fn no_page_is_lost_under_random_operations() {
    for seed in 0..12 {
        random_run(OWNED, seed, 500);
    }
}

#[test]
fn no_page_is_lost_under_compositions() {
    let all: [Chosen; 6] = [
        &<OwnedBlocks<TwoPassBulkFree>>::RULES,
        &<OwnedBlocks<NoHighOrder>>::RULES,
        &<OwnedBlocks<ChunkedDrain>>::RULES,
        &<OwnedBlocks<PageChecked>>::RULES,
        &<OwnedBlocks<Guarded<2>>>::RULES,
        const { &Rules { bulk_free: BulkFree::BlockByBlock, ..*OWNED } },
    ];
    for (seed, rules) in (20..).zip(all) {
        random_run(rules, seed, 500);
        random_run(rules, seed + 100, 500);
    }
}

/// Hooks that free a page on CPU 1 where CPU 0's lists are locked.
#[derive(Default)]
struct Nested {
    page: Cell<Option<Pfn>>,
    yard: Cell<Option<&'static NestedYard>>,
    went: Cell<u32>,
}

type NestedYard = Yard<'static, Hooked<Interposed, Nested, Chosen>>;

impl Platform for Nested {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}
impl Reclaim for Nested {}
impl Defences for Nested {}
impl Observer for Nested {
    fn event(&self, _: CpuId, event: Event) {
        if let (Event::BulkFree { .. }, Some(y)) = (event, self.yard.get())
            && let Some(page) = self.page.take()
        {
            CPU.set(1);
            y.free(page, o(0)).unwrap();
            CPU.set(0);
            self.went.set(self.went.get() + 1);
        }
    }
}

#[test]
fn free_that_finds_the_owners_lists_locked_goes_to_the_zone() {
    CPU.set(0);
    // This lock panics where it would wait.
    let m = Reused::under(OWNED, machine());
    let y: &'static NestedYard = Box::leak(Box::new(m.next(Nested::default())));
    let all: Vec<Pfn> = (0..100).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
    y.hooks().page.set(Some(all[0]));
    y.hooks().yard.set(Some(y));
    y.drain_cpu(CpuId(0), None);
    assert_eq!(y.hooks().went.get(), 1);
    assert_eq!(y.zone_stats(ZONE).unwrap().bypasses, 1);
    assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
    assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES - 99);
    all[1..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
    nothing_lost(y);
}

type Yielding = Yard<'static, Hooked<Interposed, ByThread, Chosen>>;

/// Runs `first` and `other` on CPU 0's memory, in all interleavings with one switch. Each gets 40
/// pages of its own.
fn interleaved(first: fn(&Yielding, &[Pfn]), other: fn(&Yielding, &[Pfn]), check: fn(&Yielding)) {
    let m = Reused::under(OWNED, machine());
    let points = at_each_point(
        || {
            CPU.set(0);
            let y: Yielding = m.next(ByThread);
            let pages: Vec<Pfn> = (0..120).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
            pages.iter().for_each(|&p| y.set_movable(p, o(0), true).unwrap());
            (y, pages)
        },
        move |(y, pages)| first(y, &pages[..40]),
        move |(y, pages)| {
            let cpu = CPU.get();
            other(y, &pages[40..80]);
            CPU.set(cpu);
        },
        move |(y, pages)| {
            check(y);
            valid(y);
            CPU.set(1);
            y.unisolate(block_range(pages[0]), MigrateType::Movable).unwrap();
            pages[80..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
            y.drain_all(None);
            valid(y);
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES);
            CPU.set(0);
        },
    );
    assert!(points > 1, "{points}");
}

fn block_range(p: Pfn) -> std::ops::Range<Pfn> {
    frames(p.0 & !511..(p.0 | 511) + 1)
}

fn free_on_1(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    pages[..10].iter().for_each(|&p| y.free(p, o(0)).unwrap());
    pages[10..20].iter().for_each(|&p| y.free_rest(p, o(0)).unwrap());
    y.free_batch_of(o(0), &pages[20..]).unwrap();
}

fn drain_owner(y: &Yielding, pages: &[Pfn]) {
    CPU.set(0);
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
    y.drain_cpu(CpuId(0), None);
}

fn isolate(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    y.isolate(block_range(pages[0]), MigrateType::Movable).unwrap();
    y.drain_all(None);
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
}

fn cpu_down(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    assert!(y.cpu_dead(CpuId(0)));
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
}

/// No page of the isolated block is on a per-CPU list.
fn none_cached(y: &Yielding) {
    let v = normal(y);
    let isolated = |p: u64| v.label(p) == MigrateType::Isolate;
    assert!(v.all_cached().all(|(p, _, _)| !isolated(p)));
}

#[test]
fn free_that_overflows_the_owners_lists_drains_them() {
    // This lock panics where a thread takes it twice.
    let y: Yielding = Reused::under(OWNED, machine()).next(ByThread);
    CPU.set(0);
    let all: Vec<Pfn> = (0..512).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
    assert!(y.set_pcp_limits(ZONE, Limits { batch: 16, high_min: 100, high_max: 100 }));
    CPU.set(1);
    all.iter().for_each(|&p| y.free(p, o(0)).unwrap());
    assert!(y.pageset(ZONE, CpuId(0)).unwrap().count < 120);
    assert_eq!(y.pageset(ZONE, CpuId(1)).unwrap().count, 0);
    nothing_lost(&y);
    CPU.set(0);
}

#[test]
fn remote_free_may_run_between_any_steps_of_the_owners_drain() {
    interleaved(drain_owner, free_on_1, |_| {});
    interleaved(free_on_1, drain_owner, |_| {});
}

#[test]
fn remote_free_may_run_between_any_steps_of_an_isolation() {
    interleaved(isolate, free_on_1, none_cached);
    interleaved(free_on_1, isolate, none_cached);
    interleaved(drain_owner, isolate, none_cached);
}

#[test]
fn remote_free_may_run_between_any_steps_of_the_owner_going_offline() {
    let empty = |y: &Yielding| {
        assert_eq!(y.pageset(ZONE, CpuId(0)).unwrap().count, 0);
        assert_eq!(normal(y).cpus[0].diff, 0, "no free is accounted to a CPU that is offline");
    };
    interleaved(cpu_down, free_on_1, empty);
    interleaved(free_on_1, cpu_down, empty);
}
