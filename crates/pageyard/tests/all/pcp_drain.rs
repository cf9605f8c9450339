//! Spec §5.12, §5.12a, §5.14–5.16: the orders in which lists are drained, and what triggers a
//! drain.

use crate::common;

use common::random::Random;
use common::state::State;
use common::view::normal;
use common::{Chosen, LINUX612, Machine, Y, o};
use pageyard::policy::{BlockByBlock, StaticPolicy, TwoPassBulkFree};
use pageyard::{CpuId, DrainReason, Event, Gfp, Pfn, Record, ZoneId, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);

/// The frames that went to the zone, in that order.
fn drained(y: &Y<'_>) -> Vec<u64> {
    let events = y.hooks().events();
    events
        .iter()
        .filter_map(|e| if let Event::Drain { pfn, .. } = e { Some(pfn.0) } else { None })
        .collect()
}

/// Frees one more block so that a drain that starts at its list returns exactly `n` pages. The
/// block itself is at the list's head, so the tail goes first.
fn give_back(rules: Chosen, s: State, pfn: u64, order: u8, n: i32) -> Vec<u64> {
    // high = count after the free; nr_free = clamp(free_count, batch, high − batch) = n.
    let count = s.cpus[0].tuning.count + (1 << order);
    let pages = 1 << order;
    let s = s.limits(1, count, count).cpu(0, |c| c.tuning.free_count = n - pages);
    // The cap of free_count (batch << 5) is above every n used here.
    s.block(pfn, order, false).run_under(rules, |y| {
        y.hooks().watch();
        y.free(Pfn(pfn), o(order)).unwrap();
        let v = normal(y);
        let left: i32 = v.all_cached().map(|(_, _, l)| 1 << common::view::list_order(l)).sum();
        assert_eq!(v.cpus[0].tuning.count, left, "the count covers the remaining pages");
        drained(y)
    })
}

/// Lists 0: [a, b] and 4 (order 1): [c, d] of §5.12's example, before `c` was freed. The frames
/// are in different pageblocks, so that nothing merges.
const A: u64 = 512;
const B: u64 = 1024;
const C: u64 = 1536;
const D: u64 = 2048;

fn example() -> State {
    State::new(8192)
        .label(1, pageyard::MigrateType::Unmovable)
        .label(2, pageyard::MigrateType::Unmovable)
        .cached(0, 0, &[A, B])
        .cached(0, 4, &[D])
}

#[test]
fn s5_12_the_list_that_was_freed_to_is_drained_first_from_its_tail() {
    assert_eq!(give_back(LINUX612, example(), C, 1, 3), [D, C], "4 pages");
    assert_eq!(give_back(LINUX612, example(), C, 1, 5), [D, C, B]);
}

/// Computed by hand: list 0 holds six pages, list 4 [c, d]; start at list 4, n = 8.
#[test]
fn s5_12a_two_passes_take_more_after_skipping_empty_lists() {
    let six: Vec<u64> = (0..6).map(|i| A + 2 * i).collect();
    let s = || {
        State::new(8192).label(1, pageyard::MigrateType::Unmovable).cached(0, 0, &six).cached(
            0,
            4,
            &[D],
        )
    };
    // Turn 1: list 4 at once, take 1: d (n = 6, take 0).
    // Turn 2: lists 5..13 and 0, ten looked at, take 10: all six pages of list 0 (n = 0).
    let zero: Vec<u64> = six.iter().rev().copied().collect();
    let want: Vec<u64> = [D].into_iter().chain(zero).collect();
    assert_eq!(give_back(&<TwoPassBulkFree>::RULES, s(), C, 1, 8), want);
    // With n = 9, one page is still wanted. Take has 4 left; turn 3 looks at lists 1..4: 8, c.
    let want: Vec<u64> = want.into_iter().chain([C]).collect();
    assert_eq!(give_back(&<TwoPassBulkFree>::RULES, s(), C, 1, 9), want);
    // One pass empties list 4 first.
    let one = give_back(LINUX612, s(), C, 1, 8);
    assert_eq!(one, [D, C, six[5], six[4], six[3], six[2]]);
}

#[test]
fn s5_12a_take_is_counted_down_and_stops_a_turn_before_the_list_is_empty() {
    // Lists 1 and 2 (movable, reclaimable single pages), eight each; start at list 1, n = 5.
    let eight = |from: u64| (0..8).map(|i| from + 2 * i).collect::<Vec<u64>>();
    let (m, r) = (eight(B), eight(C));
    let s = State::new(8192)
        .label(3, pageyard::MigrateType::Reclaimable)
        .cached(0, 1, &m)
        .cached(0, 2, &r);
    // Turn 1: list 1, take 1. Turn 2: list 2, take 1. Turn 3: lists 3..13, 0, 1: take 13, the
    // three still wanted.
    let want = [m[7], r[7], m[6], m[5], m[4]];
    assert_eq!(give_back(&<TwoPassBulkFree>::RULES, s, D, 0, 5), want);
}

#[test]
fn s5_14_a_tick_decays_high_and_drains_the_excess_batch_by_batch() {
    let cached: Vec<u64> = (0..1000).collect();
    let s = State::new(4096)
        .limits(10, 100, 4000)
        .cached(0, 1, &cached)
        .cpu(0, |c| c.tuning.high = 800);
    s.run(|y: &Y<'_>| {
        y.hooks().watch();
        assert!(y.tick(CPU), "high is still above its minimum");
        let t = y.pageset(ZONE, CPU).unwrap();
        assert_eq!((t.high, t.count), (700, 700), "max(1000 − 320, 800 − 100, 100)");
        let chunks = y.hooks().events();
        let sizes: Vec<u32> = chunks
            .iter()
            .filter_map(|e| match e {
                Event::BulkFree { reason: DrainReason::Decay, pages, .. } => Some(*pages),
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [10; 30]);
    });
}

#[test]
fn s5_14_an_idle_tick_requests_no_other() {
    State::new(4096).limits(10, 100, 4000).run(|y: &Y<'_>| {
        let before = common::all_records(y);
        assert!(!y.tick(CPU));
        assert_eq!(common::all_records(y), before);
    });
}

/// One CPU on this node, with 25 single pages cached and a batch of 10. The zone is on node 0.
fn remote(node: u16) -> State {
    let cached: Vec<u64> = (0..25).collect();
    State::new(4096).cpus(&[node]).limits(10, 100, 100).cached(0, 1, &cached).cpu(0, |c| {
        (c.threshold, c.diff) = (50, -1);
    })
}

#[test]
fn s5_15_remote_lists_expire_a_batch_at_a_time_after_three_idle_ticks() {
    remote(1).run(|y: &Y<'_>| {
        let mut counts = Vec::new();
        for _ in 0..12 {
            y.tick(CPU);
            counts.push(y.pageset(ZONE, CPU).unwrap().count);
        }
        // Folding sets the countdown to 3. At 0 a batch is drained, which changes the counter and
        // restarts the countdown.
        assert_eq!(counts, [25, 25, 15, 15, 15, 5, 5, 5, 0, 0, 0, 0]);
        assert_eq!(y.cpu_stats(ZONE, CPU).unwrap().drains[DrainReason::Expire as usize], 3);
    });
    remote(0).run(|y: &Y<'_>| {
        for _ in 0..12 {
            y.tick(CPU);
        }
        assert_eq!(y.pageset(ZONE, CPU).unwrap().count, 25, "local lists stay");
    });
}

#[test]
fn s5_16_drains_empty_every_list_and_are_accounted_to_the_cpu_that_drains() {
    let s = State::new(8192)
        .cpus(&[0, 0])
        .limits(1, 3000, 3000)
        .cached(0, 13, &[512, 1024])
        .cached(1, 1, &[4096, 4098])
        .cpu(0, |c| c.threshold = 125)
        .cpu(1, |c| c.threshold = 125);
    s.run(|y: &Y<'_>| {
        y.hooks().on(0);
        y.drain_cpu(CpuId(1), None);
        let v = normal(y);
        assert_eq!((v.cpus[0].diff, v.cpus[1].diff), (2, 0));
        assert_eq!((v.cpus[0].tuning.count, v.cpus[1].tuning.count), (1024, 0));
        y.drain_all(Some(ZoneKind::Dma.into()));
        assert_eq!(normal(y), v, "a zone that does not exist");
        y.drain_all(Some(ZONE.into()));
        let info = y.zone_info(ZONE).unwrap();
        assert_eq!((info.cached, info.free_exact), (0, 1026));
    });
}

#[test]
fn s5_5_disabling_empties_the_lists_and_enabling_starts_from_high_min() {
    let cached: Vec<u64> = (0..25).collect();
    let s = State::new(4096).limits(10, 100, 4000).cached(0, 1, &cached).used(600..603, false);
    let s = s.cpu(0, |c| c.tuning.high = 900);
    s.run(|y: &Y<'_>| {
        assert!(y.disable_pcp(ZoneKind::Dma).is_none());
        let guard = y.disable_pcp(ZONE).unwrap();
        assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
        y.free(Pfn(600), o(0)).unwrap();
        let t = y.pageset(ZONE, CPU).unwrap();
        assert_eq!((t.count, t.high, t.limits.batch), (0, 0, 1), "high is clamped at its use");
        drop(guard);
        assert_eq!(y.pageset(ZONE, CPU).unwrap().limits.high_max, 4000);
        y.free(Pfn(602), o(0)).unwrap();
        let t = y.pageset(ZONE, CPU).unwrap();
        assert_eq!((t.count, t.high), (1, 100));
    });
}

/// §5.12: draining runs of neighbours as one block equals freeing them one by one.
#[test]
fn s5_12_single_frees_end_in_the_same_state() {
    fn lists(rules: Chosen) -> Vec<(ZoneId, Vec<Record>)> {
        Machine::normal(1 << 15).cpus(&[0, 0]).run_under(rules, |y| {
            let mut held = Vec::new();
            let mut random = Random(1);
            for step in 0..40_000 {
                let pick = random.next();
                y.hooks().on((pick % 2) as u32);
                // Bursts of one kind, so that neighbours are cached next to each other.
                if step / 700 % 2 == 0 {
                    let order = o([0, 0, 0, 0, 0, 1, 2, 3][pick / 2 % 8]);
                    held.extend(y.alloc(order, Gfp::HIGHUSER_MOVABLE).map(|pfn| (pfn, order)));
                } else if !held.is_empty() {
                    let at = if step % 5 == 0 { pick % held.len() } else { held.len() - 1 };
                    let (pfn, order) = held.swap_remove(at);
                    y.free(pfn, order).unwrap();
                }
            }
            common::all_records(y)
        })
    }
    assert!(lists(&<BlockByBlock>::RULES) == lists(LINUX612));
}
