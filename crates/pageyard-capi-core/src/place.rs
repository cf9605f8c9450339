//! Requests for blocks at a place that the caller chooses.

use pageyard::{Pfn, Place, PlaceError};

use crate::flags;
use crate::handle::{of, on_yard, pageyard_core};
use crate::sized::answer;
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_MISALIGNED,
    PAGEYARD_ERR_RESERVED, of_alloc, pageyard_status,
};

/// Like pageyard_core_alloc, but the first frame is a multiple of `align`, a power of two in pages, and
/// all frames of the block lie below `below`: for a device that addresses 32 bits, `below` is 1 << 20.
/// 0 for either is no constraint. Nothing is migrated or reclaimed; pageyard_core_alloc_contig_pages
/// migrates. May search the free lists of a zone under its lock.
///
/// Errors: as pageyard_core_alloc; PAGEYARD_ERR_ARGUMENT also for an alignment that is not a power of
/// two. PAGEYARD_ERR_NO_MEMORY also means that no free block lies at such a place.
///
/// Threads: any, but not interrupt handlers. Owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_with(
    yard: *const pageyard_core,
    order: u32,
    flags: u32,
    align: u64,
    below: u64,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   order: u32,
                                   flags: u32,
                                   align: u64,
                                   below: u64,
                                   pfn: *mut u64| {
        let order = flags::order(order)?;
        if pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let below = (below != 0).then_some(Pfn(below));
        let place = Place { align: align.max(1), below };
        let block = yard.alloc_with(order, flags::gfp(flags), place).map_err(of_place)?;
        // SAFETY: as above.
        unsafe { answer(pfn, block.0) }
    })
}

/// Allocates the block of 2^order pages that begins at frame `pfn`. Of the flags, only the type and
/// PAGEYARD_ZERO matter: the frame determines the zone. All of the block must be free; nothing is
/// migrated. The zone must keep its MIN watermark.
///
/// Errors: as pageyard_core_alloc; PAGEYARD_ERR_MISALIGNED if the frame is not a multiple of the
/// block's size, PAGEYARD_ERR_FOREIGN if it lies in no zone, PAGEYARD_ERR_RESERVED if a frame was never
/// given to the yard, PAGEYARD_ERR_BUSY if one is in use, out of use or in an isolated pageblock.
///
/// Threads: any, but not interrupt handlers. Owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_at(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
    flags: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, pfn: u64, order: u32, flags: u32| {
        yard.alloc_at(Pfn(pfn), flags::order(order)?, flags::gfp(flags)).map_err(of_place)
    })
}

/// Returns the status for a block that could not be allocated at a place.
fn of_place(error: PlaceError) -> pageyard_status {
    match error {
        PlaceError::Alloc(e) => of_alloc(e),
        PlaceError::BadAlign(_) => PAGEYARD_ERR_ARGUMENT,
        PlaceError::Misaligned(_) => PAGEYARD_ERR_MISALIGNED,
        PlaceError::Foreign(_) => PAGEYARD_ERR_FOREIGN,
        PlaceError::Reserved(_) => PAGEYARD_ERR_RESERVED,
        PlaceError::InUse(_) | PlaceError::Withheld(..) => PAGEYARD_ERR_BUSY,
    }
}
