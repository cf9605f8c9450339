//! Runs the tests one by one: first to know which mutants each of them reaches, then with a mutant chosen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Result;
use crate::build::Program;

/// One test of a program.
pub struct Test<'a> {
    program: &'a Program,
    pub name: String,
    /// How long it takes where no mutant is chosen.
    pub normal: Duration,
}

/// How a test ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Passed,
    Failed,
    /// Stopped after several times its normal time.
    Stopped,
}

/// Lists the tests of a program.
pub fn list(program: &Program) -> Result<Vec<String>> {
    let output =
        command(program).args(["--list", "--format", "terse"]).stdout(Stdio::piped()).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs each test without a mutant; returns those that pass within `longest`, and what each reaches.
pub fn reach<'a>(
    programs: &'a [Program],
    skip: impl Fn(&str) -> bool,
    mutants: usize,
    longest: Duration,
    table: &Path,
) -> Result<Vec<(Test<'a>, Vec<bool>)>> {
    let mut reached = Vec::new();
    for program in programs {
        for name in list(program)?.into_iter().filter(|name| !skip(name)) {
            fs::write(table, vec![0; mutants])?;
            let mut test = Test { program, name, normal: Duration::ZERO };
            let start = Instant::now();
            let child = test.start(&[("PAGEYARD_REACH", table.as_os_str().into())])?;
            let end = wait(child, longest, longest)?;
            test.normal = start.elapsed();
            match end {
                End::Passed => {
                    let reaches: Vec<bool> =
                        fs::read(table)?.iter().map(|&byte| byte != 0).collect();
                    if reaches.contains(&true) {
                        reached.push((test, reaches));
                    }
                }
                End::Failed => {
                    eprintln!("fails without a mutant, so is not used: {}", test.title())
                }
                End::Stopped => eprintln!("takes too long, so is not used: {}", test.title()),
            }
        }
    }
    Ok(reached)
}

impl Test<'_> {
    pub fn title(&self) -> String {
        format!("{}/{} {}", self.program.package, self.program.target, self.name)
    }

    /// Runs the test with a mutant chosen.
    pub fn run(&self, mutant: usize) -> Result<End> {
        let child = self.start(&[("PAGEYARD_MUTANT", mutant.to_string().into())])?;
        wait(
            child,
            self.normal * 4 + Duration::from_secs(1),
            self.normal * 10 + Duration::from_secs(10),
        )
    }

    fn start(&self, environment: &[(&str, std::ffi::OsString)]) -> Result<Child> {
        let mut command = command(self.program);
        command.args(["--exact", &self.name]);
        for (name, value) in environment {
            command.env(name, value);
        }
        Ok(std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?)
    }
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.directory).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).env("RUST_BACKTRACE", "0");
    // As cargo does; some tests look for files beside theirs.
    command.env("CARGO_MANIFEST_DIR", &program.directory);
    command
}

/// Waits for a process, and ends it with its children once it took that much time of CPUs or of the clock.
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

/// The time of CPUs that a process used, its threads included.
fn cpu_time(stat: &Path) -> Option<Duration> {
    let text = fs::read_to_string(stat).ok()?;
    // The name, in parentheses, may contain spaces.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}
