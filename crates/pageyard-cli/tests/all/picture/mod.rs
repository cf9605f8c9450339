//! Pages and plots: every figure equals the JSON's, no resource is loaded from elsewhere, and a
//! real browser agrees (if Chromium is installed).

mod browser;
mod page;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use page::{Page, check};
use serde_json::Value;

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let name = format!("pageyard-picture-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pageyard(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(crate::PROGRAM);
    command.args(args).current_dir(&folder.0).output().unwrap()
}

pub(crate) fn ok(folder: &Folder, args: &[&str]) -> String {
    let o = pageyard(folder, args);
    assert_eq!(o.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A small workload with several points.
pub(crate) const FAULTS: [&str; 12] = [
    "run",
    "page_fault1",
    "--on",
    "machine:desktop",
    "--memory",
    "1G",
    "--set",
    "processes=1,2,4",
    "--set",
    "pages=2500",
    "--policy",
    "Base,Linux612",
];

pub(crate) fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/kbuild.pgy")
}

#[test]
fn a_run_as_a_page() {
    let folder = Folder::new("run");
    let run = [&FAULTS[..], &["--iterations", "7", "-o", "f.json", "--html", "f.html"]].concat();
    assert_eq!(ok(&folder, &run), "");
    let saved = json(&std::fs::read_to_string(folder.0.join("f.json")).unwrap());
    let page = Page::read(&folder.0.join("f.html"));
    assert_eq!(page.data["results"], saved);
    assert_eq!(saved[0]["tracks"].as_array().unwrap().len(), 3, "a track for each point");
    // The table equals that of compare.
    let compared = json(&ok(&folder, &["compare", "f.json", "--json"]));
    assert_eq!(page.data["report"]["tables"][0]["table"], compared["tables"][0]["table"]);

    let found = check(&page);
    // For each of three points and two policies: count, high, refills, drains, two of waiting, latency.
    assert!(found.numbers > 300 && found.paths == 3 * 2 * 7, "{found:?}");
    // Three points, for each: count and high, refills and drains, waiting, latency, waiting by CPU,
    // the heap; and one scaling.
    let figures =
        |name: &str| page.tags_with("data-figure").filter(|t| t["data-figure"] == name).count();
    assert_eq!(
        ["scaling", "lists", "moves", "waiting", "waiting-by-cpu", "latency", "heap"].map(figures),
        [1, 3, 3, 3, 3, 3, 3]
    );
    assert!(page.text.contains("simulated on desktop"));
    assert!(page.text.contains("pageyard run page_fault1 --on machine:desktop"));

    // Both policies have the same lists.
    for point in 0..3 {
        let lists = |policy: usize| -> Vec<String> {
            let all = saved[policy]["tracks"][point]["lists"].as_array().unwrap().iter();
            all.map(|l| format!("{} {} {}", l["cpu"], l["node"], l["zone"])).collect()
        };
        assert!(!lists(0).is_empty() && lists(0) == lists(1), "point {point}");
    }

    // The saved file gives the same page. Without recorded tracks, only the figures that do not
    // need them remain.
    ok(&folder, &["compare", "f.json", "--html", "again.html"]);
    let again = Page::read(&folder.0.join("again.html"));
    assert_eq!(again.data["results"], saved);
    assert_eq!(check(&again).paths, found.paths);
    ok(&folder, &[&FAULTS[..], &["-o", "plain.json"]].concat());
    let plain = json(&std::fs::read_to_string(folder.0.join("plain.json")).unwrap());
    assert!(plain[0].get("tracks").is_none());
    ok(&folder, &["compare", "plain.json", "--form", "mmtests-2019", "--html", "plain.html"]);
    let plain = Page::read(&folder.0.join("plain.html"));
    check(&plain);
    assert!(plain.tags_with("data-heap").next().is_none());
}

#[test]
fn a_replay_as_a_page() {
    let folder = Folder::new("replay");
    let sample = sample();
    let trace = sample.to_str().unwrap();
    let args = ["replay", trace, "--seeds", "1", "--policy", "Base,Linux612", "--html", "r.html"];
    let printed = json(&ok(&folder, &[&args[..], &["--json"]].concat()));
    let page = Page::read(&folder.0.join("r.html"));
    assert_eq!(page.data["replay"], printed);
    let found = check(&page);
    assert!(found.numbers > 40 && found.paths >= 8, "{found:?}");
    assert!(page.tags_with("data-heap").count() == 3, "the recording's and two policies'");
    // Every policy has the same lists, with curves; of the recording `high` is not known.
    let lists = |track: &Value| -> Vec<String> {
        let all = track["lists"].as_array().unwrap().iter();
        all.map(|l| format!("{} {} {}", l["cpu"], l["node"], l["zone"])).collect()
    };
    let recorded = &page.data["replay"]["recorded_track"];
    for policy in page.data["replay"]["policies"].as_array().unwrap() {
        assert_eq!(lists(recorded), lists(&policy["track"]));
    }
    assert!(recorded["lists"].as_array().unwrap().iter().all(|l| l["high"] == json("[]")));
    assert!(page.text.contains("recorded (high is not recorded)"));
    assert!(page.text.contains(">not recorded</"), "a row without an event");
    for figure in ["free", "orders"] {
        let found = page.tags_with("data-figure").filter(|t| t["data-figure"] == figure);
        assert!(found.count() >= 1, "{figure}");
    }
    // Pages in free blocks of all orders are the free pages, at every time.
    for zone in recorded["zones"].as_array().unwrap() {
        let numbers = |v: &Value| -> Vec<u64> {
            v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
        };
        let mut sum = vec![0; numbers(&zone["free"]).len()];
        for order in zone["pages_by_order"].as_array().unwrap() {
            sum.iter_mut().zip(numbers(order)).for_each(|(s, n)| *s += n);
        }
        assert_eq!(sum, numbers(&zone["free"]));
    }
    // What the terminal says of the start and of the accuracy.
    assert!(
        page.text.contains("for the recording kernel; relative to the recording")
            && page.text.contains("  start    ")
    );
    // Without a picture nothing is recorded, and the JSON is unchanged.
    let plain = ok(&folder, &["replay", trace, "--seeds", "1", "--policy", "Base", "--json"]);
    assert!(!plain.contains("\"track\""));
}

#[test]
fn a_timeline_is_written_whole_or_not_at_all() {
    let folder = Folder::new("timeline");
    let sample = sample();
    let trace = sample.to_str().unwrap();
    let args = ["replay", trace, "--seeds", "1", "--policy", "Linux612"];
    let plain = ok(&folder, &args);
    let printed = ok(&folder, &[&args[..], &["--perfetto", "t.pftrace"]].concat());
    assert_eq!(printed, plain, "the table is the same");
    let bytes = std::fs::read(folder.0.join("t.pftrace")).unwrap();
    assert_eq!(bytes[0], 0x0a, "Trace.packet");
    let failed = pageyard(&folder, &["replay", "nope.pgy", "--perfetto", "nope.pftrace"]);
    assert_eq!(failed.status.code(), Some(2));
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(left, 1, "nothing but the complete file");
}

#[test]
fn untrusted_names_are_escaped() {
    let folder = Folder::new("names");
    let evil = "</script><script>alert(1)</script>\"'&<b>";
    let result = |policy: &str, value: f64| {
        serde_json::json!({
            "workload": evil, "parameters": {evil: evil}, "policy": policy,
            "world": {"host": evil}, "seed": 1, "version": evil,
            "metrics": [{"name": evil, "unit": evil, "better": "lower",
                         "samples": [value, value + 1.0, value + 2.0]}],
        })
    };
    let results = serde_json::json!([result(evil, 1.0), result("other", 2.0)]);
    std::fs::write(folder.0.join("<evil>.json"), results.to_string()).unwrap();
    ok(&folder, &["compare", "<evil>.json", "--html", "evil.html", "--svg", "evil.svg"]);
    let page = Page::read(&folder.0.join("evil.html"));
    assert_eq!(page.data["results"], results);
    check(&page);
    assert!(page.tags.iter().all(|t| t[""] != "b"));
    let said = page.tags_with("class").any(|t| t["class"] == "simulated");
    assert!(!said && !page.text.contains("virtual time"), "it was measured");
    let svg = std::fs::read_to_string(folder.0.join("evil.svg")).unwrap();
    assert!(!svg.contains("<script") && !svg.contains("<b>"), "{svg}");
}

#[test]
fn single_plots() {
    let folder = Folder::new("svg");
    ok(&folder, &[&FAULTS[..], &["--iterations", "6", "--record", "-o", "f.json"]].concat());
    for plot in ["scaling", "lists", "moves", "waiting", "waiting-by-cpu", "latency", "heap"] {
        ok(&folder, &["compare", "f.json", "--svg", "p.svg", "--plot", plot]);
        let svg = std::fs::read_to_string(folder.0.join("p.svg")).unwrap();
        assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{plot}");
        assert!(svg.contains("simulated on desktop"), "{plot}");
        let (open, close) = (svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert!(open > 1 && open == close, "{plot}: {open} {close}");
    }
    let says = |args: &[&str], text: &str| {
        let o = pageyard(&folder, args);
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!(o.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(text), "{args:?}: {err}");
    };
    says(
        &["compare", "f.json", "--svg", "x.svg", "--plot", "pie"],
        "scaling, dots, beside, rounds",
    );
    says(&["compare", "f.json", "--plot", "heap"], "--svg");
    let why = "plot dots is not available for these results; available: scaling, lists, moves, \
               waiting";
    says(&["compare", "f.json", "--svg", "x.svg", "--html", "x.html", "--plot", "dots"], why);
    says(&["compare", "f.json", "--html", "no/such/folder.html"], "no/such/folder.html");
    assert!(!folder.0.join("x.svg").exists() && !folder.0.join("x.html").exists());
}

/// Experiments: each figure of the page equals the JSON's.
#[test]
fn experiments() {
    let folder = Folder::new("experiments");
    ok(&folder, &["reproduce", "bulk-free", "--small", "--html", "r.html", "--svg", "r.svg"]);
    let page = Page::read(&folder.0.join("r.html"));
    check(&page);
    assert_eq!(page.data["reproduced"][0]["experiment"], "bulk-free");
    assert!(page.tags_with("class").any(|t| t["class"] == "simulated"));
    assert!(std::fs::read_to_string(folder.0.join("r.svg")).unwrap().starts_with("<?xml"));
}

/// The rounds of hygiene: curves and table equal the JSON's.
#[test]
fn rounds_of_hygiene() {
    let folder = Folder::new("rounds");
    let heap = ["run", "hygiene", "--rounds", "2", "--memory", "256M"];
    ok(&folder, &[&heap[..], &["--html", "h.html", "--svg", "h.svg"]].concat());
    let page = Page::read(&folder.0.join("h.html"));
    let found = check(&page);
    assert_eq!((found.paths, found.numbers), (6, 12));
    assert!(page.tags_with("class").any(|t| t["class"] == "simulated"));
    let printed = json(&ok(&folder, &[&heap[..], &["--json"]].concat()));
    assert_eq!(page.data["hygiene"]["vanilla"], printed["vanilla"]);
    assert!(std::fs::read_to_string(folder.0.join("h.svg")).unwrap().starts_with("<?xml"));
}
