//! Errors of recording.

use std::io;
use std::path::Path;

use crate::printable::printable;

/// Why a recording failed: the object, what is wrong, and the fix.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {what}; {fix}", printable(.object))]
pub struct RecordError {
    /// The object, usually a path.
    pub object: Box<str>,
    /// What is wrong.
    pub what: Box<str>,
    /// What to do about it.
    pub fix: Box<str>,
}

/// Error numbers of Linux that tell why tracing is refused.
mod number {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const EROFS: i32 = 30;
}

impl RecordError {
    pub(super) fn new(object: &Path, what: impl Into<Box<str>>, fix: impl Into<Box<str>>) -> Self {
        let object = object.to_string_lossy().into();
        RecordError { object, what: what.into(), fix: fix.into() }
    }

    /// Describes a failed access to a file of tracefs.
    pub(super) fn tracefs(path: &Path, error: &io::Error) -> Self {
        let fix = match error.raw_os_error() {
            Some(number::EACCES) => "run as root: sudo pageyard record ...",
            Some(number::EPERM) => {
                "run as root outside a container; kernel lockdown also forbids tracing (see \
                 /sys/kernel/security/lockdown)"
            }
            Some(number::EROFS) => {
                "run on the host: a container has tracefs read-only, or start the container with \
                 -v /sys/kernel/tracing:/sys/kernel/tracing"
            }
            Some(number::ENOMEM) => "free some memory, or record with a smaller --buffer",
            Some(number::EBUSY) => "end the other program that uses this tracing instance",
            _ => "name the folder where tracefs is mounted: --tracefs DIR",
        };
        Self::new(path, system(error), fix)
    }

    /// Describes a failed write to the spool of raw events.
    pub(super) fn spool(error: &io::Error) -> Self {
        let fix = match error.raw_os_error() {
            Some(number::ENOSPC) => "free some space, or name an output on another disk",
            _ => "name an output in a folder that can be written to",
        };
        RecordError { object: "temporary file".into(), what: system(error), fix: fix.into() }
    }
}

/// Returns the system's message without its number.
fn system(error: &io::Error) -> Box<str> {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect::<String>().into()
}
