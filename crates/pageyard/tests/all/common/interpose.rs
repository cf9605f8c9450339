//! Runs one operation inside another, on one thread, at each point where another CPU could run. A
//! point is the moment before a lock is taken, or a call of [`point`], while no lock is held.
#![allow(unsafe_code)] // a lock

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;

use lock_api::RawMutex;

thread_local! {
    /// Number of locks that this thread holds.
    pub(crate) static HELD: Cell<u32> = const { Cell::new(0) };
    /// Number of times that this thread released a lock.
    pub(crate) static RELEASED: Cell<u32> = const { Cell::new(0) };
    /// Whether each `try_lock` of this thread fails.
    pub(crate) static REFUSES: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread may take locks by `try_lock` only.
    pub(crate) static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
    /// Whether it waited nevertheless while a panic unwound, when another panic would end the program.
    pub(crate) static WAITED: Cell<bool> = const { Cell::new(false) };
    /// Points left before the other operation runs.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    static OTHER: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    /// Whether the other operation is running.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A lock with a point before each acquisition, which tests observe and control by the variables
/// above.
pub(crate) struct Interposed(spin::mutex::SpinMutex<()>);

impl Interposed {
    fn take(&self) -> bool {
        point();
        let got = RawMutex::try_lock(&self.0);
        HELD.set(HELD.get() + u32::from(got));
        got
    }
}

// SAFETY: exclusion is the inner lock's, to which every operation is forwarded; a refused
// `try_lock` acquires nothing.
unsafe impl RawMutex for Interposed {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Interposed(spin::mutex::SpinMutex::new(()));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        if std::thread::panicking() {
            WAITED.set(WAITED.get() || MUST_NOT_WAIT.get());
        } else {
            assert!(!MUST_NOT_WAIT.get(), "this call takes locks only if they are free");
        }
        assert!(self.take(), "this thread already holds the lock");
    }

    fn try_lock(&self) -> bool {
        !REFUSES.get() && self.take()
    }

    unsafe fn unlock(&self) {
        HELD.set(HELD.get() - 1);
        RELEASED.set(RELEASED.get() + 1);
        // SAFETY: the caller holds the lock, so the inner one is held.
        unsafe { RawMutex::unlock(&self.0) };
    }
}

/// A point: another CPU may run here.
pub(crate) fn point() {
    if HELD.get() > 0 || INSIDE.get() || LEFT.get() == u32::MAX {
        return;
    }
    if LEFT.get() > 0 {
        return LEFT.set(LEFT.get() - 1);
    }
    LEFT.set(u32::MAX);
    let other = OTHER.with_borrow(Option::clone).expect("an operation is set");
    INSIDE.set(true);
    other();
    INSIDE.set(false);
}

/// Panic message of an interposed operation that would have to wait for the outer one.
pub(crate) const WAITS: &str = "it would wait";

/// Called where a thread would wait. An interposed operation that waits can never be woken, so it
/// panics.
pub(crate) fn wait() {
    assert!(!INSIDE.get(), "{WAITS}");
}

/// Stops `first` at its n-th point until `second`, on another thread, has reached its m-th point or
/// ended. Then `first` runs to its end, and after it `second`. Returns `false` if either has no
/// such point.
pub(crate) fn crossed<T: Send + Sync + 'static>(
    [n, m]: [u32; 2],
    all: &Arc<T>,
    first: fn(&T),
    second: fn(&T),
) -> bool {
    let (tell, hear) = mpsc::channel();
    let (release, wait) = mpsc::channel::<()>();
    let spawned = Rc::new(Cell::new(None));
    let (spawn, mine) = (spawned.clone(), all.clone());
    let wait = Cell::new(Some(wait));
    OTHER.set(Some(Rc::new(move || {
        let (tell, wait, all) = (tell.clone(), wait.take().expect("once"), mine.clone());
        let body = move || {
            let stop = tell.clone();
            // Dropping `release` closes the channel, which resumes this thread.
            let at_point = move || {
                stop.send(true).expect("the first thread listens");
                let _ = wait.recv();
            };
            OTHER.set(Some(Rc::new(at_point)));
            LEFT.set(m);
            second(&all);
            let _ = tell.send(false);
        };
        spawn.set(Some((thread::spawn(body), hear.recv().expect("the thread stops or ends"))));
    })));
    LEFT.set(n);
    first(all);
    LEFT.set(u32::MAX);
    OTHER.set(None);
    drop(release);
    let Some((thread, stopped)) = spawned.take() else { return false };
    thread.join().expect("the other operation ends");
    stopped
}

/// Runs `first` once for each of its points, with `other` interposed there. `make` prepares each
/// run and `check` verifies it. Returns the number of points.
pub(crate) fn at_each_point<T: 'static>(
    make: impl Fn() -> T,
    first: impl Fn(&T),
    other: impl Fn(&T) + 'static,
    check: impl Fn(&T),
) -> u32 {
    let other = Rc::new(other);
    for n in 0.. {
        let all = Rc::new(make());
        let (mine, other) = (all.clone(), other.clone());
        OTHER.set(Some(Rc::new(move || {
            let run = catch_unwind(AssertUnwindSafe(|| other(&mine)));
            if let Err(e) = run {
                // It would wait, so it runs after the first operation; a single thread cannot show
                // that.
                let waits = e.downcast_ref::<String>().is_some_and(|s| s.contains(WAITS));
                assert!(waits, "the other operation panicked");
            }
        })));
        LEFT.set(n);
        first(&all);
        let ran = LEFT.get() == u32::MAX;
        LEFT.set(u32::MAX);
        OTHER.set(None);
        if !ran {
            return n;
        }
        check(&all);
    }
    unreachable!("every operation ends")
}
