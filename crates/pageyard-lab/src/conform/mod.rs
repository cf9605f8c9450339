//! Holding the allocator against recorded answers of the real Linux 6.12.117: every answer and
//! every state.

mod recording;
mod run;
mod start;
mod state;

use std::fmt;
use std::path::{Path, PathBuf};

use pageyard_trace::printable;
use serde::Serialize;

use crate::text::shown;

pub(crate) use start::with_yard;
pub(crate) use state::States;

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

/// What one recording came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The recording's name: its file name without endings.
    pub name: String,
    /// Answers compared, up to the first difference.
    pub answers: u64,
    /// Answers in the recording.
    pub answers_recorded: u64,
    /// States compared, up to the first difference. The first state is the start, and counts.
    pub states: u64,
    /// States in the recording.
    pub states_recorded: u64,
    /// The first difference, if any.
    pub difference: Option<Difference>,
}

/// Where a recording and the allocator part.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Line of the recording, from 1.
    pub line: u64,
    /// The operation, as recorded.
    pub operation: String,
    /// What the kernel did.
    pub expected: String,
    /// What the allocator did.
    pub got: String,
    /// Differences of the states, one a line.
    pub details: Vec<String>,
}

impl Outcome {
    /// Every answer and every state is the kernel's.
    pub fn matches(&self) -> bool {
        self.difference.is_none()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, answers, answers_recorded, states, states_recorded, difference } = self;
        let name = printable(name);
        write!(
            f,
            "{name:<22} {answers}/{answers_recorded} answers, {states}/{states_recorded} states"
        )?;
        let Some(d) = difference else { return f.write_str(", identical") };
        write!(f, "\n  line {}: {}", d.line, printable(&d.operation))?;
        let (expected, got) = (printable(&d.expected), printable(&d.got));
        write!(f, "\n    expected {expected}\n    got      {got}")?;
        for line in &d.details {
            write!(f, "\n      {}", printable(line))?;
        }
        Ok(())
    }
}

/// Runs one recording (JSON lines, plain or compressed).
///
/// # Errors
/// [`ConformError`] for a file that cannot be read or makes no sense; a difference is no error.
pub fn run_file(path: &Path) -> Result<Outcome, ConformError> {
    run::run(recording::Lines::open(path)?)
}

/// The last state of a recording at or before a line, counted from 1, and the line on which it
/// stands.
///
/// # Errors
/// [`ConformError`] for a file that cannot be read, or that has no state up to there.
pub(crate) fn state_at(path: &Path, line: u64) -> Result<(u64, States), ConformError> {
    let mut lines = recording::Lines::open(path)?;
    let mut found = None;
    while lines.number < line
        && let Some(next) = lines.next()?
    {
        if let Some(state) = next.state {
            found = Some((lines.number, state));
        }
    }
    found.ok_or_else(|| {
        lines.malformed(format!("there is no state up to line {line}; a recording begins with one"))
    })
}
