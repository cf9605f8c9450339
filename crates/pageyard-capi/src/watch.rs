//! Statistics, texts, settings, drains and ticks.

use std::ffi::c_char;
use std::fmt::Write as _;

use pageyard_capi_core::stats::{of_yard, of_zone, pageyard_stats};
use pageyard_capi_core::status::{PAGEYARD_ERR_KNOB, PAGEYARD_ERR_SYSTEM, pageyard_status};
use pageyard_capi_core::text::{self, put};

use crate::argument::{answer, named, required, string, write};
use crate::handle::{here, of, pageyard, with_yard};
use crate::last_error::{self, done};

/// Fails if a buffer is null whose size is not 0.
fn sized_buffer(buffer: *const c_char, size: usize) -> Result<(), pageyard_status> {
    if size > 0 { required("buffer", buffer) } else { Ok(()) }
}

/// Fills in the figures of all zones together.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
/// of the structure are not set.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_stats(
    yard: *const pageyard,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and structure; `core` only reads.
    done(unsafe {
        here(yard).and_then(|inner| {
            let all = with_yard!(inner, |yard| of_yard(yard.core()));
            write("stats", stats, &all)
        })
    })
}

/// Fills in the figures of one zone. `index` is its position: there is one zone per node, in
/// ascending order.
///
/// Errors: as pageyard_get_stats; PAGEYARD_ERR_NODE if there is no zone at this position.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_zone_stats(
    yard: *const pageyard,
    index: usize,
    stats: *mut pageyard_stats,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and structure; `core` only reads.
    done(unsafe {
        here(yard).and_then(|inner| {
            let zone = with_yard!(inner, |yard| of_zone(yard.core(), index))
                .map_err(|e| named(format_args!("index: {index}"), e))?;
            write("stats", stats, &zone)
        })
    })
}

/// Asks the system how many of the yard's pages are currently backed by memory. Takes time
/// proportional to the yard's size.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM.
///
/// Threads: any. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_resident(
    yard: *const pageyard,
    pages: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        let resident = with_yard!(inner, |yard| yard.resident()).map_err(|e| {
            last_error::set(&e);
            PAGEYARD_ERR_SYSTEM
        })?;
        // SAFETY: as above.
        unsafe { answer("pages", pages, resident) }
    }))
}

/// Writes one of the PAGEYARD_TEXT texts about the yard to a buffer of `size` bytes. The text is
/// truncated to fit and, unless `size` is 0, ends with a zero byte. If `needed` is not null, it
/// receives the size of the whole text with that byte. A later text may be longer.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an unknown kind, or a null buffer with a
/// nonzero size; PAGEYARD_ERR_BUFFER if the text was truncated.
///
/// Threads: any. The figures of one text may be from slightly different times. Owner: the buffer
/// stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_text(
    yard: *const pageyard,
    kind: u32,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, buffer and result; `core` only reads.
    done(unsafe {
        here(yard).and_then(|inner| {
            sized_buffer(buffer, size)?;
            put(buffer, size, needed, |out| {
                with_yard!(inner, |yard| text::write(yard.core(), kind, out))
                    .map_err(|e| named(format_args!("kind: {kind}"), e))
            })
        })
    })
}

/// Writes the value of a setting to a buffer, in the manner of pageyard_text. `name` is the
/// kernel's name of the setting, such as "min_free_kbytes". docs/knobs.md lists all settings.
///
/// Errors: as pageyard_text; PAGEYARD_ERR_KNOB if there is no such setting, or it cannot be read.
///
/// Threads: any. Owner: name and buffer stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_knob(
    yard: *const pageyard,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, string, buffer and result; `core` only reads.
    done(unsafe {
        here(yard).and_then(|inner| {
            let name = string("name", name)?;
            let mut value = String::new();
            with_yard!(inner, |yard| yard.core().knob(name, &mut value)).map_err(|e| {
                last_error::set(&e);
                PAGEYARD_ERR_KNOB
            })?;
            sized_buffer(buffer, size)?;
            put(buffer, size, needed, |out| out.write_str(&value).map_err(|_| PAGEYARD_ERR_KNOB))
        })
    })
}

/// Sets a setting, given by name, to a value given as text, and applies everything that depends on
/// it.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB if there is no such
/// setting, it cannot be written, or the value is not allowed. pageyard_last_error describes the
/// problem and the allowed values.
///
/// Threads: any. Owner: the strings stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_knob(
    yard: *const pageyard,
    name: *const c_char,
    value: *const c_char,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and two strings; no block is touched.
    done(unsafe {
        here(yard).and_then(|inner| {
            let (name, value) = (string("name", name)?, string("value", value)?);
            with_yard!(inner, |yard| yard.core().set_knob(name, value)).map_err(|e| {
                last_error::set(&e);
                PAGEYARD_ERR_KNOB
            })
        })
    })
}

/// Drains the per-CPU lists to the zones, where blocks merge.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_drain(yard: *const pageyard) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.map(|inner| with_yard!(inner, |yard| yard.drain())))
}

/// Runs one tick of the statistics worker for every CPU. Call it about once a second if `tick_ns`
/// was 0. Binds the calling thread to each CPU in turn and leaves it on the last one.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: a dedicated thread that does nothing else. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_tick(yard: *const pageyard) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.map(|inner| with_yard!(inner, |yard| yard.tick())))
}
