//! Switching between coroutines.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

thread_local! {
    /// The yielder of the coroutine that runs on this thread; null if none does.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A task's stack and execution state. The task may borrow data that lives for `'env`.
pub(crate) struct Fiber<'env> {
    coroutine: Coroutine<(), (), ()>,
    env: PhantomData<&'env mut ()>,
}

impl<'env> Fiber<'env> {
    pub(crate) fn new(stack: DefaultStack, body: impl FnOnce() + 'env) -> Self {
        let body = move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            body();
        };
        // SAFETY: what `body` borrows outlives `'env`, the fiber cannot be kept for longer than
        // that, and no fiber is ever leaked: they are elements of vectors local to a run.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Fiber { coroutine, env: PhantomData }
    }

    /// Runs until the fiber [suspends](suspend) itself or ends. Returns whether it has ended. A
    /// panic inside the fiber propagates to the caller.
    pub(crate) fn resume(&mut self) -> bool {
        // A machine may run inside another machine's task.
        let _outer = Restore(YIELDER.get());
        matches!(self.coroutine.resume(()), CoroutineResult::Return(()))
    }

    /// Returns the stack of a fiber that has ended, for reuse.
    pub(crate) fn into_stack(self) -> DefaultStack {
        self.coroutine.into_stack()
    }
}

struct Restore(*const Yielder<(), ()>);

impl Drop for Restore {
    fn drop(&mut self) {
        YIELDER.set(self.0);
    }
}

/// Suspends the running fiber until it is resumed.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a task of a running machine can wait");
    // SAFETY: a fiber sets the pointer to its own yielder when it first runs and after each
    // suspension. The pointer is restored to the outer fiber's, or null, when the fiber stops. It
    // therefore refers to the running fiber, whose stack contains the yielder.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_take_turns_and_unwind_when_dropped() {
        let log = std::cell::RefCell::new(Vec::new());
        struct Told<'l>(&'l std::cell::RefCell<Vec<u32>>, u32);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        {
            let stack = || DefaultStack::new(64 << 10).unwrap();
            let mut fibers: Vec<_> = (0..2)
                .map(|i| {
                    let log = &log;
                    Fiber::new(stack(), move || {
                        let _told = Told(log, 100 + i);
                        for n in 0..2 {
                            log.borrow_mut().push(i * 10 + n);
                            suspend();
                        }
                    })
                })
                .collect();
            assert!(!fibers[0].resume() && !fibers[1].resume() && !fibers[0].resume());
            assert!(fibers[0].resume());
            // The other fiber is dropped before its end.
        }
        assert_eq!(*log.borrow(), [0, 10, 1, 100, 101]);
    }
}
