//! The outcome of a recording.

use std::fmt;

use pageyard_trace::printable;
use serde::Serialize;

use crate::format::grouped;

/// The outcome of one recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The recording's name: its file name without extensions.
    pub name: String,
    /// Answers compared, up to the first difference.
    pub answers: u64,
    /// Answers in the recording.
    pub answers_recorded: u64,
    /// States compared, up to the first difference. The initial state counts.
    pub states: u64,
    /// States in the recording.
    pub states_recorded: u64,
    /// The first difference, if any.
    pub difference: Option<Difference>,
}

/// The first difference between a recording and the allocator.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Line of the recording, from 1.
    pub line: u64,
    /// The operation, as recorded.
    pub operation: String,
    /// The kernel's result.
    pub expected: String,
    /// The allocator's result.
    pub got: String,
    /// Differences of the states, one per line.
    pub details: Vec<String>,
}

impl Outcome {
    /// Returns whether every answer and every state equals the kernel's.
    pub fn matches(&self) -> bool {
        self.difference.is_none()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, answers, answers_recorded, states, states_recorded, difference } = self;
        let name = printable(name);
        let of = |n, all| format!("{}/{}", grouped(n), grouped(all));
        let (answers, states) = (of(*answers, *answers_recorded), of(*states, *states_recorded));
        write!(f, "{name:<22} {answers} answers, {states} states")?;
        let Some(d) = difference else { return f.write_str(", identical") };
        write!(f, "\n  line {}: {}", grouped(d.line), printable(&d.operation))?;
        let (expected, got) = (printable(&d.expected), printable(&d.got));
        write!(f, "\n    expected {expected}\n    got      {got}")?;
        for line in &d.details {
            write!(f, "\n      {}", printable(line))?;
        }
        Ok(())
    }
}
