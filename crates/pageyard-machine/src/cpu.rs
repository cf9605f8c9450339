//! A virtual CPU: its clock, its time accounting, and its tasks.

use std::collections::VecDeque;

use crate::cache::LEVELS;
use crate::spec::Place;

/// No task or no CPU.
pub(crate) const NONE: u32 = u32::MAX;

/// The slowdown factor, in thousandths, of a CPU whose core has no other busy thread.
pub(crate) const ALONE: u64 = 1000;

/// Categories of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Spent {
    /// The task's own work.
    Think,
    /// Reading, writing and zeroing pages.
    Touch,
    /// In the allocator, including uncontended locks.
    Alloc,
    /// Spinning on a zone lock.
    ZoneWait,
    /// Spinning on another lock.
    OtherWait,
    /// Waiting for a line that another core has, on the packed engine.
    LineWait,
    /// Stalled with a lock held, as a virtual CPU that the host has preempted.
    Stall,
    /// Switching tasks.
    Switch,
    Idle,
}

pub(crate) const SPENTS: usize = 9;

#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) clock: u64,
    pub(crate) spent: [u64; SPENTS],
    /// The running task.
    pub(crate) task: u32,
    /// Whether it spins for a lock.
    pub(crate) spins: bool,
    /// How long its instructions take, in thousandths of their duration on an otherwise idle core.
    pub(crate) slow: u64,
    /// Tasks waiting for the CPU.
    pub(crate) queue: VecDeque<u32>,
    pub(crate) slice_start: u64,
    /// Whether a task in the queue should run soon.
    pub(crate) resched: bool,
    /// Lines touched, by where they were found.
    pub(crate) lines: [u64; LEVELS],
    /// The last touched line of descriptors.
    pub(crate) last_line: u64,
    /// Whether the allocator has reported a block since the CPU acquired a lock.
    pub(crate) event_seen: bool,
    /// Whether a block has gone to the zone since then.
    pub(crate) freed: bool,
    pub(crate) place: Place,
}

impl CpuState {
    pub(crate) fn new(place: Place) -> Self {
        CpuState {
            clock: 0,
            spent: [0; SPENTS],
            task: NONE,
            spins: false,
            slow: ALONE,
            queue: VecDeque::new(),
            slice_start: 0,
            resched: false,
            lines: [0; LEVELS],
            last_line: 0,
            event_seen: false,
            freed: false,
            place,
        }
    }

    /// Returns how long it takes for instructions that take `ps` on an otherwise idle core.
    #[inline]
    pub(crate) fn own(&self, ps: u64) -> u64 {
        match self.slow {
            ALONE => ps,
            slow => ps * slow / ALONE,
        }
    }
}
