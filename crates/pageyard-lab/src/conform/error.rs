//! Why a recording cannot be read.

use std::path::PathBuf;

use pageyard_trace::printable;

use crate::text::shown;

/// A recording that cannot be read. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// The file cannot be opened or read.
    #[error("{}: {source}; name a recording that exists and is readable", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line means nothing.
    #[error("{}, line {line}: {}", shown(.path), printable(.what))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        what: String,
    },
}
