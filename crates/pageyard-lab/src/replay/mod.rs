//! Replays of kernel traces: what other policies would have done with the same work.
//!
//! A trace is read three times. `scan` learns what later events reveal about earlier ones. `mirror`
//! follows every page through the recorded per-CPU lists and writes a `plan` of the operations that
//! the allocator was asked to do. `run` performs that plan on the real allocator under each policy.
//! Kernel and policies are counted by the same rules, so the policy that models the recording
//! kernel shows how accurate the replay is. `docs/replay.md` explains the details.

mod counts;
mod course;
mod driver;
mod error;
mod explain;
mod figures;
mod held;
mod input;
mod lists;
mod machine;
mod map;
mod mirror;
mod observer;
mod on_machine;
mod options;
mod owners;
mod packed;
mod plan;
mod prepared;
mod reclaim;
mod requests;
mod restore;
mod room;
mod run;
mod scan;
mod setting;
mod start;
mod table;
mod tick;
mod waiting;

use std::sync::Mutex;

use serde::Serialize;

use crate::track::Track;
use prepared::Prepared;
use setting::{Outcome, Setting};

pub use crate::policies::{
    Choice, DEFAULT_POLICIES, Engine, PolicyError, by_name, by_names, columns,
};
pub use crate::settings::{SettingError, Settings};
pub use counts::Moved;
pub use error::ReplayError;
pub use explain::{Change, Explained, ExplainedVerdict};
pub use figures::{Figures, Matching, Price, Range, Spread};
pub use held::Holder;
pub use input::{Input, Reading};
pub use machine::{DEFAULT_CACHE_SLICE, Kernel, Machine, MachineOptions, MachineZone};
pub use mirror::Understanding;
pub use options::{Options, Stage};
pub use owners::{Owners, owners};
pub use reclaim::{ReclaimFigures, ReclaimSource};
pub use start::StartFigures;
pub(crate) use table::TableRow;
pub use tick::{DEFAULT_PHASE, DELAY, PhaseSource, SPREAD, TickPhase};

/// The results of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The policy.
    pub policy: String,
    /// Its figures under the requested seed.
    pub figures: Figures,
    /// Variation with the seed; `None` if the results do not vary or only one seed was run.
    pub spread: Option<Spread>,
    /// Whether ticks change the contents of its lists.
    pub ticks_matter: bool,
    /// How the tuning of the lists did under the requested seed, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Vec<Explained>>,
    /// The track over the trace's time under the requested seed, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<Track>,
    /// Its cost on the simulated machine, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// The results of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub reading: Reading,
    /// The machine on which the trace was replayed.
    pub machine: Machine,
    /// The state from which every policy started.
    pub start: StartFigures,
    /// What the mirror of the recorded lists found.
    pub understanding: Understanding,
    /// The source of the tick's phase.
    pub tick_phase: PhaseSource,
    /// When background reclaim was active.
    pub reclaim: ReclaimFigures,
    /// The seed.
    pub seed: u64,
    /// Number of seeds used for the spread.
    pub seeds: u64,
    /// What the kernel recorded.
    pub recorded: Figures,
    /// What each policy did.
    pub policies: Vec<Column>,
    /// The simulated machine that determined the cost, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// Replays a trace.
///
/// Calls `progress` with the stage, the current position and the end position.
///
/// # Errors
/// Fails with [`ReplayError`] if a trace or state file cannot be read or is damaged, if a policy is
/// unknown, or if the machine is inconsistent.
pub fn replay(
    input: Input,
    options: &Options,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Report, ReplayError> {
    options.policies.iter().try_for_each(|choice| check(choice, options))?;
    let ready = Prepared::new(input, options, false, progress)?;
    let setting = Setting { record: options.record, ..ready.setting(&options.stop) };
    let policies = run_all(&setting, options, ready.room.runs(), progress)?;
    Ok(Report {
        reading: ready.reading,
        start: ready.start.figures,
        understanding: ready.understanding,
        tick_phase: ready.phase,
        reclaim: ready.reclaim,
        seed: options.seed,
        seeds: options.seeds,
        recorded: ready.recorded,
        policies,
        machine: ready.machine,
        on: options.on.as_ref().map(|spec| spec.name().to_owned()),
    })
}

/// Fails if the packed engine is asked for what it cannot do yet.
fn check(choice: &Choice, options: &Options) -> Result<(), ReplayError> {
    let without = if choice.engine == Engine::Exact {
        None
    } else if options.on.is_some() {
        Some("on the simulated machine: leave out --on")
    } else if options.record {
        Some("for a report with pictures: leave out --html")
    } else if !choice.settings.to_string().is_empty() {
        Some("with settings: leave out --knob")
    } else {
        None
    };
    without.map_or(Ok(()), |why| {
        let why = format!("this engine does not run yet {why}, or this column");
        Err(PolicyError { name: choice.name.clone(), why }.into())
    })
}

/// Runs all policies and seeds in parallel. The default number of threads is one per CPU, at most 8
/// and at most `room`.
fn run_all(
    setting: &Setting<'_>,
    options: &Options,
    room: usize,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Vec<Column>, ReplayError> {
    let seeds = |c: &Choice| if c.ticks_matter() { options.seeds.max(1) } else { 1 };
    let jobs: Vec<(usize, u64)> = (0..options.policies.len())
        .flat_map(|p| (0..seeds(&options.policies[p])).map(move |s| (p, s)))
        .collect();
    let all = setting.plan.len * jobs.len() as u64;
    let threads = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(8).min(room),
        n => n,
    };
    let queue = Mutex::new(jobs.iter().copied().enumerate());
    let done = Mutex::new((0, progress));
    let results: Mutex<Vec<Option<Result<Outcome, ReplayError>>>> =
        Mutex::new(jobs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let next = queue.lock().map_or(None, |mut q| q.next());
            let Some((number, (policy, seed))) = next else { break };
            let mut told = 0;
            let mut advance = |at: u64| {
                if at >= told + (1 << 16)
                    && let Ok(mut d) = done.try_lock()
                {
                    d.0 += at - told;
                    told = at;
                    let so_far = d.0;
                    (d.1)(Stage::Replay, so_far, Some(all));
                }
            };
            let choice = &options.policies[policy];
            let setting = Setting { record: setting.record && seed == 0, ..*setting };
            let number_of = options.seed.wrapping_add(seed);
            let result = match &options.on {
                _ if choice.engine == Engine::Packed => {
                    packed::run(&setting, number_of, &mut advance)
                }
                Some(spec) if seed == 0 => {
                    on_machine::run(&setting, choice, spec, number_of, &mut advance)
                }
                _ => run::run(&setting, choice, number_of, &mut advance),
            };
            if let Ok(mut results) = results.lock() {
                results[number] = Some(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            // If no further thread can be started, this thread does its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let results = results.into_inner().unwrap_or_default();
    let mut found: Vec<Found> = options.policies.iter().map(|_| Found::default()).collect();
    for ((policy, seed), result) in jobs.into_iter().zip(results) {
        let outcome = result.expect("every job was run")?;
        let found = &mut found[policy];
        found.runs.push(outcome.figures);
        if seed == 0 {
            let explain = options.explain && options.on.is_none();
            found.explained = explain.then_some(outcome.explained);
            found.track = outcome.track;
            found.price = outcome.price;
        }
    }
    let column = |(choice, found): (&Choice, Found)| Column {
        policy: choice.name.clone(),
        figures: found.runs[0],
        spread: (found.runs.len() > 1).then(|| Spread::of(&found.runs)),
        ticks_matter: choice.ticks_matter(),
        explained: found.explained,
        track: found.track,
        price: found.price,
    };
    Ok(options.policies.iter().zip(found).map(column).collect())
}

/// Results of the runs of one policy: figures of all seeds, everything else of the first seed.
#[derive(Default)]
struct Found {
    runs: Vec<Figures>,
    explained: Option<Vec<Explained>>,
    track: Option<Track>,
    price: Option<Price>,
}
