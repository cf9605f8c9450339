//! A deterministic machine of 1 to 1,024 virtual CPUs that runs the pageyard allocator, unchanged,
//! in virtual time.
//!
//! Tasks are coroutines on virtual CPUs. Time passes where they [think](Task::think), where they
//! touch pages, and where the allocator takes locks and touches descriptors; what each of these
//! costs stands in one [table](costs). The same seed on the same [hardware](spec) gives the same
//! result, bit for bit, on any host. Results are of a simulation: say so where they are printed.
//!
//! - [`MachineSpec`] is hardware as data: shipped, from a file, or detected.
//! - [`Machine`] makes an allocator ([`Machine::yard`]) and runs tasks on it ([`Machine::run`]).
//! - [`Task`] is what a task can do; [`WaitQueue`] and [`Pipe`] make tasks wait for each other.
//! - [`Stats`] is what was counted: per CPU, per lock, per level of the caches.
//! - [`explore`] runs tasks under chosen interleavings instead.
//!
//! # What the model leaves out
//! - Clocks do not change. Threads of a core that slow each other down look at what the others do
//!   when they begin something, and every 67 us of their own work.
//! - Lines are not written back, and requests for lines take nothing of a link. Links and caches
//!   within a socket never fill up, and a line waits only for what is queued before it: memories have
//!   no banks that are busy.
//! - Work that moves bytes is slowed down when they cannot come in time with as many lines under way
//!   as a core can have. A program that waits for one line at a time is slowed down earlier.
//! - All active cores count where lines wait, whatever they ask for.
//! - A line has one last user: two CPUs that only read it take it from each other.
//! - List heads cost nothing but with the lock that protects them, and the links of per-CPU lists
//!   nothing at all: they are the CPU's own.
//! - Tasks are preempted at their own calls and where they take a lock while holding none.

#![deny(unsafe_code)]

mod alarm;
mod background;
mod cache;
pub mod calibrate;
mod channel;
mod channels;
pub mod costs;
mod cpu;
pub mod explore;
mod fiber;
mod histogram;
mod layout;
mod lock;
mod lock_state;
mod machine;
mod memory;
mod options;
mod platform;
mod queue;
mod raw;
mod rng;
mod schedule;
mod shared;
pub mod spec;
mod state;
mod stats;
mod task;
mod threads;
mod traffic;
mod wait;

pub use cache::{LEVELS, LINE, Level};
pub use costs::Costs;
pub use histogram::Histogram;
pub use layout::MachineLayout;
pub use lock::SimLock;
pub use lock_state::LockName;
pub use machine::{Machine, Stuck};
pub use memory::{Memory, Rooms};
pub use options::{LockKind, Options, Stalls};
pub use platform::{SimPlatform, SimYard};
pub use rng::Rng;
pub use spec::{MachineSpec, size};
pub use stats::{CpuTimes, LockStats, Stats};
pub use task::{Scope, Task};
pub use traffic::Touch;
pub use wait::{Pipe, WaitQueue};
