//! Why there is nothing to show.

use std::path::PathBuf;

use pageyard_trace::{TraceError, printable};

use crate::conform::ConformError;
use crate::text::shown;

/// Why there is nothing to show. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The file cannot be read.
    #[error("{}: {source}; name a trace, a folder with state files, or a recording", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A trace or state file is wrong.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A recording is wrong.
    #[error(transparent)]
    Recording(#[from] ConformError),
    /// The file is there and sound, but has not what was asked for.
    #[error("{}: {}", shown(.path), printable(.what))]
    Missing {
        /// The file.
        path: PathBuf,
        /// What it lacks, and what it has.
        what: String,
    },
}
