//! A CPU: its clock, what it spends its time on, and who runs on it.

use std::collections::VecDeque;

use crate::cache::LEVELS;
use crate::spec::Place;

/// No task, no CPU.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Instructions take as long as they do on a core alone.
pub(crate) const ALONE: u64 = 1000;

/// What a CPU spends its time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Spent {
    /// The task's own work.
    Think,
    /// Reading, writing and zeroing pages.
    Touch,
    /// In the allocator, its locks included as long as nobody has to wait.
    Alloc,
    /// Spinning on a zone's lock.
    ZoneWait,
    /// Spinning on another lock.
    OtherWait,
    /// Stalled with a lock held, as a virtual CPU whose host has something else to do.
    Stall,
    /// From task to task.
    Switch,
    Idle,
}

pub(crate) const SPENTS: usize = 8;

#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) clock: u64,
    pub(crate) spent: [u64; SPENTS],
    /// Who runs.
    pub(crate) task: u32,
    /// It spins for a lock.
    pub(crate) spins: bool,
    /// How long its instructions take, in thousandths of what they take on a core alone.
    pub(crate) slow: u64,
    /// Who waits for the CPU.
    pub(crate) queue: VecDeque<u32>,
    pub(crate) slice_start: u64,
    /// Somebody in the queue should run soon.
    pub(crate) resched: bool,
    /// Lines touched, by where they were found.
    pub(crate) lines: [u64; LEVELS],
    /// The line of descriptors that was touched last.
    pub(crate) last_line: u64,
    /// The core has told of a block since the CPU got a lock.
    pub(crate) told: bool,
    /// Since then a block went to the zone.
    pub(crate) gave: bool,
    pub(crate) place: Place,
}

impl CpuState {
    pub(crate) fn new(place: Place) -> Self {
        CpuState {
            clock: 0,
            spent: [0; SPENTS],
            task: NOBODY,
            spins: false,
            slow: ALONE,
            queue: VecDeque::new(),
            slice_start: 0,
            resched: false,
            lines: [0; LEVELS],
            last_line: 0,
            told: false,
            gave: false,
            place,
        }
    }

    /// How long its own instructions take that take so long on a core alone.
    #[inline]
    pub(crate) fn own(&self, ps: u64) -> u64 {
        match self.slow {
            ALONE => ps,
            slow => ps * slow / ALONE,
        }
    }
}
