//! What is called from time to time: ticks, drains, settings, CPUs that come and go.

pub(crate) mod cpus;
pub(crate) mod maintain;
pub(crate) mod settings;
