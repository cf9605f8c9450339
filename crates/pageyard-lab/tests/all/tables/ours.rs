//! Our own table: the changes it claims, and its rate of false alarms.

use pageyard_lab::result::{Better, Metric};
use pageyard_lab::table::{Form, Options, Report, Rule, Selection, Set, Source, false_alarms};
use pageyard_machine::Rng;

use super::{cascadelake, lower, metric, one, policies, report, result, simulated, source};

/// In the last row the t test of 2019 has a star with p = 0.0083 for two
/// clusters of times, whose medians could as well be in the other order.
#[test]
fn medians_have_intervals_and_changes_a_verdict() {
    let spread = |by: f64| (0..10).map(|i| by * (1.0 + f64::from(i) / 1000.0)).collect::<Vec<_>>();
    let trunc = |set: Set, column: usize| set.metrics[0].samples[column].clone();
    let column = |time, rate, near, trunc: Vec<f64>| {
        let mut metrics = vec![
            lower("time", &spread(time)),
            metric("rate", Better::Higher, &spread(rate)),
            lower("near", &spread(near)),
            lower("trunc", &trunc),
        ];
        metrics[0].unit = "ms".into();
        metrics
    };
    let set = policies(&[
        ("Base", column(100., 2e6, 50., trunc(cascadelake(), 0))),
        ("Step5", column(80., 1e6, 49.9, trunc(cascadelake(), 2))),
    ]);
    assert_eq!(
        report(&set, Form::Pageyard).to_string(),
        "\
test, on this host, seed 1, pageyard 0.1.0

median [95% interval]                                   Base                             Step5                                      change
time (ms, lower is better)           100.45 [100.10, 100.80]           80.360 [80.080, 80.640]  -20.00% [-20.32%, -19.68%] p<0.0001 better
rate (higher is better)     2 009 000 [2 002 000, 2 016 000]  1 004 500 [1 001 000, 1 008 000]   -50.00% [-50.20%, -49.80%] p<0.0001 worse
near (lower is better)               50.225 [50.050, 50.400]           50.125 [49.950, 50.299]          -0.20% [-0.60%, +0.20%] p=0.1051 ~
trunc (lower is better)                       540 [510, 540]                    505 [500, 520]     -6.48% [-7.41%, +1.96%] p=0.0282 ~ n=24
10 samples each; changes are relative to Base; p: Mann-Whitney, corrected by Holm over 4 comparisons of primary metrics; intervals of changes by bootstrap, seed 1
a change is reported where p < 0.05 and its whole interval is outside ±1%; ~: no change shown
n=: samples on each side that would show a difference as large as this one, with 80% probability
"
    );
}

/// Metrics that explain a result do not weaken the correction, and no change of theirs is claimed.
#[test]
fn the_correction_covers_primary_metrics_only() {
    let spread = |by: f64| (0..10).map(|i| by * (1.0 + f64::from(i) / 1000.0)).collect::<Vec<_>>();
    let column = |by: f64| -> Vec<Metric> {
        let names = ["time", "zone_lock", "hits-64", "Duration User"];
        names.iter().map(|name| lower(name, &spread(by))).collect()
    };
    let set = policies(&[("A", column(100.0)), ("B", column(120.0)), ("C", column(130.0))]);
    let compared = |set: &Set| {
        let json = serde_json::to_value(report(set, Form::Pageyard)).unwrap();
        let table = json["tables"][0]["table"].clone();
        let of = |line: &serde_json::Value| {
            let c = &line["cells"][1]["compared"];
            (c["p"].as_f64().unwrap(), c["p_holm"].as_f64(), c["verdict"].clone())
        };
        let lines: Vec<_> = table["lines"].as_array().unwrap().iter().map(of).collect();
        (table["comparisons"].as_u64().unwrap(), lines)
    };
    let (comparisons, lines) = compared(&set);
    assert_eq!(comparisons, 2, "time in two columns");
    assert!((lines[0].1.unwrap() / lines[0].0 - 2.0).abs() < 1e-9, "{lines:?}");
    assert_eq!(lines[0].2, "worse");
    for line in &lines[1..] {
        assert_eq!((line.1, &line.2), (None, &"unjudged".into()), "{lines:?}");
    }
    // Selected metrics are primary, and no other one remains.
    let selected = Selection::new(&["hits*", "zone_*"]).unwrap().of(vec![set]).unwrap();
    let (comparisons, lines) = compared(&selected[0]);
    assert_eq!((comparisons, lines.len()), (4, 2));
    assert!(lines.iter().all(|line| line.2 == "worse"), "{lines:?}");
}

/// Within the band no change is claimed, however small p is; a wider band claims less.
#[test]
fn the_band_limits_reported_changes() {
    let spread = |by: f64| (0..10).map(|i| by + f64::from(i) / 1000.0).collect::<Vec<_>>();
    let column = |by| vec![lower("time", &spread(by))];
    let set = policies(&[("A", column(100.0)), ("B", column(100.5)), ("C", column(103.0))]);
    let verdicts = |band| {
        let options = Options { rule: Rule { band, seed: 1 }, ..Options::default() };
        let json = serde_json::to_value(Report::new(std::slice::from_ref(&set), &options)).unwrap();
        let cells = json["tables"][0]["table"]["lines"][0]["cells"].as_array().unwrap().clone();
        assert!(cells[1]["compared"]["p_holm"].as_f64().unwrap() < 0.001);
        [1, 2].map(|i| cells[i]["compared"]["verdict"].as_str().unwrap().to_owned())
    };
    assert_eq!(verdicts(0.0), ["worse", "worse"]);
    assert_eq!(verdicts(0.01), ["nothing", "worse"]);
    assert_eq!(verdicts(0.05), ["nothing", "nothing"]);
}

/// Every form says that they are simulated.
#[test]
fn simulated_counts_are_compared_exactly() {
    let results = |a: f64, b: f64| vec![simulated("A", 7, &[a]), simulated("B", 7, &[b])];
    let text = |form, a, b| report(&one(&[source("a.json", results(a, b))]), form).to_string();
    let ours = text(Form::Pageyard, 1000.0, 1001.0);
    assert!(ours.contains("1 001  +0.10% exact ~\n"), "within the band: {ours}");
    assert!(ours.contains("a change is reported outside ±1%\n"), "{ours}");
    let ours = text(Form::Pageyard, 1000.0, 1011.0);
    assert!(ours.contains("1 011  +1.10% exact worse\n"), "{ours}");
    // One that varies is a sample, in a simulation too.
    let varying = |policy: &str, by: f64| simulated(policy, 7, &[by, by + 1.0]);
    let set = one(&[source("a.json", vec![varying("A", 100.0), varying("B", 200.0)])]);
    let ours = report(&set, Form::Pageyard).to_string();
    assert!(!ours.contains("exact") && ours.contains(" ~ n=6\n"), "{ours}");
    let ours = text(Form::Pageyard, 0.0, 3.0);
    assert!(ours.contains("from 0 exact worse\n"), "{ours}");
    let ours = text(Form::Pageyard, 5.0, 5.0);
    assert!(ours.contains("       =\n"), "{ours}");
    let ours = text(Form::Pageyard, 0.0, 0.0);
    assert!(ours.contains("       -\n") && ours.contains("-: nothing was counted"), "{ours}");
    for (name, form) in Form::ALL {
        let text = text(form, 1.0, 2.0);
        let heading = "test, simulated on two-nodes, seed 7, pageyard 0.1.0\n\n";
        assert!(text.starts_with(heading), "{name}: {text}");
    }
    // On a host a single sample supports no claim.
    let host = policies(&[("A", vec![lower("t", &[1.0])]), ("B", vec![lower("t", &[9.0])])]);
    let ours = report(&host, Form::Pageyard).to_string();
    assert!(ours.contains("+800.00% ~ n=4\n"), "{ours}");
}

/// Calibration: for samples from one distribution, each rule raises false alarms at its nominal
/// rate. Samples are log-normal, like times; the seed is 11.
#[test]
fn false_alarms_occur_at_the_nominal_rate() {
    let mut random = Rng::new(11);
    let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut draw = || {
        let normal = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
        (4.0 + 0.1 * normal).exp()
    };
    let mut column = || -> Vec<Metric> {
        (0..8)
            .map(|i| lower(&format!("m{i}"), &(0..10).map(|_| draw()).collect::<Vec<_>>()))
            .collect()
    };
    let sources: Vec<Source> =
        ["a.json", "b.json"].iter().map(|n| source(n, vec![result("A", column())])).collect();
    let set = one(&sources);
    // No band, so that only the test limits the claims.
    let rule = Rule { band: 0.0, seed: 5 };
    let a = false_alarms(&set, rule, 400).unwrap();
    println!("{a}");
    let rate = |name: &str| a.rates.iter().find(|r| r.rule == name).unwrap();
    // 3200 rows at 5 %: a standard error of 0.4 %. The count is exact, so it never exceeds the
    // rate; a discrete test loses some of it: 0.0432 for ten and ten.
    assert!((0.030..=0.055).contains(&rate("p < 0.05").rows), "{a}");
    assert!((0.085..=0.115).contains(&rate("mmtests-2019").rows), "{a}");
    // Holm's correction keeps a whole table at 5 % or less; three standard errors of 400 shuffles
    // are 3 %.
    assert!(rate("pageyard").tables <= 0.08 && rate("pageyard").rows <= 0.01, "{a}");
    assert!(rate("pageyard").tables > 0.0, "it raises some alarms: {a}");
    assert_eq!(rate("mmtests-2024").rows, 0.0, "{a}");
    // Without correction, a table of eight rows raises an alarm in every second to third case.
    assert!(rate("mmtests-2019").tables > 0.4, "{a}");

    // A drift between the two runs shows in the order as measured, not in shuffles.
    let drifted: Vec<Metric> = set
        .metrics
        .iter()
        .map(|m| {
            let slower: Vec<f64> = m.samples[1].iter().map(|x| x * 1.5).collect();
            lower(&m.name, &slower)
        })
        .collect();
    let set = one(&[sources[0].clone(), source("b.json", vec![result("A", drifted)])]);
    let a = false_alarms(&set, rule, 20).unwrap();
    assert_eq!(a.rates[0].measured, Some(8), "{a}");
    assert!(a.rates[0].rows < 0.05, "{a}");
}

#[test]
fn an_aa_run_requires_one_configuration() {
    let set = policies(&[("A", vec![lower("t", &[1.; 9])]), ("B", vec![lower("t", &[1.; 9])])]);
    let e = false_alarms(&set, Rule::default(), 10).unwrap_err().to_string();
    assert!(e.starts_with("a.json: test under B and test under A are not the same;"), "{e}");
    let few = policies(&[("A", vec![lower("t", &[1.; 3])])]);
    let e = false_alarms(&few, Rule::default(), 10).unwrap_err().to_string();
    assert!(e.starts_with("a.json: test has only 3 samples of a metric;"), "{e}");
}
