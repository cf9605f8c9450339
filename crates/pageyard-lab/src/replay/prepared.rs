//! A trace that was read and is ready to be run under policies.

use std::sync::Arc;

use pageyard::{Order, unusable_index};
use pageyard_machine::Stop;
use pageyard_trace::state::StateDir;

use super::error::ReplayError;
use super::figures::Figures;
use super::follower::{Followed, Follower};
use super::input::{Input, Reading, Recording};
use super::machine::Machine;
use super::mirror::{Mirror, Understanding};
use super::names::Names;
use super::options::{Keep, Options, Stage};
use super::plan::{Plan, PlanWriter};
use super::reclaim::ReclaimFigures;
use super::recorded::{Absent, RecordedFigures};
use super::requests::Requests;
use super::room::Room;
use super::scan::{Scan, Survey};
use super::setting::Setting;
use super::start::Start;
use super::tick::PhaseSource;
use super::timeline::Timeline;

/// A trace that was read and is ready to be run under policies.
pub(super) struct Prepared {
    pub(super) reading: Reading,
    pub(super) machine: Machine,
    pub(super) start: Start,
    pub(super) plan: Plan,
    pub(super) phase: PhaseSource,
    pub(super) reclaim: ReclaimFigures,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) snapshot_ns: u64,
    pub(super) recorded: RecordedFigures,
    pub(super) understanding: Understanding,
    pub(super) requests: Option<Requests>,
    /// The names of all tasks, and what was found in the recording itself, if that was followed.
    pub(super) names: Option<Arc<Names>>,
    pub(super) followed: Option<Followed>,
    pub(super) room: Room,
}

/// The events by which a recorded request counts as slow.
const EFFORTS: [&str; 3] = [
    "mm_vmscan_direct_reclaim_begin",
    "mm_vmscan_direct_reclaim_end",
    "mm_compaction_try_to_compact_pages",
];

impl Prepared {
    /// Reads the trace, and keeps of its requests what is asked for.
    pub(super) fn new(
        input: Input,
        options: &Options,
        keep: Keep,
        progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
    ) -> Result<Prepared, ReplayError> {
        let state = options.state.as_deref();
        let mut recording = Recording::open(input, state, options, progress)?;
        let state = std::mem::take(&mut recording.state);
        let (machine, room) = machine_and_room(&mut recording, &state, options, keep, progress)?;
        let mut scan = Scan::new(&machine, state.pfnmap_before.as_ref());
        recording.pass(Stage::Scan, progress, &mut scan)?;
        scan.close();
        let phase = PhaseSource::new(options.tick_phase, &scan.ticks);

        let frame_map = state.pfnmap_before.as_ref();
        let follow = keep.origins || keep.timeline || options.record;
        let plan = PlanWriter::new(keep.origins)?;
        let mut mirror = Mirror::new(&machine, &scan, plan, frame_map.is_some());
        mirror.requests = keep.requests.then(|| Requests::new(machine.frames()));
        mirror.names = follow.then(Names::default);
        recording.pass(Stage::Mirror, progress, &mut mirror)?;
        mirror.finish();
        let start = Start::new(&machine, &mirror, frame_map);
        let enabled = recording.enabled_events.as_ref().or(state.enabled_events.as_ref());
        let enabled = enabled.map(Vec::as_slice);
        // Where none of them happened, no request was slow.
        let efforts_enabled =
            enabled.is_some_and(|all| EFFORTS.iter().all(|e| all.iter().any(|known| known == e)));
        // The mirror counts from the pages that were on the lists at the start.
        let (idle_peak, idle_mean) = mirror.idle.figures(start.figures.cached as i64);
        let figures = Figures {
            moved: mirror.holds.moved,
            idle_peak,
            idle_mean,
            unusable_9: recorded_unusable(&state),
            ..mirror.recorded
        };
        let recorded = RecordedFigures::new(figures, Absent::new(&recording.kinds, enabled));
        let understanding = Understanding {
            live_before: mirror.understanding.live_before - start.figures.arrived,
            migrations: scan.migrations.source(),
            ..mirror.understanding
        };
        let requests = mirror.requests.take();
        // Free the mirror's tables and the frame map.
        let names = mirror.names.take().map(Arc::new);
        let plan = mirror.into_plan()?;
        let first_ns = scan.first_ns.unwrap_or(0);
        // The recording is followed in a pass of its own: only now is its start known.
        let mut followed = None;
        if let Some(names) = &names {
            let end_ns = scan.last_ns;
            let timeline =
                keep.timeline.then(|| Timeline::new(&machine, 0, "recorded", (first_ns, end_ns)));
            let timeline = timeline.transpose().map_err(ReplayError::Temporary)?;
            let mut follower = Follower::new(&machine, &start, names, first_ns, keep.origins);
            follower.began_as(&scan.found_types);
            if options.record || timeline.is_some() {
                follower.sketch(&start, first_ns, options.record, timeline);
            }
            let plan = PlanWriter::discarded();
            let mut mirror = Mirror::new(&machine, &scan, plan, frame_map.is_some());
            mirror.follower = Some(&mut follower);
            recording.pass(Stage::Mirror, progress, &mut mirror)?;
            let mut found = follower.finish(end_ns).map_err(ReplayError::Temporary)?;
            found.has_efforts |= efforts_enabled;
            followed = Some(found);
        }
        Ok(Prepared {
            reading: recording.reading,
            start,
            plan,
            phase,
            reclaim: scan.reclaimed,
            first_ns,
            last_ns: scan.last_ns,
            snapshot_ns: scan.snapshot_ns,
            recorded,
            understanding,
            requests,
            names,
            followed,
            machine,
            room,
        })
    }

    pub(super) fn setting<'s>(&'s self, stop: &'s Stop) -> Setting<'s> {
        Setting {
            machine: &self.machine,
            start: &self.start,
            plan: &self.plan,
            phase: &self.phase,
            first_ns: self.first_ns,
            snapshot_ns: self.snapshot_ns,
            requests: self.requests.as_ref(),
            last_ns: self.last_ns,
            blame: None,
            process: None,
            stop,
            record: false,
            explain: false,
        }
    }
}

/// Describes the machine that the trace is of, reading the trace for what the state files don't tell,
/// and checks that there is room to replay it.
fn machine_and_room(
    recording: &mut Recording,
    state: &StateDir,
    options: &Options,
    keep: Keep,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<(Machine, Room), ReplayError> {
    let declared = recording.declared_cpus.map_or(0, u32::from);
    let release = recording.kernel_release.take();
    let mut seen = None;
    let mut survey = || -> Result<Survey, ReplayError> {
        if let Some(survey) = seen {
            return Ok(survey);
        }
        let mut survey = Survey::default();
        recording.pass(Stage::Scan, progress, &mut survey)?;
        seen = Some(survey);
        Ok(survey)
    };
    let machine = Machine::new(state, &options.machine, release.as_deref(), || {
        let survey = survey()?;
        Ok((survey.highest, survey.cpus.max(declared)))
    })?;
    if let Some(map) = &state.pfnmap_before {
        machine.check_map(map)?;
    }
    let mut room = Room::new(&machine, options, keep)?;
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
    Ok((machine, room))
}

/// Returns the unusable index of the free blocks of all zones just before recording ended.
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
