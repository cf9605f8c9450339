//! Text from a file, another process or a quoted argument never reaches a terminal as control
//! characters.

use std::process::Stdio;

use pageyard_trace::is_active;

use super::commands;
use super::folder::{Folder, words};
use super::hostile::{EVIL, Publisher, evil, make, statistics};
use crate::PROGRAM;

/// Every command with hostile inputs or arguments, and its exit code.
const LINES: &[(&str, i32)] = &[
    ("EVIL", 2),
    ("--EVIL", 2),
    ("replay EVILtrace.txt --seeds 1 --memory 64M", 0),
    ("replay EVILtrace.txt --seeds 1 --memory 64M --json", 0),
    ("replay EVILtrace.txt --seeds 1 --memory 64M --html EVIL.html --svg EVIL.svg", 0),
    ("replay EVILdamaged.txt --seeds 1 --memory 64M --lenient", 0),
    ("replay EVILdamaged.txt --seeds 1 --memory 64M", 2),
    ("replay EVILtrace.txt --seeds 1 --state EVILfolder", 2),
    ("replay EVILtrace.txt --state EVILnone", 2),
    ("replay EVILstate.pgy --seeds 1", 2),
    ("replay EVILattached.pgy", 2),
    ("replay EVILempty.txt", 2),
    ("replay EVILgarbage", 2),
    ("replay EVILnone", 2),
    ("replay EVILtrace.txt --policy EVIL", 2),
    ("replay EVILtrace.txt --on machine:EVILkey.toml", 2),
    ("record --tracefs EVILnone -o EVIL.pgy -- true", 2),
    ("record --duration EVIL", 2),
    ("run EVIL", 2),
    ("run unix --on machine:EVILkey.toml", 2),
    ("run unix --on machine:EVILnone", 2),
    ("run unix --on machine:desktop --set EVIL=1", 2),
    ("run unix --on machine:desktop --set pairs=EVIL", 2),
    ("run unix --policy EVIL", 2),
    ("run hygiene --memory EVIL", 2),
    ("reproduce EVIL", 2),
    ("reproduce list EVIL", 2),
    ("reproduce bulk-free EVIL", 2),
    ("compare EVILresults.json", 0),
    ("compare EVILresults.json --csv", 0),
    ("compare EVILresults.json --tsv", 0),
    ("compare EVILresults.json --json", 0),
    ("compare EVILresults.json --aa --deals 2", 2),
    ("compare EVILone.json --aa --deals 2", 0),
    ("compare EVILresults.json --form mmtests-2019", 0),
    ("compare EVILresults.json --form mmtests-2024", 0),
    ("compare EVILresults.json --form index", 0),
    ("compare EVILresults.json --form change", 0),
    ("compare EVILresults.json --form change-2024", 0),
    ("compare EVILresults.json --form series", 0),
    ("compare EVILresults.json --html EVIL.html --svg EVIL.svg", 0),
    ("compare EVILwrong.json", 2),
    ("compare EVILgarbage", 2),
    ("compare EVILnone", 2),
    ("compare EVILresults.json --form EVIL", 2),
    ("workloads EVIL", 2),
    ("machines EVIL", 2),
    ("calibrate EVIL", 2),
    ("top OTHER --once", 0),
    ("top OTHER --json", 0),
    ("top EVIL", 2),
    ("topology EVILgood.toml", 0),
    ("topology EVILgood.toml --json", 0),
    ("topology EVILkey.toml", 2),
    ("topology EVILvalue.toml", 2),
    ("topology EVILgarbage", 2),
    ("topology EVILnone", 2),
    ("conform EVILop.jsonl", 2),
    ("conform EVILstate.jsonl", 2),
    ("conform EVILzone.jsonl", 2),
    ("conform EVILgarbage", 2),
    ("conform EVILnone", 2),
    ("show EVILfolder --as zoneinfo", 2),
    ("show EVILstate.pgy --as zoneinfo", 2),
    ("show EVILgood --as buddyinfo", 0),
    ("show EVILgood --as buddyinfo --json", 0),
    ("show EVILgood --as vmstat", 0),
    ("show EVILgood --as vmstat --json", 0),
    ("show EVILgood --as pagetypeinfo", 0),
    ("show EVILgood --as pagetypeinfo --json", 0),
    ("show EVILgood --as zoneinfo", 2),
    ("show EVILzone.jsonl --as zoneinfo", 2),
    ("show EVILtrace.txt --as page_owner --memory 64M", 0),
    ("show EVILtrace.pgy --as page_owner --memory 64M", 0),
    ("show EVILtrace.pgy --as page_owner --memory 64M --by name", 0),
    ("show EVILtrace.pgy --as page_owner --memory 64M --by task", 0),
    ("show EVILtrace.pgy --as page_owner --memory 64M --json", 0),
    ("show EVILtrace.pgy --as EVIL", 2),
    ("show EVILtrace.pgy --as page_owner --by EVIL", 2),
    ("soak --minutes EVIL", 2),
    ("sweep EVILgarbage", 2),
    ("sweep EVILnone", 2),
    ("judge EVIL", 2),
    ("judge Step5 --only EVIL", 2),
    ("judge Step5 --trace EVILnone", 2),
    ("knobs EVIL", 2),
    ("policies EVIL", 2),
    ("replay EVILtrace.txt --memory 64M --policy EVIL", 2),
    ("replay EVILtrace.txt --memory 64M --policy Base+high=EVIL", 2),
    ("replay EVILtrace.txt --memory 64M --knob EVIL=1", 2),
    ("run unix --policy Vanilla<EVIL>", 2),
    ("run unix --knob EVIL", 2),
    ("trace EVIL", 2),
    ("trace import EVILtrace.txt EVILout.pgy", 0),
    ("trace import EVILtrace.txt EVILout.pgy --state none", 0),
    ("trace import EVILdamaged.txt EVILout.pgy --state none --lenient", 0),
    ("trace import EVILdamaged.txt EVILout.pgy --state none", 2),
    ("trace import EVILtrace.txt EVILnone/out.pgy --state none", 2),
    ("trace info EVILtrace.txt", 0),
    ("trace info EVILtrace.pgy", 0),
    ("trace info EVILstate.pgy", 0),
    ("trace info EVILstate.pgy --json", 0),
    ("trace info EVILdamaged.txt --lenient", 0),
    ("trace info EVILdamaged.txt --lenient --json", 0),
    ("trace info EVILdamaged.txt", 2),
    ("trace info EVILattached.pgy", 2),
    ("trace info EVILattached.pgy --lenient", 0),
    ("trace export EVILtrace.txt", 0),
    ("trace export EVILtrace.pgy", 0),
    ("trace export EVILdamaged.txt", 2),
    ("trace export EVILstate.pgy --state EVILextracted", 0),
    ("trace export EVILattached.pgy --state EVILextracted", 2),
    ("trace export EVILtrace.txt --state EVILextracted", 2),
];

#[test]
fn every_command_is_covered() {
    for command in commands() {
        let name = command.join(" ");
        let known = LINES.iter().any(|(l, _)| l.starts_with(&format!("{name} ")));
        assert!(known, "{name}: give it a line with hostile input");
    }
}

#[test]
fn no_control_characters_are_printed() {
    let folder = Folder::bare();
    make(&folder.0);
    // The parsers accept these files, so their text is shown.
    let good = folder.0.join(evil("EVILgood"));
    let bad = folder.0.join(evil("EVILfolder"));
    std::fs::create_dir_all(good.join("before")).unwrap();
    for name in ["buddyinfo", "pagetypeinfo", "vmstat"] {
        std::fs::copy(bad.join("before").join(name), good.join("before").join(name)).unwrap();
    }
    std::fs::create_dir(folder.0.join("none")).unwrap();
    let other = Publisher::new(&statistics(EVIL, EVIL), 1);
    let mut failed = Vec::new();
    for (line, code) in LINES {
        let words = words(line).into_iter().map(|w| evil(&w.replace("OTHER", &other.pid())));
        let mut command = folder.command(PROGRAM);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let o = command.spawn().unwrap().wait_with_output().unwrap();
        for (what, bytes) in [("stdout", &o.stdout), ("stderr", &o.stderr)] {
            let text = String::from_utf8_lossy(bytes);
            let tab = line.contains("--tsv");
            let acts = |c: char| c != '\n' && !(tab && c == '\t') && is_active(c);
            if let Some(at) = text.find(acts) {
                let from = (0..=at.saturating_sub(60)).rev().find(|&i| text.is_char_boundary(i));
                let shown: String = text[from.unwrap_or(0)..].chars().take(160).collect();
                failed.push(format!("{line}: {what}: {shown:?}"));
            }
        }
        if o.status.code() != Some(*code) {
            let said = String::from_utf8_lossy(&o.stderr);
            failed.push(format!("{line}: {}, not {code}: {said}", o.status));
        }
        // An error is one line, whatever it quotes.
        let said = String::from_utf8_lossy(&o.stderr);
        if *code == 2 && said.starts_with("pageyard: ") && said.lines().count() != 1 {
            failed.push(format!("{line}: more than one line: {said}"));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), LINES.len(), failed.join("\n"));
    for picture in ["EVIL.html", "EVIL.svg"] {
        let text = std::fs::read_to_string(folder.0.join(evil(picture))).unwrap();
        let acts = |c: char| !matches!(c, '\n' | '\t') && is_active(c);
        assert!(!text.contains(acts), "{picture}");
    }
}

/// An error that quotes another process's invalid page quotes it as text.
#[test]
fn an_invalid_statistics_page_is_quoted_as_text() {
    let text =
        statistics("calm", "").replacen("\"zones\":[", "\"zones\":[\"\\u001b[2J\u{9b}\",", 1);
    let other = Publisher::new(&text, 1);
    let o = Folder::bare().command(PROGRAM).args(["top", &other.pid(), "--once"]).output().unwrap();
    assert_eq!(o.status.code(), Some(2));
    let said = String::from_utf8(o.stderr).unwrap();
    assert!(said.contains("/fd/") && !said.contains(|c| c != '\n' && is_active(c)), "{said}");
}
