//! What the product's files find in `crate::sync`: loom's.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::OnceLock;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(crate) use loom::thread::yield_now;

std::thread_local! {
    // Of the thread that runs the model: loom's own are coroutines on it.
    static WITHOUT_FENCES: Cell<bool> = const { Cell::new(false) };
    static EAGER_GUARDS: Cell<bool> = const { Cell::new(false) };
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

/// From now on, a failed exchange of a flag clears the flag, or it does not: what a guard does that
/// is built before the outcome is known, and dropped.
pub(crate) fn build_guards_eagerly(eagerly: bool) {
    EAGER_GUARDS.set(eagerly);
}

/// Loom's number for code that makes its own in constants, which loom cannot: it is made at its first
/// use, which must come before the model's threads (loom panics where it does not). That of `default`
/// is made at once.
#[derive(Debug)]
pub(crate) struct AtomicU32 {
    first: u32,
    made: OnceLock<loom::sync::atomic::AtomicU32>,
}

impl AtomicU32 {
    pub(crate) const fn new(first: u32) -> Self {
        AtomicU32 { first, made: OnceLock::new() }
    }
}

impl Default for AtomicU32 {
    fn default() -> Self {
        AtomicU32 { first: 0, made: OnceLock::from(loom::sync::atomic::AtomicU32::new(0)) }
    }
}

impl Deref for AtomicU32 {
    type Target = loom::sync::atomic::AtomicU32;

    fn deref(&self) -> &Self::Target {
        self.made.get_or_init(|| loom::sync::atomic::AtomicU32::new(self.first))
    }
}

/// Loom's flag, made as an [`AtomicU32`] is, with the bug of [`build_guards_eagerly`] where that is
/// planted.
#[derive(Debug)]
pub(crate) struct AtomicBool {
    first: bool,
    made: OnceLock<loom::sync::atomic::AtomicBool>,
}

impl AtomicBool {
    pub(crate) const fn new(first: bool) -> Self {
        AtomicBool { first, made: OnceLock::new() }
    }

    pub(crate) fn compare_exchange(
        &self,
        current: bool,
        new: bool,
        success: Ordering,
        failure: Ordering,
    ) -> Result<bool, bool> {
        let answer = (**self).compare_exchange(current, new, success, failure);
        if answer.is_err() && EAGER_GUARDS.get() {
            self.store(false, Ordering::Release);
        }
        answer
    }
}

impl Default for AtomicBool {
    fn default() -> Self {
        AtomicBool {
            first: false,
            made: OnceLock::from(loom::sync::atomic::AtomicBool::new(false)),
        }
    }
}

impl Deref for AtomicBool {
    type Target = loom::sync::atomic::AtomicBool;

    fn deref(&self) -> &Self::Target {
        self.made.get_or_init(|| loom::sync::atomic::AtomicBool::new(self.first))
    }
}
