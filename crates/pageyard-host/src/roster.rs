//! The magazines of a yard's threads, and their limits.

use std::sync::Arc;

use crate::handshake::with_claimed;
use crate::magazine::{KINDS, Kind, Magazine};
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Class, Mutex, MutexGuard};

/// Limits of what threads may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of blocks of each kind per thread.
    pub(crate) blocks: [u32; KINDS],
    /// Maximum number of threads with a magazine.
    pub(crate) threads: usize,
}

impl Limits {
    /// Returns the pages that a thread may keep.
    pub(crate) fn pages(&self) -> u64 {
        let of = |&kind: &Kind| self.blocks[kind as usize] * kind.order().pages();
        Kind::ALL.iter().map(of).map(u64::from).sum()
    }
}

/// All magazines of a yard.
///
/// The pressed state and the limits of the magazines change together, under the lock of the list.
/// While pressed, every limit is 0; otherwise every limit is that of [`Limits`].
pub(crate) struct Roster {
    limits: Limits,
    magazines: Mutex<Vec<Arc<Magazine>>>,
    pub(crate) pressed: AtomicBool,
    /// Number of transitions to pressed.
    presses: AtomicU64,
    /// Length of the list.
    threads: AtomicUsize,
}

impl Roster {
    pub(crate) fn new(limits: Limits) -> Roster {
        Roster {
            limits,
            magazines: Mutex::new(Class::Magazines, Vec::new()),
            pressed: AtomicBool::default(),
            presses: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
        }
    }

    /// Locks the list. The holder has exclusive use of every magazine that it claims.
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Arc<Magazine>>> {
        self.magazines.lock()
    }

    /// Runs `f` on the locked list, which has room for one more magazine. The list grows while it
    /// is not locked, because an allocation may need the lock to drain the magazines.
    fn with_room<T>(&self, f: impl FnOnce(&mut Vec<Arc<Magazine>>) -> T) -> T {
        let mut spare = Vec::new();
        loop {
            let mut list = self.list();
            if list.len() == list.capacity() && list.len() < spare.capacity() {
                spare.append(&mut list);
                std::mem::swap(&mut *list, &mut spare);
            }
            if list.len() < list.capacity() {
                let answer = f(&mut list);
                // Unlock before the old buffer is freed.
                drop(list);
                return answer;
            }
            let more = 2 * list.len() + 4;
            drop(list);
            spare = Vec::with_capacity(more);
        }
    }

    /// Returns whether the maximum number of threads has a magazine.
    pub(crate) fn is_full(&self) -> bool {
        self.threads.load(Relaxed) >= self.limits.threads
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    /// Returns the number of transitions to pressed. Consistent with
    /// [`is_pressed`](Roster::is_pressed) for the holder of the list.
    pub(crate) fn presses(&self) -> u64 {
        self.presses.load(Relaxed)
    }

    /// Adds the calling thread's magazine. Returns `false` if the maximum is reached.
    pub(crate) fn join(&self, magazine: &Arc<Magazine>) -> bool {
        self.with_room(|list| {
            if list.len() >= self.limits.threads {
                return false;
            }
            self.allow(magazine, !self.pressed.load(Relaxed));
            list.push(magazine.clone());
            self.threads.store(list.len(), Relaxed);
            true
        })
    }

    /// Removes the calling thread's magazine from the list. Runs `last` while no other thread can
    /// claim it.
    pub(crate) fn leave(&self, magazine: &Arc<Magazine>, last: impl FnOnce()) {
        let mut list = self.list();
        list.retain(|m| !Arc::ptr_eq(m, magazine));
        self.threads.store(list.len(), Relaxed);
        last();
    }

    /// Claims the magazines that `meant` selects and passes them to `take`, one after the other.
    /// See [`with_claimed`].
    pub(crate) fn drain(
        &self,
        meant: impl Fn(&Magazine) -> bool,
        barrier: impl FnOnce() -> bool,
        take: impl FnMut(&Magazine),
    ) {
        let list = self.list();
        with_claimed(&list[..], |m| m.pages() > 0 && meant(m), barrier, take);
    }

    /// Stops threads from keeping blocks: drains their magazines, which stay empty until
    /// [`relax`](Roster::relax).
    pub(crate) fn press(&self, barrier: impl FnOnce() -> bool, take: impl FnMut(&Magazine)) {
        let list = self.list();
        if !self.pressed.load(Relaxed) {
            self.presses.fetch_add(1, Relaxed);
            self.pressed.store(true, Relaxed);
        }
        list.iter().for_each(|m| self.allow(m, false));
        // All magazines: an owner that read its limit earlier may be about to push into an empty
        // one.
        with_claimed(&list[..], |_| true, barrier, take);
    }

    /// Lets threads keep blocks again if `room`, in pages, is enough for all that they may keep.
    /// Returns whether they still must not.
    pub(crate) fn relax(&self, room: impl FnOnce() -> i64) -> bool {
        if !self.pressed.load(Relaxed) {
            return false;
        }
        let list = self.list();
        let each = self.limits.pages() as i64;
        // Another thread may have relaxed the roster before this one got the lock; then this
        // changes nothing.
        if room() < each * list.len() as i64 {
            return self.pressed.load(Relaxed);
        }
        list.iter().for_each(|m| self.allow(m, true));
        self.pressed.store(false, Relaxed);
        false
    }

    /// Sets a magazine's limits. The caller holds the list.
    fn allow(&self, magazine: &Magazine, some: bool) {
        for kind in Kind::ALL {
            magazine.set_limit(kind, if some { self.limits.blocks[kind as usize] } else { 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooked_alloc::assert_free;

    /// The program's allocator may be the yard: an allocation may drain the magazines.
    #[test]
    fn the_list_lock_covers_no_allocation_or_release() {
        let roster = Roster::new(Limits { blocks: [1; KINDS], threads: 100 });
        let mut magazines: Vec<_> = (0..101).map(|n| Arc::new(Magazine::new(n))).collect();
        assert_free(
            || roster.magazines.try_lock().is_some(),
            || {
                let last = magazines.pop().unwrap();
                assert!(magazines.iter().all(|m| roster.join(m)));
                assert!(!roster.join(&last), "the roster is full");
                assert!(magazines.iter().all(|m| m.limit(Kind::Movable) == 1));
                magazines.drain(..).for_each(|m| roster.leave(&m, || ()));
            },
        );
        assert_eq!(roster.list().len(), 0);
    }
}
