//! The per-CPU lists of a zone as data: the lists and the tuning of their size.

pub(crate) mod pageset;
pub mod tuning;
