//! Replays, workloads and conformance runs.

use std::path::PathBuf;

use pageyard_lab::conform::{Outcome, run_file};
use pageyard_lab::picture::Page;
use pageyard_lab::replay::{self as lab_replay, Input, MachineOptions, Options, Report, Stage};
use pageyard_lab::result::{RunResult, Versioned};
use pageyard_lab::table::{self, Source};
use pageyard_lab::workload;
use pageyard_machine::{Costs, MachineSpec, Stop, size};
use pyo3::prelude::*;

use crate::error::lab;
use crate::wait::wait;

/// Returns the policies, each with the settings of all.
fn choices(policies: &[String], knobs: &[String]) -> PyResult<Vec<lab_replay::Choice>> {
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let choices = lab_replay::columns(&policies.join(",")).map_err(lab)?;
    let knobs: Vec<_> =
        knobs.iter().map(|knob| knob.parse()).collect::<Result<_, _>>().map_err(lab)?;
    Ok(choices.into_iter().map(|choice| choice.with_all(&knobs)).collect())
}

fn bytes(text: Option<&str>) -> PyResult<Option<u64>> {
    text.map(|text| size(text).map_err(lab)).transpose()
}

fn machine(name: &str) -> PyResult<MachineSpec> {
    MachineSpec::open(name.as_ref()).map_err(lab)
}

fn json(of: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(of).map_err(lab)
}

/// The results of a replay.
#[pyclass(frozen)]
pub(crate) struct Replay(Report);

#[pymethods]
impl Replay {
    /// The results as JSON, as `pageyard replay --json` prints them.
    fn json(&self) -> PyResult<String> {
        json(&Versioned::of(&self.0))
    }

    /// The results as a page: one HTML file with tables and plots.
    fn html(&self, command: &str) -> String {
        let mut page = Page::new(&format!("Replay of {}", self.0.reading.input), command);
        page.replay(&self.0);
        page.html()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// Replays a trace. The package's `replay` describes the arguments.
#[pyfunction]
#[pyo3(signature = (trace, *, policies, add_recording, knobs, seed, seeds, tick_phase, state,
                    memory, cpus, cache_slice, kernel, lenient, jobs, explain, record, on, progress))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn replay(
    py: Python<'_>,
    trace: PathBuf,
    policies: Vec<String>,
    add_recording: bool,
    knobs: Vec<String>,
    seed: u64,
    seeds: u64,
    tick_phase: &str,
    state: Option<PathBuf>,
    memory: Option<&str>,
    cpus: Option<u32>,
    cache_slice: Option<&str>,
    kernel: Option<&str>,
    lenient: bool,
    jobs: usize,
    explain: bool,
    record: bool,
    on: Option<&str>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Replay> {
    let stop = Stop::default();
    let options = Options {
        policies: choices(&policies, &knobs)?,
        add_recording,
        seed,
        seeds,
        tick_phase: tick_phase.parse().map_err(lab)?,
        machine: MachineOptions {
            memory: bytes(memory)?,
            cpus,
            cache_slice: bytes(cache_slice)?,
            kernel: kernel.map(str::parse).transpose().map_err(lab)?,
        },
        state,
        lenient,
        jobs,
        explain,
        record,
        on: on.map(machine).transpose()?,
        stop: stop.clone(),
    };
    let done = wait(py, progress, &stop, move |told| {
        lab_replay::replay(Input::Path(trace), &options, &mut |stage, at, all| {
            let stage = match stage {
                Stage::Import => "import",
                Stage::Scan => "scan",
                Stage::Mirror => "lists",
                Stage::Replay => "replay",
            };
            told.set(stage, at, all);
        })
    })?;
    Ok(Replay(done.map_err(lab)?))
}

/// The results of a workload, one per policy.
#[pyclass(frozen)]
pub(crate) struct Runs(Vec<RunResult>);

#[pymethods]
impl Runs {
    /// The results as JSON, as `pageyard run --json` prints them.
    fn json(&self) -> PyResult<String> {
        json(&self.0)
    }

    /// The results as a page: one HTML file with tables and plots.
    fn html(&self, command: &str) -> PyResult<String> {
        let policies: Vec<_> = self.0.iter().map(|r| r.policy.as_str()).collect();
        let workload = self.0.first().map_or("", |r| r.workload.as_str());
        let mut page = Page::new(&format!("{workload} under {}", policies.join(", ")), command);
        let source = Source { name: "this run".into(), results: self.0.clone() };
        page.compare(&[source], &table::Options::default()).map_err(lab)?;
        Ok(page.html())
    }
}

/// Runs a workload on a simulated machine. The package's `run` describes the arguments.
#[pyfunction]
#[pyo3(signature = (workload, *, machine, memory, descriptor, policies, knobs, seed, iterations,
                    set, record, progress))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn run(
    py: Python<'_>,
    workload: &str,
    machine: &str,
    memory: Option<&str>,
    descriptor: u32,
    policies: Vec<String>,
    knobs: Vec<String>,
    seed: u64,
    iterations: u32,
    set: Vec<(String, String)>,
    record: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Runs> {
    if ![16, 64].contains(&descriptor) {
        return Err(lab(format!("descriptor {descriptor}: expected 16 or 64")));
    }
    if !(1..=1_000_000).contains(&iterations) {
        return Err(lab(format!("iterations {iterations}: expected 1 to 1,000,000")));
    }
    let stop = Stop::default();
    let recipe = workload::by_name(workload).map_err(lab)?;
    let options = workload::Options {
        machine: self::machine(machine)?,
        memory: bytes(memory)?,
        descriptor,
        age: 0,
        policies: choices(&policies, &knobs)?,
        seed,
        iterations,
        set,
        costs: Costs::default(),
        limits: None,
        jobs: 0,
        stop: stop.clone(),
    };
    let done = wait(py, progress, &stop, move |told| {
        let run = if record { workload::record } else { workload::run };
        run(&recipe, &options, &mut |at, all| told.set("run", at, Some(all)))
    })?;
    Ok(Runs(done.map_err(lab)?))
}

/// The outcomes of recordings, one per file.
#[pyclass(frozen)]
pub(crate) struct Conformance(Vec<Outcome>);

#[pymethods]
impl Conformance {
    /// The outcomes as JSON.
    fn json(&self) -> PyResult<String> {
        json(&self.0)
    }

    fn __str__(&self) -> String {
        self.0.iter().map(|outcome| format!("{outcome}\n")).collect()
    }
}

/// Compares the allocator with recordings of the real kernel, file by file.
#[pyfunction]
#[pyo3(signature = (files, *, progress))]
pub(crate) fn conform(
    py: Python<'_>,
    files: Vec<PathBuf>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Conformance> {
    let stop = Stop::default();
    let stopped = stop.clone();
    let done = wait(py, progress, &stop, move |told| {
        let all = files.len() as u64;
        let mut outcomes = Vec::new();
        for (at, file) in (0..).zip(&files) {
            told.set("conform", at, Some(all));
            if stopped.is_requested() {
                break;
            }
            outcomes.push(run_file(file)?);
        }
        told.set("conform", all, Some(all));
        Ok::<_, pageyard_lab::conform::ConformError>(outcomes)
    })?;
    Ok(Conformance(done.map_err(lab)?))
}
