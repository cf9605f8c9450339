//! What the library's own lock does about interrupts. Usually nothing: then no interrupt handler may make
//! requests. With the feature `interrupt-lock` it is held with them disabled, and its release restores what
//! it found. Locks are released in the reverse order of their acquisition.

#[cfg(all(feature = "interrupt-lock", not(target_arch = "x86_64")))]
compile_error!("the feature interrupt-lock is for kernels on x86-64");

/// Disables interrupts. Returns their state before, which is not 0.
#[cfg(feature = "interrupt-lock")]
#[inline(always)]
pub(super) fn disable() -> u64 {
    let flags: u64;
    // SAFETY: with the feature the library runs in a kernel, which may disable interrupts. The stack is
    // as before (`c-own-lock` of scripts/boot-kernels.sh does not end without `cli`).
    unsafe { core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags
}

/// Restores the state that [`disable`] returned.
#[cfg(feature = "interrupt-lock")]
#[inline(always)]
pub(super) fn restore(before: u64) {
    /// The interrupt flag in RFLAGS, of which bit 1 is always set.
    const ENABLED: u64 = 1 << 9;
    if before & ENABLED != 0 {
        // SAFETY: they were enabled when the lock was taken (`c-own-lock` does not end without this).
        unsafe { core::arch::asm!("sti", options(nostack)) };
    }
}

#[cfg(not(feature = "interrupt-lock"))]
#[inline(always)]
pub(super) fn disable() -> u64 {
    1
}

#[cfg(not(feature = "interrupt-lock"))]
#[inline(always)]
pub(super) fn restore(_before: u64) {}
