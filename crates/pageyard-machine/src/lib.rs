//! A deterministic machine of 1 to 1,024 virtual CPUs that runs the pageyard allocator, unchanged,
//! in virtual time.
//!
//! Tasks are coroutines on virtual CPUs. Time passes when they [think](Task::think), when they
//! touch pages, and when the allocator takes locks and touches descriptors. One [table](costs)
//! lists the cost of each. The same seed on the same [hardware](spec) gives the same result, bit
//! for bit, on any host. Results come from a simulation: say so where you publish them.
//!
//! - [`MachineSpec`] is hardware as data: shipped, from a file, or detected.
//! - [`Machine`] creates an allocator ([`Machine::yard`]) and runs tasks on it ([`Machine::run`]).
//! - [`Task`] is the interface of a task; [`WaitQueue`] and [`Pipe`] make tasks wait for each
//!   other.
//! - [`Stats`] holds the statistics: per CPU, per lock, per cache level.
//! - [`explore`] runs tasks under chosen interleavings instead.
//!
//! # What the model leaves out
//! - Clock frequencies are constant. The slowdown by other threads of a core is evaluated only when
//!   a piece of work begins, and every 67 us of that work.
//! - There is no write-back, and requests for lines use no bandwidth of a link. Links and caches
//!   within a socket never saturate, and a line waits only for what is queued before it: memories
//!   have no banks that can be busy.
//! - Work that moves bytes is slowed down if they cannot arrive in time with the maximum number of
//!   lines in flight per core. A program that waits for one line at a time is slowed down earlier.
//! - When a line waits, all active cores are counted, whatever they access.
//! - A line has one last user: two CPUs that only read it take it from each other.
//! - On the packed engine, what lies in one line by chance is not modelled: lines are counted from
//!   the start of each array. Reads of a line do not delay each other.
//! - List heads cost nothing beyond the lock that protects them. The links of per-CPU lists cost
//!   nothing at all, since they belong to the CPU.
//! - Tasks are preempted at their own calls, and when they take a lock while holding none.

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
pub mod format;
mod histogram;
mod layout;
mod lines;
mod lock;
mod lock_state;
mod machine;
mod memory;
mod options;
mod platform;
mod priced;
mod queue;
mod raw;
mod rng;
mod schedule;
mod shared;
pub mod spec;
mod state;
mod stats;
mod stop;
mod task;
mod threads;
mod traffic;
mod wait;

/// Compiles the example of docs/machine.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/machine.md")]
struct Chapter;

pub use cache::{LEVELS, LINE, Level};
pub use costs::Costs;
pub use histogram::Histogram;
pub use layout::MachineLayout;
pub use lines::{LineName, LineStats, PartStats, part_name};
pub use lock::SimLock;
pub use lock_state::LockName;
pub use machine::{Machine, Stuck};
pub use memory::{Memory, Rooms};
pub use options::{LockKind, Options, Stalls};
pub use platform::{SimPlatform, SimYard};
pub use priced::unpriced;
pub use rng::Rng;
pub use spec::{MachineSpec, size};
pub use stats::{CpuTimes, LockStats, Stats};
pub use stop::Stop;
pub use task::{Scope, Task};
pub use traffic::Touch;
pub use wait::{Pipe, WaitQueue};
