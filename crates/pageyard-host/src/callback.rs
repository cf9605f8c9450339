//! Calls of embedders' functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls an embedder's function. Returns `None` if it panicked, after the panic hook has run.
///
/// Unwinding must not continue into the allocator. It may hold blocks, and its caller may be a
/// request of `GlobalAlloc`, which must not unwind.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    // State that the function left inconsistent is the embedder's; it does not change the yard
    // directly.
    let payload = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => return Some(answer),
        Err(payload) => payload,
    };
    // The payload's own drop may panic; that second payload is forgotten.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    #[test]
    fn a_panic_in_a_callback_is_caught() {
        assert_eq!(guarded(|| 7), Some(7));
        assert_eq!(guarded(|| -> u8 { panic!("planted") }), None);
        assert_eq!(guarded(|| -> u8 { std::panic::panic_any(Bomb) }), None);
    }
}
