//! Taking magazines away from threads that go in and out without a lock (see
//! [`barrier`](crate::barrier)).

use std::ops::Deref;

use crate::magazine::Magazine;
use crate::sync::yield_now;

/// How often one who is inside his magazine is waited for.
const PATIENCE: u32 = 1000;

/// Takes the magazines that are meant away from their owners, hands each to `take` once its owner is
/// outside, and gives it back. Whoever is inside for too long keeps his. `barrier` makes all threads
/// pass one, or says that it cannot.
///
/// One does this at a time with the magazines of a list.
pub(crate) fn take_away<M: Deref<Target = Magazine>>(
    list: &[M],
    meant: impl Fn(&Magazine) -> bool,
    barrier: impl FnOnce() -> bool,
    mut take: impl FnMut(&Magazine),
) {
    // Asked once: the answer may change something.
    let claimed = list.iter().filter(|m| meant(m)).inspect(|m| m.claim());
    if claimed.fold(0, |n, _| n + 1) == 0 {
        return;
    }
    let visible = barrier();
    for m in list.iter().filter(|m| m.is_claimed()) {
        if visible && waits_until_left(m) {
            take(m);
        }
        m.give_up();
    }
}

/// Whether the owner has left, who goes in for some nanoseconds only, unless he lost his CPU there.
fn waits_until_left(m: &Magazine) -> bool {
    (0..PATIENCE).any(|n| {
        if n > 0 {
            yield_now();
        }
        m.is_left()
    })
}
