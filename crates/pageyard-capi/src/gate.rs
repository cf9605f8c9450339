//! The way to the functions that C registered.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock};

thread_local! {
    /// True while this thread runs a registered function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs a registered function.
pub(crate) fn is_in_callback() -> bool {
    INSIDE.get()
}

/// Whether the functions of a registration may be called. Read-locked during each call.
#[derive(Debug)]
pub(crate) struct Gate(RwLock<bool>);

impl Gate {
    pub(crate) fn open() -> Gate {
        Gate(RwLock::new(true))
    }

    pub(crate) fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return None;
        }
        let was = INSIDE.replace(true);
        let answer = call();
        INSIDE.set(was);
        Some(answer)
    }

    /// Closes the gate and waits until no call is in progress.
    pub(crate) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
