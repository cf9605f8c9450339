//! One operation in the middle of another, on one thread: at each point where another CPU could come
//! in. Points are the moments before a lock is taken, and whatever else calls [`point`], as long as
//! no lock is held.
#![allow(unsafe_code)] // a lock

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;

use lock_api::RawMutex;

thread_local! {
    /// Locks that this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// Points until the other operation runs.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    static OTHER: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    /// The other operation runs.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A lock of this thread.
pub(crate) struct Interposed(spin::mutex::SpinMutex<()>);

// SAFETY: exclusion is the inner lock's, to which every operation is handed on.
unsafe impl RawMutex for Interposed {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Interposed(spin::mutex::SpinMutex::new(()));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        assert!(self.try_lock(), "a lock is wanted that this thread holds");
    }

    fn try_lock(&self) -> bool {
        point();
        let got = RawMutex::try_lock(&self.0);
        HELD.set(HELD.get() + u32::from(got));
        got
    }

    unsafe fn unlock(&self) {
        HELD.set(HELD.get() - 1);
        // SAFETY: the caller holds the lock, so the inner one is held.
        unsafe { RawMutex::unlock(&self.0) };
    }
}

/// Another CPU may come in here.
pub(crate) fn point() {
    if HELD.get() > 0 || INSIDE.get() || LEFT.get() == u32::MAX {
        return;
    }
    if LEFT.get() > 0 {
        return LEFT.set(LEFT.get() - 1);
    }
    LEFT.set(u32::MAX);
    let other = OTHER.with_borrow(Option::clone).expect("there is one");
    INSIDE.set(true);
    other();
    INSIDE.set(false);
}

/// What the other operation panics with where it would have to wait for the first one.
pub(crate) const WAITS: &str = "it would wait";

/// To be called where a thread waits: a thread in the middle of another one's operation waits in vain.
pub(crate) fn wait() {
    assert!(!INSIDE.get(), "{WAITS}");
}

/// `first` stops at its n-th point until `second`, in another thread, has stopped at its m-th one or
/// ended; then the one goes on to its end, and after it the other. `false`: one of them has no such
/// point.
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
            // The end of the channel is as good as a word.
            let at_point = move || {
                stop.send(true).expect("the first one listens");
                let _ = wait.recv();
            };
            OTHER.set(Some(Rc::new(at_point)));
            LEFT.set(m);
            second(&all);
            let _ = tell.send(false);
        };
        spawn.set(Some((thread::spawn(body), hear.recv().expect("it stops or ends"))));
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

/// Runs `first` again and again, each time with `other` at the next point, until all points are
/// behind. `make` prepares each time, `check` looks at what came of it. How many points there were.
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
                // It waits: it comes after the first one, which a single thread cannot show.
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
    unreachable!("there is an end to every operation")
}
