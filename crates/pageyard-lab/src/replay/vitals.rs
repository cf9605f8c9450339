//! The state of an allocator or of the recording at one moment, for counters over time.

use pageyard::policy::{Engine, Policy};
use pageyard::tuning::Tuning;
use pageyard::{BlockCounts, Config, CpuId, Yard, ZoneId};

use super::machine::{Machine, id_of};
use crate::track::ZoneNow;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Vitals {
    /// By the machine's zone.
    pub(super) zones: Vec<ZoneVitals>,
    /// By zone, then by CPU: pages on the lists, and `high` if it is known.
    pub(super) lists: Vec<(i64, Option<i64>)>,
}

/// The state of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneVitals {
    pub(super) free: u64,
    /// MIN, LOW and HIGH.
    pub(super) watermarks: [u64; 3],
    pub(super) blocks: BlockCounts,
    /// Holds of the zone lock so far. In a recording, those of refills and drains.
    pub(super) holds: u64,
}

impl ZoneVitals {
    /// Returns the zone as a tracker sees it.
    pub(super) fn now(&self) -> ZoneNow {
        let pages = |order: usize| self.blocks.0[order].iter().sum::<u64>() << order;
        ZoneNow {
            free: self.free,
            watermarks: self.watermarks,
            pages_by_order: std::array::from_fn(pages),
        }
    }
}

/// Returns the state of an allocator.
pub(super) fn of_yard<C: Config>(machine: &Machine, yard: &Yard<'_, C>) -> Vitals {
    let zone = |z| of_zone(yard, id_of(z));
    let list = |(z, cpu)| {
        let set = yard.pageset(id_of(z), CpuId(cpu)).unwrap_or_default();
        (i64::from(set.count), high_of(yard, set))
    };
    let cpus = machine.cpus.len() as u32;
    let slots = machine.zones.iter().flat_map(|z| (0..cpus).map(move |cpu| (z, cpu)));
    Vitals { zones: machine.zones.iter().map(zone).collect(), lists: slots.map(list).collect() }
}

/// Returns the limit of a CPU's lists. The packed engine has none.
pub(super) fn high_of<C: Config>(yard: &Yard<'_, C>, set: Tuning) -> Option<i64> {
    (yard.policy().rules().engine == Engine::Exact).then(|| set.high.into())
}

/// Returns the state of an allocator's zone.
pub(super) fn of_zone<C: Config>(yard: &Yard<'_, C>, zone: ZoneId) -> ZoneVitals {
    let info = yard.zone_info(zone);
    let (marks, boost) = info.as_ref().map_or(([0; 4], 0), |i| (i.watermarks, i.boost));
    ZoneVitals {
        free: info.map_or(0, |i| i.free_exact),
        watermarks: [marks[0], marks[1], marks[2]].map(|m| m + boost),
        blocks: yard.free_blocks_by_type(zone).unwrap_or_default(),
        holds: yard.zone_stats(zone).map_or(0, |s| s.lock_holds),
    }
}
