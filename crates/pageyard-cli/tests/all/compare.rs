//! `pageyard compare` as a user sees it: saved files in, tables out, and errors that name the fix.

use std::path::PathBuf;
use std::process::{Command, Output};

fn compare(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(crate::PROGRAM);
    command.arg("compare").args(args).current_dir(&folder.0).output().unwrap()
}

fn out(o: &Output) -> String {
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout.clone()).unwrap()
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("pageyard-compare-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Saves a result of the workload `trunc`.
    fn save(&self, name: &str, policy: &str, world: &str, samples: &[f64]) {
        let result = serde_json::json!([{
            "workload": "trunc",
            "parameters": {"files": "10"},
            "policy": policy,
            "world": {world: "two-nodes"},
            "seed": 4,
            "version": "0.1.0",
            "metrics": [
                {"name": "elapsed", "unit": "ms", "better": "lower", "samples": samples},
            ],
        }]);
        std::fs::write(self.0.join(name), result.to_string()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const OLD: [f64; 10] = [540., 540., 540., 540., 540., 540., 540., 550., 550., 550.];
const NEW: [f64; 10] = [530.; 10];

/// The same saved results in every form; each form says that they were simulated.
#[test]
fn every_form_and_every_output() {
    let folder = Folder::new("forms");
    folder.save("old.json", "Vanilla", "simulated", &OLD);
    folder.save("new.json", "Linux612", "simulated", &NEW);
    let with = |args: &[&str]| out(&compare(&folder, &[&["old.json", "new.json"], args].concat()));
    let heading = "trunc files=10, simulated on two-nodes, seed 4, pageyard 0.1.0\n\n";
    for (form, line) in [
        (
            "pageyard",
            "elapsed (ms, lower is better)  540 [540, 550]  530 [530, 530]  \
             -1.85% [-3.64%, -1.85%] p<0.0001 better\n",
        ),
        ("mmtests-2019", "Amean     elapsed      543.00 (   0.00%)      530.00 *   2.39%*\n"),
        ("mmtests-2024", "Amean     elapsed      543.00 (   0.00%)      530.00 *   2.39%*\n"),
        ("index", "Linux612     97.6\n"),
        ("change", "elapsed mean    543.00 (    +0.00%)  530.00 (    -2.39%)\n"),
        ("change-2024", "elapsed mean    543.00 (    +0.00%)  530.00 (    -2.39%)\n"),
        ("series", "\n    8    550.0     530.0\n"),
    ] {
        let text = with(&["--form", form]);
        assert!(text.starts_with(heading) && text.contains(line), "{form}: {text}");
        let csv = with(&["--form", form, "--csv"]);
        let header = csv.lines().next().unwrap();
        assert!(header.starts_with("workload,machine,"), "{form}: {csv}");
        let columns = header.split(',').count();
        for line in csv.lines().skip(1) {
            assert!(line.starts_with("trunc files=10,simulated on two-nodes,"), "{form}: {line}");
            assert_eq!(line.split(',').count(), columns, "{form}: {line}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&with(&["--form", form, "--json"])).unwrap();
        assert_eq!(json["options"]["form"], form);
        let source = &json["tables"][0]["sources"][1];
        assert_eq!(source["policy"], "Linux612");
        assert_eq!(source["world"]["simulated"], "two-nodes");
        assert_eq!(source["seeds"], serde_json::json!([4]));
        assert_eq!(source["versions"], serde_json::json!(["0.1.0"]));
    }
    let tsv = with(&["--tsv"]);
    assert_eq!(tsv.lines().count(), 20);
    assert!(tsv.starts_with("elapsed\ttrunc files=10\tVanilla\t1\t540\tms\n"), "{tsv}");
    // A wider band claims one change fewer.
    assert!(with(&["--band", "5"]).contains("p<0.0001 ~\n"));
    assert!(with(&["--form", "mmtests-2024", "--rows", "multiops-2026"]).contains("BAmean.95 "));
    assert!(with(&["--form", "mmtests-2019", "--precision", "4"]).contains(" 543.0000 ("));
    assert!(with(&["--form", "change", "--aggregate", "median"]).contains("elapsed median "));
}

#[test]
fn an_aa_run() {
    let folder = Folder::new("aa");
    folder.save("first.json", "Linux612", "host", &OLD);
    folder.save("again.json", "Linux612", "host", &OLD);
    let text = out(&compare(&folder, &["first.json", "again.json", "--aa", "--deals", "50"]));
    assert!(text.starts_with("A/A: trunc files=10, on two-nodes, seed 4"), "{text}");
    assert!(text.contains("mmtests-2019          0 of 1  "), "{text}");
    assert!(
        text.contains("50 shuffles of 10 or more samples per side, 1 metric, seed 1"),
        "{text}"
    );
    let again = out(&compare(&folder, &["first.json", "again.json", "--aa", "--deals", "50"]));
    assert_eq!(text, again);
}

/// A sample is null where nothing was counted.
#[test]
fn a_sample_of_nothing_is_left_out() {
    let folder = Folder::new("nothing");
    folder.save("some.json", "A", "host", &[1.0, 2.0]);
    folder.save("one.json", "B", "host", &[4.0, f64::NAN]);
    let text = out(&compare(&folder, &["some.json", "one.json"]));
    let line = text.lines().find(|l| l.starts_with("elapsed ")).unwrap();
    let cells: Vec<&str> = line.split(')').next_back().unwrap().split_whitespace().collect();
    assert_eq!(cells[..3], ["1.5000", "4", "+166.67%"], "{text}");
}

#[test]
fn errors_end_with_code_2_and_name_the_file() {
    let folder = Folder::new("errors");
    folder.save("simulated.json", "A", "simulated", &OLD);
    folder.save("host.json", "B", "host", &OLD);
    folder.save("empty.json", "B", "host", &[]);
    std::fs::write(folder.0.join("broken.json"), "[{\"workload\": \"trunc\",\n}]").unwrap();
    for (args, says) in [
        (&["none.json"][..], "pageyard: none.json: "),
        (&["host.json", "broken.json"], "pageyard: broken.json: trailing comma at line 2 column 1"),
        (
            &["empty.json"],
            "pageyard: empty.json: workload trunc under B: metric elapsed: no samples",
        ),
        (
            &["host.json", "simulated.json"],
            "pageyard: simulated.json: policy A: simulated, but host.json: policy B was measured",
        ),
        (&["simulated.json", "host.json", "--aa"], "pageyard: simulated.json: "),
    ] {
        let o = compare(&folder, args);
        let err = String::from_utf8(o.stderr.clone()).unwrap();
        assert_eq!((o.status.code(), o.stdout.len()), (Some(2), 0), "{args:?}: {err}");
        assert!(err.starts_with(says) && err.contains("; "), "{args:?}: {err}");
    }
    for (form, option, value, used) in [
        ("index", "--band", "5", "pageyard"),
        ("pageyard", "--rows", "variabletime", "mmtests-2019 and mmtests-2024"),
        ("series", "--precision", "4", "mmtests-2019 and mmtests-2024"),
        ("mmtests-2024", "--aggregate", "mean", "index, change and change-2024"),
    ] {
        let o = compare(&folder, &["host.json", "--form", form, option, value]);
        let err = String::from_utf8(o.stderr.clone()).unwrap();
        assert_eq!((o.status.code(), o.stdout.len()), (Some(2), 0), "{form} {option}: {err}");
        assert!(err.contains(&format!("{option}: applies to --form {used} only")), "{err}");
    }
    for args in [&[][..], &["host.json", "--form", "fancy"], &["host.json", "--csv", "--json"]] {
        assert_eq!(compare(&folder, args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn tables_fold_to_the_width_and_select_metrics() {
    let folder = Folder::new("width");
    for (name, policy, by) in [("a.json", "Base", 100.0), ("b.json", "Linux612", 120.0)] {
        let samples: Vec<f64> = (0..10).map(|i| by + f64::from(i) / 10.0).collect();
        folder.save(name, policy, "host", &samples);
    }
    for form in ["pageyard", "mmtests-2019", "mmtests-2024", "index", "change", "series"] {
        for width in [40, 60, 200] {
            let text = out(&compare(
                &folder,
                &["a.json", "b.json", "--form", form, "--width", &width.to_string()],
            ));
            let longest = text.lines().map(|l| l.chars().count()).max().unwrap();
            assert!(longest <= width, "{form}, {width}: {longest}\n{text}");
            assert!(text.contains("Linux612") && text.contains("Base"), "{form}, {width}: {text}");
        }
    }
    let text = out(&compare(&folder, &["a.json", "b.json", "--metrics", "elap*"]));
    assert!(text.contains("elapsed (ms, lower is better)"), "{text}");
    let none = compare(&folder, &["a.json", "b.json", "--metrics", "rate"]);
    assert_eq!(none.status.code(), Some(2));
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(said.contains("metric rate: not in the results, which have elapsed"), "{said}");
    let narrow = compare(&folder, &["a.json", "b.json", "--width", "5"]);
    assert_eq!(narrow.status.code(), Some(2));
}
