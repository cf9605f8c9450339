//! A cell of a sweep: one policy with its settings, one input, one seed.
//!
//! A cell describes itself completely: files by their content's hash, machines by their text. So a
//! cell can be run anywhere, given the files' contents, and its key is the hash of its description
//! and of the program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek;
use std::path::Path;

use pageyard_lab::replay::{self, Choice, Input, MachineOptions};
use pageyard_lab::result::Better;
use pageyard_lab::workload;
use pageyard_machine::format::exact_size;
use pageyard_machine::spec::Description;
use pageyard_machine::{Costs, MachineSpec, Stop};
use pageyard_trace::printable;
use serde::{Deserialize, Serialize};

use crate::error::SweepError;
use crate::hash::{hash_of, hash_of_input};

/// Defaults of a description.
pub(crate) const INFERRED: &str = "inferred";
pub(crate) const DESCRIPTOR: u32 = 16;
pub(crate) const ITERATIONS: u32 = 1;

/// A simulated machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineText {
    /// Its name.
    pub name: String,
    /// Its description, TOML.
    pub toml: String,
}

impl MachineText {
    /// Returns the machine.
    ///
    /// # Errors
    /// Fails with what is wrong with the description.
    pub fn spec(&self) -> Result<MachineSpec, String> {
        let description = Description::from_toml(&self.name, &self.toml);
        description.and_then(|d| d.check()).map_err(|e| e.to_string())
    }
}

/// A trace, by its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceFile {
    /// Its file name, for tables; its path if another trace of the sweep has the same file name. Not
    /// part of a cell's key.
    pub name: String,
    /// Hash of its content.
    pub hash: String,
    /// Its size in bytes.
    pub size: u64,
}

/// What a cell does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Work {
    /// Replays a trace.
    Replay {
        /// The trace.
        trace: TraceFile,
        /// The simulated machine that determines the cost, if any.
        on: Option<MachineText>,
        /// The phase of ticks.
        tick_phase: String,
        /// Bytes of memory, if the trace does not say it.
        memory: Option<u64>,
        /// Number of CPUs, if the trace does not say it.
        cpus: Option<u32>,
        /// Whether damaged parts are counted.
        lenient: bool,
    },
    /// Runs a workload on a simulated machine.
    Run {
        /// The workload.
        workload: String,
        /// The machine.
        machine: MachineText,
        /// Bytes of memory, if different from the machine's own.
        memory: Option<u64>,
        /// Bytes of a frame descriptor.
        descriptor: u32,
        /// Number of iterations.
        iterations: u32,
        /// Parameters that differ from their defaults.
        set: BTreeMap<String, String>,
    },
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The policy with its settings.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// What it does.
    pub work: Work,
}

/// One measurement of a cell. Several iterations give several of one name, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The metric.
    pub metric: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// Which direction is better, where the lab says so.
    pub better: Option<Better>,
    /// The value; `None`, and null in JSON, if nothing was counted or the result is no number.
    pub value: Option<f64>,
}

/// The result of a cell, as it is cached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// The cell's key.
    pub key: String,
    /// The cell.
    pub cell: Cell,
    /// The measurements, in the lab's order.
    pub values: Vec<Value>,
}

impl Cell {
    /// Returns the cell's key: the hash of its description, of the contents that it names, and of
    /// the program.
    pub fn key(&self, program: &str) -> String {
        let mut cell = self.clone();
        if let Work::Replay { trace, .. } = &mut cell.work {
            trace.name.clear();
        }
        let text = serde_json::to_string(&(2, program, cell)).expect("plain data");
        hash_of(text.as_bytes())
    }

    /// Returns the name of the input: the trace, or the workload with its parameters; then the options
    /// that differ from their defaults. Different works on one machine have different names.
    pub fn input(&self) -> String {
        let (name, options) = match &self.work {
            Work::Replay { trace, tick_phase, memory, cpus, lenient, .. } => {
                let tick_phase = Some(tick_phase.clone()).filter(|phase| phase != INFERRED);
                let options = vec![
                    ("tick_phase", tick_phase),
                    ("memory", memory.map(exact_size)),
                    ("cpus", cpus.map(|n| n.to_string())),
                    ("lenient", lenient.then(|| "true".into())),
                ];
                (trace.name.clone(), options)
            }
            Work::Run { workload, memory, descriptor, iterations, set, .. } => {
                let differs = |n: u32, default| (n != default).then(|| n.to_string());
                let options = vec![
                    ("memory", memory.map(exact_size)),
                    ("descriptor", differs(*descriptor, DESCRIPTOR)),
                    ("iterations", differs(*iterations, ITERATIONS)),
                ];
                (
                    set.iter().fold(workload.clone(), |name, (k, v)| format!("{name} {k}={v}")),
                    options,
                )
            }
        };
        let given =
            options.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        let given = given.collect::<Vec<_>>().join(" ");
        if given.is_empty() { name } else { format!("{name} ({given})") }
    }

    /// Returns the name of the simulated machine; empty without one.
    pub fn machine(&self) -> &str {
        match &self.work {
            Work::Replay { on, .. } => on.as_ref().map_or("", |m| &m.name),
            Work::Run { machine, .. } => &machine.name,
        }
    }

    /// Returns the hash of the trace that the cell reads.
    pub fn trace(&self) -> Option<&str> {
        match &self.work {
            Work::Replay { trace, .. } => Some(&trace.hash),
            Work::Run { .. } => None,
        }
    }

    /// Returns the cell in words, for messages.
    pub fn name(&self) -> String {
        let machine = self.machine();
        let on = if machine.is_empty() { String::new() } else { format!(" on {machine}") };
        format!("{}{on}, {}, seed {}", self.input(), self.policy, self.seed)
    }

    /// Estimates the memory that the cell takes while it runs, in bytes: that of a
    /// [run](workload::run_memory), and tables of the trace.
    pub fn memory(&self) -> u64 {
        let of = |machine: &MachineText, memory: &Option<u64>| {
            memory.or_else(|| Some(machine.spec().ok()?.memory())).unwrap_or(0)
        };
        let (memory, tables) = match &self.work {
            Work::Replay { trace, memory, .. } => (memory.unwrap_or(4 << 30), 8 * trace.size),
            Work::Run { machine, memory, .. } => (of(machine, memory), 0),
        };
        workload::run_memory(memory) + tables
    }

    /// Reads the trace of a replay as [`run`](Cell::run) would, up to where the policy begins.
    ///
    /// # Errors
    /// Fails with [`SweepError::Trace`], or with [`SweepError::Stopped`].
    pub fn check(&self, trace: &Path, stop: &Stop) -> Result<(), SweepError> {
        let Work::Replay { .. } = &self.work else { return Ok(()) };
        let name = trace.to_string_lossy().into_owned();
        let failed = |e| format!("{}: {e}", printable(&name));
        let checked = File::open(trace).map_err(failed).and_then(|file| {
            let options = self.replay_options(Vec::new(), stop)?;
            replay::check(Input::Stream(name.clone(), Box::new(file)), &options)
                .map_err(|e| e.to_string())
        });
        if stop.is_requested() {
            return Err(SweepError::Stopped);
        }
        checked.map_err(|what| {
            let name = printable(&name);
            let named = what.starts_with(&*name);
            SweepError::Trace(if named { what } else { format!("{name}: {what}") })
        })
    }

    /// Runs the cell on one thread. `trace` is the file with the content that
    /// [`trace`](Cell::trace) names.
    ///
    /// The result depends only on the cell and on that content: files next to it are not read.
    ///
    /// # Errors
    /// Fails with the lab's error, or with [`SweepError::Stopped`].
    pub fn run(
        &self,
        program: &str,
        trace: Option<&Path>,
        stop: &Stop,
    ) -> Result<CellResult, SweepError> {
        let values = self.values(trace, stop);
        if stop.is_requested() {
            return Err(SweepError::Stopped);
        }
        let values = values.map_err(|what| SweepError::Cell { cell: self.name(), what })?;
        Ok(CellResult { key: self.key(program), cell: self.clone(), values })
    }

    fn values(&self, file: Option<&Path>, stop: &Stop) -> Result<Vec<Value>, String> {
        let mut choices = replay::columns(&self.policy).map_err(|e| e.to_string())?;
        let choice = choices.pop().filter(|_| choices.is_empty()).ok_or("expected one policy")?;
        match &self.work {
            Work::Replay { trace, .. } => {
                let file =
                    file.ok_or_else(|| format!("the content of {} is missing", trace.name))?;
                let failed = |e: std::io::Error| format!("{}: {e}", trace.name);
                let file = File::open(file).map_err(failed)?;
                let mut same = file.try_clone().map_err(failed)?;
                let options = self.replay_options(vec![choice], stop)?;
                let input = Input::Stream(trace.name.clone(), Box::new(file));
                let report = replay::replay(input, &options, &mut |_, _, _| {});
                // The result is kept under the hash of the content that was planned.
                same.rewind().map_err(failed)?;
                if hash_of_input(&mut same).map_err(failed)?.0 != trace.hash {
                    return Err(format!(
                        "{}: its content is not what the sweep began with; run the sweep again",
                        trace.name
                    ));
                }
                replayed(&report.map_err(|e| e.to_string())?)
            }
            Work::Run { .. } => self.ran(choice, stop),
        }
    }

    /// Returns the options of the replay: those of a cell that runs a workload are the defaults.
    fn replay_options(
        &self,
        policies: Vec<Choice>,
        stop: &Stop,
    ) -> Result<replay::Options, String> {
        let mut options = replay::Options {
            policies,
            seed: self.seed,
            jobs: 1,
            stop: stop.clone(),
            ..replay::Options::default()
        };
        if let Work::Replay { on, tick_phase, memory, cpus, lenient, .. } = &self.work {
            options.tick_phase = tick_phase.parse()?;
            options.machine =
                MachineOptions { memory: *memory, cpus: *cpus, ..MachineOptions::default() };
            options.lenient = *lenient;
            options.on = on.as_ref().map(MachineText::spec).transpose()?;
        }
        Ok(options)
    }

    fn ran(&self, choice: Choice, stop: &Stop) -> Result<Vec<Value>, String> {
        let Work::Run { workload, machine, memory, descriptor, iterations, set } = &self.work
        else {
            return Err("not a workload".into());
        };
        let recipe = workload::by_name(workload).map_err(|e| e.to_string())?;
        let options = workload::Options {
            machine: machine.spec()?,
            memory: *memory,
            descriptor: *descriptor,
            age: 0,
            policies: vec![choice],
            seed: self.seed,
            iterations: *iterations,
            set: set.clone().into_iter().collect(),
            costs: Costs::default(),
            limits: None,
            jobs: 1,
            stop: stop.clone(),
        };
        let results =
            workload::run(&recipe, &options, &mut |_, _| {}).map_err(|e| e.to_string())?;
        let metrics = results.into_iter().flat_map(|result| result.metrics);
        let samples = metrics.flat_map(|m| {
            let value = move |value: Option<f64>| Value {
                metric: m.name.clone(),
                unit: m.unit.clone(),
                better: Some(m.better),
                value: value.filter(|x| x.is_finite()),
            };
            m.samples.into_iter().map(value)
        });
        Ok(samples.collect())
    }
}

/// Returns the figures of a replay: every number of the policy's column.
fn replayed(report: &replay::Report) -> Result<Vec<Value>, String> {
    let column = report.policies.first().ok_or("a replay without a column")?;
    let mut values = Vec::new();
    let json = |e: serde_json::Error| e.to_string();
    numbers(&serde_json::to_value(column.figures).map_err(json)?, "", &mut values);
    if let Some(price) = &column.price {
        numbers(&serde_json::to_value(price).map_err(json)?, "price", &mut values);
    }
    Ok(values)
}

fn numbers(of: &serde_json::Value, name: &str, values: &mut Vec<Value>) {
    match of {
        serde_json::Value::Object(fields) => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                numbers(value, &format!("{name}{dot}{field}"), values);
            }
        }
        other => {
            if let Some(value) = other.as_f64() {
                let (metric, unit) = (name.to_owned(), String::new());
                let value = Some(value).filter(|x| x.is_finite());
                values.push(Value { metric, unit, better: None, value });
            }
        }
    }
}
