//! A lock that reports how long threads waited for it and held it, for measurements. Watched locks
//! are marked beforehand; for the others, the cost is a check of a flag.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lock_api::{GuardNoSend, RawMutex};

use crate::callback::guarded;
use crate::clock;
use crate::lock::HostLock;

/// Receives the times, on the thread that waited and held. It is called without that lock, but the
/// thread may hold other locks of the yard: a call of the same yard from here may deadlock. A panic
/// ends the call, not the operation that took the lock.
///
/// ```
/// use pageyard_host::Watch;
///
/// struct Log;
/// impl Watch for Log {
///     fn waited(ns: u64, slept: u64) {
///         eprintln!("waited {ns} ns for a lock, asleep for {slept}");
///     }
///     fn held(_: u64) {}
/// }
/// ```
pub trait Watch: 'static {
    /// Another thread held the lock. It took `ns` nanoseconds to get it, and the thread slept for
    /// `slept` of them. Called when the lock is released.
    fn waited(ns: u64, slept: u64);
    /// The lock was held for `ns` nanoseconds.
    fn held(ns: u64);
}

thread_local! {
    /// Set while the locks that this thread takes are being marked as watched.
    static MARKING: Cell<bool> = const { Cell::new(false) };
}

/// Marks the locks that `f` takes with `lock` as watched.
pub(crate) fn mark(f: impl FnOnce()) {
    MARKING.set(true);
    f();
    MARKING.set(false);
}

/// A [`HostLock`] that may be watched by `W`.
///
/// ```
/// use pageyard::policy::Linux612;
/// use pageyard_host::{Builder, Watch, Watched};
///
/// struct Log;
/// impl Watch for Log {
///     fn waited(ns: u64, slept: u64) {}
///     fn held(ns: u64) {}
/// }
/// let yard = Builder::new(16 << 20).build_raw::<Linux612, Watched<Log>, ()>(())?;
/// yard.watch_zone_locks();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watched<W> {
    lock: HostLock,
    watched: AtomicBool,
    /// Time at which the lock was taken, and time waited for it. Written by the holder.
    since: AtomicU64,
    waited: AtomicU64,
    slept: AtomicU64,
    watch: PhantomData<fn() -> W>,
}

impl<W> fmt::Debug for Watched<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl<W: Watch> Watched<W> {
    #[cold]
    fn wait(&self) {
        let asked = clock::now();
        let slept = self.lock.wait();
        let now = clock::now();
        self.waited.store(now.saturating_sub(asked).max(1), Relaxed);
        self.slept.store(slept, Relaxed);
        self.since.store(now, Relaxed);
    }

    #[inline]
    fn begin(&self) {
        if self.watched.load(Relaxed) {
            self.waited.store(0, Relaxed);
            self.since.store(clock::now(), Relaxed);
        }
    }
}

// SAFETY: as for the inner lock, which is taken before and released after everything else. The
// reported times are copied before the release, because the next holder overwrites them
// (`waits_and_holds_are_reported_only_for_watched_locks`).
unsafe impl<W: Watch> RawMutex for Watched<W> {
    #[allow(clippy::declare_interior_mutable_const)] // required by `lock_api`
    const INIT: Self = Watched {
        lock: HostLock::new(),
        watched: AtomicBool::new(false),
        since: AtomicU64::new(0),
        waited: AtomicU64::new(0),
        slept: AtomicU64::new(0),
        watch: PhantomData,
    };
    // The times belong to one thread.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if self.lock.try_lock() {
            self.begin();
        } else {
            self.wait();
        }
        if MARKING.get() {
            self.watched.store(true, Relaxed);
            self.begin();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let got = self.lock.try_lock();
        if got {
            self.begin();
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self) {
        if !self.watched.load(Relaxed) {
            // SAFETY: the caller holds the lock.
            return unsafe { self.lock.unlock() };
        }
        let held = clock::now().saturating_sub(self.since.load(Relaxed));
        let (waited, slept) = (self.waited.load(Relaxed), self.slept.load(Relaxed));
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
        // A panic must not unwind into the allocator, which goes on after this and may own blocks.
        guarded(|| {
            if waited > 0 {
                W::waited(waited, slept);
            }
            W::held(held);
        });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_api::Mutex;

    use super::*;

    thread_local! {
        static TOLD: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
    }

    #[derive(Debug)]
    struct Told;
    impl Watch for Told {
        fn waited(ns: u64, slept: u64) {
            let (w, s, h) = TOLD.get();
            TOLD.set((w + ns, s + slept, h));
        }
        fn held(ns: u64) {
            let (w, s, h) = TOLD.get();
            TOLD.set((w, s, h + ns));
        }
    }

    #[test]
    fn waits_and_holds_are_reported_only_for_watched_locks() {
        let lock: Mutex<Watched<Told>, ()> = Mutex::new(());
        drop(lock.lock());
        assert_eq!(TOLD.get(), (0, 0, 0));
        mark(|| drop(lock.lock()));
        TOLD.set((0, 0, 0));
        std::thread::scope(|s| {
            let held = lock.lock();
            let other = s.spawn(|| {
                drop(lock.lock());
                TOLD.get()
            });
            // SAFETY: only reads; it does not unlock.
            while unsafe { lock.raw() }.lock.sleepers() == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(10));
            drop(held);
            let (waited, slept, _) = other.join().unwrap();
            assert!(waited > 0 && slept <= waited, "{waited} {slept}");
        });
        let (waited, _, held) = TOLD.get();
        assert_eq!(waited, 0);
        assert!(held >= 10_000_000, "{held}");
        drop(lock.try_lock());
        assert!(TOLD.get().2 > held);
    }

    #[test]
    fn a_panicking_watch_does_not_unwind_into_the_holder() {
        #[derive(Debug)]
        struct Wrong;
        impl Watch for Wrong {
            fn waited(_: u64, _: u64) {}
            fn held(_: u64) {
                panic!("planted: watch")
            }
        }
        let lock: Mutex<Watched<Wrong>, ()> = Mutex::new(());
        mark(|| drop(lock.lock()));
        drop(lock.lock());
        assert!(lock.try_lock().is_some());
    }
}
