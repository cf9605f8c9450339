//! Random work on yards of real memory, with the owner of every page on record.
//!
//! A soak consists of phases of about a second. Each makes yards of its own, whose sizes, thread
//! caches and workers are drawn from the seed and the phase's number, and threads that come and go.
//! They request and return memory by every public way while settings, limits and memory change
//! ([the table](https://docs.rs/pageyard-soak) of ways is `src/ways.rs`). Each page that is handed
//! out is entered in a shadow map by one atomic exchange, which finds a page that has an owner
//! already, and leaves it by another one when it is returned. In half of the phases, pages also bear
//! patterns, and memory that was requested as zero is checked. At the end of a phase everything is
//! returned, and each yard must be exactly empty.
//!
//! ```
//! use std::ops::ControlFlow;
//! use pageyard_soak::{Plan, soak};
//!
//! let plan = Plan { size: 64 << 20, phases: 2, ..Plan::new(60) };
//! let report = soak(&plan, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!((report.phases, report.found), (2, None));
//! # Ok::<(), pageyard_soak::SoakError>(())
//! ```

mod callbacks;
mod counts;
mod found;
mod hand;
mod held;
mod house;
mod owner;
mod owners;
mod phase;
mod pool;
mod raw;
mod run;
mod settings;
mod tally;
mod ways;
mod work;
mod world;

pub use counts::{Counts, Finding, Report};
pub use found::Found;
pub use owner::Owner;
pub use phase::Phase;
pub use run::soak;

/// A mistake that is made on purpose, once, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A block is handed out a second time.
    Twice,
    /// A block is forgotten: it has no owner, and is not free.
    Lose,
    /// A page that was requested as zero is not.
    Dirt,
    /// A block is given back by a thread that does not own it.
    WrongOwner,
    /// A byte of a block is overwritten.
    Scribble,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seconds until the last phase is cut short.
    pub seconds: u64,
    /// Phases at most.
    pub phases: u64,
    /// The number of the one phase to repeat, instead of counting from 1.
    pub only: Option<u64>,
    /// Bytes of memory in the yards of a phase at most.
    pub size: u64,
    /// Threads that allocate.
    pub threads: usize,
    /// Where random choices start. How the threads interleave differs from run to run.
    pub seed: u64,
    /// A mistake to make.
    pub plant: Option<Plant>,
}

impl Plan {
    /// This many seconds on 1 GiB, with two threads for each CPU but at least four.
    pub fn new(seconds: u64) -> Plan {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Plan {
            seconds,
            phases: u64::MAX,
            only: None,
            size: 1 << 30,
            threads: (2 * cpus).max(4),
            seed: 1,
            plant: None,
        }
    }
}

/// Why a soak did not run.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// A yard cannot be made.
    #[error(transparent)]
    Build(#[from] pageyard_host::BuildError),
    /// A new yard has no free page.
    #[error("a new yard has no free page")]
    Empty,
    /// No thread is to allocate, or too many are.
    #[error("threads: {0}; give 1 to 1024")]
    Threads(usize),
    /// A thread could not be started.
    #[error("a thread: {0}")]
    Thread(#[from] std::io::Error),
}
