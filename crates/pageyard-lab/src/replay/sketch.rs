//! What a recording shows over time: the lists, the heap and the free blocks, as a track and as a
//! timeline.

use std::fs::File;
use std::io;

use pageyard::{MigrateType, Pfn};
use pageyard_trace::{Event, Kind};

use super::blame::Collector;
use super::free_blocks::FreeBlocks;
use super::lists::{is_cached, list_order};
use super::machine::Machine;
use super::pages::{Pages, Use};
use super::start::Start;
use super::timeline::{Moves, Timeline};
use super::vitals::{Vitals, ZoneVitals};
use crate::track::{Bounds, Heap, List, Now, Track, Tracker, ZoneNow, ZoneOf};

/// Records the state of a recording over time.
#[derive(Debug)]
pub(super) struct Sketch {
    base: u64,
    cpus: usize,
    watermarks: Vec<[u64; 3]>,
    blocks: FreeBlocks,
    /// By zone, then by CPU: pages on the lists, refills and drains.
    lists: Vec<(i64, u64, u64)>,
    /// By CPU: the move of its last event.
    last: Vec<Option<Moves>>,
    /// By CPU: the frame that its last event took from another type, plus one.
    claimed: Vec<u32>,
    tracker: Option<Tracker>,
    timeline: Option<Timeline>,
}

/// What was recorded over time.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) track: Option<Track>,
    pub(super) timeline: Option<File>,
}

/// The state at one moment, as a tracker reads it.
struct Seen<'a> {
    sketch: &'a Sketch,
    vitals: &'a Vitals,
    collector: &'a Collector,
}

impl Heap for Seen<'_> {
    fn lists(&self) -> Vec<Now> {
        let now = |&(count, refills, drains): &(i64, u64, u64)| {
            // Events do not show `high`.
            Now { high: None, count: count.max(0), refills, drains }
        };
        self.sketch.lists.iter().map(now).collect()
    }

    fn waits(&self) -> Vec<u64> {
        Vec::new()
    }

    fn type_of(&self, pfn: Pfn) -> MigrateType {
        self.collector.type_of(pfn.0.saturating_sub(self.sketch.base) as u32)
    }

    fn zones(&self) -> Vec<ZoneNow> {
        self.vitals.zones.iter().map(ZoneVitals::now).collect()
    }
}

impl Sketch {
    /// Begins with the state at the start.
    pub(super) fn new(
        machine: &Machine,
        start: &Start,
        pages: &Pages,
        track: bool,
        timeline: Option<Timeline>,
    ) -> Sketch {
        let on = |lists: &[Vec<u32>]| {
            let pages = |(l, list): (usize, &Vec<u32>)| (list.len() as i64) << list_order(l);
            lists.iter().enumerate().map(pages).sum::<i64>()
        };
        let cpus = machine.cpus.len();
        let tracker = track.then(|| {
            let list = |z: &super::machine::MachineZone| {
                let (node, zone) = (z.node, z.kind.to_string());
                (0..cpus as u32).map(move |cpu| List { cpu, node, zone: zone.clone() })
            };
            let lists = machine.zones.iter().flat_map(list).collect();
            let spans: Vec<_> = machine.zones.iter().map(|z| Pfn(z.start)..Pfn(z.end())).collect();
            let mut tracker = Tracker::new(Bounds::shared_by(1), lists, &spans, false);
            let of =
                |z: &super::machine::MachineZone| ZoneOf { node: z.node, zone: z.kind.to_string() };
            tracker.of_zones(machine.zones.iter().map(of).collect());
            let base = machine.base();
            for zone in 0..machine.zones.len() {
                let span = pages.span(zone);
                for (frame, page) in span.clone().zip(pages.within(span)) {
                    if is_used(page.used) {
                        tracker.usage(Pfn(base + frame as u64), 1, 1);
                    }
                }
            }
            tracker
        });
        Sketch {
            base: machine.base(),
            cpus,
            watermarks: machine.zones.iter().map(|z| [0, 1, 2].map(|i| z.watermarks[i])).collect(),
            blocks: FreeBlocks::new(pages),
            lists: start.cached.iter().map(|lists| (on(lists), 0, 0)).collect(),
            last: vec![None; cpus],
            claimed: vec![0; cpus],
            tracker,
            timeline,
        }
    }

    /// Begins the track at this time.
    pub(super) fn begin(&mut self, t_ns: u64, collector: &mut Collector) {
        let vitals = self.vitals(collector);
        if let Some(mut tracker) = self.tracker.take() {
            tracker.begin(t_ns, &Seen { sketch: self, vitals: &vitals, collector });
            self.tracker = Some(tracker);
        }
    }

    fn vitals(&mut self, collector: &mut Collector) -> Vitals {
        let changed = collector.pages.take_changed();
        self.blocks.refresh(changed, &collector.pages, |frame| collector.type_of(frame));
        let zone = |(i, &watermarks): (usize, &[u64; 3])| {
            let lists = &self.lists[i * self.cpus..(i + 1) * self.cpus];
            ZoneVitals {
                free: collector.pages.free(i),
                watermarks,
                blocks: self.blocks.zone(i),
                holds: lists.iter().map(|l| l.1 + l.2).sum(),
            }
        };
        Vitals {
            zones: self.watermarks.iter().enumerate().map(zone).collect(),
            lists: self.lists.iter().map(|l| (l.0.max(0), None)).collect(),
        }
    }

    /// Follows an event, before it changes any page.
    pub(super) fn event(
        &mut self,
        event: &Event,
        place: Option<(u32, usize)>,
        collector: &mut Collector,
    ) {
        let t_ns = event.t_ns;
        let tracked = self.tracker.as_ref().is_some_and(|t| t.is_due(t_ns));
        if tracked || self.timeline.as_ref().is_some_and(|t| t.is_due(t_ns)) {
            self.sample(t_ns, tracked, collector);
        }
        let cpu = usize::from(event.cpu);
        let claimed = std::mem::take(&mut self.claimed[cpu]);
        match (event.kind, place) {
            (Kind::ZoneLocked { order, .. }, Some((frame, zone))) if is_cached(order) => {
                // The event before announced it already.
                if claimed != frame + 1 {
                    self.moved(cpu, zone, Moves::Refill, t_ns, 1 << order);
                }
            }
            (Kind::Drain { order, .. }, Some((_, zone))) => {
                self.moved(cpu, zone, Moves::Drain, t_ns, 1 << order);
            }
            (Kind::ExtFrag { alloc_order, .. }, Some((frame, zone))) => {
                if is_cached(alloc_order) {
                    self.moved(cpu, zone, Moves::Refill, t_ns, 1 << alloc_order);
                }
                self.claimed[cpu] = frame + 1;
                self.fell_back(event, frame);
            }
            (Kind::Alloc { order, migratetype, .. }, place) => {
                self.other(cpu);
                if place.is_none()
                    && let Some(timeline) = &mut self.timeline
                {
                    timeline.instant_of("failed request", t_ns, cpu, None, order, migratetype);
                }
            }
            _ => self.other(cpu),
        }
    }

    fn fell_back(&mut self, event: &Event, frame: u32) {
        let Kind::ExtFrag { alloc_order, alloc_type, change_ownership, .. } = event.kind else {
            return;
        };
        let pfn = Some(self.base + u64::from(frame));
        if let Some(timeline) = &mut self.timeline {
            let name = if change_ownership { "claim" } else { "steal" };
            let cpu = usize::from(event.cpu);
            timeline.instant_of(name, event.t_ns, cpu, pfn, alloc_order, alloc_type);
        }
    }

    fn moved(&mut self, cpu: usize, zone: usize, what: Moves, t_ns: u64, pages: u64) {
        if self.last[cpu].replace(what) != Some(what) {
            let list = &mut self.lists[zone * self.cpus + cpu];
            match what {
                Moves::Refill => list.1 += 1,
                Moves::Drain => list.2 += 1,
            }
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.moved(cpu, what, t_ns, pages);
        }
    }

    fn other(&mut self, cpu: usize) {
        self.last[cpu] = None;
        if let Some(timeline) = &mut self.timeline {
            timeline.other(cpu);
        }
    }

    fn sample(&mut self, t_ns: u64, tracked: bool, collector: &mut Collector) {
        let vitals = self.vitals(collector);
        if tracked && let Some(mut tracker) = self.tracker.take() {
            tracker.sample(t_ns, &Seen { sketch: self, vitals: &vitals, collector });
            self.tracker = Some(tracker);
        }
        if let Some(timeline) = self.timeline.as_mut().filter(|t| t.is_due(t_ns)) {
            timeline.sample(t_ns, &vitals);
        }
    }

    /// Follows the use of a block, before it changes.
    pub(super) fn uses(&mut self, frame: u32, order: u8, used: Use, pages: &Pages) {
        let Some(tracker) = &mut self.tracker else { return };
        let range = frame as usize..frame as usize + (1 << order);
        for (at, page) in range.clone().zip(pages.within(range)) {
            let sign = i64::from(is_used(used)) - i64::from(is_used(page.used));
            if sign != 0 {
                tracker.usage(Pfn(self.base + at as u64), 1, sign);
            }
        }
    }

    /// Follows the number of pages on a CPU's lists of a zone.
    pub(super) fn listed(&mut self, slot: usize, pages: i64) {
        self.lists[slot].0 += pages;
    }

    pub(super) fn finish(mut self, t_ns: u64, collector: &mut Collector) -> io::Result<Drawn> {
        let vitals = self.vitals(collector);
        let tracker = self.tracker.take();
        let timeline = self.timeline.take();
        let seen = Seen { sketch: &self, vitals: &vitals, collector };
        let track = tracker.map(|tracker| tracker.end(t_ns, &seen));
        let timeline = timeline.map(|mut timeline| {
            timeline.sample(t_ns, &vitals);
            timeline.finish(t_ns)
        });
        Ok(Drawn { track, timeline: timeline.transpose()? })
    }
}

fn is_used(used: Use) -> bool {
    !matches!(used, Use::Free | Use::Listed)
}
