//! How much of a yard is in use and resident.

use std::sync::atomic::Ordering::Relaxed;

use pageyard::ZoneInfo;
use pageyard::policy::Policy;

use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// Use of a yard, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) managed: u64,
    pub(crate) used: u64,
    /// On per-CPU lists.
    pub(crate) cached: u64,
    pub(crate) waiting: u64,
    pub(crate) reported: u64,
    pub(crate) retaken: u64,
    /// Whether a node is below its LOW watermark; whether all are at or below their MIN watermarks.
    pub(crate) low: bool,
    pub(crate) none: bool,
    /// Whether a node is below its HIGH watermark; whether all are below their LOW watermarks. With
    /// hysteresis, these end what `low` and `none` began.
    pub(crate) below_high: bool,
    pub(crate) all_low: bool,
}

/// Returns the pages that requests can have. Those that CPUs keep count: a request drains them before it
/// fails.
fn free(zone: &ZoneInfo) -> u64 {
    zone.free_exact + zone.cached
}

/// Returns whether free memory is below the LOW watermark with its boost: background reclaim is
/// due.
fn is_low(zone: &ZoneInfo) -> bool {
    free(zone) < zone.watermarks[1].saturating_add(zone.boost)
}

/// Returns whether free memory is below the HIGH watermark with its boost: background reclaim goes
/// on.
fn is_below_high(zone: &ZoneInfo) -> bool {
    free(zone) < zone.watermarks[2].saturating_add(zone.boost)
}

/// Returns whether ordinary requests fail.
fn is_at_min(zone: &ZoneInfo) -> bool {
    free(zone) <= zone.watermarks[0]
}

impl Usage {
    pub(crate) fn of<P: Policy>(raw: &RawYard<P, HostLock>) -> Usage {
        let mut sum = Usage { none: true, all_low: true, ..Usage::default() };
        let mut idle = 0;
        // A zone that is offline is neither low nor full.
        for zone in raw.core().zone_ids().filter(|&zone| raw.core().is_populated(zone)) {
            let (Some(info), Some(report)) =
                (raw.core().zone_info(zone), raw.core().reported(zone))
            else {
                continue;
            };
            sum.managed += info.managed;
            idle += free(&info);
            sum.cached += info.cached;
            sum.waiting += report.waiting;
            sum.reported += report.reported;
            sum.retaken += report.retaken;
            sum.low |= is_low(&info);
            sum.none &= is_at_min(&info);
            sum.below_high |= is_below_high(&info);
            sum.all_low &= is_low(&info);
        }
        let kept = raw.service().balloon.pages() + raw.service().returning.load(Relaxed);
        sum.used = sum.managed.saturating_sub(idle + kept);
        sum
    }

    /// Returns the pages that the system backs, as far as the allocator knows.
    pub(crate) fn resident<P: Policy>(&self, raw: &RawYard<P, HostLock>) -> u64 {
        if let Some(backed) = raw.core().hooks().touched_pages() {
            return backed;
        }
        let service = raw.service();
        let is_discarded =
            raw.region().discarding(false).is_some() && !service.refused.load(Relaxed);
        // What the hard limit keeps was discarded, where that is possible.
        let kept = if is_discarded { service.balloon.pages() } else { 0 };
        self.managed.saturating_sub(self.reported + kept)
    }

    /// Returns the pages that callers hold, beside what threads' caches keep and what is out of use.
    pub(crate) fn owned(&self, in_thread_caches: u64, out_of_use: u64) -> u64 {
        self.used.saturating_sub(in_thread_caches + out_of_use)
    }

    /// Returns the pages of `resident` that are free in pageblocks partly in use, or on per-CPU lists.
    pub(crate) fn in_pieces<P: Policy>(&self, raw: &RawYard<P, HostLock>, resident: u64) -> u64 {
        // Where resident pages are counted, those of whole pageblocks that wait are few: they are returned
        // first. Most of `waiting` was never in use.
        let waiting = if raw.service().returns_pieces.load(Relaxed) { 0 } else { self.waiting };
        resident.saturating_sub(self.used + waiting)
    }
}

#[cfg(test)]
mod tests {
    use pageyard::{Gfp, NodeId, Order, Pfn, ZONE_KINDS, ZoneKind};

    use super::*;
    use crate::backend::tests::two_nodes;
    use crate::yard::HostYard;
    use crate::{Builder, HugePages, ThreadCache};

    fn zone(free_exact: u64) -> ZoneInfo {
        ZoneInfo {
            kind: ZoneKind::Normal,
            node: NodeId(0),
            start: Pfn(0),
            spanned: 1 << 14,
            present: 1 << 14,
            managed: 1 << 14,
            free: 0,
            free_exact,
            cached: 0,
            watermarks: [256, 320, 384, 448],
            boost: 100,
            lowmem_reserve: [0; ZONE_KINDS],
            reserved_highatomic: 0,
            free_highatomic: 0,
            below_high: false,
            reclaim_active: false,
            boosted: false,
            grouping_disabled: false,
        }
    }

    #[test]
    fn a_zone_is_low_below_its_boosted_watermark() {
        assert!(is_low(&zone(419)) && !is_low(&zone(420)));
        assert!(is_at_min(&zone(256)) && !is_at_min(&zone(257)));
        assert!(is_below_high(&zone(483)) && !is_below_high(&zone(484)));
    }

    #[test]
    fn a_shortage_of_all_memory_is_seen_beside_a_node_that_is_offline() {
        let raw = two_nodes();
        let far = raw.core().zone_info(raw.core().zone_ids().nth(1).unwrap()).unwrap();
        raw.core().offline(far.start..Pfn(far.start.0 + far.spanned)).unwrap();
        assert!(!Usage::of(&raw).all_low);
        while raw.core().alloc(Order::ZERO, Gfp::NOWAIT | Gfp::NOWARN).is_ok() {}
        assert!(Usage::of(&raw).all_low);
    }

    /// A yard without caches that keep pages, and blocks of single pages.
    fn yard(size: u64, hard: Option<u64>) -> HostYard {
        let builder = Builder::new(size).huge_pages(HugePages::Never).tick(None);
        let builder = builder.thread_cache(ThreadCache::Off).give_back(None);
        hard.map_or(builder.clone(), |hard| builder.hard_limit(hard)).build().unwrap()
    }

    #[test]
    fn use_is_counted_over_all_zones() {
        let yard = yard(16 << 20, None);
        let one = || yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let mut blocks: Vec<_> = (0..1000).map(|_| one()).collect();
        blocks.truncate(900);
        let usage = Usage::of(yard.raw());
        // Pages on per-CPU lists are neither in use nor free.
        let cached: u64 = yard.zones().map(|z| yard.zone_info(z).unwrap().cached).sum();
        assert!(cached > 0);
        assert_eq!((usage.managed, usage.used, usage.reported, usage.retaken), (4096, 900, 0, 0));
        assert!((1024..=4096 - 900).contains(&usage.waiting), "{usage:?}");
        assert_eq!(usage.waiting % 512, 0);
        assert_eq!(usage.resident(yard.raw()), 4096);
        assert!(!usage.low && !usage.none);
        let zone = yard.zones().next().unwrap();
        let reported = yard.raw().core().report_free_pages(zone, Order::ZERO, 512);
        let usage = Usage::of(yard.raw());
        assert!(reported >= 512 && usage.reported == reported, "{usage:?}");
        assert_eq!(usage.resident(yard.raw()), 4096 - reported);
        // All of them are taken again.
        let quietly = Gfp::KERNEL.union(Gfp::NOWARN).difference(Gfp::RECLAIM);
        blocks.extend(std::iter::from_fn(|| yard.alloc(Order::ZERO, quietly).ok()));
        let usage = Usage::of(yard.raw());
        assert_eq!((usage.reported, usage.retaken), (0, reported));
        assert_eq!(usage.used, blocks.len() as u64);
    }

    #[test]
    fn a_yard_is_low_before_it_is_at_its_min_watermark() {
        // So large that a refill takes less than lies between the watermarks.
        let yard = yard(256 << 20, None);
        let info = || yard.zone_info(yard.zones().next().unwrap()).unwrap();
        let mut blocks = Vec::new();
        let urgent = Gfp::MEMALLOC | Gfp::NOWARN | Gfp::NORETRY;
        let mut seen = [false; 3];
        while let Ok(block) = yard.alloc(Order::ZERO, urgent) {
            blocks.push(block);
            let usage = Usage::of(yard.raw());
            assert_eq!((usage.low, usage.none), (is_low(&info()), is_at_min(&info())));
            let lasting = (usage.below_high, usage.all_low);
            assert_eq!(lasting, (is_below_high(&info()), is_low(&info())));
            seen[usize::from(usage.low) + usize::from(usage.none)] = true;
        }
        if yard.zones().count() == 1 {
            assert_eq!(seen, [true; 3]);
        }
    }

    #[test]
    fn pages_kept_by_the_hard_limit_are_neither_used_nor_resident() {
        let yard = yard(64 << 20, Some(32 << 20));
        let _blocks: Vec<_> =
            (0..10).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
        let usage = Usage::of(yard.raw());
        assert_eq!((usage.used, usage.resident(yard.raw())), (10, 8192));
        let zone = yard.zones().next().unwrap();
        let reported = yard.raw().core().report_free_pages(zone, Order::ZERO, 512);
        let usage = Usage::of(yard.raw());
        assert!(reported > 0);
        assert_eq!((usage.used, usage.resident(yard.raw())), (10, 8192 - reported));
    }
}
