//! Runs one recording, operation by operation.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use pageyard::{
    CpuId, Defences, Gfp, Hooked, MigrateType, NodeId, Observer, Order, PcpDisabled, Pfn, Platform,
    Reclaim, Yard, ZoneId, ZoneKind,
};

use super::error::ConformError;
use super::outcome::{Difference, Outcome};
use super::recording::{Line, Lines};
use super::start::Start;
use super::state::{State, States};
use crate::memory::{Lock, Memory};

/// Hooks for a recording: one CPU is active at a time.
#[derive(Default)]
struct Machine {
    cpu: Cell<u32>,
}

impl Platform for Machine {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}

impl Reclaim for Machine {}
impl Observer for Machine {}
impl Defences for Machine {}

type Setup = Hooked<Lock, Machine>;
type Recorded<'a> = Yard<'a, Setup>;

pub(super) fn run(mut lines: Lines) -> Result<Outcome, ConformError> {
    let name = lines.name();
    let first = lines.next()?.and_then(|l| l.state).ok_or_else(|| {
        lines.number = 1;
        lines.malformed("the recording must begin with a state: {\"op\":\"s\",\"state\":{…}}")
    })?;
    let wrong = |lines: &Lines, what: String| lines.malformed(format!("in the state: {what}"));
    let start = Start::new(&first).map_err(|e| wrong(&lines, e))?;
    let requests = Requests::of(&first).map_err(|e| wrong(&lines, e))?;
    let layout = start.layout();
    let memory = Memory::for_layout(&layout).map_err(|e| wrong(&lines, e.to_string()))?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard: Recorded<'_> = Yard::blank(&layout, storage, Machine::default())
        .map_err(|e| wrong(&lines, e.to_string()))?;
    start.restore(&mut yard, &first).map_err(|e| wrong(&lines, e))?;

    let zones = layout
        .zones
        .iter()
        .map(|z| Zone { id: ZoneId { node: z.node, kind: z.kind }, start: z.span.start.0 });
    let mut run = Run {
        yard: &yard,
        zones: zones.collect(),
        listed: first.listed,
        current: 0,
        requests,
        slots: HashMap::new(),
        disabled: None,
        work: WORK.0,
    };
    let mut outcome = Outcome { name, states: 1, states_recorded: 1, ..Outcome::default() };
    while let Some(line) = lines.next()? {
        if line.error {
            continue;
        }
        outcome.answers_recorded += u64::from(line.got.is_some());
        outcome.states_recorded += u64::from(line.state.is_some());
        if outcome.difference.is_some() {
            continue; // After a difference, only count what the recording has
        }
        let difference = if let Some(expected) = &line.state {
            expected.same_zones(&first).map_err(|e| wrong(&lines, e))?;
            run.compare(&first, expected)
        } else {
            run.operation(&line).map_err(|e| lines.malformed(e))?
        };
        match difference {
            None => {
                outcome.answers += u64::from(line.got.is_some());
                outcome.states += u64::from(line.state.is_some());
            }
            Some(d) => outcome.difference = Some(Difference { line: lines.number, ..d }),
        }
    }
    Ok(outcome)
}

/// The zones that requests refer to.
struct Requests {
    node: NodeId,
    /// Zone modifier (§2.3) of a request.
    upper: Gfp,
    /// Zone modifier of a request with the letter `l`, which only recordings of two zones have.
    lower: Option<Gfp>,
}

impl Requests {
    fn of(states: &States) -> Result<Requests, String> {
        let Some(first) = states.zones.first() else { return Err("no zone".into()) };
        let upper = match first.request_zone {
            0 => Gfp::DMA,
            1 => Gfp::DMA32,
            2 => Gfp::empty(),
            n => return Err(format!("request_zone is {n}; expected 0 to 2")),
        };
        let lower = match states.zones.get(1).map(State::kind).transpose()? {
            None => None,
            Some(ZoneKind::Dma) => Some(Gfp::DMA),
            Some(ZoneKind::Dma32) => Some(Gfp::DMA32),
            Some(kind) => {
                return Err(format!("the lower zone is {kind}; expected DMA or DMA32"));
            }
        };
        Ok(Requests { node: NodeId(first.node), upper, lower })
    }
}

/// One of the recorded zones.
struct Zone {
    id: ZoneId,
    /// The zone's first frame. Recorded frames are relative to it.
    start: u64,
}

/// The owner of a slot's block.
#[derive(Clone, Copy)]
enum Slot {
    Ours(Pfn, Order),
    /// Another zone served the request. The block is outside this run.
    Elsewhere,
}

struct Run<'y, 'a> {
    yard: &'y Recorded<'a>,
    /// The upper zone first.
    zones: Vec<Zone>,
    /// Whether answers name the zone of a frame.
    listed: bool,
    /// The zone that operations on a zone apply to: an index into `zones`.
    current: usize,
    requests: Requests,
    slots: HashMap<u64, Slot>,
    disabled: Option<PcpDisabled<'y, 'a, Setup>>,
    /// Number of slots and pages that operations may still name.
    work: u64,
}

/// The recorded answer "served by another zone".
const ELSEWHERE: i64 = -2;
const FAILED: i64 = -1;
/// The highest slot number.
const MOST_SLOT: u64 = u32::MAX as u64;
/// Maximum number of slots or pages in one operation.
const MOST_AT_ONCE: u64 = 1 << 20;
/// Limit for all operations together: a fixed part, and a part for each line. The recordings use
/// about a hundred per line.
const WORK: (u64, u64) = (1 << 24, 1 << 10);

impl Run<'_, '_> {
    fn compare(&self, first: &States, expected: &States) -> Option<Difference> {
        let mut details = Vec::new();
        for (zone, (first, expected)) in
            self.zones.iter().zip(first.zones.iter().zip(&expected.zones))
        {
            let mut records = Vec::new();
            self.yard.snapshot(zone.id, |r| records.push(r));
            for line in first.with_records(&records).differences(expected) {
                details.push(if self.listed { format!("{}: {line}", zone.id.kind) } else { line });
            }
        }
        (!details.is_empty()).then(|| Difference {
            line: 0,
            operation: "state".into(),
            expected: "the kernel's state".into(),
            got: format!("{} differences", details.len()),
            details,
        })
    }

    /// Charges an operation on `n` slots or pages to the work limit.
    fn work(&mut self, n: u64) -> Result<(), Trouble> {
        if n > MOST_AT_ONCE {
            let what = format!("operation on {n} slots or pages; expected at most {MOST_AT_ONCE}");
            return Err(Trouble::Malformed(what));
        }
        self.work = self.work.checked_sub(n).ok_or_else(|| {
            let (free, each) = WORK;
            Trouble::Malformed(format!(
                "operations on too many slots or pages; expected at most {free}, plus {each} per \
                 line"
            ))
        })?;
        Ok(())
    }

    /// Performs one line and compares the answer.
    fn operation(&mut self, line: &Line) -> Result<Option<Difference>, String> {
        self.work = self.work.saturating_add(WORK.1);
        let op = Op::parse(&line.op)?;
        let expected = line.got.as_deref();
        if let Some(answer) = expected {
            self.check_form(&op, answer)?;
        }
        let got = match self.perform(&op, expected) {
            Ok(got) => got,
            Err(Trouble::Malformed(e)) => return Err(e),
            Err(Trouble::Differs(what)) => {
                return Ok(Some(difference(&line.op, expected, what)));
            }
        };
        match expected {
            Some(expected) if expected != got => {
                let what = short(&got, expected);
                Ok(Some(difference(&line.op, Some(expected), what)))
            }
            _ => Ok(None),
        }
    }

    /// Fails if an answer with frames does not have the form that the recording's state announces.
    fn check_form(&self, op: &Op<'_>, answer: &[i64]) -> Result<(), String> {
        let is_zone = |&k: &i64| usize::try_from(k).is_ok_and(|k| k < self.zones.len());
        let (fits, expected) = match (op.name, self.listed) {
            ("a" | "f" | "x", false) => (answer.len() == 1, "[PFN], [-1] or [-2]"),
            ("a" | "f" | "x", true) => {
                let fits = match answer {
                    [FAILED | ELSEWHERE] => true,
                    [zone, _] => is_zone(zone),
                    _ => false,
                };
                (fits, "[ZONE,PFN] with zone 0 or 1, [-1] or [-2]")
            }
            ("b", false) => (!answer.is_empty(), "[COUNT,PFN,…]"),
            ("b", true) => {
                let fits = match answer {
                    [_, pages @ ..] => pages.len() % 2 == 0 && pages.iter().step_by(2).all(is_zone),
                    [] => false,
                };
                (fits, "[COUNT,ZONE,PFN,ZONE,PFN,…] with zones 0 and 1")
            }
            _ => return Ok(()),
        };
        if fits {
            return Ok(());
        }
        let answer = list(answer);
        Err(format!("operation \"{}\": invalid answer {answer}; expected {expected}", op.name))
    }

    /// Returns the zone that operations on a zone apply to.
    fn zone(&self) -> Result<ZoneId, Trouble> {
        Ok(self.current_zone()?.id)
    }

    fn current_zone(&self) -> Result<&Zone, Trouble> {
        let zone = self.zones.get(self.current);
        zone.ok_or_else(|| Trouble::Malformed(format!("zone {} does not exist", self.current)))
    }

    fn perform(&mut self, op: &Op<'_>, expected: Option<&[i64]>) -> Result<Vec<i64>, Trouble> {
        match op.name {
            "c" => {
                let cpu = op.number(0)?;
                if cpu >= self.yard.cpus().into() {
                    return Err(Trouble::Malformed(format!("the state has no CPU {cpu}")));
                }
                self.yard.hooks().cpu.set(cpu as u32);
                Ok(vec![])
            }
            "a" => self.allocate(op, expected),
            "f" => self.free(op.slot(0)?),
            "x" => self.free_shared(op.slot(0)?),
            "F" => self.free_batch(op.slot(0)?, op.number(1)?),
            "b" => self.allocate_bulk(op),
            "t" => {
                let now = self.yard.hooks().cpu.get();
                for cpu in 0..self.yard.cpus() {
                    self.yard.hooks().cpu.set(cpu);
                    self.yard.tick(CpuId(cpu));
                }
                self.yard.hooks().cpu.set(now);
                Ok(vec![0])
            }
            "z" => self.choose_zone(op),
            "D" => {
                self.yard.drain_all(Some(self.zone()?));
                Ok(vec![0])
            }
            "P" => {
                // First enable again whatever was disabled before.
                self.disabled = None;
                if !op.flag(0)? {
                    self.disabled = self.yard.disable_pcp(self.zone()?);
                }
                Ok(vec![0])
            }
            "R" => {
                self.yard.set_reclaim_active(self.zone()?, op.flag(0)?);
                Ok(vec![0])
            }
            "B" => {
                let (zone, set) = (self.zone()?, op.flag(0)?);
                for cpu in 0..self.yard.cpus() {
                    self.yard.set_free_high_batch(zone, CpuId(cpu), set);
                }
                Ok(vec![0])
            }
            "v" => {
                let t = u8::try_from(op.number(0)?).ok().and_then(MigrateType::from_number);
                let t = t.ok_or_else(|| Trouble::Malformed("unknown type".into()))?;
                Ok(vec![self.yard.unreserve_highatomic(t, op.flag(1)?).into()])
            }
            "w" => self.sysctl(op),
            "i" => {
                let (range, t) = self.range(op, 0)?;
                let answer = self.yard.isolate(range, t);
                Ok(vec![answer.err().map_or(0, |e| e.errno().into())])
            }
            "u" => {
                let (range, t) = self.range(op, 0)?;
                let answer = self.yard.unisolate(range, t);
                Ok(vec![answer.err().map_or(0, |e| e.errno().into())])
            }
            "g" => self.take_range(op),
            other => Err(Trouble::Malformed(format!("unknown operation \"{other}\""))),
        }
    }

    /// Makes later operations on a zone apply to this one.
    fn choose_zone(&mut self, op: &Op<'_>) -> Result<Vec<i64>, Trouble> {
        if !self.listed {
            let what = "operation \"z\" selects a zone, but the recording has one zone; expected a \
                        state of two zones, [{…},{…}]";
            return Err(Trouble::Malformed(what.into()));
        }
        let zone = op.number(0)?;
        match usize::try_from(zone).ok().filter(|&k| k < self.zones.len()) {
            Some(k) => self.current = k,
            None => {
                let what = format!("zone {zone} does not exist; expected 0 or 1");
                return Err(Trouble::Malformed(what));
            }
        }
        Ok(vec![0])
    }

    fn gfp(&self, letters: &str) -> Result<Gfp, Trouble> {
        let zone_bits = match (letters.contains('l'), self.requests.lower) {
            (false, _) => self.requests.upper,
            (true, Some(lower)) => lower,
            (true, None) => {
                let what = "GFP letter 'l' selects the lower zone, but the recording has one zone; \
                            expected a state of two zones, [{…},{…}]";
                return Err(Trouble::Malformed(what.into()));
            }
        };
        let mut gfp = zone_bits | Gfp::THISNODE | Gfp::NOWARN;
        for c in letters.chars() {
            gfp |= match c {
                'm' => Gfp::MOVABLE,
                'r' => Gfp::RECLAIMABLE,
                'h' => Gfp::HIGH,
                'n' => Gfp::NOMEMALLOC,
                'k' => Gfp::KSWAPD_RECLAIM,
                'c' => Gfp::COMP,
                'M' => Gfp::MEMALLOC,
                'L' | 'l' => Gfp::empty(),
                c => return Err(Trouble::Malformed(format!("unknown GFP letter '{c}'"))),
            };
        }
        Ok(gfp)
    }

    /// Appends a frame to an answer. The frame is relative to its zone's first frame, preceded by
    /// the zone if answers name it.
    fn push_frame(&self, answer: &mut Vec<i64>, pfn: Pfn) {
        let id = self.yard.zone_of(pfn);
        let found = self.zones.iter().enumerate().find(|(_, zone)| Some(zone.id) == id);
        // The allocator has no other zones.
        let Some((k, zone)) = found else { return };
        if self.listed {
            answer.push(k as i64);
        }
        answer.push(pfn.0.wrapping_sub(zone.start) as i64);
    }

    /// Returns the answer of an operation on one block.
    fn place(&self, pfn: Pfn) -> Vec<i64> {
        let mut answer = Vec::new();
        self.push_frame(&mut answer, pfn);
        answer
    }

    fn take_range(&mut self, op: &Op<'_>) -> Result<Vec<i64>, Trouble> {
        let slot = op.slot(0)?;
        let (range, t) = self.range(op, 1)?;
        if let Err(e) = self.yard.alloc_contig(range.clone(), t, Gfp::KERNEL) {
            return Ok(vec![e.errno().into()]);
        }
        for (s, pfn) in (slot..).zip(range.start.0..range.end.0) {
            self.slots.insert(s, Slot::Ours(Pfn(pfn), Order::ZERO));
        }
        Ok(vec![0])
    }

    /// Parses the words PFN N TYPE, starting at word `at`. The type is in the dump's numbering,
    /// which agrees with the allocator's for the three ordinary types.
    fn range(&mut self, op: &Op<'_>, at: usize) -> Result<(Range<Pfn>, MigrateType), Trouble> {
        let (first, pages) = (op.number(at)?, op.number(at + 1)?);
        self.work(pages)?;
        let start = Pfn(self.current_zone()?.start.saturating_add(first));
        let end = Pfn(start.0.saturating_add(pages));
        let t = u8::try_from(op.number(at + 2)?).ok().and_then(MigrateType::from_number);
        let t = t.filter(|t| t.is_mergeable()).ok_or_else(|| {
            Trouble::Malformed(format!("operation \"{}\" needs a type from 0 to 2", op.name))
        })?;
        Ok((start..end, t))
    }

    fn allocate(&mut self, op: &Op<'_>, expected: Option<&[i64]>) -> Result<Vec<i64>, Trouble> {
        let (slot, order) = (op.slot(0)?, op.number(1)?);
        let letters = op.text(2);
        let gfp = self.gfp(letters)?;
        let elsewhere = expected == Some(&[ELSEWHERE]);
        let answer = u8::try_from(order).ok().and_then(Order::new).and_then(|order| {
            Some((self.yard.alloc_on(self.requests.node, order, gfp).ok()?, order))
        });
        let Some((pfn, order)) = answer else {
            if elsewhere {
                self.slots.insert(slot, Slot::Elsewhere);
                return Ok(vec![ELSEWHERE]);
            }
            return Ok(vec![FAILED]);
        };
        if letters.contains('L') {
            self.yard.set_movable(pfn, order, true).map_err(refused)?;
        }
        self.slots.insert(slot, Slot::Ours(pfn, order));
        Ok(self.place(pfn))
    }

    fn take_slot(&mut self, slot: u64) -> Result<Slot, Trouble> {
        self.slots.remove(&slot).ok_or_else(|| Trouble::Differs(format!("slot {slot} is empty")))
    }

    fn free(&mut self, slot: u64) -> Result<Vec<i64>, Trouble> {
        match self.take_slot(slot)? {
            Slot::Elsewhere => Ok(vec![ELSEWHERE]),
            Slot::Ours(pfn, order) => {
                self.yard.free(pfn, order).map_err(refused)?;
                Ok(self.place(pfn))
            }
        }
    }

    fn free_shared(&mut self, slot: u64) -> Result<Vec<i64>, Trouble> {
        match self.take_slot(slot)? {
            Slot::Elsewhere => Ok(vec![ELSEWHERE]),
            Slot::Ours(pfn, order) => {
                self.yard.set_movable(pfn, order, false).map_err(refused)?;
                self.yard.free_shared(pfn, order).map_err(refused)?;
                self.slots.insert(slot, Slot::Ours(pfn, Order::ZERO));
                Ok(self.place(pfn))
            }
        }
    }

    fn free_batch(&mut self, slot: u64, n: u64) -> Result<Vec<i64>, Trouble> {
        self.work(n)?;
        let mut blocks = Vec::new();
        let mut elsewhere = 0;
        for s in slot..slot + n {
            match self.slots.remove(&s) {
                Some(Slot::Ours(pfn, order)) => blocks.push((pfn, order)),
                Some(Slot::Elsewhere) => elsewhere += 1,
                None => {}
            }
        }
        self.yard.free_batch(&blocks).map_err(|e| Trouble::Differs(e.to_string()))?;
        Ok(vec![blocks.len() as i64 + elsewhere])
    }

    fn allocate_bulk(&mut self, op: &Op<'_>) -> Result<Vec<i64>, Trouble> {
        let (slot, n) = (op.slot(0)?, op.number(1)?);
        self.work(n)?;
        let gfp = self.gfp(op.text(2))?;
        let mut pages: Vec<Option<Pfn>> = (slot..slot + n)
            .map(|s| match self.slots.get(&s) {
                Some(Slot::Ours(pfn, _)) => Some(*pfn),
                _ => None,
            })
            .collect();
        let done = self
            .yard
            .alloc_bulk_on(self.requests.node, gfp, &mut pages)
            .map_err(|e| Trouble::Differs(e.to_string()))?;
        let mut got = vec![done as i64];
        for (s, page) in (slot..).zip(&pages) {
            let Some(pfn) = page else { continue };
            if (s - slot) < done as u64 {
                self.push_frame(&mut got, *pfn);
            }
            self.slots.entry(s).or_insert(Slot::Ours(*pfn, Order::ZERO));
        }
        Ok(got)
    }

    /// Sets a sysctl. As in the kernel, a rejected value changes nothing.
    fn sysctl(&mut self, op: &Op<'_>) -> Result<Vec<i64>, Trouble> {
        let value = op.number(1)?;
        let _ = match op.text(0) {
            "min_free_kbytes" => self.yard.set_min_free_kbytes(value),
            "watermark_scale_factor" => self.yard.set_watermark_scale_factor(value),
            "watermark_boost_factor" => self.yard.set_watermark_boost_factor(value),
            "percpu_pagelist_high_fraction" => {
                let value = u32::try_from(value).unwrap_or(u32::MAX);
                self.yard.set_percpu_pagelist_high_fraction(value)
            }
            other => return Err(Trouble::Malformed(format!("unknown sysctl \"{other}\""))),
        };
        Ok(vec![0])
    }
}

/// Why an operation has no answer.
enum Trouble {
    Malformed(String),
    Differs(String),
}

impl From<String> for Trouble {
    fn from(e: String) -> Trouble {
        Trouble::Malformed(e)
    }
}

fn refused(e: pageyard::FreeError) -> Trouble {
    Trouble::Differs(e.to_string())
}

/// A parsed operation.
struct Op<'l> {
    name: &'l str,
    args: Vec<&'l str>,
}

impl<'l> Op<'l> {
    fn parse(text: &'l str) -> Result<Op<'l>, String> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next().ok_or("the operation is empty")?;
        Ok(Op { name, args: words.collect() })
    }

    fn text(&self, i: usize) -> &'l str {
        self.args.get(i).copied().unwrap_or("")
    }

    fn number(&self, i: usize) -> Result<u64, String> {
        self.text(i).parse().map_err(|_| {
            format!("operation \"{}\" needs a number as argument {}", self.name, i + 1)
        })
    }

    fn slot(&self, i: usize) -> Result<u64, String> {
        let slot = self.number(i)?;
        if slot > MOST_SLOT {
            return Err(format!("slot {slot} does not exist; expected at most {MOST_SLOT}"));
        }
        Ok(slot)
    }

    fn flag(&self, i: usize) -> Result<bool, String> {
        Ok(self.number(i)? != 0)
    }
}

fn difference(op: &str, expected: Option<&[i64]>, got: String) -> Difference {
    let expected = expected.map_or_else(|| "no answer".into(), list);
    Difference { line: 0, operation: op.into(), expected, got, details: Vec::new() }
}

/// Formats an answer, shortened if it is long.
fn list(answer: &[i64]) -> String {
    match answer.get(..8) {
        Some(start) if answer.len() > 8 => {
            format!("{} numbers, starting with {start:?}", answer.len())
        }
        _ => format!("{answer:?}"),
    }
}

fn short(got: &[i64], expected: &[i64]) -> String {
    let same = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    if got.len() <= 8 {
        return format!("{got:?}");
    }
    let around = |l: &[i64]| l.iter().skip(same).take(4).copied().collect::<Vec<_>>();
    format!(
        "{} numbers; at position {same} expected {:?}, got {:?}",
        got.len(),
        around(expected),
        around(got)
    )
}
