//! Spec §5.2, §5.5, §5.7–5.9: what a CPU's lists keep, how much a refill takes, and when lists
//! drain.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, o};
use pageyard::MigrateType::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use pageyard::policy::{Base, NoHighOrder, StaticPolicy};
use pageyard::{CpuId, Event, Gfp, MigrateType, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);

/// The list for a block of this order that is freed in a pageblock of this type.
fn list_of(order: u8, t: MigrateType) -> Option<usize> {
    let s =
        State::new(4096).limits(1, 2000, 2000).label(2, t).label(3, t).block(1024, order, false);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(1024), o(order)).unwrap();
        let v = normal(y);
        let found = v.all_cached().next();
        found.map(|(_, cpu, list)| {
            assert_eq!(cpu, 0);
            list
        })
    })
}

#[test]
fn s5_2_every_order_and_type_has_its_list() {
    for order in 0..4u8 {
        for t in [Unmovable, Movable, Reclaimable] {
            assert_eq!(list_of(order, t), Some(3 * order as usize + t as usize));
        }
        assert_eq!(list_of(order, HighAtomic), Some(3 * order as usize + 1), "MOVABLE's list");
        assert_eq!(list_of(order, Isolate), None, "isolated pages bypass the lists");
    }
    assert_eq!(list_of(9, Movable), Some(13));
    assert_eq!(list_of(9, Unmovable), Some(12));
    assert_eq!(list_of(9, Reclaimable), Some(12));
    for order in [4, 5, 6, 7, 8, 10] {
        assert_eq!(list_of(order, Movable), None, "order {order}");
    }
}

#[test]
fn s5_17_without_high_order_lists_only_single_pages_are_cached() {
    let s = State::new(4096).limits(1, 2000, 2000).block(512, 1, false).block(514, 0, false);
    s.run_under(&<NoHighOrder>::RULES, |y| {
        y.free(Pfn(512), o(1)).unwrap();
        y.free(Pfn(514), o(0)).unwrap();
        assert_eq!(normal(y).all_cached().collect::<Vec<_>>(), [(514, 0, 1)]);
    });
}

/// The sizes of the refills caused by requests of an order.
fn refills(s: &State, order: u8, requests: usize) -> Vec<(u32, u32)> {
    s.run(|y: &Y<'_>| {
        y.hooks().watch();
        for _ in 0..requests {
            y.alloc(o(order), Gfp::HIGHUSER_MOVABLE).unwrap();
        }
        let sizes = y.hooks().events();
        sizes
            .into_iter()
            .filter_map(|e| match e {
                Event::Refill { wanted, blocks, .. } => Some((wanted, blocks)),
                _ => None,
            })
            .collect()
    })
}

fn plenty() -> State {
    let mut s = State::new(16384);
    for p in (0..16384).step_by(1024) {
        s = s.free(p, 10);
    }
    s
}

#[test]
fn s5_8_c_4_refills_double_up_to_the_scale() {
    let got = refills(&plenty().limits(63, 3848, 48281), 0, 63 + 126 + 252 + 504 + 1008 + 2016 + 1);
    assert_eq!(got.iter().map(|r| r.0).collect::<Vec<_>>(), [63, 126, 252, 504, 1008, 2016, 2016]);
    assert!(got.iter().all(|(wanted, blocks)| wanted == blocks));
}

#[test]
fn s5_8_c_4_refills_with_a_fixed_high_stop_short_of_it() {
    let got = refills(&plenty().limits(63, 361, 361), 0, 63 + 126 + 252 + 298 + 1);
    assert_eq!(got.iter().map(|r| r.0).collect::<Vec<_>>(), [63, 126, 252, 298, 298]);
}

#[test]
fn s5_8_c_4_refills_of_higher_orders_are_a_batch_of_pages() {
    for (order, want) in [(1, 31), (2, 15), (3, 7), (9, 2)] {
        assert_eq!(refills(&plenty().limits(63, 3848, 48281), order, 1), [(want, want)]);
    }
}

#[test]
fn s5_5_disabled_lists_refill_one_and_cache_nothing() {
    assert_eq!(refills(&plenty(), 0, 3), [(1, 1); 3]);
    plenty().run(|y: &Y<'_>| {
        let p = y.alloc(o(3), Gfp::HIGHUSER_MOVABLE).unwrap();
        y.free(p, o(3)).unwrap();
        assert_eq!(y.pageset(ZONE, CPU).unwrap().count, 0);
        assert_eq!(normal(y).free(10, Movable).len(), 16, "merged again");
    });
}

#[test]
fn s5_7_a_refill_is_allocated_in_ascending_order() {
    // Ten pages are requested, six are free.
    let s = State::new(1024).free(8, 2).free(20, 1).limits(10, 1000, 1000);
    s.run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(0), Gfp::HIGHUSER_MOVABLE), Ok(Pfn(20)), "the smallest block first");
        assert_eq!(normal(y).cached(0, 1), [21, 8, 9, 10, 11]);
        let stats = y.cpu_stats(ZONE, CPU).unwrap();
        assert_eq!((stats.refills, stats.refilled_pages), (1, 6));
    });
}

#[test]
fn s5_9_frees_push_at_the_head_and_requests_pop_there() {
    let s = State::new(1024).limits(4, 1000, 1000).used(0..3, false);
    s.run(|y: &Y<'_>| {
        for p in 0..3 {
            y.free(Pfn(p), o(0)).unwrap();
        }
        assert_eq!(normal(y).cached(0, 1), [2, 1, 0]);
        y.hooks().watch();
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::MEMALLOC;
        assert_eq!(y.alloc(o(0), gfp), Ok(Pfn(2)));
        assert_eq!(y.cpu_stats(ZONE, CPU).unwrap().hits(), 1);
    });
}

#[test]
fn s5_9_the_second_high_order_free_in_a_row_drains_everything() {
    let with = |flags: u8, count: u64| {
        let cached: Vec<u64> = (0..count).collect();
        State::new(4096)
            .limits(8, 1000, 1000)
            .cached(0, 1, &cached)
            .cpu(0, |c| (c.tuning.flags, c.tuning.free_count) = (flags, 8))
            .block(512, 1, false)
            .block(514, 1, false)
            .block(516, 0, false)
            .block(518, 1, false)
    };
    let free = |y: &Y<'_>, pfn, order| {
        y.free(Pfn(pfn), o(order)).unwrap();
        y.pageset(ZONE, CPU).unwrap().count
    };
    with(0, 100).run(|y: &Y<'_>| {
        assert_eq!(free(y, 512, 1), 102, "the first only sets the flag");
        assert_eq!(free(y, 514, 1), 0);
        assert_eq!(y.cpu_stats(ZONE, CPU).unwrap().drains, [0, 1, 0, 0, 0]);
    });
    with(0, 100).run(|y: &Y<'_>| {
        free(y, 512, 1);
        assert_eq!(free(y, 516, 0), 103, "a single page in between clears it");
        assert_eq!(free(y, 514, 1), 105);
    });
    // FREE_HIGH_BATCH: with less than a batch cached, nothing is drained.
    with(2, 3).run(|y: &Y<'_>| {
        free(y, 512, 1);
        assert_eq!(free(y, 514, 1), 7);
        assert_eq!(free(y, 518, 1), 0, "9 pages are a batch");
    });
}

#[test]
fn s5_13_the_cache_flag_is_strict_about_three_batches() {
    let flag = |batch, last_level| {
        State::new(4096).limits(batch, 1000, 1000).run(|y: &Y<'_>| {
            let all_levels = 1 << 40;
            let slice = pageyard::tuning::CacheSlice { last_level, all_levels };
            assert!(y.set_cache_slice(CPU, slice));
            assert!(!y.set_cache_slice(CpuId(1), slice));
            y.pageset(ZONE, CPU).unwrap().flags & 2 != 0
        })
    };
    assert!(!flag(63, 189 << 12) && flag(63, 190 << 12));
    assert!(!flag(63, (190 << 12) - 1), "whole pages count");
}

/// Lists of batch 1 would always keep a batch.
#[test]
fn s5_13_the_cache_flag_is_that_of_the_zone_s_batch_while_lists_are_disabled() {
    let machine = Machine::normal(1 << 18).cpus(&[0, 0]);
    machine.run(|y: &Y<'_>| {
        let slice = pageyard::tuning::CacheSlice { last_level: 64 << 12, all_levels: 64 << 12 };
        let flag = |cpu| y.pageset(ZONE, cpu).unwrap().flags & 2 != 0;
        assert_eq!(y.pageset(ZONE, CPU).unwrap().limits.batch, 63);
        let disabled = y.disable_pcp(ZONE).unwrap();
        assert!(y.set_cache_slice(CPU, slice) && !flag(CPU));
        drop(disabled);
        assert!(!flag(CPU));
        let other = CpuId(1);
        y.cpu_dead(other);
        assert!(y.set_cache_slice(other, slice));
        y.cpu_up(other);
        assert!(!flag(other));
    });
}

#[test]
fn s5_13_the_cache_flag_can_be_set_in_one_zone_alone() {
    use pageyard::ZoneKind::{Dma32, Normal};
    let m = Machine::new().zone(Dma32, 0..8192).zone(Normal, 8192..16384).cpus(&[0, 0]);
    m.run(|y: &Y<'_>| {
        let flags = || {
            let flag = |kind, cpu| y.pageset(kind, CpuId(cpu)).unwrap().flags & 2 != 0;
            [flag(Normal, 0), flag(Normal, 1), flag(Dma32, 0), flag(Dma32, 1)]
        };
        assert_eq!(flags(), [false; 4]);
        assert!(y.set_free_high_batch(Dma32, CpuId(1), true));
        assert_eq!(flags(), [false, false, false, true]);
        assert!(y.set_free_high_batch(Normal, CpuId(0), true));
        assert!(y.set_free_high_batch(Dma32, CpuId(1), false));
        assert_eq!(flags(), [true, false, false, false]);
        assert!(!y.set_free_high_batch(Dma32, CpuId(2), true), "no such CPU");
        assert!(!y.set_free_high_batch(pageyard::ZoneKind::Dma, CpuId(0), true), "no such zone");
        assert_eq!(flags(), [true, false, false, false]);
    });
}

#[test]
fn s5_10_below_high_lowers_high_and_a_drain_above_it_clears_the_flag() {
    let cached: Vec<u64> = (0..500).collect();
    let s = State::new(4096)
        .limits(8, 100, 2000)
        .cached(0, 1, &cached)
        .cpu(0, |c| (c.tuning.high, c.tuning.free_count) = (600, 50))
        .used(600..602, false)
        .set(|z| z.flags = 4);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(600), o(0)).unwrap();
        let t = y.pageset(ZONE, CPU).unwrap();
        // free_count was 51 then; the drain starts at max(count, high_min) = count.
        assert_eq!((t.high, t.count), (600 - 51, 501 - 51));
        assert!(!y.zone_info(ZONE).unwrap().below_high, "51 free pages are above HIGH 0");
    });
    // The Base rules do not test the mark here.
    s.clone().cpu(0, |c| c.tuning.high = 500).run_under(&Base::RULES, |y| {
        y.free(Pfn(600), o(0)).unwrap();
        assert_eq!(y.pageset(ZONE, CPU).unwrap().count, 501 - 8, "a batch is drained");
        assert!(y.zone_info(ZONE).unwrap().below_high);
    });
    // RECLAIM_ACTIVE drains from four batches on.
    let s = s.set(|z| z.flags = 2);
    s.run(|y: &Y<'_>| {
        y.free(Pfn(600), o(0)).unwrap();
        let t = y.pageset(ZONE, CPU).unwrap();
        assert_eq!((t.high, t.count), (549, 501 - 24), "clamp(51, 8, 4·8 − 8)");
    });
}
