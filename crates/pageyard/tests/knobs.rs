//! Spec §3.1, §3.2, §5.4, §8.3, §10: what follows from a setting.

mod common;

use common::{Machine, Y};
use pageyard::policy::Base;
use pageyard::{CpuId, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);

#[test]
fn s3_1_min_free_follows_from_the_square_root_and_the_floor_of_huge_pages() {
    // 256 MiB → 2048 kB.
    let min_free = |m: Machine| m.run(|y: &Y<'_>| y.knobs().min_free_kbytes);
    assert_eq!(min_free(Machine::normal(65536)), 2048);
    // The floor: min(512·1·11, a twentieth of what is above the high marks), in pages.
    let (floor, above) = Machine::normal(65536).knobs(|k| k.huge_pages = true).run(|y: &Y<'_>| {
        let i = y.zone_info(ZONE).unwrap();
        (y.knobs().min_free_kbytes / 4, i.managed - (512 + 2 * 128))
    });
    assert_eq!(floor, above / 20);
    // A larger value that was written wins, a smaller one does not.
    let written =
        |kb| min_free(Machine::normal(65536).knobs(|k| k.user_min_free_kbytes = Some(kb)));
    assert_eq!((written(3000), written(1000)), (3000, 2048));
}

#[test]
fn s3_2_marks_of_one_zone() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        // t = 512; gap = max(512/4, 65536·10/10000).
        assert_eq!(y.zone_info(ZONE).unwrap().watermarks, [512, 640, 768, 896]);
        y.set_watermark_scale_factor(1000).unwrap();
        assert_eq!(y.zone_info(ZONE).unwrap().watermarks, [512, 7065, 13618, 20171]);
        y.set_min_free_kbytes(4096).unwrap();
        assert_eq!(y.zone_info(ZONE).unwrap().watermarks[0], 1024);
    });
}

#[test]
fn s3_2_movable_zones_have_a_small_min_of_their_own() {
    let m = Machine::new().zone(ZoneKind::Normal, 0..65536).zone(ZoneKind::Movable, 65536..196_608);
    m.run(|y: &Y<'_>| {
        assert_eq!(y.zone_info(ZoneKind::Movable).unwrap().watermarks[0], 128);
        assert_eq!(y.zone_info(ZONE).unwrap().watermarks[0], 512);
    });
}

#[test]
fn s5_4_limits_follow_low_and_are_shared_by_the_cpus_of_the_node() {
    let limits = |m: Machine| m.run(|y: &Y<'_>| y.pageset(ZONE, CPU).unwrap().limits);
    let one = limits(Machine::normal(65536));
    assert_eq!((one.batch, one.high_min, one.high_max), (15, 640, 8192));
    let two = limits(Machine::normal(65536).cpus(&[0, 0]));
    assert_eq!((two.high_min, two.high_max), (320, 4096));
    let remote = limits(Machine::normal(65536).cpus(&[0, 1, 1]));
    assert_eq!(remote.high_min, 640, "CPUs of other nodes do not share");
    let none = limits(Machine::normal(65536).cpus(&[1, 1]));
    assert_eq!(none.high_min, 320, "without own CPUs, all do");
}

#[test]
fn s5_4_a_fraction_fixes_high_and_0_frees_it_again() {
    Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
        let limits = |cpu| y.pageset(ZONE, CpuId(cpu)).unwrap().limits;
        let tuned = limits(1);
        y.set_percpu_pagelist_high_fraction(100).unwrap();
        assert_eq!((limits(1).high_min, limits(1).high_max), (327, 327));
        assert_eq!(limits(0).batch, 15);
        for refused in 1..8 {
            assert!(y.set_percpu_pagelist_high_fraction(refused).is_err());
            assert_eq!(y.knobs().percpu_pagelist_high_fraction, 100, "the old one stays");
        }
        y.set_percpu_pagelist_high_fraction(0).unwrap();
        assert_eq!(limits(1), tuned);
    });
    Machine::normal(65536).run(|y: &Y<'_, Base>| {
        let l = y.pageset(ZONE, CPU).unwrap().limits;
        assert_eq!(l.high_min, l.high_max, "before the series high is fixed anyway (§5.17)");
    });
}

#[test]
fn s10_values_out_of_range_change_nothing() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        let before = (y.knobs(), common::all_records(y));
        assert!(y.set_watermark_scale_factor(0).is_err());
        assert!(y.set_watermark_scale_factor(3001).is_err());
        assert!(y.set_min_free_kbytes(u64::MAX).is_err());
        assert!(y.set_watermark_boost_factor(u64::MAX).is_err());
        assert_eq!((y.knobs(), common::all_records(y)), before);
    });
}

#[test]
fn s3_5_ratios_below_1_switch_the_reserve_off() {
    let m = Machine::new().zone(ZoneKind::Dma32, 0..8192).zone(ZoneKind::Normal, 8192..40960);
    m.run(|y: &Y<'_>| {
        let reserve = || y.zone_info(ZoneKind::Dma32).unwrap().lowmem_reserve;
        assert_eq!(reserve(), [0, 0, 128, 128, 128], "256 by default; empty zones above add up");
        y.set_lowmem_reserve_ratio([1; 5]);
        assert_eq!(reserve(), [0, 0, 32768, 32768, 32768]);
        y.set_lowmem_reserve_ratio([0; 5]);
        assert_eq!(reserve(), [0; 5]);
    });
}
