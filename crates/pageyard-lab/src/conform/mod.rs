//! Checks the allocator against recorded answers of the real Linux 6.12.117: every answer and every
//! state.

mod error;
mod outcome;
mod recording;
mod run;
mod start;
mod state;

use std::path::Path;

pub use error::ConformError;
pub use outcome::{Difference, Outcome};
pub(crate) use start::with_yard;
pub(crate) use state::States;

/// Runs one recording (JSON lines, plain or compressed).
///
/// # Errors
/// Fails with [`ConformError`] if the file cannot be read or is malformed. A difference is not an
/// error.
pub fn run_file(path: &Path) -> Result<Outcome, ConformError> {
    run::run(recording::Lines::open(path)?)
}

/// Returns the last state of a recording at or before a line, counted from 1, and the line of that
/// state.
///
/// # Errors
/// Fails with [`ConformError`] if the file cannot be read, or has no state up to that line.
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
        lines.malformed(format!("no state up to line {line}; a recording must begin with a state"))
    })
}
