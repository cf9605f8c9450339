//! `SWEEP.toml`: what is combined with what.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use pageyard_lab::replay::{Settings, TickPhase, columns};
use pageyard_lab::workload;
use pageyard_machine::spec::{SHIPPED, description, parse, read_text};
use pageyard_machine::{Stop, size};
use pageyard_trace::state::StateDir;
use pageyard_trace::{Options, TraceReader, printable};
use serde::Deserialize;

use crate::cell::{Cell, DESCRIPTOR, INFERRED, ITERATIONS, MachineText, TraceFile, Work};
use crate::error::SweepError;
use crate::hash::hash_of_file;

/// Longest description in bytes.
const MOST_TEXT: u64 = 1 << 20;
/// Largest number of cells.
const MOST_CELLS: usize = 1_000_000;

/// A value of a setting or parameter.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word {
    Number(i64),
    Text(String),
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Number(n) => n.fmt(f),
            Word::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policies: Vec<String>,
    #[serde(default)]
    knobs: BTreeMap<String, Vec<Word>>,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    #[serde(default)]
    trace: Vec<Trace>,
    #[serde(default)]
    workload: Vec<Workload>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    file: PathBuf,
    #[serde(default)]
    on: Vec<String>,
    tick_phase: Option<String>,
    memory: Option<String>,
    cpus: Option<u32>,
    #[serde(default)]
    lenient: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) machines: Vec<String>,
    pub(crate) memory: Option<String>,
    #[serde(default = "descriptor")]
    pub(crate) descriptor: u32,
    #[serde(default = "iterations")]
    pub(crate) iterations: u32,
    #[serde(default)]
    pub(crate) set: BTreeMap<String, Word>,
}

fn descriptor() -> u32 {
    DESCRIPTOR
}

fn iterations() -> u32 {
    ITERATIONS
}

const FIX: &str = "name a sweep in TOML, as docs/sweep.md describes it";

/// The cells of a sweep, and where the files are that they name.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cells, in the order of the results.
    pub cells: Vec<Cell>,
    /// Paths of the traces, by the hash of their content.
    pub files: HashMap<String, PathBuf>,
}

impl Plan {
    /// Reads a description. Paths are relative to its folder. Everything that it names is checked
    /// here, before anything runs.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or with the entry that is invalid.
    pub fn read(path: &Path) -> Result<Plan, SweepError> {
        let wrong = |place: String, what: String| SweepError::Description {
            file: path.to_owned(),
            place,
            what,
        };
        let text = read_text(path, MOST_TEXT as _)
            .map_err(|e| wrong(String::new(), format!("{e}; {FIX}")))?;
        let file: File = parse(&text).map_err(|(place, what)| wrong(place, what))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let policies = file.policies().map_err(|what| wrong("policies".into(), what))?;
        if file.seeds.is_empty() {
            return Err(wrong("seeds".into(), "the list is empty; leave it out for seed 1".into()));
        }
        let mut files = HashMap::new();
        let mut works = Vec::new();
        for (n, trace) in file.trace.iter().enumerate() {
            let of = trace.works(base, &mut files);
            works.extend(of.map_err(|what| wrong(format!("[[trace]] {}", n + 1), what))?);
        }
        for (n, workload) in file.workload.iter().enumerate() {
            let of = workload.works(base);
            works.extend(of.map_err(|what| wrong(format!("[[workload]] {}", n + 1), what))?);
        }
        if works.is_empty() {
            let what = "nothing to do; add a [[trace]] or a [[workload]]";
            return Err(wrong(String::new(), what.into()));
        }
        Plan::of(&works, &policies, &file.seeds, files).map_err(|what| wrong(String::new(), what))
    }

    /// Combines works, policies and seeds: all seeds of the first policy on the first work, then
    /// those of the next policy.
    pub(crate) fn of(
        works: &[Work],
        policies: &[String],
        seeds: &[u64],
        files: HashMap<String, PathBuf>,
    ) -> Result<Plan, String> {
        let all = works.len().saturating_mul(policies.len()).saturating_mul(seeds.len());
        if all > MOST_CELLS {
            return Err(format!("{all} cells; at most {MOST_CELLS} fit in one sweep"));
        }
        let mut cells: Vec<Cell> = Vec::with_capacity(all);
        for work in works {
            for policy in policies {
                for &seed in seeds {
                    cells.push(Cell { policy: policy.clone(), seed, work: work.clone() });
                }
            }
        }
        tell_apart(&mut cells, &files);
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = cells.iter().find(|cell| !seen.insert(cell.key(""))) {
            return Err(format!("{} occurs twice; name each combination once", twice.name()));
        }
        Ok(Plan { cells, files })
    }

    /// Reads the traces of these cells as the cells would, each once for all policies and seeds. So a
    /// damaged trace is reported before the other cells run, which may take hours.
    ///
    /// # Errors
    /// Fails with [`SweepError::Trace`] for the first trace that cannot be replayed, or with
    /// [`SweepError::Stopped`].
    pub fn check<'c>(
        &self,
        cells: impl IntoIterator<Item = &'c Cell>,
        stop: &Stop,
    ) -> Result<(), SweepError> {
        let mut seen: Vec<&Work> = Vec::new();
        for cell in cells {
            let file = cell.trace().and_then(|hash| self.files.get(hash));
            if let Some(file) = file
                && !seen.contains(&&cell.work)
            {
                seen.push(&cell.work);
                cell.check(file, stop)?;
            }
        }
        Ok(())
    }
}

/// Names traces by their paths where two have one file name.
fn tell_apart(cells: &mut [Cell], files: &HashMap<String, PathBuf>) {
    let mut hashes: HashMap<String, BTreeSet<String>> = HashMap::new();
    for cell in &*cells {
        if let Work::Replay { trace, .. } = &cell.work {
            hashes.entry(trace.name.clone()).or_default().insert(trace.hash.clone());
        }
    }
    for cell in cells {
        if let Work::Replay { trace, .. } = &mut cell.work
            && hashes[&trace.name].len() > 1
            && let Some(path) = files.get(&trace.hash)
        {
            trace.name = path.to_string_lossy().into_owned();
        }
    }
}

impl File {
    /// Returns every policy with every combination of the knobs, by its full name.
    fn policies(&self) -> Result<Vec<String>, String> {
        let mut combinations: Vec<Vec<Settings>> = vec![Vec::new()];
        for (name, values) in &self.knobs {
            if values.is_empty() {
                return Err(format!("knob {name} has no values; leave it out for its default"));
            }
            let mut longer = Vec::new();
            for settings in &combinations {
                for value in values {
                    let one = format!("{name}={value}").parse().map_err(|e| format!("{e}"))?;
                    let mut settings = settings.clone();
                    settings.push(one);
                    longer.push(settings);
                }
            }
            if longer.len() > MOST_CELLS {
                return Err(format!("the knobs have more than {MOST_CELLS} combinations"));
            }
            combinations = longer;
        }
        let mut policies = Vec::new();
        for text in &self.policies {
            for choice in columns(text).map_err(|e| e.to_string())? {
                // A setting of a policy's own stays, whatever the knobs say: some combinations are one.
                let each =
                    combinations.iter().map(|settings| choice.clone().with_all(settings).name);
                let mut names = Vec::new();
                for name in each {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                policies.extend(names);
            }
        }
        if policies.is_empty() {
            return Err("the list is empty; `pageyard policies` lists them".into());
        }
        Ok(policies)
    }
}

fn bytes(text: &Option<String>) -> Result<Option<u64>, String> {
    text.as_deref().map(size).transpose()
}

fn machine(base: &Path, name: &str) -> Result<MachineText, String> {
    if name == "detected" {
        return Err(
            "machine detected: a sweep does not depend on the host; write it to a file".into()
        );
    }
    let shipped = SHIPPED.iter().any(|s| s.0 == name);
    let path = if shipped { PathBuf::from(name) } else { base.join(name) };
    let text = if shipped {
        SHIPPED.iter().find(|s| s.0 == name).map_or(String::new(), |s| s.1.to_owned())
    } else {
        let text = description(&path, &SHIPPED, "");
        text.map_err(|e| format!("machine {}: {e}", printable(name)))?.into_owned()
    };
    let machine = MachineText { name: name.to_owned(), toml: text };
    machine.spec()?;
    Ok(machine)
}

impl Trace {
    /// A file as it is, with the defaults of the description.
    pub(crate) fn of(file: PathBuf) -> Trace {
        Trace { file, ..Trace::default() }
    }

    pub(crate) fn works(
        &self,
        base: &Path,
        files: &mut HashMap<String, PathBuf>,
    ) -> Result<Vec<Work>, String> {
        let path = base.join(&self.file);
        let reader = TraceReader::open(&path, Options { lenient: self.lenient });
        let fix = "set lenient = true in this [[trace]]";
        let reader = reader.map_err(|e| e.to_string().replace("use --lenient", fix))?;
        // A sweep reads one file, so it has what `of_trace` finds without a path.
        let state =
            |path| StateDir::of_trace(reader.attachments(), path).map_err(|e| e.to_string());
        let (used, mut all) = (state(None)?, state(Some(&*path))?);
        all.notes.clear();
        if used != all {
            return Err(format!(
                "{0}: the state files beside it would be ignored, since a sweep reads one file; attach \
                 them: pageyard trace import {0} {1}",
                self.file.display(),
                self.file.with_extension("with-state.pgy").display()
            ));
        }
        let tick_phase = self.tick_phase.clone().unwrap_or_else(|| INFERRED.into());
        tick_phase.parse::<TickPhase>()?;
        let (hash, size) =
            hash_of_file(&path).map_err(|e| format!("{}: {e}", self.file.display()))?;
        files.insert(hash.clone(), path);
        let name = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let trace = TraceFile { name, hash, size };
        let mut machines = Vec::new();
        for name in &self.on {
            machines.push(Some(machine(base, name)?));
        }
        if machines.is_empty() {
            machines.push(None);
        }
        let memory = bytes(&self.memory)?;
        let work = |on| Work::Replay {
            trace: trace.clone(),
            on,
            tick_phase: tick_phase.clone(),
            memory,
            cpus: self.cpus,
            lenient: self.lenient,
        };
        Ok(machines.into_iter().map(work).collect())
    }
}

impl Workload {
    pub(crate) fn works(&self, base: &Path) -> Result<Vec<Work>, String> {
        let recipe = workload::by_name(&self.name).map_err(|e| e.to_string())?;
        if recipe.name == "trace" {
            return Err(
                "workload trace: reads a file by its path; use a [[trace]] with `on`".into()
            );
        }
        if let Some(name) =
            self.set.keys().find(|name| recipe.params.iter().all(|p| p.name != **name))
        {
            let known: Vec<_> = recipe.params.iter().map(|p| p.name).collect();
            return Err(format!(
                "{}: unknown parameter {name}; expected one of {}",
                self.name,
                known.join(", ")
            ));
        }
        if ![16, 64].contains(&self.descriptor) {
            return Err(format!("descriptor {}: expected 16 or 64", self.descriptor));
        }
        if !(1..=1_000_000).contains(&self.iterations) {
            return Err(format!("iterations {}: expected 1 to 1000000", self.iterations));
        }
        if self.machines.is_empty() {
            return Err("machines: the list is empty; `pageyard machines` lists them".into());
        }
        let memory = bytes(&self.memory)?;
        let set: BTreeMap<_, _> =
            self.set.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let work = |name: &String| {
            Ok(Work::Run {
                workload: self.name.clone(),
                machine: machine(base, name)?,
                memory,
                descriptor: self.descriptor,
                iterations: self.iterations,
                set: set.clone(),
            })
        };
        self.machines.iter().map(work).collect()
    }
}
