//! The per-CPU lists of a zone as data: the lists and how their size tunes itself.

pub(crate) mod pageset;
pub mod tuning;
