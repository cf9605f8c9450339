//! Spec §3.1, §3.2, §5.4, §8.3, §10: what follows from a setting.

use crate::common;

use common::any::any_hooks;
use common::{Chosen, LINUX612, Machine, Y, o};
use pageyard::policy::{Base, Guarded, InitOnAlloc, InitOnFree, Poisoned, StaticPolicy, Unmapped};
use pageyard::{
    Access, CpuId, Defences, Gfp, Hooked, KNOBS, Knob, KnobError, Knobs, Observer, Platform,
    Reclaim, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const CPU: CpuId = CpuId(0);

#[test]
fn s3_1_min_free_is_the_square_root_with_a_huge_page_floor() {
    // 256 MiB → 2048 kB.
    let min_free = |m: Machine| m.run(|y: &Y<'_>| y.knobs().min_free_kbytes);
    assert_eq!(min_free(Machine::normal(65536)), 2048);
    // The floor: min(512·1·11, a twentieth of what is above the high marks), in pages.
    let (floor, above) = Machine::normal(65536).knobs(|k| k.huge_pages = true).run(|y: &Y<'_>| {
        let i = y.zone_info(ZONE).unwrap();
        (y.knobs().min_free_kbytes / 4, i.managed - (512 + 2 * 128))
    });
    assert_eq!(floor, above / 20);
    // A larger written value replaces it; a smaller one does not.
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
    assert_eq!(remote.high_min, 640, "CPUs of other nodes have no share");
    let none = limits(Machine::normal(65536).cpus(&[1, 1]));
    assert_eq!(none.high_min, 320, "all CPUs share a node without CPUs");
}

#[test]
fn s5_4_a_fraction_fixes_high_and_0_restores_tuning() {
    Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
        let limits = |cpu| y.pageset(ZONE, CpuId(cpu)).unwrap().limits;
        let tuned = limits(1);
        y.set_percpu_pagelist_high_fraction(100).unwrap();
        assert_eq!((limits(1).high_min, limits(1).high_max), (327, 327));
        assert_eq!(limits(0).batch, 15);
        for refused in 1..8 {
            assert!(y.set_percpu_pagelist_high_fraction(refused).is_err());
            assert_eq!(y.knobs().percpu_pagelist_high_fraction, 100, "the old value stays");
        }
        y.set_percpu_pagelist_high_fraction(0).unwrap();
        assert_eq!(limits(1), tuned);
    });
    Machine::normal(65536).run_under(&Base::RULES, |y| {
        let l = y.pageset(ZONE, CPU).unwrap().limits;
        assert_eq!(l.high_min, l.high_max, "without auto-tuning high is fixed (§5.17)");
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
fn s3_5_ratios_below_1_disable_the_reserve() {
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

/// Reads a knob as text.
fn read(y: &Y<'_>, name: &str) -> Result<String, KnobError> {
    let mut text = String::new();
    y.knob(name, &mut text).map(|()| text)
}

#[test]
fn s10_every_knob_accepts_its_default() {
    Machine::normal(65536).knobs(|k| k.huge_pages = true).run(|y: &Y<'_>| {
        for knob in KNOBS {
            let got = read(y, knob.name);
            match knob.access {
                Access::RunTime | Access::Start | Access::Policy => {
                    let text = got.unwrap();
                    if knob.name == "min_free_kbytes" {
                        assert_eq!(text, y.knobs().min_free_kbytes.to_string());
                    } else {
                        assert_eq!(text, knob.default, "{}", knob.name);
                    }
                    let before = y.knobs();
                    let again = y.set_knob(knob.name, &text);
                    if knob.access == Access::RunTime {
                        again.unwrap();
                        let user = y.knobs().user_min_free_kbytes;
                        assert_eq!(y.knobs(), Knobs { user_min_free_kbytes: user, ..before });
                    } else {
                        assert!(matches!(again, Err(KnobError::ReadOnly { name, .. }) if name == knob.name));
                    }
                }
                Access::WriteOnly => {
                    assert_eq!(got, Err(KnobError::WriteOnly { name: knob.name }));
                }
                Access::Elsewhere(decides) => {
                    assert_eq!(got, Err(KnobError::Elsewhere { name: knob.name, decides }));
                    assert_eq!(y.set_knob(knob.name, "1"), got.map(|_| ()));
                }
            }
        }
    });
}

#[test]
fn s10_boot_settings_of_safety_are_read_from_the_policy() {
    fn settings(rules: Chosen) -> [String; 5] {
        let names = [
            "page_poison",
            "init_on_alloc",
            "init_on_free",
            "debug_pagealloc",
            "debug_guardpage_minorder",
        ];
        Machine::normal(65536).run_under(rules, |y| {
            names.map(|name| {
                let written = y.set_knob(name, "1");
                assert_eq!(written, Err(KnobError::ReadOnly { name, chosen: "the policy" }));
                read(y, name).unwrap()
            })
        })
    }
    assert_eq!(settings(LINUX612), ["N", "N", "N", "N", "0"]);
    assert_eq!(settings(&<Poisoned>::RULES), ["Y", "N", "N", "N", "0"]);
    assert_eq!(settings(&<InitOnAlloc>::RULES), ["N", "Y", "N", "N", "0"]);
    assert_eq!(settings(&<InitOnFree>::RULES), ["N", "N", "Y", "N", "0"]);
    assert_eq!(settings(&<Unmapped<Guarded<4, Base>>>::RULES), ["N", "N", "N", "Y", "4"]);
}

#[test]
fn s10_ranges_match_the_table() {
    // Columns: name, minimum, maximum. A value one below the minimum or one above the maximum is
    // refused.
    let numbers: &[(&str, u64, u64)] = &[
        ("min_free_kbytes", 0, 1 << 40),
        ("watermark_scale_factor", 1, 3000),
        ("watermark_boost_factor", 0, 1 << 31),
        ("percpu_pagelist_high_fraction", 8, (1 << 31) - 1),
        ("zone_reclaim_mode", 0, 7),
        ("min_unmapped_ratio", 0, 100),
        ("min_slab_ratio", 0, 100),
        ("compaction_proactiveness", 0, 100),
        ("extfrag_threshold", 0, 1000),
        ("compact_unevictable_allowed", 0, 1),
        ("stat_interval", 1, 2_147_483),
        ("numa_stat", 0, 1),
        ("memory_tiering", 0, 1),
        ("pcp_autotune", 0, 1),
    ];
    let others = ["lowmem_reserve_ratio", "numa_zonelist_order"];
    let run_time = KNOBS.iter().filter(|k| k.access == Access::RunTime).map(|k| k.name);
    let tested = numbers.iter().map(|n| n.0).chain(others);
    let sorted = |mut v: Vec<_>| {
        v.sort_unstable();
        v
    };
    assert_eq!(
        sorted(run_time.collect()),
        sorted(tested.collect()),
        "a run-time knob is not tested"
    );

    Machine::normal(65536).run(|y: &Y<'_>| {
        for &(name, least, most) in numbers {
            for n in [least, most] {
                y.set_knob(name, &format!(" {n}\n")).unwrap();
                assert_eq!(read(y, name).unwrap(), n.to_string(), "{name}");
            }
            let before = (y.knobs(), common::all_records(y));
            let less = least.checked_sub(1).map_or("-1".into(), |n| n.to_string());
            for bad in [less.as_str(), &(most + 1).to_string(), "", "many", "1.5", "1 2"] {
                let error = y.set_knob(name, bad).unwrap_err();
                let KnobError::Refused { name: of, value, range } = error else {
                    panic!("{name} = {bad}: {error}")
                };
                assert_eq!((of, value.as_str()), (name, bad));
                assert_eq!(range, Knob::named(name).unwrap().range);
                assert_eq!(error.to_string(), format!("{name} = {bad}: expected {range}"));
            }
            assert_eq!((y.knobs(), common::all_records(y)), before, "{name} changed something");
        }
        y.set_knob("percpu_pagelist_high_fraction", "0").unwrap();
    });
}

#[test]
fn s10_a_layout_is_checked_against_the_same_ranges() {
    let refusal = |change: fn(&mut Knobs)| {
        let machine = Machine::normal(65536).knobs(change);
        machine.refusal().map(|e| e.to_string())
    };
    assert_eq!(refusal(|k| k.extfrag_threshold = 1000), None);
    assert_eq!(
        refusal(|k| k.extfrag_threshold = 1001).unwrap(),
        "extfrag_threshold = 1001: expected 0 to 1000"
    );
    let user = refusal(|k| k.user_min_free_kbytes = Some(u64::MAX)).unwrap();
    assert!(user.starts_with("min_free_kbytes = 18446744073709551615"), "{user}");
    assert!(refusal(|k| k.stat_interval = 0).is_some());
}

#[test]
fn s10_an_unknown_name_is_an_error_that_names_it() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        let e = y.set_knob("min_free_bytes", "1").unwrap_err();
        assert_eq!(e.to_string(), "unknown knob \"min_free_bytes\"");
        assert_eq!(read(y, "min_free_bytes"), Err(e));
        // The message shortens a long name.
        let long = "n".repeat(1000);
        assert!(y.set_knob(&long, "1").unwrap_err().to_string().len() < 100);
    });
}

#[test]
fn s10_writing_by_name_does_what_the_method_does() {
    let by_name = |name: &'static str, value: &'static str| {
        Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
            y.set_knob(name, value).unwrap();
            (y.knobs(), common::all_records(y))
        })
    };
    let by_method = |set: fn(&Y<'_>)| {
        Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
            set(y);
            (y.knobs(), common::all_records(y))
        })
    };
    assert_eq!(
        by_name("min_free_kbytes", "4096"),
        by_method(|y| y.set_min_free_kbytes(4096).unwrap())
    );
    assert_eq!(
        by_name("watermark_scale_factor", "300"),
        by_method(|y| y.set_watermark_scale_factor(300).unwrap())
    );
    assert_eq!(
        by_name("watermark_boost_factor", "0"),
        by_method(|y| y.set_watermark_boost_factor(0).unwrap())
    );
    assert_eq!(
        by_name("lowmem_reserve_ratio", "256 256 32 7 -3"),
        by_method(|y| y.set_lowmem_reserve_ratio([256, 256, 32, 7, 0]))
    );
    assert_eq!(
        by_name("percpu_pagelist_high_fraction", "100"),
        by_method(|y| y.set_percpu_pagelist_high_fraction(100).unwrap())
    );
    assert_eq!(by_name("pcp_autotune", "0"), by_method(|y| y.set_pcp_autotune(false)));
    assert_ne!(by_name("pcp_autotune", "0"), by_name("pcp_autotune", "1"));
}

#[test]
fn s10_a_short_list_sets_its_first_numbers() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        y.set_knob("lowmem_reserve_ratio", "1\t2").unwrap();
        assert_eq!(read(y, "lowmem_reserve_ratio").unwrap(), "1 2 32 0 0");
        for bad in ["1 2 3 4 5 6", "1 x", ""] {
            assert!(y.set_knob("lowmem_reserve_ratio", bad).is_err());
            assert_eq!(y.knobs().lowmem_reserve_ratio, [1, 2, 32, 0, 0]);
        }
    });
}

#[test]
fn s10_the_order_of_zonelists_takes_the_old_names_and_does_nothing() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        for old in ["default", "D", "Node", "n"] {
            y.set_knob("numa_zonelist_order", old).unwrap();
            assert_eq!(read(y, "numa_zonelist_order").unwrap(), "Node");
        }
        assert!(y.set_knob("numa_zonelist_order", "Zone").is_err());
    });
}

/// A platform that counts how often background compaction was woken.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicU32);

impl Platform for Woken {}

impl Reclaim for Woken {
    fn wake_compaction(&self, _: pageyard::NodeId) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Observer for Woken {}
impl Defences for Woken {}

#[test]
fn s10_two_knobs_request_compaction() {
    let woken = Woken::default();
    let wakes = || woken.0.swap(0, std::sync::atomic::Ordering::Relaxed);
    Machine::normal(65536).run_on_under(
        any_hooks(&woken),
        LINUX612,
        |y: &pageyard::Yard<'_, Hooked<common::Lock, _, _>>| {
            // Two immovable pages, one of them cached: compact_memory drains.
            let pages = [(); 2].map(|()| y.alloc(o(0), Gfp::KERNEL).unwrap());
            y.free(pages[0], o(0)).unwrap();
            assert!(y.zone_info(ZONE).unwrap().cached > 0);
            y.set_knob("compact_memory", "1").unwrap();
            assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
            assert!(y.set_knob("compact_memory", "0").is_err());
            assert_eq!(wakes(), 0);
            y.set_knob("compaction_proactiveness", "0").unwrap();
            assert_eq!(wakes(), 0);
            y.set_knob("compaction_proactiveness", "30").unwrap();
            assert_eq!(wakes(), 1);
            // Writing the same value wakes compaction again.
            y.set_knob("compaction_proactiveness", "30").unwrap();
            assert_eq!(wakes(), 1);
            y.set_knob("extfrag_threshold", "600").unwrap();
            assert_eq!(wakes(), 0);
        },
    );
}

#[test]
fn s5_4_without_autotuning_high_stays_at_its_lower_limit() {
    let machine = Machine::normal(65536).cpus(&[0, 0]);
    machine.run(|y: &Y<'_>| {
        let limits = || y.pageset(ZONE, CPU).unwrap().limits;
        let tuned = limits();
        assert!(tuned.high_min < tuned.high_max);
        y.set_pcp_autotune(false);
        assert_eq!(limits(), tuned.fixed());
        assert_eq!(y.knobs().percpu_pagelist_high_fraction, 0, "the fraction is unchanged");
        // Traffic does not change high.
        let pages: Vec<_> = (0..5000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
        pages.into_iter().for_each(|p| y.free(p, o(0)).unwrap());
        assert_eq!(y.pageset(ZONE, CPU).unwrap().high, tuned.high_min);
        // A fraction sets another fixed high, and other settings leave auto-tuning off.
        y.set_percpu_pagelist_high_fraction(100).unwrap();
        assert_eq!((limits().high_min, limits().high_max), (327, 327));
        y.set_percpu_pagelist_high_fraction(0).unwrap();
        assert_eq!(limits(), tuned.fixed());
        y.set_watermark_scale_factor(1000).unwrap();
        assert_eq!(limits().high_min, limits().high_max);
        y.set_watermark_scale_factor(10).unwrap();
        y.set_pcp_autotune(true);
        assert_eq!(limits(), tuned);
        let pages: Vec<_> = (0..5000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
        pages.into_iter().for_each(|p| y.free(p, o(0)).unwrap());
        assert!(y.pageset(ZONE, CPU).unwrap().high > tuned.high_min, "auto-tuning is on again");
    });
    let off = machine.knobs(|k| k.pcp_autotune = false);
    off.run(|y: &Y<'_>| {
        let l = y.pageset(ZONE, CPU).unwrap().limits;
        assert_eq!(l.high_min, l.high_max, "off from the start");
    });
}

/// Limits of a caller's own may be equal: the lists still return what is above them.
#[test]
fn lists_with_equal_limits_are_bounded() {
    use pageyard::tuning::Limits;
    for rules in [LINUX612, &Base::RULES] {
        Machine::normal(65536).run_under(rules, |y: &Y<'_>| {
            assert!(y.set_pcp_limits(ZONE, Limits { batch: 63, high_min: 63, high_max: 63 }));
            let pages: Vec<_> = (0..5000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
            pages.into_iter().for_each(|pfn| y.free(pfn, o(0)).unwrap());
            assert!(y.pageset(ZONE, CPU).unwrap().count <= 2 * 63);
        });
    }
}

#[test]
fn overridden_limits_last_until_recomputation() {
    use pageyard::tuning::{Limits, MAX_BATCH};
    Machine::normal(65536).run(|y: &Y<'_>| {
        let computed = y.pageset(ZONE, CPU).unwrap().limits;
        let given = Limits { batch: 127, high_min: 254, high_max: 254 };
        assert!(y.set_pcp_limits(ZONE, given));
        assert_eq!(y.pageset(ZONE, CPU).unwrap().limits, given);
        // A refill takes one batch of that size.
        y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(y.pageset(ZONE, CPU).unwrap().count, 126);
        for wrong in [
            Limits { batch: 0, ..given },
            Limits { batch: MAX_BATCH + 1, ..given },
            Limits { high_min: -1, ..given },
            Limits { high_max: 253, ..given },
        ] {
            assert!(!y.set_pcp_limits(ZONE, wrong), "{wrong:?}");
        }
        assert!(!y.set_pcp_limits(ZoneKind::Movable, given), "the zone does not exist");
        assert_eq!(y.pageset(ZONE, CPU).unwrap().limits, given);
        y.set_min_free_kbytes(4096).unwrap();
        y.set_min_free_kbytes(2048).unwrap();
        assert_eq!(y.pageset(ZONE, CPU).unwrap().limits, computed);
    });
}
