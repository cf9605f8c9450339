//! Returns free memory from around blocks in use: pieces of pageblocks
//! ([`GiveBack::least`](crate::GiveBack::least)).
//!
//! A page is *touched* if it was allocated since the system provided it. What is touched is what the system
//! backs, and a piece is returned if a page of it is.

use std::sync::atomic::Ordering::Relaxed;

use pageyard::policy::Policy;
use pageyard::{MAX_ORDER, Order, PAGEBLOCK_PAGES, Pfn, ZoneId};

use crate::clock;
use crate::give_back::whole_blocks;
use crate::lock::HostLock;
use crate::raw_yard::RawYard;
use crate::usage::Usage;

/// Nanoseconds that a step may take: while it finds something, and while it searches.
const RETURNS: u64 = 10_000_000;
const SEARCHES: u64 = 2_000_000;
/// Pages of the largest piece.
const PIECE: u64 = PAGEBLOCK_PAGES as u64 / 2;
/// Pages of whole pageblocks that are returned at once.
const WHOLE: u64 = 32 << MAX_ORDER;

/// The search for pieces, and what it has to know of the load.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Pageblock that is searched next, from the first one of the yard.
    at: u64,
    /// Pageblocks searched since the last one that had something to return.
    in_vain: u64,
    /// Resident pages, pages in use, and pages on per-CPU lists when the last step ended.
    resident: u64,
    used: u64,
    cached: u64,
    /// Pages that requests fetched since the start although use did not grow.
    fetched: u64,
}

impl Pieces {
    /// Records how many pages are resident, what is in use, and the peak of that since the last step. Returns
    /// how many pages requests have fetched since the start without need: growth has to fetch what was
    /// returned, but a load that stays as large as it is should not.
    pub(crate) fn note(&mut self, resident: u64, usage: &Usage, peak: u64) -> u64 {
        let grown = peak.saturating_sub(self.used);
        self.fetched += resident.saturating_sub(self.resident).saturating_sub(grown);
        let now = (resident, usage.used, usage.cached);
        if now != (self.resident, self.used, self.cached) {
            // There may be something again.
            self.in_vain = 0;
        }
        (self.resident, self.used, self.cached) = now;
        self.fetched
    }

    /// Returns up to `most` touched pages to the system: whole pageblocks in blocks of `whole` and above, and
    /// if these may be any, pieces from `least` on. Stops earlier when it has taken long. Returns their number.
    pub(crate) fn give_back<P: Policy>(
        &mut self,
        raw: &RawYard<P, HostLock>,
        zones: &[ZoneId],
        whole: Order,
        least: Order,
        most: u64,
    ) -> u64 {
        let (core, service) = (raw.core(), raw.service());
        let start = clock::now();
        let before = service.returned_touched.load(Relaxed);
        // Another thread may add to it, as it sets a limit.
        let given = || service.returned_touched.load(Relaxed) - before;
        let is_late = |most| clock::now() - start > most;
        for &zone in zones {
            // Most of them may never have been touched: those count as nothing, and take no time.
            while !is_late(RETURNS) {
                let left = whole_blocks(most.saturating_sub(given())).min(WHOLE);
                if left == 0 || core.report_free_pages(zone, whole, left) == 0 {
                    break;
                }
            }
        }
        if whole == Order::ZERO {
            // A page that was locked the last time may not be any more.
            let was_refused = service.refused.swap(false, Relaxed);
            self.search(
                raw,
                least,
                || most.saturating_sub(given()),
                || is_late(if given() > 0 { RETURNS } else { SEARCHES }),
            );
            if was_refused && given() == 0 {
                service.refused.store(true, Relaxed);
            }
        }
        let given = given();
        self.resident = self.resident.saturating_sub(given);
        given
    }

    /// Returns pieces as long as there are pages `left` to return and it is not late.
    fn search<P: Policy>(
        &mut self,
        raw: &RawYard<P, HostLock>,
        least: Order,
        left: impl Fn() -> u64,
        is_late: impl Fn() -> bool,
    ) {
        let core = raw.core();
        let first = raw.region().first().0;
        let block = u64::from(PAGEBLOCK_PAGES);
        let blocks = raw.region().pages().div_ceil(block);
        while self.in_vain < blocks && !is_late() {
            let left = left();
            if left < PIECE {
                // A piece that exceeds what is left would look as if there were none.
                return;
            }
            let start = first + self.at * block;
            self.at = (self.at + 1) % blocks;
            let touched = |pfn, order: Order| core.hooks().touched(pfn, order.pages().into());
            let is_touched = |pfn, order| touched(pfn, order).is_some_and(|pages| pages > 0);
            let frames = Pfn(start)..Pfn(start + block);
            let done = core.report_free_pieces(frames, least, left, is_touched);
            if raw.service().refused.load(Relaxed) {
                return;
            }
            self.in_vain = if done > 0 { 0 } else { self.in_vain + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pageyard::Gfp;

    use super::*;
    use crate::{Builder, GiveBack, HugePages, ThreadCache};

    #[test]
    fn growth_is_no_fetch() {
        let mut pieces = Pieces::default();
        let used = |used| Usage { used, ..Usage::default() };
        assert_eq!(pieces.note(1000, &used(1000), 1000), 0);
        // Half of it was freed and returned, then use grows step by step.
        pieces.resident = 500;
        pieces.used = 500;
        for pages in [600, 700, 800] {
            assert_eq!(pieces.note(pages, &used(pages), pages), 0);
        }
        // A peak between two steps.
        assert_eq!(pieces.note(900, &used(800), 900), 0);
        // The same pages are in use, but others than those that stayed.
        assert_eq!(pieces.note(950, &used(800), 800), 50);
        assert_eq!(pieces.note(980, &used(790), 800), 80);
    }

    /// As after a call of `mlockall` that did not last.
    #[test]
    fn a_refusal_of_the_past_ends_no_search() {
        let how = GiveBack { after: Duration::ZERO, least: Order::ZERO, ..GiveBack::default() };
        let builder = Builder::new(64 << 20).huge_pages(HugePages::Never).tick(None);
        let builder = builder.thread_cache(ThreadCache::Off).give_back(Some(how));
        let yard = builder.build().unwrap();
        let one = || yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let all: Vec<_> = (0..8192).map(|_| one()).collect();
        let kept: Vec<_> = all.into_iter().step_by(100).collect();
        yard.drain();
        let mut worker = yard.worker().unwrap();
        for _ in 0..20 {
            yard.raw().service().refused.store(true, Relaxed);
            worker.step();
            std::thread::sleep(Duration::from_millis(100));
        }
        let status = yard.status();
        assert!(status.resident < 2000 && status.given_back > 6000, "{status:?}");
        drop(kept);
    }

    #[test]
    fn a_search_in_vain_is_repeated_when_pages_moved() {
        let mut pieces = Pieces::default();
        let mut moved = |used, cached, resident| {
            pieces.in_vain = 7;
            pieces.note(resident, &Usage { used, cached, ..Usage::default() }, used);
            pieces.in_vain == 0
        };
        assert!(moved(10, 5, 30) && !moved(10, 5, 30));
        assert!(moved(11, 5, 30) && moved(11, 4, 30) && moved(11, 4, 29) && !moved(11, 4, 29));
    }
}
