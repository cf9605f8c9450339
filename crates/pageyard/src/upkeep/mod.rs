//! Occasional operations: ticks, drains, settings, CPU hotplug.

pub(crate) mod cpus;
pub(crate) mod maintain;
pub(crate) mod settings;
