//! Times of zone locks on this host, by thread.

use std::cell::{Cell, RefCell};

use pageyard::{CpuId, Defences, Event, Observer, Platform, Reclaim};
use pageyard_host::Watch;

use super::super::metrics::{Holds, Seen};

/// How long threads waited for and held zone locks, and how long they ran.
#[derive(Default, Debug)]
pub(super) struct Times {
    /// Holds in which blocks left a zone, and holds in which blocks returned.
    alloc_holds: Holds,
    free_holds: Holds,
    /// Nanoseconds of waiting, and how many of them threads slept.
    waited: u64,
    slept: u64,
    /// CPU time of the threads in nanoseconds.
    pub(super) busy: u64,
    /// The total duration.
    pub(super) elapsed: u64,
}

thread_local! {
    static TIMES: RefCell<Times> = RefCell::default();
    /// Whether the allocator has reported a block since the last release of a zone lock, and
    /// whether that block went to the zone.
    static EVENT_SEEN: Cell<bool> = const { Cell::new(false) };
    static FREED: Cell<bool> = const { Cell::new(false) };
}

/// Takes this thread's times and resets them.
pub(super) fn take() -> Times {
    TIMES.take()
}

impl Times {
    pub(super) fn add(&mut self, other: &Times) {
        for (mine, theirs) in
            [(&mut self.alloc_holds, &other.alloc_holds), (&mut self.free_holds, &other.free_holds)]
        {
            mine.0.merge(&theirs.0);
            mine.1 += theirs.1;
        }
        self.waited += other.waited;
        self.slept += other.slept;
        self.busy += other.busy;
    }
}

impl Seen for Times {
    fn elapsed_ns(&self) -> u64 {
        self.elapsed
    }

    /// Differs from the duration: on a host that others share, the CPU time is less.
    fn busy_ns(&self) -> Option<u64> {
        Some(self.busy)
    }

    /// Relative to the time for which threads ran or slept for a lock.
    fn zone_lock(&self) -> f64 {
        100.0 * self.waited as f64 / (self.busy + self.slept).max(1) as f64
    }

    fn miss(&self) -> Option<Option<f64>> {
        None
    }

    fn alloc_holds(&self) -> Holds {
        self.alloc_holds.clone()
    }

    fn free_holds(&self) -> Holds {
        self.free_holds.clone()
    }
}

/// Observes zone locks.
#[derive(Debug)]
pub(super) struct ZoneLocks;

impl Watch for ZoneLocks {
    fn waited(ns: u64, slept: u64) {
        TIMES.with_borrow_mut(|t| {
            t.waited += ns;
            t.slept += slept;
        });
    }

    fn held(ns: u64) {
        // A block freed directly to the zone, past the per-CPU lists, produces no event.
        let freed = !EVENT_SEEN.replace(false) || FREED.get();
        FREED.set(false);
        TIMES.with_borrow_mut(|t| {
            let (holds, sum) = if freed { &mut t.free_holds } else { &mut t.alloc_holds };
            holds.note(ns);
            *sum += ns * 1000;
        });
    }
}

/// Observes the events that happen under zone locks.
#[derive(Debug)]
pub(super) struct Moves;

impl Platform for Moves {}
impl Reclaim for Moves {}

impl Observer for Moves {
    #[inline]
    fn event(&self, _: CpuId, event: Event) {
        match event {
            Event::ZoneLocked { .. } => EVENT_SEEN.set(true),
            Event::Drain { .. } => {
                EVENT_SEEN.set(true);
                FREED.set(true);
            }
            _ => {}
        }
    }
}

impl Defences for Moves {}
