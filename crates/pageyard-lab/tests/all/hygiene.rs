//! Whether memory of different mobility stays separate (spec §4.8, §4.10), round by round.

use std::sync::LazyLock;

use pageyard_lab::hygiene::{Assumed, HygieneError, Options, Report, run};

/// Computed once for the tests of this file: on half of the default heap it takes half of the time.
static REPORT: LazyLock<Report> = LazyLock::new(|| {
    run(&Options { rounds: 20, memory: 256 << 20, ..Options::default() }, &()).unwrap()
});

#[test]
fn s4_8_linux612_has_no_list_mismatch_and_vanilla_has() {
    let report = &*REPORT;
    let linux612 = report.linux612.summary();
    assert_eq!(linux612.type_check_failures, 0);
    assert_eq!(linux612.beyond_steals, 0);
    for (n, round) in report.linux612.rounds.iter().enumerate() {
        assert_eq!(round.mismatches, round.steals, "round {}", n + 1);
    }
    // The load was real: pageblocks changed their type.
    assert!(report.linux612.rounds.iter().map(|r| r.claims).sum::<u64>() > 0);

    // The same checks detect the defects where they exist.
    let vanilla = report.vanilla.summary();
    assert!(vanilla.type_check_failures > 0 && vanilla.beyond_steals > 0, "{vanilla:?}");

    // The requests do not depend on the policy, except for failures: a failed huge page becomes 512
    // small ones, and a process with fewer pages needs fewer to note them when it exits.
    for (v, l) in report.vanilla.rounds.iter().zip(&report.linux612.rounds) {
        assert_eq!(v.huge + v.huge_missed, l.huge + l.huge_missed);
        let [v_asked, l_asked] = [v, l].map(|r| r.requests - 512 * r.huge_missed);
        assert!(v_asked.abs_diff(l_asked) <= v.failed + l.failed, "{v:?} {l:?}");
    }
}

/// The shape of the published series (A.3): from round 14 on there is hardly a
/// steal with the patches, and no mismatch except by a steal. Without them mismatches continue.
#[test]
fn a_3_linux612_settles_by_round_14_and_vanilla_goes_on() {
    let report = &*REPORT;
    let late = |series: &pageyard_lab::hygiene::Series| series.rounds[13..].to_vec();
    for (n, round) in late(&report.linux612).iter().enumerate() {
        assert!(round.steals <= 3, "round {}: {round:?}", n + 14);
        assert_eq!(round.mismatches, round.steals, "round {}", n + 14);
    }
    let going_on = late(&report.vanilla).iter().filter(|r| r.mismatches > r.steals).count();
    assert!(going_on >= 5, "of 7 rounds: {:?}", late(&report.vanilla));
    // Memory was short, and types competed for whole pageblocks.
    let last = report.linux612.rounds.last().unwrap();
    assert!(last.reclaimed > 0 && last.huge > 0 && last.huge_missed > 0, "{last:?}");
}

#[test]
fn the_seed_determines_the_result() {
    let options = Options { rounds: 1, memory: 256 << 20, ..Options::default() };
    let of = |seed| run(&Options { seed, ..options }, &()).unwrap();
    let seven = of(7);
    assert_eq!(seven, of(7));
    assert_ne!(seven.linux612.rounds, of(8).linux612.rounds);
}

#[test]
fn options_out_of_range_are_named() {
    let with = |o: Options| run(&o, &()).unwrap_err();
    let small = Options { memory: 1 << 20, ..Options::default() };
    assert_eq!(with(small), HygieneError::Memory(1 << 20));
    assert!(with(small).to_string().contains("1 MiB"));
    assert_eq!(with(Options { rounds: 0, ..Options::default() }), HygieneError::NoRounds);
    for held in [0, 10] {
        let assumed = Assumed { held, ..Assumed::default() };
        assert_eq!(with(Options { assumed, ..Options::default() }), HygieneError::Held(held));
    }
}
