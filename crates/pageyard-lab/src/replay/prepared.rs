//! A trace that was read and is ready to be run under policies.

use pageyard::{Order, unusable_index};
use pageyard_machine::Stop;

use super::error::ReplayError;
use super::figures::Figures;
use super::input::{Input, Reading, Recording};
use super::machine::Machine;
use super::mirror::{Mirror, Understanding};
use super::options::{Options, Stage};
use super::plan::{Plan, PlanWriter};
use super::reclaim::ReclaimFigures;
use super::requests::Requests;
use super::room::Room;
use super::scan::{Scan, Survey};
use super::setting::Setting;
use super::start::Start;
use super::tick::PhaseSource;

/// A trace that was read and is ready to be run under policies.
pub(super) struct Prepared {
    pub(super) reading: Reading,
    pub(super) machine: Machine,
    pub(super) start: Start,
    pub(super) plan: Plan,
    pub(super) phase: PhaseSource,
    pub(super) reclaim: ReclaimFigures,
    pub(super) first_ns: u64,
    pub(super) snapshot_ns: u64,
    pub(super) recorded: Figures,
    pub(super) understanding: Understanding,
    pub(super) requests: Option<Requests>,
    pub(super) room: Room,
}

impl Prepared {
    /// Reads the trace. If `requests`, also keeps the origin of each request.
    pub(super) fn new(
        input: Input,
        options: &Options,
        requests: bool,
        progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
    ) -> Result<Prepared, ReplayError> {
        let state = options.state.as_deref();
        let mut recording = Recording::open(input, state, options, progress)?;
        let state = std::mem::take(&mut recording.state);
        let declared = recording.declared_cpus.map_or(0, u32::from);
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
        let machine = Machine::new(&state, &options.machine, || {
            let survey = survey()?;
            Ok((survey.highest, survey.cpus.max(declared)))
        })?;
        let mut room = Room::new(&machine, options, requests)?;
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
        let mut scan = Scan::new(&machine);
        recording.pass(Stage::Scan, progress, &mut scan)?;
        scan.close();
        let phase = PhaseSource::new(options.tick_phase, &scan.ticks);

        let frame_map = state.pfnmap_before.as_ref();
        let plan = PlanWriter::new()?;
        let mut mirror = Mirror::new(&machine, &scan, plan, frame_map.is_some());
        mirror.requests = requests.then(|| Requests::new(machine.frames()));
        recording.pass(Stage::Mirror, progress, &mut mirror)?;
        mirror.finish();
        let start = Start::new(&machine, &mirror, frame_map);
        let idle = mirror.idle.figures(start.cached_pages() as i64);
        let mut recorded = Figures::recorded(&mirror.recorded, mirror.holds.moved, idle);
        recorded.unusable_9 = recorded_unusable(&state);
        let understanding = mirror.understanding;
        let requests = mirror.requests.take();
        // Free the mirror's tables and the frame map.
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

    pub(super) fn setting<'s>(&'s self, stop: &'s Stop) -> Setting<'s> {
        Setting {
            machine: &self.machine,
            start: &self.start,
            plan: &self.plan,
            phase: &self.phase,
            first_ns: self.first_ns,
            snapshot_ns: self.snapshot_ns,
            requests: self.requests.as_ref(),
            stop,
            record: false,
        }
    }
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
