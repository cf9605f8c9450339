//! The lock of the core in C: the caller's functions on words of the library, or the library's own spin
//! lock without them.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use lock_api::{GuardSend, RawMutex};

mod functions;
mod interrupts;

pub(crate) use functions::decide;
pub use functions::pageyard_lock;

/// Word of the library's own lock: free. Else the state of interrupts before, which is not 0.
const FREE: u64 = 0;

/// One lock of a yard.
#[derive(Debug)]
pub struct CLock {
    room: UnsafeCell<pageyard_lock>,
}

// SAFETY: a lock is made to be shared; only the lock functions access its contents.
unsafe impl Sync for CLock {}
// SAFETY: as above.
unsafe impl Send for CLock {}

impl CLock {
    /// The word of the library's own spin lock.
    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the storage is aligned for it and lives as long as the lock. Without functions of
        // the caller it is accessed only as an atomic.
        unsafe { AtomicU64::from_ptr(self.room.get().cast()) }
    }

    /// Takes the library's own spin lock if it is free.
    #[inline(always)]
    fn take(&self) -> bool {
        // A read disturbs the holder less. A kernel's lock is seldom held: there it is only more to do.
        if cfg!(not(feature = "interrupt-lock")) && self.word().load(Ordering::Relaxed) != FREE {
            return false;
        }
        let before = interrupts::disable();
        match self.word().compare_exchange(FREE, before, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(_) => self.is_held(before),
        }
    }

    /// Ends an attempt to take the lock that has failed.
    #[cold]
    #[inline(always)]
    fn is_held(&self, before: u64) -> bool {
        interrupts::restore(before);
        false
    }

    /// Waits for the library's own spin lock and takes it, reading only while it is held.
    #[inline(never)]
    fn wait(&self) {
        while !self.take() {
            while self.word().load(Ordering::Relaxed) != FREE {
                core::hint::spin_loop();
            }
        }
    }

    /// Releases the library's own spin lock.
    #[inline(always)]
    fn release(&self) {
        let held = self.word().load(Ordering::Relaxed);
        self.word().store(FREE, Ordering::Release);
        interrupts::restore(held);
    }
}

// SAFETY: without functions of the caller, a compare-and-exchange takes the word from FREE and the
// holder resets it, so there is one holder at a time. With them, the header requires mutual
// exclusion.
unsafe impl RawMutex for CLock {
    #[allow(clippy::declare_interior_mutable_const)] // required by `lock_api`
    const INIT: Self = CLock { room: UnsafeCell::new(pageyard_lock { words: [0; 2] }) };
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        match functions::lock() {
            // SAFETY: the caller's function, on a live lock.
            Some(lock) => unsafe { lock(self.room.get()) },
            None => self.wait(),
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        match functions::try_lock() {
            // SAFETY: as in `lock`.
            Some(try_lock) => unsafe { try_lock(self.room.get()) != 0 },
            None => self.take(),
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        match functions::unlock() {
            // SAFETY: as in `lock`; the caller of `unlock` holds the lock.
            Some(unlock) => unsafe { unlock(self.room.get()) },
            None => self.release(),
        }
    }
}
