//! Errors of a replay.

use std::io;

use pageyard_trace::{TraceError, printable};

use crate::format::{grouped, size};
use crate::policies::PolicyError;
use crate::settings::SettingError;

/// Why a trace could not be replayed. The program exits with code 2.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace or a state file cannot be read, or is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace contradicts the machine.
    #[error(
        "{}: record {record}: {what}; {fix}, or replay with --lenient",
        printable(.input)
    )]
    Inconsistent {
        /// The trace's name.
        input: String,
        /// Number of the record, from 1.
        record: u64,
        /// The contradiction.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// No machine can be built from the state files or options.
    #[error("machine: {}; {fix}", printable(.what))]
    Machine {
        /// What is wrong.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The machine is so large that its tables exceed what a trace of this length may use.
    #[error(
        "{}: the machine spans {}, up to frame {highest:#x}, and requires {} of tables; the limit \
         for a trace of {} events is {}. If the machine is this large, use \
         --memory {}G; if frame numbers or the zoneinfo file are damaged, use the real --memory \
         and --lenient, or remove that file",
        printable(.input),
        size(*span),
        size(*needs),
        grouped(*events),
        size(*allowed),
        span.div_ceil(1 << 30)
    )]
    TooLarge {
        /// The trace's name.
        input: String,
        /// Bytes from the lowest to the highest frame.
        span: u64,
        /// The highest frame.
        highest: u64,
        /// Size of its tables in bytes.
        needs: u64,
        /// Number of page events in the trace.
        events: u64,
        /// Allowed size of tables in bytes.
        allowed: u64,
    },
    /// The trace has no page events.
    #[error(
        "{}: no page events in the trace; record the kmem events mm_page_*",
        printable(.input)
    )]
    NoEvents {
        /// The trace's name.
        input: String,
    },
    /// The policy is unknown or malformed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The replay was [stopped](pageyard_machine::Stop).
    #[error("stopped on request")]
    Stopped,
    /// This machine's memory does not allow a setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(io::Error),
    /// The temporary file for the plan or for an imported trace cannot be used.
    #[error("temporary file in {dir}: {0}; free space there, or set TMPDIR to a folder with more \
             space",
            dir = std::env::temp_dir().display())]
    Temporary(#[source] io::Error),
}

impl ReplayError {
    pub(super) fn machine(what: impl Into<String>, fix: &'static str) -> Self {
        ReplayError::Machine { what: what.into(), fix }
    }
}
