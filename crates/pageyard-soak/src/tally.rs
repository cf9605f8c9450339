//! What one thread did.

use crate::counts::Counts;
use crate::owner::Names;

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
