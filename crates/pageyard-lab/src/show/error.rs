//! Errors of printing a state.

use std::path::PathBuf;

use pageyard_trace::{TraceError, printable};

use crate::conform::ConformError;
use crate::text::shown;

/// Why a state cannot be printed. The program exits with code 2.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The file cannot be read.
    #[error("{}: {source}; name a trace, a folder with state files, or a recording", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A trace or state file is malformed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A recording is malformed.
    #[error(transparent)]
    Recording(#[from] ConformError),
    /// The file is valid but does not have what was requested.
    #[error("{}: {}", shown(.path), printable(.what))]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is missing, and what is available.
        what: String,
    },
}
