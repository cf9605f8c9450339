//! Builds the tests with all mutants included, except those that do not compile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::Result;
use crate::list::Mutant;
use crate::rewrite::{Region, rewrite};

/// The source file that selects a mutant at run time, and the crate that receives it.
const SWITCH: &str = include_str!("switch.rs");
const CORE: &str = "crates/pageyard/";

/// Why a mutant is excluded from the build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// The mutant does not compile.
    Unviable,
    /// The mutant is in a constant, or in a function that a constant calls, so it is evaluated
    /// before the tests run.
    Constant,
}

/// A test program.
pub struct Program {
    pub package: String,
    pub target: String,
    pub executable: PathBuf,
    pub directory: PathBuf,
}

impl Program {
    pub fn title(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }
}

/// A copy of the repository's tracked files, with the mutants inserted.
pub struct Tree<'a> {
    pub root: &'a Path,
    pub tree: PathBuf,
    pub mutants: &'a [Mutant],
    pub left: BTreeMap<usize, Left>,
    /// Functions that are called by constants.
    pub constant: HashSet<String>,
}

impl<'a> Tree<'a> {
    /// Copies the files that git tracks or would track. An unchanged file keeps its modification
    /// time.
    pub fn copy(&self) -> Result<()> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(self.root)
            .output()?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let changed: HashSet<&str> = self.mutants.iter().map(|mutant| &*mutant.file).collect();
        let mut wanted = HashSet::new();
        for name in output.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name)?;
            wanted.insert(self.tree.join(name));
            let from = self.root.join(name);
            if changed.contains(name) || !from.is_file() {
                continue;
            }
            let mut bytes = fs::read(&from)?;
            if name == format!("{CORE}src/lib.rs") {
                bytes.extend(
                    b"\n#[doc(hidden)]\nmod switch;\n#[doc(hidden)]\npub use switch::mutant;\n",
                );
            }
            write(&self.tree.join(name), &bytes)?;
            fs::set_permissions(self.tree.join(name), fs::metadata(&from)?.permissions())?;
        }
        let switch = self.tree.join(format!("{CORE}src/switch.rs"));
        let length = format!("const LENGTH: usize = {};\n", self.mutants.len());
        write(&switch, format!("{SWITCH}{length}").as_bytes())?;
        wanted.insert(switch);
        remove_others(&self.tree, &wanted)
    }

    /// Builds the test programs of `packages`, removing mutants until the rest compiles.
    pub fn build(&mut self, packages: &[&str], target: &Path) -> Result<Vec<Program>> {
        loop {
            let regions = self.rewrite()?;
            let errors = match self.cargo(&["check", "--keep-going"], packages, target)? {
                Outcome::Errors(errors) => errors,
                Outcome::Programs(_) => {
                    match self.cargo(&["test", "--no-run"], packages, target)? {
                        Outcome::Errors(errors) => errors,
                        Outcome::Programs(programs) => return Ok(programs),
                    }
                }
            };
            let before = self.left.len() + self.constant.len();
            for error in &errors {
                if error.code.as_ref().is_some_and(|code| code.code == "E0015") {
                    // The message is: cannot call non-const method `Path::<T>::name` in constants
                    let function = error.message.split('`').nth(1).unwrap_or_default();
                    let name = function.rsplit("::").next().unwrap_or_default();
                    self.constant.insert(name.to_owned());
                } else {
                    let blamed = blamed(error, &regions);
                    self.left.extend(blamed.into_iter().map(|number| (number, Left::Unviable)));
                }
            }
            if self.left.len() + self.constant.len() == before {
                let texts: Vec<_> = errors.into_iter().filter_map(|error| error.rendered).collect();
                return Err(format!(
                    "the build fails outside of the mutants:\n{}",
                    texts.join("\n")
                )
                .into());
            }
            eprintln!(
                "left out: {} mutants, {} constant functions",
                self.left.len(),
                self.constant.len()
            );
        }
    }

    /// Writes the files that contain mutants.
    fn rewrite(&mut self) -> Result<HashMap<&'a str, Vec<Region>>> {
        let mut files: BTreeMap<&'a str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in self.mutants.iter().enumerate() {
            files.entry(&mutant.file).or_default().push((number, mutant));
        }
        let mut regions = HashMap::new();
        for (name, mutants) in files {
            let text = fs::read_to_string(self.root.join(name))?;
            let switch = if name.starts_with(CORE) { "crate::mutant" } else { "pageyard::mutant" };
            let dropped = self.left.keys().copied().collect();
            let rewritten = rewrite(&text, &mutants, &dropped, &self.constant, switch)?;
            write(&self.tree.join(name), rewritten.text.as_bytes())?;
            regions.insert(name, rewritten.regions);
            self.left.extend(rewritten.constant.into_iter().map(|number| (number, Left::Constant)));
            self.left.extend(rewritten.unviable.into_iter().map(|number| (number, Left::Unviable)));
        }
        Ok(regions)
    }

    fn cargo(&self, command: &[&str], packages: &[&str], target: &Path) -> Result<Outcome> {
        let mut cargo = Command::new("cargo");
        cargo.args(command).args(["--lib", "--tests", "--profile", "mutants"]);
        cargo.arg("--message-format=json").arg("--target-dir").arg(target);
        cargo.args(packages.iter().flat_map(|package| ["--package", package]));
        // Lints are capped: tests must find a mutant even if a lint rejects it.
        cargo.env("RUSTFLAGS", "--cap-lints=allow").env("CARGO_INCREMENTAL", "0");
        cargo.current_dir(&self.tree).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cargo.spawn()?;
        let mut stderr = child.stderr.take().ok_or("no pipe")?;
        let told = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
            text
        });
        let (mut programs, mut errors) = (Vec::new(), Vec::new());
        for line in BufReader::new(child.stdout.take().ok_or("no pipe")?).lines() {
            let line = line?;
            if !line.starts_with('{') {
                continue;
            }
            match serde_json::from_str::<Message>(&line)? {
                Message::Diagnostic { message } if message.level == "error" => errors.push(message),
                Message::Artifact { target, profile, executable, manifest_path } => {
                    if let Some(executable) = executable.filter(|_| profile.test) {
                        let directory = manifest_path.parent().ok_or("no directory")?.to_path_buf();
                        let package = directory.file_name().map(OsStr::to_string_lossy);
                        programs.push(Program {
                            package: package.unwrap_or_default().into_owned(),
                            target: target.name,
                            executable,
                            directory,
                        });
                    }
                }
                _ => {}
            }
        }
        if child.wait()?.success() {
            return Ok(Outcome::Programs(programs));
        }
        if errors.is_empty() {
            return Err(told.join().map_err(|_| "a reader panicked")?.into());
        }
        Ok(Outcome::Errors(errors))
    }
}

enum Outcome {
    Programs(Vec<Program>),
    Errors(Vec<Diagnostic>),
}

#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-message")]
    Diagnostic { message: Diagnostic },
    #[serde(rename = "compiler-artifact")]
    Artifact {
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
        manifest_path: PathBuf,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    code: Option<Code>,
    rendered: Option<String>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// Returns the mutants that an error is about: those whose text it points to, or else all mutants
/// of the smallest expression around it.
fn blamed(error: &Diagnostic, regions: &HashMap<&str, Vec<Region>>) -> Vec<usize> {
    for primary in [true, false] {
        for span in error.spans.iter().filter(|span| span.is_primary == primary) {
            let Some(regions) = regions.get(&*span.file_name) else { continue };
            let within = |range: &std::ops::Range<usize>| {
                range.start <= span.byte_start && span.byte_end <= range.end
            };
            if let Some(region) = regions.iter().find(|region| within(&region.range)) {
                return vec![region.mutant];
            }
        }
    }
    for span in &error.spans {
        let Some(regions) = regions.get(&*span.file_name) else { continue };
        let around = regions.iter().filter(|region| {
            region.site.start <= span.byte_start && span.byte_end <= region.site.end
        });
        if let Some(smallest) = around.min_by_key(|region| region.site.len()) {
            let site = smallest.site.clone();
            return regions.iter().filter(|r| r.site == site).map(|r| r.mutant).collect();
        }
    }
    Vec::new()
}

/// Writes a file unless its contents are unchanged.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, bytes)?)
}

/// Removes the files that are not in `wanted`.
fn remove_others(directory: &Path, wanted: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
