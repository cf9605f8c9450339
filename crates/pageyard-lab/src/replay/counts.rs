//! What is counted, alike for the recording and for a policy.

use serde::Serialize;

/// Pages that moved between the zones' free lists and the per-CPU lists, and the holds of the zone
/// lock in which they did. Pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Pages that refills took from the zone.
    pub refill_pages: u64,
    /// Holds in which they did.
    pub refill_holds: u64,
    /// Pages that the lists gave back.
    pub drain_pages: u64,
    /// Holds in which they did.
    pub drain_holds: u64,
}

impl Moved {
    /// Pages per hold of the zone lock, refills and drains together.
    pub fn pages_per_hold(&self) -> f64 {
        let holds = self.refill_holds + self.drain_holds;
        (self.refill_pages + self.drain_pages) as f64 / holds.max(1) as f64
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Last {
    Other,
    Refill,
    Drain,
}

/// Counts [`Moved`] from events. Refills or drains of a CPU that follow each other without a
/// request or free between them count as one hold: a trace does not show where a hold ends.
pub(super) struct Holds {
    last: Vec<Last>,
    pub(super) moved: Moved,
}

impl Holds {
    pub(super) fn new(cpus: usize) -> Holds {
        Holds { last: vec![Last::Other; cpus], moved: Moved::default() }
    }

    #[inline(always)]
    pub(super) fn refill(&mut self, cpu: usize, pages: u64) {
        self.moved.refill_pages += pages;
        if self.last[cpu] != Last::Refill {
            self.moved.refill_holds += 1;
            self.last[cpu] = Last::Refill;
        }
    }

    #[inline(always)]
    pub(super) fn drain(&mut self, cpu: usize, pages: u64) {
        self.moved.drain_pages += pages;
        if self.last[cpu] != Last::Drain {
            self.moved.drain_holds += 1;
            self.last[cpu] = Last::Drain;
        }
    }

    /// A request or a free on that CPU.
    #[inline(always)]
    pub(super) fn other(&mut self, cpu: usize) {
        self.last[cpu] = Last::Other;
    }
}

/// Pages idle in per-CPU lists over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    pub(super) now: i64,
    most: i64,
    /// Pages times nanoseconds.
    sum: i128,
    since_ns: u64,
    from_ns: Option<u64>,
}

impl Idle {
    /// Up to this moment they were as many as `now` says.
    #[inline(always)]
    pub(super) fn until(&mut self, t_ns: u64) {
        if self.from_ns.is_none() {
            self.from_ns = Some(t_ns);
            self.since_ns = t_ns;
            self.most = self.now;
        }
        self.most = self.most.max(self.now);
        if t_ns > self.since_ns {
            self.sum += i128::from(self.now) * i128::from(t_ns - self.since_ns);
            self.since_ns = t_ns;
        }
    }

    /// The most there were, and the mean over time; `start` is how many there were at first, where
    /// `now` counts from 0.
    pub(super) fn figures(&self, start: i64) -> (u64, f64) {
        let time = self.since_ns - self.from_ns.unwrap_or(self.since_ns);
        let mean = if time == 0 { self.now as f64 } else { self.sum as f64 / time as f64 };
        ((self.most.max(self.now) + start).max(0) as u64, (mean + start as f64).max(0.0))
    }
}

/// What the kernel itself recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recorded {
    pub(super) alloc_blocks: u64,
    pub(super) alloc_pages: u64,
    pub(super) free_blocks: u64,
    pub(super) free_pages: u64,
    pub(super) failed: u64,
    pub(super) zone_pages: u64,
    pub(super) claims: u64,
    pub(super) steals: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_end_at_requests_and_frees() {
        let mut h = Holds::new(2);
        h.refill(0, 1);
        h.refill(0, 1);
        h.refill(1, 8);
        h.drain(0, 2);
        h.drain(0, 2);
        h.other(0);
        h.drain(0, 1);
        h.other(1);
        h.refill(1, 8);
        let want = Moved { refill_pages: 18, refill_holds: 3, drain_pages: 5, drain_holds: 2 };
        assert_eq!(h.moved, want);
        assert_eq!(h.moved.pages_per_hold(), 23.0 / 5.0);
    }

    #[test]
    fn mean_over_time() {
        let mut i = Idle { now: 4, ..Idle::default() };
        i.until(100);
        i.now = 10;
        i.until(200);
        i.now = 0;
        i.until(300);
        assert_eq!(i.figures(0), (10, 5.0));
        assert_eq!(i.figures(7), (17, 12.0));
    }
}
