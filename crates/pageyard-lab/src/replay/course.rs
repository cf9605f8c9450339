//! Records a [`Track`] of a replay over the trace's time.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use pageyard::{Config, CpuId, MigrateType, PAGEBLOCK_PAGES, Pfn, Record, Yard, ZoneId};
use pageyard_report::CpuSample;

use super::vitals::{high_of, of_zone};
use crate::track::{Bounds, Heap, List, Now, Track, Tracker, ZoneNow, ZoneOf};

/// The recorder of a run, if a track is recorded.
#[derive(Debug, Default)]
pub(super) struct Course {
    tracker: RefCell<Option<Tracker>>,
    /// When the next sample is due; `u64::MAX` if nothing is recorded.
    due_ns: Cell<u64>,
    on: Cell<bool>,
}

/// An allocator as a tracker sees it. Locks take no time here.
struct Seen<'y, 'a, C: Config>(&'y Yard<'a, C>);

impl<C: Config> Seen<'_, '_, C> {
    fn each(&self) -> impl Iterator<Item = (ZoneId, CpuId)> + '_ {
        let cpus = self.0.cpus();
        self.0.zone_ids().flat_map(move |zone| (0..cpus).map(move |cpu| (zone, CpuId(cpu))))
    }
}

impl<C: Config> Heap for Seen<'_, '_, C> {
    fn lists(&self) -> Vec<Now> {
        let now = |(zone, cpu)| {
            let s = CpuSample::of(self.0, zone, cpu).unwrap_or_default();
            Now {
                high: high_of(self.0, s.tuning),
                count: s.tuning.count.into(),
                refills: s.stats.refills,
                drains: s.stats.all_drains(),
            }
        };
        self.each().map(now).collect()
    }

    fn waits(&self) -> Vec<u64> {
        Vec::new()
    }

    fn type_of(&self, pfn: Pfn) -> MigrateType {
        self.0.block_type(pfn).unwrap_or(MigrateType::Unmovable)
    }

    fn zones(&self) -> Vec<ZoneNow> {
        self.0.zone_ids().map(|zone| of_zone(self.0, zone).now()).collect()
    }
}

impl Course {
    /// Creates a recorder that is inactive until it begins.
    pub(super) fn new() -> Course {
        Course { due_ns: Cell::new(u64::MAX), ..Course::default() }
    }

    /// Starts recording.
    pub(super) fn begin<C: Config>(&self, ns: u64, yard: &Yard<'_, C>) {
        let seen = Seen(yard);
        let list = |(zone, cpu): (ZoneId, CpuId)| List {
            cpu: cpu.0,
            node: zone.node.0,
            zone: zone.kind.to_string(),
        };
        let lists = seen.each().map(list).collect();
        // Everything that is neither free nor on a list is in use, temporarily or permanently.
        let mut memory: Vec<Range<Pfn>> = Vec::new();
        let mut free: Vec<(Pfn, u64)> = Vec::new();
        for zone in yard.zone_ids() {
            let Some(info) = yard.zone_info(zone) else { continue };
            let end = info.start.0 + info.spanned;
            yard.snapshot(zone, |record| match record {
                Record::Block { pfn, .. } => {
                    let next =
                        (pfn.0 / u64::from(PAGEBLOCK_PAGES) + 1) * u64::from(PAGEBLOCK_PAGES);
                    memory.push(pfn..Pfn(next.min(end)));
                }
                Record::Free { pfn, order, .. } => free.push((pfn, order.pages().into())),
                Record::Cached { list, pfn, .. } => {
                    free.push((pfn, 1 << super::lists::list_order(list)));
                }
                _ => {}
            });
        }
        memory.sort_by_key(|range| range.start);
        let mut tracker = Tracker::new(Bounds::shared_by(1), lists, &memory, false);
        let of = |z: ZoneId| ZoneOf { node: z.node.0, zone: z.kind.to_string() };
        tracker.of_zones(yard.zone_ids().map(of).collect());
        for range in &memory {
            tracker.usage(range.start, range.end.0 - range.start.0, 1);
        }
        free.into_iter().for_each(|(pfn, pages)| tracker.usage(pfn, pages, -1));
        tracker.begin(ns, &seen);
        *self.tracker.borrow_mut() = Some(tracker);
        self.due_ns.set(ns);
        self.on.set(true);
    }

    /// Adds (`sign` 1) or removes (`sign` -1) a block in use.
    #[inline(always)]
    pub(super) fn usage(&self, pfn: Pfn, pages: u32, sign: i64) {
        if self.on.get()
            && let Some(tracker) = &mut *self.tracker.borrow_mut()
        {
            tracker.usage(pfn, pages.into(), sign);
        }
    }

    /// Returns whether a sample is due.
    #[inline(always)]
    pub(super) fn is_due(&self, ns: u64) -> bool {
        ns >= self.due_ns.get()
    }

    /// Takes a sample.
    #[cold]
    pub(super) fn sample<C: Config>(&self, ns: u64, yard: &Yard<'_, C>) {
        if let Some(tracker) = &mut *self.tracker.borrow_mut() {
            tracker.sample(ns, &Seen(yard));
            self.due_ns.set(tracker.due_ns());
        }
    }

    /// Ends the recording and returns the track.
    pub(super) fn end<C: Config>(&self, ns: u64, yard: &Yard<'_, C>) -> Option<Track> {
        self.on.set(false);
        let tracker = self.tracker.borrow_mut().take()?;
        Some(tracker.end(ns, &Seen(yard)))
    }
}
