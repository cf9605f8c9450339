//! The lock of an allocator on the host: spins for a while, then sleeps in the kernel.
//!
//! A release is a plain store, not an exchange. The most frequent user of the lock, a per-CPU list,
//! only uses `try_lock`, so a lock and unlock pair costs one exchange instead of two. A release may
//! therefore miss a thread that goes to sleep at the same moment, so no thread sleeps longer than
//! [`NAP`] without checking again.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use lock_api::{GuardNoSend, RawMutex};

use crate::clock;
use crate::held::{Class, acquired, acquiring, released};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Number of attempts while spinning. The distance between two doubles up to [`FARTHEST`] pauses. A
/// zone lock is rarely held longer than all of them take, some tens of microseconds.
const LOOKS: u32 = 64;
const FARTHEST: u32 = 64;
/// Longest sleep, in nanoseconds.
const NAP: i64 = 1_000_000;

/// A lock for short critical sections: a state word and the number of sleepers.
///
/// It is the lock inside a [`RawYard`](crate::RawYard), or inside a `pageyard::Yard` of the
/// program's own. Debug builds treat every `HostLock` as such a lock, and abort if a thread that
/// holds one takes another lock of a [`HostYard`](crate::HostYard). So do not call methods of a
/// `HostYard` while holding a `HostLock` of your own, nor in the `event` hook, which may be called
/// under zone locks. For a program's own data, use [`std::sync::Mutex`].
///
/// ```
/// use pageyard_host::HostLock;
///
/// type Mutex<T> = lock_api::Mutex<HostLock, T>;
/// static COUNT: Mutex<u32> = Mutex::const_new(HostLock::new(), 0);
/// *COUNT.lock() += 1;
/// ```
#[derive(Debug)]
pub struct HostLock {
    state: AtomicU32,
    sleepers: AtomicU32,
}

impl HostLock {
    /// Creates an unlocked lock.
    pub const fn new() -> Self {
        HostLock { state: AtomicU32::new(FREE), sleepers: AtomicU32::new(0) }
    }

    #[inline]
    fn take(&self) -> bool {
        // Checked before the exchange: a read alone does not take the cache line away from other
        // CPUs.
        let taken = self.state.load(Relaxed) == FREE
            && self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if taken {
            acquired(Class::Core);
        }
        taken
    }

    /// Waits for the lock and takes it. Returns for how many nanoseconds the thread slept.
    #[cold]
    pub(crate) fn wait(&self) -> u64 {
        acquiring(Class::Core);
        let mut distance = 1;
        for _ in 0..LOOKS {
            if self.take() {
                return 0;
            }
            (0..distance).for_each(|_| std::hint::spin_loop());
            distance = (2 * distance).min(FARTHEST);
        }
        let began = clock::now();
        self.sleepers.fetch_add(1, Relaxed);
        while !self.take() {
            self.sleep();
        }
        self.sleepers.fetch_sub(1, Relaxed);
        clock::now() - began
    }

    /// Returns the number of sleeping threads.
    #[cfg(test)]
    pub(crate) fn sleepers(&self) -> u32 {
        self.sleepers.load(Relaxed)
    }

    /// Sleeps until a release wakes the thread, at most for [`NAP`].
    fn sleep(&self) {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP };
        // SAFETY: the word and the timespec live until the call returns. The kernel puts the thread
        // to sleep only while the word says that the lock is held (`a_sleeping_waiter_is_woken`).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                HELD,
                &nap,
            );
        }
    }
}

impl Default for HostLock {
    fn default() -> Self {
        HostLock::new()
    }
}

/// Wakes one thread that sleeps on a word.
#[cold]
fn wake(word: *mut u32) {
    // SAFETY: the kernel uses the address only as a key; it need not be mapped any more
    // (`a_sleeping_waiter_is_woken`).
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
            ptr::null::<libc::timespec>(),
        );
    }
}

// SAFETY: the word goes from FREE to HELD only in `take` and `lock`, by a compare-and-exchange. It
// goes back only in `unlock`, which only the holder may call, so there is one holder at a time.
// Acquire and Release order the accesses made under the lock (`the_lock_excludes_other_threads`,
// and the thread sanitizer).
unsafe impl RawMutex for HostLock {
    #[allow(clippy::declare_interior_mutable_const)] // required by `lock_api`
    const INIT: Self = HostLock::new();
    // Debug builds record which thread holds a lock.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        acquiring(Class::Core);
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
            acquired(Class::Core);
        } else {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.take()
    }

    #[inline]
    unsafe fn unlock(&self) {
        released(Class::Core);
        // Read before the release, after which the next holder may free the lock.
        let wakes = self.sleepers.load(Relaxed) != 0;
        let word = self.state.as_ptr();
        self.state.store(FREE, Release);
        if wakes {
            wake(word);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.state.load(Relaxed) != FREE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_api::Mutex;

    use super::*;

    #[test]
    fn the_lock_excludes_other_threads() {
        // Miri tries many interleavings of fewer rounds.
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let sum: Mutex<HostLock, u64> = Mutex::new(0);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for n in 0..rounds {
                        let mut sum = sum.lock();
                        let was = *sum;
                        if n % 1000 == 0 {
                            // Long enough that the waiting threads go to sleep.
                            std::thread::sleep(Duration::from_micros(300));
                        }
                        *sum = was + 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), 8 * rounds);
        assert_eq!(sleepers(&sum), 0);
    }

    fn sleepers<T>(lock: &Mutex<HostLock, T>) -> u32 {
        // SAFETY: only reads; it does not unlock.
        unsafe { lock.raw() }.sleepers()
    }

    #[test]
    fn try_lock_fails_on_a_held_lock() {
        let lock: Mutex<HostLock, ()> = Mutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none() && lock.is_locked());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_sleeping_waiter_is_woken() {
        let lock: Mutex<HostLock, ()> = Mutex::new(());
        let held = lock.lock();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                // SAFETY: taken and released by the same thread.
                unsafe {
                    let slept = lock.raw().wait();
                    lock.raw().unlock();
                    slept
                }
            });
            while sleepers(&lock) == 0 {
                std::thread::yield_now();
            }
            // Long enough to be measured.
            std::thread::sleep(Duration::from_millis(1));
            drop(held);
            assert!(waiter.join().unwrap() > 0);
        });
    }
}
