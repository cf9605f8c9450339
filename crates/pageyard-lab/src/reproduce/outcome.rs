//! What an experiment found, beside what was published.

use serde::Serialize;

use super::agree::Column;

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Figures.
    pub tables: Vec<Comparison>,
    /// Statements that are not figures.
    pub claims: Vec<Claim>,
    /// What to know when reading them.
    pub notes: Vec<String>,
}

/// Published figures beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What was measured.
    pub title: String,
    /// Where ours are from, such as `simulated 2x56, seed 1`.
    pub world: String,
    /// The command that does the same run by itself, where there is one.
    pub command: String,
    /// Whose the figures are: the first of each column, and the second.
    pub sides: [&'static str; 2],
    /// Steps, machines, sizes: the first is what others are held against.
    pub rows: Vec<String>,
    /// The quantities.
    pub columns: Vec<Column>,
}

/// Published, and found here.
pub(super) const SIDES: [&str; 2] = ["seed", "ours"];

/// A statement, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What was claimed.
    pub text: String,
    /// What was found here.
    pub found: String,
    /// Whether it holds; `None` where this run cannot say.
    pub holds: Option<bool>,
}
