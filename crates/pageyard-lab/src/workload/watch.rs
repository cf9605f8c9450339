//! Records a [`Track`] of a run on the simulated machine.
//!
//! It takes no locks, which would take virtual time: it reads counters, and the `high` values that
//! the allocator reports.

use std::cell::{Cell, RefCell};

use pageyard::policy::{Engine, Policy, Rules};
use pageyard::{CpuId, Defences, Event, MigrateType, Observer, Pfn, Platform, Reclaim, ZoneId};
use pageyard_machine::{Machine, SimYard, unpriced};

use super::actor::Block;
use crate::track::{Bounds, Heap, List, Now, Track, Tracker};

/// The tuning events that the machine's allocator reports.
#[derive(Debug, Default)]
pub(super) struct Watch {
    zones: RefCell<Vec<ZoneId>>,
    cpus: Cell<usize>,
    /// `high` by zone, then by CPU; empty if nothing is recorded.
    high: RefCell<Vec<i64>>,
}

impl Platform for Watch {
    /// Unused: the machine knows the CPU.
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}

impl Reclaim for Watch {}

impl Observer for Watch {
    const SEES_TUNING: bool = true;

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        let Event::High { zone, change } = event else { return };
        let Some(zone) = self.zones.borrow().iter().position(|z| *z == zone) else { return };
        let at = zone * self.cpus.get() + cpu.0 as usize;
        if let Some(high) = self.high.borrow_mut().get_mut(at) {
            *high = change.to.into();
        }
    }
}

impl Defences for Watch {}

/// Where the track of a run is recorded.
#[derive(Debug)]
pub(super) struct Recording {
    bounds: Bounds,
    track: RefCell<Option<Track>>,
}

impl Recording {
    /// Creates a recording that `points` points share.
    pub(super) fn new(points: usize) -> Recording {
        Recording { bounds: Bounds::shared_by(points), track: RefCell::default() }
    }

    /// Takes the track of the last run.
    pub(super) fn take(&self) -> Option<Track> {
        self.track.borrow_mut().take()
    }
}

/// The recorder, independent of the policy.
pub(super) trait Recorder {
    /// Begins the measured stage; no actor runs.
    fn begin(&self);
    /// Ends the measured stage; no actor runs.
    fn end(&self);
    /// Records that a request made at `asked` completed at `now`.
    fn answered(&self, asked: u64, now: u64, got: Option<Block>);
    /// Records that blocks were freed.
    fn freed(&self, now: u64, blocks: &[Block]);
}

/// An allocator whose tuning events are seen.
pub(super) type WatchedYard<'a> = SimYard<'a, &'a Rules, &'a Watch>;

/// The course of one run.
pub(super) struct Course<'r, 'a> {
    recording: &'r Recording,
    machine: &'r Machine,
    yard: &'r WatchedYard<'a>,
    watch: &'a Watch,
    /// By zone and CPU: pages on the lists minus the counters' value.
    offset: RefCell<Vec<i64>>,
    tracker: RefCell<Option<Tracker>>,
}

impl<'r, 'a> Course<'r, 'a> {
    pub(super) fn new(
        recording: &'r Recording,
        machine: &'r Machine,
        yard: &'r WatchedYard<'a>,
        watch: &'a Watch,
    ) -> Course<'r, 'a> {
        watch.cpus.set(yard.cpus() as usize);
        *watch.zones.borrow_mut() = yard.zone_ids().collect();
        let list = |(zone, cpu): (ZoneId, CpuId)| List {
            cpu: cpu.0,
            node: zone.node.0,
            zone: zone.kind.to_string(),
        };
        let layout = machine.memory_layout();
        let mut memory: Vec<_> = layout.zones().iter().map(|z| z.span.clone()).collect();
        memory.sort_by_key(|span| span.start);
        let lists = lists(yard).map(list).collect();
        let tracker = Tracker::new(recording.bounds, lists, &memory, true);
        Course {
            recording,
            machine,
            yard,
            watch,
            offset: RefCell::default(),
            tracker: RefCell::new(Some(tracker)),
        }
    }

    fn with(&self, f: impl FnOnce(&mut Tracker)) {
        if let Some(tracker) = &mut *self.tracker.borrow_mut() {
            f(tracker);
        }
    }

    fn usage(&self, tracker: &mut Tracker, now: u64, blocks: &[Block], sign: i64) {
        for &(pfn, order) in blocks {
            tracker.usage(pfn, order.pages().into(), sign);
        }
        if tracker.is_due(now) {
            tracker.sample(now, self);
        }
    }
}

/// Iterates over all lists: by zone, then by CPU.
fn lists<'y>(yard: &'y WatchedYard<'_>) -> impl Iterator<Item = (ZoneId, CpuId)> + 'y {
    yard.zone_ids().flat_map(|zone| (0..yard.cpus()).map(move |cpu| (zone, CpuId(cpu))))
}

impl Heap for Course<'_, '_> {
    fn lists(&self) -> Vec<Now> {
        let (high, offset) = (self.watch.high.borrow(), self.offset.borrow());
        let is_packed = self.yard.policy().rules().engine == Engine::Packed;
        let both = high.iter().zip(&*offset);
        let now = |((zone, cpu), (high, offset)): ((ZoneId, CpuId), (&i64, &i64))| {
            let s = unpriced(|| self.yard.cpu_stats(zone, cpu)).unwrap_or_default();
            Now {
                high: (!is_packed).then_some(*high),
                count: (s.cached_pages() + offset).max(0),
                refills: s.refills,
                drains: s.all_drains(),
            }
        };
        lists(self.yard).zip(both).map(now).collect()
    }

    fn waits(&self) -> Vec<u64> {
        self.machine.zone_waits()
    }

    fn type_of(&self, pfn: Pfn) -> MigrateType {
        unpriced(|| self.yard.block_type(pfn)).unwrap_or(MigrateType::Unmovable)
    }
}

impl Recorder for Course<'_, '_> {
    fn begin(&self) {
        let (high, offset) = unpriced(|| {
            let of = |(zone, cpu)| {
                let set = self.yard.pageset(zone, cpu).unwrap_or_default();
                let counted = self.yard.cpu_stats(zone, cpu).map_or(0, |s| s.cached_pages());
                (i64::from(set.high), i64::from(set.count) - counted)
            };
            lists(self.yard).map(of).unzip()
        });
        *self.watch.high.borrow_mut() = high;
        *self.offset.borrow_mut() = offset;
        self.with(|t| t.begin(self.machine.now(), self));
    }

    fn end(&self) {
        let Some(tracker) = self.tracker.borrow_mut().take() else { return };
        let track = tracker.end(self.machine.now(), self);
        *self.recording.track.borrow_mut() = Some(track);
    }

    fn answered(&self, asked: u64, now: u64, got: Option<Block>) {
        self.with(|t| {
            t.request(now - asked);
            self.usage(t, now, got.as_slice(), 1);
        });
    }

    fn freed(&self, now: u64, blocks: &[Block]) {
        self.with(|t| self.usage(t, now, blocks, -1));
    }
}
