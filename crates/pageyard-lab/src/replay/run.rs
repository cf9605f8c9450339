//! One policy, one seed: the plan on the real allocator.

use std::cell::{Cell, RefCell};

use pageyard::{CpuId, Defences, DrainReason, Event, Hooked, Platform, Reclaim, Yard};

use super::counts::Holds;
use super::course::Course;
use super::driver::Driver;
use super::error::ReplayError;
use super::explain::{Explained, Notes};
use super::figures::Figures;
use super::machine::Machine;
use super::on_machine::Price;
use super::owners::{Held, Requests, held};
use super::plan::Plan;
use super::policies::Choice;
use super::restore::{Parts, refused, restore};
use super::start::Start;
use super::tick::PhaseSource;
use crate::memory::{Lock, Memory};
use crate::track::Track;

/// What all runs share.
pub(super) struct Setting<'a> {
    pub(super) machine: &'a Machine,
    pub(super) start: &'a Start,
    pub(super) plan: &'a Plan,
    pub(super) phase: &'a PhaseSource,
    /// Time of the first record, and of the first snapshot.
    pub(super) first_ns: u64,
    pub(super) snapshot_ns: u64,
    /// Who asked for what, where that is wanted.
    pub(super) requests: Option<&'a Requests>,
    /// Whether tracks are recorded.
    pub(super) record: bool,
}

/// Counts what the allocator tells.
pub(super) struct Observer {
    pub(super) cpu: Cell<u32>,
    pub(super) holds: RefCell<Holds>,
    /// Pages that came to the lists less pages that the lists gave back, since last asked.
    pub(super) cached: Cell<i64>,
    pub(super) tick_pages: Cell<u64>,
    /// The trace's time.
    pub(super) now: Cell<u64>,
    notes: Notes,
    pub(super) course: Course,
}

impl Observer {
    pub(super) fn new(setting: &Setting<'_>) -> Observer {
        Observer {
            cpu: Cell::new(0),
            holds: RefCell::new(Holds::new(setting.machine.cpus.len())),
            cached: Cell::new(0),
            tick_pages: Cell::new(0),
            now: Cell::new(setting.first_ns),
            notes: Notes::new(setting.machine),
            course: Course::new(),
        }
    }
}

/// What a run found.
pub(super) struct Outcome {
    pub(super) figures: Figures,
    pub(super) explained: Vec<Explained>,
    pub(super) held: Option<Held>,
    pub(super) track: Option<Track>,
    /// What it cost, on a simulated machine.
    pub(super) price: Option<Price>,
}

impl Platform for Observer {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}

impl Reclaim for Observer {}

impl pageyard::Observer for Observer {
    const SEES_TUNING: bool = true;

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        match event {
            Event::Refill { order, blocks, .. } if blocks > 0 => {
                let pages = u64::from(blocks) << order.get();
                self.cached.set(self.cached.get() + pages as i64);
                self.holds.borrow_mut().refill(cpu.0 as usize, pages);
            }
            Event::BulkFree { reason, pages, .. } => {
                self.cached.set(self.cached.get() - i64::from(pages));
                self.holds.borrow_mut().drain(cpu.0 as usize, pages.into());
                if matches!(reason, DrainReason::Decay | DrainReason::Expire) {
                    self.tick_pages.set(self.tick_pages.get() + u64::from(pages));
                }
            }
            Event::Alloc { pfn: Some(pfn), order, .. } => self.course.usage(pfn, order.pages(), 1),
            Event::Free { pfn, order } => self.course.usage(pfn, order.pages(), -1),
            _ => self.notes.note(self.now.get(), cpu, &event),
        }
    }
}

impl Defences for Observer {}

/// Replays the plan under a policy.
pub(super) fn run(
    setting: &Setting<'_>,
    choice: &Choice,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let machine = setting.machine;
    let phases = setting.phase.of_cpus(machine.cpus.len(), seed);
    let observer = Observer::new(setting);
    let parts = Parts::of(machine);
    let layout = parts.layout();
    let memory = Memory::for_layout(&layout).map_err(refused)?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard: Yard<'_, Hooked<Lock, _, _>> = Yard::with_policy(&observer, &choice.rules);
    yard.init_blank(&layout, storage).map_err(refused)?;
    restore(&yard, setting, &phases)?;
    choice.settings.apply(&yard)?;
    let mut driver = Driver::new(setting, &yard, &observer, (), &phases, seed);
    let before = observer.notes.sample(&yard);
    if setting.record {
        observer.course.begin(setting.first_ns, &yard);
    }
    driver.drive(setting, progress)?;
    let held = setting.requests.map(|r| held(machine, &yard, &driver.map, r));
    let figures = driver.finish();
    let track = observer.course.end(observer.now.get(), &yard);
    let ns = observer.now.get().saturating_sub(setting.first_ns);
    Ok(Outcome {
        figures,
        explained: observer.notes.explain(&before, ns, &yard),
        held,
        track,
        price: None,
    })
}
