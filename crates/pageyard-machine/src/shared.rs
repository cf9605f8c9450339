//! The machine's state, where locks and tasks find it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::state::{Phase, State};

thread_local! {
    /// The machine that runs on this thread, or whose locks are being named.
    static CURRENT: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// What became of an operation on a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It is the task's; or released.
    Taken,
    /// Somebody else has it, and the task would not wait.
    Refused,
    /// Others come first: suspend, then try again.
    Later,
    /// The task waits in line: suspend; it has the lock when it goes on. Or, of a release: the lock
    /// went straight to the next one.
    Parked,
}

/// Makes a machine the thread's for as long as the guard lives.
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

/// If a machine runs on this thread.
#[inline]
pub(crate) fn with_running<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    with_phase(Phase::Running, f)
}

/// If a machine names locks.
pub(crate) fn with_naming<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    with_phase(Phase::Naming, f)
}
