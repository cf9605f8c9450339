//! Texts into buffers of the caller's.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::slice;

use pageyard::{Config, Yard};

use crate::handle::{self, pageyard_core};
use crate::sized::answer;
use crate::stats;
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUFFER, PAGEYARD_ERR_KNOB, pageyard_status, status,
};

/// Free blocks by order, a row for each zone, as the kernel's /proc/buddyinfo.
pub const PAGEYARD_TEXT_BUDDYINFO: u32 = 0;
/// Free blocks by order and type, as /proc/pagetypeinfo.
pub const PAGEYARD_TEXT_PAGETYPEINFO: u32 = 1;
/// Zones, watermarks, per-CPU lists, as /proc/zoneinfo.
pub const PAGEYARD_TEXT_ZONEINFO: u32 = 2;
/// Counters, as /proc/vmstat.
pub const PAGEYARD_TEXT_VMSTAT: u32 = 3;
/// The report on memory that the kernel prints when a request fails.
pub const PAGEYARD_TEXT_SHOW_MEM: u32 = 4;
/// Zones and their counters as one JSON object: {"zones": [{"node": 0, "kind": "Normal", ...}]},
/// fields named as those of struct pageyard_stats, and "free_blocks" by order.
pub const PAGEYARD_TEXT_JSON: u32 = 5;

/// A buffer of the caller's; counts what does not fit. Texts are written into it directly, never
/// through `dyn Write` or `core::fmt`: then all their calls are known, and so is their stack.
#[derive(Debug)]
pub struct Buffer {
    to: *mut c_char,
    size: usize,
    length: usize,
}

impl Buffer {
    /// # Safety
    /// The pointer is to so many bytes that may be written, until this is gone.
    unsafe fn new(to: *mut c_char, size: usize) -> Result<Buffer, pageyard_status> {
        if to.is_null() && size > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        Ok(Buffer { to, size, length: 0 })
    }

    /// Ends the text. Whether all of it fitted.
    fn end(self) -> bool {
        if let Some(last) = self.size.checked_sub(1) {
            // SAFETY: below the size that was given to `new` (`a_text_is_cut_but_ends`).
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
            // SAFETY: `length + room` is below the size that was given to `new`; a text of the
            // library's does not lie in the caller's buffer (`a_text_is_cut_but_ends`, and each size
            // in `invalid_and_extreme_numbers_are_errors_or_served`).
            unsafe { self.to.cast::<u8>().add(self.length).copy_from(text.as_ptr(), room) };
        }
        self.length = self.length.saturating_add(text.len());
        Ok(())
    }
}

/// Writes a text into a buffer: as much as fits, always ended by a zero byte.
///
/// # Errors
/// It did not fit; `needed` says how many bytes it takes. Or what `write` says.
///
/// # Safety
/// `to` is to `size` bytes that may be written, or `size` is 0; `needed` is null or may be written.
pub unsafe fn put(
    to: *mut c_char,
    size: usize,
    needed: *mut usize,
    write: impl FnOnce(&mut Buffer) -> Result<(), pageyard_status>,
) -> Result<(), pageyard_status> {
    // SAFETY: by the caller's word; and so below.
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

/// A yard's text of this kind.
///
/// # Errors
/// There is no such kind.
pub fn write<C: Config>(
    yard: &Yard<'_, C>,
    kind: u32,
    out: &mut Buffer,
) -> Result<(), pageyard_status> {
    let written = match kind {
        PAGEYARD_TEXT_BUDDYINFO => yard.write_buddyinfo(out),
        PAGEYARD_TEXT_PAGETYPEINFO => yard.write_pagetypeinfo(out),
        PAGEYARD_TEXT_ZONEINFO => yard.write_zoneinfo(out, &()),
        PAGEYARD_TEXT_VMSTAT => yard.write_vmstat(out, &()),
        PAGEYARD_TEXT_SHOW_MEM => yard.write_show_mem(out, &()),
        PAGEYARD_TEXT_JSON => stats::write_json(yard, out),
        _ => return Err(PAGEYARD_ERR_ARGUMENT),
    };
    // A buffer takes everything.
    written.map_err(|_| PAGEYARD_ERR_BUFFER)
}

/// A string from C.
///
/// # Errors
/// It is null or not UTF-8.
///
/// # Safety
/// The pointer is null or to a string that ends with a zero byte and does not change meanwhile.
pub unsafe fn string<'s>(from: *const c_char) -> Result<&'s str, pageyard_status> {
    if from.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    let from = from.cast::<u8>();
    let mut length = 0;
    // SAFETY: by the caller's word, up to the zero. Volatile: else this becomes a call of strlen,
    // which there is not without a libc (`the_core_needs_nothing_but_four_functions`).
    while unsafe { from.add(length).read_volatile() } != 0 {
        length += 1;
    }
    // SAFETY: as above.
    let bytes = unsafe { slice::from_raw_parts(from, length) };
    str::from_utf8(bytes).map_err(|_| PAGEYARD_ERR_ARGUMENT)
}

/// Writes a setting's value.
///
/// # Errors
/// There is no such setting, or it cannot be read.
pub fn knob<C: Config>(
    yard: &Yard<'_, C>,
    name: &str,
    out: &mut Buffer,
) -> Result<(), pageyard_status> {
    yard.knob(name, out).map_err(|_| PAGEYARD_ERR_KNOB)
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
pub unsafe extern "C" fn pageyard_core_text(
    yard: *const pageyard_core,
    kind: u32,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header asks for a handle, a buffer of that size and a place for the answer.
    status(unsafe { handle::of(yard) }.and_then(|yard| {
        // SAFETY: as above.
        unsafe { put(buffer, size, needed, |out| write(yard, kind, out)) }
    }))
}

/// Writes the value of a setting, by the kernel's name ("min_free_kbytes"), as pageyard_core_text
/// does.
///
/// Errors: as pageyard_core_text; PAGEYARD_ERR_KNOB where there is no such setting, or it cannot be
/// read.
///
/// Threads: any. Owner: all stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_knob(
    yard: *const pageyard_core,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header asks for a handle, a string, a buffer of that size and a place.
    status(unsafe { handle::of(yard) }.and_then(|yard| {
        // SAFETY: as above; and so below.
        let name = unsafe { string(name) }?;
        // SAFETY: see above.
        unsafe { put(buffer, size, needed, |out| knob(yard, name, out)) }
    }))
}

/// Sets a setting by its name, from text, with everything that follows from it.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB where there is no such
/// setting, it cannot be written, or not to this value.
///
/// Threads: any. Owner: the strings stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_set_knob(
    yard: *const pageyard_core,
    name: *const c_char,
    value: *const c_char,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and two strings.
    status(unsafe { handle::of(yard) }.and_then(|yard| {
        // SAFETY: as above.
        let (name, value) = unsafe { (string(name)?, string(value)?) };
        yard.set_knob(name, value).map_err(|_| PAGEYARD_ERR_KNOB)
    }))
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn a_text_is_cut_but_ends() {
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
