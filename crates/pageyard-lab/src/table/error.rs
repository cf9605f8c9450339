//! What can be wrong with results that are to be compared.

use pageyard_trace::printable;

/// Why results cannot be put into one table. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
#[error("{}: {} (to fix: {fix})", printable(.place), printable(.what))]
pub struct TableError {
    /// The file, and the place in it.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// What to do about it.
    pub fix: &'static str,
}

pub(super) fn wrong<T>(
    place: impl Into<String>,
    what: impl Into<String>,
    fix: &'static str,
) -> Result<T, TableError> {
    Err(TableError { place: place.into(), what: what.into(), fix })
}
