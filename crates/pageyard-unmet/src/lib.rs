//! What a test needs of the system, and the list of the tests that were skipped.
//!
//! A test asks [`met`] or [`program`] for what it needs, and returns where the answer is `false`. With `PAGEYARD_NEEDS`
//! set to anything but `0`, as in CI, it fails instead. libtest captures what a passing test prints; the reason goes past
//! that to standard error at once, and into a file of the run, which `tests/skipped.rs` prints after all other tests.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, os};

/// The variable that turns every skip into a failure.
pub const VARIABLE: &str = "PAGEYARD_NEEDS";

/// Returns `there`. Where it is `false`, notes that the calling test is skipped.
///
/// `what` names what is missing, and how to get it: `valgrind (apt-get install valgrind)`.
///
/// # Panics
///
/// If `there` is `false` and `PAGEYARD_NEEDS` is set.
#[must_use = "a test without what it needs returns"]
#[track_caller]
pub fn met(what: &str, there: bool) -> bool {
    if !there {
        let forbidden = env::var_os(VARIABLE).is_some_and(|v| v != "0");
        assert!(!forbidden, "{VARIABLE} is set, and this is missing: {what}");
        note(&format!("{}: {what}", test()));
    }
    there
}

/// Returns whether `name --version` succeeds, as [`met`] does. `package` is the Debian package that has it.
///
/// # Panics
///
/// If it does not and `PAGEYARD_NEEDS` is set.
#[must_use = "a test without what it needs returns"]
#[track_caller]
pub fn program(name: &str, package: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let there = command.status().is_ok_and(|s| s.success());
    met(&format!("{name} (apt-get install {package})"), there)
}

/// The variable with what runs the programs that are built for a test: an emulator and its options, where the tests
/// are built for another processor and the kernel does not know their programs (`scripts/aarch64.sh`).
pub const RUNNER: &str = "PAGEYARD_RUNNER";

/// Whether [`RUNNER`] is set: tests run in an emulator.
pub fn is_emulated() -> bool {
    env::var_os(RUNNER).is_some_and(|runner| !runner.is_empty())
}

/// Returns a command that runs a program built for the processor of the tests: what a test has compiled, or the test
/// itself once more. Programs of the system need no more than [`Command::new`].
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let runner = env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Removes the list of this run, and returns its lines: one for each test that was skipped.
pub fn take_skipped() -> Vec<String> {
    let list = list();
    let lines = fs::read_to_string(&list).unwrap_or_default();
    let _ = fs::remove_file(list);
    lines.lines().map(str::to_owned).collect()
}

/// The calling test: `program::test`. libtest names a test's thread after it, unless it runs one test at a time.
fn test() -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _hash)| name);
    format!("{program}::{}", std::thread::current().name().unwrap_or("?"))
}

fn note(line: &str) {
    // Not `eprintln`, which libtest captures.
    let _ = writeln!(std::io::stderr(), "skipped: {line}");
    let list = list();
    let open = || -> std::io::Result<File> {
        fs::create_dir_all(list.parent().unwrap_or(&list))?;
        File::options().create(true).append(true).open(&list)
    };
    let mut file = open().unwrap_or_else(|e| panic!("{}: {e}", list.display()));
    // One write, so that lines of other tests do not come between.
    file.write_all(format!("{line}\n").as_bytes())
        .unwrap_or_else(|e| panic!("{}: {e}", list.display()));
}

/// The list of this run: of the process that started this test program, which is cargo. Its start time tells it
/// from an earlier process with its number.
fn list() -> PathBuf {
    let parent = os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    // Fields after the command's name, which may hold blanks: from the third on. The start time is the 22nd.
    let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let program = env::current_exe().unwrap_or_default();
    // TARGET/PROFILE/deps/PROGRAM
    let profile = program.parent().and_then(|deps| deps.parent());
    profile
        .map_or_else(env::temp_dir, PathBuf::from)
        .join("skipped")
        .join(format!("{parent}-{}", start.unwrap_or("0")))
}
