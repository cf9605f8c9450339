//! The unit tests' allocator. It calls a function of the test at each allocation and deallocation,
//! which checks whether a lock is held that an allocation may need.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Hooked;

#[global_allocator]
static HOOKED: Hooked = Hooked;

thread_local! {
    static HOOK: Cell<Option<&'static dyn Fn()>> = const { Cell::new(None) };
}

fn call_hook() {
    // Not called for allocations of the hook itself.
    if let Some(hook) = HOOK.take() {
        hook();
        HOOK.set(Some(hook));
    }
}

// SAFETY: the system's allocator, with a call in front that does not unwind (`allocations_in`).
unsafe impl GlobalAlloc for Hooked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        call_hook();
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        call_hook();
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Runs `body`. Returns how often this thread allocated or freed memory in it, and how often
/// `is_free` returned `false` then.
pub(crate) fn allocations_in(is_free: impl Fn() -> bool, body: impl FnOnce()) -> (u64, u64) {
    let (all, held) = (Cell::new(0), Cell::new(0));
    let hook = || {
        all.set(all.get() + 1);
        held.set(held.get() + u64::from(!is_free()));
    };
    struct Unhook;
    impl Drop for Unhook {
        fn drop(&mut self) {
            HOOK.set(None);
        }
    }
    let hook: &dyn Fn() = &hook;
    // SAFETY: only the lifetime changes; the hook is removed before this returns or unwinds.
    HOOK.set(Some(unsafe { std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(hook) }));
    let unhook = Unhook;
    body();
    drop(unhook);
    (all.get(), held.get())
}

/// Like [`allocations_in`]; checks that memory was allocated or freed, and never with the lock
/// held.
pub(crate) fn assert_free(is_free: impl Fn() -> bool, body: impl FnOnce()) {
    let (all, held) = allocations_in(is_free, body);
    assert!(all > 0, "nothing was allocated");
    assert_eq!(held, 0, "of {all} allocations and releases, under a lock");
}
