//! `vmstat`: every counter of the machine.

use core::fmt::{self, Write};

use super::names::CMA_PLACE;
use super::{
    CMA_EVENTS, EVENTS, Extra, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS, has_cma, nodes,
    populated, zone_stat,
};
use crate::allocator::vm_events::VmEvent;
use crate::allocator::yard::Yard;
use crate::base::put::put;
use crate::embedder::config::Config;

/// Writes counters in the form of `vmstat`: `name value`, one per line.
///
/// # Errors
/// The errors of `out`.
pub fn write_counters<N: AsRef<str>>(
    out: &mut impl Write,
    counters: impl IntoIterator<Item = (N, u64)>,
) -> fmt::Result {
    counters.into_iter().try_for_each(|(name, n)| write_counter(out, name.as_ref(), n))
}

fn write_counter(out: &mut impl Write, name: &str, n: u64) -> fmt::Result {
    put!(out, name, ' ', n, '\n')
}

impl<C: Config> Yard<'_, C> {
    /// Writes `vmstat` (§9.1): 6.12's counters in its order, with those of zones and nodes summed.
    /// `extra` supplies what the allocator does not count itself. The two CMA events are written
    /// only if there is CMA memory.
    ///
    /// # Errors
    /// The errors of `out`.
    #[inline(never)]
    pub fn write_vmstat(&self, out: &mut impl Write, extra: &impl Extra) -> fmt::Result {
        // The lists of names are always borrowed: a copy of one takes KiBs of stack.
        for &name in ZONE_STATS.iter().chain(&NUMA_STATS) {
            write_counter(
                out,
                name,
                sum(populated(self.zones).map(|z| zone_stat(z, name, extra))),
            )?;
        }
        for &name in &NODE_STATS {
            write_counter(out, name, sum(nodes(self.zones).map(|n| extra.node_stat(n, name))))?;
        }
        for &name in &MACHINE_STATS {
            write_counter(out, name, extra.machine_stat(name))?;
        }
        let cma: &[&str] = if has_cma(self.zones) { &CMA_EVENTS } else { &[] };
        let (before, behind) = EVENTS.split_at(CMA_PLACE);
        for &name in before.iter().chain(cma).chain(behind) {
            let own = VmEvent::named(name).map_or(0, |event| self.vm_event(event));
            write_counter(out, name, own.saturating_add(extra.machine_stat(name)))?;
        }
        write_counter(out, "nr_unstable", 0)
    }
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}
