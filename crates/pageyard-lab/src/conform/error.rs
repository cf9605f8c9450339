//! Errors of reading a recording.

use std::path::PathBuf;

use pageyard_trace::printable;

use crate::text::shown;

/// Why a recording cannot be read. The program exits with code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// The file cannot be opened or read.
    #[error("{}: {source}; name a recording that exists and is readable", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A line is malformed.
    #[error("{}, line {line}: {}", shown(.path), printable(.what))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong, and what was expected.
        what: String,
    },
}
