//! Workloads: models of the allocator's users, each in one small file, written once against
//! [`Actor`] and run under any policy.
//!
//! A recipe's numbers are next to what they govern, each with its source: *measured* in a
//! recording, *derived* from something measured or published, *stated* where the workload was
//! published, or *assumed*. What is derived from a published experiment is an
//! [anchor](crate::reproduce::Anchor) there and does not count as agreement.

mod actor;
mod age;
mod costs;
mod error;
mod host;
mod metrics;
mod params;
mod process;
mod recipe;
mod seats;
mod series;
mod sim;
mod warm;
mod watch;

mod batch;
mod deferred;
mod fault;
mod hackbench;
mod kbuild;
mod llfree;
mod memcached;
mod micro;
mod sctp;
mod slab;
mod socket;
mod stream;
mod sysbench;
mod tbench;
mod thp;
mod trace;
mod trunc;
mod unix;

use pageyard::tuning::Limits;
use pageyard_machine::{Costs, MachineSpec, Stop};

use crate::policies::Choice;
use crate::result::{RunResult, World};

use series::{Done, Series, Turn};
use watch::Recording;

pub use actor::{Actor, BarrierId, Block, Job, Measure, Parcel, PipeId, Plan, Stage, ZoneView};
pub use age::MOST_AGED;
pub use error::WorkloadError;
pub use host::{Host, HostOptions, on_hosts};
pub use params::{Param, Params};
pub use recipe::{Point, Recipe, Score, Site};
pub(crate) use warm::STATIONARY;

/// All workloads.
pub const RECIPES: &[Recipe] = &[
    micro::RECIPE,
    trunc::RECIPE,
    fault::RECIPE,
    batch::RECIPE,
    kbuild::RECIPE,
    sctp::RECIPE,
    unix::RECIPE,
    memcached::RECIPE,
    hackbench::RECIPE,
    tbench::RECIPE,
    stream::RECIPE,
    sysbench::RECIPE,
    llfree::BULK,
    llfree::REPEAT,
    llfree::RAND,
    llfree::FRAG,
    deferred::RECIPE,
    thp::RECIPE,
    trace::RECIPE,
];

/// Returns the workload of this name.
///
/// # Errors
/// Returns [`WorkloadError::UnknownWorkload`], which lists the known names.
pub fn by_name(name: &str) -> Result<Recipe, WorkloadError> {
    RECIPES.iter().find(|r| r.name == name).copied().ok_or_else(|| WorkloadError::UnknownWorkload {
        name: name.to_owned(),
        known: RECIPES.iter().map(|r| r.name).collect::<Vec<_>>().join(", "),
    })
}

/// Minimum memory of a simulated machine's node: one block of the largest order.
const LEAST_OF_NODE: u64 = pageyard::PAGE_SIZE << pageyard::MAX_ORDER;
/// Maximum memory of a simulated machine. The maps of so much take more than 128 GiB of this host's.
const MOST_MEMORY: u64 = 64 << 40;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub machine: MachineSpec,
    /// Bytes of memory, if different from the machine's own.
    pub memory: Option<u64>,
    /// Bytes of a frame descriptor: 16, or 64 as in Linux ([`pageyard_machine::Options`]).
    pub descriptor: u32,
    /// Share of each node's memory that has been in use before, in percent, at most
    /// [`MOST_AGED`]; 0 is a fresh heap. Half of it stays allocated; free pages are scattered.
    pub age: u8,
    /// The policies to run.
    pub policies: Vec<Choice>,
    /// Seeds all random draws; each iteration derives its own seed from it.
    pub seed: u64,
    /// Number of iterations.
    pub iterations: u32,
    /// Parameters that differ from their defaults.
    pub set: Vec<(String, String)>,
    /// The machine's cost model.
    pub costs: Costs,
    /// Limits of all per-CPU lists, if different from those derived from the zones' sizes.
    pub limits: Option<Limits>,
    /// Maximum number of runs at once, each of which takes [`run_memory`]. 0 is one per CPU, at most
    /// as many as fit in the available memory. The results do not depend on it.
    pub jobs: usize,
    /// Ends the work early, with [`WorkloadError::Stopped`].
    pub stop: Stop,
}

/// Estimates how much of this host's memory a run on a simulated machine takes, in bytes: maps and
/// caches for each frame of the machine's `memory` bytes.
///
/// ```
/// assert_eq!(pageyard_lab::workload::run_memory(256 << 30), (3 << 30) + (64 << 20));
/// ```
pub fn run_memory(memory: u64) -> u64 {
    const PER_FRAME: u64 = 48;
    const REST: u64 = 64 << 20;
    memory / pageyard::PAGE_SIZE * PER_FRAME + REST
}

/// Returns the memory that runs may use, in bytes: three quarters of what this machine has available,
/// within the limits of the control groups of the process.
pub fn available_memory() -> u64 {
    pageyard_host::topology::available_memory().map_or(2 << 30, |bytes| bytes / 4 * 3)
}

/// Returns how many runs of a machine with `memory` bytes this host can do at once: one per CPU, if they
/// fit in the [available memory](available_memory).
fn fitting(memory: u64) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    cpus.min((available_memory() / run_memory(memory)) as usize).max(1)
}

/// Runs a workload on the simulated machine under each policy, several [at once](Options::jobs).
/// [`Host::run`] runs it on this host. `progress` receives the number of completed runs and the
/// total.
///
/// # Errors
/// Returns [`WorkloadError`] if an option is invalid.
pub fn run(
    recipe: &Recipe,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<RunResult>, WorkloadError> {
    run_all(recipe, options, false, progress)
}

/// Like [`run`], but also records a [track](crate::track) of each point in the first iteration. The
/// measurements are the same: recording takes no virtual time.
///
/// # Errors
/// Fails like [`run`].
pub fn record(
    recipe: &Recipe,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<RunResult>, WorkloadError> {
    run_all(recipe, options, true, progress)
}

fn run_all(
    recipe: &Recipe,
    options: &Options,
    record: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<RunResult>, WorkloadError> {
    let bytes = options.memory.unwrap_or(options.machine.memory());
    if bytes > MOST_MEMORY {
        return Err(WorkloadError::MachineMemory { wanted: bytes, most: MOST_MEMORY });
    }
    let nodes = options.machine.nodes();
    let least = u64::from(nodes) * LEAST_OF_NODE;
    if bytes < least {
        return Err(WorkloadError::LittleMemory { wanted: bytes, least, nodes });
    }
    let site = Site::new(&options.machine, options.memory);
    let memory = options.memory.map(|bytes| options.machine.memory_of(bytes));
    let memory = memory.map(|bytes| ("machine.memory", bytes.to_string()));
    let linux = options.descriptor != 16;
    let descriptor = linux.then(|| ("machine.descriptor", options.descriptor.to_string()));
    let age = (options.age != 0).then(|| ("machine.age", format!("{}%", options.age)));
    let changed = options.costs.changed();
    let changed: Vec<_> = changed.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let costs = (!changed.is_empty()).then(|| ("machine.costs", changed.join(" ")));
    let series = Series {
        recipe,
        policies: &options.policies,
        seed: options.seed,
        iterations: options.iterations,
        set: &options.set,
        site: &site,
        world: World::Simulated(options.machine.name().to_owned()),
        of_world: memory.into_iter().chain(descriptor).chain(age).chain(costs).collect(),
    };
    let site = &site;
    let worker = || {
        let mut room = sim::Room::default();
        move |turn: Turn<'_>| {
            let recording = (record && turn.first).then(|| Recording::new(turn.points));
            let setting = sim::Setting {
                spec: &options.machine,
                memory: options.memory,
                descriptor: options.descriptor,
                site,
                age: options.age,
                seed: turn.seed,
                score: recipe.score,
                costs: &options.costs,
                limits: options.limits,
                stop: &options.stop,
                plan: turn.plan,
                recording: recording.as_ref(),
            };
            let (measures, lines) = sim::run(&setting, turn.policy, &mut room)?;
            Ok(Done { measures, lines, track: recording.and_then(|r| r.take()) })
        }
    };
    let jobs = if options.jobs == 0 { fitting(bytes) } else { options.jobs };
    series.run_on(jobs, progress, &worker)
}
