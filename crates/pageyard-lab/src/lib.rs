//! The lab: runs recorded and simulated work on the allocator and compares the results.
//!
//! - [`conform`] checks the allocator against answers of the real kernel, operation by operation.
//! - [`format`](mod@format) is the one form of numbers and sizes in all output.
//! - [`hygiene`] measures whether memory of different mobility stays apart over many rounds.
//! - [`owner`] prints the owners of blocks in the kernel's format.
//! - [`picture`] renders results as pages and plots.
//! - [`record`] observes an allocator and writes its events as the kernel's tracers do.
//! - [`replay`] performs a recorded trace on the allocator under several policies.
//! - [`reproduce`] runs the experiments of the seeds and prints the published figures next to its
//!   own.
//! - [`result`] is the measurements of a run as data.
//! - [`workload`] runs typical workloads of allocator users, on a simulated machine or on this
//!   host.
//! - [`show`] prints a recorded machine state as the kernel's own files do.
//! - [`stats`] computes the statistics in tables of results.
//! - [`table`] prints results side by side, in the forms of several authors and in Pageyard's own.
//! - [`topology`] describes machines: nodes with their memory, CPUs, distances and caches.
//! - [`track`] is the recorded course of a run over time.
//!
//! The lab uses no allocator internals: it observes answers, snapshots, counters and events.

pub mod conform;
pub mod hygiene;
mod memory;
pub mod owner;
pub mod picture;
mod policies;
pub mod record;
pub mod replay;
pub mod reproduce;
pub mod result;
mod rng;
mod settings;
pub mod show;
pub mod stats;
pub mod table;
mod text;
pub mod topology;
pub mod track;
pub mod workload;

pub use pageyard_machine::format;

pub use memory::{Lock, Memory};
