//! Exploration of interleavings. The tasks and locks stay the same, but a schedule decides which
//! task continues at every operation on a lock, every event of the allocator and every
//! [`Task::sync`](crate::Task::sync).
//!
//! Random schedules come from a seed, and stall tasks that hold locks. Exhaustive exploration tries
//! every schedule with a bounded number of preemptions (a switch away from a task that could
//! continue). A failure (a panic, a deadlock) is reported with its schedule, which reproduces it.
//!
//! ```
//! use pageyard::CpuId;
//! use pageyard_machine::explore::Explorer;
//! use pageyard_machine::{MachineSpec, SimLock};
//!
//! let spec = MachineSpec::shipped("desktop")?;
//! let found = Explorer::exhaustive(2, 10_000).run(&spec, |machine| {
//!     let (a, b) = (lock_api::Mutex::<SimLock, ()>::new(()), lock_api::Mutex::new(()));
//!     let (a, b): (_, &lock_api::Mutex<SimLock, ()>) = (&a, &b);
//!     machine.run(|s| {
//!         s.spawn(CpuId(0), move |_| drop((a.lock(), b.lock())));
//!         s.spawn(CpuId(1), move |_| drop((b.lock(), a.lock())));
//!     })
//! });
//! assert!(found.unwrap_err().why.contains("deadlock"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::{Machine, Stuck};
use crate::options::Options;
use crate::schedule::Schedule;
use crate::spec::MachineSpec;

/// The schedules to try.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Which {
    Random { seed: u64, schedules: u64 },
    Exhaustive { preemptions: u32, most: u64 },
    One(String),
}

/// Runs a test under many schedules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explorer {
    which: Which,
    memory: u64,
}

/// The result of an exploration that found no failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explored {
    /// Number of schedules tried.
    pub schedules: u64,
    /// Whether these were all schedules within the bound.
    pub complete: bool,
}

/// A failure under a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What went wrong: the panic message, or what each task of a deadlock waits for.
    pub why: String,
    /// The seed of a random schedule: `Explorer::random(seed, 1)` reproduces the failure.
    pub seed: Option<u64>,
    /// The choices of the schedule: [`Explorer::replay`] reproduces the failure.
    pub schedule: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nrepeat with Explorer::replay({:?})", self.why, self.schedule)?;
        match self.seed {
            Some(seed) => write!(f, " or Explorer::random({seed:#x}, 1)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl Explorer {
    /// Tries `schedules` random schedules, starting at `seed`, with stalls inside critical
    /// sections.
    pub fn random(seed: u64, schedules: u64) -> Self {
        Explorer { which: Which::Random { seed, schedules }, memory: 16 << 20 }
    }

    /// Tries all schedules with at most `preemptions` preemptions, depth first; at most `most` of
    /// them.
    pub fn exhaustive(preemptions: u32, most: u64) -> Self {
        Explorer { which: Which::Exhaustive { preemptions, most }, memory: 16 << 20 }
    }

    /// Tries the schedule of a [`Failure`].
    pub fn replay(schedule: &str) -> Self {
        Explorer { which: Which::One(schedule.into()), memory: 16 << 20 }
    }

    /// Sets the machine's memory in bytes. The default is 16 MiB.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Runs `body` under each schedule, each time on a new machine. `body` must panic to report a
    /// failure.
    ///
    /// # Errors
    /// Returns the first failure.
    ///
    /// # Panics
    /// Panics if the schedule to replay is malformed.
    pub fn run(
        &self,
        spec: &MachineSpec,
        body: impl Fn(&Machine) -> Result<(), Stuck>,
    ) -> Result<Explored, Failure> {
        let options = || Options { memory: Some(self.memory), ..Options::default() };
        let once = |schedule: Schedule, seed: Option<u64>| {
            let machine = Machine::scheduled(spec, options(), schedule);
            let result = catch_unwind(AssertUnwindSafe(|| body(&machine)));
            let schedule = machine.take_schedule().expect("it was given one");
            let why = match result {
                Ok(Ok(())) => return Ok(schedule),
                Ok(Err(stuck)) => stuck.to_string(),
                Err(panic) => message(&*panic),
            };
            Err(Failure { why, seed, schedule: schedule.to_string() })
        };
        match &self.which {
            Which::Random { seed, schedules } => {
                for n in 0..*schedules {
                    let seed = seed.wrapping_add(n);
                    once(Schedule::random(seed), Some(seed))?;
                }
                Ok(Explored { schedules: *schedules, complete: false })
            }
            Which::Exhaustive { preemptions, most } => {
                let mut next = Some(Schedule::bounded(*preemptions));
                let mut schedules = 0;
                while let Some(schedule) = next.take_if(|_| schedules < *most) {
                    schedules += 1;
                    next = once(schedule, None)?.following();
                }
                Ok(Explored { schedules, complete: next.is_none() })
            }
            Which::One(text) => {
                let schedule = text.parse().expect("a schedule as a failure prints it");
                once(schedule, None)?;
                Ok(Explored { schedules: 1, complete: false })
            }
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => panic.downcast_ref::<&str>().unwrap_or(&"a panic without a message").to_string(),
    }
}
