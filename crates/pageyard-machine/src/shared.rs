//! The thread-local through which locks and tasks find the machine's state.

use std::cell::RefCell;
use std::rc::Rc;

use crate::state::{Phase, State};

thread_local! {
    /// The machine that runs on this thread, or whose locks are being named.
    static CURRENT: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// The outcome of an operation on a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The task now holds the lock; or it was released.
    Taken,
    /// Another task holds the lock, and this task only tried.
    Refused,
    /// Other tasks go first: suspend, then try again.
    Later,
    /// Of an acquisition: the task is queued; suspend, and it holds the lock when it continues. Of
    /// a release: the lock was passed directly to the next waiter.
    Parked,
}

/// Makes a machine the current one of this thread for the lifetime of the guard.
pub(crate) struct Current(Option<Rc<RefCell<State>>>);

impl Current {
    pub(crate) fn set(state: &Rc<RefCell<State>>) -> Current {
        Current(CURRENT.with_borrow_mut(|c| c.replace(state.clone())))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|c| *c = self.0.take());
    }
}

fn with_phase<T>(phase: Phase, f: impl FnOnce(&mut State) -> T) -> Option<T> {
    CURRENT.with_borrow(|c| {
        let mut state = c.as_ref()?.borrow_mut();
        (state.phase == phase).then(|| f(&mut state))
    })
}

/// Calls `f` if a machine runs on this thread.
#[inline]
pub(crate) fn with_running<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    with_phase(Phase::Running, f)
}

/// Calls `f` if a machine on this thread is naming locks.
pub(crate) fn with_naming<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    with_phase(Phase::Naming, f)
}
