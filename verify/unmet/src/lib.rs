//! Checks the requirements of a test on the system, and lists the tests that were skipped.
//!
//! A test passes its requirement to [`met`] or [`program`] and returns if the result is `false`. If
//! `PAGEYARD_NEEDS` is set to anything but `0`, as in CI, the test fails instead. libtest captures
//! the output of a passing test, so the reason bypasses it: it is written directly to standard
//! error and to a file of the run. `tests/skipped.rs` prints that file after all other tests.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, os};

/// Environment variable that turns every skip into a failure.
pub const VARIABLE: &str = "PAGEYARD_NEEDS";

/// Returns `there`. If it is `false`, records that the calling test is skipped.
///
/// `what` names the missing requirement and how to install it:
/// `valgrind (apt-get install valgrind)`.
///
/// # Panics
///
/// Panics if `there` is `false` and `PAGEYARD_NEEDS` is set.
#[must_use = "return from the test if this is `false`"]
#[track_caller]
pub fn met(what: &str, there: bool) -> bool {
    if !there {
        let forbidden = env::var_os(VARIABLE).is_some_and(|v| v != "0");
        assert!(!forbidden, "{VARIABLE} is set, and this is missing: {what}");
        note(&format!("{}: {what}", test()));
    }
    there
}

/// Returns whether `name --version` succeeds, and records a skip like [`met`]. `package` is the
/// Debian package that contains the program.
///
/// # Panics
///
/// Panics if it fails and `PAGEYARD_NEEDS` is set.
#[must_use = "return from the test if this is `false`"]
#[track_caller]
pub fn program(name: &str, package: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let there = command.status().is_ok_and(|s| s.success());
    met(&format!("{name} (apt-get install {package})"), there)
}

/// Environment variable with the command that runs programs built for a test: an emulator and its
/// options. Used if the tests are built for another processor whose programs the kernel cannot run
/// (`scripts/aarch64.sh`).
pub const RUNNER: &str = "PAGEYARD_RUNNER";

/// Returns whether [`RUNNER`] is set, which means that tests run in an emulator.
pub fn is_emulated() -> bool {
    env::var_os(RUNNER).is_some_and(|runner| !runner.is_empty())
}

/// Returns a command that runs a program built for the processor of the tests: one that a test
/// compiled, or the test program itself. Use [`Command::new`] for programs of the system.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let runner = env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Removes the list of this run and returns its lines, one per skipped test.
pub fn take_skipped() -> Vec<String> {
    let list = list();
    let lines = fs::read_to_string(&list).unwrap_or_default();
    let _ = fs::remove_file(list);
    lines.lines().map(str::to_owned).collect()
}

/// Returns the calling test as `program::test`. libtest names a test's thread after the test,
/// unless it runs one test at a time.
fn test() -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _hash)| name);
    format!("{program}::{}", std::thread::current().name().unwrap_or("?"))
}

fn note(line: &str) {
    // `eprintln` would be captured by libtest.
    let _ = writeln!(std::io::stderr(), "skipped: {line}");
    let list = list();
    let open = || -> std::io::Result<File> {
        fs::create_dir_all(list.parent().unwrap_or(&list))?;
        File::options().create(true).append(true).open(&list)
    };
    let mut file = open().unwrap_or_else(|e| panic!("{}: {e}", list.display()));
    // A single write, so that lines of other tests do not interleave.
    file.write_all(format!("{line}\n").as_bytes())
        .unwrap_or_else(|e| panic!("{}: {e}", list.display()));
}

/// Returns the path of the list of this run. A run is identified by the parent process, which is
/// cargo, and by its start time, because process ids are reused.
fn list() -> PathBuf {
    let parent = os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    // Fields after the command name, which may contain blanks, start with the third. The start time
    // is field 22.
    let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let program = env::current_exe().unwrap_or_default();
    // TARGET/PROFILE/deps/PROGRAM
    let profile = program.parent().and_then(|deps| deps.parent());
    profile
        .map_or_else(env::temp_dir, PathBuf::from)
        .join("skipped")
        .join(format!("{parent}-{}", start.unwrap_or("0")))
}
