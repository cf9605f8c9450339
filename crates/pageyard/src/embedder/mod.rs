//! What the embedder supplies or receives: platform, hooks, configuration, policy, events.

pub(crate) mod checks;
pub(crate) mod compact_events;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod forward;
pub(crate) mod high;
pub(crate) mod hooks;
pub(crate) mod parts;
pub(crate) mod platform;
pub mod poison;
pub mod policy;
pub(crate) mod reclaim_job;
pub(crate) mod report;
