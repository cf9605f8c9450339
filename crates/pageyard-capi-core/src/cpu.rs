//! The number of the CPU that runs the caller.

use core::ffi::c_void;

/// The platform's function.
type Function = unsafe extern "C" fn(context: *mut c_void) -> u32;

/// Returns the number, from the platform's function.
#[cfg(not(feature = "cpu-in-gs"))]
#[inline(always)]
pub(crate) fn number(function: Option<Function>, context: *mut c_void) -> u32 {
    // SAFETY: the caller's function is called as the platform's comments promise.
    function.map_or(0, |cpu| unsafe { cpu(context) })
}

/// Returns the number: the 32-bit word at a fixed offset from the base of GS, as in kernels on x86-64.
#[cfg(feature = "cpu-in-gs")]
#[inline(always)]
pub(crate) fn number(_function: Option<Function>, _context: *mut c_void) -> u32 {
    const OFFSET: i32 = offset(env!(
        "PAGEYARD_CPU_AT",
        "the feature cpu-in-gs needs PAGEYARD_CPU_AT, the offset of the CPU's number (install-capi.sh --cpu-at)"
    ));
    let cpu: u32;
    // SAFETY: the author of the kernel sets the offset, and guarantees that the word is there
    // (`c-own-lock` of scripts/boot-kernels.sh starts no second CPU with another offset).
    unsafe {
        core::arch::asm!("mov {:e}, gs:[{}]", out(reg) cpu, const OFFSET,
            options(nostack, readonly, preserves_flags));
    }
    cpu
}

/// Reads a decimal number.
#[cfg(feature = "cpu-in-gs")]
const fn offset(text: &str) -> i32 {
    match i32::from_str_radix(text, 10) {
        Ok(offset) => offset,
        Err(_) => panic!("PAGEYARD_CPU_AT is no decimal number of 32 bits"),
    }
}
