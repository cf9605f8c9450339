//! A channel moves lines at a bounded rate: a node's memory, or a link between two sockets.
//!
//! Demand queues up, and the queue drains as time passes. A line or a page is requested at once. A
//! task's own work requests bytes evenly while it lasts. This is recorded as two changes of a rate,
//! so work of any length costs the host the same. A rate changes only at the start of a window of
//! about a microsecond.

/// Binary logarithm of a window's length in picoseconds.
const WINDOW: u32 = 20;
/// How many windows ahead changes of the rate can be recorded.
const AHEAD: u64 = 512;
/// The longest work, in picoseconds, that is requested in one part. With contention it may last
/// several times as long.
pub(crate) const PART: u64 = (AHEAD / 8) << WINDOW;

#[derive(Debug)]
pub(crate) struct Channel {
    /// Picoseconds to move a line.
    pub(crate) line: u64,
    /// The time up to which the channel is accounted for.
    at: u64,
    /// The queue at that time, in picoseconds of moving.
    queued: u64,
    /// The demand of work in the current window.
    rate: i64,
    /// Changes of the rate at the start of later windows.
    changes: Box<[i64]>,
    /// The last window with a change.
    last: u64,
}

impl Channel {
    /// Creates a channel with this bandwidth in bytes per second.
    pub(crate) fn new(bandwidth: u64) -> Channel {
        Channel {
            // Rounded up, so that no channel is faster than its bandwidth.
            line: (crate::cache::LINE * 1_000_000_000_000).div_ceil(bandwidth.max(1)),
            at: 0,
            queued: 0,
            rate: 0,
            changes: vec![0; AHEAD as usize].into(),
            last: 0,
        }
    }

    /// Returns how long a request made at `now` waits. CPUs are not exactly in order: a CPU that is
    /// slightly behind sees the queue left by those before it.
    #[inline]
    pub(crate) fn queued(&mut self, now: u64) -> u64 {
        while self.at < now {
            let window = self.at >> WINDOW;
            if self.rate == 0 && window >= self.last {
                self.queued = self.queued.saturating_sub(now - self.at);
                self.at = now;
                break;
            }
            let end = (window + 1) << WINDOW;
            let until = end.min(now);
            let passed = until - self.at;
            let asked = (self.rate as u64 * passed) >> WINDOW;
            self.queued = (self.queued + asked).saturating_sub(passed);
            self.at = until;
            if until == end {
                let change = &mut self.changes[((window + 1) % AHEAD) as usize];
                self.rate += std::mem::take(change);
            }
        }
        self.queued
    }

    /// Requests `lines` lines now, after a call of [`queued`](Channel::queued).
    #[inline]
    pub(crate) fn request(&mut self, lines: u64) {
        self.queued += lines * self.line;
    }

    /// Requests `bytes` bytes evenly over `lasts` picoseconds from `now` on.
    pub(crate) fn request_evenly(&mut self, now: u64, lasts: u64, bytes: u64) {
        self.queued(now);
        let time =
            (u128::from(bytes) * u128::from(self.line) / u128::from(crate::cache::LINE)) as u64;
        let first = (now.max(self.at) >> WINDOW) + 1;
        let windows = (lasts >> WINDOW).min(AHEAD - 2);
        let each = time.checked_div(windows).unwrap_or(0);
        self.queued += time - each * windows;
        if each > 0 {
            self.changes[(first % AHEAD) as usize] += each as i64;
            self.changes[((first + windows) % AHEAD) as usize] -= each as i64;
            self.last = self.last.max(first + windows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line takes 1,000 ps.
    fn channel() -> Channel {
        Channel::new(64_000_000_000)
    }

    #[test]
    fn lines_are_queued() {
        let mut c = channel();
        assert_eq!((c.line, c.queued(5_000)), (1000, 0));
        c.request(10);
        assert_eq!(c.queued(5_000), 10_000);
        assert_eq!(c.queued(12_000), 3_000);
        c.request(1);
        assert_eq!(c.queued(11_000), 4_000, "late, like those before it");
        assert_eq!(c.queued(1 << 50), 0);
    }

    #[test]
    fn work_requests_bandwidth_evenly() {
        const W: u64 = 1 << WINDOW;
        let mut c = channel();
        // Twice the bandwidth: 20 windows of moving within 10.
        c.request_evenly(0, 10 * W, 20 * W * 64 / 1000);
        assert_eq!(c.queued(W), 0, "from the next window on");
        let near = |queued: u64, windows: u64| queued.abs_diff(windows * W) < 2_000;
        let half = c.queued(6 * W);
        assert!(near(half, 5), "{half}");
        let all = c.queued(11 * W);
        assert!(near(all, 10), "{all}");
        let rest = c.queued(15 * W);
        assert!(near(rest, 6), "{rest}");
        assert_eq!(c.queued(22 * W), 0);
        assert_eq!(c.rate, 0);
        // Half the bandwidth, twice: no queue.
        for _ in 0..2 {
            c.request_evenly(30 * W, 100 * W, 50 * W * 64 / 1000);
        }
        assert_eq!(c.queued(80 * W), 0);
        // A third one exceeds the bandwidth: 1.5 windows of moving per window, for 50 more.
        c.request_evenly(80 * W, 50 * W, 25 * W * 64 / 1000);
        let late = c.queued(131 * W);
        assert!(near(late, 25), "{late}");
    }
}
