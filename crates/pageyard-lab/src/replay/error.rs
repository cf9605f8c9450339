//! What can go wrong with a replay.

use std::io;

use pageyard_trace::{TraceError, printable};

use crate::policies::PolicyError;
use crate::settings::SettingError;

/// Why a trace could not be replayed. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace or a state file cannot be read, or is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace contradicts the machine.
    #[error(
        "{}: record {record}: {what} (to fix: {fix}, or replay with --lenient)",
        printable(.input)
    )]
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
    #[error("the machine: {} (to fix: {fix})", printable(.what))]
    Machine {
        /// What is wrong.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// The machine is so large that its tables would take more than a trace of this length may.
    #[error(
        "{}: the machine spans {} MiB, up to frame {highest:#x}, and tables for it take {} MiB; a \
         trace of {events} events may have {} MiB of them (to fix: if the machine is so large, give --memory \
         {}G; if frames or the zoneinfo file are damaged, give the true --memory and --lenient, or \
         leave that file out)",
        printable(.input),
        in_mib(*span),
        in_mib(*needs),
        allowed >> 20,
        span.div_ceil(1 << 30)
    )]
    TooLarge {
        /// The trace's name.
        input: String,
        /// Bytes from the lowest to the highest frame.
        span: u64,
        /// The highest frame.
        highest: u64,
        /// Bytes of its tables.
        needs: u64,
        /// Page events of the trace.
        events: u64,
        /// Bytes that tables may take.
        allowed: u64,
    },
    /// There is nothing to replay.
    #[error(
        "{}: the trace has no page events (to fix: record the kmem events mm_page_*)",
        printable(.input)
    )]
    NoEvents {
        /// The trace's name.
        input: String,
    },
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A setting that this machine's memory does not allow.
    #[error(transparent)]
    Setting(#[from] SettingError),
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

fn in_mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
