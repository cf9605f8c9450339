//! The course of the recording or of a run as one process of a Perfetto trace: counters, slices of
//! refills and drains, and instants of claims, steals and failures.
//!
//! The size is bounded whatever the length of the trace: counters are sampled at a period that
//! depends on their number, and slices and instants beyond a number are left out and counted.

use std::fs::File;
use std::io::{self, BufWriter};

use super::machine::Machine;
use super::packets::{Does, Note, Packets};
use super::vitals::Vitals;

/// Values of all counters together, and the number of samples.
const VALUES: u64 = 1 << 21;
const SAMPLES: (u64, u64) = (64, 4096);
/// Slices and instants that are written.
const SLICES: u64 = 1 << 18;
const INSTANTS: u64 = 1 << 16;
/// Shortest period of samples.
const SHORTEST_NS: u64 = 10_000;

/// The kind of a move between a CPU's lists and the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    Refill,
    Drain,
}

/// A slice that may still grow.
#[derive(Clone, Copy, Debug)]
struct Open {
    what: Moves,
    from_ns: u64,
    to_ns: u64,
    pages: u64,
    parts: u64,
}

/// A counter: its last value, if it was written.
#[derive(Debug)]
struct Counter {
    name: String,
    unit: &'static str,
    last: Option<i64>,
}

/// Writes one process of a trace.
#[derive(Debug)]
pub(super) struct Timeline {
    out: Packets<BufWriter<File>>,
    /// The number of the process's track; those of its other tracks follow it.
    base: u64,
    counters: Vec<Counter>,
    holds: Vec<u64>,
    open: Vec<Option<Open>>,
    /// By CPU: when its last slice ended. A recorded clock may go back slightly.
    ended_ns: Vec<u64>,
    period_ns: u64,
    next_ns: u64,
    slices: u64,
    instants: u64,
    left_out: u64,
    failed: Option<io::Error>,
}

const ORDERS: usize = 11;
const TYPES: [&str; 6] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate"];
/// Counters of a zone besides its free blocks: free, MIN, LOW, HIGH, holds.
const PER_ZONE: usize = 5;

impl Timeline {
    /// Begins process `number`, which covers this time.
    pub(super) fn new(
        machine: &Machine,
        number: u32,
        name: &str,
        time: (u64, u64),
    ) -> io::Result<Timeline> {
        let mut out = Packets::new(BufWriter::new(tempfile::tempfile()?), u64::from(number) + 1);
        let pid = number + 1;
        let base = u64::from(pid) << 32;
        out.process(base, pid, name)?;
        let mut counters = Vec::new();
        for z in &machine.zones {
            let of = format!("node {} {}", z.node, z.kind);
            let mut add = |what: &str, unit| {
                counters.push(Counter { name: format!("{of}: {what}"), unit, last: None });
            };
            for what in ["free pages", "watermark MIN", "watermark LOW", "watermark HIGH"] {
                add(what, "pages");
            }
            add("zone lock holds since the last sample", "holds");
            for order in 0..ORDERS {
                TYPES
                    .iter()
                    .for_each(|t| add(&format!("free blocks, order {order} {t}"), "blocks"));
            }
        }
        for z in &machine.zones {
            for cpu in 0..machine.cpus.len() {
                for what in ["count", "high"] {
                    let name = format!("CPU {cpu} lists of node {} {}: {what}", z.node, z.kind);
                    counters.push(Counter { name, unit: "pages", last: None });
                }
            }
        }
        let samples = (VALUES / counters.len().max(1) as u64).clamp(SAMPLES.0, SAMPLES.1);
        let mut timeline = Timeline {
            out,
            base,
            counters,
            holds: vec![0; machine.zones.len()],
            open: vec![None; machine.cpus.len()],
            ended_ns: vec![0; machine.cpus.len()],
            period_ns: (time.1.saturating_sub(time.0) / samples).max(SHORTEST_NS),
            next_ns: time.0,
            slices: 0,
            instants: 0,
            left_out: 0,
            failed: None,
        };
        for cpu in 0..machine.cpus.len() {
            let name = format!("CPU {cpu}: refills and drains");
            timeline.out.track(timeline.of_cpu(cpu), base, &name, None)?;
        }
        timeline.out.track(base + 1, base, "claims, steals and failures", None)?;
        Ok(timeline)
    }

    fn of_cpu(&self, cpu: usize) -> u64 {
        self.base + 2 + cpu as u64
    }

    fn of_counter(&self, number: usize) -> u64 {
        self.of_cpu(self.open.len()) + number as u64
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(e) = done {
            self.failed.get_or_insert(e);
        }
    }

    /// Returns whether a sample is due.
    #[inline]
    pub(super) fn is_due(&self, t_ns: u64) -> bool {
        t_ns >= self.next_ns
    }

    /// Writes the counters that changed.
    pub(super) fn sample(&mut self, t_ns: u64, vitals: &Vitals) {
        let periods = t_ns.saturating_sub(self.next_ns) / self.period_ns + 1;
        self.next_ns = self.next_ns.saturating_add(periods.saturating_mul(self.period_ns));
        let mut number = 0;
        for (i, z) in vitals.zones.iter().enumerate() {
            let holds = z.holds.saturating_sub(std::mem::replace(&mut self.holds[i], z.holds));
            let [min, low, high] = z.watermarks;
            for value in [z.free, min, low, high, holds] {
                self.count(number, t_ns, value as i64);
                number += 1;
            }
            for order in 0..ORDERS {
                for t in 0..TYPES.len() {
                    self.count(number, t_ns, z.blocks.0[order][t] as i64);
                    number += 1;
                }
            }
        }
        debug_assert_eq!(number, vitals.zones.len() * (PER_ZONE + ORDERS * TYPES.len()));
        for (count, high) in &vitals.lists {
            self.count(number, t_ns, *count);
            if let Some(high) = high {
                self.count(number + 1, t_ns, *high);
            }
            number += 2;
        }
    }

    /// Writes a counter's value if it changed. A counter that was always 0 has no track.
    fn count(&mut self, number: usize, t_ns: u64, value: i64) {
        let uuid = self.of_counter(number);
        let counter = &mut self.counters[number];
        if counter.last == Some(value) || counter.last.is_none() && value == 0 {
            return;
        }
        let mut done = Ok(());
        if counter.last.replace(value).is_none() {
            done = self.out.track(uuid, self.base, &counter.name, Some(counter.unit));
        }
        let done = done.and_then(|()| self.out.count(uuid, t_ns, value));
        self.note(done);
    }

    /// Notes that pages moved between a CPU's lists and the zone.
    pub(super) fn moved(&mut self, cpu: usize, what: Moves, t_ns: u64, pages: u64) {
        if let Some(open) = &mut self.open[cpu]
            && open.what == what
        {
            open.to_ns = open.to_ns.max(t_ns);
            open.pages += pages;
            open.parts += 1;
            return;
        }
        self.other(cpu);
        let from_ns = t_ns.max(self.ended_ns[cpu]);
        self.open[cpu] = Some(Open { what, from_ns, to_ns: from_ns, pages, parts: 1 });
    }

    /// Notes that a CPU did something else, which ends its slice.
    pub(super) fn other(&mut self, cpu: usize) {
        let Some(open) = self.open[cpu].take() else { return };
        self.ended_ns[cpu] = open.to_ns;
        if self.slices >= SLICES {
            self.left_out += 1;
            return;
        }
        self.slices += 1;
        let name = match open.what {
            Moves::Refill => "refill",
            Moves::Drain => "drain",
        };
        let track = self.of_cpu(cpu);
        let notes = [("pages", Note::Number(open.pages)), ("events", Note::Number(open.parts))];
        let begun = self.out.event(Does::Begin, track, open.from_ns, name, &notes);
        let done = begun.and_then(|()| self.out.event(Does::End, track, open.to_ns, "", &[]));
        self.note(done);
    }

    /// Writes an instant: a claim, a steal or a failure.
    pub(super) fn instant_of(
        &mut self,
        name: &str,
        t_ns: u64,
        cpu: usize,
        pfn: Option<u64>,
        order: u8,
        wanted: u8,
    ) {
        let wanted = TYPES.get(usize::from(wanted)).copied().unwrap_or("unknown");
        let mut notes = vec![
            ("cpu", Note::Number(cpu as u64)),
            ("order", Note::Number(order.into())),
            ("type", Note::Text(wanted)),
        ];
        let place = pfn.map(|pfn| (format!("{pfn:#x}"), pfn >> 9));
        if let Some((pfn, block)) = &place {
            notes.extend([("pfn", Note::Text(pfn)), ("pageblock", Note::Number(*block))]);
        }
        self.instant(t_ns, name, &notes);
    }

    fn instant(&mut self, t_ns: u64, name: &str, notes: &[(&str, Note<'_>)]) {
        if self.instants >= INSTANTS {
            self.left_out += 1;
            return;
        }
        self.instants += 1;
        let done = self.out.event(Does::Instant, self.base + 1, t_ns, name, notes);
        self.note(done);
    }

    /// Ends the process at this time and returns its packets.
    pub(super) fn finish(mut self, t_ns: u64) -> io::Result<File> {
        (0..self.open.len()).for_each(|cpu| self.other(cpu));
        if self.left_out > 0 {
            let notes = [("number", Note::Number(self.left_out))];
            let done =
                self.out.event(Does::Instant, self.base + 1, t_ns, "events left out", &notes);
            self.note(done);
        }
        match self.failed {
            Some(e) => Err(e),
            None => self.out.into_inner().into_inner().map_err(io::IntoInnerError::into_error),
        }
    }
}
