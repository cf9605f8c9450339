//! The arithmetic of the per-CPU lists: batch, limits, refill and drain sizes, growth, decay
//! (spec §5.3–5.14, and the earlier steps of §5.17). Pure functions over a small struct: no lists,
//! no locks, tested against the spec's vectors without an allocator.

use crate::history::HighReason;
use crate::policy::{BelowHigh, Decay, Growth, High, KeepBatch, PcpRules};
use crate::units::{COSTLY_ORDER, PAGE_SIZE};

/// The last free was of order 1 to 3 (§5.9).
pub const PREV_FREE_HIGH_ORDER: u8 = 1;
/// One batch stays cached before a run of high-order frees drains the lists (§5.13).
pub const FREE_HIGH_BATCH: u8 = 2;

/// No count of pages in a per-CPU list, and no limit of one, is larger: the sums below then stay
/// within an `i32`.
pub const MAX_PAGES: i32 = 1 << 28;
/// The largest batch that a pageset may have.
pub const MAX_BATCH: i32 = 1 << 14;

/// The kernel's `clamp`: where the limits cross, the upper one wins (spec §0.2).
pub const fn clamp(v: i32, lo: i32, hi: i32) -> i32 {
    let v = if v < lo { lo } else { v };
    if v > hi { hi } else { v }
}

/// What a zone is, as far as its per-CPU lists see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Background reclaim is at work (RECLAIM_ACTIVE).
    pub reclaim_active: bool,
    /// The high watermark was last seen to fail (BELOW_HIGH).
    pub below_high: bool,
}

impl Pressure {
    /// Why a free moves `high` under this pressure, if it does: the cases of
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

    /// The limits of a zone (§5.3, §5.4).
    ///
    /// `managed` and `low` (the effective low watermark) are in pages; `cpus` is how many CPUs
    /// share the zone's node; `fraction` is `percpu_pagelist_high_fraction`.
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

    /// The same without room between them: `high` stays at the lower one.
    pub fn fixed(self) -> Limits {
        Limits { high_max: self.high_min, ..self }
    }
}

/// The batch of a zone with this many managed pages (§5.3).
pub fn batch(managed: u64) -> i32 {
    whole_batch(managed).max(1)
}

/// The batch before it is made a page at least.
fn whole_batch(managed: u64) -> i32 {
    let b = ((managed >> 10).min(256) / 4).max(1);
    let x = b + b / 2;
    // Rounded down to a power of two, less one: odd batches spread over cache colours.
    (1 << (63 - x.leading_zeros())) - 1
}

/// `highsize` of §5.4, in pages: an even share of the low watermark, or of a fraction of the zone.
pub fn high_size(managed: u64, low: u64, cpus: u32, fraction: u32, batch: i32) -> i32 {
    let total = if fraction == 0 { low } else { managed / u64::from(fraction) };
    let share = (total / u64::from(cpus.max(1))).min(MAX_PAGES as u64) as i32;
    share.max(batch.saturating_mul(4))
}

/// A CPU's share of its caches, in bytes (§5.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheSlice {
    /// Of the last level: its size divided by the CPUs that share it.
    pub last_level: u64,
    /// Of all data and unified levels together.
    pub all_levels: u64,
}

/// Whether FREE_HIGH_BATCH is set for a CPU with these caches (§5.13, and step 3 of §5.17).
pub fn keeps_batch(rules: &PcpRules, slice: CacheSlice, batch: i32) -> bool {
    let batch = batch.max(0) as u64;
    match rules.keep_batch {
        KeepBatch::Never => false,
        KeepBatch::AllLevelsAbove4 => slice.all_levels / PAGE_SIZE > 4 * batch,
        KeepBatch::LastLevelAbove3 => slice.last_level / PAGE_SIZE > 3 * batch,
    }
}

/// The fields of a pageset that its tuning reads and writes (§5.1). Counts are base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tuning {
    /// Pages on all lists of the pageset.
    pub count: i32,
    /// Above this many, frees give pages back.
    pub high: i32,
    /// Its limits, and the batch.
    pub limits: Limits,
    /// [`PREV_FREE_HIGH_ORDER`] and [`FREE_HIGH_BATCH`].
    pub flags: u8,
    /// How often the next refill doubles.
    pub alloc_factor: u8,
    /// How often the next drain doubles (policies without `free_count`).
    pub free_factor: u8,
    /// Pages freed lately, halved by every allocation (step 10).
    pub free_count: i32,
    /// The smallest count since the last tick (step 9).
    pub count_min: i32,
}

/// How much a pageset takes back before a free has more to do than to count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Below this many pages a free leaves `high` alone and drains nothing, outside pressure and
    /// runs of high-order frees; 0 where `high` has yet to follow its limits.
    pub pages: i32,
    /// Where `free_count` stops growing.
    pub free_count: i32,
}

impl Tuning {
    /// A request reaches the pageset (§5.7): the memory of recent frees fades.
    #[inline]
    pub fn note_alloc(&mut self, rules: &PcpRules) {
        if rules.free_count {
            self.free_count >>= 1;
        } else {
            self.free_factor >>= 1;
        }
    }

    /// A block of 2^order pages leaves the lists for a caller.
    #[inline]
    pub fn note_taken(&mut self, rules: &PcpRules, order: u8) {
        self.count -= 1 << order;
        if rules.count_min && self.count < self.count_min {
            self.count_min = self.count;
        }
    }

    /// How many blocks of this order the next refill takes (§5.8); `high` may grow by it.
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

    /// A block enters the lists from a caller (§5.9): counts it, and says whether this free is to
    /// drain the lists because high-order blocks keep coming.
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

    /// Whether so much was freed in a row that the CPU is taken to give back more than it takes.
    #[inline(always)]
    fn is_freeing(&self, rules: &PcpRules) -> bool {
        let Limits { batch, high_min, .. } = self.limits;
        match (rules.free_count, rules.free_high_late) {
            (false, _) => self.free_factor > 0,
            (true, false) => self.free_count >= batch,
            (true, true) => self.free_count >= batch + high_min / 2,
        }
    }

    /// What [`free_quietly`](Self::free_quietly) compares with, to be computed once after each
    /// other change.
    pub fn room(&self, rules: &PcpRules) -> Room {
        let within = self.limits.high_min <= self.high && self.high <= self.limits.high_max;
        Room {
            pages: if within { self.high } else { 0 },
            free_count: self.limits.batch << rules.scale_max,
        }
    }

    /// Takes a block back if that does no more than count it. What
    /// [`note_free`](Self::note_free) and [`nr_high`](Self::nr_high) do in full, for the common
    /// case of a zone without [`Pressure`]. `false`: nothing has changed, and the full way is to
    /// be taken.
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

    /// From which count on this free gives pages back (§5.10); `high` may move.
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

    /// By how much pressure lowers `high`: what was freed lately, at least a batch in 6.12.
    fn recently_freed(&self, rules: &PcpRules) -> i32 {
        if !rules.free_count {
            self.limits.batch << self.free_factor
        } else if rules.count_min {
            self.free_count
        } else {
            self.free_count.max(self.limits.batch)
        }
    }

    /// How many pages a free that reached `high` gives back (§5.11).
    #[inline]
    pub fn nr_free(&mut self, rules: &PcpRules, high: i32, free_high: bool) -> i32 {
        let batch = self.limits.batch;
        if free_high {
            let tuned = !matches!(rules.growth, Growth::Fixed);
            return if tuned { self.count.min(batch << rules.scale_max) } else { self.count };
        }
        if high < batch {
            return 1;
        }
        let most = high - batch;
        if rules.free_count {
            return clamp(self.free_count, batch, most);
        }
        let n = batch << self.free_factor;
        // Without the cap, growth ends where the lists end.
        let cap = if rules.free_scale_capped { rules.scale_max } else { 14 };
        if n < most && self.free_factor < cap {
            self.free_factor += 1;
        }
        clamp(n, batch, most)
    }

    /// One tick of the statistics worker (§5.14): `high` decays; returns how many pages the lists
    /// hold above it.
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
mod tests {
    use super::*;
    use crate::policy::{Base, Linux612, Policy, Step1, Step3, Step5, Step7, Step9, Step10};

    const L: PcpRules = Linux612::RULES.pcp;

    fn pageset(batch: i32, high_min: i32, high_max: i32) -> Tuning {
        Tuning { limits: Limits { batch, high_min, high_max }, ..Tuning::default() }
    }

    #[test]
    fn batch_of_5_3_and_c_2() {
        let vectors: &[(u64, i32)] = &[
            (0, 1),
            (3840, 1),
            (8192, 1),
            (12288, 3),
            (24576, 7),
            (32768, 7),
            (45055, 7),
            (45056, 15),
            (65536, 15),
            (131072, 31),
            (176127, 31),
            (176128, 63),
        ];
        for &(managed, want) in vectors {
            assert_eq!(batch(managed), want, "managed {managed}");
        }
        // One section gives seed 5's bad values.
        assert_eq!((batch(32768), 6 * batch(32768)), (7, 42));
    }

    #[test]
    fn limits_of_5_4_and_c_1() {
        // (managed, low) → batch, high_min, high_max on one node with two CPUs
        let vectors: &[(u64, u64, (i32, i32, i32))] = &[
            (3840, 57, (1, 28, 240)),
            (772497, 11662, (63, 5831, 48281)),
            (622592, 9398, (63, 4699, 38912)),
            (3840, 37, (1, 18, 240)),
            (772497, 7696, (63, 3848, 48281)),
            (1343488, 13385, (63, 6692, 83968)),
        ];
        for &(managed, low, want) in vectors {
            let l = Limits::of_zone(&L, managed, low, 2, 0);
            assert_eq!((l.batch, l.high_min, l.high_max), want, "managed {managed} low {low}");
        }
    }

    #[test]
    fn fraction_of_5_4_fixes_high() {
        let l = Limits::of_zone(&L, 772497, 7696, 2, 100);
        assert_eq!((l.batch, l.high_min, l.high_max), (63, 3862, 3862));
        let base = Limits::of_zone(&Base::RULES.pcp, 772497, 7696, 2, 0);
        assert_eq!((base.high_min, base.high_max), (3848, 3848));
    }

    #[test]
    fn refills_of_5_8_and_c_4() {
        let mut t = pageset(63, 3848, 48281);
        let mut got = [0; 7];
        let mut highs = [0; 7];
        for i in 0..7 {
            got[i] = t.nr_alloc(&L, 0, Pressure::default());
            highs[i] = t.high;
        }
        assert_eq!(got, [63, 126, 252, 504, 1008, 2016, 2016]);
        assert_eq!(highs, [3911, 4037, 4289, 4793, 5801, 7817, 9833]);

        let mut t = pageset(63, 361, 361);
        let mut got = [0; 5];
        got.fill_with(|| t.nr_alloc(&L, 0, Pressure::default()));
        assert_eq!(got, [63, 126, 252, 298, 298]);

        for (order, want) in [(1, 31), (2, 15), (3, 7), (9, 2)] {
            let mut t = pageset(63, 3848, 48281);
            assert_eq!(t.nr_alloc(&L, order, Pressure::default()), want, "order {order}");
        }
    }

    #[test]
    fn refill_of_5_5_takes_one_page() {
        let mut t = pageset(1, 0, 0);
        assert_eq!(t.nr_alloc(&L, 0, Pressure::default()), 1);
        assert_eq!(t.nr_high(&L, false, Pressure::default()), 0);
        assert_eq!(t.nr_free(&L, 0, false), 1);
    }

    #[test]
    fn no_growth_below_high_5_8() {
        let mut t = pageset(63, 3848, 48281);
        t.nr_alloc(&L, 0, Pressure { below_high: true, ..Pressure::default() });
        assert_eq!(t.high, 3848);
    }

    #[test]
    fn decay_of_5_14_and_c_7() {
        for (high, count, want) in
            [(52263, 16952, 45731), (18451, 15379, 16145), (64554, 15373, 56485)]
        {
            let mut t = Tuning { high, count, ..pageset(63, 6751, 83968) };
            assert_eq!(t.decay(&L), 0);
            assert_eq!(t.high, want);
        }
        // The lists hold more than the decay would leave: high follows the count, and the rest
        // of the excess is drained.
        let mut t = Tuning { high: 10000, count: 12000, ..pageset(63, 6751, 83968) };
        assert_eq!(t.decay(&L), 12000 - 9984);
        assert_eq!(t.high, 9984);
    }

    #[test]
    fn drains_excess_without_tuning_5_14() {
        let mut t = Tuning { high: 361, count: 400, ..pageset(63, 361, 361) };
        assert_eq!((t.decay(&L), t.high), (39, 361));
    }

    #[test]
    fn free_high_of_b_3_waits_for_half_of_high_min() {
        const LATE: PcpRules = <crate::policy::LateFreeHigh as Policy>::RULES.pcp;
        let limits = Limits { batch: 63, high_min: 400, high_max: 4000 };
        let drains_from = |rules: &PcpRules| {
            let mut t = Tuning { limits, ..Tuning::default() };
            (1..100).find(|_| t.note_free(rules, 3)).map(|n| 8 * (n - 1))
        };
        // So many pages are freed before the block that drains, in blocks of eight.
        assert_eq!(drains_from(&L), Some(64));
        assert_eq!(drains_from(&LATE), Some(264), "63 + 200");
        let mut t = Tuning { limits, high: 400, free_count: 200, ..Tuning::default() };
        let room = t.room(&LATE);
        assert!(t.free_quietly(&LATE, 3, room) && !t.free_quietly(&L, 3, room));
    }

    #[test]
    fn free_high_of_5_9_needs_two_in_a_row() {
        let mut t = Tuning { free_count: 63, high: 4000, ..pageset(63, 3848, 48281) };
        assert!(!t.note_free(&L, 1));
        assert!(t.note_free(&L, 1));
        t.note_free(&L, 0);
        assert!(!t.note_free(&L, 3), "an order-0 free between them");
        t.flags |= FREE_HIGH_BATCH;
        t.count = 10;
        assert!(!t.note_free(&L, 3), "less than a batch cached");
        t.count = 100;
        assert!(t.note_free(&L, 3));
        assert!(!t.note_free(&L, 9), "order 9 is not high-order here");
    }

    /// The short way takes only what the long way would take without further effect.
    #[test]
    fn free_quietly_is_the_common_case_of_5_9() {
        for rules in [L, Base::RULES.pcp, Step7::RULES.pcp] {
            let mut taken = 0;
            for i in 0..6000i32 {
                let order = [0, 1, 3, 9][i as usize % 4];
                let t = Tuning {
                    count: i * 13 % 700,
                    high: i * 29 % 900,
                    flags: (i / 4 % 4) as u8,
                    alloc_factor: (i % 6) as u8,
                    free_factor: (i / 7 % 3) as u8,
                    free_count: i * 7 % 130,
                    ..pageset(63, 100, 800)
                };
                let (mut quiet, mut full) = (t, t);
                if quiet.free_quietly(&rules, order, t.room(&rules)) {
                    let free_high = full.note_free(&rules, order);
                    let high = full.nr_high(&rules, free_high, Pressure::default());
                    assert!(full.count < high, "{t:?} order {order}");
                    assert_eq!(quiet, full, "{t:?} order {order}");
                    taken += 1;
                } else {
                    assert_eq!(quiet, t, "nothing changes");
                }
            }
            assert!(taken > 500, "the common case must be common");
        }
    }

    #[test]
    fn high_under_pressure_5_10() {
        let mut t = Tuning { high: 5000, count: 5000, free_count: 200, ..pageset(63, 100, 9000) };
        let reclaim = Pressure { reclaim_active: true, below_high: true };
        assert_eq!(t.nr_high(&L, false, reclaim), 252);
        assert_eq!(t.high, 4800);
        let below = Pressure { reclaim_active: false, below_high: true };
        t.free_count = 0;
        assert_eq!(t.nr_high(&L, false, below), 5000, "everything above what is cached now");
        assert_eq!(t.high, 4800 - 63, "at least a batch");
        assert_eq!(t.nr_high(&L, true, Pressure::default()), 0);
        assert_eq!(t.high, 4800 - 63 - 2016);
    }

    #[test]
    fn growth_on_free_5_10_returns_the_old_high() {
        let mut t = Tuning { high: 500, count: 500, free_count: 2000, ..pageset(63, 100, 9000) };
        assert_eq!(t.nr_high(&L, false, Pressure::default()), 500);
        assert_eq!(t.high, 2063);
    }

    #[test]
    fn nr_free_of_5_11() {
        let mut t = Tuning { count: 5000, free_count: 1000, ..pageset(63, 100, 9000) };
        assert_eq!(t.nr_free(&L, 4000, false), 1000);
        assert_eq!(t.nr_free(&L, 400, false), 337);
        assert_eq!(t.nr_free(&L, 0, true), 2016);
        assert_eq!(t.nr_free(&L, 62, false), 1);
        t.free_count = 0;
        assert_eq!(t.nr_free(&L, 4000, false), 63);
    }

    #[test]
    fn cache_flag_of_5_13() {
        let slice = |pages: u64| CacheSlice { last_level: pages * 4096, all_levels: pages * 4096 };
        assert!(!keeps_batch(&L, slice(189), 63), "strictly more than three batches");
        assert!(keeps_batch(&L, slice(190), 63));
        assert!(!keeps_batch(&Step3::RULES.pcp, slice(252), 63));
        assert!(keeps_batch(&Step3::RULES.pcp, slice(253), 63));
        assert!(!keeps_batch(&Step1::RULES.pcp, slice(1 << 20), 63));
    }

    #[test]
    fn base_of_5_17() {
        let r = Base::RULES.pcp;
        let mut t = Tuning { count: 3000, high: 3000, ..pageset(63, 3848, 3848) };
        assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63);
        assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63, "refills do not double");
        assert!(!t.note_free(&r, 3), "no bulk free before");
        let frees: [i32; 8] = core::array::from_fn(|_| t.nr_free(&r, 3848, false));
        assert_eq!(frees, [63, 126, 252, 504, 1008, 2016, 3785, 3785]);
        assert!(t.note_free(&r, 1), "one high-order free after a bulk free is enough");
        t.count = 3000;
        assert_eq!(t.nr_free(&r, 0, true), 3000, "and frees all");
        t.note_alloc(&r);
        assert_eq!(t.free_factor, 3);
        let reclaim = Pressure { reclaim_active: true, below_high: false };
        assert_eq!(t.nr_high(&r, false, reclaim), 252);
        assert_eq!(t.decay(&r), 0);
    }

    #[test]
    fn steps_of_5_17() {
        let r = Step1::RULES.pcp;
        let mut t = Tuning { free_factor: 1, ..pageset(63, 3848, 3848) };
        assert!(!t.note_free(&r, 1) && t.note_free(&r, 1));

        let r = Step5::RULES.pcp;
        let mut t = Tuning { count: 3000, ..pageset(63, 3848, 3848) };
        for _ in 0..8 {
            t.nr_free(&r, 3848, false);
        }
        assert_eq!(t.free_factor, 5, "step 4 caps the doublings");
        t.count = 0;
        assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 63);
        assert_eq!(t.nr_alloc(&r, 0, Pressure::default()), 126, "step 5 doubles refills");
        assert_eq!(t.high, 3848, "without growth");

        let r = Step7::RULES.pcp;
        let mut t = Tuning { high: 1000, count: 100, ..pageset(63, 100, 9000) };
        t.decay(&r);
        assert_eq!(t.high, 800);
        t.nr_alloc(&r, 0, Pressure { reclaim_active: true, below_high: false });
        assert_eq!(t.high, 800, "no growth during reclaim");
        t.count = 900;
        t.free_factor = 4;
        assert_eq!(t.nr_high(&r, false, Pressure::default()), 800);
        assert_eq!(t.high, 63 * 17, "room for the next bulk free and a batch");

        let r = Step9::RULES.pcp;
        let mut t = Tuning { high: 1000, count: 100, count_min: 50, ..pageset(63, 100, 9000) };
        t.decay(&r);
        assert_eq!((t.high, t.count_min), (950, 100));

        let r = Step10::RULES.pcp;
        let mut t = Tuning { high: 1000, count: 1000, free_count: 7, ..pageset(63, 100, 9000) };
        t.nr_high(&r, false, Pressure { reclaim_active: false, below_high: true });
        assert_eq!(t.high, 993, "the series had no floor of a batch");
    }
}
