//! The whole state at once: saving, restoring and validating it, and the events over all zones.

#[cfg(feature = "lines")]
mod lines;
pub(crate) mod record;
pub(crate) mod snapshot;
pub(crate) mod snapshot_packed;
pub(crate) mod validate;
pub(crate) mod validate_error;
pub(crate) mod vmstat;
