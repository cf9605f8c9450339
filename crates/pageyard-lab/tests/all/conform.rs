//! The allocator against recorded answers of Linux 6.12.117: all recordings, and the errors of
//! `conform`. The eight recordings in `samples/oracle` cover refills and drains,
//! the tick, disabled lists, reclaim, knobs, boosts, claims and steals, bulk and batch requests,
//! shared pages, highatomic reserves, the watermarks' margins, isolation, contiguous ranges, and
//! requests that walk two zones.

use std::io::Write;
use std::path::{Path, PathBuf};

use pageyard_lab::conform::{ConformError, Outcome, run_file};

use crate::sample;

fn recording(name: &str) -> PathBuf {
    sample("oracle").join(name)
}

fn identical(name: &str, answers: u64, states: u64) {
    let o = run_file(&recording(name)).unwrap();
    assert!(o.matches(), "{o}");
    assert_eq!((o.answers, o.states), (answers, states));
    assert_eq!((o.answers_recorded, o.states_recorded), (answers, states));
}

#[test]
fn drains() {
    identical("drains-1.jsonl.zst", 55612, 32);
}

#[test]
fn boosting() {
    identical("boosting-1.jsonl.zst", 20334, 41);
}

#[test]
fn reserves() {
    identical("reserves-1.jsonl.zst", 1330, 28);
}

#[test]
fn batch_free() {
    identical("batch_free-1.jsonl.zst", 4424, 91);
}

#[test]
fn isolate() {
    identical("isolate-1.jsonl.zst", 2123, 170);
}

#[test]
fn contig() {
    identical("contig-1.jsonl.zst", 18359, 122);
}

#[test]
fn two_zones_near_their_watermarks() {
    identical("two_zones_marks-1.jsonl.zst", 9147, 32);
}

#[test]
fn two_zones_with_blocks_of_other_types() {
    identical("two_zones_types-1.jsonl.zst", 10098, 84);
}

/// The lines of a small recording.
fn lines() -> Vec<String> {
    lines_of("reserves-1.jsonl.zst")
}

/// The first lines of a recording of two zones.
fn two_zones() -> Vec<String> {
    let mut lines = lines_of("two_zones_types-1.jsonl.zst");
    lines.truncate(200);
    lines
}

fn lines_of(name: &str) -> Vec<String> {
    let file = std::fs::File::open(recording(name)).unwrap();
    let text = std::io::read_to_string(zstd::Decoder::new(file).unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Runs a recording of these lines.
fn run(name: &str, lines: &[String]) -> Result<Outcome, ConformError> {
    let path = std::env::temp_dir().join(format!("pageyard-{}-{name}.jsonl", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    drop(file);
    let result = run_file(&path);
    std::fs::remove_file(&path).unwrap();
    result
}

#[test]
fn uncompressed_recordings_are_read() {
    assert!(run("plain", &lines()).unwrap().matches());
}

#[test]
fn a_wrong_answer_is_located() {
    let mut lines = lines();
    let at = 700 + lines.iter().skip(700).position(|l| l.contains(r#""op":"a"#)).unwrap();
    let (op, _) = lines[at].split_once(r#","got""#).unwrap();
    lines[at] = format!(r#"{op},"got":[77777]}}"#);
    let o = run("answer", &lines).unwrap();
    let d = o.difference.clone().unwrap();
    assert_eq!(d.line, at as u64 + 1);
    assert_eq!(d.expected, "[77777]");
    assert!(o.answers < o.answers_recorded && o.answers > 500);
    assert!(o.to_string().contains(&format!("line {}", at + 1)));
}

#[test]
fn a_wrong_state_is_described() {
    for (name, from, to, says) in [
        ("high", r#""high":"#, r#""high":9"#, "high"),
        ("nr_free", r#""nr_free":"#, r#""nr_free":1"#, "nr_free"),
        ("wmark", r#""wmark":["#, r#""wmark":[1"#, "wmark"),
    ] {
        let mut lines = lines();
        let at = lines.iter().rposition(|l| l.contains(r#""op":"s""#)).unwrap();
        lines[at] = lines[at].replacen(from, to, 1);
        let d = run(name, &lines).unwrap().difference.unwrap();
        assert_eq!(d.line, at as u64 + 1);
        assert!(d.details.iter().any(|l| l.contains(says)), "{:?}", d.details);
    }
}

#[test]
fn malformed_lines_are_errors_with_their_number() {
    for (name, at, line, says) in [
        ("json", 3, "{\"op\":", "expected a line such as"),
        ("op", 4, r#"{"op":"zz 1","got":[0]}"#, "unknown operation \"zz\""),
        ("number", 5, r#"{"op":"a one 0","got":[0]}"#, "needs a number"),
        ("letter", 6, r#"{"op":"a 1 0 q","got":[0]}"#, "GFP letter 'q'"),
        ("sysctl", 7, r#"{"op":"w swappiness 1"}"#, "unknown sysctl"),
        ("cpu", 8, r#"{"op":"c 99"}"#, "no CPU 99"),
        ("batch", 9, r#"{"op":"F 0 18446744073709551615"}"#, "on 18446744073709551615 slots"),
        (
            "slot",
            9,
            r#"{"op":"b 18446744073709551615 2 m"}"#,
            "slot 18446744073709551615 does not exist",
        ),
        ("bulk", 9, r#"{"op":"b 0 18446744073709551615 m"}"#, "on 18446744073709551615 slots"),
        ("start", 1, r#"{"op":"c 0"}"#, "must begin with a state"),
    ] {
        let mut lines = lines();
        lines.insert(at - 1, line.into());
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains(&format!("line {at}")) && e.contains(says), "{e}");
    }
}

#[test]
fn answers_of_an_unknown_form_are_errors_with_their_line() {
    for (name, line, says) in [
        ("bare", r#"{"op":"a 900 0 m","got":[77]}"#, "expected [ZONE,PFN]"),
        ("third", r#"{"op":"a 900 0 m","got":[2,77]}"#, "expected [ZONE,PFN]"),
        ("more", r#"{"op":"f 900","got":[0,77,1]}"#, "expected [ZONE,PFN]"),
        ("odd", r#"{"op":"b 900 2 m","got":[1,0]}"#, "expected [COUNT,ZONE,PFN,"),
        ("nested", r#"{"op":"a 900 0 m","got":[[0,77]]}"#, "invalid type: sequence"),
        ("choice", r#"{"op":"z 2","got":[0]}"#, "zone 2 does not exist; expected 0 or 1"),
        ("state", r#"{"op":"s","state":7}"#, "the state of a zone, {…}, or of two"),
        ("empty", r#"{"op":"s","state":[]}"#, "the state of a zone, {…}, or of two"),
        ("key", r#"{"op":"t","zones":[0]}"#, "unknown field `zones`, expected one of `op`"),
    ] {
        let mut lines = two_zones();
        lines.insert(9, line.into());
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains("line 10") && e.contains(says), "{name}: {e}");
    }
    for (name, line, says) in [
        ("pair", r#"{"op":"a 900 0 m","got":[0,77]}"#, "expected [PFN], [-1] or [-2]"),
        (
            "zone",
            r#"{"op":"z 0","got":[0]}"#,
            "the recording has one zone; expected a state of two",
        ),
        ("lower", r#"{"op":"a 900 0 l","got":[5]}"#, "GFP letter 'l' selects the lower zone"),
    ] {
        let mut lines = lines();
        lines.insert(9, line.into());
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains("line 10") && e.contains(says), "{name}: {e}");
    }
}

#[test]
fn a_state_of_other_zones_is_an_error() {
    let of_one = lines().swap_remove(0);
    let of_two = two_zones().swap_remove(0);
    for (name, mut lines, other) in [("one", lines(), of_two), ("two", two_zones(), of_one)] {
        lines.insert(5, other);
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains("line 6: in the state: the state is of zone "), "{name}: {e}");
    }
}

#[test]
fn mismatched_zones_are_an_error() {
    for (name, from, to, says) in [
        ("order", r#""zone":"Normal""#, r#""zone":"DMA""#, "the upper one first"),
        ("twice", r#""zone":"Normal""#, r#""zone":"DMA32""#, "the upper one first"),
        ("node", r#""node":1,"node_cpus""#, r#""node":2,"node_cpus""#, "two zones of one node"),
        (
            "request",
            r#""request_zone":2"#,
            r#""request_zone":1"#,
            "the zones differ in request_zone",
        ),
        ("cpus", r#""pcp":[{"cpu":0"#, r#""pcp":[{"cpu":7"#, "or the CPUs; expected the same"),
        ("overlap", r#""start_pfn":1048576"#, r#""start_pfn":131072"#, "line 1: in the state: "),
    ] {
        let mut lines = two_zones();
        assert!(lines[0].contains(from), "{name}");
        lines[0] = lines[0].replacen(from, to, 1);
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains("line 1") && e.contains(says), "{name}: {e}");
    }
    let three = two_zones().swap_remove(0).replacen(r#""state":["#, r#""state":[{},"#, 1);
    let e = run("three", &[three]).unwrap_err().to_string();
    assert!(e.contains("line 1: "), "{e}");
}

/// The flag of one zone's lists, in a recording that changes both.
#[test]
fn zone_operations_apply_to_the_selected_zone() {
    let flags = |line: &str| -> Vec<bool> {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let zones = line["state"].as_array().unwrap();
        zones.iter().map(|z| z["pcp"][0]["flags"].as_u64().unwrap() & 2 != 0).collect()
    };
    let start = two_zones().swap_remove(0);
    assert_eq!(flags(&start), [true, true]);
    let mut expected: serde_json::Value = serde_json::from_str(&start).unwrap();
    let pcps = expected["state"][1]["pcp"].as_array_mut().unwrap();
    for pcp in pcps {
        pcp["flags"] = (pcp["flags"].as_u64().unwrap() & !2).into();
    }
    expected["state"][1]["flags"] = (expected["state"][1]["flags"].as_u64().unwrap() | 2).into();
    let operations = [r#"{"op":"z 1","got":[0]}"#, r#"{"op":"B 0"}"#, r#"{"op":"R 1"}"#];
    let lines: Vec<String> = std::iter::once(start)
        .chain(operations.map(String::from))
        .chain([expected.to_string()])
        .collect();
    let o = run("chosen", &lines).unwrap();
    assert!(o.matches(), "{o}");
    // Applied to the other zone, they cause a difference that names both zones.
    let lines: Vec<String> = lines.iter().map(|l| l.replace("z 1", "z 0")).collect();
    let o = run("other", &lines).unwrap();
    let details = o.difference.unwrap().details;
    assert!(details.iter().any(|d| d.starts_with("Normal: flags")), "{details:?}");
    assert!(details.iter().any(|d| d.starts_with("DMA32: cpu 0 flags")), "{details:?}");
}

#[test]
fn an_impossible_state_is_an_error() {
    for (name, from, to, says) in [
        ("zone", r#""zone":"DMA32""#, r#""zone":"High""#, "unknown zone"),
        ("types", r#""blocks":"0"#, r#""blocks":"8"#, "has type '8'"),
        ("count", r#""cpu":0,"count":"#, r#""cpu":0,"count":9"#, "count"),
        ("order", r#"{"order":10,"nr":"#, r#"{"order":11,"nr":"#, "order 11 does not exist"),
        ("pages", r#""spanned":"#, r#""spanned":9999999"#, "the zone spans 9999999"),
        (
            "start",
            r#""start_pfn":"#,
            r#""start_pfn":184467440737095"#,
            "from frame 184467440737095",
        ),
        ("place", r#""lists":[[]"#, r#""lists":[[18446744073709551615]"#, "frame 1844674407370955"),
    ] {
        let mut lines = lines();
        assert!(lines[0].contains(from), "{name}");
        lines[0] = lines[0].replacen(from, to, 1);
        let e = run(name, &lines).unwrap_err().to_string();
        assert!(e.contains("line 1") && e.contains(says), "{name}: {e}");
    }
}

#[test]
fn an_endless_line_is_an_error() {
    let long = "1".repeat(40 << 20);
    let e = run("long", std::slice::from_ref(&long)).unwrap_err().to_string();
    assert!(e.contains("line 1: the line is longer than 32 MiB"), "{e}");
    // The limit for a compressed line is lower.
    let path = std::env::temp_dir().join(format!("pageyard-{}-long.zst", std::process::id()));
    std::fs::write(&path, zstd::encode_all(long.as_bytes(), 1).unwrap()).unwrap();
    let e = run_file(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(
        e.contains("line 1: the compressed stream: ") && e.contains(" expand to more than "),
        "{e}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let e = run_file(Path::new("no/such/recording.jsonl.zst")).unwrap_err();
    assert!(matches!(&e, ConformError::Io { .. }) && e.to_string().contains("no/such/recording"));
}

#[test]
fn a_damaged_file_is_an_error() {
    let bytes = std::fs::read(recording("reserves-1.jsonl.zst")).unwrap();
    let path = std::env::temp_dir().join(format!("pageyard-{}-cut.zst", std::process::id()));
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let e = run_file(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(e, ConformError::Malformed { .. }), "{e}");
}
