//! Observes the allocator during a run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use pageyard::{CpuId, Defences, DrainReason, Event, Order, Pfn, Platform, Reclaim, Relocation};

use super::blaming::Blaming;
use super::counts::Holds;
use super::course::Course;
use super::explain::Notes;
use super::setting::Setting;
use super::timeline::{Moves, Timeline};

/// Counts what the allocator reports.
pub(super) struct Observer {
    pub(super) cpu: Cell<u32>,
    pub(super) holds: RefCell<Holds>,
    /// Pages added to the lists minus pages removed, since the last read.
    pub(super) cached: Cell<i64>,
    pub(super) tick_pages: Cell<u64>,
    /// Current time of the trace.
    pub(super) now: Cell<u64>,
    pub(super) notes: Option<Notes>,
    pub(super) course: Course,
    pub(super) blame: Option<Blaming>,
    pub(super) timeline: RefCell<Option<Timeline>>,
    /// While a compaction runs: the blocks that it moved, where each is now and where it was before.
    moves: RefCell<Option<HashMap<Pfn, Pfn>>>,
}

impl Observer {
    pub(super) fn new(setting: &Setting<'_>, timeline: Option<Timeline>) -> Observer {
        Observer {
            timeline: RefCell::new(timeline),
            moves: RefCell::new(None),
            cpu: Cell::new(0),
            holds: RefCell::new(Holds::new(setting.machine.cpus.len())),
            cached: Cell::new(0),
            tick_pages: Cell::new(0),
            now: Cell::new(setting.first_ns),
            notes: setting.explain.then(|| Notes::new(setting.machine)),
            course: Course::new(),
            blame: setting
                .blame
                .map(|names| Blaming::new(setting.machine, setting.start, names, setting.first_ns)),
        }
    }
}

impl Observer {
    /// Notes that a CPU is about to do something else than to refill or drain its lists.
    #[inline(always)]
    pub(super) fn other(&self, cpu: usize) {
        self.holds.borrow_mut().other(cpu);
        if let Some(timeline) = &mut *self.timeline.borrow_mut() {
            timeline.other(cpu);
        }
    }

    /// Lets `work` move blocks. Returns its result, and by its old place the new one of each block that
    /// was moved.
    pub(super) fn compacts<T>(&self, work: impl FnOnce() -> T) -> (T, HashMap<Pfn, Pfn>) {
        self.moves.replace(Some(HashMap::new()));
        let result = work();
        let moves = self.moves.take().unwrap_or_default();
        (result, moves.into_iter().map(|(now, before)| (before, now)).collect())
    }
}

impl Platform for Observer {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}

impl Reclaim for Observer {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let Some(moves) = &mut *self.moves.borrow_mut() else { return Relocation::Refused };
        let before = moves.remove(&from).unwrap_or(from);
        moves.insert(to, before);
        self.course.usage(from, order.pages(), -1);
        self.course.usage(to, order.pages(), 1);
        if let Some(blame) = &self.blame {
            blame.moved(from, to, order);
        }
        Relocation::Moved
    }
}

impl pageyard::Observer for Observer {
    const SEES_TUNING: bool = true;

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        if let Some(blame) = &self.blame {
            blame.event(cpu, &event);
        }
        if let Some(timeline) = &mut *self.timeline.borrow_mut() {
            drawn(timeline, self.now.get(), cpu, &event);
        }
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
            _ => {
                if let Some(notes) = &self.notes {
                    notes.note(self.now.get(), cpu, &event);
                }
            }
        }
    }
}

impl Defences for Observer {}

/// Draws an event of the allocator.
fn drawn(timeline: &mut Timeline, now: u64, cpu: CpuId, event: &Event) {
    let at = cpu.0 as usize;
    match *event {
        Event::Refill { order, blocks, .. } if blocks > 0 => {
            timeline.moved(at, Moves::Refill, now, u64::from(blocks) << order.get());
        }
        Event::BulkFree { pages, .. } => timeline.moved(at, Moves::Drain, now, pages.into()),
        Event::Fallback { pfn, order, migrate_type, claimed, .. } => {
            let name = if claimed { "claim" } else { "steal" };
            timeline.instant_of(name, now, at, Some(pfn.0), order.get(), migrate_type as u8);
        }
        _ => {}
    }
}
