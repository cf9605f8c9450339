//! What errors share.

use std::borrow::Cow;
use std::path::Path;

use pageyard_trace::printable;

/// A path as it may be printed.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// A text as it may be printed, kept.
pub(crate) fn clean(text: &mut String) {
    if let Cow::Owned(escaped) = printable(text) {
        *text = escaped;
    }
}
