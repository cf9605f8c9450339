//! A report as text: trace and machine, the table, and the accuracy.

use std::fmt;

use pageyard_trace::printable;

use super::counts::Moved;
use super::figures::{Figures, Price, Range};
use super::migrations::MigrationSource;
use super::tick::{DELAY, SPREAD};
use super::{Column, Report};
use crate::format::{duration, grouped, number, pages};

/// A row: its label, the JSON field of [`Figures`] (empty if there is none), and a function that
/// returns the figure if the column has it.
type Row = (&'static str, &'static str, fn(&Figures) -> Option<Value>);

/// A row of a report's table as data.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    pub(crate) label: &'static str,
    /// The field of a column's figures that contains the value; empty if there is none.
    pub(crate) key: &'static str,
    /// The recorded value, then each policy's value: as text and as a number.
    pub(crate) values: Vec<Option<(String, f64)>>,
}

#[derive(Clone, Copy)]
enum Value {
    Count(u64),
    Tenths(f64),
    /// Thousandths.
    Index(u32),
}

impl Value {
    fn text(self) -> String {
        match self {
            Value::Count(n) => grouped(n),
            Value::Tenths(x) => format!("{x:.1}"),
            Value::Index(n) => format!("{}.{:03}", n / 1000, n % 1000),
        }
    }

    fn number(self) -> f64 {
        match self {
            Value::Count(n) => n as f64,
            Value::Tenths(x) => x,
            Value::Index(n) => n.into(),
        }
    }
}

const ROWS: &[Row] = &[
    ("blocks allocated", "alloc_blocks", |f| Some(Value::Count(f.alloc_blocks))),
    ("pages allocated", "alloc_pages", |f| Some(Value::Count(f.alloc_pages))),
    ("blocks freed", "free_blocks", |f| Some(Value::Count(f.free_blocks))),
    ("pages freed", "free_pages", |f| Some(Value::Count(f.free_pages))),
    ("failed requests", "failed", |f| Some(Value::Count(f.failed))),
    ("pages taken from the zone", "zone_pages", |f| Some(Value::Count(f.zone_pages))),
    ("  of these by refills", "refill_pages", |f| Some(Value::Count(f.moved.refill_pages))),
    ("  refills (holds)", "refill_holds", |f| locked(f, Value::Count(f.moved.refill_holds))),
    ("pages drained to the zone", "drain_pages", |f| Some(Value::Count(f.moved.drain_pages))),
    ("  bulk frees (holds)", "drain_holds", |f| locked(f, Value::Count(f.moved.drain_holds))),
    ("  of the pages by ticks", "tick_pages", |f| f.tick_pages.map(Value::Count)),
    ("pages per hold", "", |f| locked(f, Value::Tenths(f.moved.pages_per_hold()?))),
    ("pages through depots", "depot_pages", |f| f.depot_pages.map(Value::Count)),
    ("all holds of the zone lock", "lock_holds", |f| f.lock_holds.map(Value::Count)),
    ("free_high drains", "free_high_drains", |f| f.free_high_drains.map(Value::Count)),
    ("claims", "claims", |f| Some(Value::Count(f.claims))),
    ("steals", "steals", |f| Some(Value::Count(f.steals))),
    ("type mismatches", "mismatches", |f| f.mismatches.map(Value::Count)),
    ("idle in lists, peak", "idle_peak", |f| Some(Value::Count(f.idle_peak))),
    ("idle in lists, mean", "idle_mean", |f| Some(Value::Count(f.idle_mean.round() as u64))),
    ("unusable index, order 9", "unusable_9", |f| f.unusable_9.map(Value::Index)),
];

/// A figure of refills and drains under the zone lock, which the packed engine does without.
fn locked(f: &Figures, value: Value) -> Option<Value> {
    (!f.moved.lockless).then_some(value)
}

/// Returns the difference from a first value in percent; `None` if that value is 0.
fn change(value: f64, first: f64) -> Option<f64> {
    (first != 0.0).then(|| (value / first - 1.0) * 100.0)
}

fn percent(p: Option<f64>) -> String {
    p.map_or_else(|| "-".into(), |p| format!("{p:+.1}%"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        writeln!(f)?;
        self.table(f)?;
        writeln!(f)?;
        self.prices(f)?;
        self.truth(f)?;
        self.explanation(f)
    }
}

/// A part of a report as text.
struct Part<'a>(&'a Report, fn(&Report, &mut fmt::Formatter<'_>) -> fmt::Result);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

impl Report {
    /// Returns what the report says above its table, and below it: trace, machine and state at the
    /// start, then accuracy.
    pub(crate) fn remarks(&self) -> (String, String) {
        (Part(self, Report::head).to_string(), Part(self, Report::truth).to_string())
    }

    /// Returns the table as data.
    pub(crate) fn rows(&self) -> Vec<TableRow> {
        let row = |row: &Row| {
            let (label, key, get) = *row;
            let policies = self.policies.iter().map(|c| get(&c.figures));
            let values = std::iter::once(self.recorded_value(row)).chain(policies);
            let values = values.map(|v| v.map(|v| (v.text(), v.number()))).collect();
            TableRow { label, key, values }
        };
        ROWS.iter().map(row).collect()
    }

    /// Returns the recorded figure of a row, if the trace shows it.
    fn recorded_value(&self, &(_, key, get): &Row) -> Option<Value> {
        // The only row without a key of its own.
        let key = if key.is_empty() { "pages_per_hold" } else { key };
        get(&self.recorded).filter(|_| self.recorded.shows(key))
    }

    /// Returns the recorded pages and holds that the trace shows; 0 in place of the others.
    fn recorded_moved(&self) -> Moved {
        let shown = |key, n| if self.recorded.shows(key) { n } else { 0 };
        let m = &self.recorded.moved;
        Moved {
            refill_pages: shown("refill_pages", m.refill_pages),
            refill_holds: shown("refill_holds", m.refill_holds),
            drain_pages: shown("drain_pages", m.drain_pages),
            drain_holds: shown("drain_holds", m.drain_holds),
            lockless: false,
        }
    }

    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.reading;
        writeln!(
            f,
            "replay of {}: {} page events, {} by the trace's clock",
            printable(&r.input),
            grouped(r.events),
            duration((r.seconds * 1e9) as u64)
        )?;
        if r.lost > 0 {
            writeln!(
                f,
                "  the recorder lost {} events; the figures below lack them",
                grouped(r.lost)
            )?;
        }
        for (count, what, first) in [
            (r.malformed, "lines or chunks could not be read", &r.malformed_first),
            (
                r.inconsistent,
                "events contradict the machine and are skipped",
                &r.inconsistent_first,
            ),
        ] {
            if count > 0 {
                writeln!(f, "  {} {what}:", grouped(count))?;
                first.iter().try_for_each(|e| writeln!(f, "    {e}"))?;
            }
        }
        writeln!(f, "  kernel   {}", self.machine.kernel)?;
        write!(f, "  machine  {} CPUs;", self.machine.cpus.len())?;
        for z in &self.machine.zones {
            write!(f, " node {} {} {},", z.node, z.kind, pages(z.managed))?;
        }
        writeln!(f, " batch {}", self.machine.zones.iter().map(|z| z.batch).max().unwrap_or(0))?;
        for s in &self.machine.sources {
            writeln!(f, "           {s}")?;
        }
        for note in &r.notes {
            writeln!(f, "           {note}")?;
        }
        let (s, u) = (&self.start, &self.understanding);
        write!(f, "  start    {} pages free", grouped(s.free))?;
        if let Some(n) = s.free_recorded {
            write!(f, " (zoneinfo: {})", grouped(n))?;
        }
        writeln!(
            f,
            ", {} on lists, {} of them never used again; {}",
            grouped(s.cached),
            grouped(s.cached_unseen),
            if s.frame_map { "frames in use as recorded" } else { "frames in use guessed" }
        )?;
        writeln!(
            f,
            "           {} freed blocks were allocated before the trace began",
            grouped(u.live_before)
        )?;
        let unexplained = u.unexplained_allocs + u.unexplained_drains + u.unexplained_refills;
        writeln!(
            f,
            "  order    {} pages left their lists without an event, {} frees bypassed locked lists, \
             {} requested drains; {} moves unexplained",
            grouped(u.silent_pages),
            grouped(u.bypassing_frees),
            grouped(u.requested_drains),
            grouped(unexplained)
        )?;
        let worst = self.policies.iter().filter_map(|c| c.figures.matching);
        if let Some(m) = worst.max_by(|a, b| a.percent().total_cmp(&b.percent())) {
            writeln!(
                f,
                "  frees    {:.2}% of {} could not be matched to a block",
                m.percent(),
                grouped(m.frees)
            )?;
        }
        writeln!(f, "  tick     at {}; seed {}", self.tick_phase.text, self.seed)?;
        writeln!(
            f,
            "           each up to {DELAY} s late; other seeds move the phase by up to {} s",
            SPREAD / 2.0
        )?;
        writeln!(f, "  reclaim  {}", self.reclaim)?;
        let matching = || self.policies.iter().filter_map(|c| c.figures.matching);
        let compacted = matching().map(|m| m.compacted).max().unwrap_or(0);
        match u.migrations {
            MigrationSource::None => {}
            source => {
                writeln!(f, "  moved    {} blocks by compaction: {source}", grouped(u.migrated))?
            }
        }
        if compacted > 0 {
            writeln!(
                f,
                "           up to {} requests found no block and were served after a compaction here",
                grouped(compacted)
            )?;
        }
        let (below, waited) = (matching().map(|m| m.below_marks), matching().map(|m| m.waited));
        let (below, waited) = (below.max().unwrap_or(0), waited.max().unwrap_or(0));
        if below + waited > 0 {
            writeln!(
                f,
                "           up to {} requests took a block from below the MIN watermark, {} waited for \
                 later frees: the kernel had served them",
                grouped(below),
                grouped(waited)
            )?;
        }
        Ok(())
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns: Vec<(String, Vec<String>)> = vec![(
            "recorded".into(),
            ROWS.iter().map(|row| cell(self.recorded_value(row))).collect(),
        )];
        for (i, c) in self.policies.iter().enumerate() {
            let values = ROWS.iter().map(|(_, _, get)| cell(get(&c.figures)));
            columns.push((c.policy.clone(), values.collect()));
            if i > 0 {
                let first = &self.policies[0].figures;
                let changes = ROWS.iter().map(|(_, _, get)| match (get(&c.figures), get(first)) {
                    (Some(a), Some(b)) => percent(change(a.number(), b.number())),
                    _ => String::new(),
                });
                columns.push((String::new(), changes.collect()));
            }
        }
        let label = ROWS.iter().map(|(l, ..)| l.len()).max().unwrap_or(0);
        let width = |(head, cells): &(String, Vec<String>)| {
            cells.iter().map(String::len).chain([head.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = columns.iter().map(width).collect();
        let line =
            |f: &mut fmt::Formatter<'_>, name: &str, cells: &mut dyn Iterator<Item = &str>| {
                let mut text = format!("{name:label$}");
                for (cell, w) in cells.zip(&widths) {
                    text.push_str(&format!("  {cell:>w$}"));
                }
                writeln!(f, "{}", text.trim_end())
            };
        line(f, "", &mut columns.iter().map(|(head, _)| head.as_str()))?;
        for (i, (name, ..)) in ROWS.iter().enumerate() {
            line(f, name, &mut columns.iter().map(|(_, cells)| cells[i].as_str()))?;
        }
        write!(f, "{}", self.recorded.absent())
    }

    /// Prints the cost on the simulated machine, if there is one.
    fn prices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(machine) = &self.on else { return Ok(()) };
        writeln!(f, "Cost, simulated on {machine}, one operation at a time:")?;
        let priced = || self.policies.iter().filter_map(|c| Some((c.policy.as_str(), c.price?)));
        let width = priced().map(|(name, _)| name.len().max(8)).max().unwrap_or(8);
        let row = |f: &mut fmt::Formatter<'_>, label: &str, get: &dyn Fn(&Price) -> Option<f64>| {
            write!(f, "  {label:38}")?;
            let cell = |p: &Price| get(p).map_or_else(|| "-".into(), number);
            priced().try_for_each(|(_, p)| write!(f, "  {:>width$}", cell(&p)))?;
            writeln!(f)
        };
        write!(f, "  {:38}", "")?;
        priced().try_for_each(|(name, _)| write!(f, "  {name:>width$}"))?;
        writeln!(f)?;
        row(f, "allocator, ns per operation", &|p| p.operation_ns)?;
        row(f, "zone locks, ns per hold", &|p| p.hold_ns)?;
        row(f, "zone locks, % of the allocator's time", &|p| p.held_percent)?;
        row(f, "lines from another complex, memory, %", &|p| p.miss_percent)?;
        writeln!(f)
    }

    fn truth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "The order of events is replayed, not their timing. \"recorded\" counts the kernel's \
             events; the other\n\
             columns count the replayed allocator's. \"-\": not in the trace. Changes are relative \
             to {}.",
            self.policies.first().map_or("", |c| c.policy.as_str())
        )?;
        let kernel = &self.machine.kernel;
        match self.policies.iter().find(|c| c.policy == kernel.policy) {
            Some(c) => self.accuracy(f, c)?,
            None => writeln!(
                f,
                "Accuracy not checked: add --policy {}, which {} for the recording kernel.",
                kernel.policy,
                if kernel.is_unknown() { "is assumed" } else { "stands" }
            )?,
        }
        self.dependence(f)
    }

    /// Prints how far the results depend on what the trace does not record.
    fn dependence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ticking = || self.policies.iter().filter(|c| c.ticks_matter);
        if ticking().next().is_none() {
            return writeln!(
                f,
                "Ticks have no effect under these policies, so no result depends on the seed."
            );
        }
        let random = self.tick_phase.phase.is_none();
        if self.seeds < 2 {
            writeln!(
                f,
                "Sensitivity to the timing of ticks not checked: use --seeds 8 or --tick-phase \
                 random."
            )?;
        } else {
            writeln!(
                f,
                "Sensitivity to the timing of ticks, over {} seeds{}: minimum, median and maximum, \
                 relative to the\n\
                 recording:",
                self.seeds,
                if random { "" } else { " near that phase" }
            )?;
            let mut rows =
                vec![["", "pages refilled", "drained", "refills", "bulk frees"].map(String::from)];
            for (c, s) in ticking().filter_map(|c| Some((c, c.spread.as_ref()?))) {
                let r = self.recorded_moved();
                let holds = |of: Range, recorded| match c.figures.depot_pages {
                    None => range(of, recorded),
                    Some(_) => "-".to_owned(),
                };
                rows.push([
                    c.policy.to_owned(),
                    range(s.refill_pages, r.refill_pages),
                    range(s.drain_pages, r.drain_pages),
                    holds(s.refill_holds, r.refill_holds),
                    holds(s.drain_holds, r.drain_holds),
                ]);
            }
            aligned(f, &rows)?;
        }
        if self.tick_phase.assumed {
            writeln!(
                f,
                "The phase of the ticks is assumed; use --tick-phase random to see its effect."
            )?;
        }
        Ok(())
    }

    /// Prints how the tuning of the lists did, if requested.
    fn explanation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in &self.policies {
            let Some(explained) = &c.explained else { continue };
            writeln!(f, "\nThe per-CPU lists under {}, over the whole trace:", c.policy)?;
            if c.figures.moved.lockless {
                writeln!(f, "  none: this engine's magazines do not tune their size")?;
            } else if explained.is_empty() {
                writeln!(f, "  too little work on every CPU for a finding")?;
            }
            explained.iter().try_for_each(|e| write!(f, "{e}"))?;
        }
        Ok(())
    }

    fn accuracy(&self, f: &mut fmt::Formatter<'_>, c: &Column) -> fmt::Result {
        let (ours, theirs) = (&c.figures.moved, self.recorded_moved());
        let off = |a: u64, b: u64| percent(change(a as f64, b as f64));
        writeln!(
            f,
            "{} {} for the recording kernel; relative to the recording: pages refilled {}, drained \
             {}; refills {}, bulk frees {}",
            c.policy,
            if self.machine.kernel.is_unknown() { "is assumed" } else { "stands" },
            off(ours.refill_pages, theirs.refill_pages),
            off(ours.drain_pages, theirs.drain_pages),
            off(ours.refill_holds, theirs.refill_holds),
            off(ours.drain_holds, theirs.drain_holds)
        )?;
        self.failures(f, c)
    }

    /// Warns if more requests fail than were recorded: what reclaim freed came too late for them.
    fn failures(&self, f: &mut fmt::Formatter<'_>, c: &Column) -> fmt::Result {
        let (ours, theirs) = (c.figures.failed, self.recorded.failed);
        if ours <= theirs {
            return Ok(());
        }
        writeln!(
            f,
            "warning: {} requests fail under {}, but {} failed in the recording: a replay does not \
             reclaim, so its\n\
             results under memory pressure are inaccurate (docs/replay.md, Memory pressure)",
            grouped(ours),
            c.policy,
            grouped(theirs)
        )
    }
}

/// Prints rows in columns. The first column is left-aligned, the others are right-aligned.
fn aligned<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut text = format!("  {:w$}", row[0], w = widths[0]);
        for (cell, w) in row.iter().zip(widths).skip(1) {
            text.push_str(&format!("   {cell:>w$}"));
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

fn cell(value: Option<Value>) -> String {
    value.map_or_else(|| "-".into(), Value::text)
}

/// Formats a range in percent of the recorded figure.
fn range(r: Range, recorded: u64) -> String {
    let p = |x: f64| percent(change(x, recorded as f64));
    format!("{} {} {}", p(r.min), p(r.median), p(r.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(percent(change(110.0, 100.0)), "+10.0%");
        assert_eq!(percent(change(1.0, 0.0)), "-");
        assert_eq!(Value::Index(66).text(), "0.066");
    }
}
