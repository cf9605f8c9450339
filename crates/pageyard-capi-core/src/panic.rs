//! Items that a library without std must define itself.

use core::panic::PanicInfo;

/// Stops the program. No panic is reachable from the library's functions.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: an instruction that always traps.
        #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
        unsafe {
            core::arch::asm!("ud2", options(noreturn, nomem, nostack))
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!("brk #1", options(noreturn, nomem, nostack))
        }
        #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
        core::hint::spin_loop();
    }
}

/// The compiler calls bcmp to compare strings. Unlike memcpy, memmove, memset and memcmp, C
/// environments without a libc do not provide it. The installed library keeps the symbol local.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    for i in 0..bytes {
        // SAFETY: the compiler passes two readable ranges. The reads are volatile so that the
        // compiler does not turn the loop into a call of this function.
        let (a, b) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if a != b {
            return 1;
        }
    }
    0
}
