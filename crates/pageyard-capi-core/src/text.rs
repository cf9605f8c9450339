//! Texts written to buffers of the caller.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::ptr;
use core::slice;

use pageyard::{Config, Yard};
use pageyard_report::text as report;

use crate::handle::{self, on_yard, pageyard_core};
use crate::sized::answer;
use crate::stats;
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUFFER, PAGEYARD_ERR_KNOB, pageyard_status,
};

/// Free blocks by order, one row per zone, in the format of /proc/buddyinfo.
pub const PAGEYARD_TEXT_BUDDYINFO: u32 = 0;
/// Free blocks by order and type, in the format of /proc/pagetypeinfo.
pub const PAGEYARD_TEXT_PAGETYPEINFO: u32 = 1;
/// Zones, watermarks and per-CPU lists, in the format of /proc/zoneinfo.
pub const PAGEYARD_TEXT_ZONEINFO: u32 = 2;
/// Counters, in the format of /proc/vmstat.
pub const PAGEYARD_TEXT_VMSTAT: u32 = 3;
/// The memory report that the kernel prints when a request fails.
pub const PAGEYARD_TEXT_SHOW_MEM: u32 = 4;
/// Zones and their counters as one JSON object: {"zones": [{"node": 0, "kind": "Normal", ...}]}.
/// The fields have the names of struct pageyard_stats; "free_blocks" counts by order.
pub const PAGEYARD_TEXT_JSON: u32 = 5;

/// Writer to a buffer of the caller. Counts the bytes that do not fit. Texts are written directly,
/// not through `dyn Write` or `core::fmt`, so all calls are static and stack use can be bounded.
#[derive(Debug)]
pub struct Buffer {
    to: *mut c_char,
    size: usize,
    length: usize,
}

impl Buffer {
    /// # Safety
    /// `to` must point to `size` bytes that stay writable for the lifetime of the result.
    unsafe fn new(to: *mut c_char, size: usize) -> Result<Buffer, pageyard_status> {
        if to.is_null() && size > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        Ok(Buffer { to, size, length: 0 })
    }

    /// Terminates the text. Returns whether all of it fitted.
    fn end(self) -> bool {
        if let Some(last) = self.size.checked_sub(1) {
            // SAFETY: below the size passed to `new` (`a_truncated_text_is_terminated`).
            unsafe { self.to.add(self.length.min(last)).write(0) };
        }
        self.length < self.size
    }
}

impl Write for Buffer {
    #[inline(never)]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.size.saturating_sub(1).saturating_sub(self.length).min(text.len());
        if room > 0 {
            // SAFETY: `length + room` is below the size passed to `new`. The library's text does
            // not overlap the caller's buffer (`a_truncated_text_is_terminated`, and each size in
            // `invalid_and_extreme_numbers_are_errors_or_served`).
            unsafe { self.to.cast::<u8>().add(self.length).copy_from(text.as_ptr(), room) };
        }
        self.length = self.length.saturating_add(text.len());
        Ok(())
    }
}

/// Writes a text to a buffer. A text that is too long is truncated; the result always ends with a
/// zero byte.
///
/// # Errors
/// Fails if the text did not fit, or if `write` fails. `needed` receives the size of the whole
/// text.
///
/// # Safety
/// `to` must point to `size` writable bytes, unless `size` is 0. `needed` must be null or writable.
pub unsafe fn put(
    to: *mut c_char,
    size: usize,
    needed: *mut usize,
    write: impl FnOnce(&mut Buffer) -> Result<(), pageyard_status>,
) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller, here and below.
    let mut buffer = unsafe { Buffer::new(to, size) }?;
    let written = write(&mut buffer);
    let length = buffer.length;
    let fits = buffer.end();
    if !needed.is_null() {
        // SAFETY: see above.
        unsafe { answer(needed, length.saturating_add(1)) }?;
    }
    written?;
    if fits { Ok(()) } else { Err(PAGEYARD_ERR_BUFFER) }
}

/// Writes why a function failed, or an empty text. A sentence that does not fit is truncated. Not
/// inlined: sentences would take stack below everything that the function does.
///
/// # Safety
/// `why` must be null or point to `size` writable bytes.
#[inline(never)]
pub(crate) unsafe fn explain(
    why: *mut c_char,
    size: usize,
    write: impl FnOnce(&mut Buffer) -> fmt::Result,
) {
    if !why.is_null() {
        // SAFETY: guaranteed by the caller. A text that is too long is truncated.
        let _ = unsafe {
            put(why, size, ptr::null_mut(), |out| write(out).map_err(|_| PAGEYARD_ERR_BUFFER))
        };
    }
}

/// Writes the text of the given kind.
///
/// # Errors
/// Fails if there is no such kind.
pub fn write<C: Config>(
    yard: &Yard<'_, C>,
    kind: u32,
    out: &mut Buffer,
) -> Result<(), pageyard_status> {
    let written = match kind {
        PAGEYARD_TEXT_BUDDYINFO => report::write_buddyinfo(out, yard),
        PAGEYARD_TEXT_PAGETYPEINFO => report::write_pagetypeinfo(out, yard),
        PAGEYARD_TEXT_ZONEINFO => report::write_zoneinfo(out, yard, &()),
        PAGEYARD_TEXT_VMSTAT => report::write_vmstat(out, yard, &()),
        PAGEYARD_TEXT_SHOW_MEM => report::write_show_mem(out, yard, &()),
        PAGEYARD_TEXT_JSON => stats::write_json(yard, out),
        _ => return Err(PAGEYARD_ERR_ARGUMENT),
    };
    // A buffer accepts every write, so this error does not occur.
    written.map_err(|_| PAGEYARD_ERR_BUFFER)
}

/// Reads a string from C.
///
/// # Errors
/// Fails if the string is null or not UTF-8.
///
/// # Safety
/// The pointer must be null, or point to a zero-terminated string that does not change meanwhile.
pub unsafe fn string<'s>(from: *const c_char) -> Result<&'s str, pageyard_status> {
    if from.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    let from = from.cast::<u8>();
    let mut length = 0;
    // SAFETY: guaranteed by the caller up to the terminating zero. The read is volatile so that the
    // compiler does not turn the loop into a call of strlen, which does not exist without a libc
    // (`the_core_imports_only_four_functions`).
    while unsafe { from.add(length).read_volatile() } != 0 {
        length += 1;
    }
    // SAFETY: as above.
    let bytes = unsafe { slice::from_raw_parts(from, length) };
    str::from_utf8(bytes).map_err(|_| PAGEYARD_ERR_ARGUMENT)
}

/// Writes the value of a setting.
///
/// # Errors
/// Fails if there is no such setting, or it cannot be read.
pub fn knob<C: Config>(
    yard: &Yard<'_, C>,
    name: &str,
    out: &mut Buffer,
) -> Result<(), pageyard_status> {
    yard.knob(name, out).map_err(|_| PAGEYARD_ERR_KNOB)
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
pub unsafe extern "C" fn pageyard_core_text(
    yard: *const pageyard_core,
    kind: u32,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, a buffer of that size and a writable result.
    let yard = unsafe { handle::of(yard) };
    on_yard!(yard, |yard, kind: u32, buffer: *mut c_char, size: usize, needed: *mut usize| {
        // SAFETY: as above.
        unsafe { put(buffer, size, needed, |out| write(yard, kind, out)) }
    })
}

/// Writes the value of a setting to a buffer, in the manner of pageyard_core_text. `name` is the
/// kernel's name of the setting, such as "min_free_kbytes".
///
/// Errors: as pageyard_core_text; PAGEYARD_ERR_KNOB if there is no such setting, or it cannot be
/// read.
///
/// Threads: any. Owner: name and buffer stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_knob(
    yard: *const pageyard_core,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, string, buffer and result.
    let yard = unsafe { handle::of(yard) };
    on_yard!(yard, |yard,
                    name: *const c_char,
                    buffer: *mut c_char,
                    size: usize,
                    needed: *mut usize| {
        // SAFETY: as above, here and below.
        let name = unsafe { string(name) }?;
        // SAFETY: see above.
        unsafe { put(buffer, size, needed, |out| knob(yard, name, out)) }
    })
}

/// Sets a setting, given by name, to a value given as text, and applies everything that depends on
/// it.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB if there is no such
/// setting, it cannot be written, or the value is not allowed.
///
/// Threads: any. Owner: the strings stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_set_knob(
    yard: *const pageyard_core,
    name: *const c_char,
    value: *const c_char,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and two strings.
    on_yard!(unsafe { handle::of(yard) }, |yard, name: *const c_char, value: *const c_char| {
        // SAFETY: as above.
        let (name, value) = unsafe { (string(name)?, string(value)?) };
        yard.set_knob(name, value).map_err(|_| PAGEYARD_ERR_KNOB)
    })
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn a_truncated_text_is_terminated() {
        let mut bytes = [b'x' as c_char; 8];
        let mut needed = 0;
        for (size, status, kept) in
            [(6, Ok(()), c"hello"), (5, Err(PAGEYARD_ERR_BUFFER), c"hell"), (1, Err(-9), c"")]
        {
            // SAFETY: the array is longer.
            let put = unsafe {
                put(bytes.as_mut_ptr(), size, &mut needed, |out| {
                    out.write_str("he").and_then(|()| out.write_str("llo")).map_err(|_| 0)
                })
            };
            assert_eq!((put, needed), (status, 6));
            // SAFETY: `put` has ended it.
            assert_eq!(unsafe { CStr::from_ptr(bytes.as_ptr()) }, kept);
            assert_eq!(bytes[size.max(6)], b'x' as c_char);
        }
        // SAFETY: nothing is written to a buffer of no bytes.
        let put = unsafe { put(core::ptr::null_mut(), 0, &mut needed, |_| Ok(())) };
        assert_eq!((put, needed), (Err(PAGEYARD_ERR_BUFFER), 1));
    }
}
