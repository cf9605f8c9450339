//! Samples a run of any length while it proceeds.

use std::ops::Range;

use pageyard::{MigrateType, Pfn};
use pageyard_machine::Histogram;

use super::heap::{HeapTrack, Usage};
use super::{Latency, ListTrack, Track, WaitTrack, ZoneTrack};

/// Limits of what a track keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    samples: usize,
    lists: usize,
    cells: usize,
    frames: usize,
}

/// Bytes for each CPU's lists of a zone: twice as many samples as are kept in the end.
pub(crate) const PER_LIST: usize = 2 * SAMPLES * size_of::<Now>();
const SAMPLES: usize = 128;

impl Bounds {
    /// Returns limits for each of several tracks, which together take little more space than one.
    pub(crate) fn shared_by(tracks: usize) -> Bounds {
        let part = |n: usize, least: usize| (n / tracks.max(1)).max(least);
        Bounds {
            samples: SAMPLES,
            lists: part(64, 8),
            cells: part(2048, 512),
            frames: part(48, 12),
        }
    }

    /// Returns how many lists a track keeps.
    pub(crate) fn lists(self) -> usize {
        self.lists
    }
}

/// Period before the length of the run is known: 10 µs.
const FIRST_PERIOD_NS: u64 = 10_000;

/// One CPU's lists of one zone, read at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// `None` if it is not known.
    pub(crate) high: Option<i64>,
    pub(crate) count: i64,
    /// Since counting began.
    pub(crate) refills: u64,
    pub(crate) drains: u64,
}

/// The lists that a reading is of.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) cpu: u32,
    pub(crate) node: u16,
    pub(crate) zone: String,
}

/// A zone whose free pages are tracked.
#[derive(Clone, Debug)]
pub(crate) struct ZoneOf {
    pub(crate) node: u16,
    pub(crate) zone: String,
}

/// A zone at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneNow {
    pub(crate) free: u64,
    /// MIN, LOW and HIGH.
    pub(crate) watermarks: [u64; 3],
    pub(crate) pages_by_order: [u64; 11],
}

/// What a tracker observes.
pub(crate) trait Heap {
    /// Returns all lists, always in the same order.
    fn lists(&self) -> Vec<Now>;
    /// Returns the picoseconds that each CPU has waited for zone locks; empty if CPUs cannot wait.
    fn waits(&self) -> Vec<u64>;
    /// Returns the type of the pageblock that contains a frame.
    fn type_of(&self, pfn: Pfn) -> MigrateType;
    /// Returns the tracked zones, if any, always in the same order.
    fn zones(&self) -> Vec<ZoneNow> {
        Vec::new()
    }
}

#[derive(Clone, Debug)]
struct Sample {
    ns: u64,
    lists: Vec<Now>,
    waits: Vec<u64>,
    zones: Vec<ZoneNow>,
    frame: Option<(u64, String)>,
}

/// Takes samples at the start, at every period, and at the end.
#[derive(Debug)]
pub(crate) struct Tracker {
    bounds: Bounds,
    lists: Vec<List>,
    zones: Vec<ZoneOf>,
    start_ns: u64,
    period_ns: u64,
    next_ns: u64,
    samples: Vec<Sample>,
    usage: Usage,
    latency: Option<Histogram>,
}

impl Tracker {
    /// Creates a tracker of these lists and this memory. If `timed`, it also records request
    /// latency.
    pub(crate) fn new(
        bounds: Bounds,
        lists: Vec<List>,
        memory: &[Range<Pfn>],
        timed: bool,
    ) -> Tracker {
        Tracker {
            bounds,
            lists,
            zones: Vec::new(),
            start_ns: 0,
            period_ns: FIRST_PERIOD_NS,
            next_ns: u64::MAX,
            samples: Vec::new(),
            usage: Usage::new(memory),
            latency: timed.then(Histogram::default),
        }
    }

    /// Tracks the free pages of these zones, which [`Heap::zones`] returns.
    pub(crate) fn of_zones(&mut self, zones: Vec<ZoneOf>) {
        self.zones = zones;
    }

    /// Begins the recorded part.
    pub(crate) fn begin(&mut self, now_ns: u64, heap: &dyn Heap) {
        self.start_ns = now_ns;
        self.period_ns = FIRST_PERIOD_NS;
        self.next_ns = now_ns + self.period_ns;
        self.samples.clear();
        if let Some(latency) = &mut self.latency {
            *latency = Histogram::default();
        }
        let sample = self.look(0, true, heap);
        self.samples.push(sample);
    }

    /// Adds (`sign` 1) or removes (`sign` -1) a block of `pages` pages in use.
    #[inline]
    pub(crate) fn usage(&mut self, pfn: Pfn, pages: u64, sign: i64) {
        self.usage.change(pfn, pages, sign);
    }

    /// Records the latency of a request.
    pub(crate) fn request(&mut self, ns: u64) {
        if let Some(latency) = &mut self.latency {
            latency.note(ns);
        }
    }

    /// Returns whether a sample is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Returns when the next sample is due.
    pub(crate) fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the samples that are due. If several periods have passed, nothing was observed between
    /// them, and they get the same sample.
    pub(crate) fn sample(&mut self, now_ns: u64, heap: &dyn Heap) {
        // A recorded clock may go backwards.
        let passed = now_ns.saturating_sub(self.start_ns);
        while passed / self.period_ns >= 2 * self.bounds.samples as u64 {
            self.halve();
        }
        if !self.is_due(now_ns) {
            return;
        }
        let number = (self.next_ns - self.start_ns) / self.period_ns;
        let due = (now_ns - self.next_ns) / self.period_ns + 1;
        let framed = (number..number + due).any(|n| n.is_multiple_of(self.frame_every()));
        let sample = self.look(0, framed, heap);
        while self.is_due(now_ns) {
            let ns = self.next_ns - self.start_ns;
            let framed = (ns / self.period_ns).is_multiple_of(self.frame_every());
            let frame = sample.frame.clone().filter(|_| framed);
            self.samples.push(Sample { ns, frame, ..sample.clone() });
            self.next_ns += self.period_ns;
        }
    }

    /// Returns the distance between samples that include the heap. It is a power of two, so the
    /// right samples still include the heap after halving.
    fn frame_every(&self) -> u64 {
        (2 * self.bounds.samples / self.bounds.frames).max(1).next_power_of_two() as u64 / 2
    }

    /// Doubles the period and keeps the samples that are due under it.
    fn halve(&mut self) {
        self.period_ns *= 2;
        let period = self.period_ns;
        self.samples.retain(|s| s.ns.is_multiple_of(period));
        let passed = self.samples.last().map_or(0, |s| s.ns);
        self.next_ns = self.start_ns + passed + period;
    }

    fn look(&self, ns: u64, framed: bool, heap: &dyn Heap) -> Sample {
        let frame = framed.then(|| {
            let kind = |pfn| heap.type_of(pfn);
            (self.usage.in_use, self.usage.frame(self.blocks_per_cell(), &kind))
        });
        Sample { ns, lists: heap.lists(), waits: heap.waits(), zones: heap.zones(), frame }
    }

    fn blocks_per_cell(&self) -> usize {
        self.usage.blocks().div_ceil(self.bounds.cells).max(1)
    }

    /// Ends the recorded part.
    pub(crate) fn end(mut self, now_ns: u64, heap: &dyn Heap) -> Track {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        self.sample(now_ns, heap);
        self.samples.retain(|s| s.ns < elapsed_ns || s.ns == 0);
        let last = self.look(elapsed_ns, true, heap);
        if elapsed_ns > 0 {
            self.samples.push(last);
        }
        Track {
            point: String::new(),
            elapsed_ns,
            period_ns: self.period_ns,
            times_ns: self.samples.iter().map(|s| s.ns).collect(),
            lists: (0..self.lists.len()).map(|i| self.list_track(i)).collect(),
            lists_left_out: 0,
            zones: self.zone_tracks(),
            zone_wait: self.wait_track(),
            heap: self.heap_track(),
            latency: self.latency.as_ref().map(Latency::of),
        }
    }

    fn zone_tracks(&self) -> Vec<ZoneTrack> {
        let track = |(i, of): (usize, &ZoneOf)| {
            let values = |value: &dyn Fn(&ZoneNow) -> u64| -> Vec<u64> {
                self.samples.iter().filter_map(|s| s.zones.get(i)).map(value).collect()
            };
            ZoneTrack {
                node: of.node,
                zone: of.zone.clone(),
                free: values(&|z| z.free),
                min: values(&|z| z.watermarks[0]),
                low: values(&|z| z.watermarks[1]),
                high: values(&|z| z.watermarks[2]),
                pages_by_order: (0..11).map(|o| values(&|z| z.pages_by_order[o])).collect(),
            }
        };
        self.zones.iter().enumerate().map(track).collect()
    }

    fn list_track(&self, i: usize) -> ListTrack {
        let List { cpu, node, zone } = self.lists[i].clone();
        let values = |of: fn(&Now) -> i64| self.samples.iter().map(|s| of(&s.lists[i])).collect();
        let steps = |of: fn(&Now) -> u64| {
            let mut before = self.samples.first().map_or(0, |s| of(&s.lists[i]));
            let step = |s: &Sample| {
                let now = of(&s.lists[i]);
                now - std::mem::replace(&mut before, now)
            };
            self.samples.iter().map(step).collect()
        };
        ListTrack {
            cpu,
            node,
            zone,
            high: self.samples.iter().filter_map(|s| s.lists[i].high).collect(),
            count: values(|n| n.count),
            refills: steps(|n| n.refills),
            drains: steps(|n| n.drains),
        }
    }

    fn wait_track(&self) -> Option<WaitTrack> {
        let first = self.samples.first().filter(|s| !s.waits.is_empty())?;
        let last = self.samples.last()?;
        let by_cpu = last.waits.iter().zip(&first.waits).map(|(b, a)| b.saturating_sub(*a) / 1000);
        let sum = |s: &Sample| s.waits.iter().map(|&w| u128::from(w)).sum::<u128>();
        let mut before = (0, sum(first));
        let waiting = |s: &Sample| {
            let now = (s.ns, sum(s));
            let (ns, waited) = (now.0 - before.0, now.1.saturating_sub(before.1));
            before = now;
            // A plot does not show more than ten-thousandths of a CPU.
            let cpus = if ns == 0 { 0.0 } else { waited as f64 / 1000.0 / ns as f64 };
            (cpus * 1e4).round() / 1e4
        };
        Some(WaitTrack {
            by_cpu_ns: by_cpu.collect(),
            waiting_cpus: self.samples.iter().map(waiting).collect(),
        })
    }

    fn heap_track(&self) -> HeapTrack {
        let every = self.period_ns * self.frame_every();
        let last = self.samples.last().map_or(0, |s| s.ns);
        let kept = |s: &&Sample| s.ns.is_multiple_of(every) || s.ns == last;
        let framed = self.samples.iter().filter(kept);
        let framed: Vec<_> = framed.filter_map(|s| Some((s.ns, s.frame.as_ref()?))).collect();
        HeapTrack {
            pageblocks: self.usage.blocks() as u64,
            blocks_per_cell: self.blocks_per_cell() as u64,
            times_ns: framed.iter().map(|f| f.0).collect(),
            in_use: framed.iter().map(|f| f.1.0).collect(),
            frames: framed.into_iter().map(|f| f.1.1.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::keep_common;
    use super::*;

    struct Fake(Cell<u64>);

    impl Heap for Fake {
        fn lists(&self) -> Vec<Now> {
            let n = self.0.get();
            let busy = Now { high: Some(10), count: n as i64, refills: n, drains: n / 2 };
            vec![Now::default(), busy]
        }
        fn waits(&self) -> Vec<u64> {
            vec![self.0.get() * 5_000_000, 0]
        }
        fn type_of(&self, _: Pfn) -> MigrateType {
            MigrateType::Movable
        }
    }

    fn track(step_ns: u64, steps: u64) -> Track {
        let list = |cpu| List { cpu, node: 0, zone: "Normal".into() };
        let memory = [Pfn(0)..Pfn(1024)];
        let bounds = Bounds::shared_by(1);
        let mut t = Tracker::new(bounds, vec![list(0), list(1)], &memory, true);
        let fake = Fake(Cell::new(0));
        t.begin(500, &fake);
        for n in 1..=steps {
            fake.0.set(n);
            t.usage(Pfn(n % 1024), 1, 1);
            t.request(n);
            if t.is_due(500 + n * step_ns) {
                t.sample(500 + n * step_ns, &fake);
            }
        }
        let mut track = t.end(500 + steps * step_ns, &fake);
        keep_common(&mut [&mut track], 64);
        track
    }

    #[test]
    fn a_track_is_bounded_and_complete_for_any_run_length() {
        for (step_ns, steps) in
            [(7, 3), (10_000, 40), (9_999, 3000), (1_000, 1_000_000), (1 << 40, 5)]
        {
            let t = track(step_ns, steps);
            let samples = t.times_ns.len();
            assert!(samples <= 258, "{step_ns} x {steps}: {samples}");
            assert!(step_ns * steps < 1_280_000 || samples > 100, "{step_ns} x {steps}: {samples}");
            assert!(t.times_ns.is_sorted_by(|a, b| a < b));
            assert!(t.times_ns[1..samples - 1].iter().all(|ns| ns.is_multiple_of(t.period_ns)));
            assert_eq!((t.times_ns[0], t.times_ns[samples - 1]), (0, step_ns * steps));
            // Steps add up to the totals, and the inactive list is left out.
            let [list] = t.lists.as_slice() else { panic!("{:?}", t.lists.len()) };
            assert_eq!((list.cpu, t.lists_left_out), (1, 0));
            assert_eq!(list.refills.iter().sum::<u64>(), steps);
            assert_eq!(list.drains.iter().sum::<u64>(), steps / 2);
            assert_eq!(list.count.last(), Some(&(steps as i64)));
            let frames = t.heap.frames.len();
            assert!((2..=70).contains(&frames), "{step_ns} x {steps}: {frames}");
            assert!(samples < 100 || frames > 20, "{step_ns} x {steps}: {frames}");
            assert_eq!(t.heap.in_use.last(), Some(&steps));
            let wait = t.zone_wait.unwrap();
            assert_eq!(wait.by_cpu_ns, [steps * 5_000, 0]);
            assert_eq!(t.latency.unwrap().requests, steps);
        }
    }

    #[test]
    fn latency_counts_from_the_slow_end() {
        let l = track(10, 100).latency.unwrap();
        assert_eq!(l.buckets[0].at_least, 100);
        assert!(l.buckets.windows(2).all(|w| w[0].at_least - w[0].requests == w[1].at_least));
        assert_eq!((l.p50_ns, l.buckets.last().unwrap().requests), (50, 1));
    }
}
