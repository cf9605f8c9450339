//! The magazines of a yard's threads, and how many blocks each of them may keep.

use std::sync::Arc;

use crate::handshake::take_away;
use crate::magazine::{KINDS, Kind, Magazine};
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Class, Mutex, MutexGuard};

/// What threads may keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Blocks of each kind that one thread may keep.
    pub(crate) blocks: [u32; KINDS],
    /// Threads that may have a magazine.
    pub(crate) threads: usize,
}

/// All magazines of a yard.
///
/// Whether threads are pressed and the limits of their magazines change together, under the lock of
/// the list: pressed, every limit is 0; else every limit is that of [`Limits`].
pub(crate) struct Roster {
    limits: Limits,
    magazines: Mutex<Vec<Arc<Magazine>>>,
    pub(crate) pressed: AtomicBool,
    /// How often threads were pressed that were not.
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

    /// Locks the list. Its holder has every magazine that it claims to itself.
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Arc<Magazine>>> {
        self.magazines.lock()
    }

    /// Runs `f` on the locked list, which has room for one more. It grows while it is not locked:
    /// what allocates may need the lock, to drain the magazines.
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
                // Before what was the list is freed.
                drop(list);
                return answer;
            }
            let more = 2 * list.len() + 4;
            drop(list);
            spare = Vec::with_capacity(more);
        }
    }

    /// Whether no thread more may have a magazine at the moment.
    pub(crate) fn is_full(&self) -> bool {
        self.threads.load(Relaxed) >= self.limits.threads
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    /// How often threads were pressed that were not. In agreement with
    /// [`is_pressed`](Roster::is_pressed) for the holder of the list.
    pub(crate) fn presses(&self) -> u64 {
        self.presses.load(Relaxed)
    }

    /// Adds the calling thread's magazine. `false` where there are as many as there may be.
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

    /// Takes the calling thread's magazine off the list; `last` runs while nobody can claim it.
    pub(crate) fn leave(&self, magazine: &Arc<Magazine>, last: impl FnOnce()) {
        let mut list = self.list();
        list.retain(|m| !Arc::ptr_eq(m, magazine));
        self.threads.store(list.len(), Relaxed);
        last();
    }

    /// Takes the magazines that are meant away from their owners, one after the other, and hands
    /// them to `take`. See [`take_away`].
    pub(crate) fn drain(
        &self,
        meant: impl Fn(&Magazine) -> bool,
        barrier: impl FnOnce() -> bool,
        take: impl FnMut(&Magazine),
    ) {
        let list = self.list();
        take_away(&list[..], |m| m.pages() > 0 && meant(m), barrier, take);
    }

    /// Threads keep nothing from now on: their magazines are taken away, and stay empty until
    /// [`relax`](Roster::relax).
    pub(crate) fn press(&self, barrier: impl FnOnce() -> bool, take: impl FnMut(&Magazine)) {
        let list = self.list();
        if !self.pressed.load(Relaxed) {
            self.presses.fetch_add(1, Relaxed);
            self.pressed.store(true, Relaxed);
        }
        list.iter().for_each(|m| self.allow(m, false));
        // All of them: an owner that read its limit before may be about to push into an empty one.
        take_away(&list[..], |_| true, barrier, take);
    }

    /// Threads may keep blocks again, if there is room for as much as all of them may keep.
    /// `room`: pages that there are. Returns whether they still may not.
    pub(crate) fn relax(&self, room: impl FnOnce() -> i64) -> bool {
        if !self.pressed.load(Relaxed) {
            return false;
        }
        let list = self.list();
        let each: u32 =
            Kind::ALL.iter().map(|&k| self.limits.blocks[k as usize] * k.order().pages()).sum();
        // Another thread may have relaxed it before this one had the lock; then this changes nothing.
        if room() < i64::from(each) * list.len() as i64 {
            return self.pressed.load(Relaxed);
        }
        list.iter().for_each(|m| self.allow(m, true));
        self.pressed.store(false, Relaxed);
        false
    }

    /// Sets a magazine's limits. The list is locked.
    fn allow(&self, magazine: &Magazine, some: bool) {
        for kind in Kind::ALL {
            magazine.set_limit(kind, if some { self.limits.blocks[kind as usize] } else { 0 });
        }
    }
}
