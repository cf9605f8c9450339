//! Locks that keep interrupts out.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lock_api::{GuardNoSend, RawMutex};

use crate::arch;

const FREE: u32 = 0;

/// A spin lock that is held with interrupts disabled. It is 0 if free, else the state of interrupts
/// before, which the holder restores.
///
/// The allocator's interrupt handlers take the same locks as the code that they interrupt. If a
/// holder could be interrupted, the handler would wait for it forever. Locks are released in the
/// reverse order of their acquisition, so each restores what it found.
pub struct IrqLock(AtomicU32);

impl IrqLock {
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let start = arch::clock();
        // Holders need microseconds; what runs the CPUs may stop one for much longer.
        while arch::clock() - start < 4 * arch::TICKS_PER_SECOND {
            // Interrupts are enabled meanwhile if they were.
            if self.0.load(Relaxed) == FREE && self.try_lock() {
                return;
            }
            arch::relax();
        }
        panic!("a lock is never released: the holder waits for this CPU, or was interrupted by it");
    }
}

// SAFETY: the compare-exchange from FREE lets one caller in at a time until `unlock`. (The broken
// variants do not keep this promise; they exist to be caught.)
unsafe impl RawMutex for IrqLock {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way
    const INIT: Self = IrqLock(AtomicU32::new(FREE));
    // A guard that another CPU drops would restore the interrupts of the wrong one.
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline(always)]
    #[cfg(not(any(feature = "broken-lock", feature = "broken-try-lock")))]
    fn try_lock(&self) -> bool {
        let before = arch::irq_save();
        let locked = self.0.compare_exchange(FREE, before, Acquire, Relaxed).is_ok();
        if !locked {
            arch::irq_restore(before);
        }
        locked
    }

    #[inline(always)]
    #[cfg(feature = "broken-lock")]
    fn try_lock(&self) -> bool {
        true
    }

    #[inline(always)]
    #[cfg(feature = "broken-try-lock")]
    fn try_lock(&self) -> bool {
        let before = arch::irq_save();
        arch::irq_restore(before);
        self.0.compare_exchange(FREE, before, Acquire, Relaxed).is_ok()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        if cfg!(feature = "broken-lock") {
            return;
        }
        let before = self.0.load(Relaxed);
        self.0.store(FREE, Release);
        arch::irq_restore(before);
    }
}
