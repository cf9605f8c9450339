//! Limits on events of any machine, enforced by readers and writers.

use crate::error::Fault;
use crate::event::{Event, Kind};

/// Maximum block order (spec §1.1).
pub const MAX_ORDER: u8 = 10;
/// Maximum migrate type: three bits are stored per pageblock (spec §1.4).
pub const MAX_TYPE: u8 = 7;
/// CPU numbers are below this.
pub const MAX_CPUS: u16 = 4096;
/// Maximum frame number: 64 address bits minus 12 bits of page offset.
pub const MAX_PFN: u64 = (1 << 52) - 1;
/// Maximum step back in time between successive records, in nanoseconds. CPU clocks differ
/// slightly, and recorders round. A larger step is a fault.
pub const MAX_BACKWARD_NS: u64 = 1_000_000;

/// Checks an event against the limits of this module.
///
/// # Errors
/// Fails with [`Fault::OutOfRange`], which contains the name of the field and its limit.
pub fn check_event(event: &Event) -> Result<(), Fault> {
    at_most("cpu", u64::from(event.cpu), u64::from(MAX_CPUS - 1))?;
    match event.kind {
        Kind::Alloc { pfn, order, migratetype, .. }
        | Kind::ZoneLocked { pfn, order, migratetype, .. } => {
            block(pfn.unwrap_or(0), order, migratetype)
        }
        Kind::Free { pfn, order } => block(pfn, order, 0),
        Kind::FreeBatched { pfn } => block(pfn, 0, 0),
        Kind::Drain { pfn, order, migratetype } => block(pfn, order, migratetype),
        Kind::ExtFrag { pfn, alloc_order, fallback_order, alloc_type, fallback_type, .. } => {
            block(pfn, alloc_order, alloc_type)?;
            block(pfn, fallback_order, fallback_type)
        }
    }
}

fn block(pfn: u64, order: u8, migratetype: u8) -> Result<(), Fault> {
    at_most("pfn", pfn, MAX_PFN)?;
    at_most("order", u64::from(order), u64::from(MAX_ORDER))?;
    at_most("migratetype", u64::from(migratetype), u64::from(MAX_TYPE))
}

pub(crate) fn at_most(field: &'static str, value: u64, limit: u64) -> Result<(), Fault> {
    if value > limit { Err(Fault::OutOfRange { field, value, limit }) } else { Ok(()) }
}
