//! Calls of embedders' functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls an embedder's function; `None` where it panicked. The panic hook has run then.
///
/// Unwinding must not go on into the allocator. It may have blocks in hand, and its caller may be a
/// request of `GlobalAlloc`, which must not unwind.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    // What the function left half done is the embedder's; of the yard's it changes nothing directly.
    let payload = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => return Some(answer),
        Err(payload) => payload,
    };
    // The payload's own drop may panic. What that leaves is forgotten.
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
    fn a_panic_ends_at_the_call() {
        assert_eq!(guarded(|| 7), Some(7));
        assert_eq!(guarded(|| -> u8 { panic!("planted") }), None);
        assert_eq!(guarded(|| -> u8 { std::panic::panic_any(Bomb) }), None);
    }
}
