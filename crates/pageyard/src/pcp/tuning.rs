//! The arithmetic of the per-CPU lists: batch, limits, refill and drain sizes, growth, decay (spec
//! §5.3–5.14, and the earlier steps of §5.17). Pure functions over a small struct without lists or
//! locks, tested against the spec's vectors without an allocator.

use crate::base::units::{COSTLY_ORDER, PAGE_SIZE};
use crate::embedder::high::HighReason;
use crate::embedder::policy::{BelowHigh, Decay, Growth, High, KeepBatch, PcpRules};

/// The last free was of order 1 to 3 (§5.9).
pub const PREV_FREE_HIGH_ORDER: u8 = 1;
/// One batch stays cached before a run of high-order frees drains the lists (§5.13).
pub const FREE_HIGH_BATCH: u8 = 2;

/// The largest count and the largest limit of a per-CPU list, in pages. It keeps the sums below
/// within an `i32`.
pub const MAX_PAGES: i32 = 1 << 28;
/// The largest batch of a pageset.
pub const MAX_BATCH: i32 = 1 << 14;

/// The kernel's `clamp`: if the limits cross, the upper one wins (spec §0.2).
pub const fn clamp(v: i32, lo: i32, hi: i32) -> i32 {
    let v = if v < lo { lo } else { v };
    if v > hi { hi } else { v }
}

/// The state of a zone that its per-CPU lists react to.
///
/// ```
/// use pageyard::policy::{Linux612, StaticPolicy};
/// use pageyard::tuning::{Limits, Pressure, Tuning};
///
/// let limits = Limits { batch: 63, high_min: 500, high_max: 5000 };
/// let mut lists = Tuning { limits, ..Tuning::default() };
/// let short = Pressure { reclaim_active: false, below_high: true };
/// // A refill takes a batch; `high` does not grow while memory is short.
/// assert_eq!(lists.nr_alloc(&Linux612::RULES.pcp, 0, short), 63);
/// assert_eq!(lists.high, 500);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Background reclaim is active (RECLAIM_ACTIVE).
    pub reclaim_active: bool,
    /// The last test of the high watermark failed (BELOW_HIGH).
    pub below_high: bool,
}

impl Pressure {
    /// Returns why a free moves `high` under this pressure, if it does: the cases of
    /// [`nr_high`](Tuning::nr_high) in their order.
    pub(crate) fn reason(self, rules: &PcpRules, free_high: bool) -> HighReason {
        if free_high {
            HighReason::FreeHigh
        } else if self.reclaim_active {
            HighReason::Reclaim
        } else if self.below_high && !matches!(rules.below_high, BelowHigh::Ignored) {
            HighReason::BelowHigh
        } else {
            HighReason::Free
        }
    }
}

/// The limits of a pageset (§5.4).
///
/// ```
/// use pageyard::policy::{Linux612, StaticPolicy};
/// use pageyard::tuning::Limits;
///
/// // A zone of 4 GiB with 8 CPUs.
/// let limits = Limits::of_zone(&Linux612::RULES.pcp, 1 << 20, 20_000, 8, 0);
/// assert_eq!((limits.batch, limits.high_min), (63, 2500));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Pages moved between list and zone at once, before scaling.
    pub batch: i32,
    /// `high` never falls below this.
    pub high_min: i32,
    /// `high` never rises above this.
    pub high_max: i32,
}

impl Limits {
    /// Limits that keep nothing cached: at boot, and while per-CPU lists are disabled (§5.5).
    pub const DISABLED: Limits = Limits { batch: 1, high_min: 0, high_max: 0 };

    /// Returns the limits of a zone (§5.3, §5.4).
    ///
    /// `managed` and `low` (the effective low watermark) are in pages. `cpus` is the number of CPUs
    /// that share the zone's node. `fraction` is `percpu_pagelist_high_fraction`.
    pub fn of_zone(rules: &PcpRules, managed: u64, low: u64, cpus: u32, fraction: u32) -> Limits {
        let batch = batch(managed);
        let high_min = match rules.high {
            High::SixBatches if fraction == 0 => 6 * whole_batch(managed),
            _ => high_size(managed, low, cpus, fraction, batch),
        };
        let fixed = fraction != 0 || matches!(rules.growth, Growth::Fixed);
        let high_max = if fixed { high_min } else { high_size(managed, low, cpus, 8, batch) };
        Limits { batch, high_min, high_max }
    }

    /// Returns the same limits with `high_max` lowered to `high_min`, so that `high` stays there.
    pub fn fixed(self) -> Limits {
        Limits { high_max: self.high_min, ..self }
    }
}

/// Returns the batch of a zone with `managed` pages (§5.3).
pub fn batch(managed: u64) -> i32 {
    whole_batch(managed).max(1)
}

/// Returns the batch before it is raised to at least one page.
fn whole_batch(managed: u64) -> i32 {
    let b = ((managed >> 10).min(256) / 4).max(1);
    let x = b + b / 2;
    // A power of two rounded down, minus one: odd batches spread over cache colours.
    (1 << (63 - x.leading_zeros())) - 1
}

/// Returns `highsize` of §5.4, in pages: an equal share of the low watermark, or of a fraction of
/// the zone.
pub fn high_size(managed: u64, low: u64, cpus: u32, fraction: u32, batch: i32) -> i32 {
    let total = if fraction == 0 { low } else { managed / u64::from(fraction) };
    let share = (total / u64::from(cpus.max(1))).min(MAX_PAGES as u64) as i32;
    share.max(batch.saturating_mul(4))
}

/// A CPU's share of its caches, in bytes (§5.13).
///
/// ```
/// use pageyard::policy::{Linux612, StaticPolicy};
/// use pageyard::tuning::{CacheSlice, batch, keeps_batch};
///
/// let slice = CacheSlice { last_level: 2 << 20, all_levels: 3 << 20 };
/// assert!(keeps_batch(&Linux612::RULES.pcp, slice, batch(1 << 20)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheSlice {
    /// Share of the last-level cache: its size divided by the number of CPUs that share it.
    pub last_level: u64,
    /// Share of all data and unified levels together.
    pub all_levels: u64,
}

/// Returns whether FREE_HIGH_BATCH is set for a CPU with these caches (§5.13, and step 3 of §5.17).
pub fn keeps_batch(rules: &PcpRules, slice: CacheSlice, batch: i32) -> bool {
    let batch = batch.max(0) as u64;
    match rules.keep_batch {
        KeepBatch::Never => false,
        KeepBatch::AllLevelsAbove4 => slice.all_levels / PAGE_SIZE > 4 * batch,
        KeepBatch::LastLevelAbove3 => slice.last_level / PAGE_SIZE > 3 * batch,
    }
}

/// The fields of a pageset that its tuning reads and writes (§5.1). Counts are base pages.
///
/// The methods do not check for overflow. They expect the values that a snapshot may hold: counts
/// of 0 to [`MAX_PAGES`] and a batch of at most [`MAX_BATCH`]. `alloc_factor` is at most 6,
/// `free_factor` at most 14, and orders at most [`Order::MAX`](crate::Order::MAX).
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let tuning = yard.pageset(ZoneKind::Normal, CpuId(0)).unwrap();
/// assert!(tuning.count > 0 && tuning.high >= tuning.limits.high_min);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tuning {
    /// Pages on all lists of the pageset.
    pub count: i32,
    /// At this count and above, frees return pages to the zone.
    pub high: i32,
    /// The limits of the pageset, with its batch.
    pub limits: Limits,
    /// The flags [`PREV_FREE_HIGH_ORDER`] and [`FREE_HIGH_BATCH`].
    pub flags: u8,
    /// How many times the next refill doubles the batch.
    pub alloc_factor: u8,
    /// How many times the next drain doubles the batch (policies without `free_count`).
    pub free_factor: u8,
    /// Pages freed recently, halved by every allocation (step 10).
    pub free_count: i32,
    /// The smallest count since the last tick (step 9).
    pub count_min: i32,
}

/// The bounds within which a free only updates counters ([`Tuning::free_quietly`]).
///
/// ```
/// use pageyard::policy::{Linux612, StaticPolicy};
/// use pageyard::tuning::Tuning;
///
/// let room = Tuning::default().room(&Linux612::RULES.pcp);
/// assert!(room.pages <= 0, "disabled lists have none");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// A free that leaves the count below this does not move `high` and drains nothing, except
    /// under pressure or in a run of high-order frees. 0 if `high` must first be clamped to its
    /// limits.
    pub pages: i32,
    /// Bound at which `free_count` stops growing.
    pub free_count: i32,
}

impl Tuning {
    pub(crate) const fn new() -> Self {
        Tuning {
            count: 0,
            high: 0,
            limits: Limits { batch: 0, high_min: 0, high_max: 0 },
            flags: 0,
            alloc_factor: 0,
            free_factor: 0,
            free_count: 0,
            count_min: 0,
        }
    }

    /// Sets or clears FREE_HIGH_BATCH (§5.13).
    pub(crate) const fn keep_batch(&mut self, set: bool) {
        if set {
            self.flags |= FREE_HIGH_BATCH;
        } else {
            self.flags &= !FREE_HIGH_BATCH;
        }
    }

    /// Records a request that reaches the pageset (§5.7): halves the record of recent frees.
    #[inline]
    pub fn note_alloc(&mut self, rules: &PcpRules) {
        if rules.free_count {
            self.free_count >>= 1;
        } else {
            self.free_factor >>= 1;
        }
    }

    /// Records that a caller takes a block of 2^`order` pages from the lists.
    #[inline]
    pub fn note_taken(&mut self, rules: &PcpRules, order: u8) {
        self.count -= 1 << order;
        if rules.count_min && self.count < self.count_min {
            self.count_min = self.count;
        }
    }

    /// Returns how many blocks of this order the next refill takes (§5.8). May raise `high`.
    pub fn nr_alloc(&mut self, rules: &PcpRules, order: u8, zone: Pressure) -> i32 {
        let Limits { batch, high_min, high_max } = self.limits;
        let mut high = clamp(self.high, high_min, high_max);
        self.high = high;
        if high < batch {
            return 1;
        }
        let scaled = rules.alloc_scale && order == 0;
        let mut n = if scaled { batch << self.alloc_factor } else { batch };
        let grows = match rules.growth {
            Growth::Fixed => false,
            Growth::UnlessReclaim => !zone.reclaim_active,
            Growth::UnlessBelowHigh => !zone.below_high,
        };
        if grows && high_min != high_max {
            high = (high + n).min(high_max);
            self.high = high;
        }
        if scaled {
            let most = (high - self.count - batch).max(batch);
            if n <= most && self.alloc_factor < rules.scale_max {
                self.alloc_factor += 1;
            }
            n = n.min(most);
        }
        if n > 1 { (n >> order).max(2) } else { n }
    }

    /// Returns how many pages a refill may add in whole pageblocks, after
    /// [`nr_alloc`](Self::nr_alloc): none while memory is short. `high` grows with them.
    pub(crate) fn room_for_blocks(&self, rules: &PcpRules, zone: Pressure) -> i32 {
        if zone != Pressure::default() {
            return 0;
        }
        let tuned = !matches!(rules.growth, Growth::Fixed);
        let most = if tuned { self.limits.high_max } else { self.high };
        (most - self.count - self.limits.batch).max(0)
    }

    /// Raises `high` to a batch above the count, after a refill that added whole pageblocks.
    pub(crate) fn hold_blocks(&mut self, rules: &PcpRules) {
        if !matches!(rules.growth, Growth::Fixed) {
            let need = (self.count + self.limits.batch).min(self.limits.high_max);
            self.high = self.high.max(need);
        }
    }

    /// Counts a block that a caller frees to the lists (§5.9). Returns whether this free must drain
    /// the lists because of a run of high-order frees.
    #[inline]
    pub fn note_free(&mut self, rules: &PcpRules, order: u8) -> bool {
        if rules.alloc_scale {
            self.alloc_factor >>= 1;
        }
        self.count += 1 << order;
        let mut free_high = false;
        if order != 0 && order <= COSTLY_ORDER {
            let batch = self.limits.batch;
            free_high = self.is_freeing(rules)
                && (!rules.free_high_twice || self.flags & PREV_FREE_HIGH_ORDER != 0)
                && (self.flags & FREE_HIGH_BATCH == 0 || self.count >= batch);
            self.flags |= PREV_FREE_HIGH_ORDER;
        } else {
            self.flags &= !PREV_FREE_HIGH_ORDER;
        }
        if rules.free_count && self.free_count < self.limits.batch << rules.scale_max {
            self.free_count += 1 << order;
        }
        free_high
    }

    /// Returns whether enough was freed in a row to assume that the CPU frees more than it
    /// allocates.
    #[inline(always)]
    fn is_freeing(&self, rules: &PcpRules) -> bool {
        let Limits { batch, high_min, .. } = self.limits;
        match (rules.free_count, rules.free_high_late) {
            (false, _) => self.free_factor > 0,
            (true, false) => self.free_count >= batch,
            (true, true) => self.free_count >= batch + high_min / 2,
        }
    }

    /// Returns the bounds for [`free_quietly`](Self::free_quietly). Recompute them after every
    /// other change of the tuning.
    pub fn room(&self, rules: &PcpRules) -> Room {
        let within = self.limits.high_min <= self.high && self.high <= self.limits.high_max;
        Room {
            pages: if within { self.high } else { 0 },
            free_count: self.limits.batch << rules.scale_max,
        }
    }

    /// Counts a freed block if the free has no other effect: the common case of
    /// [`note_free`](Self::note_free) and [`nr_high`](Self::nr_high) for a zone without
    /// [`Pressure`]. Returns `false` if nothing changed and the caller must use those two instead.
    #[inline(always)]
    pub fn free_quietly(&mut self, rules: &PcpRules, order: u8, room: Room) -> bool {
        let high_order = order != 0 && order <= COSTLY_ORDER;
        let count = self.count + (1 << order);
        if high_order && self.is_freeing(rules) || count >= room.pages {
            return false;
        }
        self.count = count;
        if rules.alloc_scale {
            self.alloc_factor >>= 1;
        }
        if high_order {
            self.flags |= PREV_FREE_HIGH_ORDER;
        } else {
            self.flags &= !PREV_FREE_HIGH_ORDER;
        }
        if rules.free_count && self.free_count < room.free_count {
            self.free_count += 1 << order;
        }
        true
    }

    /// Returns the count from which this free returns pages to the zone (§5.10). May move `high`.
    #[inline]
    pub fn nr_high(&mut self, rules: &PcpRules, free_high: bool, zone: Pressure) -> i32 {
        let Limits { batch, high_min, high_max } = self.limits;
        let high = clamp(self.high, high_min, high_max);
        self.high = high;
        let tuned = !matches!(rules.growth, Growth::Fixed);
        if high == 0 {
            return 0;
        }
        if free_high {
            if tuned {
                self.high = (high - (batch << rules.scale_max)).max(high_min);
            }
            return 0;
        }
        if zone.reclaim_active {
            if tuned {
                self.high = (high - self.recently_freed(rules)).max(high_min);
            }
            return (4 * batch).min(self.high);
        }
        if high_min == high_max {
            return high;
        }
        if zone.below_high && !matches!(rules.below_high, BelowHigh::Ignored) {
            self.high = (high - self.recently_freed(rules)).max(high_min);
            return self.count.max(high_min);
        }
        if self.count >= high {
            let need = if rules.free_count {
                self.free_count + batch
            } else {
                (batch << self.free_factor) + batch
            };
            if high < need {
                self.high = clamp(need, high_min, high_max);
            }
        }
        high
    }

    /// Returns how far pressure lowers `high`: the pages freed recently, in 6.12 at least a batch.
    fn recently_freed(&self, rules: &PcpRules) -> i32 {
        if !rules.free_count {
            self.limits.batch << self.free_factor
        } else if rules.count_min {
            self.free_count
        } else {
            self.free_count.max(self.limits.batch)
        }
    }

    /// Returns how many pages a free that reached `high` returns to the zone (§5.11).
    #[inline]
    pub fn nr_free(&mut self, rules: &PcpRules, high: i32, free_high: bool) -> i32 {
        let batch = self.limits.batch;
        if free_high {
            let tuned = !matches!(rules.growth, Growth::Fixed);
            return if tuned { self.count.min(batch << rules.scale_max) } else { self.count };
        }
        // Limits of a caller's own can be equal. The kernel's `high` is four batches at least.
        if high <= batch {
            return 1;
        }
        let most = high - batch;
        if rules.free_count {
            return clamp(self.free_count, batch, most);
        }
        let n = batch << self.free_factor;
        // Without the policy's cap, a fixed bound of 14 doublings.
        let cap = if rules.free_scale_capped { rules.scale_max } else { 14 };
        // From step 7 on, `high` makes room for exactly the next bulk free, so `n` often equals `most`.
        let room = if matches!(rules.growth, Growth::Fixed) { n < most } else { n <= most };
        if room && self.free_factor < cap {
            self.free_factor += 1;
        }
        clamp(n, batch, most)
    }

    /// Runs one tick of the statistics worker (§5.14): decays `high`. Returns how many pages the
    /// lists hold above it.
    pub fn decay(&mut self, rules: &PcpRules) -> i32 {
        let Limits { batch, high_min, .. } = self.limits;
        if matches!(rules.decay, Decay::None) {
            return 0;
        }
        if self.high > high_min {
            let lower = match rules.decay {
                Decay::None => self.high,
                Decay::Fifth if rules.count_min => self.high - self.count_min.min(self.high / 5),
                Decay::Fifth => self.high / 5 * 4 + self.high % 5 * 4 / 5,
                Decay::Eighth => self.high - (self.high >> 3),
            };
            self.high = (self.count - (batch << rules.scale_max)).max(lower).max(high_min);
        }
        self.count_min = self.count;
        (self.count - self.high).max(0)
    }
}

#[cfg(test)]
mod tests;
