//! Watermarks, boost and lowmem reserve: how they are computed (spec §3.1–3.5) and how a request is
//! tested against them (§3.6, §3.7).

use crate::base::gfp::AllocFlags;
use crate::base::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};
use crate::base::units::{PAGEBLOCK_PAGES, ZONE_KINDS, ZoneKind};

/// Index of the minimum mark: ordinary requests never use the pages below it.
pub(crate) const MIN: usize = 0;
/// Index of the mark below which background reclaim is woken.
pub(crate) const LOW: usize = 1;
/// Index of the mark at which background reclaim stops.
pub(crate) const HIGH: usize = 2;

/// Computes `x·n/d` without intermediate overflow, saturating at `u64::MAX` (spec §0.2).
pub(crate) const fn mult_frac(x: u64, n: u64, d: u64) -> u64 {
    (x / d).saturating_mul(n).saturating_add((x % d).saturating_mul(n) / d)
}

/// Returns the `min_free_kbytes` that follows from the size of low memory (§3.1), in kB.
pub fn min_free_kbytes(lowmem_kb: u64) -> u64 {
    lowmem_kb.saturating_mul(16).isqrt().clamp(128, 262144)
}

/// Returns the smallest `min_free_kbytes` if huge pages are in use (§3.1), in kB. `zones` is the
/// number of populated zones up to NORMAL; `lowmem_above_high` is their pages above the high marks.
pub fn huge_page_floor(zones: u64, lowmem_above_high: u64) -> u64 {
    let block = u64::from(PAGEBLOCK_PAGES);
    // Two free blocks per zone, plus nine for the pairs of types that could mix.
    let blocks = zones.saturating_mul(2 + 9);
    blocks.saturating_mul(block).min(lowmem_above_high / 20) * 4
}

/// Returns the marks of a zone (§3.2): MIN, LOW, HIGH, PROMO, without the boost, in pages.
pub fn zone_marks(
    kind: ZoneKind,
    managed: u64,
    lowmem_managed: u64,
    min_free_kbytes: u64,
    scale_factor: u64,
) -> [u64; 4] {
    let share = if lowmem_managed == 0 {
        0
    } else {
        let t = u128::from(min_free_kbytes / 4) * u128::from(managed) / u128::from(lowmem_managed);
        u64::try_from(t).unwrap_or(u64::MAX)
    };
    let min = if kind == ZoneKind::Movable { (managed / 1024).clamp(32, 128) } else { share };
    let gap = (share / 4).max(mult_frac(managed, scale_factor, 10000));
    core::array::from_fn(|i| min.saturating_add(gap.saturating_mul(i as u64)))
}

/// Returns the largest boost of a zone's watermarks (§3.4), in pages, or `None` if it is never
/// boosted.
pub fn boost_cap(managed: u64, high: u64, factor: u64) -> Option<u64> {
    let block = u64::from(PAGEBLOCK_PAGES);
    if factor == 0 || 4 * block > managed {
        return None;
    }
    let cap = mult_frac(high, factor, 10000);
    if cap == 0 { None } else { Some(cap.max(block)) }
}

/// Returns the pages that zone `i` withholds from requests that may use higher zones (§3.5),
/// indexed by the highest zone of the request.
pub fn lowmem_reserve(
    i: usize,
    managed: &[u64; ZONE_KINDS],
    ratio: &[u64; ZONE_KINDS],
) -> [u64; ZONE_KINDS] {
    let mut reserve = [0; ZONE_KINDS];
    let (Some(&ratio), Some(&own)) = (ratio.get(i), managed.get(i)) else { return reserve };
    if ratio == 0 || own == 0 {
        return reserve;
    }
    let mut above = 0;
    for (r, &m) in reserve.iter_mut().zip(managed).skip(i + 1) {
        above = m.saturating_add(above);
        *r = above / ratio;
    }
    reserve
}

/// Returns the most pages that may be reserved for high-order atomic requests (§3.8), or 0 for
/// none.
pub fn highatomic_cap(managed: u64) -> u64 {
    let block = u64::from(PAGEBLOCK_PAGES);
    let percent = managed / 100;
    if percent < block { 0 } else { percent.div_ceil(block) * block }
}

/// A zone's marks. Requests read them without a lock, while an operator may change them.
#[derive(Debug)]
pub(crate) struct Watermarks {
    marks: [AtomicU64; 4],
    boost: AtomicU64,
    // A power of two, so an index masked to three bits is in range.
    reserve: [AtomicU64; 8],
    /// Cached watermark per highest zone, derived from the other fields. If more pages than this
    /// are free, a request for one page that claims no reserve needs no further test.
    cached_mark: [AtomicI64; 8],
}

/// A zone's free pages, as its watermarks are tested against them (§3.6).
///
/// ```
/// use pageyard::{Bare, Yard, ZoneKind};
///
/// let yard: Yard<'_, Bare<spin::mutex::SpinMutex<()>, ()>> =
///     Yard::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ())?;
/// let supply = yard.supply(ZoneKind::Normal).unwrap();
/// assert_eq!((supply.free, supply.cma), (64 << 8, 0));
/// # Ok::<(), pageyard::InitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supply {
    /// The free counter, clamped at 0. Includes the other two.
    pub free: u64,
    /// Free pages in blocks reserved for high-order atomic requests (§3.8).
    pub highatomic: u64,
    /// Free pages of CMA pageblocks.
    pub cma: u64,
}

impl Supply {
    /// Returns whether CMA pages are more than half of the free ones: then movable requests take these first
    /// (§4.3).
    #[inline]
    pub(crate) fn is_mostly_cma(&self) -> bool {
        self.cma > self.free / 2
    }

    /// Returns the pages that this request may not use (§3.6), beyond the block itself.
    #[inline]
    fn withheld(&self, flags: AllocFlags) -> u64 {
        let mut n = 0;
        if !flags.intersects(AllocFlags::RESERVES) {
            n = self.highatomic;
        }
        if !flags.contains(AllocFlags::CMA) {
            n = self.cma.saturating_add(n);
        }
        n
    }
}

impl Watermarks {
    pub(crate) const fn new() -> Self {
        Watermarks {
            marks: [const { AtomicU64::new(0) }; 4],
            boost: AtomicU64::new(0),
            reserve: [const { AtomicU64::new(0) }; 8],
            cached_mark: [const { AtomicI64::new(0) }; 8],
        }
    }

    /// Returns a mark without the boost.
    #[inline]
    pub(crate) fn base(&self, i: usize) -> u64 {
        self.marks[i & 3].load(Relaxed)
    }

    /// Returns a mark with the boost (§3.3).
    #[inline]
    pub(crate) fn effective(&self, i: usize) -> u64 {
        self.base(i).saturating_add(self.boost())
    }

    #[inline]
    pub(crate) fn boost(&self) -> u64 {
        self.boost.load(Relaxed)
    }

    pub(crate) fn set_boost(&self, pages: u64) {
        self.boost.store(pages, Relaxed);
    }

    pub(crate) fn set_marks(&self, marks: [u64; 4]) {
        for (m, v) in self.marks.iter().zip(marks) {
            m.store(v, Relaxed);
        }
    }

    pub(crate) fn marks(&self) -> [u64; 4] {
        core::array::from_fn(|i| self.base(i))
    }

    #[inline]
    pub(crate) fn reserve(&self, highest: ZoneKind) -> u64 {
        self.reserve[highest as usize & 7].load(Relaxed)
    }

    pub(crate) fn set_reserve(&self, pages: [u64; ZONE_KINDS]) {
        for (r, v) in self.reserve.iter().zip(pages) {
            r.store(v, Relaxed);
        }
    }

    /// Decides most requests by one comparison. Returns exactly what [`ok_fast`] returns for order
    /// 0 and no flags against the mark given to [`refresh_cached_mark`].
    ///
    /// [`ok_fast`]: Self::ok_fast
    /// [`refresh_cached_mark`]: Self::refresh_cached_mark
    #[inline(always)]
    pub(crate) fn is_above_cached_mark(&self, free: i64, highest: ZoneKind) -> bool {
        free > self.cached_mark[highest as usize & 7].load(Relaxed)
    }

    /// Recomputes the cached watermark. Call it after every change of a mark, the boost, a reserve,
    /// or the withheld pages. With `never`, the cached watermark decides no request.
    pub(crate) fn refresh_cached_mark(&self, mark: usize, supply: Supply, never: bool) {
        for (a, pages) in self.cached_mark.iter().zip(self.cached_mark_now(mark, supply, never)) {
            a.store(pages, Relaxed);
        }
    }

    /// Returns the cached watermarks, by the highest zone of a request.
    pub(crate) fn cached_marks(&self) -> &[AtomicI64] {
        self.cached_mark.get(..ZONE_KINDS).unwrap_or_default()
    }

    /// Returns whether [`refresh_cached_mark`](Self::refresh_cached_mark) would change nothing.
    pub(crate) fn cached_mark_is(&self, mark: usize, supply: Supply, never: bool) -> bool {
        self.cached_mark_now(mark, supply, never)
            .eq(self.cached_mark.iter().map(|a| a.load(Relaxed)))
    }

    #[inline]
    fn cached_mark_now(
        &self,
        mark: usize,
        supply: Supply,
        never: bool,
    ) -> impl Iterator<Item = i64> + '_ {
        let withheld = supply.withheld(AllocFlags::WMARK_MIN);
        let base = if never { u64::MAX } else { self.effective(mark).saturating_add(withheld) };
        self.reserve.iter().map(move |r| {
            let pages = base.saturating_add(r.load(Relaxed));
            i64::try_from(pages).unwrap_or(i64::MAX)
        })
    }

    pub(crate) fn reserves(&self) -> [u64; ZONE_KINDS] {
        core::array::from_fn(|i| self.reserve[i & 7].load(Relaxed))
    }

    /// Tests a request against a mark (§3.7). `has_block` returns whether a free block of at least
    /// the order is on a list that the request may use.
    pub(crate) fn ok(
        &self,
        order: u8,
        mark: u64,
        highest: ZoneKind,
        flags: AllocFlags,
        supply: Supply,
        has_block: impl FnOnce() -> bool,
    ) -> bool {
        let withheld = i64::try_from(supply.withheld(flags)).unwrap_or(i64::MAX);
        let unusable = withheld.saturating_add((1 << order) - 1);
        // A shrinker may claim that it could free more pages than any zone has.
        let free = i64::try_from(supply.free).unwrap_or(i64::MAX).saturating_sub(unusable);
        let mut m = i64::try_from(mark).unwrap_or(i64::MAX);
        if flags.contains(AllocFlags::MIN_RESERVE) {
            m -= m / 2;
            if flags.contains(AllocFlags::NON_BLOCK) {
                m -= m / 4;
            }
        }
        if flags.contains(AllocFlags::OOM) {
            m -= m / 2;
        }
        free > m.saturating_add(self.reserve(highest) as i64) && (order == 0 || has_block())
    }

    /// Fast form of §3.7: decides most order-0 requests without the reserve arithmetic.
    #[inline]
    pub(crate) fn ok_fast(
        &self,
        order: u8,
        mark: u64,
        highest: ZoneKind,
        flags: AllocFlags,
        supply: Supply,
        has_block: impl Fn() -> bool,
    ) -> bool {
        if order == 0 {
            let usable = supply.free.saturating_sub(supply.withheld(flags));
            if usable > mark.saturating_add(self.reserve(highest)) {
                return true;
            }
        }
        if self.ok(order, mark, highest, flags, supply, &has_block) {
            return true;
        }
        // A boost alone must not make an urgent single-page request fail.
        order == 0
            && flags.contains(AllocFlags::MIN_RESERVE)
            && flags.mark() == MIN
            && self.boost() != 0
            && self.ok(order, self.base(MIN), highest, flags, supply, &has_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_1_c_3_min_free_kbytes_is_a_root_within_limits() {
        for (mib, want) in [
            (16, 512),
            (64, 1024),
            (128, 1448),
            (256, 2048),
            (1024, 4096),
            (4096, 8192),
            (16384, 16384),
        ] {
            assert_eq!(min_free_kbytes(mib * 1024), want, "{mib} MiB");
        }
        assert_eq!(min_free_kbytes(1 << 40), 262144);
        assert_eq!(min_free_kbytes(0), 128);
        assert_eq!(min_free_kbytes(u64::MAX), 262144);
    }

    #[test]
    fn s3_2_c_1_marks_equal_those_of_a_live_kernel() {
        let kb = huge_page_floor(3, 1_398_929);
        assert_eq!(kb, 67584);
        type Vector = (u64, [(u64, [u64; 4]); 3]);
        let vectors: [Vector; 2] = [
            (
                622592,
                [
                    (3840, [46, 57, 68, 79]),
                    (772497, [9330, 11662, 13994, 16326]),
                    (622592, [7519, 9398, 11277, 13156]),
                ],
            ),
            (
                1343488,
                [
                    (3840, [30, 37, 44, 51]),
                    (772497, [6157, 7696, 9235, 10774]),
                    (1343488, [10708, 13385, 16062, 18739]),
                ],
            ),
        ];
        for (normal, zones) in vectors {
            let lowmem = 3840 + 772497 + normal;
            for (managed, want) in zones {
                assert_eq!(zone_marks(ZoneKind::Normal, managed, lowmem, kb, 10), want);
            }
            assert_eq!(zone_marks(ZoneKind::Movable, 0, lowmem, kb, 10), [32; 4]);
        }
    }

    #[test]
    fn s3_5_c_1_lowmem_reserves_equal_those_of_a_live_kernel() {
        let ratio = [256, 256, 32, 0, 0];
        for (normal, dma, dma32) in [
            (622592, [0, 3017, 5449, 5449, 5449], [0, 0, 2432, 2432, 2432]),
            (1343488, [0, 3017, 8265, 8265, 8265], [0, 0, 5248, 5248, 5248]),
        ] {
            let managed = [3840, 772497, normal, 0, 0];
            assert_eq!(lowmem_reserve(0, &managed, &ratio), dma);
            assert_eq!(lowmem_reserve(1, &managed, &ratio), dma32);
            assert_eq!(lowmem_reserve(2, &managed, &ratio), [0; 5]);
        }
        assert_eq!(lowmem_reserve(0, &[0, 5000, 0, 0, 0], &ratio), [0; 5]);
    }

    #[test]
    fn c_5_highatomic_and_boost_are_capped_by_zone_size() {
        assert_eq!(highatomic_cap(3840), 0);
        assert_eq!(highatomic_cap(772497), 8192);
        assert_eq!(highatomic_cap(1343488), 13824);
        assert_eq!(boost_cap(1343488, 16062, 15000), Some(24093));
        assert_eq!(boost_cap(1343488, 16062, 0), None);
        assert_eq!(boost_cap(2047, 100, 15000), None);
        assert_eq!(boost_cap(4096, 15, 15000), Some(512));
    }

    #[test]
    fn s3_7_urgent_requests_go_below_the_mark() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        let ok = |free, flags: AllocFlags| {
            let supply = Supply { free, highatomic: 0, cma: 0 };
            w.ok(0, w.effective(flags.mark()), ZoneKind::Normal, flags, supply, || true)
        };
        assert!(!ok(100, AllocFlags::WMARK_MIN) && ok(101, AllocFlags::WMARK_MIN));
        let high = AllocFlags::MIN_RESERVE;
        assert!(!ok(50, high) && ok(51, high));
        let atomic = AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK;
        assert!(!ok(38, atomic) && ok(39, atomic));
        assert!(!ok(100, AllocFlags::NON_BLOCK), "NON_BLOCK alone changes nothing");
        assert!(!ok(50, AllocFlags::OOM) && ok(51, AllocFlags::OOM));
    }

    #[test]
    fn impossible_free_counts_pass_the_watermark() {
        let w = Watermarks::new();
        let all = Supply { free: u64::MAX, highatomic: 0, cma: 0 };
        assert!(w.ok(0, 100, ZoneKind::Normal, AllocFlags::WMARK_MIN, all, || true));
    }

    #[test]
    fn s3_6_pages_that_a_request_may_not_use_are_withheld() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        let s = Supply { free: 150, highatomic: 40, cma: 20 };
        let ok = |flags| w.ok(0, 100, ZoneKind::Normal, flags, s, || true);
        assert!(!ok(AllocFlags::WMARK_MIN), "90 are left");
        assert!(ok(AllocFlags::CMA), "110 are left");
        assert!(ok(AllocFlags::NON_BLOCK), "130 are left");
        let order3 = |free| {
            let s = Supply { free, highatomic: 0, cma: 0 };
            w.ok(3, 100, ZoneKind::Normal, AllocFlags::WMARK_MIN, s, || true)
        };
        assert!(!order3(107) && order3(108), "a block of eight needs seven more");
    }

    #[test]
    fn s3_7_the_cached_mark_answers_as_the_fast_form() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        w.set_boost(50);
        w.set_reserve([0, 0, 30, 70, 70]);
        for (highatomic, cma) in [(0, 0), (40, 0), (40, 20)] {
            w.refresh_cached_mark(HIGH, Supply { free: 0, highatomic, cma }, false);
            for free in 0..600 {
                let supply = Supply { free, highatomic, cma };
                for highest in ZoneKind::ALL {
                    let mark = w.effective(HIGH);
                    let full = w.ok_fast(0, mark, highest, AllocFlags::WMARK_MIN, supply, || true);
                    assert_eq!(
                        w.is_above_cached_mark(free as i64, highest),
                        full,
                        "{supply:?} {highest}"
                    );
                }
            }
        }
        assert!(!w.is_above_cached_mark(-5, ZoneKind::Dma));
    }

    #[test]
    fn s3_7_a_boost_does_not_fail_an_urgent_page() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        w.set_boost(512);
        let s = Supply { free: 60, highatomic: 0, cma: 0 };
        let ok = |flags: AllocFlags| {
            w.ok_fast(0, w.effective(flags.mark()), ZoneKind::Normal, flags, s, || true)
        };
        assert!(ok(AllocFlags::MIN_RESERVE));
        assert!(!ok(AllocFlags::WMARK_MIN));
        assert!(!ok(AllocFlags::MIN_RESERVE | AllocFlags::WMARK_LOW));
    }

    #[test]
    fn s0_2_fractions_do_not_overflow() {
        assert_eq!(mult_frac(10007, 15000, 10000), 15010);
        assert_eq!(mult_frac(9, 10, 10000), 0);
        assert_eq!(mult_frac(u64::MAX, 9999, 10000), 18444899399302180659);
    }

    #[test]
    fn s3_1_s3_2_the_floor_is_capped_and_movable_zones_have_a_min_of_their_own() {
        assert_eq!(huge_page_floor(3, 20000), 4000, "a twentieth of what is above the high marks");
        // MIN of a MOVABLE zone is computed on its own; the gaps come from its share.
        let movable = zone_marks(ZoneKind::Movable, 65536, 1 << 20, 67584, 10);
        assert_eq!(movable, [64, 328, 592, 856]);
        assert_eq!(zone_marks(ZoneKind::Normal, 0, 0, 67584, 10), [0; 4]);
        assert_eq!(zone_marks(ZoneKind::Normal, 10000, 0, 67584, 10), [0, 10, 20, 30]);
    }

    #[test]
    fn s3_4_s3_5_s3_8_caps_begin_at_their_smallest_zone() {
        assert_eq!(boost_cap(2048, 16062, 15000), Some(24093), "four pageblocks are enough");
        assert_eq!(boost_cap(4096, 0, 15000), None);
        assert_eq!(highatomic_cap(51200), 512);
        assert_eq!(highatomic_cap(51199), 0);
        let ratio = [256, 256, 32, 0, 0];
        assert_eq!(lowmem_reserve(3, &[0, 0, 0, 5000, 5000], &ratio), [0; 5], "no ratio");
    }

    #[test]
    fn watermarks_read_back_as_set() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        w.set_boost(50);
        w.set_reserve([10, 20, 30, 40, 50]);
        assert_eq!((w.marks(), w.reserves()), ([100, 200, 300, 400], [10, 20, 30, 40, 50]));
        assert_eq!([MIN, LOW, HIGH, 3].map(|i| w.effective(i)), [150, 250, 350, 450]);
        let supply = Supply { free: 0, highatomic: 7, cma: 0 };
        assert!(!w.cached_mark_is(HIGH, supply, false));
        w.refresh_cached_mark(HIGH, supply, false);
        assert!(w.cached_mark_is(HIGH, supply, false));
        assert!(!w.cached_mark_is(LOW, supply, false) && !w.cached_mark_is(HIGH, supply, true));
        w.refresh_cached_mark(HIGH, supply, true);
        assert!(!w.is_above_cached_mark(i64::MAX, ZoneKind::Normal));
    }

    #[test]
    fn s3_7_a_sufficient_block_must_exist() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        let s = Supply { free: 5000, highatomic: 0, cma: 0 };
        let ok = |order, there: bool| {
            let full = w.ok(order, 100, ZoneKind::Normal, AllocFlags::WMARK_MIN, s, || there);
            let fast = w.ok_fast(order, 100, ZoneKind::Normal, AllocFlags::WMARK_MIN, s, || there);
            assert_eq!(full, fast);
            full
        };
        assert!(ok(0, false), "a single page always is");
        assert!(ok(3, true) && !ok(3, false));
    }

    #[test]
    fn s3_7_urgent_single_pages_use_the_unboosted_min() {
        let w = Watermarks::new();
        w.set_marks([100, 200, 300, 400]);
        w.set_boost(512);
        let ok = |free, order, flags: AllocFlags| {
            let s = Supply { free, highatomic: 0, cma: 0 };
            w.ok_fast(order, w.effective(flags.mark()), ZoneKind::Normal, flags, s, || true)
        };
        let urgent = AllocFlags::MIN_RESERVE;
        assert!(ok(51, 0, urgent) && !ok(50, 0, urgent), "half of MIN");
        assert!(!ok(150, 1, urgent), "single pages alone");
        assert!(!ok(150, 0, AllocFlags::WMARK_MIN), "urgent ones alone");
        assert!(!ok(150, 0, urgent | AllocFlags::WMARK_LOW), "MIN alone");
        assert!(!ok(612, 0, AllocFlags::WMARK_MIN) && ok(613, 0, AllocFlags::WMARK_MIN));
    }
}
