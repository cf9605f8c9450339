//! Arguments from C. Errors name the argument, its value and what was expected.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Display;

use ::pageyard::{AllocError, FreeError, Gfp, Order};
use pageyard_capi_core::flags::{self, PAGEYARD_MAX_ORDER, PAGEYARD_VERSION};
use pageyard_capi_core::sized::{self, Growing};
use pageyard_capi_core::status::{
    self, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, pageyard_status, pageyard_strerror,
};
use pageyard_capi_core::text;

use crate::last_error;

/// Stores a message about an argument and returns the status.
#[cold]
pub(crate) fn wrong(status: pageyard_status, what: impl Display) -> pageyard_status {
    last_error::set(&what);
    status
}

/// Adds an argument and its value in front of the sentence of a status.
#[cold]
pub(crate) fn named(argument: impl Display, status: pageyard_status) -> pageyard_status {
    // SAFETY: the text is a constant that ends with a zero.
    let sentence = unsafe { CStr::from_ptr(pageyard_strerror(status)) };
    wrong(status, format_args!("{argument}: {}", sentence.to_string_lossy()))
}

/// Fails if a required pointer is null.
#[inline]
pub(crate) fn required<T>(name: &str, pointer: *const T) -> Result<(), pageyard_status> {
    if pointer.is_null() { Err(null(name)) } else { Ok(()) }
}

/// Notes that a required pointer is null.
#[cold]
pub(crate) fn null(name: &str) -> pageyard_status {
    wrong(PAGEYARD_ERR_ARGUMENT, format_args!("{name}: null; give a pointer"))
}

/// Converts an order.
#[inline]
pub(crate) fn order(name: &str, order: u32) -> Result<Order, pageyard_status> {
    flags::order(order).map_err(|e| {
        wrong(
            e,
            format_args!(
                "{name}: {order}; expected 0 to {PAGEYARD_MAX_ORDER} (PAGEYARD_MAX_ORDER)"
            ),
        )
    })
}

/// Stores a result, or fails if the pointer is null.
///
/// # Safety
/// The pointer must be null or writable.
#[inline]
pub(crate) unsafe fn answer<T>(name: &str, to: *mut T, value: T) -> Result<(), pageyard_status> {
    required(name, to)?;
    // SAFETY: guaranteed by the caller.
    unsafe { sized::answer(to, value) }
}

/// Reads a structure.
///
/// # Safety
/// As for [`sized::read`].
pub(crate) unsafe fn read<T: Growing>(name: &str, from: *const T) -> Result<T, pageyard_status> {
    // SAFETY: guaranteed by the caller, here and below.
    unsafe { sized::read(from).map_err(|e| structure(name, from, e)) }
}

/// Writes a structure.
///
/// # Safety
/// As for [`sized::write`].
pub(crate) unsafe fn write<T: Growing>(
    name: &str,
    to: *mut T,
    value: &T,
) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller, here and below.
    unsafe { sized::write(to, value).map_err(|e| structure(name, to, e)) }
}

/// Notes why a structure was refused.
///
/// # Safety
/// As for [`sized::read`], which has returned this status.
#[cold]
unsafe fn structure<T>(name: &str, at: *const T, status: pageyard_status) -> pageyard_status {
    if status != PAGEYARD_ERR_VERSION {
        return wrong(status, format_args!("{name}: null or misaligned; give a structure"));
    }
    // SAFETY: neither null nor misaligned, or the status would be another. The caller guarantees the
    // first two fields.
    let [size, version] = unsafe { at.cast::<[u32; 2]>().read() };
    let own = size_of::<T>();
    wrong(
        status,
        format_args!(
            "{name}: struct_size {size}, version {version}; expected {own} (its sizeof) and \
             {PAGEYARD_VERSION} (PAGEYARD_VERSION), and zero in fields that this library does not know"
        ),
    )
}

/// Reads a string.
///
/// # Safety
/// As for [`text::string`].
pub(crate) unsafe fn string<'s>(
    name: &str,
    from: *const c_char,
) -> Result<&'s str, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { text::string(from) }.map_err(|e| wrong(e, format_args!("{name}: null or not UTF-8")))
}

/// Returns the status of a failed request.
#[cold]
pub(crate) fn of_alloc(flags: Gfp, error: AllocError) -> pageyard_status {
    match (status::of_alloc(error), error) {
        // It may be frequent, and no argument is wrong.
        (status, AllocError::NoMemory) => status,
        (status, AllocError::BadZone | AllocError::BadType) => {
            wrong(status, format_args!("flags: {:#x}; {error}", flags.bits()))
        }
        (status, _) => wrong(status, error),
    }
}

/// Returns the status of a block that could not be freed.
#[cold]
pub(crate) fn of_free(block: *const c_void, error: FreeError) -> pageyard_status {
    wrong(status::of_free(error), format_args!("block: {block:p}: {error}"))
}
