//! Guards for the state that a panic in a hook or in a caller's closure would leave behind.

/// Calls a closure when dropped: at the end of its scope, or when a panic leaves it.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    #[inline]
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Calls a closure if it is dropped before it is disarmed: by a panic or an early return.
pub(crate) struct Rollback<F: FnMut()>(Finally<F>);

impl<F: FnMut()> Rollback<F> {
    #[inline(always)]
    pub(crate) fn new(f: F) -> Self {
        Rollback(Finally(f))
    }

    /// Prevents the call. Use it when the hooks have returned.
    #[inline(always)]
    pub(crate) fn disarm(self) {
        core::mem::forget(self);
    }
}
