//! What the product's files find in `crate::sync`: loom's.

use std::cell::Cell;

pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::thread::yield_now;

std::thread_local! {
    // Of the thread that runs the model: loom's own are coroutines on it.
    static WITHOUT_FENCES: Cell<bool> = const { Cell::new(false) };
}

/// From now on, fences of the product's do nothing, or they do again: a bug to be found.
pub(crate) fn leave_out_fences(leave_out: bool) {
    WITHOUT_FENCES.set(leave_out);
}

pub(crate) fn fence(order: Ordering) {
    if !WITHOUT_FENCES.get() {
        loom::sync::atomic::fence(order);
    }
}

/// A barrier that all threads are made to pass somewhere has the effect of a full fence at that
/// place; here stands one where the owner's compiler fence is.
pub(crate) fn light_barrier() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// What the product's locks are for.
pub(crate) enum Class {
    Magazines,
}

/// The product's lock, without its checks.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(_: Class, value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model panics under a lock")
    }
}
