//! The lab: what the allocator does with recorded work, and how that compares.
//!
//! [`conform`] holds the allocator against answers of the real kernel, operation by operation.
//! [`owner`] says who holds what, in the form of the kernel.
//! [`picture`] makes pages and plots of results.
//! [`replay`] puts a recorded trace to the allocator under several policies.
//! [`reproduce`] runs the experiments of the seeds and prints what was published beside it.
//! [`result`] is what a run measured, as data.
//! [`workload`] runs what the allocator's users do, on a simulated machine or on this host.
//! [`show`] prints a recorded machine state as the kernel's own files do.
//! [`stats`] is what tables of results are computed with.
//! [`table`] prints results side by side, in the forms of several authors and in our own.
//! [`track`] is what happened over time in a run, where that was recorded.
//! It knows no allocator internals: it sees answers, snapshots, counters and events.

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

pub use memory::{Lock, Memory};
