//! Runs the tests one by one: first to record which mutants each test reaches, then with a mutant
//! selected.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::build::Program;
use crate::error::Result;
use crate::list::Mutant;

/// One test of a program.
#[derive(Clone, Deserialize, Serialize)]
pub struct Test {
    pub name: String,
    /// Duration without a mutant.
    normal: Duration,
    /// The mutants that the test reaches, in order.
    reaches: Vec<usize>,
}

/// A program, with its tests that reach mutants.
pub struct Tried<'a> {
    program: &'a Program,
    pub tests: Vec<Test>,
}

/// Cached data of a program, valid as long as the file is unchanged.
#[derive(Clone, Deserialize, Serialize)]
struct Known {
    executable: PathBuf,
    built: SystemTime,
    /// Hash of the mutants, in the order of their numbers.
    mutants: u64,
    tests: Vec<Test>,
}

/// Outcome of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Passed,
    Failed,
    /// Stopped after a multiple of its normal duration.
    Stopped,
}

/// Not used: tests that compile an example.
const SKIPPED: &str = "guest_memory::";

/// Lists the tests of a program.
fn list(program: &Program) -> Result<Vec<String>> {
    let output =
        command(program).args(["--list", "--format", "terse"]).stdout(Stdio::piped()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| !name.starts_with(SKIPPED)).map(str::to_owned).collect())
}

/// Runs each test without a mutant to measure its duration and record what it reaches. Tests that
/// fail or take longer than `longest` are not used. Data of unchanged programs is cached in
/// `directory`.
pub fn reach<'a>(
    programs: impl Iterator<Item = &'a Program>,
    mutants: &[Mutant],
    longest: Duration,
    directory: &Path,
) -> Result<Vec<Tried<'a>>> {
    let (table, file) = (directory.join("table"), directory.join("reached.json"));
    let mut known: Vec<Known> = fs::read(&file)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    mutants.iter().for_each(|mutant| mutant.name.hash(&mut hasher));
    let numbers = hasher.finish();
    let mut tried = Vec::new();
    for program in programs {
        let built = fs::metadata(&program.executable)?.modified()?;
        let same = |known: &&Known| {
            (&known.executable, known.built, known.mutants) == (&program.executable, built, numbers)
        };
        if let Some(known) = known.iter().find(same) {
            tried.push(Tried { program, tests: known.tests.clone() });
            continue;
        }
        let mut tests = Vec::new();
        for name in list(program)? {
            fs::write(&table, vec![0; mutants.len()])?;
            let start = Instant::now();
            let child = start_test(program, &name, ("PAGEYARD_REACH", table.as_os_str()))?;
            let end = wait(child, longest, longest)?;
            let normal = start.elapsed();
            match end {
                End::Passed => {
                    let reached = fs::read(&table)?.into_iter().enumerate();
                    let reaches = reached.filter(|(_, byte)| *byte != 0).map(|(n, _)| n).collect();
                    tests.push(Test { name, normal, reaches });
                }
                End::Failed => {
                    eprintln!("not used, as it fails without a mutant: {} {name}", program.title())
                }
                End::Stopped => {
                    eprintln!("not used, as it takes too long: {} {name}", program.title())
                }
            }
        }
        known.retain(|known| known.executable != program.executable);
        let executable = program.executable.clone();
        known.push(Known { executable, built, mutants: numbers, tests: tests.clone() });
        fs::write(&file, serde_json::to_vec(&known)?)?;
        tried.push(Tried { program, tests });
    }
    Ok(tried)
}

impl Tried<'_> {
    /// Runs one of the tests with a mutant selected.
    pub fn run(&self, test: &Test, mutant: usize) -> Result<End> {
        let number = mutant.to_string();
        let child = start_test(self.program, &test.name, ("PAGEYARD_MUTANT", number.as_ref()))?;
        let cpu = test.normal * 4 + Duration::from_secs(1);
        wait(child, cpu, test.normal * 10 + Duration::from_secs(10))
    }
}

impl Test {
    pub fn normal(&self) -> Duration {
        self.normal
    }

    pub fn reaches(&self, mutant: usize) -> bool {
        self.reaches.binary_search(&mutant).is_ok()
    }

    /// Returns how many of these mutants the test reaches, and how many of all mutants.
    pub fn reached_of(&self, mutants: &Range<usize>) -> (u128, u128) {
        let of = self.reaches.iter().filter(|mutant| mutants.contains(mutant)).count();
        (of as u128, self.reaches.len() as u128)
    }
}

fn start_test(program: &Program, name: &str, (variable, value): (&str, &OsStr)) -> Result<Child> {
    let mut command = command(program);
    command.args(["--exact", name]).env(variable, value).process_group(0);
    Ok(command.spawn()?)
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.directory).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
    // Set by cargo too; some tests look for files in their package.
    command.env("CARGO_MANIFEST_DIR", &program.directory);
    command
}

/// Waits for a process. Kills it and its children once it exceeds the CPU time or the elapsed time.
fn wait(mut child: Child, cpu: Duration, clock: Duration) -> Result<End> {
    let start = Instant::now();
    let stat = PathBuf::from(format!("/proc/{}/stat", child.id()));
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { End::Passed } else { End::Failed });
        }
        if start.elapsed() > clock || cpu_time(&stat).is_some_and(|used| used > cpu) {
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
            child.wait()?;
            return Ok(End::Stopped);
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Returns the CPU time of a process, including its threads.
fn cpu_time(stat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(stat).ok()?;
    // The name, in parentheses, may contain spaces.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}
