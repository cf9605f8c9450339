//! `vmstat`: every counter of the machine.

use core::fmt::{self, Write};

use lock_api::RawMutex;

use super::names::CMA_PLACE;
use super::{
    CMA_EVENTS, EVENTS, Extra, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS, has_cma, nodes,
    populated, zone_stat,
};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::yard::Yard;

/// Writes counters in the form of `vmstat`: `name value`, one a line.
///
/// # Errors
/// Those of `out`.
pub fn write_counters<N: AsRef<str>>(
    out: &mut impl Write,
    counters: impl IntoIterator<Item = (N, u64)>,
) -> fmt::Result {
    counters.into_iter().try_for_each(|(name, n)| writeln!(out, "{} {n}", name.as_ref()))
}

impl<R: RawMutex, E: Platform, P: Policy> Yard<'_, R, E, P> {
    /// Writes `vmstat` (§9.1): 6.12's counters in its order, those of zones and nodes summed. What
    /// the allocator does not count itself comes from `extra`. The two events of contiguous-memory
    /// areas are there where there is such memory.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_vmstat(&self, out: &mut impl Write, extra: &impl Extra) -> fmt::Result {
        let of_zones = ZONE_STATS
            .into_iter()
            .chain(NUMA_STATS)
            .map(|name| (name, sum(populated(self.zones).map(|z| zone_stat(z, name, extra)))));
        write_counters(out, of_zones)?;
        let of_nodes =
            NODE_STATS.map(|name| (name, sum(nodes(self.zones).map(|n| extra.node_stat(n, name)))));
        write_counters(out, of_nodes)?;
        write_counters(out, MACHINE_STATS.map(|name| (name, extra.machine_stat(name))))?;

        let own = self.vm_events();
        let event =
            |name| (name, own.by_name(name).unwrap_or(0).saturating_add(extra.machine_stat(name)));
        let cma = if has_cma(self.zones) { CMA_EVENTS.len() } else { 0 };
        let before = EVENTS.into_iter().take(CMA_PLACE);
        let behind = EVENTS.into_iter().skip(CMA_PLACE);
        let names = before.chain(CMA_EVENTS.into_iter().take(cma)).chain(behind);
        write_counters(out, names.map(event))?;
        write_counters(out, [("nr_unstable", 0)])
    }
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}
