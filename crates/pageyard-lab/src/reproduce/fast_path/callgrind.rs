//! Counts the instructions and branches of a program with valgrind's tool callgrind. Counts of one
//! build are the same on every run.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) instructions: u64,
    /// Conditional branches.
    pub(super) branches: u64,
}

/// Why there are no counts.
#[derive(Debug)]
pub(super) enum Failed {
    /// valgrind is not installed.
    NoValgrind,
    /// valgrind could not be started, or the program failed under it.
    Run(String),
}

/// Running programs.
static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Child>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all running programs and prevents new ones from starting.
pub(super) fn stop() {
    let mut running = running();
    for mut child in running.drain(..) {
        // A program that has already exited cannot be killed; ignore the error.
        let _ = child.kill().and_then(|()| child.wait());
    }
    std::mem::forget(running);
}

/// Runs the program under `valgrind`, which is looked up in `PATH`.
pub(super) fn count(
    valgrind: &OsStr,
    program: &Path,
    arguments: &[String],
) -> Result<Counts, Failed> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Failed::NoValgrind,
        _ => Failed::Run(format!("valgrind: {e}")),
    };
    let mut command = Command::new(valgrind);
    command
        .args(["--tool=callgrind", "--branch-sim=yes", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let (id, said) = {
        let mut running = running();
        let mut child = command.spawn().map_err(failed)?;
        let of = (child.id(), child.stderr.take());
        running.push(child);
        of
    };
    let mut log = Vec::new();
    let read = said.map_or(Ok(0), |mut said| said.read_to_end(&mut log));
    let child = {
        let mut running = running();
        running.iter().position(|c| c.id() == id).map(|at| running.swap_remove(at))
    };
    // `stop` removed the child; this program is about to exit.
    let Some(mut child) = child else { return Err(Failed::Run("stopped".into())) };
    let status = read.and_then(|_| child.wait()).map_err(failed)?;
    let log = String::from_utf8_lossy(&log);
    if !status.success() {
        let said = log.lines().filter(|l| !l.starts_with("==")).collect::<Vec<_>>().join("; ");
        let command = arguments.join(" ");
        return Err(Failed::Run(format!("callgrind, {command}: {status}; {said}")));
    }
    parse(&log).ok_or_else(|| Failed::Run(format!("callgrind printed no counts: {log}")))
}

/// Parses the totals at the end of callgrind's log: a line of event names, then a line of numbers.
fn parse(log: &str) -> Option<Counts> {
    let line = |head: &str| {
        log.lines().find_map(|l| {
            let (before, after) = l.split_once(':')?;
            before.trim_end().ends_with(head).then(|| after.split_whitespace())
        })
    };
    let mut both = line("Events")?.zip(line("Collected")?);
    let all: Vec<(&str, &str)> = both.by_ref().collect();
    let number = |name| all.iter().find(|e| e.0 == name)?.1.parse().ok();
    Some(Counts { instructions: number("Ir")?, branches: number("Bc")? })
}

impl Counts {
    /// Returns the counts per operation for `n` operations; `fewer` counts the same run without
    /// them.
    pub(super) fn each(self, fewer: Counts, n: u64) -> [f64; 2] {
        let each = |more: u64, fewer: u64| (more as f64 - fewer as f64) / n as f64;
        [each(self.instructions, fewer.instructions), each(self.branches, fewer.branches)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
==17== Callgrind, a call-graph generating cache profiler
==17== Command: target/release/pageyard hot-path
==17==
==17== Events    : Ir Bc Bcm Bi Bim
==17== Collected : 11498965 1048576 17 2048 3
==17==
==17== Branches:          1050624
";

    #[test]
    fn totals_are_found_by_name() {
        let counts = Counts { instructions: 11_498_965, branches: 1_048_576 };
        assert_eq!(parse(LOG), Some(counts));
        let turned = "== Events : Bc Ir\n== Collected : 1 2\n";
        assert_eq!(parse(turned), Some(Counts { instructions: 2, branches: 1 }));
    }

    #[test]
    fn missing_branch_counts_are_an_error() {
        assert_eq!(parse("==17== Events    : Ir\n==17== Collected : 11498965\n"), None);
        assert_eq!(parse("==17== Collected : 11498965\n"), None);
        assert_eq!(parse(&LOG.replace("11498965", "many")), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_difference_of_two_runs_is_one_operation() {
        let none = Counts { instructions: 1000, branches: 100 };
        let some = Counts { instructions: 1600, branches: 110 };
        assert_eq!(some.each(none, 4), [150.0, 2.5]);
        assert_eq!(none.each(some, 4), [-150.0, -2.5], "fewer is fewer");
    }

    #[test]
    fn missing_valgrind_and_a_failed_run_are_distinguished() {
        let count = |valgrind: &str| count(OsStr::new(valgrind), Path::new("x"), &[]);
        assert!(matches!(count("no-such-valgrind"), Err(Failed::NoValgrind)));
        assert!(matches!(count("false"), Err(Failed::Run(_))));
        // It exits successfully without reporting counts.
        assert!(matches!(count("true"), Err(Failed::Run(_))));
    }
}
