//! Policy `OwnedBlocks`: a CPU claims whole pageblocks, and their pages return to its lists.

use crate::common;

use common::view::{list_order, normal};
use common::{Chosen, LINUX612, Machine, Y, frames, o};
use pageyard::policy::{
    NoHighOrder, OwnedBlocks, StaticPolicy, TwoPassBulkFree, TypeChecked, Vanilla,
};
use pageyard::tuning::Limits;
use pageyard::{CpuId, Event, Gfp, Hooked, MigrateType, Pfn, Yard, ZoneKind};

pub(crate) const ZONE: ZoneKind = ZoneKind::Normal;
pub(crate) const PAGES: u64 = 1 << 15;
pub(crate) const OWNED: Chosen = &<TypeChecked<OwnedBlocks>>::RULES;
/// Free memory is movable at first, so these requests find whole blocks of their type.
pub(crate) const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

/// A machine whose two CPUs may each keep 2,048 pages.
pub(crate) fn machine() -> Machine {
    Machine::normal(PAGES).cpus(&[0, 0])
}

pub(crate) fn cached(y: &Y<'_>, cpu: u32) -> i32 {
    y.pageset(ZONE, CpuId(cpu)).unwrap().count
}

fn pages(y: &Y<'_>, n: usize) -> Vec<Pfn> {
    (0..n).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect()
}

fn block_of(pfn: Pfn) -> u64 {
    pfn.0 >> 9
}

pub(crate) fn valid<R: lock_api::RawMutex, E: pageyard::Hooks>(y: &Yard<'_, Hooked<R, E, Chosen>>) {
    y.validate().unwrap_or_else(|e| panic!("{e}"));
}

/// Everything is free again after a drain.
pub(crate) fn nothing_lost<R: lock_api::RawMutex, E: pageyard::Hooks>(
    y: &Yard<'_, Hooked<R, E, Chosen>>,
) {
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

/// A refill of huge pages keeps them whole, without an owner.
#[test]
fn huge_pages_have_no_owner() {
    machine().knobs(|knobs| knobs.huge_pages = true).run_under(OWNED, |y| {
        let huge = y.alloc(o(9), MOVABLE).unwrap();
        let v = normal(y);
        assert!(v.all_cached().all(|(_, _, list)| list_order(list) == 9) && cached(y, 0) > 0);
        y.free(huge, o(9)).unwrap();
        nothing_lost(y);
    });
}
