//! The way to the functions that C registered.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// True while this thread runs a registered function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs a registered function.
pub(crate) fn is_in_callback() -> bool {
    INSIDE.get()
}

/// Whether the functions of a registration may be called, and how many calls are in progress.
///
/// Invariant: a call is counted only while the gate is open, under the same mutex. So the count only
/// falls once the gate is closed, and no function runs when it is 0. The mutex is not held during a
/// call: a call from within another one never waits for [`close`](Gate::close), whose end may wait for
/// the outer call.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Notified when the last call leaves a closed gate.
    empty: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Calls in progress.
    calls: usize,
}

impl Gate {
    pub(crate) fn open() -> Gate {
        Gate::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, unless the gate is closed.
    pub(crate) fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.calls += 1;
        drop(state);
        let was = INSIDE.replace(true);
        let answer = call();
        INSIDE.set(was);
        let mut state = self.state();
        state.calls -= 1;
        if state.closed && state.calls == 0 {
            self.empty.notify_all();
        }
        Some(answer)
    }

    /// Closes the gate and waits until no call is in progress.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        while state.calls > 0 {
            state = self.empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
