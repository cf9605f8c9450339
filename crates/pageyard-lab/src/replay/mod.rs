//! Replays of kernel traces: what other policies would have done with the same work.
//!
//! A trace is read three times: `scan` learns what later events say about earlier ones,
//! `mirror` follows every page through the recorded per-CPU lists and writes a `plan` of what
//! was asked of the allocator, `run` puts that plan to the real allocator under each policy.
//! What the kernel itself recorded is counted by the same rules as what a policy does, so the
//! policy that stands for the recording kernel shows how true the replay is.
//! `docs/replay.md` explains all of it.

mod counts;
mod course;
mod driver;
mod error;
mod explain;
mod figures;
mod input;
mod lists;
mod machine;
mod map;
mod mirror;
mod on_machine;
mod owners;
mod plan;
mod policies;
mod reclaim;
mod restore;
mod room;
mod run;
mod scan;
mod settings;
mod start;
mod table;
mod tick;
mod waiting;

use std::path::PathBuf;
use std::sync::Mutex;

use pageyard::{Order, unusable_index};
use pageyard_machine::MachineSpec;
use serde::Serialize;

use crate::track::Track;

pub use counts::Moved;
pub use error::ReplayError;
pub use explain::{Change, Explained, Said};
pub use figures::{Figures, Matching, Range, Spread};
pub use input::{Input, Reading};
pub use machine::{DEFAULT_CACHE_SLICE, Kernel, Machine, MachineOptions, MachineZone};
pub use mirror::Understanding;
pub use on_machine::Price;
pub use owners::{Holder, Owners, owners};
pub use policies::{Choice, DEFAULT_POLICIES, by_name, by_names, on_hosts};
pub use reclaim::{ReclaimFigures, ReclaimSource};
pub use settings::{SettingError, Settings};
pub use start::StartFigures;
pub(crate) use table::TableRow;
pub use tick::{DEFAULT_PHASE, DELAY, PhaseSource, SPREAD, TickPhase};

/// What is being done, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading a text or a stream for the first time. Bytes.
    Import,
    /// The first pass. Bytes.
    Scan,
    /// The second pass. Bytes.
    Mirror,
    /// The policies. Operations, of all runs together.
    Replay,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Policies in the order of the table; the first is what others are compared with.
    pub policies: Vec<Choice>,
    /// What the trace does not record (the tick's moments) follows from this number.
    pub seed: u64,
    /// With so many seeds, from `seed` on, each policy that depends on ticks is replayed.
    pub seeds: u64,
    /// Where within the second ticks come.
    pub tick_phase: TickPhase,
    /// The machine, where the trace does not say.
    pub machine: MachineOptions,
    /// The folder with the state files; default: beside the trace or attached to it.
    pub state: Option<PathBuf>,
    /// Count what is wrong with the trace and go on.
    pub lenient: bool,
    /// Runs at once; 0: as many as the machine has CPUs.
    pub jobs: usize,
    /// Say of each CPU's lists how their tuning did.
    pub explain: bool,
    /// Record a [track](crate::track) of each policy under the seed asked for.
    pub record: bool,
    /// The simulated machine on which the seed asked for is replayed, with what that costs there;
    /// no track and no explanations then.
    pub on: Option<MachineSpec>,
}

/// One policy's column.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The policy.
    pub policy: String,
    /// Its figures under the seed asked for.
    pub figures: Figures,
    /// How much they vary with the seed; `None`: they do not, or it was not tried.
    pub spread: Option<Spread>,
    /// Whether ticks change what its lists hold.
    pub ticks_matter: bool,
    /// How the tuning of the lists did under the seed asked for, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Vec<Explained>>,
    /// What happened over the trace's time under the seed asked for, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<Track>,
    /// What it costs on the simulated machine, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// What a replay found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub reading: Reading,
    /// On which machine it was replayed.
    pub machine: Machine,
    /// The state from which every policy started.
    pub start: StartFigures,
    /// What the mirror of the recorded lists found.
    pub understanding: Understanding,
    /// Where the tick's phase comes from.
    pub tick_phase: PhaseSource,
    /// When background reclaim was at work.
    pub reclaim: ReclaimFigures,
    /// The seed.
    pub seed: u64,
    /// Seeds tried for the spread.
    pub seeds: u64,
    /// What the kernel recorded.
    pub recorded: Figures,
    /// What each policy did.
    pub policies: Vec<Column>,
    /// The simulated machine that priced it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// Replays a trace.
///
/// `progress` is told the stage, how far it is, and how far it goes.
///
/// # Errors
/// [`ReplayError`]: a trace or state file that cannot be read or is damaged, an unknown policy, a
/// machine that cannot be.
pub fn replay(
    input: Input,
    options: &Options,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Report, ReplayError> {
    let ready = Prepared::new(input, options, false, progress)?;
    let setting = run::Setting { record: options.record, ..ready.setting() };
    let policies = columns(&setting, options, ready.room.runs(), progress)?;
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

/// A trace that has been read, ready to be put to policies.
struct Prepared {
    reading: Reading,
    machine: Machine,
    start: start::Start,
    plan: plan::Plan,
    phase: PhaseSource,
    reclaim: ReclaimFigures,
    first_ns: u64,
    snapshot_ns: u64,
    recorded: Figures,
    understanding: Understanding,
    requests: Option<owners::Requests>,
    room: room::Room,
}

impl Prepared {
    /// Reads the trace; `requests`: and remembers who asked for what.
    fn new(
        input: Input,
        options: &Options,
        requests: bool,
        progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
    ) -> Result<Prepared, ReplayError> {
        let state = options.state.as_deref();
        let mut recording = input::Recording::open(input, state, options.lenient, progress)?;
        let state = std::mem::take(&mut recording.state);
        let declared = recording.declared_cpus.map_or(0, u32::from);
        let mut seen = None;
        let mut survey = || -> Result<scan::Survey, ReplayError> {
            if let Some(survey) = seen {
                return Ok(survey);
            }
            let mut survey = scan::Survey::default();
            recording.pass(Stage::Scan, progress, &mut survey)?;
            seen = Some(survey);
            Ok(survey)
        };
        let machine = Machine::new(&state, &options.machine, || {
            let survey = survey()?;
            Ok((survey.highest, survey.cpus.max(declared)))
        })?;
        let mut room = room::Room::new(&machine, options, requests)?;
        if room.is_large() {
            let span = machine.frames() as u64 * 4096;
            let said = options.machine.memory.is_some_and(|memory| memory >= span);
            let events = survey()?.events;
            if !room.allow(events, said) {
                return Err(ReplayError::TooLarge {
                    input: recording.name().to_owned(),
                    span,
                    highest: machine.base() + machine.frames() as u64 - 1,
                    needs: room.least(),
                    events,
                    allowed: room.allowed(),
                });
            }
        }
        let mut scan = scan::Scan::new(&machine);
        recording.pass(Stage::Scan, progress, &mut scan)?;
        scan.close();
        let phase = PhaseSource::new(options.tick_phase, &scan.ticks);

        let frame_map = state.pfnmap_before.as_ref();
        let plan = plan::PlanWriter::new()?;
        let mut mirror = mirror::Mirror::new(&machine, &scan, plan, frame_map.is_some());
        mirror.requests = requests.then(|| owners::Requests::new(machine.frames()));
        recording.pass(Stage::Mirror, progress, &mut mirror)?;
        mirror.finish();
        let start = start::Start::new(&machine, &mirror, frame_map);
        let idle = mirror.idle.figures(start.cached_pages() as i64);
        let mut recorded = Figures::recorded(&mirror.recorded, mirror.holds.moved, idle);
        recorded.unusable_9 = recorded_unusable(&state);
        let understanding = mirror.understanding;
        let requests = mirror.requests.take();
        // The tables of the mirror and the map of frames are done with.
        let plan = mirror.into_plan()?;
        Ok(Prepared {
            reading: recording.reading,
            start,
            plan,
            phase,
            reclaim: scan.reclaimed,
            first_ns: scan.first_ns.unwrap_or(0),
            snapshot_ns: scan.snapshot_ns,
            recorded,
            understanding,
            requests,
            machine,
            room,
        })
    }

    fn setting(&self) -> run::Setting<'_> {
        run::Setting {
            machine: &self.machine,
            start: &self.start,
            plan: &self.plan,
            phase: &self.phase,
            first_ns: self.first_ns,
            snapshot_ns: self.snapshot_ns,
            requests: self.requests.as_ref(),
            record: false,
        }
    }
}

/// Runs all policies and seeds, several at once, by default as many as there is room for.
fn columns(
    setting: &run::Setting<'_>,
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
    let results: Mutex<Vec<Option<Result<run::Outcome, ReplayError>>>> =
        Mutex::new(jobs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let next = queue.lock().map_or(None, |mut q| q.next());
            let Some((number, (policy, seed))) = next else { break };
            let mut told = 0;
            let mut tell = |at: u64| {
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
            let setting = run::Setting { record: setting.record && seed == 0, ..*setting };
            let number_of = options.seed.wrapping_add(seed);
            let result = match &options.on {
                Some(spec) if seed == 0 => {
                    on_machine::run(&setting, choice, spec, number_of, &mut tell)
                }
                _ => run::run(&setting, choice, number_of, &mut tell),
            };
            if let Ok(mut results) = results.lock() {
                results[number] = Some(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            // Where there is no room for another thread, this one does its work.
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

/// What the runs of one policy found: figures of all seeds, the rest of the first.
#[derive(Default)]
struct Found {
    runs: Vec<Figures>,
    explained: Option<Vec<Explained>>,
    track: Option<Track>,
    price: Option<Price>,
}

/// The index from the free blocks of all zones just before recording ended.
fn recorded_unusable(state: &pageyard_trace::state::StateDir) -> Option<u32> {
    let info = [&state.traced_end, &state.after].into_iter().find_map(|s| s.buddyinfo.as_ref())?;
    let mut blocks = [0; 11];
    for row in &info.rows {
        for (sum, n) in blocks.iter_mut().zip(&row.free) {
            *sum += n;
        }
    }
    Some(unusable_index(&blocks, Order::HUGE))
}
