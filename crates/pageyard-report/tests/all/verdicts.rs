//! The tuning's findings: each from a yard that a workload brings into that state, and the history
//! of `high` with the reasons of §5.4, §5.8, §5.10, §5.14.

use crate::common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::{Lock, Machine, Y, o};
use pageyard::policy::{Base, Linux612, StaticPolicy};
use pageyard::tuning::CacheSlice;
use pageyard::{
    CpuId, Defences, Event, Gfp, HighReason, Hooked, MigrateType, Observer, Pfn, Platform, Reclaim,
    Yard, ZoneId, ZoneKind,
};
use pageyard_report::{CpuSample, Finding, FixedBy, History, Noted, Ring, Verdict, verdicts};

const ZONE: ZoneKind = ZoneKind::Normal;
const SECOND: u64 = 1_000_000_000;

/// 256 MiB, two CPUs: batch 15, high from 320 to 4096.
fn machine() -> Machine {
    Machine::normal(65536).cpus(&[0, 0])
}

fn sample(y: &Y<'_>) -> Vec<CpuSample> {
    (0..y.cpus()).map(|c| CpuSample::of(y, ZONE, CpuId(c)).unwrap()).collect()
}

/// The verdicts over some work that takes this many seconds.
fn judge(y: &Y<'_>, seconds: u64, work: impl FnOnce()) -> Vec<Verdict> {
    let before = sample(y);
    work();
    let mut found = Vec::new();
    assert!(verdicts(y, ZONE, &before, &sample(y), seconds * SECOND, |v| found.push(v)));
    found
}

fn findings(verdicts: &[Verdict], cpu: u32) -> Vec<Finding> {
    verdicts.iter().filter(|v| v.cpu == CpuId(cpu)).map(|v| v.finding).collect()
}

/// The only finding about CPU 0.
fn only(verdicts: &[Verdict]) -> Finding {
    let found = findings(verdicts, 0);
    assert_eq!(found.len(), 1, "{verdicts:#?}");
    found[0]
}

fn take(y: &Y<'_>, n: usize, order: u8) -> Vec<Pfn> {
    (0..n).map(|_| y.alloc(o(order), Gfp::KERNEL).unwrap()).collect()
}

fn give(y: &Y<'_>, pages: Vec<Pfn>, order: u8) {
    pages.into_iter().for_each(|p| y.free(p, o(order)).unwrap());
}

/// Allocates and frees `n` blocks, `times` times.
fn swing(y: &Y<'_>, n: usize, order: u8, times: usize) {
    for _ in 0..times {
        let pages = take(y, n, order);
        give(y, pages, order);
    }
}

#[test]
fn settled_lists_are_reported() {
    machine().run(|y: &Y<'_>| {
        swing(y, 1000, 0, 3);
        let v = judge(y, 10, || {
            for _ in 0..10 {
                swing(y, 200, 0, 50);
                y.tick(CpuId(0));
            }
        });
        let Finding::Settled { hits, kept, high } = only(&v) else { panic!("{v:#?}") };
        assert!(hits >= 999 && kept >= 990 && high >= 320, "{v:?}");
        let text = v[0].to_string();
        assert!(text.starts_with("CPU 0 is settled: hit rate "), "{text}");
        assert_eq!(v[0].zone, ZoneId::from(ZONE));
        assert_eq!(findings(&v, 1), [], "a CPU that does nothing gets no verdict");
    });
}

#[test]
fn remote_frees_are_distinguished_from_a_low_high() {
    machine().run(|y: &Y<'_>| {
        let v = judge(y, 10, || {
            for _ in 0..10 {
                y.hooks().on(0);
                let pages = take(y, 1900, 0);
                y.hooks().on(1);
                give(y, pages, 0);
                y.tick(CpuId(0));
                y.tick(CpuId(1));
            }
        });
        let Finding::RemoteFrees { from, to, others, migrate_type, pages, refilled, drained } =
            only(&v)
        else {
            panic!("{v:#?}")
        };
        assert_eq!((from, to, others), (CpuId(0), CpuId(1), 1));
        assert_eq!((migrate_type, pages), (MigrateType::Unmovable, 1900));
        assert!((1900..2400).contains(&refilled) && (1400..1900).contains(&drained), "{v:?}");
        let text = v[0].to_string();
        let start = "CPU 0 refills and CPU 1 drains 1 900 pages/s of the same type (Unmovable): \
                     frees are remote; raising high will not help";
        assert!(text.starts_with(start), "{text}");
        // The verdict of CPU 0 names CPU 1, so CPU 1 only has other findings.
        assert!(findings(&v, 1).iter().all(|f| matches!(f, Finding::Stranded { .. })), "{v:#?}");
    });
}

#[test]
fn remote_frees_may_involve_many_cpus() {
    Machine::normal(65536).cpus(&[0; 5]).run(|y: &Y<'_>| {
        let v = judge(y, 1, || {
            for _ in 0..5 {
                y.hooks().on(0);
                let mut pages = take(y, 4000, 0);
                for cpu in 1..5 {
                    y.hooks().on(cpu);
                    give(y, pages.split_off(pages.len() - 1000), 0);
                }
            }
        });
        let Finding::RemoteFrees { from, to, others, pages, .. } = only(&v) else {
            panic!("{v:#?}")
        };
        assert_eq!((from, to, others, pages), (CpuId(0), CpuId(1), 4, 20_000));
        assert!(v[0].to_string().starts_with("CPU 0 refills and CPU 1 (and others) drains"));
        assert!(matches!(findings(&v, 3)[0], Finding::RemoteFrees { to: CpuId(3), .. }), "{v:#?}");
    });
}

#[test]
fn filling_memory_is_not_attributed_to_the_lists() {
    machine().run(|y: &Y<'_>| {
        let mut held = Vec::new();
        let v = judge(y, 2, || held = take(y, 10_000, 0));
        let one_way =
            |fills| Finding::OneWay { fills, migrate_type: MigrateType::Unmovable, pages: 5000 };
        assert_eq!(only(&v), one_way(true));
        let v = judge(y, 2, || give(y, held, 0));
        assert_eq!(findings(&v, 0)[0], one_way(false), "{v:#?}");
    });
}

#[test]
fn s5_10_reclaim_keeps_lists_short() {
    machine().run(|y: &Y<'_>| {
        y.set_reclaim_active(ZONE, true);
        let v = judge(y, 1, || swing(y, 500, 0, 20));
        let Finding::ReclaimActive { most, .. } = only(&v) else { panic!("{v:#?}") };
        assert_eq!(most, 60, "four batches");
    });
}

#[test]
fn s5_9_high_order_frees_drain_lists() {
    for (bytes, keeps) in [(0, false), (1 << 30, true)] {
        machine().run(|y: &Y<'_>| {
            y.set_cache_slice(CpuId(0), CacheSlice { last_level: bytes, all_levels: bytes });
            let v = judge(y, 1, || swing(y, 100, 3, 20));
            let Finding::FreeHighDrains { keeps_batch, pages, .. } = only(&v) else {
                panic!("{v:#?}")
            };
            assert_eq!(keeps_batch, keeps);
            assert!(pages > 5000, "{pages}");
            assert_eq!(v[0].to_string().contains("FREE_HIGH_BATCH is not set"), !keeps);
        });
    }
}

#[test]
fn a_fixed_high_is_reported_with_its_cause() {
    let fixed = |v: Vec<Verdict>| match only(&v) {
        Finding::PinnedLow { high, by, .. } => (high, by),
        _ => panic!("{v:#?}"),
    };
    machine().run(|y: &Y<'_>| {
        y.set_percpu_pagelist_high_fraction(300).unwrap();
        let v = judge(y, 1, || swing(y, 800, 0, 20));
        assert!(v[0].to_string().contains("percpu_pagelist_high_fraction = 300 fixes it"));
        assert_eq!(fixed(v), (109, FixedBy::Fraction(300)));
        y.set_percpu_pagelist_high_fraction(0).unwrap();
        y.set_pcp_autotune(false);
        let v = judge(y, 1, || swing(y, 800, 0, 20));
        assert_eq!(fixed(v), (320, FixedBy::Switch));
        let guard = y.disable_pcp(ZONE).unwrap();
        let v = judge(y, 1, || swing(y, 800, 0, 20));
        assert_eq!(fixed(v), (0, FixedBy::Disabled));
        drop(guard);
    });
    machine().run_under(&Base::RULES, |y| {
        let v = judge(y, 1, || swing(y, 800, 0, 20));
        assert_eq!(fixed(v), (320, FixedBy::Policy));
    });
    // Many CPUs share the zone, so both limits are four batches (§5.4).
    Machine::normal(16384).cpus(&[0; 256]).run(|y: &Y<'_>| {
        let v = judge(y, 1, || swing(y, 800, 0, 20));
        let limits = y.pageset(ZONE, CpuId(0)).unwrap().limits;
        assert_eq!(fixed(v), (4 * limits.batch, FixedBy::Size));
    });
}

#[test]
fn s5_8_below_the_high_watermark_lists_may_not_grow() {
    machine().run(|y: &Y<'_>| {
        y.set_watermark_scale_factor(100).unwrap();
        let mark = y.zone_info(ZONE).unwrap().watermarks[2];
        let mut held = Vec::new();
        while y.zone_info(ZONE).unwrap().free > mark {
            held.push(y.alloc(o(0), Gfp::KERNEL).unwrap());
        }
        let v = judge(y, 1, || {
            swing(y, 900, 0, 20);
            held.append(&mut take(y, 300, 0));
        });
        let Finding::BelowHigh { free, mark: told, high, .. } = only(&v) else { panic!("{v:#?}") };
        assert_eq!(told, mark);
        assert!(free < mark && high == y.pageset(ZONE, CpuId(0)).unwrap().limits.high_min);

        // The shortage has passed, and its cause cannot be observed any more.
        let v = judge(y, 1, || {
            swing(y, 900, 0, 20);
            give(y, std::mem::take(&mut held), 0);
            let now = y.pageset(ZONE, CpuId(0)).unwrap().count as usize;
            held = take(y, now, 0);
        });
        assert!(!findings(&v, 0).is_empty(), "{v:#?}");
    });
}

#[test]
fn requested_drains_are_reported() {
    machine().run(|y: &Y<'_>| {
        let v = judge(y, 1, || {
            for _ in 0..20 {
                swing(y, 100, 0, 1);
                // Another CPU drains, and counts it.
                y.hooks().on(1);
                y.drain_all(Some(ZONE.into()));
                y.hooks().on(0);
            }
        });
        let Finding::Requested { pages, .. } = only(&v) else { panic!("{v:#?}") };
        assert!((2000..6000).contains(&pages), "{pages}");
    });
}

#[test]
fn s5_14_bursts_that_outlast_the_decay_are_a_sawtooth() {
    machine().run(|y: &Y<'_>| {
        let v = judge(y, 300, || {
            for _ in 0..10 {
                swing(y, 2000, 0, 1);
                (0..30).for_each(|_| _ = y.tick(CpuId(0)));
            }
        });
        let Finding::Sawtooth { decayed, high, .. } = only(&v) else { panic!("{v:#?}") };
        assert!(decayed > 30 && high == 320, "{v:?}");
    });
}

#[test]
fn swings_beyond_the_limit_and_growth_are_reported() {
    machine().run(|y: &Y<'_>| {
        let v = judge(y, 1, || swing(y, 2000, 0, 1));
        let Finding::Growing { from: 0, to, .. } = only(&v) else { panic!("{v:#?}") };
        assert!(to > 2000, "room for all of it");
        let v = judge(y, 1, || swing(y, 12_000, 0, 5));
        let Finding::AtLimit { churn, high: 4096, high_max: 4096 } = only(&v) else {
            panic!("{v:#?}")
        };
        assert!(churn.pages > 60_000 && churn.refills > 20, "{churn:?}");
        // The same with ticks.
        let v = judge(y, 5, || {
            for _ in 0..5 {
                swing(y, 12_000, 0, 1);
                y.tick(CpuId(0));
            }
        });
        assert!(matches!(only(&v), Finding::AtLimit { .. }), "{v:#?}");
    });
}

#[test]
fn a_past_boost_leaves_lists_unsettled() {
    machine().run(|y: &Y<'_>| {
        swing(y, 2000, 0, 1);
        // Reclaim lowers high batch by batch, and has ended when the sample is taken.
        let v = judge(y, 1, || {
            y.set_reclaim_active(ZONE, true);
            swing(y, 500, 0, 20);
            y.set_reclaim_active(ZONE, false);
        });
        assert!(matches!(only(&v), Finding::Unsettled { .. }), "{v:#?}");
    });
}

#[test]
fn pages_on_a_cpu_that_allocates_none_are_stranded() {
    machine().run(|y: &Y<'_>| {
        y.hooks().on(1);
        swing(y, 3000, 0, 1);
        y.hooks().on(0);
        let work = || {
            for _ in 0..5 {
                swing(y, 200, 0, 10);
                y.tick(CpuId(0));
            }
        };
        let v = judge(y, 5, work);
        let [Finding::Stranded { pages, ticks: 0, .. }] = findings(&v, 1)[..] else {
            panic!("{v:#?}")
        };
        assert_eq!(pages, y.pageset(ZONE, CpuId(1)).unwrap().count);
        assert!(pages >= 3000);
        // Ticks drain the stranded pages.
        (0..40).for_each(|_| _ = y.tick(CpuId(1)));
        assert_eq!(findings(&judge(y, 5, work), 1), []);
    });
}

#[test]
fn missing_ticks_are_reported() {
    machine().run(|y: &Y<'_>| {
        swing(y, 2000, 0, 2);
        let missing =
            |v: &[Verdict]| findings(v, 0).iter().any(|f| matches!(f, Finding::TickMissing { .. }));
        let v = judge(y, 5, || swing(y, 2000, 0, 50));
        assert!(missing(&v), "{v:#?}");
        assert!(
            matches!(findings(&v, 0)[0], Finding::Settled { .. }),
            "and it is settled nevertheless"
        );
        assert!(!missing(&judge(y, 2, || swing(y, 2000, 0, 50))), "too short to tell");
        y.set_knob("stat_interval", "10").unwrap();
        assert!(!missing(&judge(y, 5, || swing(y, 2000, 0, 50))), "no tick was due");
        y.set_knob("stat_interval", "1").unwrap();
        let v = judge(y, 5, || {
            swing(y, 2000, 0, 50);
            y.tick(CpuId(0));
        });
        assert!(!missing(&v), "{v:#?}");
    });
}

#[test]
fn an_unknown_zone_has_no_verdicts() {
    machine().run(|y: &Y<'_>| {
        assert!(!verdicts(y, ZoneKind::Dma, &[], &[], SECOND, |v| panic!("{v}")));
        assert!(verdicts(y, ZONE, &[], &sample(y), SECOND, |v| panic!("{v}")));
        assert_eq!(CpuSample::of(y, ZONE, CpuId(2)), None);
    });
}

/// A platform that keeps a history; its clock counts the changes.
struct Recorder<'h> {
    cpu: AtomicU32,
    history: History<'h, Lock, 8>,
}

impl Platform for Recorder<'_> {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }
}

impl Reclaim for Recorder<'_> {}

impl Observer for Recorder<'_> {
    const SEES_TUNING: bool = true;

    fn event(&self, cpu: CpuId, event: Event) {
        self.history.note(1, cpu, &event);
    }
}

impl Defences for Recorder<'_> {}

type Recorded<'y, 'r, 'h> = Yard<'y, Hooked<Lock, &'r Recorder<'h>, Linux612>>;

/// Runs `f` on a yard that records the changes of `high`.
fn recorded(f: impl FnOnce(&Recorded<'_, '_, '_>)) {
    let zones = [ZoneId::from(ZONE)];
    let rings: Vec<_> = (0..2).map(|_| lock_api::Mutex::new(Ring::new())).collect();
    let history = History::new(&zones, 2, &rings).unwrap();
    let recorder = Recorder { cpu: AtomicU32::new(0), history };
    machine().run_on(&recorder, |y: &Recorded<'_, '_, '_>| f(y));
}

fn ring(y: &Recorded<'_, '_, '_>, cpu: u32) -> Ring<8> {
    y.hooks().history.read(ZONE, CpuId(cpu)).unwrap()
}

/// The last change of CPU 0.
fn last(y: &Recorded<'_, '_, '_>) -> (i32, i32, HighReason) {
    let ring = ring(y, 0);
    let (_, c) = ring.iter().last().unwrap();
    (c.from, c.to, c.reason)
}

#[test]
fn every_change_of_high_is_reported_with_its_reason() {
    recorded(|y| {
        let alloc = |n: usize, order: u8| -> Vec<Pfn> {
            (0..n).map(|_| y.alloc(o(order), Gfp::KERNEL).unwrap()).collect()
        };
        let free = |pages: Vec<Pfn>, order: u8| {
            pages.into_iter().for_each(|p| y.free(p, o(order)).unwrap());
        };
        // §5.4: high starts at 0 and follows its limits first; §5.8: then the refill's room.
        let first = alloc(1, 0);
        let changes: Vec<Noted> = ring(y, 0).iter().copied().collect();
        let told: Vec<_> = changes.iter().map(|(_, c)| (c.from, c.to, c.reason)).collect();
        assert_eq!(told, [(0, 320, HighReason::Limits), (320, 335, HighReason::Refill)]);
        assert_eq!((changes[1].1.refills, changes[1].1.count), (0, 0), "before it is there");

        // §5.10: more pages are freed in a row than the list holds.
        free(first, 0);
        let many = alloc(4000, 0);
        assert_eq!(last(y).2, HighReason::Refill);
        y.tick(CpuId(0));
        let (from, to, reason) = last(y);
        assert_eq!((from - (from >> 3), HighReason::Decay), (to, reason), "§5.14");
        (0..30).for_each(|_| _ = y.tick(CpuId(0)));
        assert_eq!((last(y).1, last(y).2), (320, HighReason::Decay));
        let noted = ring(y, 0).noted();
        y.tick(CpuId(0));
        assert_eq!(ring(y, 0).noted(), noted, "without a change nothing is recorded");
        free(many, 0);
        assert_eq!(last(y).2, HighReason::Free, "§5.10");
        let drains = ring(y, 0).iter().last().unwrap().1.drains;
        assert!(drains > 0, "{drains}");

        // §5.10 under pressure.
        let some = alloc(400, 0);
        y.set_reclaim_active(ZONE, true);
        free(some, 0);
        assert_eq!(last(y).2, HighReason::Reclaim);
        y.set_reclaim_active(ZONE, false);

        // §5.9: a run of high-order frees.
        let blocks = alloc(300, 3);
        free(blocks, 3);
        assert!(ring(y, 0).count(HighReason::FreeHigh) > 0);

        // §5.4: a lower limit is followed at the next use.
        let _ = alloc(4000, 0);
        assert!(last(y).1 > 320);
        y.set_pcp_autotune(false);
        let _ = alloc(4000, 0);
        assert_eq!((last(y).1, last(y).2), (320, HighReason::Limits));
        assert_eq!(ring(y, 1).noted(), 0, "the other CPU did nothing");
        // The current value is the last one recorded.
        assert_eq!(last(y).1, y.pageset(ZONE, CpuId(0)).unwrap().high);
    });
}

#[test]
fn below_the_high_watermark_high_shrinks_with_that_reason() {
    recorded(|y| {
        y.set_watermark_scale_factor(100).unwrap();
        let mark = y.zone_info(ZONE).unwrap().watermarks[2];
        let mut held: Vec<Pfn> = (0..5000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
        while y.zone_info(ZONE).unwrap().free >= mark {
            held.push(y.alloc(o(0), Gfp::KERNEL).unwrap());
        }
        held.push(y.alloc(o(10), Gfp::KERNEL).unwrap_or(Pfn(0)));
        held.pop();
        for p in held.drain(..1000) {
            y.free(p, o(0)).unwrap();
        }
        assert!(ring(y, 0).count(HighReason::BelowHigh) > 0, "{:?}", ring(y, 0));
    });
}

/// The recorded `high` always equals the actual one: fast paths change nothing unrecorded.
#[test]
fn the_history_is_complete() {
    recorded(|y| {
        let mut owned = Vec::new();
        let mut rng = 7u64;
        for step in 0..30_000u64 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let r = rng >> 33;
            let cpu = (r >> 8) % 2;
            y.hooks().cpu.store(cpu as u32, Relaxed);
            let grow = step / 3000 % 2 == 0;
            if (r % 8 < 5) == grow {
                let order = [0, 0, 0, 1, 2, 3, 9, 0][(r >> 4) as usize % 8];
                if let Ok(p) = y.alloc(o(order), Gfp::KERNEL) {
                    owned.push((p, o(order)));
                }
            } else if let Some((p, order)) = owned.pop() {
                y.free(p, order).unwrap();
            }
            match r % 500 {
                0 => _ = y.tick(CpuId(cpu as u32)),
                1 => y.drain_all(None),
                2 => _ = y.set_reclaim_active(ZONE, r & 512 != 0),
                3 => y.set_pcp_autotune(r & 512 != 0),
                _ => {}
            }
            for cpu in 0..2 {
                let told = ring(y, cpu).iter().last().map_or(0, |(_, c)| c.to);
                assert_eq!(told, y.pageset(ZONE, CpuId(cpu)).unwrap().high, "step {step}");
            }
        }
        assert!(ring(y, 0).noted() > 100 && ring(y, 1).noted() > 100);
    });
}
