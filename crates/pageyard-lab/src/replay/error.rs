//! What can go wrong with a replay.

use std::io;

use pageyard_trace::TraceError;

/// Why a trace could not be replayed. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace or a state file cannot be read, or is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace contradicts the machine.
    #[error("{input}: record {record}: {what} (to fix: {fix}, or replay with --lenient)")]
    Inconsistent {
        /// The trace's name.
        input: String,
        /// Number of the record, from 1.
        record: u64,
        /// What contradicts what.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// The machine cannot be built from what the state files or options say.
    #[error("the machine: {what} (to fix: {fix})")]
    Machine {
        /// What is wrong.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// There is nothing to replay.
    #[error("{input}: the trace has no page events (to fix: record the kmem events mm_page_*)")]
    NoEvents {
        /// The trace's name.
        input: String,
    },
    /// No policy of this name is compiled in.
    #[error("no policy {name}; there are {known}")]
    UnknownPolicy {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The temporary file for the plan of the replay, or for an imported trace.
    #[error("temporary file in {dir}: {0} (to fix: make room there, or set TMPDIR to a place that has it)",
            dir = std::env::temp_dir().display())]
    Temporary(#[source] io::Error),
}

impl ReplayError {
    pub(super) fn machine(what: impl Into<String>, fix: &'static str) -> Self {
        ReplayError::Machine { what: what.into(), fix }
    }
}
