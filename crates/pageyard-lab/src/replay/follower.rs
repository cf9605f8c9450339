//! Follows the recording itself once its state at the start is known.

use std::collections::HashMap;
use std::sync::Arc;

use pageyard_trace::{Compaction, Event, Kind};

use super::blame::{Asked, Collector, Effort, Place};
use super::follow::Follow;
use super::lists::is_cached;
use super::machine::Machine;
use super::names::Names;
use super::pages::{Page, Use};
use super::plan::{OpKind, Origin};
use super::sketch::{Drawn, Sketch};
use super::start::Start;
use super::timeline::Timeline;

/// A task's reclaim and compaction for a request that is not served yet.
#[derive(Debug)]
struct Trying {
    order: Option<u8>,
    since_ns: u64,
    /// When a direct reclaim began that has not ended.
    reclaiming_since: Option<u64>,
    effort: Effort,
    zone: usize,
    /// Free pages, and what stood in the way, when it began.
    before: (u64, Option<Place>),
}

/// The recording's pages by their users, and its cases.
#[derive(Debug)]
pub(super) struct Follower<'m> {
    machine: &'m Machine,
    collector: Collector,
    /// By CPU: the case of the request at work, whose flags are not known yet.
    open: Vec<Option<usize>>,
    /// By task.
    trying: HashMap<u32, Trying>,
    has_efforts: bool,
    /// What is recorded over time, if anything.
    sketch: Option<Sketch>,
}

/// What was found in the recording.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) cases: Collector,
    /// Whether the trace has events of direct reclaim or compaction.
    pub(super) has_efforts: bool,
    pub(super) sketch: Option<Drawn>,
}

impl<'m> Follower<'m> {
    pub(super) fn new(
        machine: &'m Machine,
        start: &Start,
        names: &Arc<Names>,
        first_ns: u64,
        explains: bool,
    ) -> Follower<'m> {
        Follower {
            machine,
            collector: Collector::new(machine, start, names, first_ns, explains),
            open: vec![None; machine.cpus.len()],
            trying: HashMap::new(),
            has_efforts: false,
            sketch: None,
        }
    }

    /// Sets the types with which pageblocks began, where they are known better.
    pub(super) fn began_as(&mut self, types: &HashMap<usize, u8>) {
        types.iter().for_each(|(block, t)| self.collector.began_as(*block, *t));
    }

    /// Records the state over time from `first_ns`: as a track, and as a timeline.
    pub(super) fn sketch(
        &mut self,
        start: &Start,
        first_ns: u64,
        track: bool,
        timeline: Option<Timeline>,
    ) {
        let pages = &self.collector.pages;
        let mut sketch = Sketch::new(self.machine, start, pages, track, timeline);
        sketch.begin(first_ns, &mut self.collector);
        self.sketch = Some(sketch);
    }

    fn set(&mut self, frame: u32, order: u8, page: Page) {
        if let Some(sketch) = &mut self.sketch {
            sketch.uses(frame, order, page.used, &self.collector.pages);
        }
        self.collector.pages.set(frame, order, page);
    }

    fn tries(
        &mut self,
        since_ns: u64,
        cpu: u16,
        task: u32,
        order: Option<u8>,
        gfp: u32,
    ) -> Option<&mut Trying> {
        self.has_efforts = true;
        if self.trying.get(&task).is_none_or(|t| t.order != order) {
            let zone = self.machine.zone_for(cpu, gfp)?;
            let before = self.collector.look(zone, order.unwrap_or(0).min(10));
            let effort = Effort::default();
            let reclaiming_since = None;
            let trying = Trying { order, since_ns, reclaiming_since, effort, zone, before };
            self.trying.insert(task, trying);
        }
        self.trying.get_mut(&task)
    }

    /// Notes that a request was served, or failed (without `place`).
    fn answered(&mut self, asked: Asked, task: u32, place: Option<(u32, usize)>) {
        // A request within the reclaim is not the one that reclaims.
        let ends = |t: &Trying| {
            t.reclaiming_since.is_none() && t.order.is_none_or(|order| order == asked.order)
        };
        let trying = match self.trying.get(&task).is_some_and(ends) {
            true => self.trying.remove(&task),
            false => None,
        };
        match (place, trying) {
            (Some((frame, _)), Some(Trying { since_ns, effort, zone, before, .. })) => {
                let took_ns = asked.t_ns.saturating_sub(since_ns);
                self.collector.effort(asked, zone, frame, effort, took_ns, before);
            }
            (None, trying) => {
                let cpu = asked.cpu as u16;
                if let Some(zone) = self.machine.zone_for(cpu, asked.gfp.unwrap_or(0)) {
                    let effort = trying.map(|t| t.effort).unwrap_or_default();
                    self.collector.failed(asked, zone, effort);
                }
            }
            (Some(_), None) => {}
        }
    }

    /// Ends at this time and returns what was found.
    pub(super) fn finish(self, t_ns: u64) -> std::io::Result<Followed> {
        let Follower { mut collector, has_efforts, sketch, .. } = self;
        let sketch = sketch.map(|s| s.finish(t_ns, &mut collector)).transpose()?;
        Ok(Followed { cases: collector, has_efforts, sketch })
    }
}

impl Follow for Follower<'_> {
    fn event(&mut self, event: &Event, place: Option<(u32, usize)>) {
        let cpu = usize::from(event.cpu);
        if let Some(sketch) = &mut self.sketch {
            sketch.event(event, place, &mut self.collector);
        }
        let open = self.open[cpu].take();
        let asked = |order, wanted, gfp| Asked {
            t_ns: event.t_ns,
            cpu: event.cpu.into(),
            task: Some(event.task),
            gfp,
            order,
            wanted,
        };
        let page =
            |used, gfp| Page { since: event.t_ns, origin: Origin { task: event.task, gfp }, used };
        match (event.kind, place) {
            (Kind::Alloc { order, migratetype, gfp, .. }, place) => {
                if let Some(case) = open {
                    self.collector.flags(case, gfp);
                }
                self.answered(asked(order, migratetype, Some(gfp)), event.task, place);
                if let Some((frame, _)) = place {
                    self.set(frame, order, page(Use::Requested, gfp));
                }
            }
            (Kind::ZoneLocked { order, migratetype, .. }, Some((frame, _))) => {
                // Before 6.12 the type is that of the list, which may differ from the pageblock's.
                if open.is_none() && !self.machine.kernel.types_carried {
                    self.collector.typed(frame, event.t_ns, migratetype);
                }
                self.open[cpu] = open;
                self.set(frame, order, page(Use::Listed, 0));
            }
            (
                Kind::ExtFrag {
                    alloc_order,
                    fallback_order,
                    alloc_type,
                    fallback_type,
                    change_ownership,
                    ..
                },
                Some((frame, zone)),
            ) => {
                let asked = asked(alloc_order, alloc_type, None);
                let found = (fallback_order, fallback_type);
                self.open[cpu] =
                    self.collector.fallback(asked, zone, frame, found, change_ownership);
                self.set(frame, alloc_order, page(Use::Listed, 0));
            }
            (Kind::Drain { order, .. }, Some((frame, _))) => {
                self.set(frame, order, page(Use::Free, 0));
            }
            _ => {}
        }
    }

    fn operation(&mut self, kind: OpKind, t_ns: u64, frame: u32, order: u8) {
        if matches!(kind, OpKind::Free | OpKind::FreeDirect | OpKind::Migrated) {
            self.collector.pages.freed(frame, 1 << order);
        }
        if kind == OpKind::Migrated {
            self.collector.pages.moved(frame, 1 << order);
        }
        let used = match kind {
            OpKind::Free | OpKind::Migrated if is_cached(order) => Use::Listed,
            OpKind::Free | OpKind::Migrated | OpKind::FreeDirect => Use::Free,
            OpKind::Silent => Use::Silent,
            _ => return,
        };
        self.set(frame, order, Page { since: t_ns, origin: Origin::default(), used });
    }

    fn listed(&mut self, slot: usize, pages: i64) {
        if let Some(sketch) = &mut self.sketch {
            sketch.listed(slot, pages);
        }
    }

    fn point(&mut self, t_ns: u64, cpu: u16, task: u32, what: &Compaction) {
        match *what {
            Compaction::DirectReclaimBegin { order, gfp } => {
                if let Some(trying) = self.tries(t_ns, cpu, task, order, gfp) {
                    trying.effort.reclaims += 1;
                    trying.reclaiming_since = Some(t_ns);
                }
            }
            Compaction::DirectReclaimEnd { reclaimed } => {
                if let Some(trying) = self.trying.get_mut(&task)
                    && let Some(since) = trying.reclaiming_since.take()
                {
                    trying.effort.reclaim_ns += t_ns.saturating_sub(since);
                    trying.effort.reclaimed = trying.effort.reclaimed.saturating_add(reclaimed);
                }
            }
            Compaction::TryToCompactPages { order, gfp, .. } => {
                if let Some(trying) = self.tries(t_ns, cpu, task, order, gfp) {
                    trying.effort.compactions += 1;
                }
            }
            _ => {}
        }
    }
}
