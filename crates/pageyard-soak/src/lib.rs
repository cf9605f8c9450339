//! Runs random operations on yards of real memory and tracks the owner of every page.
//!
//! A soak consists of phases of about a second. Each phase creates its own yards and its own
//! threads, which start and end during the phase. The seed and the phase's number determine the
//! yards' sizes, thread caches and workers. The threads allocate and free memory by every public
//! method while settings, limits and memory change (the table of methods is `src/operations.rs`).
//!
//! A shadow map holds the owner of every page. One atomic exchange enters an allocated page, and
//! finds a page that already has an owner. Another exchange removes it when it is freed. In half of
//! the phases, pages also carry patterns, and memory that was requested as zero is checked. At the
//! end of a phase everything is freed, and each yard must be exactly empty.
//!
//! ```
//! use std::ops::ControlFlow;
//! use pageyard_soak::{Plan, soak};
//!
//! let plan = Plan { size: 64 << 20, phases: 1, length: 5, ..Plan::new(60) };
//! let report = soak(&plan, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!((report.phases, report.found), (1, None));
//! # Ok::<(), pageyard_soak::SoakError>(())
//! ```

mod actor;
mod callbacks;
mod counts;
mod found;
mod held;
mod operations;
mod owner;
mod owners;
mod phase;
mod pool;
mod raw;
mod run;
mod settings;
mod tally;
mod tracked;
mod work;
mod world;
mod yards;

pub use counts::{Counts, Finding, Report};
pub use found::Found;
pub use owner::Owner;
pub use phase::{LEAST_OF_A_YARD, Phase};
pub use run::soak;

use pageyard::policy::Rules;

/// A mistake that is planted once, on purpose, to check that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A block is allocated a second time.
    Twice,
    /// A block is leaked: it has no owner and is not free.
    Lose,
    /// A page that was requested as zero is not zero.
    Dirt,
    /// A block is freed by a thread that does not own it.
    WrongOwner,
    /// A byte of a block is overwritten.
    Scribble,
}

/// The parameters of a soak.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seconds after which the last phase is cut short.
    pub seconds: u64,
    /// The maximum number of phases.
    pub phases: u64,
    /// The length of a phase in percent of a whole one, which takes seconds: each thread that
    /// allocates performs 10,000 operations of all kinds, or handles 500,000 single pages with
    /// patterns, or 2,000,000 without.
    pub length: u64,
    /// The number of the only phase, which is repeated. `None` counts phases from 1.
    pub only: Option<u64>,
    /// The policy of all yards. `None` creates yards of `Linux612` and `Packed` in turns.
    pub rules: Option<&'static Rules>,
    /// The maximum number of bytes of memory in the yards of a phase.
    pub size: u64,
    /// Threads that allocate.
    pub threads: usize,
    /// The start of all random choices. The interleaving of threads still differs from run to run.
    pub seed: u64,
    /// A mistake to plant.
    pub plant: Option<Plant>,
}

impl Plan {
    /// Runs for this many seconds on 1 GiB, with two threads per CPU, at least four.
    pub fn new(seconds: u64) -> Plan {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Plan {
            seconds,
            phases: u64::MAX,
            length: 100,
            only: None,
            rules: None,
            size: 1 << 30,
            threads: (2 * cpus).max(4),
            seed: 1,
            plant: None,
        }
    }
}

/// Why a soak could not run.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// A yard could not be created.
    #[error(transparent)]
    Build(#[from] pageyard_host::BuildError),
    /// A new yard has no free page.
    #[error("a new yard has no free page")]
    Empty,
    /// The number of threads is 0 or too large.
    #[error("threads: {0}; expected 1 to 1024")]
    Threads(usize),
    /// A thread could not be started.
    #[error("a thread: {0}")]
    Thread(#[from] std::io::Error),
}
