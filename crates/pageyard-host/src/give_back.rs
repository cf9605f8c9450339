//! When idle memory is returned to the system: memory that has been free for a while, and that the
//! load is unlikely to need soon. Pure arithmetic; the worker calls it and does the work.
//!
//! All quantities are in pages. `resident` is what the system backs, as far as the allocator knows:
//! all memory except what was returned and not taken again since. The target is the peak use during
//! the last [`after`](GiveBack::after) plus an eighth, and at least the [`floor`](GiveBack::floor).
//! Memory resident above the target is returned in blocks of up to 4 MiB, at most at
//! [`rate`](GiveBack::rate): a block that exceeds what the rate allows is followed by a pause that
//! makes up for it. The allocator records peaks between two steps. If the load still takes returned
//! memory again, because no block of that size or type is left, the target rises by as much.
//!
//! With [`least`](GiveBack::least) below 2 MiB, `resident` is counted: the pages that were allocated
//! since the system provided them. All of these that are not in use may be returned, once use is
//! about constant: first whole pageblocks, then free pieces of others.
//!
//! Requests use the smallest blocks that fit. So while use goes up and down, only the largest
//! blocks are returned: requests use the smaller ones first.

use std::collections::VecDeque;
use std::time::Duration;

use pageyard::{MAX_ORDER, Order, PAGE_SIZE, PAGEBLOCK_PAGES};

/// Pages of the largest block that is returned at once.
const LARGEST: u64 = 1 << MAX_ORDER;

const SECOND: u64 = 1_000_000_000;

/// How idle memory is returned to the system ([`Builder::give_back`](crate::Builder::give_back)).
///
/// ```
/// use std::time::Duration;
/// use pageyard_host::{Builder, GiveBack};
///
/// // Idle memory is returned after a minute, but the first 8 MiB stay.
/// let how = GiveBack { after: Duration::from_secs(60), floor: 8 << 20, ..GiveBack::default() };
/// let yard = Builder::new(16 << 20).give_back(Some(how)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GiveBack {
    /// Memory that was in use within this time stays resident. Default: one second.
    pub after: Duration,
    /// Bytes that stay resident in any case. Default: 0.
    pub floor: u64,
    /// Maximum rate in bytes per second, on average: memory is returned in blocks of up to 4 MiB.
    /// `None`, the default: the whole yard in a quarter of a second.
    pub rate: Option<u64>,
    /// Uses `MADV_FREE` instead of `MADV_DONTNEED`. The system takes the pages when it needs them,
    /// and until then they count as resident. Allocating a page that it has not taken yet costs one
    /// write, which keeps the page, instead of a fault. Pages are no longer known to be zero. Only
    /// for [`Backing::Anonymous`](crate::Backing::Anonymous) memory.
    pub lazily: bool,
    /// Smallest blocks that are returned, at most 2 MiB, the default. With smaller ones, free memory is
    /// returned also from pageblocks of which a few pages stay in use, as in a buffer pool that keeps
    /// some frames of many; the next touch of each page then faults. While use changes, the worker
    /// searches for such memory for up to 2 ms of each step.
    ///
    /// Only for [`Backing::Anonymous`](crate::Backing::Anonymous) memory with
    /// [`HugePages::Never`](crate::HugePages::Never), or with
    /// [`HugePages::System`](crate::HugePages::System) on a system that makes huge pages where it is
    /// advised to alone: where it makes them by itself, it fetches back what was returned around the pages in
    /// use. [Prefaulted](crate::Builder::prefault) memory is not known to be zero then.
    pub least: Order,
}

impl Default for GiveBack {
    fn default() -> Self {
        let after = Duration::from_secs(1);
        GiveBack { after, floor: 0, rate: None, lazily: false, least: Order::HUGE }
    }
}

impl GiveBack {
    /// Returns whether free pieces of pageblocks are returned.
    pub(crate) fn returns_pieces(&self) -> bool {
        self.least < Order::HUGE
    }
}

/// State of a yard at one moment, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) now: u64,
    /// Neither free nor on a per-CPU list.
    pub(crate) used: u64,
    /// Peak of pages not free, since the last step.
    pub(crate) peak: u64,
    /// All pages except those returned to the system and not taken again; where pieces are returned, those
    /// that were in use since the system provided them.
    pub(crate) resident: u64,
    /// Free in blocks large enough to return, and not returned.
    pub(crate) waiting: u64,
    /// Returned and then taken again by requests, since the yard began; where pieces are returned, without
    /// what growth took.
    pub(crate) retaken: u64,
}

/// State of the calculation.
#[derive(Debug)]
pub(crate) struct Idle {
    after: u64,
    floor: u64,
    /// Pages per second.
    rate: u64,
    /// Times and uses, with falling uses: the first one is the peak.
    peaks: VecDeque<(u64, u64)>,
    target: u64,
    /// Use when it last changed much, and the time of that.
    level: (u64, u64),
    retaken: u64,
    /// Time of the last credit update, and pages that the rate still allows, in pages times
    /// nanoseconds per second. Below 0 after a block that was larger.
    charged: u64,
    credit: i128,
}

impl Idle {
    /// Creates the state for a yard of `pages` pages.
    pub(crate) fn new(how: &GiveBack, pages: u64, now: u64) -> Idle {
        let rate = how.rate.map_or(pages.saturating_mul(4), |r| r / PAGE_SIZE);
        Idle {
            after: u64::try_from(how.after.as_nanos()).unwrap_or(u64::MAX),
            floor: how.floor.div_ceil(PAGE_SIZE),
            rate: rate.max(1),
            // Future use is not known yet, so assume all of it.
            peaks: VecDeque::from([(now, pages)]),
            target: pages,
            level: (0, now),
            retaken: 0,
            charged: now,
            credit: 0,
        }
    }

    /// Returns how many pages to return now, a multiple of the largest block's. Under `pressure`
    /// recent use does not count, but the floor does.
    pub(crate) fn step(&mut self, s: &Sample, pressure: bool) -> u64 {
        let fetched = s.retaken.saturating_sub(self.retaken);
        self.retaken = s.retaken;
        let block = u64::from(PAGEBLOCK_PAGES);
        if s.used.abs_diff(self.level.0) > self.level.0 / 16 + block {
            self.level = (s.used, s.now);
        }
        let mut use_ = s.peak;
        if fetched > 0 {
            // Since the last step, requests took more than was left resident.
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

        let passed = s.now.saturating_sub(self.charged).min(SECOND);
        self.charged = s.now;
        // Limit the credit, so that unused credit does not allow a burst.
        let most = i128::from(self.rate / 4 + 1) * i128::from(SECOND);
        self.credit = (self.credit + i128::from(passed) * i128::from(self.rate)).min(most);
        let allowed = u64::try_from(self.credit / i128::from(SECOND)).unwrap_or(0);
        let spare = s.resident.saturating_sub(self.target).min(s.waiting);
        // Peaks vary slightly from second to second.
        if spare < block + peak / 64 {
            return 0;
        }
        whole_blocks(spare).min(allowed.next_multiple_of(LARGEST))
    }

    /// Records that `pages` pages were returned.
    pub(crate) fn record_returned(&mut self, pages: u64) {
        self.credit -= i128::from(pages) * i128::from(SECOND);
    }

    /// Returns whether use has been about constant for a while, so that all free memory is idle.
    pub(crate) fn is_quiet(&self) -> bool {
        self.charged.saturating_sub(self.level.1) >= self.after
    }

    /// Returns how many pages are to stay resident.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }
}

/// Returns the pages of as many of the largest blocks as these pages hold.
pub(crate) fn whole_blocks(pages: u64) -> u64 {
    pages / LARGEST * LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 1 << 18;

    /// A yard, a load, and a worker that runs a step every 100 ms.
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
            self.idle.record_returned(back);
            self.resident -= back;
            back
        }
    }

    #[test]
    fn idle_memory_is_returned_within_two_seconds() {
        let mut y = Yard::new(GiveBack::default());
        y.use_(PAGES);
        (0..50).for_each(|_| assert_eq!(y.look(false), 0));
        y.use_(0);
        (0..9).for_each(|_| assert_eq!(y.look(false), 0, "it was in use a moment ago"));
        (0..11).for_each(|_| _ = y.look(false));
        assert_eq!(y.resident, 0);
    }

    #[test]
    fn a_steady_load_refaults_no_memory() {
        let mut y = Yard::new(GiveBack::default());
        for i in 0..1000u64 {
            y.use_(100_000 + i * 7919 % 50_000);
            y.look(false);
        }
        assert_eq!(y.retaken, 0);
        assert!(y.resident < 170_000, "{}", y.resident);
    }

    #[test]
    fn peaks_between_samples_count() {
        let mut y = Yard::new(GiveBack::default());
        for _ in 0..1000 {
            y.use_(200_000);
            y.use_(1000);
            y.look(false);
        }
        assert_eq!(y.retaken, 0);
    }

    #[test]
    fn refaulted_memory_raises_the_target() {
        let mut y = Yard::new(GiveBack::default());
        let mut rounds = 0;
        for _ in 0..1000 {
            // Memory of a kind that is not left; the pages in use do not show it.
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
    fn small_changes_count_as_quiet() {
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
        assert_eq!(most, LARGEST, "a block, for a quarter of a second at most");
        assert!(y.resident >= PAGES - 20 * 2560, "20 seconds of 10 MiB: {}", y.resident);
        (0..2000).for_each(|_| _ = y.look(true));
        assert_eq!(y.resident, 1 << 17);
    }

    #[test]
    fn recent_peaks_are_ignored_under_pressure() {
        let mut y = Yard::new(GiveBack::default());
        y.use_(PAGES);
        (0..20).for_each(|_| _ = y.look(false));
        y.use_(1000);
        assert!(y.look(true) > 0);
        (0..4).for_each(|_| _ = y.look(true));
        assert!(y.resident < 1000 + 512, "{}", y.resident);
    }

    /// Runs one step on a yard of 2^18 pages, when its initial use is forgotten, with this peak and
    /// these pages in use and resident. Returns the pages to return, and the target.
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
    fn a_peak_counts_until_it_is_older_than_the_time() {
        let target_at = |now| {
            let mut idle = Idle::new(&GiveBack::default(), PAGES, 0);
            idle.step(&Sample { now, ..Sample::default() }, false);
            idle.target()
        };
        assert_eq!(target_at(SECOND), PAGES + PAGES / 8);
        assert_eq!(target_at(SECOND + 1), 0);
    }

    /// At 16 pages a second, a block of 1024 pages may be returned every 64 seconds.
    #[test]
    fn a_block_is_followed_by_as_long_a_pause_as_the_rate_takes_for_it() {
        let rate = Some(16 * PAGE_SIZE);
        let mut idle = Idle::new(&GiveBack { rate, ..GiveBack::default() }, PAGES, 0);
        let mut returned = Vec::new();
        // Also of steps that are too short for a page.
        for now in (0..200 * SECOND).step_by(SECOND as usize / 20) {
            let s = Sample { now, resident: PAGES, waiting: PAGES, ..Sample::default() };
            let pages = idle.step(&s, false);
            if pages > 0 {
                assert_eq!(pages, LARGEST);
                idle.record_returned(pages);
                returned.push(now / SECOND);
            }
        }
        assert_eq!(returned, [1, 64, 128, 192], "five pages may be saved up");
    }

    #[test]
    fn the_lowest_rate_is_a_page_per_second() {
        let rate = Some(1);
        let mut idle = Idle::new(&GiveBack { rate, ..GiveBack::default() }, PAGES, 0);
        let mut step = |now| {
            let s = Sample { now, resident: PAGES, waiting: PAGES, ..Sample::default() };
            let pages = idle.step(&s, false);
            idle.record_returned(pages);
            pages
        };
        assert_eq!(step(SECOND), 0, "all of it was in use a second ago");
        assert_eq!(step(SECOND + 1), LARGEST);
        assert!((2..1026).all(|n| step(n * SECOND) == 0));
        assert_eq!(step(1026 * SECOND), LARGEST);
    }

    #[test]
    fn no_block_is_returned_that_exceeds_what_is_spare() {
        for (spare, back) in [(1023, 0), (1024, 1024), (2047, 1024), (2048, 2048)] {
            assert_eq!(given(100, 100, 112 + spare, false).0, back);
        }
    }

    #[test]
    fn less_than_a_pageblock_and_a_64th_of_the_peak_is_kept() {
        let (peak, least) = (64_000, 512 + 1000);
        assert_eq!(given(peak, 100, 72_000 + least - 1, false).0, 0);
        assert_eq!(given(peak, 100, 72_000 + least, false).0, LARGEST);
        // The peak counts, whatever the target is.
        assert_eq!(given(peak, 100, 100 + least - 1, true).0, 0);
        assert_eq!(given(peak, 100, 100 + least, true).0, LARGEST);
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
