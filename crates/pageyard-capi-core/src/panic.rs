//! What a library without std needs of its own.

use core::panic::PanicInfo;

/// Stops here. No panic is reachable from the library's functions.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: an instruction that no processor executes; the trap is the machine's.
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

/// What the compiler makes of comparing strings, and C's environments without a libc do not have, as
/// they have memcpy, memmove, memset and memcmp. The installed library keeps it to itself.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    for i in 0..bytes {
        // SAFETY: the compiler calls it with two ranges that may be read. Volatile, so that it does
        // not make a call of this function from it.
        let (a, b) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if a != b {
            return 1;
        }
    }
    0
}
