//! Statistics, texts, settings, and what may be done beside requests.

use std::ffi::c_char;
use std::fmt::Write as _;

use pageyard_capi_core::sized::{answer, write};
use pageyard_capi_core::stats::{of_yard, of_zone, pageyard_stats};
use pageyard_capi_core::status::{PAGEYARD_ERR_KNOB, PAGEYARD_ERR_SYSTEM, pageyard_status, status};
use pageyard_capi_core::text::{self, put, string};

use crate::handle::{here, of, pageyard};
use crate::last_error;

/// Fills in the figures of all zones together.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose first
/// two fields are not set.
///
/// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_stats(
    yard: *const pageyard,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a structure of its size; `core` only reads.
    status(unsafe { here(yard).and_then(|inner| write(stats, &of_yard(inner.yard.core()))) })
}

/// Fills in the figures of one zone, by its position: one for each node, ascending.
///
/// Errors: as pageyard_get_stats; PAGEYARD_ERR_NODE where there are not so many zones.
///
/// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_zone_stats(
    yard: *const pageyard,
    index: usize,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a structure of its size; `core` only reads.
    status(unsafe {
        here(yard).and_then(|inner| write(stats, &of_zone(inner.yard.core(), index)?))
    })
}

/// Asks the system how many of the yard's pages take memory at the moment. Takes time in proportion to
/// the yard's size.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM.
///
/// Threads: any. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_resident(
    yard: *const pageyard,
    pages: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|inner| {
        let resident = inner.yard.resident().map_err(|e| {
            last_error::set(&e);
            PAGEYARD_ERR_SYSTEM
        })?;
        // SAFETY: as above.
        unsafe { answer(pages, resident) }
    }))
}

/// Writes a text about the yard, one of the PAGEYARD_TEXT kinds, into a buffer of `size` bytes: as
/// much as fits, ended by a zero byte where `size` is not 0. `needed`, where it is not null, is set
/// to the bytes that the whole text takes with that byte; a later text may take more.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for another kind or a null buffer of a size;
/// PAGEYARD_ERR_BUFFER where it does not fit (the buffer then holds its beginning).
///
/// Threads: any; figures of one text may be a moment apart. Owner: the buffer stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_text(
    yard: *const pageyard,
    kind: u32,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header asks for a handle, a buffer and a place for the answer; `core` only reads.
    status(unsafe {
        here(yard).and_then(|inner| {
            put(buffer, size, needed, |out| text::write(inner.yard.core(), kind, out))
        })
    })
}

/// Writes the value of a setting, by the kernel's name ("min_free_kbytes"), as pageyard_text does.
/// docs/knobs.md has them all.
///
/// Errors: as pageyard_text; PAGEYARD_ERR_KNOB where there is no such setting, or it cannot be read.
///
/// Threads: any. Owner: all stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_knob(
    yard: *const pageyard,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header asks for a handle, a string, a buffer and a place; `core` only reads.
    status(unsafe {
        here(yard).and_then(|inner| {
            let name = string(name)?;
            let mut value = String::new();
            inner.yard.core().knob(name, &mut value).map_err(|e| {
                last_error::set(&e);
                PAGEYARD_ERR_KNOB
            })?;
            put(buffer, size, needed, |out| out.write_str(&value).map_err(|_| PAGEYARD_ERR_KNOB))
        })
    })
}

/// Sets a setting by its name, from text, with everything that follows from it.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB where there is no such setting,
/// it cannot be written, or not to this value: pageyard_last_error says which, and what is allowed.
///
/// Threads: any. Owner: the strings stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_knob(
    yard: *const pageyard,
    name: *const c_char,
    value: *const c_char,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and two strings; no block is touched.
    status(unsafe {
        here(yard).and_then(|inner| {
            inner.yard.core().set_knob(string(name)?, string(value)?).map_err(|e| {
                last_error::set(&e);
                PAGEYARD_ERR_KNOB
            })
        })
    })
}

/// Gives everything on per-CPU lists back to the zones, where it merges.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_drain(yard: *const pageyard) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { here(yard) }.map(|inner| inner.yard.drain()))
}

/// One tick of the statistics worker for every CPU, to be called about once a second where `tick_ns`
/// was 0. Binds the calling thread to each of the CPUs in turn, and leaves it on the last.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: one of its own, that does nothing else. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_tick(yard: *const pageyard) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { here(yard) }.map(|inner| inner.yard.tick()))
}
