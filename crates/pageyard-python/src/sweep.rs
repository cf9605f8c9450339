//! Sweeps: a plan, its cells, and the folder of results.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pageyard_machine::Stop;
use pageyard_sweep::{
    CELLS, Cell, CellResult, Plan, Store, SweepError, available_memory, finish, hash_of_file, run,
    text,
};
use pyo3::prelude::*;

use crate::error::lab;
use crate::wait::wait;

/// Returns the SHA-256 of a file's content.
#[pyfunction]
pub(crate) fn content_hash(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let hash = py.detach(|| hash_of_file(&path).map(|(hash, _)| hash));
    hash.map_err(|e| lab(format!("{}: {e}", path.display())))
}

/// Runs one cell, given as JSON, and returns its result as JSON.
#[pyfunction]
#[pyo3(signature = (cell, program, trace))]
pub(crate) fn run_cell(
    py: Python<'_>,
    cell: &str,
    program: String,
    trace: Option<PathBuf>,
) -> PyResult<String> {
    let cell: Cell = serde_json::from_str(cell).map_err(lab)?;
    let stop = Stop::default();
    let stopped = stop.clone();
    let result = wait(py, None, &stop, move |_| cell.run(&program, trace.as_deref(), &stopped))?;
    serde_json::to_string(&result.map_err(lab)?).map_err(lab)
}

/// A sweep: its cells, and the folder of its results.
#[pyclass(frozen)]
pub(crate) struct Sweep {
    plan: Plan,
    name: String,
    keys: Vec<String>,
    program: String,
    folder: PathBuf,
    store: Store,
}

impl Sweep {
    fn all(&self) -> Vec<Option<CellResult>> {
        let pairs = self.keys.iter().zip(&self.plan.cells);
        pairs.map(|(key, cell)| self.store.get(key, cell)).collect()
    }

    fn finished(&self, results: &[CellResult]) -> Result<String, SweepError> {
        Ok(text(&finish(&self.name, &self.folder, results)?))
    }
}

#[pymethods]
impl Sweep {
    /// Reads a description. `program` identifies what computes the cells.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        description: PathBuf,
        folder: PathBuf,
        program: String,
    ) -> PyResult<Sweep> {
        let name = description.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let opened = py.detach(|| {
            let plan = Plan::read(&description)?;
            let store = Store::open(&folder.join(CELLS))?;
            let keys = plan.cells.iter().map(|cell| cell.key(&program)).collect();
            Ok::<_, SweepError>((plan, store, keys))
        });
        let (plan, store, keys) = opened.map_err(lab)?;
        Ok(Sweep { plan, name, keys, program, folder, store })
    }

    fn __len__(&self) -> usize {
        self.keys.len()
    }

    /// The cells that have no result yet: key, JSON, and the hash of the trace that it reads. Fails
    /// if one of those traces cannot be replayed.
    fn missing(&self, py: Python<'_>) -> PyResult<Vec<(String, String, Option<String>)>> {
        let cells = self.plan.cells.iter().zip(&self.keys).zip(py.detach(|| self.all()));
        let missing = cells.filter(|(_, result)| result.is_none()).map(|(cell, _)| cell);
        let missing: Vec<_> = missing.collect();
        let stop = Stop::default();
        py.detach(|| self.plan.check(missing.iter().map(|(cell, _)| *cell), &stop)).map_err(lab)?;
        let missing = missing.into_iter().map(|(cell, key)| {
            let json = serde_json::to_string(cell).map_err(lab)?;
            Ok((key.clone(), json, cell.trace().map(str::to_owned)))
        });
        missing.collect()
    }

    /// The paths of the traces, by the hash of their content.
    fn files(&self) -> HashMap<String, PathBuf> {
        self.plan.files.clone()
    }

    /// Keeps the result of a cell that was computed elsewhere.
    fn keep(&self, py: Python<'_>, key: &str, result: &str) -> PyResult<()> {
        let result: CellResult = serde_json::from_str(result).map_err(lab)?;
        let computed = result.cell.key(&self.program);
        if result.key != key || computed != key || !self.keys.contains(&computed) {
            return Err(lab(format!("cell {key}: the result is of another cell or program")));
        }
        py.detach(|| self.store.put(&result)).map_err(lab)
    }

    /// Writes the table and the page from the kept results, and returns the fronts as text.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let finished = py.detach(|| {
            let results: Option<Vec<CellResult>> = self.all().into_iter().collect();
            results.map(|results| self.finished(&results))
        });
        let finished = finished.ok_or_else(|| lab("results are missing; run the sweep again"))?;
        finished.map_err(lab)
    }

    /// Computes the missing cells on this machine, and finishes.
    #[pyo3(signature = (jobs, memory, progress))]
    fn run(
        &self,
        py: Python<'_>,
        jobs: usize,
        memory: Option<u64>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let stop = Stop::default();
        let (plan, store, program) = (self.plan.clone(), self.store.clone(), self.program.clone());
        let memory = memory.unwrap_or_else(available_memory);
        let stopped = stop.clone();
        let results = wait(py, progress, &stop, move |told| {
            run(&plan, &store, &program, jobs, memory, &stopped, &|done| {
                told.set("cells", (done.cached + done.computed) as u64, Some(done.cells as u64));
            })
        })?;
        let (_, results) = results.map_err(|e: SweepError| lab(e))?;
        py.detach(|| self.finished(&results)).map_err(lab)
    }

    /// The folder of the results.
    #[getter]
    fn folder(&self) -> &Path {
        &self.folder
    }
}
