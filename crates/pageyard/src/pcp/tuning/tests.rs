//! The vectors of spec §5.3 to §5.17 and Appendix C.

use super::*;
use crate::embedder::policy::{
    Base, Linux612, StaticPolicy, Step1, Step3, Step5, Step7, Step9, Step10,
};

const L: PcpRules = Linux612::RULES.pcp;

fn pageset(batch: i32, high_min: i32, high_max: i32) -> Tuning {
    Tuning { limits: Limits { batch, high_min, high_max }, ..Tuning::default() }
}

#[test]
fn s5_3_c_2_the_batch_follows_the_managed_pages() {
    let vectors: &[(u64, i32)] = &[
        (0, 1),
        (3840, 1),
        (8192, 1),
        (12288, 3),
        (24576, 7),
        (32768, 7),
        (45055, 7),
        (45056, 15),
        (65536, 15),
        (131072, 31),
        (176127, 31),
        (176128, 63),
    ];
    for &(managed, want) in vectors {
        assert_eq!(batch(managed), want, "managed {managed}");
    }
    // The bad values that one section gives in seed 5.
    assert_eq!((batch(32768), 6 * batch(32768)), (7, 42));
}

#[test]
fn s5_4_c_1_limits_equal_those_of_a_live_kernel() {
    // (managed, low) → batch, high_min, high_max on one node with two CPUs
    let vectors: &[(u64, u64, (i32, i32, i32))] = &[
        (3840, 57, (1, 28, 240)),
        (772497, 11662, (63, 5831, 48281)),
        (622592, 9398, (63, 4699, 38912)),
        (3840, 37, (1, 18, 240)),
        (772497, 7696, (63, 3848, 48281)),
        (1343488, 13385, (63, 6692, 83968)),
    ];
    for &(managed, low, want) in vectors {
        let l = Limits::of_zone(&L, managed, low, 2, 0);
        assert_eq!((l.batch, l.high_min, l.high_max), want, "managed {managed} low {low}");
    }
}

#[test]
fn s5_4_a_fraction_fixes_high() {
    let l = Limits::of_zone(&L, 772497, 7696, 2, 100);
    assert_eq!((l.batch, l.high_min, l.high_max), (63, 3862, 3862));
    let base = Limits::of_zone(&Base::RULES.pcp, 772497, 7696, 2, 0);
    assert_eq!((base.high_min, base.high_max), (3848, 3848));
}

#[test]
fn s5_8_c_4_refills_double_and_high_grows_with_them() {
    let mut t = pageset(63, 3848, 48281);
    let mut got = [0; 7];
    let mut highs = [0; 7];
    for i in 0..7 {
        got[i] = t.nr_alloc(&L, 0, Pressure::default());
        highs[i] = t.high;
    }
    assert_eq!(got, [63, 126, 252, 504, 1008, 2016, 2016]);
    assert_eq!(highs, [3911, 4037, 4289, 4793, 5801, 7817, 9833]);

    let mut t = pageset(63, 361, 361);
    let mut got = [0; 5];
    got.fill_with(|| t.nr_alloc(&L, 0, Pressure::default()));
    assert_eq!(got, [63, 126, 252, 298, 298]);

    for (order, want) in [(1, 31), (2, 15), (3, 7), (9, 2)] {
        let mut t = pageset(63, 3848, 48281);
        assert_eq!(t.nr_alloc(&L, order, Pressure::default()), want, "order {order}");
    }
}

#[test]
fn s5_5_a_disabled_pageset_moves_single_pages() {
    let mut t = pageset(1, 0, 0);
    assert_eq!(t.nr_alloc(&L, 0, Pressure::default()), 1);
    assert_eq!(t.nr_high(&L, false, Pressure::default()), 0);
    assert_eq!(t.nr_free(&L, 0, false), 1);
}

#[test]
fn s5_8_high_does_not_grow_below_the_high_mark() {
    let mut t = pageset(63, 3848, 48281);
    t.nr_alloc(&L, 0, Pressure { below_high: true, ..Pressure::default() });
    assert_eq!(t.high, 3848);
}

#[test]
fn s5_14_c_7_decay_lowers_high_by_an_eighth_or_to_the_count() {
    for (high, count, want) in [(52263, 16952, 45731), (18451, 15379, 16145), (64554, 15373, 56485)]
    {
        let mut t = Tuning { high, count, ..pageset(63, 6751, 83968) };
        assert_eq!(t.decay(&L), 0);
        assert_eq!(t.high, want);
    }
    // The lists hold more than the decay would leave: `high` follows the count, and the rest of the
    // excess is drained.
    let mut t = Tuning { high: 10000, count: 12000, ..pageset(63, 6751, 83968) };
    assert_eq!(t.decay(&L), 12000 - 9984);
    assert_eq!(t.high, 9984);
}

#[test]
fn s5_14_excess_is_drained_without_tuning() {
    let mut t = Tuning { high: 361, count: 400, ..pageset(63, 361, 361) };
    assert_eq!((t.decay(&L), t.high), (39, 361));
}

#[test]
fn b_3_free_high_waits_for_half_of_high_min() {
    const LATE: PcpRules = <crate::embedder::policy::LateFreeHigh as StaticPolicy>::RULES.pcp;
    let limits = Limits { batch: 63, high_min: 400, high_max: 4000 };
    let drains_from = |rules: &PcpRules| {
        let mut t = Tuning { limits, ..Tuning::default() };
        (1..100).find(|_| t.note_free(rules, 3)).map(|n| 8 * (n - 1))
    };
    // Pages freed, in blocks of eight, before the block that drains.
    assert_eq!(drains_from(&L), Some(64));
    assert_eq!(drains_from(&LATE), Some(264), "63 + 200");
    let mut t = Tuning { limits, high: 400, free_count: 200, ..Tuning::default() };
    let room = t.room(&LATE);
    assert!(t.free_quietly(&LATE, 3, room) && !t.free_quietly(&L, 3, room));
}

#[test]
fn s5_9_free_high_needs_two_in_a_row() {
    let mut t = Tuning { free_count: 63, high: 4000, ..pageset(63, 3848, 48281) };
    assert!(!t.note_free(&L, 1));
    assert!(t.note_free(&L, 1));
    t.note_free(&L, 0);
    assert!(!t.note_free(&L, 3), "an order-0 free between them");
    t.flags |= FREE_HIGH_BATCH;
    t.count = 10;
    assert!(!t.note_free(&L, 3), "less than a batch cached");
    t.count = 100;
    assert!(t.note_free(&L, 3));
    assert!(!t.note_free(&L, 9), "order 9 is not high-order here");
}

/// The short path accepts only frees that have no further effect on the long path.
#[test]
fn s5_9_the_quick_free_is_the_common_case() {
    for rules in [L, Base::RULES.pcp, Step7::RULES.pcp] {
        let mut taken = 0;
        for i in 0..6000i32 {
            let order = [0, 1, 3, 9][i as usize % 4];
            let t = Tuning {
                count: i * 13 % 700,
                high: i * 29 % 900,
                flags: (i / 4 % 4) as u8,
                alloc_factor: (i % 6) as u8,
                free_factor: (i / 7 % 3) as u8,
                free_count: i * 7 % 130,
                ..pageset(63, 100, 800)
            };
            let (mut quiet, mut full) = (t, t);
            if quiet.free_quietly(&rules, order, t.room(&rules)) {
                let free_high = full.note_free(&rules, order);
                let high = full.nr_high(&rules, free_high, Pressure::default());
                assert!(full.count < high, "{t:?} order {order}");
                assert_eq!(quiet, full, "{t:?} order {order}");
                taken += 1;
            } else {
                assert_eq!(quiet, t, "nothing changes");
                let freeing = if rules.free_count { t.free_count >= 63 } else { t.free_factor > 0 };
                full.note_free(&rules, order);
                let high = full.nr_high(&rules, false, Pressure::default());
                let more = full.count >= high || full.high != t.high;
                assert!(more || (1..=3).contains(&order) && freeing, "{t:?} order {order}");
            }
        }
        assert!(taken > 500, "the common case must be common");
    }
}

#[test]
fn s5_10_pressure_lowers_high() {
    let mut t = Tuning { high: 5000, count: 5000, free_count: 200, ..pageset(63, 100, 9000) };
    let reclaim = Pressure { reclaim_active: true, below_high: true };
    assert_eq!(t.nr_high(&L, false, reclaim), 252);
    assert_eq!(t.high, 4800);
    let below = Pressure { reclaim_active: false, below_high: true };
    t.free_count = 0;
    assert_eq!(t.nr_high(&L, false, below), 5000, "everything above what is cached now");
    assert_eq!(t.high, 4800 - 63, "at least a batch");
    assert_eq!(t.nr_high(&L, true, Pressure::default()), 0);
    assert_eq!(t.high, 4800 - 63 - 2016);
}

#[test]
fn s5_10_growth_on_a_free_returns_the_old_high() {
    let mut t = Tuning { high: 500, count: 500, free_count: 2000, ..pageset(63, 100, 9000) };
    assert_eq!(t.nr_high(&L, false, Pressure::default()), 500);
    assert_eq!(t.high, 2063);
}

#[test]
fn s5_11_bulk_frees_follow_recent_frees_within_limits() {
    let mut t = Tuning { count: 5000, free_count: 1000, ..pageset(63, 100, 9000) };
    assert_eq!(t.nr_free(&L, 4000, false), 1000);
    assert_eq!(t.nr_free(&L, 400, false), 337);
    assert_eq!(t.nr_free(&L, 0, true), 2016);
    assert_eq!(t.nr_free(&L, 62, false), 1);
    t.free_count = 0;
    assert_eq!(t.nr_free(&L, 4000, false), 63);
}

#[test]
fn s5_13_a_slice_above_three_batches_keeps_a_batch() {
    let slice = |pages: u64| CacheSlice { last_level: pages * 4096, all_levels: pages * 4096 };
    assert!(!keeps_batch(&L, slice(189), 63), "strictly more than three batches");
    assert!(keeps_batch(&L, slice(190), 63));
    assert!(!keeps_batch(&Step3::RULES.pcp, slice(252), 63));
    assert!(keeps_batch(&Step3::RULES.pcp, slice(253), 63));
    assert!(!keeps_batch(&Step1::RULES.pcp, slice(1 << 20), 63));
}

#[test]
fn s5_17_base_doubles_frees_but_not_refills() {
    let r = Base::RULES.pcp;
    let mut t = Tuning { count: 3000, high: 3000, ..pageset(63, 3848, 3848) };
    assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63);
    assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63, "refills do not double");
    assert!(!t.note_free(&r, 3), "no bulk free before");
    let frees: [i32; 8] = core::array::from_fn(|_| t.nr_free(&r, 3848, false));
    assert_eq!(frees, [63, 126, 252, 504, 1008, 2016, 3785, 3785]);
    assert!(t.note_free(&r, 1), "one high-order free after a bulk free is enough");
    t.count = 3000;
    assert_eq!(t.nr_free(&r, 0, true), 3000, "and frees all");
    t.note_alloc(&r);
    assert_eq!(t.free_factor, 3);
    let reclaim = Pressure { reclaim_active: true, below_high: false };
    assert_eq!(t.nr_high(&r, false, reclaim), 252);
    assert_eq!(t.decay(&r), 0);
}

#[test]
fn s5_17_each_step_adds_its_rule() {
    let r = Step1::RULES.pcp;
    let mut t = Tuning { free_factor: 1, ..pageset(63, 3848, 3848) };
    assert!(!t.note_free(&r, 1) && t.note_free(&r, 1));

    let r = Step5::RULES.pcp;
    let mut t = Tuning { count: 3000, ..pageset(63, 3848, 3848) };
    for _ in 0..8 {
        t.nr_free(&r, 3848, false);
    }
    assert_eq!(t.free_factor, 5, "step 4 caps the doublings");
    t.count = 0;
    assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63);
    assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 126, "step 5 doubles refills");
    assert_eq!(t.high, 3848, "without growth");

    let r = Step7::RULES.pcp;
    let mut t = Tuning { high: 1000, count: 100, ..pageset(63, 100, 9000) };
    t.decay(&r);
    assert_eq!(t.high, 800);
    t.nr_alloc(&r, 0, Pressure { reclaim_active: true, below_high: false });
    assert_eq!(t.high, 800, "no growth during reclaim");
    t.count = 900;
    t.free_factor = 4;
    assert_eq!(t.nr_high(&r, false, Pressure::default()), 800);
    assert_eq!(t.high, 63 * 17, "room for the next bulk free and a batch");
    // `high` leaves room for 63 << 4 pages and a batch: steps 4 and 5 stop there, step 7 goes on.
    assert_eq!((t.nr_free(&r, 63 * 17, false), t.free_factor), (63 << 4, 5));
    let mut five = Tuning { free_factor: 4, ..t };
    assert_eq!((five.nr_free(&Step5::RULES.pcp, 63 * 17, false), five.free_factor), (63 << 4, 4));

    let r = Step9::RULES.pcp;
    let mut t = Tuning { high: 1000, count: 100, count_min: 50, ..pageset(63, 100, 9000) };
    t.decay(&r);
    assert_eq!((t.high, t.count_min), (950, 100));

    let r = Step10::RULES.pcp;
    let mut t = Tuning { high: 1000, count: 1000, free_count: 7, ..pageset(63, 100, 9000) };
    t.nr_high(&r, false, Pressure { reclaim_active: false, below_high: true });
    assert_eq!(t.high, 993, "the series had no floor of a batch");
}

#[test]
fn s5_10_reasons_follow_the_order_of_the_cases() {
    let base = Base::RULES.pcp;
    let reason = |rules: &PcpRules, free_high, reclaim_active, below_high| {
        Pressure { reclaim_active, below_high }.reason(rules, free_high)
    };
    for rules in [&L, &base] {
        assert_eq!(reason(rules, true, true, true), HighReason::FreeHigh);
        assert_eq!(reason(rules, false, true, true), HighReason::Reclaim);
        assert_eq!(reason(rules, false, false, false), HighReason::Free);
    }
    assert_eq!(reason(&L, false, false, true), HighReason::BelowHigh);
    assert_eq!(reason(&base, false, false, true), HighReason::Free, "Base does not test the mark");
}

#[test]
fn six_batches_of_linux_5_4_whatever_the_low_mark() {
    const SIX: PcpRules = <crate::embedder::policy::SixBatches as StaticPolicy>::RULES.pcp;
    let limits = |managed, fraction| {
        let l = Limits::of_zone(&SIX, managed, 7696, 2, fraction);
        (l.batch, l.high_min, l.high_max)
    };
    assert_eq!(limits(131072, 0), (31, 186, 186));
    assert_eq!(limits(3840, 0), (1, 0, 0), "high uses the batch before it is raised to one page");
    assert_eq!(limits(131072, 100), (31, 655, 655), "a fraction applies as well");
}

#[test]
fn fixed_limits_have_no_room_between_them() {
    let l = Limits { batch: 63, high_min: 361, high_max: 4000 };
    assert_eq!(l.fixed(), Limits { high_max: 361, ..l });
}

#[test]
fn s5_7_allocations_halve_free_count() {
    let t = Tuning { free_count: 200, free_factor: 4, ..Tuning::default() };
    let mut now = t;
    now.note_alloc(&L);
    assert_eq!(now, Tuning { free_count: 100, ..t });
    let mut base = t;
    base.note_alloc(&Base::RULES.pcp);
    assert_eq!(base, Tuning { free_factor: 2, ..t });
}

#[test]
fn the_minimum_count_of_step_9_follows_allocations() {
    let t = Tuning { count: 20, count_min: 13, ..Tuning::default() };
    let taken = |rules: &PcpRules, orders: &[u8]| {
        let mut t = t;
        orders.iter().for_each(|&o| t.note_taken(rules, o));
        (t.count, t.count_min)
    };
    let step9 = Step9::RULES.pcp;
    assert_eq!(taken(&step9, &[2]), (16, 13));
    assert_eq!(taken(&step9, &[3]), (12, 12));
    assert_eq!(taken(&step9, &[3, 0]), (11, 11));
    assert_eq!(taken(&L, &[3]), (12, 13), "6.12 does not have this step");
}

#[test]
fn s5_8_refills_leave_room_for_a_batch() {
    let mut t = Tuning { count: 100, ..pageset(63, 361, 361) };
    let got: [i32; 4] = core::array::from_fn(|_| t.nr_alloc(&L, 0, Pressure::default()));
    assert_eq!(got, [63, 126, 198, 198]);
    assert_eq!(t.alloc_factor, 2, "a capped refill does not double");
    // Only single-page refills double.
    assert_eq!(t.nr_alloc(&L, 1, Pressure::default()), 31);
    // With a batch of one a refill takes a single page; otherwise at least two blocks.
    assert_eq!(pageset(1, 10, 10).nr_alloc(&L, 0, Pressure::default()), 1);
    assert_eq!(pageset(7, 100, 100).nr_alloc(&L, 3, Pressure::default()), 2);
    // A `high` of one batch allows a refill of a whole batch.
    assert_eq!(pageset(63, 63, 63).nr_alloc(&L, 0, Pressure::default()), 63);
}

#[test]
fn s5_8_s5_17_lists_grow_on_refills() {
    let after = |rules: &PcpRules, reclaim_active, below_high| {
        let mut t = pageset(63, 100, 9000);
        t.nr_alloc(rules, 0, Pressure { reclaim_active, below_high });
        t.high
    };
    assert_eq!(after(&Base::RULES.pcp, false, false), 100);
    let step7 = Step7::RULES.pcp;
    assert_eq!([after(&step7, false, true), after(&step7, true, false)], [163, 100]);
    assert_eq!([after(&L, true, false), after(&L, false, true)], [163, 100]);
}

#[test]
fn s5_9_frees_are_counted_up_to_32_batches() {
    let t = Tuning { count: 10, alloc_factor: 4, free_count: 2008, ..pageset(63, 3848, 48281) };
    let after = |rules: &PcpRules, t: Tuning, order| {
        let mut t = t;
        t.note_free(rules, order);
        (t.count, t.alloc_factor, t.free_count)
    };
    assert_eq!(after(&L, t, 3), (18, 2, 2016));
    assert_eq!(after(&L, Tuning { free_count: 2015, ..t }, 3), (18, 2, 2023));
    assert_eq!(after(&L, Tuning { free_count: 2016, ..t }, 0), (11, 2, 2016), "32 batches");
    assert_eq!(after(&L, Tuning { free_count: 3000, ..t }, 0), (11, 2, 3000));
    assert_eq!(after(&Base::RULES.pcp, Tuning { free_count: 0, ..t }, 3), (18, 4, 0));
}

#[test]
fn s5_10_there_is_room_only_for_a_high_within_its_limits() {
    let room = |high| Tuning { high, ..pageset(63, 100, 800) }.room(&L);
    for (high, pages) in [(99, 0), (100, 100), (500, 500), (800, 800), (801, 0)] {
        assert_eq!(room(high), Room { pages, free_count: 2016 }, "high {high}");
    }
    let late = Tuning { free_count: 2016, high: 500, ..pageset(63, 100, 800) };
    let mut t = late;
    assert!(t.free_quietly(&L, 0, late.room(&L)));
    assert_eq!((t.free_count, t.count), (2016, 1));
}

#[test]
fn s5_10_s5_17_pressure_moves_high_as_each_step_did() {
    let none = Pressure::default();
    let reclaim = Pressure { reclaim_active: true, below_high: false };
    let below = Pressure { reclaim_active: false, below_high: true };
    let after = |rules: &PcpRules, free_high, zone| {
        let high = 5000;
        let t = Tuning { high, count: 5100, free_factor: 4, ..pageset(63, 100, 9000) };
        let mut t = Tuning { free_count: 300, ..t };
        (t.nr_high(rules, free_high, zone), t.high)
    };
    // A fixed `high` does not move.
    let base = Base::RULES.pcp;
    assert_eq!(after(&base, true, none), (0, 5000));
    assert_eq!(after(&base, false, reclaim), (252, 5000));
    assert_eq!(after(&base, false, below), (5000, 5000));
    // Up to step 9 recent frees were counted in doublings.
    let step7 = Step7::RULES.pcp;
    assert_eq!(after(&step7, false, reclaim), (252, 5000 - 63 * 16));
    assert_eq!(after(&step7, false, none), (5000, 5000), "enough room");
    assert_eq!(after(&L, false, none), (5000, 5000));
    assert_eq!(after(&L, false, below), (5100, 4700));
    // Reclaim leaves four batches, or `high` if that is less.
    let mut small = Tuning { high: 200, count: 200, ..pageset(63, 200, 200) };
    assert_eq!(small.nr_high(&L, false, reclaim), 200);
}

#[test]
fn s5_11_a_bulk_free_frees_at_least_one_page() {
    let mut t = Tuning { count: 5000, free_count: 1000, ..pageset(63, 63, 9000) };
    assert_eq!(t.nr_free(&L, 100, false), 37, "if the limits cross, the upper one wins");
    assert_eq!(t.nr_free(&L, 63, false), 1, "not 0, with which the list would grow without end");
    let base = Base::RULES.pcp;
    let mut t = Tuning { count: 5000, ..pageset(63, 63, 9000) };
    assert_eq!((t.nr_free(&base, 126, false), t.free_factor), (63, 0), "as much as is allowed");
    assert_eq!((t.nr_free(&base, 127, false), t.free_factor), (63, 1));
    assert_eq!((t.nr_free(&base, 127, false), t.free_factor), (64, 1));
}

#[test]
fn s5_14_s5_17_older_steps_decay_by_a_fifth() {
    let decayed = |rules: &PcpRules, high, count_min| {
        let mut t = Tuning { high, count: 100, count_min, ..pageset(63, 100, 9000) };
        assert_eq!(t.decay(rules), 0);
        t.high
    };
    let step7 = Step7::RULES.pcp;
    for (high, want) in [(1000, 800), (1001, 800), (1003, 802), (1004, 803)] {
        assert_eq!(decayed(&step7, high, 0), want);
    }
    let step9 = Step9::RULES.pcp;
    assert_eq!([decayed(&step9, 1000, 50), decayed(&step9, 1000, 500)], [950, 800]);
    assert_eq!(decayed(&L, 110, 0), 100, "not below its lower limit");
    // A `high` at its lower limit stays there, whatever the lists hold.
    let mut t = Tuning { high: 361, count: 3000, ..pageset(63, 361, 9000) };
    assert_eq!((t.decay(&L), t.high), (2639, 361));
}

#[test]
fn the_largest_limits_do_not_overflow() {
    let limits = Limits { batch: MAX_BATCH, high_min: 0, high_max: MAX_PAGES };
    let t = Tuning { limits, count: MAX_PAGES, high: MAX_PAGES, ..Tuning::default() };
    let base = Base::RULES.pcp;
    let mut freed = t;
    let doubled: [i32; 15] = core::array::from_fn(|_| freed.nr_free(&base, MAX_PAGES, false));
    assert_eq!((doubled[0], doubled[13]), (1 << 14, 1 << 27));
    assert_eq!(doubled[14], MAX_PAGES - MAX_BATCH);
    let mut refilled = Tuning { count: 0, ..t };
    let doubled: [i32; 6] = core::array::from_fn(|_| refilled.nr_alloc(&L, 0, Pressure::default()));
    assert_eq!(doubled[5], 1 << 19);
}
