//! Follows one run, to blame what stood in the way of its requests.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use pageyard::{CpuId, Event, MigrateType, Order, Pfn};

use super::blame::{Asked, Collector, Effort};
use super::machine::Machine;
use super::names::Names;
use super::pages::{Page, Use};
use super::plan::{Op, OpKind, Origin};
use super::start::Start;

/// The pages of one run by their users, and its cases.
#[derive(Debug)]
pub(super) struct Blaming {
    collector: RefCell<Collector>,
    base: u64,
    /// The request that the driver performs.
    asked: Cell<Asked>,
    /// Whether the free that the driver performs bypasses the lists.
    direct: Cell<bool>,
    /// The cases of waiting requests, by recorded frame.
    waits: RefCell<HashMap<u32, usize>>,
}

impl Blaming {
    pub(super) fn new(machine: &Machine, start: &Start, names: &Arc<Names>, ns: u64) -> Blaming {
        let asked = Asked { t_ns: ns, cpu: 0, task: None, gfp: None, order: 0, wanted: 0 };
        Blaming {
            collector: RefCell::new(Collector::new(machine, start, names, ns, true)),
            base: machine.base(),
            asked: Cell::new(asked),
            direct: Cell::new(false),
            waits: RefCell::default(),
        }
    }

    fn frame(&self, pfn: Pfn) -> u32 {
        (pfn.0 - self.base) as u32
    }

    /// Sets the operation that the following events belong to, at `t_ns`.
    pub(super) fn asks(&self, op: &Op, t_ns: u64) {
        let shown = matches!(op.kind, OpKind::Alloc | OpKind::Captured | OpKind::Refused);
        self.asked.set(Asked {
            t_ns,
            cpu: op.cpu.into(),
            task: shown.then_some(op.origin.task),
            gfp: shown.then_some(op.origin.gfp),
            order: op.order,
            wanted: op.migratetype,
        });
    }

    /// Sets that the following events belong to a bulk request, which no event shows.
    pub(super) fn asks_in_bulk(&self, cpu: u32, t_ns: u64, wanted: u8) {
        self.asked.set(Asked { t_ns, cpu, task: None, gfp: None, order: 0, wanted });
    }

    /// Sets whether frees bypass the lists.
    pub(super) fn frees(&self, direct: bool) {
        self.direct.set(direct);
    }

    fn page(&self, used: Use) -> Page {
        let Asked { t_ns, task, gfp, .. } = self.asked.get();
        let origin = task.zip(gfp).map(|(task, gfp)| Origin { task, gfp });
        Page { since: t_ns, origin: origin.unwrap_or_default(), used }
    }

    /// Follows an event of the allocator.
    pub(super) fn event(&self, cpu: CpuId, event: &Event) {
        let mut c = self.collector.borrow_mut();
        match *event {
            Event::Alloc { pfn: Some(pfn), order, .. } => {
                let shown = self.asked.get().task.is_some();
                let used = if shown { Use::Requested } else { Use::Silent };
                c.pages.set(self.frame(pfn), order.get(), self.page(used));
            }
            Event::Free { pfn, order } => {
                let used = if self.direct.get() { Use::Free } else { Use::Listed };
                c.pages.set(self.frame(pfn), order.get(), self.page(used));
            }
            Event::ZoneLocked { pfn, order, .. } => {
                c.pages.set(self.frame(pfn), order.get(), self.page(Use::Listed));
            }
            Event::Drain { pfn, order, .. } => {
                c.pages.set(self.frame(pfn), order.get(), self.page(Use::Free));
            }
            Event::Fallback { pfn, order, found, migrate_type, from, claimed } => {
                let frame = self.frame(pfn);
                let (order, wanted) = (order.get(), migrate_type as u8);
                let asked = Asked { cpu: cpu.0, order, wanted, ..self.asked.get() };
                let Some(zone) = c.pages.zone_of(frame) else { return };
                let found = (found.get(), from as u8);
                c.fallback(asked, zone, frame, found, claimed);
                c.pages.set(frame, order, self.page(Use::Listed));
            }
            _ => {}
        }
    }

    /// Notes that a bulk request took a page.
    pub(super) fn taken_silently(&self, frame: u32) {
        let page = Page { origin: Origin::default(), ..self.page(Use::Silent) };
        self.collector.borrow_mut().pages.set(frame, 0, page);
    }

    /// Notes that a block was moved.
    pub(super) fn moved(&self, from: Pfn, to: Pfn, order: Order) {
        let pages = &mut self.collector.borrow_mut().pages;
        let page = pages.get(self.frame(from));
        pages.set(self.frame(to), order.get(), page);
        pages.set(self.frame(from), order.get(), self.page(Use::Free));
    }

    /// Notes that the request failed.
    pub(super) fn failed(&self, zone: usize) {
        self.collector.borrow_mut().failed(self.asked.get(), zone, Effort::default());
    }

    /// Notes that the request, for a recorded block, waits.
    pub(super) fn waits(&self, zone: usize, recorded: u32) {
        if let Some(case) = self.collector.borrow_mut().waits(self.asked.get(), zone) {
            self.waits.borrow_mut().insert(recorded, case);
        }
    }

    /// Notes that a waiting request was served with this block.
    pub(super) fn served(&self, recorded: u32, t_ns: u64, frame: u32) {
        if let Some(case) = self.waits.borrow_mut().remove(&recorded) {
            self.collector.borrow_mut().served(case, t_ns, frame);
        }
    }

    /// Notes that a waiting request was given up.
    pub(super) fn given_up(&self, recorded: u32) {
        if let Some(case) = self.waits.borrow_mut().remove(&recorded) {
            self.collector.borrow_mut().given_up(case);
        }
    }

    /// Notes that the request got a block from below the MIN watermark.
    pub(super) fn below_min(&self, zone: usize, frame: u32) {
        self.collector.borrow_mut().below_min(self.asked.get(), zone, frame);
    }

    /// Returns whether a pageblock of this type keeps its blocks off the lists.
    pub(super) fn bypasses(of: Option<MigrateType>) -> bool {
        of.is_some_and(|t| !t.is_mergeable())
    }

    pub(super) fn finish(self) -> Collector {
        self.collector.into_inner()
    }
}
