//! The locks of this crate. Debug builds check the order in which threads take them, as the
//! kernel's lockdep does. A cycle is found once each of its orders has been seen, even without a
//! deadlock.
//!
//! Requests for memory count as a lock of their own, [`Class::Allocation`], under which a request
//! may take the locks in [`NEEDED`]. So a thread that allocates while it holds one of these is
//! found at once, whether or not that request needs the lock. The check writes to stderr and
//! aborts, because a panic would allocate and unwind out of allocators. It allocates nothing.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};

/// What a lock protects. All locks of a class follow the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Class {
    /// An allocation or free, of the yard or of the program's allocator.
    Allocation,
    /// The core allocator's locks ([`HostLock`](crate::HostLock)).
    Core,
    /// The list of the threads' magazines.
    Magazines,
    /// A registry of embedders' callbacks.
    Registry,
    /// The table of movable blocks.
    Movables,
    /// The blocks that a hard limit keeps.
    Balloon,
    /// The limits.
    Limits,
    /// The worker's states.
    States,
    /// A movable block, held while its owner's code runs.
    Movable,
    /// Memory hotplug, held while embedders' callbacks run.
    Hotplug,
}

#[cfg_attr(not(debug_assertions), allow(dead_code))]
impl Class {
    const ALL: [Class; 10] = [
        Class::Allocation,
        Class::Core,
        Class::Magazines,
        Class::Registry,
        Class::Movables,
        Class::Balloon,
        Class::Limits,
        Class::States,
        Class::Movable,
        Class::Hotplug,
    ];

    fn name(self) -> &'static str {
        match self {
            Class::Allocation => "an allocation",
            Class::Core => "a lock of the allocator",
            Class::Magazines => "the list of magazines",
            Class::Registry => "a registry",
            Class::Movables => "the table of movable blocks",
            Class::Balloon => "the blocks of the hard limit",
            Class::Limits => "the limits",
            Class::States => "the worker's states",
            Class::Movable => "a movable block",
            Class::Hotplug => "the busy flag of hotplug",
        }
    }

    /// Whether a thread may hold several locks of the class; their order is not checked.
    const fn nests(self) -> bool {
        matches!(self, Class::Allocation | Class::Core)
    }

    /// Whether the order is checked. Not for locks held while an embedder's code runs, which may do
    /// anything that its own locks allow. Under other locks, the yard itself only uses `try_lock`
    /// on these.
    const fn is_ordered(self) -> bool {
        !matches!(self, Class::Movable | Class::Hotplug)
    }

    /// Whether [`report_locks`] reports the class. Not for frequently taken locks, whose holders
    /// would share a cache line for it.
    const fn is_reported(self) -> bool {
        !matches!(self, Class::Allocation | Class::Core)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Locks that a request for memory may take: it drains magazines and compacts, and it calls
/// shrinkers and relocators, which may use every method of the yard.
#[cfg(debug_assertions)]
const NEEDED: u32 = Class::Core.bit()
    | Class::Magazines.bit()
    | Class::Registry.bit()
    | Class::Movables.bit()
    | Class::Balloon.bit()
    | Class::Limits.bit()
    | Class::States.bit();

/// A lock of a class. A panic of its holder does not poison it: the protected data is consistent at
/// every point where the holder may panic.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    class: Tag,
    inner: sync::Mutex<T>,
}

/// A held lock.
pub(crate) struct Guard<G> {
    // Dropped first.
    inner: G,
    _held: Held,
}

/// A held [`Mutex`].
pub(crate) type MutexGuard<'m, T> = Guard<sync::MutexGuard<'m, T>>;

impl<T> Mutex<T> {
    pub(crate) const fn new(class: Class, value: T) -> Mutex<T> {
        Mutex { class: check::tag(class), inner: sync::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        check::acquiring(self.class);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _held: Held::new(self.class) }
    }

    /// Takes the lock unless any thread, including this one, holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Guard { inner, _held: Held::new(self.class) })
    }
}

// Without debug assertions, a lock is the standard library's, and a request does no extra work.
#[cfg(not(debug_assertions))]
const _: () = {
    assert!(size_of::<Mutex<u64>>() == size_of::<sync::Mutex<u64>>());
    assert!(size_of::<MutexGuard<'_, u64>>() == size_of::<sync::MutexGuard<'_, u64>>());
    assert!(size_of::<Allocating>() == 0 && !std::mem::needs_drop::<Allocating>());
};

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Marks that the calling thread holds a lock of a class.
struct Held(Tag, PhantomData<*const ()>);

impl Held {
    #[inline(always)]
    fn new(class: Tag) -> Held {
        check::acquired(class);
        Held(class, PhantomData)
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        check::released(self.0);
    }
}

/// Marks that the calling thread allocates or frees memory, until it is dropped.
#[must_use]
pub(crate) struct Allocating(#[allow(dead_code, reason = "dropped with this")] Held);

/// See [`Allocating`].
#[inline(always)]
pub(crate) fn allocating() -> Allocating {
    check::acquiring(Class::Allocation);
    Allocating(Held::new(check::tag(Class::Allocation)))
}

use check::Tag;
pub(crate) use check::{acquired, acquiring, released};

/// No-op checks for builds without debug assertions.
#[cfg(not(debug_assertions))]
mod check {
    use super::Class;

    /// Class stored in a lock.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Tag;

    pub(crate) const fn tag(_: Class) -> Tag {
        Tag
    }

    #[inline(always)]
    pub(crate) fn acquiring<T>(_: T) {}
    #[inline(always)]
    pub(crate) fn acquired<T>(_: T) {}
    #[inline(always)]
    pub(crate) fn released<T>(_: T) {}
}

#[cfg(debug_assertions)]
mod check {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

    use super::{Class, NEEDED};

    /// Class stored in a lock.
    pub(crate) type Tag = Class;

    pub(crate) const fn tag(class: Class) -> Tag {
        class
    }

    const CLASSES: usize = Class::ALL.len();

    /// By class: the classes taken while a lock of this class was held.
    static AFTER: [AtomicU32; CLASSES] = {
        let mut after = [const { AtomicU32::new(0) }; CLASSES];
        after[Class::Allocation as usize] = AtomicU32::new(NEEDED);
        after
    };
    /// By class: the thread that last took a lock of it, until it released that lock.
    static HOLDER: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];

    thread_local! {
        /// By class: how many locks the thread holds. Without a destructor, so that it can be read
        /// until the thread has ended.
        static HELD: [Cell<u32>; CLASSES] = const { [const { Cell::new(0) }; CLASSES] };
        static THREAD: Cell<u32> = const { Cell::new(0) };
    }

    fn thread() -> u32 {
        if THREAD.get() == 0 {
            // SAFETY: `gettid` takes no arguments.
            THREAD.set(unsafe { libc::gettid() as u32 });
        }
        THREAD.get()
    }

    /// Checks the order before the calling thread waits for a lock of a class.
    pub(crate) fn acquiring(class: Class) {
        if !class.is_ordered() {
            return;
        }
        let held = |c: &Class| c.is_ordered() && HELD.with(|held| held[*c as usize].get()) > 0;
        for before in Class::ALL.into_iter().filter(held) {
            if before == class {
                if !class.nests() {
                    fail("takes ", class, before, "");
                }
                continue;
            }
            let after = &AFTER[before as usize];
            if after.load(SeqCst) & class.bit() != 0 {
                continue;
            }
            // Set first, then checked: if two threads close a cycle at the same time, at least one
            // of them sees it.
            after.fetch_or(class.bit(), SeqCst);
            if leads_to(class, before) {
                match class {
                    Class::Allocation => fail(
                        "makes ",
                        class,
                        before,
                        ", which the allocation may \
                         take",
                    ),
                    _ => fail("takes ", class, before, "; the reverse order was seen too"),
                }
            }
        }
    }

    /// Returns whether `to` was ever taken under `from`, directly or through other classes.
    fn leads_to(from: Class, to: Class) -> bool {
        let mut seen = AFTER[from as usize].load(SeqCst);
        for _ in 0..CLASSES {
            let next = Class::ALL.iter().filter(|c| seen & c.bit() != 0);
            seen |= next.fold(0, |all, &c| all | AFTER[c as usize].load(SeqCst));
        }
        seen & to.bit() != 0
    }

    /// Records that the calling thread took a lock of a class.
    pub(crate) fn acquired(class: Class) {
        HELD.with(|held| held[class as usize].set(held[class as usize].get() + 1));
        if class.is_reported() {
            HOLDER[class as usize].store(thread(), Relaxed);
        }
    }

    /// Records that the calling thread released a lock of a class.
    pub(crate) fn released(class: Class) {
        HELD.with(|held| held[class as usize].set(held[class as usize].get().saturating_sub(1)));
        if class.is_reported() {
            let _ = HOLDER[class as usize].compare_exchange(thread(), 0, Relaxed, Relaxed);
        }
    }

    #[cold]
    fn fail(does: &str, class: Class, held: Class, why: &str) -> ! {
        say("pageyard: a thread ");
        say(does);
        say(class.name());
        say(" while it holds ");
        say(held.name());
        say(why);
        say("\n");
        super::report_locks();
        std::process::abort()
    }

    pub(super) fn report() {
        for class in Class::ALL {
            let holder = HOLDER[class as usize].load(Relaxed);
            if holder == 0 {
                continue;
            }
            let mut digits = [0; 10];
            let mut at = digits.len();
            let mut n = holder;
            while n > 0 && at > 0 {
                at -= 1;
                digits[at] = b'0' + (n % 10) as u8;
                n /= 10;
            }
            say("pageyard: thread ");
            say(std::str::from_utf8(&digits[at..]).unwrap_or(""));
            say(" holds ");
            say(class.name());
            say("\n");
        }
    }

    fn say(text: &str) {
        // SAFETY: writes the bytes of a valid string. A failed write is ignored.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

/// Writes to stderr which threads hold which locks, without allocating or locking. For watchdogs of
/// tests and for signal handlers. Does nothing in release builds.
#[doc(hidden)]
pub fn report_locks() {
    #[cfg(debug_assertions)]
    check::report();
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};

    use lock_api::RawMutex;

    use super::*;
    use crate::{HostLock, PageAlloc};

    /// Checks that the named test aborts with this message.
    fn aborts(test: &str, says: &str, breaks: impl FnOnce()) {
        crate::aborts::aborts(
            &format!("held::tests::{test}"),
            &format!("pageyard: {says}\n"),
            breaks,
        );
    }

    fn magazines() -> Mutex<u32> {
        Mutex::new(Class::Magazines, 0)
    }

    #[test]
    fn an_allocation_under_a_lock_that_it_may_take_aborts() {
        let says = "a thread makes an allocation while it holds the list of magazines, which the \
                    allocation may take";
        aborts("an_allocation_under_a_lock_that_it_may_take_aborts", says, || {
            let pages: PageAlloc<System> = PageAlloc::new(System);
            let (list, layout) = (magazines(), Layout::new::<u64>());
            // SAFETY: the layout is not empty, and the block is freed with the same layout.
            let once = || unsafe { pages.dealloc(pages.alloc(layout), layout) };
            once();
            let _held = list.lock();
            once();
        });
    }

    #[test]
    fn inconsistent_lock_order_aborts() {
        let says = "a thread takes the list of magazines while it holds a lock of the allocator; \
                    the reverse order was seen too";
        aborts("inconsistent_lock_order_aborts", says, || {
            let (list, zone) = (magazines(), lock_api::Mutex::<HostLock, ()>::new(()));
            {
                let _list = list.lock();
                let _zone = zone.lock();
            }
            let _zone = zone.lock();
            let _list = list.lock();
        });
    }

    #[test]
    fn a_recursive_lock_aborts() {
        let says = "a thread takes the list of magazines while it holds the list of magazines";
        aborts("a_recursive_lock_aborts", says, || {
            let list = magazines();
            let _held = list.lock();
            drop(list.lock());
        });
    }

    #[test]
    fn consistent_lock_order_and_try_locks_do_not_abort() {
        let (list, zone) = (magazines(), HostLock::INIT);
        for _ in 0..2 {
            let mut held = list.lock();
            *held += 1;
            assert!(list.try_lock().is_none());
            zone.lock();
            drop(held);
            // A thread that does not wait closes no cycle.
            drop(list.try_lock().expect("it is free"));
            // SAFETY: locked above.
            unsafe { zone.unlock() };
        }
        assert_eq!(*list.lock(), 2);
    }
}
