//! The first pass: what a later event reveals about an earlier one, where the snapshots were taken,
//! and when ticks occurred.

use std::collections::HashMap;

use pageyard_trace::state::PfnMap;
use pageyard_trace::{Compaction, Event, Kind, Tasks};

use super::bits::Bits;
use super::input::{Refused, Visitor};
use super::lists::is_cached;
use super::machine::Machine;
use super::migrations::Migrations;
use super::reclaim::{ReclaimFigures, ReclaimTimes, Transition, ends_work};
use super::tick::TickTimes;

/// Highest frame, number of CPUs and number of page events, for a machine without state files.
#[derive(Clone, Copy, Default)]
pub(super) struct Survey {
    pub(super) highest: u64,
    pub(super) cpus: u32,
    pub(super) events: u64,
}

impl Visitor for Survey {
    fn event(&mut self, _: u64, event: &Event, _: &Tasks) -> Result<(), Refused> {
        self.events += 1;
        self.cpus = self.cpus.max(u32::from(event.cpu) + 1);
        if let Some((pfn, order)) = block(event) {
            self.highest = self.highest.max(pfn + (1 << order) - 1);
        }
        Ok(())
    }

    fn mark(&mut self, _: u64, _: u64, _: &str) {}
}

/// Returns the first frame and the order of the block that an event is about.
#[inline(always)]
pub(super) fn block(event: &Event) -> Option<(u64, u8)> {
    match event.kind {
        Kind::Alloc { pfn, order, .. } | Kind::ZoneLocked { pfn, order, .. } => Some((pfn?, order)),
        Kind::Free { pfn, order } | Kind::Drain { pfn, order, .. } => Some((pfn, order)),
        Kind::FreeBatched { pfn } => Some((pfn, 0)),
        Kind::ExtFrag { pfn, alloc_order, .. } => Some((pfn, alloc_order)),
    }
}

/// Returns an event's frame, counted from the lowest, and its zone. Returns `None` if the event has
/// no frame.
///
/// # Errors
/// Fails if the event does not fit this machine.
#[inline(always)]
pub(super) fn place(machine: &Machine, event: &Event) -> Result<Option<(u32, usize)>, Refused> {
    if usize::from(event.cpu) >= machine.cpus.len() {
        return Err(Refused {
            what: format!("CPU {} on a machine with {} CPUs", event.cpu, machine.cpus.len()),
            fix: "check that the state files belong to this trace, or use --cpus",
        });
    }
    if event.t_ns > MOST_NS {
        return Err(Refused {
            what: format!("timestamp of {} seconds", event.t_ns / 1_000_000_000),
            fix: "the trace is damaged; record it again",
        });
    }
    let Some((pfn, order)) = block(event) else { return Ok(None) };
    let pages = 1u64 << order;
    match machine.zone_of(pfn) {
        Some(zone) if pfn + pages <= machine.zones[zone].end() && pfn % pages == 0 => {
            Ok(Some(((pfn - machine.base()) as u32, zone)))
        }
        _ => Err(outside(pfn, order)),
    }
}

/// Upper limit of a plausible clock: 146 years.
const MOST_NS: u64 = 1 << 62;

#[cold]
fn outside(pfn: u64, order: u8) -> Refused {
    let (what, fix) = if pfn.is_multiple_of(1 << order) {
        let fix = "check that the state files belong to this trace, or use --memory";
        (format!("frame {pfn:#x} (order {order}) is outside the machine's zones"), fix)
    } else {
        let fix = "the trace is damaged; record it again";
        (format!("frame {pfn:#x} is not aligned to its block's size (order {order})"), fix)
    };
    Refused { what, fix }
}

/// The results of the first pass.
pub(super) struct Scan<'m> {
    machine: &'m Machine,
    /// For a FREE: its batched event is next for that frame. For a ZLOCK: this CPU's next event is
    /// the ALLOC of the same frame. For an EXTFRAG: this CPU's next event is its ZLOCK.
    pub(super) followed: Bits,
    /// The first type seen in each pageblock, plus one; 0 if none was seen.
    pub(super) block_types: Vec<u8>,
    /// The types of pageblocks whose first event took a block of another type: that type. In
    /// `block_types` they have the type that they got.
    pub(super) found_types: HashMap<usize, u8>,
    /// The record at which the first snapshot was read. The snapshot includes all earlier records.
    pub(super) snapshot_start: u64,
    /// The record at which the second snapshot was read.
    pub(super) snapshot_end: Option<u64>,
    /// The record at which the frame map was read.
    pub(super) frame_map: u64,
    pub(super) ticks: TickTimes,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
    reclaim: ReclaimTimes,
    /// The starts and ends of background reclaim, and their summary.
    pub(super) transitions: Vec<Transition>,
    pub(super) reclaimed: ReclaimFigures,
    /// Whether the trace shows when reclaim by requests, or compaction, ended.
    pub(super) ends_recorded: bool,
    /// What compaction moved.
    pub(super) migrations: Migrations,
    /// Time of the record before [`Scan::snapshot_start`].
    pub(super) snapshot_ns: u64,
    /// Per frame: the FREE that waits for its batched event, as the low 31 bits of its record and a
    /// flag.
    freed: Vec<u32>,
    cpus: Vec<Last>,
    began: bool,
    ended: bool,
    last_cat: Option<(u64, u64)>,
    /// Where a mark says that the first snapshot was read.
    marked: Option<(u64, u64)>,
    /// Whether marks say where the state was read. Tasks then do not.
    has_marks: bool,
    cats_after: Vec<u32>,
}

/// A CPU's last event.
#[derive(Clone, Copy)]
struct Last {
    record: u64,
    frame: u32,
    what: Waiting,
}

#[derive(Clone, Copy, PartialEq)]
enum Waiting {
    No,
    ForAlloc,
    ForZoneLocked,
}

impl<'m> Scan<'m> {
    pub(super) fn new(machine: &'m Machine, map: Option<&PfnMap>) -> Scan<'m> {
        let frames = machine.frames();
        Scan {
            machine,
            followed: Bits::default(),
            block_types: vec![0; (frames >> 9) + 2],
            found_types: HashMap::new(),
            snapshot_start: 0,
            snapshot_end: None,
            frame_map: 0,
            ticks: TickTimes::new(machine.cpus.len()),
            first_ns: None,
            last_ns: 0,
            reclaim: ReclaimTimes::default(),
            transitions: Vec::new(),
            reclaimed: ReclaimFigures::default(),
            ends_recorded: false,
            migrations: Migrations::new(machine, map),
            snapshot_ns: 0,
            freed: vec![0; frames],
            cpus: vec![Last { record: 0, frame: 0, what: Waiting::No }; machine.cpus.len()],
            began: false,
            ended: false,
            last_cat: None,
            marked: None,
            has_marks: false,
            cats_after: Vec::new(),
        }
    }

    /// Finds where the recording script read its snapshots, by the tasks that read them.
    fn watch(&mut self, record: u64, event: &Event, tasks: &Tasks) {
        if self.has_marks || self.began && !self.ended {
            return;
        }
        let Some(task) = tasks.get(event.task) else { return };
        let alloc = matches!(event.kind, Kind::Alloc { .. });
        if !self.began {
            if alloc && task.comm == "cat" {
                self.last_cat = Some((record + 1, event.t_ns));
            }
            if task.comm.starts_with("snap") {
                self.frame_map = record;
            }
        } else if alloc && task.comm == "cat" {
            if !self.cats_after.contains(&event.task) && self.cats_after.len() < 2 {
                self.cats_after.push(event.task);
            }
            if self.cats_after.get(1) == Some(&event.task) {
                self.snapshot_end = Some(record + 1);
            }
        }
    }

    /// Ends the pass and drops what only the pass needs.
    pub(super) fn close(&mut self) {
        self.freed = Vec::new();
        self.migrations.close();
        (self.transitions, self.reclaimed) = std::mem::take(&mut self.reclaim).finish(self.last_ns);
    }
}

impl Visitor for Scan<'_> {
    #[inline]
    fn event(&mut self, record: u64, event: &Event, tasks: &Tasks) -> Result<(), Refused> {
        let place = place(self.machine, event)?;
        self.first_ns.get_or_insert(event.t_ns);
        self.last_ns = event.t_ns;
        self.reclaim.see(event, tasks);
        self.watch(record, event, tasks);
        self.ticks.see(event, tasks);
        let cpu = usize::from(event.cpu);
        let last = self.cpus[cpu];
        let mut what = Waiting::No;
        let Some((frame, _)) = place else {
            self.cpus[cpu].what = what;
            return Ok(());
        };
        self.migrations.see(record, event, frame);
        let f = frame as usize;
        let mut typed = None;
        match event.kind {
            Kind::Alloc { migratetype, .. } => {
                if last.what == Waiting::ForAlloc && last.frame == frame {
                    self.followed.set(last.record);
                }
                typed = Some(migratetype);
                self.freed[f] = 0;
            }
            Kind::Free { .. } => self.freed[f] = record as u32 | 1 << 31,
            Kind::FreeBatched { .. } => {
                let low = self.freed[f];
                if low != 0 {
                    let free = back(record, low);
                    self.followed.set(free);
                    self.migrations.was_batched(free, event.task);
                }
            }
            Kind::ZoneLocked { order, migratetype, .. } => {
                if last.what == Waiting::ForZoneLocked && last.frame == frame {
                    self.followed.set(last.record);
                }
                typed = Some(migratetype);
                self.freed[f] = 0;
                if is_cached(order) {
                    what = Waiting::ForAlloc;
                }
            }
            Kind::Drain { migratetype, .. } => {
                typed = Some(migratetype);
                self.freed[f] = 0;
            }
            Kind::ExtFrag { fallback_type, .. } => {
                self.freed[f] = 0;
                let block = self.machine.block_of(frame);
                if self.block_types[block] == 0 {
                    self.found_types.entry(block).or_insert(fallback_type);
                }
                what = Waiting::ForZoneLocked;
            }
        }
        let block = &mut self.block_types[self.machine.block_of(frame)];
        if *block == 0
            && let Some(t) = typed.filter(|&t| t < 5)
        {
            *block = t + 1;
        }
        self.cpus[cpu] = Last { record, frame, what };
        Ok(())
    }

    fn mark(&mut self, record: u64, t_ns: u64, text: &str) {
        match text.trim() {
            "WORKLOAD_START" if !self.began => {
                self.began = true;
                let at = self.marked.or(self.last_cat).unwrap_or((record, t_ns));
                (self.snapshot_start, self.snapshot_ns) = at;
            }
            // `pageyard record` marks where it read the state.
            "SNAPSHOT_FRAMES" if !self.began => {
                self.frame_map = record;
                self.has_marks = true;
            }
            "SNAPSHOT_LISTS" if !self.began => {
                self.marked = Some((record, t_ns));
                self.has_marks = true;
            }
            "SNAPSHOT_LISTS" if self.ended => self.snapshot_end = Some(record),
            "WORKLOAD_END" if self.began => self.ended = true,
            _ => {}
        }
    }

    fn point(&mut self, t_ns: u64, _: u16, _: u32, what: &Compaction) {
        self.reclaim.see_point(t_ns, what);
        self.ends_recorded |= ends_work(what);
        self.migrations.see_point(what);
    }
}

/// Returns the record before `now` with these low 31 bits.
fn back(now: u64, low: u32) -> u64 {
    let distance = (now as u32).wrapping_sub(low) & 0x7fff_ffff;
    now - u64::from(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_records_are_found() {
        assert_eq!(back(10, 3 | 1 << 31), 3);
        assert_eq!(back(5 << 31 | 7, 5 | 1 << 31), 5 << 31 | 5);
        assert_eq!(back(5 << 31 | 7, 9 | 1 << 31), 4 << 31 | 9);
    }
}
