//! Standard output is full or has no reader; standard error is full.

use std::fs::File;
use std::process::Stdio;

use pageyard_host::{Builder, HostYard};

use super::folder::{Folder, words};
use super::{commands, slow_too};
use crate::{PROGRAM, publishing};

/// Every command that prints, in every form.
const PRINTERS: &[&str] = &[
    "--help",
    "--version",
    "help replay",
    "replay --help",
    "replay trace.txt --seeds 1 --policy Linux612",
    "replay trace.txt --seeds 1 --policy Linux612 --json",
    "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200",
    "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200 --json",
    "reproduce list",
    "compare results.json again.json",
    "compare results.json again.json --csv",
    "compare results.json again.json --tsv",
    "compare results.json again.json --json",
    "compare again.json --aa --deals 5",
    "compare again.json --aa --deals 5 --json",
    "workloads",
    "machines",
    "top SELF --once",
    "top SELF --json",
    "topology two-nodes",
    "topology two-nodes --json",
    "conform ORACLE",
    "conform ORACLE --json",
    "show SAMPLE --as zoneinfo",
    "show SAMPLE --as zoneinfo --json",
    "show trace.txt --as page_owner",
    "show trace.txt --as page_owner --by name",
    "show trace.txt --as page_owner --json",
    "soak --minutes 0.01 --size 64M",
    "soak --minutes 0.01 --size 64M --json",
    "sweep sweep.toml -o swept",
    "sweep sweep.toml -o swept --json",
    "judge Step5 --only micro --seeds 1 -o judged",
    "judge Step5 --only micro --seeds 1 -o judged --json",
    "knobs",
    "knobs --json",
    "knobs --markdown",
    "policies",
    "policies --json",
    "trace import trace.txt out.pgy --level 1",
    "trace info trace.txt",
    "trace info trace.txt --json",
    "trace export trace.txt",
    "trace export SAMPLE --state out",
];
const SLOW_PRINTERS: &[&str] = &[
    "calibrate",
    "reproduce bulk-free --small",
    "reproduce bulk-free --small --json",
    "run hygiene --rounds 1 --memory 256M",
    "run hygiene --rounds 1 --memory 256M --json",
];

/// Runs all of them with this standard output.
fn all(stdout: impl Fn() -> Stdio, right: impl Fn(&str, Option<i32>, &str) -> bool) {
    let folder = Folder::new();
    // Published for `top`, which reads this process.
    let yard: HostYard = Builder::new(16 << 20).build().unwrap();
    let slow = SLOW_PRINTERS.iter().filter(|_| slow_too());
    let mut failed = Vec::new();
    for line in PRINTERS.iter().chain(slow) {
        let own = std::process::id().to_string();
        let words = words(line).into_iter().map(|w| if w == "SELF" { own.clone() } else { w });
        let mut command = folder.command(PROGRAM);
        command.args(words).stdout(stdout()).stderr(Stdio::piped());
        let alone = line.contains("SELF").then(publishing);
        let o = command.spawn().unwrap().wait_with_output().unwrap();
        drop(alone);
        let said = String::from_utf8_lossy(&o.stderr);
        if !right(line, o.status.code(), &said) {
            failed.push(format!("{line}: {}: {said}", o.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    drop(yard);
}

#[test]
fn every_command_is_covered() {
    for command in commands() {
        let name = command.join(" ");
        let named = |l: &&&str| **l == name || l.starts_with(&format!("{name} "));
        // Needs a tree of files: `record.rs`.
        let known = name == "record" || PRINTERS.iter().chain(SLOW_PRINTERS).any(|l| named(&l));
        assert!(known, "{name} prints something: give it a line");
    }
}

#[test]
fn a_full_output_device_is_an_error() {
    let full = || File::options().write(true).open("/dev/full").unwrap().into();
    let wanted = "pageyard: standard output: No space left on device; free space";
    all(full, |_, code, said| code == Some(2) && said.contains(wanted));
}

#[test]
fn a_closed_output_is_an_error() {
    let folder = Folder::new();
    let ran = |script: &str, line: &str| {
        let mut shell = folder.command("sh");
        shell.args(["-c", script, PROGRAM]).args(words(line)).output().unwrap()
    };
    for line in ["trace info trace.txt", "trace info trace.txt --json", "trace --help"] {
        let o = ran("\"$0\" \"$@\" >&-", line);
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("standard output: Bad file descriptor"), "{line}: {said}");
        // As Python's `subprocess.DEVNULL`.
        assert!(ran("\"$0\" \"$@\" 1<>/dev/null", line).status.success(), "{line}");
    }
    // Nothing is printed.
    assert!(ran("\"$0\" \"$@\" >&-", "trace export trace.txt -o copy.txt").status.success());
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    // The reader has closed the pipe before the program starts.
    let closed = || std::io::pipe().unwrap().1.into();
    all(closed, |line, code, said| {
        // page_owner prints notes on what a trace does not record.
        let notes = line.contains("page_owner");
        code == Some(0) && (said.is_empty() || notes && !said.contains("panicked"))
    });
}

#[test]
fn a_full_error_output_does_not_panic() {
    let folder = Folder::new();
    for line in ["replay nothing.pgy", "topology nothing", "nothing"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = folder.command(PROGRAM).args(words(line)).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(2), "{line}");
    }
    // Ignored events are reported on standard error.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut owner = folder.command(PROGRAM);
    let owner = owner.args(["show", "trace.txt", "--as", "page_owner", "--by", "name"]);
    assert!(owner.stderr(full).stdout(Stdio::null()).status().unwrap().success());
}
