// The body for bytes that may be a file for the lab: a recording of the real kernel, saved results,
// a topology, a trace to replay. The worst that an input may cause is an error that names the input
// and the place in it.
//
// Output that costs more than reading its input (pictures, every form of table, a second run of the
// same recording compressed) is made for one input in eight, chosen by its hash, so that the same
// input is always checked in the same way.

use std::io::Cursor;
use std::path::Path;

use pageyard::Knobs;
use pageyard_lab::conform::{ConformError, Outcome, run_file};
use pageyard_lab::picture::{PLOTS, Page};
use pageyard_lab::replay::{Input, MachineOptions, TickPhase, by_name, owners};
use pageyard_lab::result::Metric;
use pageyard_lab::show::{self, show};
use pageyard_lab::table::{
    Form, Options, Report, Rows, Rule, Source, align, false_alarms, ops, tsv,
};
use pageyard_lab::topology::{Description, MOST_CPUS, MOST_NODES};
use pageyard_lab::{owner, replay as lab};
use pageyard_trace::TraceReader;
use pageyard_trace::state::StateDir;

/// A state at the start of a recording, as JSON lines.
const START: &str = include_str!("../seeds/start.json");
/// The same for two zones.
const START_OF_TWO: &str = include_str!("../seeds/start_of_two.json");

/// Whether all output is made for this input.
fn in_full(data: &[u8]) -> bool {
    let hash = data.iter().fold(0u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    (hash >> 16).is_multiple_of(8)
}

/// A recording: lines of JSON. After a `~`, only operations, one per line, each with its answer
/// after a `=`; after a `^`, operations on two zones.
pub fn oracle(data: &[u8]) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap();
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("fuzz.jsonl");
        match data {
            [b'~', operations @ ..] => recording(&path, &lines(START, operations)),
            [b'^', operations @ ..] => recording(&path, &lines(START_OF_TWO, operations)),
            _ => recording(&path, data),
        }
    });
}

/// A recording of this start and these operations.
fn lines(start: &str, operations: &[u8]) -> Vec<u8> {
    let mut all = start.to_owned();
    for line in String::from_utf8_lossy(operations).lines() {
        let (op, got) = line.split_once('=').unwrap_or((line, ""));
        let op = serde_json::to_string(op).unwrap();
        all += &if got.is_empty() {
            format!("{{\"op\":{op}}}\n")
        } else {
            format!("{{\"op\":{op},\"got\":[{got}]}}\n")
        };
    }
    all.into_bytes()
}

fn recording(path: &Path, data: &[u8]) {
    let named = |e: String| assert!(e.contains("fuzz.jsonl"), "{e}");
    let run = |data: &[u8]| {
        std::fs::write(path, data).unwrap();
        run_file(path)
    };
    let plain = run(data);
    match &plain {
        Ok(o) => {
            assert!(o.answers <= o.answers_recorded && o.states <= o.states_recorded, "{o}");
            assert!(
                !o.matches() || (o.answers, o.states) == (o.answers_recorded, o.states_recorded)
            );
            serde_json::to_string(o).unwrap();
        }
        Err(e) => named(e.to_string()),
    }
    let said = |r: Result<Outcome, ConformError>| match r {
        Ok(o) => o.to_string(),
        Err(e) => e.to_string(),
    };
    let plain = said(plain);
    if data.first() == Some(&b'{') && in_full(data) {
        for form in show::Form::ALL {
            let when =
                show::When { line: Some(1 + data.len() as u64 % 4), ..show::When::default() };
            match show(path, form, when) {
                Ok(shown) => assert!(!shown.text.is_empty() && shown.json.is_object()),
                Err(e) => named(e.to_string()),
            }
        }
        // The compressed input gives the same result.
        assert_eq!(said(run(&zstd::encode_all(data, 1).unwrap())), plain);
    }
}

/// Saved results, several files separated by zeros; after a `%`, two texts of `/proc/vmstat`.
pub fn results(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(text) = text.strip_prefix('%') {
        let (before, after) = text.split_once('\0').unwrap_or((text, ""));
        match ops(before, after, 10.0) {
            Ok(metrics) => {
                let finite = |m: &Metric| m.samples.iter().flatten().all(|s| s.is_finite());
                assert!(metrics.iter().all(finite), "{metrics:?}");
            }
            Err(e) => assert!(e.to_string().starts_with("vmstat"), "{e}"),
        }
        return;
    }
    let mut sources = Vec::new();
    for (i, text) in text.split('\0').take(3).enumerate() {
        let name = format!("fuzz{i}.json");
        match Source::parse(name.clone(), text) {
            Ok(source) => {
                let again = serde_json::to_string(&source.results).unwrap();
                let again = Source::parse(name, &again).unwrap();
                assert_eq!(again.results, source.results);
                sources.push(source);
            }
            Err(e) => return assert!(e.to_string().starts_with(&name), "{e}"),
        }
    }
    let sets = match align(&sources) {
        Ok(sets) => sets,
        Err(e) => return assert!(e.to_string().starts_with("fuzz"), "{e}"),
    };
    if !in_full(data) {
        let report = Report::new(&sets, &Options::default());
        assert!(!report.to_string().is_empty() && !tsv(&sets).is_empty());
        return;
    }
    let tables = Form::ALL.map(|(_, form)| Options { form, ..Options::default() });
    let rows = Options { rows: Rows::Variabletime, ..tables[1].clone() };
    for options in tables.into_iter().chain([rows]) {
        let report = Report::new(&sets, &options);
        assert!(!report.to_string().is_empty());
        report.csv();
        serde_json::to_string(&report).unwrap();
    }
    assert!(!tsv(&sets).is_empty());
    for set in &sets {
        if let Err(e) = false_alarms(set, Rule::default(), 2) {
            assert!(!e.to_string().is_empty());
        }
    }
    let mut page = Page::new("fuzz", "fuzz");
    page.compare(&sources, &Options::default()).unwrap();
    assert!(page.html().starts_with("<!DOCTYPE html>"));
    for (name, _) in PLOTS {
        if let Ok(svg) = page.svg(Some(name)) {
            assert!(svg.contains("<svg") && !svg.contains("NaN"), "{name}");
        }
    }
}

/// A topology file.
pub fn topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let t = match Description::from_toml("fuzz", text).and_then(|d| d.check()) {
        Ok(t) => t,
        Err(e) => return assert!(e.to_string().starts_with("fuzz: "), "{e}"),
    };
    assert!((1..=MOST_CPUS as usize).contains(&t.cpus().len()));
    assert!((1..=MOST_NODES).contains(&t.nodes()));
    assert_eq!(t.distances().len(), t.nodes() * t.nodes());
    assert_eq!(t.caches().len(), t.cpus().len());
    let inside = |r: &std::ops::Range<pageyard::Pfn>| {
        let zones = t.zones().iter().filter(|z| z.span.start < r.end && r.start < z.span.end);
        let common = zones.map(|z| z.span.end.0.min(r.end.0) - z.span.start.0.max(r.start.0));
        common.sum::<u64>() == r.end.0 - r.start.0
    };
    assert!(t.usable().iter().chain(t.reserved()).all(inside), "memory of no zone");
    assert!(t.to_string().starts_with("fuzz: "));
    // The JSON form has zonelists exactly if the core accepts the topology.
    let needs = t.layout(Knobs::default()).needs::<pageyard_lab::Lock>();
    if !in_full(data) {
        return;
    }
    let json = t.json();
    assert_eq!(json["zonelists"].is_null(), needs.is_err());
    let read: serde_json::Value = serde_json::from_str(&json.to_string()).unwrap();
    assert_eq!(read, json);
}

/// A trace in any form, replayed on the machine that its state files describe, or on a small one.
pub fn replay(data: &[u8]) {
    let read = || Box::new(Cursor::new(data.to_vec()));
    let Ok(reader) = TraceReader::from_reader("fuzz", read(), Default::default()) else { return };
    let Ok(state) = StateDir::from_attachments(reader.attachments()) else { return };
    // Each frame has several bytes in tables, up to a TiB in all: too much here.
    let all = [&state.before, &state.traced_start, &state.traced_end, &state.after];
    let zones = || all.iter().filter_map(|s| s.zoneinfo.as_ref()).flat_map(|i| i.populated());
    let last = zones().map(|z| z.start_pfn.unwrap_or(0).saturating_add(z.spanned)).max();
    let first = zones().map(|z| z.start_pfn.unwrap_or(0)).min();
    if last.unwrap_or(0) - first.unwrap_or(0) > 1 << 18 {
        return;
    }
    let options = |lenient| lab::Options {
        policies: ["Linux612", "Vanilla"].map(|p| by_name(p).unwrap()).to_vec(),
        tick_phase: TickPhase::At(0.5),
        machine: MachineOptions {
            memory: Some(16 << 20),
            cpus: Some(4),
            ..MachineOptions::default()
        },
        lenient,
        jobs: 1,
        explain: true,
        record: true,
        ..lab::Options::default()
    };
    let input = || Input::Stream("fuzz".into(), read());
    let whole = in_full(data);
    for lenient in [false, true] {
        match lab::replay(input(), &options(lenient), &mut |_, _, _| ()) {
            Ok(report) => {
                assert!(!report.to_string().is_empty());
                if !whole {
                    // Without an error, the lenient reader gives the same result.
                    break;
                }
                serde_json::to_string(&report).unwrap();
                let mut page = Page::new("fuzz", "fuzz");
                page.replay(&report);
                assert!(page.html().starts_with("<!DOCTYPE html>"));
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
    if !whole {
        return;
    }
    if let Ok(owners) = owners(
        input(),
        &lab::Options { explain: false, record: false, ..options(true) },
        &mut |_, _, _| (),
    ) {
        owners.summary(owner::By::Task);
        owners.json(None);
        let _ = owners.to_string();
    }
}
