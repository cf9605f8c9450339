//! Loom's types, in place of the product's `crate::sync`.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::OnceLock;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(crate) use loom::thread::yield_now;

std::thread_local! {
    // Belongs to the thread that runs the model; loom's own threads are coroutines on it.
    static WITHOUT_FENCES: Cell<bool> = const { Cell::new(false) };
    static EAGER_GUARDS: Cell<bool> = const { Cell::new(false) };
}

/// Plants or removes a bug: fences of the product have no effect.
pub(crate) fn leave_out_fences(leave_out: bool) {
    WITHOUT_FENCES.set(leave_out);
}

pub(crate) fn fence(order: Ordering) {
    if !WITHOUT_FENCES.get() {
        loom::sync::atomic::fence(order);
    }
}

/// A barrier that all threads are forced to pass acts as a full fence at that point. Here it is a
/// fence in place of the owner's compiler fence.
pub(crate) fn light_barrier() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Bits that count the blocks of a kind in a magazine, which a model's stack has room for.
pub(crate) const COUNT_BITS: u32 = 3;

/// The lock classes that the product's files use.
pub(crate) enum Class {
    Magazines,
}

/// The product's lock without its checks.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(_: Class, value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model panics under a lock")
    }
}

/// Plants or removes a bug: a failed exchange of a flag clears the flag. A guard built before the
/// outcome is known, and dropped, would do that.
pub(crate) fn build_guards_eagerly(eagerly: bool) {
    EAGER_GUARDS.set(eagerly);
}

/// Loom's atomic for code that creates its atomics in constants, which loom does not support. It is
/// created at its first use, which must precede the model's threads; otherwise loom panics.
/// `default` creates it at once.
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

/// Loom's flag, created like an [`AtomicU32`], with the bug of [`build_guards_eagerly`] if that is
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
