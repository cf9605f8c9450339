//! `vmstat`: every counter of the machine.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::{Config, VmEvent, Yard};

use super::names::CMA_PLACE;
use super::{
    CMA_EVENTS, EVENTS, Extra, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS, has_cma, nodes,
    zone_stat, zones,
};

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

/// Writes `vmstat` (§9.1): 6.12's counters in its order, with those of zones and nodes summed.
/// `extra` supplies what the allocator does not count itself. The two CMA events are written only
/// if there is CMA memory.
///
/// # Errors
/// The errors of `out`.
#[inline(never)]
pub fn write_vmstat<C: Config>(
    out: &mut impl Write,
    yard: &Yard<'_, C>,
    extra: &impl Extra,
) -> fmt::Result {
    // The lists of names are always borrowed: a copy of one takes KiBs of stack.
    for &name in ZONE_STATS.iter().chain(&NUMA_STATS) {
        let counts = zones(yard).map(|zone| zone_stat(yard, zone, name, extra));
        write_counter(out, name, sum(counts))?;
    }
    for &name in &NODE_STATS {
        write_counter(out, name, sum(nodes(yard).map(|node| extra.node_stat(node, name))))?;
    }
    for &name in &MACHINE_STATS {
        write_counter(out, name, extra.machine_stat(name))?;
    }
    let cma: &[&str] = if has_cma(yard) { &CMA_EVENTS } else { &[] };
    let (before, behind) = EVENTS.split_at(CMA_PLACE);
    for &name in before.iter().chain(cma).chain(behind) {
        let own = VmEvent::named(name).map_or(0, |event| yard.vm_event(event));
        write_counter(out, name, own.saturating_add(extra.machine_stat(name)))?;
    }
    write_counter(out, "nr_unstable", 0)
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}
