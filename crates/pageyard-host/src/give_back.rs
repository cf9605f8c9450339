//! When idle memory goes back to the system: what has lain free for a while, and no more than the
//! load is likely to want again. Pure arithmetic; the worker asks it and does it.
//!
//! All is counted in pages. `resident` is what the system backs, as far as the allocator knows: all
//! of its memory but what it gave back and nobody fetched since. The target is the most that was in
//! use at any time during the last [`after`](GiveBack::after), an eighth more, and never below the
//! [`floor`](GiveBack::floor); what is resident above it goes back, at [`rate`](GiveBack::rate) at
//! most. The allocator keeps account of peaks between two looks. Where the load fetches back what was
//! given all the same, for blocks of a size or type that is not left, that raises the target by as much.
//!
//! Requests use the smallest blocks that will do. So while use goes up and down, only the largest
//! blocks go: what is left is used before them.

use std::collections::VecDeque;
use std::time::Duration;

use pageyard::{PAGE_SIZE, PAGEBLOCK_PAGES};

/// How idle memory is given back to the system ([`Builder::give_back`](crate::Builder::give_back)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GiveBack {
    /// Memory that was in use within this time stays. Default: one second.
    pub after: Duration,
    /// So many bytes stay resident in any case. Default: 0.
    pub floor: u64,
    /// So many bytes a second at most; `None`, the default: the whole yard in a quarter of a second.
    pub rate: Option<u64>,
    /// `MADV_FREE` instead of `MADV_DONTNEED`: the system takes the pages when it needs them, and
    /// until then they count as resident. A page that it has not taken yet costs no fault when it is
    /// handed out again, but one write, which takes it back; pages are not known to be zeros any more.
    /// Only for [`Backing::Anonymous`](crate::Backing::Anonymous) memory.
    pub lazily: bool,
}

impl Default for GiveBack {
    fn default() -> Self {
        GiveBack { after: Duration::from_secs(1), floor: 0, rate: None, lazily: false }
    }
}

/// What a yard looks like at one moment, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) now: u64,
    /// Not free, and not on a per-CPU list.
    pub(crate) used: u64,
    /// The most that was not free at once since the last look.
    pub(crate) peak: u64,
    /// All but what was given back and lies there still.
    pub(crate) resident: u64,
    /// Free, in blocks large enough to be given back, and not given back.
    pub(crate) waiting: u64,
    /// Given back and taken again by requests, ever since.
    pub(crate) retaken: u64,
}

/// The state of it.
#[derive(Debug)]
pub(crate) struct Idle {
    after: u64,
    floor: u64,
    /// Pages a second.
    rate: u64,
    /// Times and uses, with falling uses: the first one is the peak.
    peaks: VecDeque<(u64, u64)>,
    target: u64,
    /// What was in use when that last changed much, and when it did.
    level: (u64, u64),
    retaken: u64,
    /// When the rate was last charged, and what it still allows.
    charged: u64,
    credit: u64,
}

impl Idle {
    /// For a yard of so many pages.
    pub(crate) fn new(how: &GiveBack, pages: u64, now: u64) -> Idle {
        let rate = how.rate.map_or(pages.saturating_mul(4), |r| r / PAGE_SIZE);
        Idle {
            after: u64::try_from(how.after.as_nanos()).unwrap_or(u64::MAX),
            floor: how.floor.div_ceil(PAGE_SIZE),
            rate: rate.max(1),
            // What it will need, nobody knows yet.
            peaks: VecDeque::from([(now, pages)]),
            target: pages,
            level: (0, now),
            retaken: 0,
            charged: now,
            credit: 0,
        }
    }

    /// How many pages to give back now. Under `pressure` recent use does not count, the floor does.
    pub(crate) fn step(&mut self, s: &Sample, pressure: bool) -> u64 {
        let fetched = s.retaken.saturating_sub(self.retaken);
        self.retaken = s.retaken;
        let block = u64::from(PAGEBLOCK_PAGES);
        if s.used.abs_diff(self.level.0) > self.level.0 / 16 + block {
            self.level = (s.used, s.now);
        }
        let mut use_ = s.peak;
        if fetched > 0 {
            // Since the last look more was wanted than was left.
            use_ = use_.max(self.target.saturating_add(fetched).min(s.resident));
        }
        while self.peaks.back().is_some_and(|&(_, u)| u <= use_) {
            self.peaks.pop_back();
        }
        self.peaks.push_back((s.now, use_));
        while self.peaks.front().is_some_and(|&(t, _)| s.now.saturating_sub(t) > self.after) {
            self.peaks.pop_front();
        }
        let peak = self.peaks.front().map_or(use_, |&(_, u)| u);
        let wanted = if pressure { s.used } else { peak + peak / 8 };
        self.target = wanted.max(self.floor);

        let second = 1_000_000_000;
        let passed = u128::from(s.now.saturating_sub(self.charged).min(second));
        self.charged = s.now;
        let earned = (passed * u128::from(self.rate) / u128::from(second)) as u64;
        // What is not used is not saved for a burst.
        self.credit = self.credit.saturating_add(earned).min(self.rate / 4 + 1);
        let spare = s.resident.saturating_sub(self.target).min(s.waiting);
        // Peaks differ a little from second to second.
        if spare < block + peak / 64 { 0 } else { spare.min(self.credit) }
    }

    /// So many pages were given.
    pub(crate) fn given(&mut self, pages: u64) {
        self.credit = self.credit.saturating_sub(pages);
    }

    /// Whether use has been about the same for a while: all that is free is idle.
    pub(crate) fn is_quiet(&self) -> bool {
        self.charged.saturating_sub(self.level.1) >= self.after
    }

    /// What is to stay resident.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PAGES: u64 = 1 << 18;

    /// A yard and a load, and a worker that looks every 100 ms.
    struct Yard {
        idle: Idle,
        now: u64,
        used: u64,
        peak: u64,
        resident: u64,
        retaken: u64,
    }

    impl Yard {
        fn new(how: GiveBack) -> Yard {
            let idle = Idle::new(&how, PAGES, 0);
            Yard { idle, now: 0, used: 0, peak: 0, resident: PAGES, retaken: 0 }
        }

        fn use_(&mut self, pages: u64) {
            self.used = pages;
            self.peak = self.peak.max(pages);
            let fetched = pages.saturating_sub(self.resident);
            self.retaken += fetched;
            self.resident += fetched;
        }

        fn look(&mut self, pressure: bool) -> u64 {
            self.now += SECOND / 10;
            let s = Sample {
                now: self.now,
                used: self.used,
                peak: std::mem::replace(&mut self.peak, self.used),
                resident: self.resident,
                waiting: self.resident - self.used,
                retaken: self.retaken,
            };
            let back = self.idle.step(&s, pressure);
            self.idle.given(back);
            self.resident -= back;
            back
        }
    }

    #[test]
    fn all_of_it_is_back_within_two_seconds() {
        let mut y = Yard::new(GiveBack::default());
        y.use_(PAGES);
        (0..50).for_each(|_| assert_eq!(y.look(false), 0));
        y.use_(0);
        (0..9).for_each(|_| assert_eq!(y.look(false), 0, "it was in use a moment ago"));
        (0..11).for_each(|_| _ = y.look(false));
        assert_eq!(y.resident, 0);
    }

    #[test]
    fn a_steady_load_fetches_nothing_back() {
        let mut y = Yard::new(GiveBack::default());
        for i in 0..1000u64 {
            y.use_(100_000 + i * 7919 % 50_000);
            y.look(false);
        }
        assert_eq!(y.retaken, 0);
        assert!(y.resident < 170_000, "{}", y.resident);
    }

    #[test]
    fn peaks_between_looks_count() {
        let mut y = Yard::new(GiveBack::default());
        for _ in 0..1000 {
            y.use_(200_000);
            y.use_(1000);
            y.look(false);
        }
        assert_eq!(y.retaken, 0);
    }

    #[test]
    fn what_is_fetched_back_all_the_same_raises_the_target() {
        let mut y = Yard::new(GiveBack::default());
        let mut rounds = 0;
        for _ in 0..1000 {
            // Of a kind that is not left: nothing in use says so.
            let before = y.retaken;
            y.use_(200_000);
            rounds += u64::from(y.retaken > before);
            y.use_(1000);
            y.peak = 1000;
            y.look(false);
        }
        assert!(rounds <= 100, "once for each time that the peak is forgotten: {rounds}");
    }

    #[test]
    fn quiet_is_what_changes_little() {
        let mut y = Yard::new(GiveBack::default());
        let mut look = |pages| {
            y.use_(pages);
            y.look(false);
            y.idle.is_quiet()
        };
        assert!((0..40).all(|i| !look(50_000 + i % 2 * 10_000)));
        let quiet = (0..40).map(|i| look(50_000 + i % 2 * 1000)).position(|q| q);
        assert!((9..=11).contains(&quiet.unwrap()));
        assert!(look(51_000) && !look(60_000));
    }

    #[test]
    fn the_rate_and_the_floor_hold() {
        let rate = Some(10 << 20);
        let mut y = Yard::new(GiveBack { rate, floor: 512 << 20, ..GiveBack::default() });
        let mut most = 0;
        (0..200).for_each(|_| most = most.max(y.look(false)));
        assert!(0 < most && most <= (10 << 20) / PAGE_SIZE / 4 + 1, "{most}");
        assert!(y.resident >= PAGES - 20 * 2560, "20 seconds of 10 MiB: {}", y.resident);
        (0..2000).for_each(|_| _ = y.look(true));
        assert!((1 << 17..(1 << 17) + 512).contains(&y.resident), "{}", y.resident);
    }

    #[test]
    fn under_pressure_recent_use_does_not_count() {
        let mut y = Yard::new(GiveBack::default());
        y.use_(PAGES);
        (0..20).for_each(|_| _ = y.look(false));
        y.use_(1000);
        assert!(y.look(true) > 0);
        (0..4).for_each(|_| _ = y.look(true));
        assert!(y.resident < 1000 + 512, "{}", y.resident);
    }

    /// What a yard of 2^18 pages that are all backed gives at a look that comes when the pages in use at
    /// its start are forgotten, for this peak and so many pages in use and backed; and its target.
    fn given(peak: u64, used: u64, resident: u64, pressure: bool) -> (u64, u64) {
        let mut idle = Idle::new(&GiveBack::default(), PAGES, 0);
        let s = Sample { now: 2 * SECOND, used, peak, resident, waiting: PAGES, retaken: 0 };
        (idle.step(&s, pressure), idle.target())
    }

    #[test]
    fn the_target_is_the_peak_and_an_eighth() {
        assert_eq!(given(6400, 100, PAGES, false).1, 7200);
        assert_eq!(given(6400, 100, PAGES, true).1, 100, "under pressure, what is in use");
    }

    #[test]
    fn less_than_a_pageblock_and_a_64th_of_the_peak_stays() {
        let least = 512 + 100;
        assert_eq!(given(6400, 100, 7200 + least - 1, false).0, 0);
        assert_eq!(given(6400, 100, 7200 + least, false).0, least);
        // The peak counts, whatever the target is.
        assert_eq!(given(6400, 100, 100 + least - 1, true).0, 0);
        assert_eq!(given(6400, 100, 100 + least, true).0, least);
    }

    #[test]
    fn a_change_of_a_16th_and_a_pageblock_ends_quiet() {
        let quiet_after = |change: u64| {
            let mut idle = Idle::new(&GiveBack::default(), PAGES, 0);
            let mut look = |now, used| {
                idle.step(&Sample { now, used, peak: used, ..Sample::default() }, false);
                idle.is_quiet()
            };
            assert!(!look(SECOND, 16_000) && look(2 * SECOND, 16_000));
            look(2 * SECOND, 16_000 + change)
        };
        assert!(quiet_after(1000 + 512));
        assert!(!quiet_after(1000 + 512 + 1));
    }
}
