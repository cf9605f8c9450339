//! The memory as a whole: its addresses, what of it is usable, contiguous ranges, the thread cache.

use std::ffi::c_void;
use std::mem;

use ::pageyard::policy::Policy;
use ::pageyard::{Order, PAGE_SIZE, Pfn};
use pageyard_capi_core::flags;
use pageyard_capi_core::sized::Growing;
use pageyard_capi_core::status::{
    PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_RANGE, of_contig, pageyard_status,
};
use pageyard_host::PageRange;

use crate::argument::{self, answer, named, of_free, required, wrong};
use crate::handle::{here, of, pageyard, with_yard};
use crate::last_error::done;

/// How much of a yard ordinary requests for single pages can use at once, and what takes the rest, in
/// bytes. The fields from `absent` to `bytes` add up to `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_usable {
    /// sizeof(struct pageyard_usable).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// All memory of the yard.
    pub size: u64,
    /// Offline, or not initialized yet.
    pub absent: u64,
    /// Faulty, bad, or guard pages.
    pub out_of_use: u64,
    /// Kept out of circulation by the hard limit.
    pub above_limit: u64,
    /// Below the min watermarks, for PAGEYARD_HIGH and PAGEYARD_MEMALLOC only. A share of the whole
    /// size, not of the limit; the setting "min_free_kbytes" changes it.
    pub min: u64,
    /// Reserved for atomic requests of larger blocks at the moment.
    pub highatomic: u64,
    /// The most that ordinary requests can have at once.
    pub bytes: u64,
    /// On lists of CPUs and in thread caches at the moment; no part of the sum. Lists of idle CPUs are
    /// drained within a second, or by pageyard_drain.
    pub cached: u64,
    /// Descriptors and tables, which are outside the yard's memory.
    pub maps: u64,
}

// SAFETY: the structure begins with the two fields; the rest is numbers.
unsafe impl Growing for pageyard_usable {
    const LEAST: usize = 80;
}

const _: () = assert!(size_of::<pageyard_usable>() == 80);

/// Statistics of a yard's thread cache (PAGEYARD_THREAD_CACHE).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_thread_cache {
    /// sizeof(struct pageyard_thread_cache).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// 1 if there is a cache: the option is set, and the system has membarrier.
    pub on: u32,
    /// 1 while threads keep nothing, because a zone was below its low watermark.
    pub pressed: u32,
    /// Threads that have a part of it.
    pub threads: u64,
    /// Pages in it.
    pub pages: u64,
    /// Requests that were served from it.
    pub hits: u64,
    /// Refills, and their pages.
    pub refills: u64,
    /// See `refills`.
    pub refilled_pages: u64,
    /// Times that a thread's part was full or its thread ended, and the pages that left it.
    pub flushes: u64,
    /// See `flushes`.
    pub flushed_pages: u64,
    /// Times that a thread's part was drained, and the pages that left it.
    pub drains: u64,
    /// See `drains`.
    pub drained_pages: u64,
}

// SAFETY: the structure begins with the two fields; the rest is numbers.
unsafe impl Growing for pageyard_thread_cache {
    const LEAST: usize = 88;
}

const _: () = assert!(size_of::<pageyard_thread_cache>() == 88);

/// Stores the address and the size in bytes of all memory of the yard, to register it with a device
/// or with io_uring. Create the yard with PAGEYARD_PINNED: otherwise idle memory is returned to the
/// system, the same address then gets another page, and the registration still refers to the old one.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT.
///
/// Threads: any. Owner: no ownership changes; only blocks that the caller owns may be accessed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_region(
    yard: *const pageyard,
    address: *mut *mut c_void,
    size: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and writable results.
    done(unsafe { of(yard) }.and_then(|inner| {
        required("address", address)?;
        required("size", size)?;
        let all = with_yard!(inner, |yard| yard.memory());
        // SAFETY: as above.
        unsafe {
            answer("address", address, all.as_ptr().cast())?;
            answer("size", size, all.len())
        }
    }))
}

/// Fills in how much of the yard ordinary requests can use, and what takes the rest.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
/// of the structure are not set.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_usable(
    yard: *const pageyard,
    usable: *mut pageyard_usable,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a structure of the stated size.
    done(unsafe { here(yard) }.and_then(|inner| {
        let u = with_yard!(inner, |yard| yard.usable());
        let all = pageyard_usable {
            size: u.size,
            absent: u.absent,
            out_of_use: u.out_of_use,
            above_limit: u.above_limit,
            min: u.min,
            highatomic: u.highatomic,
            bytes: u.bytes,
            cached: u.cached,
            maps: u.maps,
            ..pageyard_usable::default()
        };
        // SAFETY: as above.
        unsafe { argument::write("usable", usable, &all) }
    }))
}

/// Fills in the statistics of the thread cache; zeros if there is none.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
/// of the structure are not set.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_thread_cache(
    yard: *const pageyard,
    stats: *mut pageyard_thread_cache,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a structure of the stated size.
    done(unsafe { here(yard) }.and_then(|inner| {
        let s = with_yard!(inner, |yard| yard.thread_cache_stats());
        let all = pageyard_thread_cache {
            on: s.on.into(),
            pressed: s.pressed.into(),
            threads: s.threads as u64,
            pages: s.pages,
            hits: s.hits,
            refills: s.refills,
            refilled_pages: s.refilled_pages,
            flushes: s.flushes,
            flushed_pages: s.flushed_pages,
            drains: s.drains,
            drained_pages: s.drained_pages,
            ..pageyard_thread_cache::default()
        };
        // SAFETY: as above.
        unsafe { argument::write("stats", stats, &all) }
    }))
}

/// Passes a range to the caller of the library.
fn address_of<P: Policy>(range: PageRange<'_, P>) -> *mut c_void {
    let address = range.as_ptr();
    mem::forget(range);
    address.as_ptr().cast()
}

/// Allocates any number of contiguous pages, also more than the largest block, and stores their
/// address in `range`. The number of the first frame is a multiple of `align` pages; 1 is enough for
/// most. Movable blocks that are in the way are moved. The pages keep their old contents, unless
/// `flags` contains PAGEYARD_ZERO.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE if `pages` or `align` is
/// not possible; PAGEYARD_ERR_FLAGS; PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY if there is no such range.
///
/// Threads: any, but not signal handlers. Owner: the caller owns the pages until
/// pageyard_free_range, which any thread may call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_alloc_range(
    yard: *const pageyard,
    pages: u64,
    align: u64,
    flags: u32,
    range: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        required("range", range)?;
        let gfp = flags::gfp(flags);
        if gfp.migrate_type().is_none() || gfp.highest_zone().is_none() {
            return Err(named(format_args!("flags: {flags:#x}"), PAGEYARD_ERR_FLAGS));
        }
        let got = with_yard!(inner, |yard| yard.alloc_range(pages, align, gfp).map(address_of))
            .map_err(|e| match of_contig(e) {
                PAGEYARD_ERR_RANGE => {
                    wrong(PAGEYARD_ERR_RANGE, format_args!("pages: {pages}, align: {align}: {e}"))
                }
                status => status,
            })?;
        for i in 0..pages {
            let page = got.wrapping_byte_add((i * PAGE_SIZE) as usize);
            inner.declare_not_movable(page, Order::ZERO, gfp);
        }
        // SAFETY: as above.
        unsafe { answer("range", range, got) }
    }))
}

/// Frees `pages` contiguous pages of pageyard_alloc_range: all of the range, or a part. A null
/// `range` is ignored.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE if the range exceeds the yard; as pageyard_free of
/// order 0 for the first page that cannot be freed. Nothing is freed then.
///
/// Threads: any, but not signal handlers. Owner: the library owns the pages again; they must not be
/// accessed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_free_range(
    yard: *const pageyard,
    range: *mut c_void,
    pages: u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { of(yard) }.and_then(|inner| {
        if range.is_null() {
            return Ok(());
        }
        let first = inner.frame_of("range", range)?;
        let bytes = pages.checked_mul(PAGE_SIZE).and_then(|b| usize::try_from(b).ok());
        let last = bytes.and_then(|b| range.addr().checked_add(b)?.checked_sub(1));
        let inside = last.is_some_and(|last| {
            inner.frame(range.map_addr(|_| last & !(PAGE_SIZE as usize - 1))).is_ok()
        });
        if pages == 0 || !inside {
            return Err(wrong(
                PAGEYARD_ERR_RANGE,
                format_args!("pages: {pages}; expected at least 1, and a range within the yard"),
            ));
        }
        let frames = first..Pfn(first.0 + pages);
        with_yard!(inner, |yard| {
            if !yard.is_here() {
                return Ok(());
            }
            // SAFETY: the header requires pages that the caller owns; others are refused.
            unsafe { yard.core() }.free_contig(frames).map_err(|e| of_free(range, e.error))
        })
    }))
}

/// Sets whether the owner of a block can move it when a relocator is called for it
/// (pageyard_register_relocator). A block is not movable when it is allocated.
///
/// Errors: as pageyard_free; a null block is PAGEYARD_ERR_FOREIGN.
///
/// A call with `movable` 0 does not stop a move that has begun: a relocator may still be called for the
/// block, or be running. An owner that needs the block in place therefore also notes that in the table
/// where its relocator looks the block up, under the same lock, and the relocator refuses.
///
/// Threads: the block's owner. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_movable(
    yard: *const pageyard,
    block: *mut c_void,
    order: u32,
    movable: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.and_then(|inner| {
        let order = argument::order("order", order)?;
        let pfn = inner.frame_of("block", block)?;
        // SAFETY: the header requires a block that the caller owns; no Rust `Block` owns it.
        with_yard!(inner, |yard| unsafe { yard.core() }.set_movable(pfn, order, movable != 0))
            .map_err(|e| of_free(block, e))
    }))
}

/// Compacts all memory now: moves movable blocks together, so that large blocks become free. Calls
/// the relocators.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any that holds no lock that a relocator waits for. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_compact(yard: *const pageyard) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.map(|inner| with_yard!(inner, |yard| yard.compact())))
}
