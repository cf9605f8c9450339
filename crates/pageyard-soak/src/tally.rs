//! Counters of one thread.

use crate::counts::Counts;
use crate::owner::Names;

/// Counters of one thread.
#[derive(Default)]
pub(crate) struct Tally {
    /// Operations by row of the table.
    pub(crate) rows: Vec<u64>,
    /// Pages allocated.
    pub(crate) pages: u64,
    /// Pages of these that were requested as zero.
    pub(crate) zeros: u64,
    /// Requests that failed.
    pub(crate) refused: u64,
    /// Items whose patterns were checked.
    pub(crate) checked: u64,
    /// Items that were freed by another thread than the one that allocated them.
    pub(crate) exchanged: u64,
}

impl Tally {
    pub(crate) fn new(names: Names) -> Tally {
        Tally { rows: vec![0; names.len()], ..Tally::default() }
    }

    pub(crate) fn add_to(&self, counts: &mut Counts, names: Names) {
        names.iter().zip(&self.rows).for_each(|(name, &n)| counts.add(name, n));
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
