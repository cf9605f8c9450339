//! SIGINT and SIGTERM in the middle of every long command end it at once. Existing files are
//! unchanged, and no incomplete file, no child process and no changed terminal settings are left.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pageyard_host::{Builder, HostYard};

use super::commands;
use super::folder::{Folder, words};
use crate::{PROGRAM, publishing};

/// How a command shows that it is working.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// It has used CPU time.
    Computes,
    /// It has read its input, and waits for more.
    Reads,
    /// An incomplete file exists.
    Writes,
    /// Both `Reads` and `Writes`.
    Both,
    /// It has started a child process.
    Starts,
}

/// Every command that takes long; `top` has its own test.
const LONG: &[(&str, Work)] = &[
    ("replay SAMPLE --seeds 10000 --html out", Work::Computes),
    ("replay -", Work::Reads),
    ("run page_fault1 --iterations 1000000 -o out", Work::Computes),
    ("run page_fault1 --on host --memory 256M --iterations 1000000 -o out", Work::Computes),
    ("run hygiene --rounds 1000000 --trace out", Work::Writes),
    ("reproduce auto-tuning --iterations 1000 -o out", Work::Computes),
    ("reproduce auto-tuning --sensitivity -o out", Work::Computes),
    ("reproduce fast-path -o out", Work::Starts),
    ("compare again.json --aa --deals 1000000", Work::Computes),
    ("calibrate", Work::Computes),
    ("conform ORACLES", Work::Computes),
    ("show - --as page_owner", Work::Reads),
    ("soak --minutes 100 --size 64M", Work::Computes),
    ("sweep long.toml -o swept", Work::Computes),
    ("judge Step5 --full -o judged", Work::Computes),
    ("trace import - out", Work::Both),
    ("trace export - -o out", Work::Both),
    ("trace info -", Work::Reads),
];
/// Commands that end too soon to be interrupted.
const SHORT: &[&str] = &["workloads", "machines", "topology", "knobs", "policies"];

/// Timeout for events that are immediate, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const OLD: &str = "what was there before\n";

/// A signal, by its number.
type Signal = i32;
const HUP: Signal = 1;
const INT: Signal = 2;
const TERM: Signal = 15;

fn send(signal: Signal, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(status.unwrap().success());
}

fn until<T>(limit: Duration, mut f: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        let found = f();
        if found.is_some() || Instant::now() > end {
            return found;
        }
        sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when its test ends.
struct Running(Child);

impl Running {
    fn ends(&mut self, limit: Duration) -> Option<ExitStatus> {
        until(limit, || self.0.try_wait().unwrap())
    }

    /// CPU time in hundredths of a second.
    fn computed(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes with this string in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let has = |pid: u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|e| e.split(|&b| b == 0).any(|v| v == mark.as_bytes()))
    };
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| has(pid)).collect()
}

fn is_at_work(p: &Running, work: Work, folder: &Folder, mark: &str) -> bool {
    let parts = || -> Vec<String> {
        let names = folder.listing().into_iter().map(|(name, _)| name);
        names.filter(|name| name.ends_with(".part")).collect()
    };
    // Still there a moment later: one that is not only shows that the program could write there.
    let writes = || {
        let first = parts();
        sleep(Duration::from_millis(5));
        parts().iter().any(|name| first.contains(name))
    };
    match work {
        Work::Computes => p.computed() >= 20,
        Work::Reads => true,
        Work::Writes | Work::Both => writes(),
        Work::Starts => marked(mark).len() > 1,
    }
}

/// Writes more than a pipe holds, so that the process has read some of it when this returns.
fn feed(folder: &Folder, to: &mut ChildStdin) -> std::io::Result<()> {
    let text = fs::read(folder.0.join("trace.txt"))?;
    assert!(text.len() > 128 << 10);
    to.write_all(&text)
}

/// Starts the command, lets it work, sends the signal, and returns what was wrong.
fn interrupted(
    program: &str,
    line: &str,
    work: Work,
    signal: Signal,
    limit: Duration,
) -> Result<(), String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let folder = Folder::new();
    fs::write(folder.0.join("out"), OLD).unwrap();
    let before = folder.listing();
    let (name, n) = ("PAGEYARD_INTERRUPTED", NUMBER.fetch_add(1, Relaxed));
    let value = format!("{}-{n}", std::process::id());
    let mark = format!("{name}={value}");
    let oracles = words(&"ORACLE ".repeat(1000));
    let words = words(line).into_iter();
    let words = words.flat_map(|w| if w == "ORACLES" { oracles.clone() } else { vec![w] });
    let mut command = folder.command(program);
    command.args(words).env(name, &value).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut stdin = running.0.stdin.take().unwrap();
    if matches!(work, Work::Reads | Work::Both) {
        feed(&folder, &mut stdin).map_err(|e| format!("{line}: it does not read: {e}"))?;
    }
    let at_work = until(LIMIT, || {
        let over = running.0.try_wait().unwrap().is_some();
        (over || is_at_work(&running, work, &folder, &mark)).then_some(!over)
    });
    let said = |running: &mut Running| {
        let mut said = String::new();
        let _ = running.0.stderr.take().unwrap().read_to_string(&mut said);
        said
    };
    match at_work {
        None => return Err(format!("{line}: is never at work")),
        Some(false) => {
            let said = said(&mut running);
            return Err(format!("{line}: was over before: {said}"));
        }
        Some(true) => {}
    }
    send(signal, running.0.id());
    let Some(status) = running.ends(limit) else { return Err(format!("{line}: goes on")) };
    if status.signal() != Some(signal) {
        return Err(format!("{line}: ended with {status}"));
    }
    let left = until(limit, || marked(&mark).is_empty().then_some(()));
    if left.is_none() {
        let left = marked(&mark);
        for &pid in &left {
            send(9, pid);
        }
        return Err(format!("{line}: left running: {left:?}"));
    }
    let said = said(&mut running);
    // What sweep and judge have computed stays in their folder.
    let keeps = ["sweep ", "judge "].iter().any(|name| line.starts_with(name));
    let is_said = if keeps {
        said.lines().count() == 1 && said.ends_with("/cells; the same command continues\n")
    } else {
        said.is_empty()
    };
    if !is_said {
        return Err(format!("{line}: said {said}"));
    }
    let after = folder.listing();
    if after != before || fs::read_to_string(folder.0.join("out")).unwrap() != OLD {
        return Err(format!("{line}: left behind: {after:?}"));
    }
    Ok(())
}

fn all(signal: Signal, wanted: impl Fn(&str) -> bool) {
    let has_valgrind = pageyard_unmet::program("valgrind", "valgrind");
    let there = LONG.iter().filter(|(_, work)| *work != Work::Starts || has_valgrind);
    let failed: Vec<String> = there
        .filter(|(line, _)| wanted(line))
        .filter_map(|(line, work)| interrupted(PROGRAM, line, *work, signal, LIMIT).err())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn sigint_ends_every_command() {
    all(INT, |_| true);
}

#[test]
fn sigterm_ends_every_command_that_writes() {
    all(TERM, |line| line.contains(" out"));
}

#[test]
fn every_command_is_covered() {
    for command in commands() {
        let name = command.join(" ");
        let long = LONG.iter().any(|(l, _)| l.starts_with(&format!("{name} ")));
        let known = long
            || name == "top"
            // Its first signal ends the recording only: `record.rs`.
            || name == "record"
            || SHORT.contains(&name.as_str())
            || LONG.iter().any(|l| l.0 == name);
        assert!(known, "{name} may take long: give it a line, or say that it is short");
    }
}

#[test]
fn ignoring_a_signal_or_leaving_files_is_detected() {
    let folder = Folder::new();
    let plant = |name: &str, script: &str| {
        let path = folder.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(&path).status().unwrap().success());
        path.display().to_string()
    };
    let deaf = plant("deaf", "trap '' INT; echo > deaf.part; while :; do :; done");
    let half = plant("half", "echo half > out.part; while :; do :; done");
    let place = plant("place", "echo half > out; while :; do :; done");
    let child = plant("child", "sleep 1000 & while :; do :; done");
    let calm =
        plant("calm", "trap 'rm new.part; exit 0' INT; echo > new.part; while :; do :; done");
    for (program, work, says) in [
        (&deaf, Work::Writes, "goes on"),
        (&half, Work::Writes, "left behind"),
        (&place, Work::Computes, "left behind"),
        (&child, Work::Starts, "left running"),
        (&calm, Work::Writes, "ended with"),
    ] {
        // Two of the planted programs never end by themselves.
        let in_vain = ["goes on", "left running"].contains(&says);
        let limit = if in_vain { Duration::from_secs(2) } else { LIMIT };
        let found = interrupted(program, "x", work, INT, limit);
        assert!(found.as_ref().is_err_and(|e| e.contains(says)), "{program}: {found:?}");
    }
}

/// nohup, and shells that start background commands, ignore signals; the program must keep them
/// ignored.
#[test]
fn a_signal_that_was_ignored_is_ignored() {
    let folder = Folder::new();
    let script = "trap '' INT; exec \"$0\" soak --minutes 100 --size 64M";
    let child = folder.command("sh").args(["-c", script, PROGRAM]).stdout(Stdio::null()).spawn();
    let mut running = Running(child.unwrap());
    assert!(until(LIMIT, || (running.computed() >= 20).then_some(())).is_some());
    send(INT, running.0.id());
    // If the ignored signal had ended it, its status would not name SIGTERM.
    send(TERM, running.0.id());
    let status = running.ends(LIMIT).expect("it ends");
    assert_eq!(status.signal(), Some(TERM));
}

/// `script` provides a terminal.
#[test]
fn top_restores_the_terminal() {
    const ENTERS: &str = "\u{1b}[?1049h";
    const LEAVES: &str = "\u{1b}[?1049l";
    if !pageyard_unmet::program("script", "bsdutils") {
        return;
    }
    let _alone = publishing();
    let yard: HostYard = Builder::new(16 << 20).build().unwrap();
    let own = std::process::id();
    for signal in [INT, TERM, HUP] {
        let folder = Folder::new();
        // `top` would wait an hour for the next picture. (The numbers of `stty -g` are not
        // compared, because an input speed equal to the output's may be printed or not.)
        let lines = format!(
            "trap : INT TERM HUP; stty rows 40 cols 120; stty -a > before
             '{PROGRAM}' top {own} --every 3600; echo $? > code; stty -a > after"
        );
        let (name, value) = ("PAGEYARD_TOP", format!("{own}-{signal}"));
        let mut script = folder.command("script");
        script.args(["-qfec", &lines, "shown"]).env(name, &value).env("TERM", "xterm");
        script.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut running = Running(script.spawn().unwrap());
        let read = |file: &str| {
            String::from_utf8_lossy(&fs::read(folder.0.join(file)).unwrap_or_default()).into_owned()
        };
        let shows =
            |what: &str| until(LIMIT, || read("shown").contains(what).then_some(())).is_some();
        assert!(shows(ENTERS) && shows(&own.to_string()), "it draws: {}", read("shown"));
        let is_top = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.starts_with(PROGRAM))
        };
        let top = marked(&format!("{name}={value}")).into_iter().find(is_top).expect("it runs");
        send(signal, top);
        running.ends(LIMIT).expect("it ends");
        assert_eq!(read("code").trim(), (128 + signal).to_string());
        assert!(shows(LEAVES));
        assert_eq!(read("after"), read("before"));
        assert!(!read("before").is_empty());
    }
    drop(yard);
}
