//! How much of a yard is in use and resident.

use pageyard::ZoneInfo;
use pageyard::policy::Policy;

use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// Use of a yard, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) managed: u64,
    pub(crate) used: u64,
    pub(crate) waiting: u64,
    pub(crate) reported: u64,
    pub(crate) retaken: u64,
    /// Whether a node is below its LOW watermark; whether all are at or below their MIN watermarks.
    pub(crate) low: bool,
    pub(crate) none: bool,
}

/// Returns whether free memory is below the LOW watermark with its boost: background reclaim is
/// due.
fn is_low(zone: &ZoneInfo) -> bool {
    zone.free_exact < zone.watermarks[1].saturating_add(zone.boost)
}

/// Returns whether ordinary requests fail.
fn is_at_min(zone: &ZoneInfo) -> bool {
    zone.free_exact <= zone.watermarks[0]
}

impl Usage {
    pub(crate) fn of<P: Policy>(raw: &RawYard<P, HostLock>) -> Usage {
        let mut sum = Usage { none: true, ..Usage::default() };
        let mut idle = 0;
        for zone in raw.core().zone_ids() {
            let (Some(info), Some(report)) =
                (raw.core().zone_info(zone), raw.core().reported(zone))
            else {
                continue;
            };
            sum.managed += info.managed;
            idle += info.free_exact + info.cached;
            sum.waiting += report.waiting;
            sum.reported += report.reported;
            sum.retaken += report.retaken;
            sum.low |= is_low(&info);
            sum.none &= is_at_min(&info);
        }
        let kept = raw.service().balloon.pages();
        sum.used = sum.managed.saturating_sub(idle + kept);
        sum
    }

    /// Returns the pages that the system backs, as far as the allocator knows.
    pub(crate) fn resident<P: Policy>(&self, raw: &RawYard<P, HostLock>) -> u64 {
        self.managed.saturating_sub(self.reported + raw.service().balloon.pages())
    }
}

#[cfg(test)]
mod tests {
    use pageyard::{NodeId, ZONE_KINDS, ZoneKind};

    use super::*;

    fn zone(free_exact: u64) -> ZoneInfo {
        ZoneInfo {
            kind: ZoneKind::Normal,
            node: NodeId(0),
            start: pageyard::Pfn(0),
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
    }
}
