//! Blame: small traces whose cases are known, and a real one.

use std::io::Cursor;

use pageyard_lab::replay::{Blame, Input, MachineOptions, Options, TickPhase, by_name, why};
use serde_json::Value;

use crate::sample;

fn options(policy: Option<&str>) -> Options {
    Options {
        policies: policy.map(|p| by_name(p).unwrap()).into_iter().collect(),
        tick_phase: TickPhase::At(0.5),
        machine: MachineOptions {
            memory: Some(64 << 20),
            cpus: Some(2),
            ..MachineOptions::default()
        },
        ..Options::default()
    }
}

/// Explains events, each by task, microseconds and text.
fn blame(events: &[(&str, u64, &str)]) -> Blame {
    let line =
        |(task, us, event): &(&str, u64, &str)| format!("{task} [000] 10.{us:06}: {event}\n");
    let text: String = events.iter().map(line).collect();
    let input = Input::Stream("test".into(), Box::new(Cursor::new(text.into_bytes())));
    why(input, &options(Some("Linux612")), &mut |_, _, _| {}).unwrap()
}

fn json(blame: &Blame) -> Value {
    serde_json::to_value(blame).unwrap()
}

fn text(blame: &Blame, limit: usize) -> String {
    let mut out = Vec::new();
    blame.write(&mut out, limit).unwrap();
    String::from_utf8(out).unwrap()
}

const CLAIM: &str = "mm_page_alloc_extfrag: page=0x1 pfn=0x2100 alloc_order=0 fallback_order=4 \
                     pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=1 \
                     change_ownership=1";
const STEAL: &str = "mm_page_alloc_extfrag: page=0x1 pfn=0x2180 alloc_order=0 fallback_order=0 \
                     pageblock_order=9 alloc_migratetype=1 fallback_migratetype=0 fragmenting=1 \
                     change_ownership=0";

#[test]
fn a_recorded_claim_names_the_users_of_its_pageblock_and_the_types_it_had() {
    let b = blame(&[
        ("cc-7", 1, "mm_page_alloc: page=0x1 pfn=0x2000 order=3 migratetype=1 gfp_flags=0x8"),
        ("cc-8", 2, "mm_page_alloc: page=0x1 pfn=0x2008 order=2 migratetype=1 gfp_flags=0x8"),
        ("ld-9", 3, "mm_page_alloc: page=0x1 pfn=0x2010 order=0 migratetype=1 gfp_flags=0x8"),
        ("ld-9", 4, "mm_page_free: page=0x1 pfn=0x2010 order=0"),
        ("tar-5", 5, CLAIM),
        ("tar-5", 6, "mm_page_alloc: page=0x1 pfn=0x2100 order=0 migratetype=0 gfp_flags=0xcc0"),
        ("as-6", 7, STEAL),
    ]);
    assert_eq!(b.sides[0].counts(), [0, 0, 1, 1]);
    let all = json(&b);
    let side = &all["sides"][0];
    assert_eq!(side["counts"]["slow"], Value::Null, "no events of reclaim");
    let claim = &side["cases"][0];
    assert_eq!((&claim["what"], &claim["pfn"]), (&"claim".into(), &0x2100.into()));
    assert_eq!((&claim["pageblock"], &claim["zone"]), (&16.into(), &"DMA32".into()));
    assert_eq!(claim["task"], serde_json::json!({"comm": "tar", "pid": 5}));
    assert_eq!(claim["gfp"], 0xcc0, "from the request that follows");
    assert_eq!(claim["found"], serde_json::json!({"order": 4, "type": "Movable"}));
    // 12 pages of two processes, one page on a list; the taken page is not among them.
    let users = &claim["place"]["users"];
    assert_eq!((&users["free"], &users["listed"]), (&498.into(), &1.into()));
    let cc = &users["largest"][0];
    assert_eq!((&cc["pages"], &cc["request"]["tasks"]), (&12.into(), &2.into()));
    assert_eq!((&cc["request"]["comm"], &cc["request"]["type"]), (&"cc".into(), &"Movable".into()));
    assert_eq!(
        (&cc["first_ns"], &cc["last_ns"]),
        (&10_000_001_000u64.into(), &10_000_002_000u64.into())
    );
    assert_eq!(claim["place"]["types"][0]["type"], "Movable");
    // The claim is part of the history of the steal that follows.
    let steal = &side["cases"][1];
    assert_eq!((&steal["what"], &steal["type"]), (&"steal".into(), &"Movable".into()));
    let types = steal["place"]["types"].as_array().unwrap();
    assert_eq!(types.len(), 2);
    assert_eq!((&types[1]["type"], &types[1]["how"]), (&"Unmovable".into(), &"claimed".into()));
    assert_eq!(types[1]["task"], "tar (pid 5)");

    let printed = text(&b, 1);
    assert!(printed.contains("In the recording: 0 failed, slow not recorded, 1 claim, 1 steal"));
    assert!(printed.contains("12 pages by cc (2 tasks, such as pid 7), Movable"), "{printed}");
    assert!(printed.contains("1 case not shown; use --limit N"), "{printed}");
    assert!(printed.lines().all(|l| l.chars().count() <= 100), "{printed}");
}

const FAILED: &str = "mm_page_alloc: page=(nil) pfn=0x0 order=0 migratetype=0 gfp_flags=0x820";

/// The trace's folder says which events were enabled.
#[test]
fn enabled_events_that_did_not_happen_mean_no_slow_request() {
    let folder = std::env::temp_dir().join(format!("pageyard-why-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let trace = folder.join("trace.txt");
    let request = "mm_page_alloc: page=0x1 pfn=0x2000 order=0 migratetype=1 gfp_flags=0xcc8";
    std::fs::write(&trace, format!("a-1 [000] 10.000001: {request}\n")).unwrap();
    let explain = |events: &[&str]| {
        std::fs::write(folder.join("enabled_events"), events.join("\n")).unwrap();
        let input = Input::Path(trace.clone());
        text(&why(input, &options(Some("Linux612")), &mut |_, _, _| {}).unwrap(), 9)
    };
    let begin = "mm_vmscan_direct_reclaim_begin";
    let all = [begin, "mm_vmscan_direct_reclaim_end", "mm_compaction_try_to_compact_pages"];
    let (some, none) = (explain(&all[..2]), explain(&all));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(some.contains("In the recording: 0 failed, slow not recorded, "), "{some}");
    assert!(none.contains("In the recording: 0 failed, 0 slow, "), "{none}");
}

#[test]
fn a_slow_request_is_one_that_reclaims_or_compacts_before_it_is_served() {
    let request = "mm_page_alloc: page=0x1 pfn=0x2000 order=0 migratetype=1 gfp_flags=0xcc8";
    let b = blame(&[
        ("a-1", 1, "mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=0xcc8"),
        // Another task's request, and one within the reclaim, are not slow.
        ("b-2", 2, "mm_page_alloc: page=0x1 pfn=0x2001 order=0 migratetype=1 gfp_flags=0xcc8"),
        ("a-1", 3, "mm_page_alloc: page=0x1 pfn=0x2002 order=0 migratetype=1 gfp_flags=0xcc8"),
        ("a-1", 500, "mm_vmscan_direct_reclaim_end: nr_reclaimed=32"),
        ("a-1", 900, request),
        ("a-1", 901, "mm_page_alloc: page=0x1 pfn=0x2003 order=0 migratetype=1 gfp_flags=0xcc8"),
        ("c-3", 950, FAILED),
    ]);
    assert_eq!(b.sides[0].counts(), [1, 1, 0, 0]);
    assert!(b.has_efforts);
    let all = json(&b);
    let slow = &all["sides"][0]["cases"][0];
    assert_eq!((&slow["reason"], &slow["pfn"]), (&"reclaimed_or_compacted".into(), &0x2000.into()));
    assert_eq!((&slow["direct_reclaims"], &slow["took_ns"]), (&1.into(), &899_000.into()));
    let words = slow["text"].as_str().unwrap();
    assert!(
        words.contains("1 direct reclaim (32 pages freed, 499.0 µs), 899.0 µs in all"),
        "{words}"
    );
    // The failed request had a free block: all other memory is free.
    let failed = &all["sides"][0]["cases"][1];
    assert_eq!((&failed["what"], &failed["reason"]), (&"failed".into(), &"watermark".into()));
}

#[test]
fn names_in_a_trace_do_not_reach_the_terminal_unescaped() {
    let b = blame(&[("e\u{202e}vil-5", 5, CLAIM)]);
    let printed = text(&b, 9);
    assert!(!printed.contains('\u{202e}') && printed.contains("vil"), "{printed}");
}

#[test]
fn every_claim_of_a_real_trace_is_explained_and_a_replay_counts_the_same() {
    let input = || Input::Path(sample("kbuild.pgy"));
    let options = Options { machine: MachineOptions::default(), ..options(Some("Linux612")) };
    let b = why(input(), &options, &mut |_, _, _| {}).unwrap();
    let report = pageyard_lab::replay::replay(input(), &options, &mut |_, _, _| {}).unwrap();
    let figures = [*report.recorded, report.policies[0].figures];
    for (side, f) in b.sides.iter().zip(figures) {
        let [failed, _, claims, steals] = side.counts();
        assert_eq!((failed, claims, steals), (f.failed, f.claims, f.steals), "{}", side.name);
    }
    // Pages without a request are of two kinds there, allocated before and taken without an event.
    let printed = text(&b, 0);
    assert!(printed.contains("7 213 pages in 1 case: no request in the trace"), "{printed}");
    let all = json(&b);
    for side in all["sides"].as_array().unwrap() {
        for case in side["cases"].as_array().unwrap() {
            let place = &case["place"];
            let users = &place["users"];
            let used: u64 = users["largest"]
                .as_array()
                .unwrap()
                .iter()
                .map(|u| u["pages"].as_u64().unwrap())
                .sum();
            let sum = used
                + users["others"]["pages"].as_u64().unwrap()
                + users["free"].as_u64().unwrap()
                + users["listed"].as_u64().unwrap();
            let taken = 1 << case["order"].as_u64().unwrap();
            assert_eq!(sum + taken, place["pages"].as_u64().unwrap(), "{case}");
        }
    }
}
