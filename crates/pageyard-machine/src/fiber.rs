//! Switching between coroutines.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

thread_local! {
    /// The way out of the coroutine that runs on this thread; null while none does.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A task's stack and where it stands. It may use what lives for `'env`.
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

    /// Runs until the fiber [suspends](suspend) itself or ends; whether it has ended. A panic
    /// inside comes out here.
    pub(crate) fn resume(&mut self) -> bool {
        // A machine may run inside another one's task.
        let _outer = Restore(YIELDER.get());
        matches!(self.coroutine.resume(()), CoroutineResult::Return(()))
    }

    /// The stack of a fiber that has ended, for another one.
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

/// The running fiber stops here until it is resumed.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a task of a running machine can wait");
    // SAFETY: the pointer is set by a fiber about itself when it runs first and after each
    // suspension, and put back to the outer fiber's, or null, when it stops. So it is that of the
    // fiber that is running now, on whose stack the yielder lies.
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
            // The other one is dropped in the middle.
        }
        assert_eq!(*log.borrow(), [0, 10, 1, 100, 101]);
    }
}
