//! Sweeps: every combination of policies, settings, traces, workloads, machines and seeds.
//!
//! A [`Plan`] is read from `SWEEP.toml` and consists of [`Cell`]s. A cell is one policy on one input
//! with one seed; its key is the hash of everything that its result depends on. Finished cells are
//! in a [`Store`], so a sweep continues where it was interrupted, and a changed sweep computes only
//! what is new. [`run()`] computes the rest on this machine's cores; other programs can run cells
//! anywhere, since a cell describes itself. [`finish`] writes `results.parquet` and `index.html`.

mod cell;
mod description;
mod error;
mod front;
mod hash;
pub mod judge;
mod page;
mod run;
mod store;
mod table;

use std::path::Path;

pub use cell::{Cell, CellResult, MachineText, TraceFile, Value, Work};
pub use description::Plan;
pub use error::SweepError;
pub use front::{Front, OBJECTIVES, Point, fronts};
pub use hash::{hash_of, hash_of_file};
pub use page::{html, text};
pub use pageyard_lab::workload::available_memory;
pub use run::{Done, run};
pub use store::Store;
pub use table::parquet;

/// Name of the folder of finished cells in the folder of a sweep.
pub const CELLS: &str = "cells";

/// Writes `results.parquet` and `index.html` into a folder, each completely or not at all, and
/// returns the Pareto fronts. Removes what interrupted processes left of these files.
///
/// # Errors
/// Fails if a file cannot be written, or if the folder cannot be listed.
pub fn finish(name: &str, folder: &Path, results: &[CellResult]) -> Result<Vec<Front>, SweepError> {
    let table = folder.join("results.parquet");
    let bytes = parquet(results)
        .map_err(|e| SweepError::File { path: table.clone(), source: std::io::Error::other(e) })?;
    store::remove_abandoned(folder)?;
    store::write_whole(&table, &bytes)?;
    let fronts = fronts(results);
    store::write_whole(&folder.join("index.html"), html(name, &fronts).as_bytes())?;
    Ok(fronts)
}
