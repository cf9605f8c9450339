//! An experiment's results, next to the published ones.

use serde::Serialize;

use super::agree::Column;

/// The results of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Tables of figures.
    pub tables: Vec<Comparison>,
    /// Qualitative claims.
    pub claims: Vec<Claim>,
    /// Notes for interpreting the results.
    pub notes: Vec<String>,
}

/// Published figures next to ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What was measured.
    pub title: String,
    /// Where our figures are from, such as `simulated 2x56, seed 1`.
    pub world: String,
    /// The command that repeats the run by itself; empty if there is none.
    pub command: String,
    /// The origin of the figures: of the first and the second figure in each column.
    pub sides: [&'static str; 2],
    /// Steps, machines, or sizes. The first row is the reference for the others.
    pub rows: Vec<String>,
    /// The quantities.
    pub columns: Vec<Column>,
}

/// The published figures and ours.
pub(super) const SIDES: [&str; 2] = ["seed", "ours"];

/// A claim, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The claim.
    pub text: String,
    /// The result here.
    pub found: String,
    /// Whether it holds; `None` if this run cannot decide it.
    pub holds: Option<bool>,
}
