//! Helpers for error messages.

use std::borrow::Cow;
use std::path::Path;

use pageyard_trace::printable;

/// Returns a path in printable form.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Makes a text printable in place.
pub(crate) fn clean(text: &mut String) {
    if let Cow::Owned(escaped) = printable(text) {
        *text = escaped;
    }
}
