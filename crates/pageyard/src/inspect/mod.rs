//! Read-only reporting: texts, snapshots, validation, histories, verdicts.

pub(crate) mod history;
pub(crate) mod owner;
pub(crate) mod snapshot;
pub mod text;
pub(crate) mod validate;
pub(crate) mod validate_error;
pub(crate) mod verdict;
pub(crate) mod verdict_text;
pub(crate) mod vmstat;
