//! Whether the kernel's compaction moved pages, and how the replay knows which (spec §7.4). A page that is
//! moved leaves its frame by a free. No event shows the frame that it moves to.

use std::fmt;

use pageyard_trace::state::PfnMap;
use pageyard_trace::{Compaction, Event, Kind};
use serde::Serialize;

use super::bits::Bits;
use super::machine::Machine;

/// How the replay knows which pages were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationSource {
    /// The trace shows no compaction.
    #[default]
    None,
    /// A task moves what it frees between `mm_compaction_begin` and `mm_compaction_end`.
    Recorded,
    /// Without these events: runs of movable pages of one pageblock that one task frees singly. Reclaim
    /// and tasks that exit free in batches.
    Inferred,
}

impl fmt::Display for MigrationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrationSource::None => "none",
            MigrationSource::Recorded => "recorded by tracepoints",
            MigrationSource::Inferred => "inferred from single frees",
        })
    }
}

/// Frame flag: the page is free in its zone.
const IN_ZONE: u8 = 1;
/// Frame flag: what the frame was last used for cannot be moved.
const IMMOVABLE: u8 = 2;

/// The longest time between two frees of a run, in nanoseconds.
const GAP_NS: u64 = 1_000_000;

/// Collects in the first pass what shows compaction.
pub(super) struct Migrations {
    offset: usize,
    frames: Vec<u8>,
    /// By the trace's number of the task: the record, pageblock and time of its last free that may belong
    /// to a run.
    last: Vec<Option<(u64, usize, u64)>>,
    /// The records of frees in runs.
    runs: Bits,
    /// Frees of pages that were free in their zone: they were moved there.
    arrived: u64,
    is_recorded: bool,
    /// Frees in runs, counted at the end of the pass.
    in_runs: u64,
}

impl Migrations {
    pub(super) fn new(machine: &Machine, map: Option<&PfnMap>) -> Migrations {
        let before = |frame: u64| {
            let bits = map.map_or(PfnMap::FREE, |m| m.get(machine.base() + frame));
            if bits & (PfnMap::FREE | PfnMap::LRU) == 0 { IMMOVABLE } else { 0 }
        };
        let frames = machine.frames();
        Migrations {
            offset: (machine.base() & 511) as usize,
            frames: (0..frames as u64).map(before).collect(),
            last: Vec::new(),
            runs: Bits::default(),
            arrived: 0,
            is_recorded: false,
            in_runs: 0,
        }
    }

    /// Observes a page event at this frame.
    #[inline(always)]
    pub(super) fn see(&mut self, record: u64, event: &Event, frame: u32) {
        let at = frame as usize;
        match event.kind {
            Kind::Alloc { order, migratetype, .. } => {
                let flags = if migratetype == 1 { 0 } else { IMMOVABLE };
                self.frames[at..at + (1 << order)].fill(flags);
            }
            Kind::ZoneLocked { order, .. } => self.leaves_zone(at, order),
            Kind::ExtFrag { alloc_order, .. } => self.leaves_zone(at, alloc_order),
            Kind::Drain { order, .. } => {
                self.frames[at..at + (1 << order)].iter_mut().for_each(|f| *f |= IN_ZONE);
            }
            Kind::Free { order, .. } => {
                let flags = self.frames[at];
                self.arrived += u64::from(flags & IN_ZONE);
                self.leaves_zone(at, order);
                if order == 0 && flags & IMMOVABLE == 0 {
                    self.freed_singly(record, event, (at + self.offset) >> 9);
                }
            }
            Kind::FreeBatched { .. } => {}
        }
    }

    /// Notes a free, which belongs to a run unless it stands alone or proves to be one of a batch.
    fn freed_singly(&mut self, record: u64, event: &Event, block: usize) {
        let this = (record, block, event.t_ns);
        let task = event.task as usize;
        if self.last.len() <= task {
            self.last.resize(task + 1, None);
        }
        let Some((first, at, t_ns)) = self.last[task].replace(this) else { return };
        if at == block && event.t_ns.saturating_sub(t_ns) <= GAP_NS {
            self.runs.set(first);
            self.runs.set(record);
        }
    }

    /// Notes that a free of a task was one of a batch: no run includes it, or goes on from there.
    pub(super) fn was_batched(&mut self, record: u64, task: u32) {
        if let Some(last) = self.last.get_mut(task as usize) {
            *last = None;
        }
        self.runs.clear(record);
    }

    fn leaves_zone(&mut self, at: usize, order: u8) {
        self.frames[at..at + (1 << order)].iter_mut().for_each(|f| *f &= !IN_ZONE);
    }

    /// Observes a tracepoint.
    pub(super) fn see_point(&mut self, what: &Compaction) {
        self.is_recorded |= matches!(what, Compaction::Begin(_));
    }

    /// Ends the first pass.
    pub(super) fn close(&mut self) {
        (self.frames, self.last) = Default::default();
        self.in_runs = self.runs.count();
    }

    /// Returns whether this record is a free in a run.
    pub(super) fn is_in_run(&self, record: u64) -> bool {
        self.runs.get(record)
    }

    /// Returns how moved pages are known. They are inferred only where pages arrived, at least one for 16
    /// that were freed in runs: without compaction none arrives.
    pub(super) fn source(&self) -> MigrationSource {
        if self.is_recorded {
            MigrationSource::Recorded
        } else if self.arrived > self.in_runs / 16 {
            MigrationSource::Inferred
        } else {
            MigrationSource::None
        }
    }
}
