//! What was done.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::found::Found;
use crate::ways::TABLE;

/// How often each operation was done, by its name, and what else is counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    /// How often something was done.
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

/// What one thread did.
#[derive(Default)]
pub(crate) struct Tally {
    /// By row of the table.
    pub(crate) rows: Vec<u64>,
    /// Pages that were handed out.
    pub(crate) pages: u64,
    /// Of these, pages that were requested as zero.
    pub(crate) zeros: u64,
    /// Requests that were refused.
    pub(crate) refused: u64,
    /// Items whose patterns were checked.
    pub(crate) checked: u64,
    /// Items that were released by another thread than the one that got them.
    pub(crate) exchanged: u64,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally { rows: vec![0; TABLE.len()], ..Tally::default() }
    }

    pub(crate) fn add_to(&self, counts: &mut Counts) {
        TABLE.iter().zip(&self.rows).for_each(|(row, &n)| counts.add(row.name, n));
        for (what, n) in [
            ("pages", self.pages),
            ("zeros", self.zeros),
            ("refused", self.refused),
            ("checked", self.checked),
            ("exchanged", self.exchanged),
        ] {
            counts.add(what, n);
        }
    }
}

/// What was found, and where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The seed of the soak.
    pub seed: u64,
    /// Which phase of it.
    pub phase: u64,
    /// What that phase consists of.
    pub configuration: String,
    /// What was found.
    pub found: Found,
}

/// How a soak ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where random choices started.
    pub seed: u64,
    /// Threads that allocated.
    pub threads: usize,
    /// Bytes of memory in the yards of a phase at most.
    pub size: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Phases that ended.
    pub phases: u64,
    /// What was done.
    pub counts: Counts,
    /// What was found; the soak ended there.
    pub found: Option<Finding>,
}
