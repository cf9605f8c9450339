//! Requests and frees that never wait for a lock.

use crate::flags;
use crate::handle::{of, on_yard, pageyard_core};
use crate::sized::answer;
use crate::status::{PAGEYARD_ERR_ARGUMENT, of_alloc, of_free, pageyard_status};

use pageyard::Pfn;

/// Like pageyard_core_alloc, but takes locks only with `try_lock` and never reclaims: for callers that
/// may have interrupted a holder of the library's locks, such as a non-maskable interrupt. Makes one
/// attempt, down to the min watermark, for the orders that per-CPU lists keep: 0 to 3, and 9. Flags that
/// allow reclaim, wake it or give access to reserves are ignored. Expect failures.
///
/// Errors: as pageyard_core_alloc. PAGEYARD_ERR_NO_MEMORY also means that a lock was taken, another
/// order, or on the packed engine, for an order above 0, that the few pageblocks looked at have no such
/// block.
///
/// Threads: any, interrupt handlers of every kind included, if `cpu`, `try_lock`, `unlock` and, with
/// PAGEYARD_ZERO, `zero` may run there; with struct pageyard_hooks also `now` and those of its functions
/// that are set, except `report_free`. A handler that cannot be masked frees the block with
/// pageyard_core_free_nowait. Owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_try_alloc(
    yard: *const pageyard_core,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard, order: u32, flags: u32, pfn: *mut u64| {
        let order = flags::order(order)?;
        if pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let block = yard.try_alloc(order, flags::gfp(flags)).map_err(of_alloc)?;
        // SAFETY: as above.
        unsafe { answer(pfn, block.0) }
    })
}

/// Like pageyard_core_free, but takes locks only with `try_lock`, for the callers of
/// pageyard_core_try_alloc. If the locks are taken, the block waits in a queue of its zone until a request,
/// a free, pageyard_core_drain or pageyard_core_tick takes the zone lock, or a request lacks memory. Until
/// then it is neither allocated nor free.
///
/// Errors: as pageyard_core_free.
///
/// Threads: as pageyard_core_try_alloc. Owner: the library owns the block again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free_nowait(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, pfn: u64, order: u32| {
        yard.free_nowait(Pfn(pfn), flags::order(order)?).map_err(of_free)
    })
}
