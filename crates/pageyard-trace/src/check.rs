//! What can be true of an event on any machine: the limits that readers and writers enforce.

use crate::error::Fault;
use crate::event::{Event, Kind};

/// Greatest block order (spec §1.1).
pub const MAX_ORDER: u8 = 10;
/// Greatest migrate type: three bits are stored per pageblock (spec §1.4).
pub const MAX_TYPE: u8 = 7;
/// CPUs are numbered below this.
pub const MAX_CPUS: u16 = 4096;
/// Greatest frame number: 64 address bits less 12 bits of page.
pub const MAX_PFN: u64 = (1 << 52) - 1;
/// Time may go back by this much (ns) from one record to the next: clocks of CPUs differ a
/// little, and recorders round. Anything more is a fault.
pub const MAX_BACKWARD_NS: u64 = 1_000_000;

/// Checks an event against the limits of this module.
///
/// # Errors
/// [`Fault::OutOfRange`] with the name of the field and its limit.
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
