//! A long mixed load on a yard of real memory: threads that come and go allocate in every way there
//! is and give back on other threads, while settings, limits and memory change. Each page that
//! somebody holds bears a pattern of its own, which is looked at again when it is given back; once a
//! second everybody stands still, the allocator's invariants are checked, and the pages in use are
//! those that somebody holds.
//!
//! ```
//! use pageyard_soak::{Plan, soak};
//!
//! let plan = Plan { seconds: 1, size: 64 << 20, ..Plan::new(1) };
//! let report = soak(&plan, &mut |_| ())?;
//! assert!(report.found.is_none() && report.counts.checked > 0);
//! # Ok::<(), pageyard_soak::SoakError>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
mod counts;
mod crew;
mod held;
mod keeper;
mod settings;
mod shared;
mod thread;

pub use counts::{Counts, Report};
pub use held::Found;
pub use keeper::soak;

/// A mistake that is made on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A word of a page that somebody holds is changed, as whoever got the same page would.
    Scribble,
    /// A block is forgotten: nobody holds it, and it is not free.
    Lose,
    /// A page that was to be zero is not.
    Dirt,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long.
    pub seconds: u64,
    /// Bytes of memory.
    pub size: u64,
    /// How many threads allocate.
    pub threads: usize,
    /// Where random choices start. What threads do to each other differs from run to run all the same.
    pub seed: u64,
    /// A mistake to make, once.
    pub plant: Option<Plant>,
}

impl Plan {
    /// So many seconds on 1 GiB, two threads for each CPU but at least four.
    pub fn new(seconds: u64) -> Plan {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Plan { seconds, size: 1 << 30, threads: (2 * cpus).max(4), seed: 1, plant: None }
    }
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// The yard cannot be made.
    #[error(transparent)]
    Build(#[from] pageyard_host::BuildError),
    /// Nothing to do.
    #[error("threads: {0}; give 1 to 1024")]
    Threads(usize),
    /// A thread that is to allocate could not be started.
    #[error("a thread: {0}")]
    Thread(#[from] std::io::Error),
}
