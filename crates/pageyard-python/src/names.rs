//! Lists of what can be named: policies, workloads, machines.

use pageyard::policy::MODIFIERS;
use pageyard_lab::replay;
use pageyard_lab::workload::RECIPES;
use pageyard_machine::spec::SHIPPED;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the policies and the modifiers that wrap them, by name.
#[pyfunction]
pub(crate) fn policies() -> (Vec<&'static str>, Vec<&'static str>) {
    let whole = replay::policies().map(|p| p.name);
    let modifiers = MODIFIERS.iter().map(|m| m.name).chain(["Guarded"]);
    (whole.collect(), modifiers.collect())
}

/// Returns the workloads: for each name its summary, and its parameters with default and help.
#[pyfunction]
pub(crate) fn workloads(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for recipe in RECIPES {
        let params = PyDict::new(py);
        for p in recipe.params {
            params.set_item(p.name, (p.default, p.help))?;
        }
        all.set_item(recipe.name, (recipe.summary, params))?;
    }
    Ok(all)
}

/// Returns the names of the simulated machines that are included.
#[pyfunction]
pub(crate) fn machines() -> Vec<&'static str> {
    SHIPPED.iter().map(|s| s.0).collect()
}
