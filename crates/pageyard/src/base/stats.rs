//! Counters. Each has one writer at a time, which holds the counter's lock, and is read without a
//! lock, so reading a live allocator costs it nothing. A reader may see two counters of the same
//! event at slightly different moments.

use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{MigrateType, TYPES};

/// Why pages moved from a per-CPU list to the zone.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::DrainReason;
///
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO).unwrap();
/// yard.drain_all(None);
/// let stats = yard.cpu_stats(ZoneKind::Normal, CpuId(0)).unwrap();
/// assert_eq!(stats.drains[DrainReason::Drain as usize], 1);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DrainReason {
    /// A free found the lists at `high` (§5.9).
    High = 0,
    /// A run of high-order frees (§5.9; `free_high` in the reproduced experiments).
    FreeHigh = 1,
    /// The tick lowered `high` (§5.14).
    Decay = 2,
    /// The tick found the lists of a remote node unused (§5.15).
    Expire = 3,
    /// The caller asked for it (§5.16).
    Drain = 4,
}

/// Number of drain reasons.
pub(crate) const REASONS: usize = 5;

/// Rows of the tables, one per order. A power of two, so an index masked to four bits is in range.
const ROWS: usize = 16;

/// A counter with one writer at a time: the holder of the lock that its containing struct names.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Like [`add`](Self::add), for a counter that several CPUs change without a lock.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Blocks by order and type.
#[derive(Debug)]
pub(crate) struct Table([[Counter; TYPES]; ROWS]);

impl Table {
    const fn new() -> Self {
        Table([const { [const { Counter::new() }; TYPES] }; ROWS])
    }

    #[inline(always)]
    pub(crate) fn add(&self, order: u8, t: MigrateType) {
        self.0[(order & 15) as usize][t as usize].add(1);
    }

    /// Like [`add`](Self::add), for a table that several CPUs change without a lock.
    pub(crate) fn add_shared(&self, order: u8, t: MigrateType) {
        self.0[(order & 15) as usize][t as usize].add_shared(1);
    }

    /// Blocks of all orders and types.
    fn blocks(&self) -> u64 {
        self.0.iter().flatten().map(Counter::get).sum()
    }

    /// Base pages of all orders and types.
    fn pages(&self) -> u64 {
        let row = |row: &[Counter; TYPES]| row.iter().map(Counter::get).sum::<u64>();
        self.0.iter().enumerate().map(|(order, counts)| row(counts) << order).sum()
    }

    fn add_to(&self, sum: &mut BlockCounts) {
        for (row, into) in self.0.iter().zip(&mut sum.0) {
            for (c, s) in row.iter().zip(into) {
                *s += c.get();
            }
        }
    }
}

/// Numbers of blocks by order and migrate type.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let counts: BlockCounts = yard.free_blocks_by_type(ZoneKind::Normal).unwrap();
/// assert_eq!(counts.pages(), (64 << 20) / PAGE_SIZE);
/// let largest = &counts.0[MAX_ORDER as usize];
/// assert_eq!(largest[MigrateType::Movable as usize], counts.blocks());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts(pub [[u64; TYPES]; 11]);

impl BlockCounts {
    /// Blocks of all orders and types.
    pub fn blocks(&self) -> u64 {
        self.0.iter().flatten().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Base pages of all orders and types.
    pub fn pages(&self) -> u64 {
        let pages = |(o, row): (usize, &[u64; TYPES])| {
            row.iter().fold(0u64, |sum, n| sum.saturating_add(n.saturating_mul(1 << o)))
        };
        self.0.iter().enumerate().map(pages).fold(0, u64::saturating_add)
    }
}

/// A zone's free blocks of one order.
///
/// ```
/// use pageyard::{Bare, Yard, ZoneKind};
///
/// let yard: Yard<'_, Bare<spin::mutex::SpinMutex<()>, ()>> =
///     Yard::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ())?;
/// let supply = yard.block_supply(ZoneKind::Normal).unwrap();
/// assert_eq!((supply[0].blocks, supply[10].blocks), (0, 16));
/// # Ok::<(), pageyard::InitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockSupply {
    /// The number of blocks.
    pub blocks: u64,
    /// For each migrate type, whether its list has any of them.
    pub types: [bool; TYPES],
}

/// How many of the blocks that a CPU allocated in a zone are NUMA events (§9.1): all except those
/// allocated while `numa_stat` was off (§10). The allocation path therefore needs no second
/// counter.
///
/// One word, so that a reader never sees half of a switch. While on, it holds the number of blocks
/// that are not counted. While off, the highest bit is set and the rest is the number of blocks
/// that were counted until then.
#[derive(Debug)]
pub(crate) struct NumaPart(AtomicU64);

impl NumaPart {
    const OFF: u64 = 1 << 63;

    /// Returns how many of `handed_out` allocated blocks count.
    pub(crate) fn of(&self, handed_out: u64) -> u64 {
        match self.0.load(Relaxed) {
            word if word & Self::OFF != 0 => word & !Self::OFF,
            left_out => handed_out.saturating_sub(left_out),
        }
    }

    /// Switches counting on or off after `handed_out` blocks. Callers must not run concurrently.
    pub(crate) fn switch(&self, on: bool, handed_out: u64) {
        let was_on = self.0.load(Relaxed) & Self::OFF == 0;
        if on != was_on {
            // The same arithmetic both ways: the counted blocks become the uncounted ones, and
            // back.
            let rest = handed_out.saturating_sub(self.0.load(Relaxed) & !Self::OFF);
            self.0.store(if on { rest } else { rest | Self::OFF }, Relaxed);
        }
    }
}

/// Counters of one CPU in one zone. Written under the CPU's per-CPU list lock, except `direct_*`
/// (zone lock; on the packed engine without a lock, by [`Table::add_shared`]) and `numa` (the caller
/// that changes the setting).
#[derive(Debug)]
pub(crate) struct CpuCounters {
    pub(crate) numa: NumaPart,
    pub(crate) allocs: Table,
    pub(crate) frees: Table,
    pub(crate) direct_allocs: Table,
    pub(crate) direct_frees: Table,
    pub(crate) refills: Counter,
    pub(crate) refilled_pages: Counter,
    pub(crate) empty_refills: Counter,
    pub(crate) drains: [Counter; REASONS],
    pub(crate) drained_pages: [Counter; REASONS],
    pub(crate) ticks: Counter,
}

/// What one CPU did in one zone.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let before: CpuStats = yard.cpu_stats(ZoneKind::Normal, CpuId(0)).unwrap();
/// for _ in 0..10 {
///     let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
///     yard.free(page, Order::ZERO).unwrap();
/// }
/// let during = yard.cpu_stats(ZoneKind::Normal, CpuId(0)).unwrap().since(&before);
/// assert_eq!((during.allocs.blocks(), during.refills), (10, 1));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuStats {
    /// Blocks allocated.
    pub allocs: BlockCounts,
    /// Blocks freed.
    pub frees: BlockCounts,
    /// Allocated blocks that came straight from the zone.
    pub direct_allocs: u64,
    /// Freed blocks that went straight to the zone.
    pub direct_frees: u64,
    /// Base pages of the blocks that came straight from the zone.
    pub direct_alloc_pages: u64,
    /// Base pages of the blocks that went straight to the zone.
    pub direct_free_pages: u64,
    /// Refills of a per-CPU list that took at least one block. A request served by the list without
    /// a refill is a hit: `hits = allocs - direct_allocs - refills`.
    pub refills: u64,
    /// Base pages that refills took from the zone.
    pub refilled_pages: u64,
    /// Refills that took nothing.
    pub empty_refills: u64,
    /// Bulk frees by [`DrainReason`](crate::DrainReason). A tick counts each batch as one.
    pub drains: [u64; REASONS],
    /// Base pages returned to the zone by these bulk frees.
    pub drained_pages: [u64; REASONS],
    /// Ticks of the statistics worker.
    pub ticks: u64,
}

impl CpuStats {
    /// Returns the number of bulk frees for any reason.
    pub fn all_drains(&self) -> u64 {
        self.drains.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the number of base pages returned to the zone by bulk frees for any reason.
    pub fn all_drained_pages(&self) -> u64 {
        self.drained_pages.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the number of base pages that entered the per-CPU lists, by refills and frees, minus
    /// those that left them. This is how many more pages the lists hold than when the counters were
    /// 0. Takes no lock. While the CPU allocates or frees, the result may be a few pages off.
    pub fn cached_pages(&self) -> i64 {
        let came = self.refilled_pages.wrapping_add(self.frees.pages());
        let went = self.all_drained_pages().wrapping_add(self.allocs.pages());
        let direct = self.direct_alloc_pages.wrapping_sub(self.direct_free_pages);
        came.wrapping_sub(went).wrapping_add(direct) as i64
    }

    /// Returns the number of requests that found a block on their per-CPU list.
    pub fn hits(&self) -> u64 {
        self.allocs.blocks().saturating_sub(self.direct_allocs.saturating_add(self.refills))
    }

    /// Returns the increase since an earlier reading of the same counters.
    pub fn since(&self, earlier: &CpuStats) -> CpuStats {
        let mut s = *self;
        s.combine(earlier, u64::wrapping_sub);
        s
    }

    /// Adds the counters of another CPU or another zone.
    pub fn add(&mut self, o: &CpuStats) {
        self.combine(o, u64::wrapping_add);
    }

    fn combine(&mut self, o: &CpuStats, with: impl Fn(u64, u64) -> u64) {
        let blocks = [(&mut self.allocs, &o.allocs), (&mut self.frees, &o.frees)];
        let blocks = blocks
            .into_iter()
            .flat_map(|(s, x)| s.0.iter_mut().flatten().zip(x.0.iter().flatten()));
        let drains = self.drains.iter_mut().zip(&o.drains);
        let drained = self.drained_pages.iter_mut().zip(&o.drained_pages);
        let others = [
            (&mut self.direct_allocs, &o.direct_allocs),
            (&mut self.direct_frees, &o.direct_frees),
            (&mut self.direct_alloc_pages, &o.direct_alloc_pages),
            (&mut self.direct_free_pages, &o.direct_free_pages),
            (&mut self.refills, &o.refills),
            (&mut self.refilled_pages, &o.refilled_pages),
            (&mut self.empty_refills, &o.empty_refills),
            (&mut self.ticks, &o.ticks),
        ];
        for (s, x) in blocks.chain(drains).chain(drained).chain(others) {
            *s = with(*s, *x);
        }
    }
}

impl CpuCounters {
    pub(crate) const fn new() -> Self {
        CpuCounters {
            numa: NumaPart(AtomicU64::new(0)),
            allocs: Table::new(),
            frees: Table::new(),
            direct_allocs: Table::new(),
            direct_frees: Table::new(),
            refills: Counter::new(),
            refilled_pages: Counter::new(),
            empty_refills: Counter::new(),
            drains: [const { Counter::new() }; REASONS],
            drained_pages: [const { Counter::new() }; REASONS],
            ticks: Counter::new(),
        }
    }

    /// Counts a drain that returned this many pages.
    pub(crate) fn count_drain(&self, reason: DrainReason, pages: u64) {
        self.drains[reason as usize].add(1);
        self.drained_pages[reason as usize].add(pages);
    }

    /// Blocks allocated.
    pub(crate) fn handed_out(&self) -> u64 {
        self.allocs.blocks() + self.direct_allocs.blocks()
    }

    /// Blocks freed.
    pub(crate) fn taken_back(&self) -> u64 {
        self.frees.blocks() + self.direct_frees.blocks()
    }

    /// Base pages allocated.
    pub(crate) fn pages_out(&self) -> u64 {
        self.allocs.pages() + self.direct_allocs.pages()
    }

    /// Base pages freed.
    pub(crate) fn pages_back(&self) -> u64 {
        self.frees.pages() + self.direct_frees.pages()
    }

    pub(crate) fn read(&self) -> CpuStats {
        let mut s = CpuStats::default();
        self.direct_allocs.add_to(&mut s.allocs);
        self.direct_frees.add_to(&mut s.frees);
        s.direct_allocs = s.allocs.blocks();
        s.direct_frees = s.frees.blocks();
        s.direct_alloc_pages = s.allocs.pages();
        s.direct_free_pages = s.frees.pages();
        self.allocs.add_to(&mut s.allocs);
        self.frees.add_to(&mut s.frees);
        s.refills = self.refills.get();
        s.refilled_pages = self.refilled_pages.get();
        s.empty_refills = self.empty_refills.get();
        s.ticks = self.ticks.get();
        for i in 0..REASONS {
            s.drains[i] = self.drains[i].get();
            s.drained_pages[i] = self.drained_pages[i].get();
        }
        s
    }
}

/// Number of buckets of the lock histograms. Bucket `i` counts times from 2^(i-1) up to 2^i
/// nanoseconds.
pub const LOCK_BUCKETS: usize = 40;

/// Counters of a zone, written under the zone lock.
#[derive(Debug)]
pub(crate) struct ZoneCounters {
    pub(crate) lock_holds: Counter,
    pub(crate) pages_taken: Counter,
    pub(crate) pages_returned: Counter,
    pub(crate) claims_whole: Counter,
    pub(crate) claims_part: Counter,
    pub(crate) claims_refused: Counter,
    pub(crate) steals: Counter,
    pub(crate) mismatches: Counter,
    pub(crate) merges_relabelled: Counter,
    pub(crate) merges_refused: Counter,
    pub(crate) boosts: Counter,
    pub(crate) highatomic_reserved: Counter,
    pub(crate) highatomic_unreserved: Counter,
    pub(crate) type_check_failures: Counter,
    pub(crate) wait_ns: Counter,
    pub(crate) hold_ns: Counter,
    pub(crate) waits: LockHistogram,
    pub(crate) holds: LockHistogram,
}

#[derive(Debug)]
pub(crate) struct LockHistogram([Counter; LOCK_BUCKETS]);

impl LockHistogram {
    const fn new() -> Self {
        LockHistogram([const { Counter::new() }; LOCK_BUCKETS])
    }

    pub(crate) fn note(&self, ns: u64) {
        let bucket = (u64::BITS - ns.leading_zeros()) as usize;
        if let Some(c) = self.0.get(bucket.min(LOCK_BUCKETS - 1)) {
            c.add(1);
        }
    }

    fn read(&self) -> [u64; LOCK_BUCKETS] {
        core::array::from_fn(|i| self.0.get(i).map_or(0, Counter::get))
    }
}

/// Where a zone's blocks were allocated, in blocks (§9.1), except those allocated while
/// [`numa_stat`](crate::Knobs::numa_stat) was off.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let numa: NumaStats = yard.zone_stats(ZoneKind::Normal).unwrap().numa;
/// assert_eq!((numa.hit, numa.local, numa.miss), (1, 1, 0));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NumaStats {
    /// Allocated here, as preferred.
    pub hit: u64,
    /// Allocated here although another node was preferred.
    pub miss: u64,
    /// Preferred here, but allocated from another node.
    pub foreign: u64,
    /// Allocated here because interleaving chose this node.
    pub interleave: u64,
    /// Allocated by CPUs of the zone's node.
    pub local: u64,
    /// Allocated by CPUs of other nodes.
    pub other: u64,
}

/// Events of one zone, besides the counters of each CPU.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let stats: ZoneStats = yard.zone_stats(ZoneKind::Normal).unwrap();
/// // All memory was movable: the first request of another type claims a block.
/// assert_eq!(stats.claims_whole + stats.claims_part, 1);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneStats {
    /// Times the zone lock was taken.
    pub lock_holds: u64,
    /// Base pages that left the free lists for requests and refills (the seeds' *alloc_zone*).
    pub pages_taken: u64,
    /// Base pages that returned to the free lists.
    pub pages_returned: u64,
    /// Free blocks of at least a pageblock that were claimed whole (§4.4).
    pub claims_whole: u64,
    /// Pageblocks converted because at least half of their pages were free or of a compatible type
    /// (§4.4).
    pub claims_part: u64,
    /// Pageblocks examined and left with their type.
    pub claims_refused: u64,
    /// Blocks stolen from another type without a claim (§4.5).
    pub steals: u64,
    /// Blocks allocated from a pageblock of another type than requested (§4.10).
    pub mismatches: u64,
    /// Merges that relabelled a pageblock (§1.7e).
    pub merges_relabelled: u64,
    /// Merges refused because of the types (§1.7c).
    pub merges_refused: u64,
    /// Times the watermarks were boosted (§3.4).
    pub boosts: u64,
    /// Blocks reserved for high-order atomic requests (§3.8).
    pub highatomic_reserved: u64,
    /// Such reservations released.
    pub highatomic_unreserved: u64,
    /// Mismatches found by [`TypeChecked`](crate::policy::TypeChecked) (§4.8).
    pub type_check_failures: u64,
    /// Requests that neither this zone nor those below it could serve, counted at the preferred
    /// zone.
    pub failures: u64,
    /// Requests and frees that found their per-CPU list busy and used the zone (§5.6).
    pub bypasses: u64,
    /// Blocks by preferred node and by CPU's node.
    pub numa: NumaStats,
    /// Nanoseconds spent waiting for the zone lock, if the hooks measure it.
    pub wait_ns: u64,
    /// Nanoseconds for which the zone lock was held, if the hooks measure it.
    pub hold_ns: u64,
    /// Waits by length.
    pub waits: [u64; LOCK_BUCKETS],
    /// Holds by length.
    pub holds: [u64; LOCK_BUCKETS],
}

/// A zone's main counters, summed over its CPUs. Fits on a small stack, unlike [`CpuStats`] and
/// [`ZoneStats`].
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO).unwrap();
/// let totals: ZoneTotals = yard.zone_totals(ZoneKind::Normal).unwrap();
/// assert_eq!((totals.allocs, totals.frees, totals.failures), (1, 1, 0));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneTotals {
    /// Blocks allocated, as the kernel counts them: without contiguous ranges.
    pub allocs: u64,
    /// Blocks freed. The single pages of contiguous ranges and of split blocks count one by one.
    pub frees: u64,
    /// Base pages allocated, contiguous ranges included. `alloc_pages - free_pages` is the number of
    /// pages that callers own, however blocks were split, if the zone was not
    /// [restored](crate::Yard::restore), no page was found bad, and no hook panicked in a request.
    pub alloc_pages: u64,
    /// Base pages freed.
    pub free_pages: u64,
    /// Refills of per-CPU lists that took at least one block.
    pub refills: u64,
    /// Requests that neither this zone nor those below it could serve, counted at the preferred
    /// zone.
    pub failures: u64,
    /// Times the zone lock was taken.
    pub lock_holds: u64,
    /// Base pages that left the free lists for requests and refills.
    pub pages_taken: u64,
    /// Base pages that returned to the free lists.
    pub pages_returned: u64,
    /// Blocks allocated from a pageblock of another type than requested.
    pub mismatches: u64,
}

impl ZoneCounters {
    pub(crate) const fn new() -> Self {
        ZoneCounters {
            lock_holds: Counter::new(),
            pages_taken: Counter::new(),
            pages_returned: Counter::new(),
            claims_whole: Counter::new(),
            claims_part: Counter::new(),
            claims_refused: Counter::new(),
            steals: Counter::new(),
            mismatches: Counter::new(),
            merges_relabelled: Counter::new(),
            merges_refused: Counter::new(),
            boosts: Counter::new(),
            highatomic_reserved: Counter::new(),
            highatomic_unreserved: Counter::new(),
            type_check_failures: Counter::new(),
            wait_ns: Counter::new(),
            hold_ns: Counter::new(),
            waits: LockHistogram::new(),
            holds: LockHistogram::new(),
        }
    }

    /// Returns the counters of the zone itself; all others are 0.
    pub(crate) fn totals(&self) -> ZoneTotals {
        ZoneTotals {
            lock_holds: self.lock_holds.get(),
            pages_taken: self.pages_taken.get(),
            pages_returned: self.pages_returned.get(),
            mismatches: self.mismatches.get(),
            ..ZoneTotals::default()
        }
    }

    pub(crate) fn read(&self, failures: u64, bypasses: u64, numa: NumaStats) -> ZoneStats {
        ZoneStats {
            lock_holds: self.lock_holds.get(),
            pages_taken: self.pages_taken.get(),
            pages_returned: self.pages_returned.get(),
            claims_whole: self.claims_whole.get(),
            claims_part: self.claims_part.get(),
            claims_refused: self.claims_refused.get(),
            steals: self.steals.get(),
            mismatches: self.mismatches.get(),
            merges_relabelled: self.merges_relabelled.get(),
            merges_refused: self.merges_refused.get(),
            boosts: self.boosts.get(),
            highatomic_reserved: self.highatomic_reserved.get(),
            highatomic_unreserved: self.highatomic_unreserved.get(),
            type_check_failures: self.type_check_failures.get(),
            failures,
            bypasses,
            numa,
            wait_ns: self.wait_ns.get(),
            hold_ns: self.hold_ns.get(),
            waits: self.waits.read(),
            holds: self.holds.read(),
        }
    }
}

/// How far a CPU's share of a counter may go at most (§9.3).
pub(crate) const MOST_THRESHOLD: u32 = 125;

/// Returns how far a CPU's share of a counter may go before it is folded (§9.3, the normal value).
pub fn stat_threshold(cpus: u32, managed: u64) -> u32 {
    let fls = |x: u64| u64::BITS - x.leading_zeros();
    (2 * fls(cpus.into()) * (1 + fls(managed >> 15))).min(MOST_THRESHOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_3_c_1_thresholds_grow_with_cpus_and_managed_pages() {
        for (cpus, managed, want) in [
            (2, 3840, 4),
            (2, 772497, 24),
            (2, 622592, 24),
            (2, 1343488, 28),
            (4, 110560, 18),
            (4, 3840, 6),
            (1024, 1 << 28, 125),
        ] {
            assert_eq!(stat_threshold(cpus, managed), want, "{cpus} CPUs, {managed} pages");
        }
    }
}
