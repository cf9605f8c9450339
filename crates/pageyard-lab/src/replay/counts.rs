//! Counters, used alike for the recording and for a policy.

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Pages moved between the zones' free lists and the per-CPU lists, and the zone lock holds in
/// which they moved. Pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that refills took from the zone.
    pub refill_pages: u64,
    /// Zone lock holds of refills.
    pub refill_holds: u64,
    /// Pages drained from the lists.
    pub drain_pages: u64,
    /// Zone lock holds of drains.
    pub drain_holds: u64,
    /// Whether they move without the zone lock, as on the packed engine. The holds are then null in
    /// JSON, since 0 would be the best of all results.
    pub lockless: bool,
}

impl Serialize for Moved {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let holds = |n| (!self.lockless).then_some(n);
        let mut moved = to.serialize_struct("Moved", 4)?;
        moved.serialize_field("refill_pages", &self.refill_pages)?;
        moved.serialize_field("refill_holds", &holds(self.refill_holds))?;
        moved.serialize_field("drain_pages", &self.drain_pages)?;
        moved.serialize_field("drain_holds", &holds(self.drain_holds))?;
        moved.end()
    }
}

impl Moved {
    /// Returns the pages per hold of the zone lock, refills and drains together; `None` without
    /// holds.
    pub fn pages_per_hold(&self) -> Option<f64> {
        let holds = self.refill_holds + self.drain_holds;
        (holds > 0).then(|| (self.refill_pages + self.drain_pages) as f64 / holds as f64)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Last {
    Other,
    Refill,
    Drain,
}

/// Counts [`Moved`] from events. A trace does not show where a hold ends. So a CPU's successive
/// refills (or drains) without a request or free in between count as one hold.
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

    /// Notes a request or a free on that CPU.
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
    /// Accounts for the time up to `t_ns`, in which there were `now` pages.
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

    /// Returns the maximum and the mean over time. `start` is the initial number of pages if `now`
    /// counts from 0.
    pub(super) fn figures(&self, start: i64) -> (u64, f64) {
        let time = self.since_ns - self.from_ns.unwrap_or(self.since_ns);
        let mean = if time == 0 { self.now as f64 } else { self.sum as f64 / time as f64 };
        ((self.most.max(self.now) + start).max(0) as u64, (mean + start as f64).max(0.0))
    }
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
        let want = Moved {
            refill_pages: 18,
            refill_holds: 3,
            drain_pages: 5,
            drain_holds: 2,
            lockless: false,
        };
        assert_eq!(h.moved, want);
        assert_eq!(h.moved.pages_per_hold(), Some(23.0 / 5.0));
        assert_eq!(Moved::default().pages_per_hold(), None);
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
