//! What must be put right where a hook of the embedder's panics, or a caller's closure.

/// Calls a closure when dropped: at the end of its scope, or where a panic leaves it.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    #[inline]
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Calls a closure where it is dropped before it is disarmed: by a panic, or by an early return.
pub(crate) struct Rollback<F: FnMut()>(Finally<F>);

impl<F: FnMut()> Rollback<F> {
    #[inline(always)]
    pub(crate) fn new(f: F) -> Self {
        Rollback(Finally(f))
    }

    /// The hooks have returned.
    #[inline(always)]
    pub(crate) fn disarm(self) {
        core::mem::forget(self);
    }
}
