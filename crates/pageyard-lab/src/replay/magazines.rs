//! What the magazines and depots of the packed engine keep. The engine has no events of refills and
//! drains, so its counters are read.

use pageyard::{Config, CpuId, CpuStats, DrainReason, Yard};

use super::counts::Moved;
use super::figures::Figures;

/// The pages that magazines and depots keep.
pub(super) struct Magazines {
    /// By CPU; then those in depots.
    kept: Vec<i64>,
    sum: i64,
    /// The counters at the start.
    before: CpuStats,
    depots_before: u64,
}

impl Magazines {
    pub(super) fn new<C: Config>(yard: &Yard<'_, C>) -> Magazines {
        let (before, depots_before) = sums(yard);
        let kept = vec![0; yard.cpus() as usize + 1];
        let mut magazines = Magazines { kept, sum: 0, before, depots_before };
        magazines.recount(yard);
        magazines
    }

    fn set(&mut self, at: usize, pages: i64) {
        self.sum += pages - std::mem::replace(&mut self.kept[at], pages);
    }

    /// Returns the number of pages kept after an operation of one CPU.
    pub(super) fn after<C: Config>(&mut self, yard: &Yard<'_, C>, cpu: usize) -> i64 {
        let of = |zone| yard.pageset(zone, CpuId(cpu as u32)).map_or(0, |set| set.count.into());
        self.set(cpu, yard.zone_ids().map(of).sum());
        let depots = yard.zone_ids().filter_map(|zone| yard.depot_pages(zone)).sum::<u64>();
        self.set(self.kept.len() - 1, depots as i64);
        self.sum
    }

    /// Adds what moved since the start to a run's figures. The engine has no bulk frees caused by
    /// high-order frees, and does not count blocks in pageblocks of another type.
    pub(super) fn complete<C: Config>(&self, yard: &Yard<'_, C>, figures: &mut Figures) {
        let (now, depots) = sums(yard);
        let done = now.since(&self.before);
        figures.moved = Moved {
            refill_pages: done.refilled_pages,
            drain_pages: done.all_drained_pages(),
            lockless: true,
            ..Moved::default()
        };
        figures.zone_pages = done.refilled_pages + done.direct_alloc_pages;
        figures.tick_pages = Some(done.drained_pages[DrainReason::Decay as usize]);
        figures.depot_pages = Some(depots - self.depots_before);
        (figures.free_high_drains, figures.free_high_pages, figures.mismatches) =
            (None, None, None);
    }

    /// Returns the number of pages kept after operations of any CPU.
    pub(super) fn recount<C: Config>(&mut self, yard: &Yard<'_, C>) -> i64 {
        (0..self.kept.len() - 1).for_each(|cpu| _ = self.after(yard, cpu));
        self.sum
    }
}

/// Returns the counters of all CPUs, and the pages that went into depots and out of them.
fn sums<C: Config>(yard: &Yard<'_, C>) -> (CpuStats, u64) {
    let (mut sum, mut depots) = (CpuStats::default(), 0);
    for zone in yard.zone_ids() {
        for cpu in (0..yard.cpus()).map(CpuId) {
            sum.add(&yard.cpu_stats(zone, cpu).unwrap_or_default());
            let counts = yard.magazine_counts(zone, cpu).unwrap_or_default();
            depots += counts.depot_in + counts.depot_out;
        }
    }
    (sum, depots)
}
