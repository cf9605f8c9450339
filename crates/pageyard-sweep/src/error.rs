//! Errors of a sweep.

use std::io;
use std::path::{Path, PathBuf};

use pageyard_machine::spec::prefix;
use pageyard_trace::printable;

/// Why a sweep could not run. The program exits with code 2.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The description is invalid.
    #[error("{}: {}{what}", printable(&.file.to_string_lossy()), printable(&prefix(.place)))]
    Description {
        /// The file.
        file: PathBuf,
        /// The entry at fault, empty for the whole file.
        place: String,
        /// What is wrong, and the fix.
        what: String,
    },
    /// An argument of `judge` is invalid.
    #[error("judge: {0}")]
    Argument(String),
    /// A file cannot be read or written.
    #[error(
        "{}: {source}; name a folder that can be written to (-o)",
        printable(&.path.to_string_lossy())
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A trace cannot be replayed; its name comes first.
    #[error("{0}")]
    Trace(String),
    /// A cell cannot be run.
    #[error("cell {}: {what}", printable(.cell))]
    Cell {
        /// The cell.
        cell: String,
        /// What is wrong, and the fix.
        what: String,
    },
    /// The sweep was [stopped](pageyard_machine::Stop). Finished cells are kept.
    #[error("stopped on request; finished cells are kept, so the same command continues")]
    Stopped,
}

impl SweepError {
    pub(crate) fn file(path: &Path, source: io::Error) -> SweepError {
        SweepError::File { path: path.to_owned(), source }
    }
}
