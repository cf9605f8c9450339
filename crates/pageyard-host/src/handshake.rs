//! Claiming magazines from owners that use them without a lock (see [`barrier`](crate::barrier)).

use std::ops::Deref;

use crate::magazine::Magazine;
use crate::sync::yield_now;

/// Number of checks for an owner that is inside its magazine.
const PATIENCE: u32 = 1000;

/// Claims the magazines that `meant` selects, passes each to `take` once its owner is outside, and
/// releases it. An owner that is inside for too long keeps its blocks. `barrier` makes all threads
/// pass a barrier, or returns `false` if it cannot.
///
/// One caller at a time for the magazines of a list.
pub(crate) fn with_claimed<M: Deref<Target = Magazine>>(
    list: &[M],
    meant: impl Fn(&Magazine) -> bool,
    barrier: impl FnOnce() -> bool,
    mut take: impl FnMut(&Magazine),
) {
    // Called once per magazine, because the call may change its state.
    let claimed = list.iter().filter(|m| meant(m)).inspect(|m| m.claim());
    if claimed.fold(0, |n, _| n + 1) == 0 {
        return;
    }
    let visible = barrier();
    for m in list.iter().filter(|m| m.is_claimed()) {
        if visible && wait_for_owner(m) {
            take(m);
        }
        m.release_claim();
    }
}

/// Waits until the owner is outside; `false` if it stays inside. An owner is inside for some
/// nanoseconds only, unless it is preempted there.
fn wait_for_owner(m: &Magazine) -> bool {
    (0..PATIENCE).any(|n| {
        if n > 0 {
            yield_now();
        }
        m.owner_is_outside()
    })
}
