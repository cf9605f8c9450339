//! Which results a table may compare, and which it refuses.

use pageyard_lab::result::{Better, RunResult, World};
use pageyard_lab::table::{Form, OurTable, Rule, Set, Source, align};
use pageyard_lab::track::{HeapTrack, ListTrack, Track, WaitTrack};

use super::{lower, one, policies, report, result, simulated, source};

/// Runs of one policy with several seeds are samples of one column.
#[test]
fn runs_are_combined() {
    let runs = (0..8).flat_map(|s| [simulated("A", s, &[1.0]), simulated("B", s, &[s as f64])]);
    let set = one(&[source("a.json", runs.collect())]);
    assert_eq!(set.metrics[0].samples[1], [0., 1., 2., 3., 4., 5., 6., 7.]);
    assert!(set.to_string().contains("8 seeds from 0 to 7"), "{set}");
}

/// Parameters form separate sets if one file has several values, and are noted if each file has
/// one.
#[test]
fn differing_parameters_make_sets_or_are_noted() {
    let with = |policy: &str, batch: &str| {
        let mut r = result(policy, vec![lower("t", &[1.0])]);
        r.parameters = [("batch".into(), batch.into()), ("cpus".into(), "8".into())].into();
        r
    };
    let a = source(
        "a.json",
        vec![with("A", "63"), with("A", "127"), with("B", "127"), with("B", "63")],
    );
    let sets = align(std::slice::from_ref(&a)).unwrap();
    let titles: Vec<String> = sets.iter().map(Set::title).collect();
    assert_eq!(titles, ["test batch=63 cpus=8", "test batch=127 cpus=8"]);
    let set =
        one(&[source("x.json", vec![with("A", "63")]), source("y.json", vec![with("A", "127")])]);
    assert_eq!(
        set.to_string(),
        "test cpus=8, on this host, seed 1, pageyard 0.1.0\n  x: batch=63\n  y: batch=127"
    );
    let e = align(&[a, source("b.json", vec![with("A", "63")])]).unwrap_err().to_string();
    assert!(
        e.starts_with("b.json: policy A: workload test with batch=127 cpus=8 is missing"),
        "{e}"
    );
}

/// Engines have metrics of their own: what both have is compared, what only one has is named.
#[test]
fn metrics_of_one_side_are_named() {
    let set = policies(&[
        ("A", vec![lower("old", &[1.; 6]), lower("t", &[4.; 6])]),
        ("B", vec![lower("t", &[2.; 6]), lower("new", &[3.; 6]), lower("more", &[0.; 6])]),
        ("C", vec![lower("more", &[5.; 6]), lower("t", &[2.; 6])]),
    ]);
    let names: Vec<&str> = set.metrics.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["old", "t", "new", "more"]);
    let n = |m: &pageyard_lab::table::Row| m.samples.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(set.metrics.iter().map(n).collect::<Vec<_>>()[..2], [[6, 0, 0], [6, 6, 6]]);
    let only = "only in A: old\nonly in B: new\nonly in B, C: more\n";
    for (name, form) in Form::ALL {
        let report = report(&set, form);
        let text = report.to_string();
        assert!(text.ends_with(only), "{name}: {text}");
        let shown = |m: &str| report.csv().contains(&format!(",{m},"));
        assert!(shown("t"), "{name}");
        let all = matches!(form, Form::Pageyard | Form::Series);
        assert_eq!(["old", "new", "more"].map(shown), [all; 3], "{name}");
    }
    let ours = report(&set, Form::Pageyard);
    let text = ours.to_string();
    let row = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    let cells = |start: &str| row(start).split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(cells("old ")[4..], ["1", "[1,", "1]", "-", "-", "-", "-"]);
    assert_eq!(cells("new ")[4..], ["-", "3", "[3,", "3]", "-", "-", "-"]);
    assert!(row("t ").contains("2 [2, 2]  -50.00% [-50.00%, -50.00%] p=0.0043 better"), "{text}");
    let json = serde_json::to_value(&ours).unwrap();
    let cell = &json["tables"][0]["table"]["lines"][0]["cells"][1];
    assert_eq!((&cell["n"], &cell["median"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(cell["compared"], serde_json::Value::Null);
    let csv = ours.csv();
    assert!(csv.contains(",old,,lower,B,0,,,,,,,,,,,true\n"), "{csv}");
}

/// An error names the file, the place and the fix.
#[test]
fn errors_name_file_place_and_fix() {
    let fails = |a: RunResult, b: RunResult| {
        let e = align(&[source("a.json", vec![a]), source("b.json", vec![b])]).unwrap_err();
        assert!(e.to_string().contains("; "), "{e}");
        e.to_string()
    };
    let good = || result("A", vec![lower("t", &[1.0])]);
    let changed = |change: fn(&mut RunResult)| {
        let mut r = good();
        change(&mut r);
        r
    };
    for (change, begins) in [
        (
            (|r| r.metrics[0].samples[0] = Some(f64::NAN)) as fn(&mut RunResult),
            "b.json: workload test under A: metric t: sample 1 is NaN",
        ),
        (|r| r.metrics[0].samples.clear(), "b.json: workload test under A: metric t: no samples"),
        (|r| r.metrics.clear(), "b.json: workload test under A: no metrics"),
        (
            |r| r.metrics.push(r.metrics[0].clone()),
            "b.json: workload test under A: metric t: occurs twice",
        ),
        (
            |r| r.workload = "other".into(),
            "b.json: workload other under A: no such workload in the base, a.json",
        ),
        (
            |r| r.metrics[0].name = "u".into(),
            "b.json: workload test under A: no metric in common with the base, a.json: policy A",
        ),
        (
            |r| r.metrics[0].better = Better::Higher,
            "b.json: workload test under A: metric t: in \"\" with Higher better",
        ),
        (
            |r| r.world = World::Simulated("desktop".into()),
            "b.json: policy A: simulated, but a.json: policy A was measured on a host",
        ),
    ] {
        let e = fails(good(), changed(change));
        assert!(e.starts_with(begins), "{e}");
    }
    // The base of a metric may be any column before.
    let in_units = |unit: &str| {
        let mut r = good();
        r.metrics.push(lower("u", &[1.0]));
        r.metrics[1].unit = unit.into();
        r
    };
    let sources = [good(), in_units("s"), in_units("ms")].map(|r| vec![r]);
    let sources: Vec<Source> =
        ["a.json", "b.json", "c.json"].iter().zip(sources).map(|(n, r)| source(n, r)).collect();
    let e = align(&sources).unwrap_err().to_string();
    assert!(
        e.starts_with("c.json: workload test under A: metric u: in \"ms\" with Lower better, but"),
        "{e}"
    );
    let twice = source("a.json", vec![simulated("A", 7, &[1.0]), simulated("A", 7, &[1.0])]);
    let e = align(&[twice]).unwrap_err().to_string();
    assert!(e.starts_with("a.json: workload test under A: seed 7 occurs twice"), "{e}");

    for (text, says) in [
        ("", "a.json: EOF while parsing"),
        ("[]", "a.json: no results"),
        (
            "[{\"workload\": 3}]",
            "a.json: invalid type: integer `3`, expected a string at line 1 column 15",
        ),
    ] {
        let e = Source::parse("a.json".into(), text).unwrap_err().to_string();
        assert!(e.starts_with(says), "{e}");
    }
}

/// An average over nothing is stored as null, and is no sample.
#[test]
fn nothing_counted_is_no_sample() {
    let counted = |policy: &str, samples: &[Option<f64>]| {
        let mut r = result(policy, vec![lower("time", &[4.0, 5.0]), lower("hold", &[0.0])]);
        r.metrics[1].samples = samples.to_vec();
        let saved = serde_json::to_string(&r).unwrap();
        Source::parse(format!("{policy}.json"), &saved).unwrap()
    };
    let sources = [
        counted("A", &[None, None]),
        counted("B", &[Some(2.0), None]),
        counted("C", &[Some(2.0), Some(3.0)]),
    ];
    assert!(serde_json::to_string(&sources[1].results).unwrap().contains("[2.0,null]"));
    let set = &align(&sources).unwrap()[0];
    assert_eq!(set.metrics[1].samples, [vec![], vec![2.0], vec![2.0, 3.0]]);
    let table = OurTable::new(set, Rule::default()).to_string();
    let hold = table.lines().find(|line| line.starts_with("hold ")).unwrap();
    assert_eq!(
        hold.split_whitespace().collect::<Vec<_>>(),
        ["hold", "(lower", "is", "better)", "-", "2", "-", "2.5000", "-"],
        "{table}"
    );
    let json = serde_json::to_value(OurTable::new(set, Rule::default())).unwrap();
    assert!(json["lines"][1]["cells"][0]["median"].is_null(), "{json}");
}

/// Tracks that no run could record: a picture of them would be empty or impossible.
#[test]
fn tracks_are_consistent() {
    let list = || ListTrack {
        high: vec![1, 2],
        count: vec![1, 2],
        refills: vec![0, 3],
        drains: vec![0, 0],
        ..ListTrack::default()
    };
    let heap = || HeapTrack {
        times_ns: vec![0, 5],
        in_use: vec![1, 2],
        frames: vec!["0f10".into(), "1f10".into()],
        ..HeapTrack::default()
    };
    let track =
        || Track { times_ns: vec![0, 5], lists: vec![list()], heap: heap(), ..Track::default() };
    let check = |change: fn(&mut Track)| {
        let mut tracks = vec![track()];
        change(&mut tracks[0]);
        source("a.json", vec![RunResult { tracks, ..simulated("A", 1, &[1.0]) }]).check()
    };
    check(|_| ()).unwrap();
    for (change, says) in [
        ((|t| t.times_ns = vec![5, 0]) as fn(&mut Track), "times_ns are not in order"),
        (|t| t.lists[0].high.push(1), "lists/0/high has 3 values for 2 times"),
        (|t| t.heap.in_use.clear(), "heap/in_use has 0 values for 2 times"),
        (|t| t.heap.frames[0].clear(), "heap/frames/0 is not a map"),
        (|t| t.heap.frames[1].push('1'), "heap/frames/1 is not a map"),
        (|t| t.heap.frames[1] = "ZZ10".into(), "heap/frames/1 is not a map"),
        (|t| t.heap.frames[1] = "9f10".into(), "heap/frames/1 has a cell of type 9"),
        (
            |t| {
                t.zone_wait =
                    Some(WaitTrack { waiting_cpus: vec![0.0, -1.0], ..WaitTrack::default() })
            },
            "zone_wait/waiting_cpus/1 is not a number of CPUs",
        ),
    ] {
        let e = check(change).unwrap_err().to_string();
        let begins = format!("a.json: workload test under A: track 1: {says}");
        assert!(e.starts_with(&begins), "{e}");
    }
}

/// Saved results are read back unchanged.
#[test]
fn saved_results_are_read_back() {
    let r = simulated("Vanilla<Base>", 1, &[0.1, 1e-300, 5e9]);
    let one = serde_json::to_string(&r).unwrap();
    assert_eq!(Source::parse("a".into(), &one).unwrap().results, std::slice::from_ref(&r));
    let many = serde_json::to_string(&[&r, &r]).unwrap();
    assert_eq!(Source::parse("a".into(), &many).unwrap().results, [r.clone(), r]);
}
