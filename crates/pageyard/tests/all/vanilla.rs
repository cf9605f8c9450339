//! Spec §4.6, §4.10: what the hygiene series changed, shown by rules without it.

use crate::common;

use common::random::Random;
use common::state::State;
use common::view::normal;
use common::{Chosen, LINUX612, Machine, Y, o};
use pageyard::MigrateType::{HighAtomic, Movable, Reclaimable, Unmovable};
use pageyard::policy::{LargestFirst, Linux612, StaticPolicy, TypeChecked, Vanilla};
use pageyard::{Gfp, Pfn, ZoneKind, ZoneStats};

const ZONE: ZoneKind = ZoneKind::Normal;

#[test]
fn s4_6_the_largest_block_is_stolen_from_when_its_claim_fails() {
    let s = State::new(4096)
        .label(1, Reclaimable)
        .free(512, 6)
        .free(580, 2)
        .used(600..1024, false)
        .set(|z| (z.watermarks, z.nr_free) = ([0, 0, 1000, 2000], 4000));
    s.run_under(&<LargestFirst>::RULES, |y| {
        assert_eq!(y.alloc(o(0), Gfp::KERNEL), Ok(Pfn(512)), "not the smallest, at 580");
        let z = y.zone_stats(ZONE).unwrap();
        assert_eq!((z.claims_refused, z.steals, z.boosts), (1, 1, 1));
    });
    s.run(|y: &Y<'_>| assert_eq!(y.alloc(o(0), Gfp::KERNEL), Ok(Pfn(580))));
}

#[test]
fn s4_6_movable_requests_that_cannot_claim_take_the_smallest() {
    let s = State::new(4096)
        .label(1, Unmovable)
        .free(512, 3)
        .free(580, 1)
        .used(600..1024, false)
        .set(|z| (z.watermarks, z.nr_free) = ([0, 0, 1000, 2000], 4000));
    s.run_under(&<LargestFirst>::RULES, |y| {
        assert_eq!(y.alloc(o(0), Gfp::HIGHUSER_MOVABLE), Ok(Pfn(580)));
        let z = y.zone_stats(ZONE).unwrap();
        assert_eq!((z.steals, z.boosts), (1, 1), "before 6.12.29 a steal boosted too");
    });
}

/// Caches a movable page, makes its block unmovable, and drains the page.
fn drained_after_conversion(rules: Chosen) -> (Vec<u64>, Vec<u64>) {
    let s = State::new(4096)
        .limits(1, 1000, 1000)
        .used(512..513, true)
        .used(513..700, false)
        .free(1020, 2);
    s.run_under(rules, |y| {
        y.free(Pfn(512), o(0)).unwrap();
        y.alloc(o(1), Gfp::KERNEL).unwrap();
        assert_eq!(y.block_type(Pfn(512)), Some(Unmovable));
        y.drain_all(None);
        let v = normal(y);
        (v.free(0, Movable).to_vec(), v.free(0, Unmovable).to_vec())
    })
}

#[test]
fn s4_10a_the_type_is_read_on_drain_not_on_free() {
    assert_eq!(drained_after_conversion(LINUX612), (vec![], vec![512]));
    assert_eq!(drained_after_conversion(&<Vanilla>::RULES), (vec![512], vec![]), "mixed");
}

/// A request that may not claim a block: its answer, and the blocks on the unmovable and on the
/// reclaimable list.
fn refused_claim(rules: Chosen) -> (Pfn, Vec<u64>, Vec<u64>, ZoneStats) {
    let s = State::new(4096)
        .label(1, Reclaimable)
        .free(512, 6)
        .free(580, 2)
        .used(600..1024, false)
        .set(|z| (z.watermarks, z.nr_free) = ([0, 0, 1000, 2000], 4000));
    s.run_under(rules, |y| {
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(y.block_type(Pfn(512)), Some(Reclaimable), "not worth claiming");
        let v = normal(y);
        let on = |t| (0..=6).flat_map(|o| v.free(o, t).to_vec()).collect();
        (pfn, on(Unmovable), on(Reclaimable), y.zone_stats(ZONE).unwrap())
    })
}

#[test]
fn s4_10e_lists_change_only_with_the_label() {
    let (pfn, stranded, left, _) = refused_claim(&<LargestFirst>::RULES);
    assert_eq!((pfn, stranded), (Pfn(512), vec![]));
    assert_eq!(left.iter().sum::<u64>(), 513 + 514 + 516 + 520 + 528 + 544 + 580);

    let (pfn, stranded, left, z) = refused_claim(&<Vanilla>::RULES);
    assert_eq!(pfn, Pfn(580), "all free pages of the block moved to the request's type");
    assert_eq!(stranded, [581, 582, 512]);
    assert_eq!(left, []);
    assert_eq!((z.steals, z.mismatches, z.claims_refused), (1, 1, 1));
}

#[test]
fn s4_10e_the_rest_of_a_stolen_block_stays_with_its_type() {
    fn unmovable_after_a_movable_steal(rules: Chosen) -> Vec<u64> {
        let s = State::new(4096).label(1, Unmovable).free(512, 3).used(600..1024, false);
        s.run_under(rules, |y| {
            assert_eq!(y.alloc(o(0), Gfp::HIGHUSER_MOVABLE), Ok(Pfn(512)));
            let v = normal(y);
            (0..3).flat_map(|o| v.free(o, Unmovable).to_vec()).collect()
        })
    }
    assert_eq!(unmovable_after_a_movable_steal(&<LargestFirst>::RULES), [513, 514, 516]);
    assert_eq!(unmovable_after_a_movable_steal(&<Vanilla>::RULES), []);
}

/// A mixed-mobility load that fills and empties the zone repeatedly.
fn mixed_load(rules: Chosen) -> ZoneStats {
    Machine::normal(16384).cpus(&[0, 0]).run_under(rules, |y| {
        let types = [
            Gfp::KERNEL,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::KERNEL | Gfp::RECLAIMABLE,
        ];
        let mut held = Vec::new();
        let mut random = Random(1);
        for i in 0..40_000 {
            y.hooks().on((i / 50 % 2) as u32);
            let order = [0, 0, 0, 1, 3, 4][random.below(6)];
            // The mix shifts, so that types steal each other's blocks.
            let gfp = types[(random.below(2) + i / 4000) % 4];
            match y.alloc(o(order), gfp) {
                Ok(pfn) => held.push((pfn, o(order))),
                Err(_) => {
                    for _ in 0..held.len() / 2 {
                        let (p, ord) = held.swap_remove(random.below(held.len()));
                        y.free(p, ord).unwrap();
                    }
                }
            }
        }
        y.zone_stats(ZONE).unwrap()
    })
}

#[test]
fn s4_8_only_hygiene_keeps_lists_of_one_type() {
    let clean = mixed_load(&<TypeChecked<Linux612>>::RULES);
    let vanilla = mixed_load(&<TypeChecked<Vanilla>>::RULES);
    assert_eq!(clean.type_check_failures, 0);
    assert!(vanilla.type_check_failures > 0, "carried types mix the lists");
    assert_eq!(clean.mismatches, clean.steals, "stealing is the only source (§4.5)");
    assert!(vanilla.mismatches > vanilla.steals);
    assert!(clean.claims_part > 0 && clean.steals > 0, "the load reaches the fallbacks");
}

#[test]
fn s4_10_free_pages_are_counted_by_the_list_that_they_come_to_lie_on() {
    // Two pages of a block are free on one list, the next two are freed under the block's type.
    let counted = |label, list| {
        let s = State::new(1024).label(0, label).free_as(2, 1, list).block(0, 1, false);
        s.set(|z| z.reserved_highatomic = 512).run_under(&<Vanilla>::RULES, |y| {
            let count = || y.zone_info(ZONE).unwrap().free_highatomic;
            let before = count();
            y.free_direct(Pfn(0), o(1)).unwrap();
            assert_eq!(normal(y).free(2, label), [0]);
            (before, count())
        })
    };
    assert_eq!(counted(HighAtomic, Movable), (0, 4));
    assert_eq!(counted(Movable, HighAtomic), (2, 0));
    assert_eq!(counted(HighAtomic, HighAtomic), (2, 4));
}
