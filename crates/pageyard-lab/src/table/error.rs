//! Errors in results to be compared.

use pageyard_trace::printable;

/// Why results cannot be combined into one table. The program exits with code 2 for these.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}; {fix}", printable(.place), printable(.what))]
pub struct TableError {
    /// The file, and the place in it.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// The fix.
    pub fix: &'static str,
}

pub(super) fn wrong<T>(
    place: impl Into<String>,
    what: impl Into<String>,
    fix: &'static str,
) -> Result<T, TableError> {
    Err(TableError { place: place.into(), what: what.into(), fix })
}
