//! The program as a user sees it: what it prints, where, and its exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{err, out, pageyard, sample};

fn with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(crate::PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// The command on the front page prints the table below it.
#[test]
fn the_readmes_replay_prints_its_table() {
    let readme = include_str!("../../../../README.md");
    let table = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let kbuild = sample("kbuild.pgy");
    let o = pageyard(&["replay", kbuild.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let printed = out(&o);
    assert!(table.lines().count() >= 6 && table.contains("Step10"), "{table}");
    for line in table.lines() {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
}

#[test]
fn a_short_soak_finds_no_errors() {
    let o = pageyard(&["soak", "--minutes", "0.03", "--size", "64M", "--seed", "3", "--json"]);
    assert_eq!(o.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert!(report["found"].is_null() && report["seed"] == 3);
    assert!(report["counts"]["checked"].as_u64() > Some(0));
    for (wrong, says) in [
        (["--minutes", "0"], "expected 0.01 to"),
        (["--size", "1M"], "expected at least"),
        (["--threads", "0"], "expected 1 to 1024"),
    ] {
        let o = pageyard(&[&["soak"][..], &wrong].concat());
        assert_eq!(o.status.code(), Some(2));
        let text = String::from_utf8_lossy(&o.stderr).into_owned();
        assert!(text.contains(says), "{text}");
    }
}

/// The words of Rust's parsers and ranges, "invalid digit found in string" and "60 is not in 0..=50", are not
/// what a user can act on.
#[test]
fn a_wrong_number_is_told_what_was_expected() {
    for (line, says) in [
        ("run kbuild --seed x", "'x' for '--seed <N>': expected a whole number"),
        ("run kbuild --seed=", "'' for '--seed <N>': expected a whole number"),
        ("run kbuild --seed=-1", "'-1' for '--seed <N>': expected a whole number"),
        ("run kbuild --seed 99999999999999999999", "the number is too large"),
        ("run kbuild --age 60", "'60' for '--age <PERCENT>': expected 0 to 50"),
        ("soak --minutes x", "'x' for '--minutes <N>': expected a number"),
        ("show x --line 0", "expected at least 1"),
        ("run kbuild --on 3x", "expected host, or machine: and a name"),
    ] {
        let o = pageyard(&line.split(' ').collect::<Vec<_>>());
        let text = err(&o);
        assert_eq!(o.status.code(), Some(2), "{line}");
        assert!(text.contains(says) && text.ends_with("try '--help'.\n"), "{line}: {text}");
    }
}

/// Every help says what the command does, and lists its exit codes if there are several.
#[test]
fn help_introduces_the_program() {
    let long: &[&[&str]] = &[
        &["replay"],
        &["run", "hygiene"],
        &["compare"],
        &["topology"],
        &["conform"],
        &["show"],
        &["trace", "import"],
        &["trace", "export"],
        &["trace", "info"],
    ];
    for command in long {
        let o = pageyard(&[command, &["--help"][..]].concat());
        assert_eq!(o.status.code(), Some(0));
        let text = out(&o);
        let name = command.join(" ");
        let example = format!("\n  pageyard {name} ");
        let piped = format!("| pageyard {name} ");
        assert!(text.contains(&example) || text.contains(&piped), "{name}: {text}");
        let says = text.split("Usage:").next().unwrap();
        assert!(says.trim().lines().count() > 2, "{name}: more than a heading: {says}");
    }
    for command in ["replay", "compare", "topology", "conform", "show", "trace"] {
        assert!(out(&pageyard(&[command, "--help"])).contains("Exit code: 0"), "{command}");
    }
    let policies = out(&pageyard(&["replay", "--help"]));
    assert!(policies.contains("`pageyard policies` lists them"), "{policies}");
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pageyard-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap();
        names.map(|f| f.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TEXT: &str = "\
cpus=2
           gcc-7     [001]     1.000000100: mm_page_alloc:        page=0x1 pfn=0x10 order=1 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_ZERO
          make-8     [000]     1.000000200: sched_switch:         whatever
           gcc-7     [001]     1.000000300: mm_page_free:         page=0x1 pfn=0x10 order=1
";

#[test]
fn conform_prints_what_matched() {
    let file = sample("oracle/reserves-1.jsonl.zst");
    let o = pageyard(&["conform", file.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    assert!(text.starts_with("reserves-1 "), "{text}");
    let total = "conform: 1/1 recordings, 1 330/1 330 answers, 28/28 states identical\n";
    assert!(text.ends_with(total), "{text}");
}

#[test]
fn conform_prints_json() {
    let file = sample("oracle/reserves-1.jsonl.zst");
    let o = pageyard(&["conform", "--json", file.to_str().unwrap()]);
    let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(report["total"]["answers_identical"], 1330);
    assert!(report["recordings"][0]["difference"].is_null());
}

#[test]
fn conform_exits_with_1_on_a_difference_and_2_on_malformed_input() {
    let folder = Folder::new("conform");
    let file = std::fs::File::open(sample("oracle/reserves-1.jsonl.zst")).unwrap();
    let good = std::io::read_to_string(zstd::Decoder::new(file).unwrap()).unwrap();

    let differs = folder.file("differs.jsonl");
    let changed = good.replacen(r#""got":[1024]"#, r#""got":[1025]"#, 1);
    assert_ne!(changed, good);
    std::fs::write(&differs, changed).unwrap();
    let o = pageyard(&["conform", &differs]);
    assert_eq!(o.status.code(), Some(1));
    assert!(out(&o).contains("expected [1025]") && out(&o).contains("conform: 0/1"), "{}", out(&o));

    let nonsense = folder.file("nonsense.jsonl");
    std::fs::write(&nonsense, good.lines().next().unwrap().to_owned() + "\nhello\n").unwrap();
    let o = pageyard(&["conform", &nonsense]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("nonsense.jsonl, line 2"), "{}", err(&o));

    let unknown = folder.file("unknown.jsonl");
    let changed = good.replacen(r#""got":[1024]"#, r#""got":[0,1024]"#, 1);
    assert_ne!(changed, good);
    std::fs::write(&unknown, changed).unwrap();
    let o = pageyard(&["conform", &unknown]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("unknown.jsonl, line 4: ") && err(&o).contains("expected [PFN]"));
}

#[test]
fn conform_and_show_read_two_zones() {
    let file = sample("oracle/two_zones_types-1.jsonl.zst");
    let file = file.to_str().unwrap();
    let o = pageyard(&["conform", file]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let total = "conform: 1/1 recordings, 10 098/10 098 answers, 84/84 states identical\n";
    assert!(out(&o).ends_with(total), "{}", out(&o));
    let o = pageyard(&["show", file, "--as", "buddyinfo"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let lines: Vec<_> = out(&o).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("Node 1, zone    DMA32 "), "{lines:?}");
    assert!(lines[1].starts_with("Node 1, zone   Normal "), "{lines:?}");
}

#[test]
fn traces_survive_import_and_export() {
    let folder = Folder::new("trace");
    let (text, pgy, back) = (folder.file("t.txt"), folder.file("t.pgy"), folder.file("u.txt"));
    std::fs::write(&text, TEXT).unwrap();
    let o = pageyard(&["trace", "import", &text, &pgy]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).contains("2 events"), "{}", out(&o));
    assert!(err(&o).contains("1 sched_switch"), "ignored, but not silently: {}", err(&o));

    let o = pageyard(&["trace", "export", "--gfp-names", &pgy, "-o", &back]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let again = folder.file("v.pgy");
    assert_eq!(pageyard(&["trace", "import", &back, "-o", &again]).status.code(), Some(0));
    let info = |f: &str| {
        let o = pageyard(&["trace", "info", "--json", f]);
        serde_json::from_slice::<serde_json::Value>(&o.stdout).unwrap()
    };
    assert_eq!(info(&pgy)["events"], info(&again)["events"]);
    assert_eq!(info(&pgy)["events"]["mm_page_alloc"], 1);
    let text = std::fs::read_to_string(&back).unwrap();
    assert!(text.contains("gfp_flags=GFP_KERNEL|__GFP_ZERO") && text.contains("gcc-7"), "{text}");
}

#[test]
fn a_trace_is_read_from_standard_input() {
    let o = with_input(&["trace", "info", "-"], TEXT.as_bytes());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).contains("events                                 2"), "{}", out(&o));
}

#[test]
fn info_counts_events_of_compaction_and_reclaim() {
    let folder = Folder::new("info-compaction");
    let (text, pgy) = (folder.file("t.txt"), folder.file("t.pgy"));
    let begin = "           gcc-7     [001]     1.000000400: mm_compaction_begin: zone_start=0x0 \
                 migrate_pfn=0x0 free_pfn=0x3e00 zone_end=0x4000, mode=sync\n";
    let sleep = "        kswapd-9     [001]     1.000000500: mm_vmscan_kswapd_sleep: nid=0\n";
    std::fs::write(&text, [TEXT, &begin.repeat(7), sleep].concat()).unwrap();
    let said = out(&pageyard(&["trace", "import", &text, &pgy]));
    let each = |text: &str| {
        text.split_once(" bytes an event").unwrap().0.rsplit('(').next().unwrap().to_owned()
    };
    let info = out(&pageyard(&["trace", "info", &pgy]));
    assert_eq!(each(&said), each(&info), "{said}{info}");
    let info = pageyard(&["trace", "info", &pgy, "--json"]).stdout;
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(
        (&info["compaction_total"], &info["reclaim_total"]),
        (&7.into(), &1.into()),
        "{info}"
    );
    // The trace has no record, and some lines that are none.
    std::fs::write(&text, "cpus=2\n  gcc-7 [001] 1.5: mm_page_alloc: pfn=\n").unwrap();
    let o = pageyard(&["trace", "info", &text, "--json", "--lenient"]);
    let info: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert!(info["seconds"].is_null(), "{info}");
    assert!(err(&o).contains("damaged parts skipped; the first:"), "{}", err(&o));
}

#[test]
fn options_without_effect_are_refused() {
    let sample = sample("kbuild.pgy");
    let sample = sample.to_str().unwrap();
    for args in [
        &["replay", sample, "--why", "--seeds", "2"][..],
        &["replay", sample, "--why", "--jobs", "2"],
        &["replay", sample, "--why", "--json", "--limit", "1"],
        &["reproduce", "regression", "--sensitivity", "--html", "x"],
        &["compare", "x.json", "--csv", "--width", "80"],
        &["compare", "x.json", "--tsv", "--form", "index"],
        &["compare", "x.json", "--tsv", "--band", "2"],
    ] {
        let o = pageyard(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert!(err(&o).contains("cannot be used with"), "{args:?}: {}", err(&o));
    }
    let list = pageyard(&["reproduce", "list", "--json"]).stdout;
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    assert!(list.as_array().unwrap().iter().any(|e| e["name"] == "regression"), "{list}");
}

#[test]
fn the_sample_contains_its_state_files() {
    let file = sample("kbuild.pgy");
    let o = pageyard(&["trace", "info", "--json", file.to_str().unwrap()]);
    let info: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(info["events_total"], 1_194_220);
    assert!(info["state_files"]["zoneinfo.traced_start"].as_u64().unwrap() > 1000);
    let bytes = info["bytes"].as_u64().unwrap();
    assert!(bytes < 8 * 1_194_220, "at most 8 bytes an event");
}

#[test]
fn show_prints_the_state_files_of_a_trace() {
    let folder = Folder::new("show");
    let file = sample("kbuild.pgy");
    let file = file.to_str().unwrap();
    let reader =
        pageyard_trace::TraceReader::open(file, pageyard_trace::Options::default()).unwrap();
    for a in reader.attachments().iter() {
        let path = std::path::PathBuf::from(folder.file("state")).join(&a.name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &a.data).unwrap();
    }
    for (args, name) in [
        (&["--as", "zoneinfo"][..], "before/zoneinfo"),
        (&["--as", "zoneinfo", "--at", "traced_end"], "zoneinfo.traced_end"),
        (&["--as", "buddyinfo", "--at", "after"], "after/buddyinfo"),
        (&["--as", "pagetypeinfo"], "before/pagetypeinfo"),
        (&["--as", "vmstat", "--at", "after"], "after/vmstat"),
    ] {
        let recorded = std::fs::read_to_string(folder.file("state") + "/" + name).unwrap();
        for input in [file, &folder.file("state")] {
            let o = pageyard(&[&["show", input], args].concat());
            assert_eq!(o.status.code(), Some(0), "{}", err(&o));
            assert_eq!(out(&o), recorded, "{input}: {name}");
        }
    }
    let o = pageyard(&["show", file, "--as", "vmstat", "--at", "traced_start"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("kbuild.pgy: no vmstat at"), "{}", err(&o));
}

/// The error advises --lenient, so `show` takes it.
#[test]
fn show_skips_damaged_state_files_with_lenient() {
    let folder = Folder::new("show-damaged");
    let mut bytes = std::fs::read(sample("kbuild.pgy")).unwrap();
    bytes[3000] ^= 0xff;
    let file = folder.file("damaged.pgy");
    std::fs::write(&file, bytes).unwrap();
    let args = ["show", &file, "--as", "zoneinfo"];
    let o = pageyard(&args);
    assert_eq!(o.status.code(), Some(2));
    assert!(
        err(&o).contains("wrong checksum; copy the file again, or use --lenient"),
        "{}",
        err(&o)
    );
    let o = pageyard(&[&args[..], &["--lenient"]].concat());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).starts_with("Node 0, zone"), "{}", out(&o));
    assert!(err(&o).contains("damaged parts of the trace skipped") && err(&o).contains("checksum"));
    let recording = sample("oracle/reserves-1.jsonl.zst");
    let o = pageyard(&["show", recording.to_str().unwrap(), "--as", "vmstat", "--lenient"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("does not apply to a recording"), "{}", err(&o));
}

#[test]
fn show_prints_a_recorded_state_of_the_oracle() {
    let file = sample("oracle/reserves-1.jsonl.zst");
    let file = file.to_str().unwrap();
    let o = pageyard(&["show", file, "--as", "buddyinfo"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).starts_with("Node 0, zone    DMA32 "), "{}", out(&o));
    let o = pageyard(&["show", file, "--as", "zoneinfo", "--json", "--line", "1300"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(v["as"], "zoneinfo");
    assert!(v["state"].as_str().unwrap().starts_with("line 1"), "{}", v["state"]);
    assert_eq!(v["zones"][1]["zone"], "DMA32");
    let o = pageyard(&["show", file, "--as", "show_mem"]);
    assert!(out(&o).contains("\nlowmem_reserve[]: "), "{}", out(&o));
}

#[test]
fn show_prints_page_owners_at_the_end_of_a_trace() {
    let small = ["show", "-", "--as", "page_owner", "--memory", "64M"];
    let o =
        with_input(&small, TEXT.replacen("pfn=0x10 order=1\n", "pfn=0x20 order=1\n", 1).as_bytes());
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    let line = "Page allocated via order 1, mask 0xdc0(GFP_KERNEL|__GFP_ZERO), pid 7, tgid 0 (gcc), \
                ts 1000000100 ns\nPFN 0x";
    assert!(text.starts_with(line) && text.ends_with(")\n\n"), "{text}");
    assert!(err(&o).contains("processes (tgid 0 here)"), "{}", err(&o));

    let file = sample("kbuild.pgy");
    let file = file.to_str().unwrap();
    let o = pageyard(&["show", file, "--as", "page_owner", "--by", "name", "--policy", "base"]);
    let text = out(&o);
    assert!(text.contains("under Base: 11991 blocks and 12406 pages"), "{text}");
    assert!(text.ends_with("\n1 times, 2 pages: cut\n"), "{text}");
    let o = pageyard(&["show", file, "--as", "page_owner", "--by", "name", "--json"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((&v["as"], &v["policy"]), (&"page_owner".into(), &"Linux612".into()));
    assert_eq!(v["groups"][0]["name"], "cc1");
    assert_eq!(v["notes"].as_array().unwrap().len(), 2);
    assert!(err(&o).is_empty(), "{}", err(&o));
}

#[test]
fn a_damaged_trace_leaves_no_partial_output() {
    let folder = Folder::new("damaged");
    let (text, pgy) = (folder.file("t.txt"), folder.file("t.pgy"));
    std::fs::write(&text, TEXT.replace("pfn=0x10 order=1\n", "pfn=0x10 order=77\n")).unwrap();
    let o = pageyard(&["trace", "import", &text, &pgy]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("line 4"), "{}", err(&o));
    assert_eq!(folder.files(), ["t.txt"]);

    let o = pageyard(&["trace", "import", "--lenient", &text, &pgy]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(err(&o).contains("1 damaged part"), "{}", err(&o));
}

#[test]
fn an_output_appears_only_when_complete() {
    let folder = Folder::new("export");
    let (text, out_file) = (folder.file("t.txt"), folder.file("u.txt"));
    let damaged = TEXT.replace("pfn=0x10 order=1\n", "pfn=0x10 order=77\n");
    std::fs::write(&text, &damaged).unwrap();
    let o = pageyard(&["trace", "export", &text, "-o", &out_file]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("t.txt: line 4") && err(&o).contains("--lenient"), "{}", err(&o));
    assert_eq!(folder.files(), ["t.txt"]);

    // The same file under another name is unchanged afterwards.
    let again = folder.file("./t.txt");
    for args in [&["trace", "export", &text, "-o", &again][..], &["trace", "import", &text, &again]]
    {
        let o = pageyard(args);
        assert_eq!(o.status.code(), Some(2));
        assert!(err(&o).contains("name another output"), "{}", err(&o));
        assert_eq!(std::fs::read_to_string(&text).unwrap(), damaged);
    }

    std::fs::write(&text, TEXT).unwrap();
    let o = pageyard(&["trace", "export", &text, "-o", "/dev/stdout"]);
    assert!(out(&o).contains("mm_page_alloc: "), "{}", out(&o));
    // Also if it is a file, behind what is there, and through a link as `/dev/stdout` is one.
    let (link, log) = (folder.file("link"), folder.file("log"));
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    let shell = "echo first > \"$2\"; \"$0\" trace export \"$1\" -o \"$3\" >> \"$2\"";
    let shell = Command::new("sh").args(["-c", shell, crate::PROGRAM, &text, &log, &link]).status();
    assert!(shell.unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.starts_with("first\n") && log.contains("mm_page_alloc: "), "{log}");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    // A file named - is standard output, and nothing else is there.
    let o = pageyard(&["trace", "import", &text, "-"]);
    assert!(o.stdout.starts_with(b"\x89PGY"), "{o:?}");
    assert!(err(&o).contains("standard output: 2 events"), "{}", err(&o));
    let shell = "\"$0\" trace import - - < \"$1\" | \"$0\" trace export -";
    let piped = Command::new("sh").args(["-c", shell, crate::PROGRAM, &text]).output().unwrap();
    assert!(out(&piped).contains("mm_page_alloc: "), "{piped:?}");
    let o = pageyard(&["replay", sample("kbuild.pgy").to_str().unwrap(), "--html", "-"]);
    assert!(out(&o).starts_with("<!") && out(&o).trim_end().ends_with("</html>"));
    assert!(err(&o).contains("Linux612"), "{}", err(&o));
    let o = pageyard(&["compare", &text, "--html", "-", "--svg", "-"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("standard output: two outputs are the same file"), "{}", err(&o));
    assert!(!std::path::Path::new("-").exists());
    // A named pipe is opened once: its reader would take the end of a first opening for its own.
    let shell =
        "mkfifo \"$2\"; timeout 60 \"$0\" trace export \"$1\" -o \"$2\" & cat \"$2\"; wait $!";
    let fifo = folder.file("fifo");
    let o = Command::new("sh").args(["-c", shell, crate::PROGRAM, &text, &fifo]).output().unwrap();
    assert!(o.status.success() && out(&o).contains("mm_page_alloc: "), "{}", out(&o));
    let o = pageyard(&["trace", "export", &text, "-o", &folder.file("no/dir")]);
    assert!(
        err(&o).contains("no/dir: ") && err(&o).contains("; name a writable file"),
        "{}",
        err(&o)
    );
}

#[test]
fn an_output_replaces_no_input_and_no_other_output() {
    let folder = Folder::new("apart");
    let (trace, results) = (folder.file("k.pgy"), folder.file("r.json"));
    std::fs::copy(sample("kbuild.pgy"), &trace).unwrap();
    std::fs::write(&results, "[]").unwrap();
    let (one, same) = (folder.file("o"), folder.file("./o"));
    let run = ["run", "trace", "--set"];
    let set = format!("trace={trace}");
    for (args, says) in [
        (&["replay", &trace, "--html", &trace][..], "input and output are the same file"),
        (&["replay", &trace, "--perfetto", &trace], "input and output are the same file"),
        (&["compare", &results, &results, "--svg", &results], "input and output are the same"),
        (&[&run[..], &[&set, "-o", &trace]].concat(), "input and output are the same file"),
        (&["replay", &trace, "--html", &one, "--svg", &same], "two outputs are the same file"),
        (&["run", "micro", "-o", &one, "--html", &same], "two outputs are the same file"),
        (&["run", "hygiene", "--trace", &one, "--svg", &same], "two outputs are the same file"),
        (&["reproduce", "all", "-o", &one, "--html", &same], "two outputs are the same file"),
    ] {
        let o = pageyard(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
    }
    assert_eq!(std::fs::read(&trace).unwrap(), std::fs::read(sample("kbuild.pgy")).unwrap());
    assert_eq!(std::fs::read_to_string(&results).unwrap(), "[]");
    assert_eq!(folder.files().len(), 2);
}

#[test]
fn an_output_keeps_the_mode_of_the_file_that_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    let (text, old) = (folder.file("t.txt"), folder.file("old"));
    std::fs::write(&text, TEXT).unwrap();
    for mode in [0o600, 0o666] {
        std::fs::write(&old, "").unwrap();
        std::fs::set_permissions(&old, PermissionsExt::from_mode(mode)).unwrap();
        let o = pageyard(&["trace", "export", &text, "-o", &old]);
        assert_eq!(o.status.code(), Some(0), "{}", err(&o));
        let meta = std::fs::metadata(&old).unwrap();
        assert!(meta.len() > 0 && meta.permissions().mode() & 0o777 == mode, "{meta:?}");
    }
}

#[test]
fn the_release_of_the_kernel_survives_an_export() {
    let folder = Folder::new("release");
    let (text, pgy) = (folder.file("t.txt"), folder.file("t.pgy"));
    std::fs::write(&text, TEXT).unwrap();
    let o = pageyard(&["trace", "import", &text, &pgy, "--kernel", "6.1.20"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let exported = pageyard(&["trace", "export", &pgy]).stdout;
    let o = with_input(&["trace", "info", "-", "--json"], &exported);
    let info: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(info["kernel_release"], "6.1.20");
}

/// As docs/replay.md says.
#[test]
fn a_named_kernel_overrides_the_trace_and_the_state_files() {
    let folder = Folder::new("kernel");
    let (text, pgy) = (folder.file("t.txt"), folder.file("t.pgy"));
    std::fs::write(folder.file("kernel_release"), "6.12.30\n").unwrap();
    let release = |args: &[&str]| {
        let o = pageyard(&[&["trace", "import", &text, &pgy], args].concat());
        assert_eq!(o.status.code(), Some(0), "{}", err(&o));
        let info = pageyard(&["trace", "info", &pgy, "--json"]).stdout;
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        info["kernel_release"].as_str().unwrap().to_owned()
    };
    std::fs::write(&text, TEXT).unwrap();
    assert_eq!(release(&[]), "6.12.30");
    assert_eq!(release(&["--kernel", "6.1.20"]), "6.1.20");
    std::fs::write(&text, ["# os release : 6.6.30\n", TEXT].concat()).unwrap();
    assert_eq!(release(&[]), "6.6.30");
    assert_eq!(release(&["--kernel", "6.1.20"]), "6.1.20");
    let help = out(&pageyard(&["trace", "import", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("whatever the trace or the state files say"), "{help}");
}

#[test]
fn errors_name_state_files_that_cannot_be_extracted() {
    let folder = Folder::new("extract");
    let (text, to) = (folder.file("t.txt"), folder.file("file/state"));
    std::fs::write(&text, TEXT).unwrap();
    let o = pageyard(&["trace", "export", &text, "--state", &to]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("t.txt: no state files"), "{}", err(&o));

    std::fs::write(folder.file("file"), "").unwrap();
    let file = sample("kbuild.pgy");
    let o = pageyard(&["trace", "export", file.to_str().unwrap(), "--state", &to]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("file/state/before/"), "{}", err(&o));
}

/// A reader that closes the pipe after one line causes no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let folder = Folder::new("pipe");
    let file = sample("kbuild.pgy");
    let file = file.to_str().unwrap();
    let state = folder.file("state");
    for args in [
        &["trace", "export", file][..],
        &["trace", "export", file, "--state", &state],
        &["trace", "info", file],
        &["show", file, "--as", "page_owner"],
        &["topology", "eight-sockets", "--json"],
    ] {
        let mut child = Command::new(crate::PROGRAM)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
    }
}

#[test]
fn argument_errors_are_named_and_exit_with_2() {
    let kbuild = sample("kbuild.pgy");
    let answers = sample("oracle/batch_free-1.jsonl.zst");
    for (args, says) in [
        (&["conform"][..], "FILE"),
        (&["conform", "no/such/file"], "no/such/file"),
        (&["trace", "info", "no/such/file"], "no/such/file"),
        (&["trace", "import", "a", "b", "--level", "99"], "--level"),
        (&["replay", "no/such/file"], "no/such/file"),
        (
            &["replay", "no/such/file"],
            "no/such/file: No such file or directory; name a file that exists",
        ),
        (&["run", "--seed", "3", "hygiene"], "give them after it: pageyard run hygiene"),
        (&["soak", "--size", "1K"], "--size 1 KiB: expected at least 4 MiB"),
        (&["top", "--every", "0"], "'0' for '--every <SECONDS>': expected 0.1 to 3600"),
        (&["trace", "import", "a"], "FILE.pgy"),
        (&["replay", "/"], "/: Is a directory; name a file in it"),
        // Known before the work begins, which takes an hour here.
        (
            &["reproduce", "auto-tuning", "-o", "no/such/folder"],
            "no/such/folder: No such file or directory; name a writable file",
        ),
        (&["run", "unix", "--html", "/"], "/: "),
        (
            &["run", "unix", "--on", "machine:desktop"],
            "pairs=16 (the default): expected a whole number from 1 to 2 here; use --set pairs=VALUE",
        ),
        (
            &["run", "unix", "--memory", "4K"],
            "memory 4 KiB: a machine of 2 node(s) has at least 8 MiB",
        ),
        (&["run", "unis"], "thp, trace, hygiene"),
        (&["replay", kbuild.to_str().unwrap(), "--cpus", "2"], "--cpus 2, but zoneinfo has 4 CPUs"),
        (
            &["replay", kbuild.to_str().unwrap(), "--memory", "4K"],
            "--memory 4 KiB, but zoneinfo has zones of ",
        ),
        (
            &["replay", "x", "--policy", "Base,Linux7"],
            "'--policy <P,P>': unknown policy Linux7; expected one of",
        ),
        (
            &["show", "Cargo.toml", "--as", "vmstat"],
            "Cargo.toml: no state files are attached to it or next to it (before/zoneinfo, \
             zoneinfo.traced_start and so on); name a trace that has them, their folder, or a recording",
        ),
        (
            &["conform", "Cargo.toml"],
            "Cargo.toml, line 1: found \"[package]\"; expected a line of JSON such as {\"op\":\"f 0\",\"got\":[17]}",
        ),
        (&["conform", kbuild.to_str().unwrap()], "traces are for `pageyard replay`"),
        (
            &["replay", answers.to_str().unwrap()],
            "JSON is not a supported trace format; name a .pgy, trace.dat, perf.data",
        ),
        (
            &["replay", "x", "--memory", "999999999T"],
            "'--memory <SIZE>': `999999999T` is more than 16 EiB",
        ),
        (&["soak", "--minutes", "1e9999"], "'1e9999' for '--minutes <N>': expected 0.01 to 100000"),
        (&["replay", "x", "--memory", "2X"], "'--memory <SIZE>': `2X` is not a size"),
        (&["run", "unix", "--memory", "-1"], "'--memory <SIZE>': `-1` is not a size"),
        (
            &["run", "unix", "--on", "machine:9x"],
            "'machine:9x' for '--on <host|machine:NAME>': 9x: No such file or directory; name",
        ),
        (
            &["topology", "9x"],
            "pageyard: 9x: No such file or directory; name a TOML file or one of",
        ),
        (&["judge", "Nope"], "pageyard: judge: unknown policy Nope; expected one of"),
        (&["frobnicate"], "frobnicate"),
        (&["show", "no/such/file", "--as", "vmstat"], "no/such/file"),
        (&["show", "x", "--as", "meminfo"], "expected one of zoneinfo, buddyinfo"),
        (&["show", "x", "--as", "vmstat", "--at", "noon"], "expected one of before"),
        (&["show", "x", "--as", "vmstat", "--line", "0"], "--line"),
        (&["show", "Cargo.toml", "--as", "vmstat"], "Cargo.toml"),
        (&["show", "x", "--as", "meminfo"], "vmstat, show_mem, page_owner"),
        (&["show", "no/such/file", "--as", "page_owner"], "no/such/file"),
        (&["show", "x", "--as", "page_owner", "--by", "stack"], "one of task, name, request"),
        (
            &["show", "x", "--as", "page_owner", "--policy", "Linux7"],
            "expected one of Linux612, \
             Base",
        ),
        (&["show", "x", "--as", "page_owner", "--at", "after"], "remove --at"),
        (
            &["show", answers.to_str().unwrap(), "--as", "page_owner"],
            "page_owner needs a trace, and this is a recording of the kernel's answers",
        ),
        (
            &["sweep", "no/such/file"],
            "pageyard: no/such/file: No such file or directory; name a sweep in TOML",
        ),
        (&["show", "x", "--as", "vmstat", "--by", "task"], "use --as page_owner"),
    ] {
        let o = pageyard(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        assert!(out(&o).is_empty(), "errors go to standard error");
    }
}

#[test]
fn the_knobs_page_matches_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/knobs.md");
    let o = pageyard(&["knobs", "--markdown"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let written = std::fs::read_to_string(page).unwrap();
    assert!(written == out(&o), "run: pageyard knobs --markdown > docs/knobs.md");
}

#[test]
fn knobs_are_listed_as_text_and_json() {
    let o = pageyard(&["knobs", "--json"]);
    let knobs: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let named = |name: &str| knobs.as_array().unwrap().iter().find(|k| k["name"] == name).unwrap();
    assert_eq!(named("watermark_scale_factor")["default"], "10");
    assert_eq!(named("watermark_scale_factor")["range"], "1 to 3000");
    assert_eq!(named("pcp_autotune")["ours"], true);
    assert_eq!(named("compact_memory")["access"], "write only");
    let text = out(&pageyard(&["knobs"]));
    assert!(text.contains("percpu_pagelist_high_fraction\n"), "{text}");
    assert!(text.contains("    run time, default 0, takes 0, or 8 to 2^31-1\n"), "{text}");
    assert_eq!(pageyard(&["knobs", "--json", "--markdown"]).status.code(), Some(2));

    let some = out(&pageyard(&["knobs", "pcp_autotune", "scale_factor"]));
    let names: Vec<_> = some.lines().filter(|l| !l.starts_with(' ')).collect();
    assert!(some.len() < text.len() && names.iter().any(|n| n.starts_with("pcp_autotune")));
    assert!(
        names.iter().all(|n| n.contains("pcp_autotune") || n.contains("scale_factor")),
        "{some}"
    );
    let o = pageyard(&["knobs", "pcp_autotune", "hihg"]);
    assert_eq!((o.status.code(), out(&o)), (Some(2), String::new()));
    assert!(err(&o).contains("contains hihg; `pageyard knobs` prints all"), "{}", err(&o));
}

#[test]
fn topologies_are_shown() {
    let o = pageyard(&["topology", "desktop"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let text = out(&o);
    assert!(text.starts_with("desktop: 1 node, 4 CPUs, "), "{text}");
    assert!(text.contains("  from node 0: 0 Normal, 0 DMA32, 0 DMA\n"), "{text}");
    let text = out(&pageyard(&["topology", "two-nodes"]));
    assert!(text.contains("  from node 1: 1 Normal, 0 Normal, "), "{text}");
    let text = out(&pageyard(&["topology", "eight-sockets"]));
    assert!(text.contains("  from node 7: 7 Normal, "), "{text}");
}

#[test]
fn topologies_are_printed_as_json() {
    let o = pageyard(&["topology", "two-nodes", "--json"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((&v["name"], v["nodes"].as_array().unwrap().len()), (&"two-nodes".into(), 2));
    let first = serde_json::json!({ "node": 1, "zone": "Normal" });
    assert_eq!(v["zonelists"][1][0], first);
}

#[test]
fn a_topology_error_names_file_and_entry() {
    let folder = Folder::new("topology");
    let file = folder.file("wrong.toml");
    std::fs::write(&file, "[[node]]\nmemory = [\"1G..512M\"]\ncpus = \"0-3\"\n").unwrap();
    let o = pageyard(&["topology", &file]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("wrong.toml: node 0"), "{}", err(&o));
    assert!(out(&o).is_empty());
}

#[test]
fn compaction_events_survive_a_compact_trace() {
    let folder = Folder::new("compaction");
    let (text, pgy, back) = (folder.file("t.txt"), folder.file("t.pgy"), folder.file("u.txt"));
    let line = "      kcompactd0-38    [001]     2.000001000: mm_compaction_suitable: \
                node=0 zone=Normal   order=9 ret=success\n";
    std::fs::write(&text, line).unwrap();
    let o = pageyard(&["trace", "import", &text, &pgy]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).contains("1 events") && err(&o).is_empty(), "{}{}", out(&o), err(&o));
    pageyard(&["trace", "export", &pgy, "-o", &back]);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), line);
    let info = out(&pageyard(&["trace", "info", "--json", &pgy]));
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["compaction"]["mm_compaction_suitable"], 1);
}

#[test]
fn hygiene_prints_its_seed() {
    let o = pageyard(&["run", "hygiene", "--rounds", "1", "--memory", "256M", "--seed", "77"]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).contains("seed 77"), "{}", out(&o));
}
