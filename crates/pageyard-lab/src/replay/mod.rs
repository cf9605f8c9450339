//! Replays of kernel traces: what other policies would have done with the same work.
//!
//! A trace is read in passes. `scan` learns what later events reveal about earlier ones. `mirror`
//! follows every page through the recorded per-CPU lists and writes a `plan` of the operations that
//! the allocator was asked to do. Two passes run only where they are needed: a survey before the
//! scan finds the machine's size if no state file tells it, and a second pass of the mirror follows
//! the recording from the start that the first one found. `run` performs the plan on the real
//! allocator under each policy. Kernel and policies are counted by the same rules, so the policy
//! that models the recording kernel shows how accurate the replay is. `docs/replay.md` explains the
//! details.

mod bits;
mod blame;
mod blaming;
mod compaction;
mod counts;
mod course;
mod deferral;
mod driver;
mod error;
mod explain;
mod figures;
mod follow;
mod follower;
mod free_blocks;
mod freeing;
mod held;
mod input;
mod kernel;
mod lists;
mod machine;
mod magazines;
mod map;
mod migrations;
mod mirror;
mod names;
mod observer;
mod on_machine;
mod options;
mod owners;
mod packets;
mod pages;
mod plan;
mod prepared;
mod reclaim;
mod recorded;
mod requests;
mod restore;
mod room;
mod run;
mod scan;
mod serving;
mod setting;
mod silent;
mod sketch;
mod start;
mod table;
mod tick;
mod timeline;
mod vitals;
mod waiting;
mod why;

use std::fs::File;
use std::io::Seek;
use std::sync::Mutex;

use serde::Serialize;

use crate::track::{Bounds, Track, keep_common};
use options::Keep;
use prepared::Prepared;
use setting::{Outcome, Setting};

pub use crate::policies::{
    Choice, DEFAULT_POLICIES, PolicyError, by_name, by_names, columns, policies,
};
pub use crate::settings::{SettingError, Settings};
pub use blame::{Blame, BlameSide};
pub use counts::Moved;
pub use error::ReplayError;
pub use explain::{Change, Explained, ExplainedVerdict};
pub use figures::{Figures, Matching, Price, Range, Spread};
pub use held::Holder;
pub use input::{Input, Reading};
pub use kernel::{Kernel, KernelSource};
pub use machine::{DEFAULT_CACHE_SLICE, Machine, MachineOptions, MachineZone};
pub use migrations::MigrationSource;
pub use mirror::Understanding;
pub use options::{Options, Stage};
pub use owners::{Owners, owners};
pub use reclaim::{ReclaimFigures, ReclaimSource};
pub use recorded::{Absent, RecordedFigures};
pub use start::StartFigures;
pub(crate) use table::TableRow;
pub use tick::{DEFAULT_PHASE, DELAY, PhaseSource, SPREAD, TickPhase};
pub use why::why;

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
    pub recorded: RecordedFigures,
    /// What the recording shows over the trace's time, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_track: Option<Track>,
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
    run_policies(input, options, None, progress)
}

/// Reads a trace as [`replay`] does, and runs nothing. A trace that passes does not fail a replay
/// with the same options, unless a policy does.
///
/// # Errors
/// Fails with [`ReplayError`] if the trace cannot be read or is damaged, or if it does not describe
/// a machine.
pub fn check(input: Input, options: &Options) -> Result<(), ReplayError> {
    Prepared::new(input, options, Keep::default(), &mut |_, _, _| {}).map(drop)
}

/// Replays a trace as [`replay`] does, and writes the course of the recording and of each policy
/// under the requested seed to `out`: a trace for Perfetto, with one process each.
///
/// # Errors
/// Fails as [`replay`] does, or if `out` cannot be written.
pub fn timeline(
    input: Input,
    options: &Options,
    out: &mut dyn std::io::Write,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Report, ReplayError> {
    run_policies(input, options, Some(out), progress)
}

fn run_policies(
    input: Input,
    options: &Options,
    out: Option<&mut dyn std::io::Write>,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Report, ReplayError> {
    let keep = Keep { timeline: out.is_some(), ..Keep::default() };
    let mut ready = Prepared::new(input, options, keep, progress)?;
    let with_recording = with_recording(options, &ready.machine.kernel)?;
    let options = with_recording.as_ref().unwrap_or(options);
    let explain = options.explain && options.on.is_none();
    let setting = Setting { record: options.record, explain, ..ready.setting(&options.stop) };
    let (mut policies, files) = run_all(&setting, options, ready.room.runs(), keep, progress)?;
    let mut drawn = ready.followed.take().and_then(|f| f.sketch);
    let mut recorded_track = drawn.as_mut().and_then(|d| d.track.take());
    let tracks = policies.iter_mut().filter_map(|c| c.track.as_mut());
    keep_common(
        &mut tracks.chain(&mut recorded_track).collect::<Vec<_>>(),
        Bounds::shared_by(1).lists(),
    );
    if let Some(out) = out {
        let recorded = drawn.and_then(|d| d.timeline);
        for mut file in recorded.into_iter().chain(files) {
            file.rewind().map_err(ReplayError::Temporary)?;
            std::io::copy(&mut file, out).map_err(ReplayError::Output)?;
        }
    }
    Ok(Report {
        recorded_track,
        reading: ready.reading,
        start: ready.start.figures,
        understanding: ready.understanding,
        tick_phase: ready.phase,
        reclaim: ready.reclaim,
        seed: options.seed,
        seeds: options.seeds.max(1),
        recorded: ready.recorded,
        policies,
        machine: ready.machine,
        on: options.on.as_ref().map(|spec| spec.name().to_owned()),
    })
}

/// Returns the options with a column for the recording kernel's policy, if it is wanted and missing.
/// It gets the settings of the first column, which those of `--knob` are.
fn with_recording(options: &Options, kernel: &Kernel) -> Result<Option<Options>, ReplayError> {
    let missing = !options.policies.iter().any(|c| c.policy() == kernel.policy);
    let Some(first) = options.policies.first().filter(|_| options.add_recording && missing) else {
        return Ok(None);
    };
    let column = by_name(kernel.policy)?.with(&first.settings);
    let mut options = options.clone();
    options.policies.push(column);
    Ok(Some(options))
}

/// Runs all policies and seeds in parallel. The default number of threads is one per CPU, at most 8
/// and at most `room`.
fn run_all(
    setting: &Setting<'_>,
    options: &Options,
    room: usize,
    keep: Keep,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<(Vec<Column>, Vec<File>), ReplayError> {
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
            // The recording is the first process.
            let process = (keep.timeline && seed == 0).then_some(policy as u32 + 1);
            let (record, explain) = (setting.record && seed == 0, setting.explain && seed == 0);
            let setting = Setting { record, explain, process, ..*setting };
            let number_of = options.seed.wrapping_add(seed);
            let result = match &options.on {
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
    let mut files = Vec::new();
    let mut found: Vec<Found> = options.policies.iter().map(|_| Found::default()).collect();
    for ((policy, seed), result) in jobs.into_iter().zip(results) {
        let outcome = result.expect("every job was run")?;
        let found = &mut found[policy];
        found.runs.push(outcome.figures);
        if seed == 0 {
            found.explained = outcome.explained;
            found.track = outcome.track;
            found.price = outcome.price;
            files.extend(outcome.timeline);
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
    Ok((options.policies.iter().zip(found).map(column).collect(), files))
}

/// Results of the runs of one policy: figures of all seeds, everything else of the first seed.
#[derive(Default)]
struct Found {
    runs: Vec<Figures>,
    explained: Option<Vec<Explained>>,
    track: Option<Track>,
    price: Option<Price>,
}
