//! Registered callbacks of the embedder's, each until its [`Registration`] is dropped.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::{fmt, mem};

use crate::callback::guarded;
use crate::fork::Birthplace;
use crate::held::{Class, Mutex};

/// Registered values, each until its [`Registration`] is dropped.
pub(crate) struct Registry<T: ?Sized>(Arc<Inner<T>>);

/// Shared with running calls, so replaced as a whole. A reader only counts a reference under the
/// lock, and nothing is allocated or dropped under it, because an allocation may call shrinkers.
type List<T> = Arc<Vec<(u64, Arc<T>)>>;

struct Inner<T: ?Sized> {
    next: AtomicU64,
    all: Mutex<List<T>>,
}

impl<T: ?Sized> Inner<T> {
    fn list(&self) -> List<T> {
        self.all.lock().clone()
    }

    /// Replaces the list by what `change` puts into an empty one: at most one value more. `change`
    /// may run several times.
    ///
    /// An allocation may call a shrinker that registers another one, which changes the list. So the
    /// room is reserved first, more each time, and the new list is filled without an allocation.
    fn change(&self, change: impl Fn(&[(u64, Arc<T>)], &mut Vec<(u64, Arc<T>)>)) {
        let mut new: List<T> = Arc::default();
        loop {
            let room = Arc::get_mut(&mut new).expect("the new list has no other owner");
            room.clear();
            let old = self.list();
            if room.capacity() <= old.len() {
                room.reserve(2 * old.len() + 4);
                continue;
            }
            change(&old, room);
            let mut now = self.all.lock();
            if Arc::ptr_eq(&now, &old) {
                let same = mem::replace(&mut *now, new);
                drop(now);
                // Its values may be the embedder's last references, whose drops use the yard.
                drop(same);
                return;
            }
        }
    }
}

impl<T: ?Sized> Default for Registry<T> {
    fn default() -> Self {
        Registry(Arc::new(Inner {
            next: AtomicU64::new(0),
            all: Mutex::new(Class::Registry, List::default()),
        }))
    }
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} registered", self.0.list().len())
    }
}

impl<T: ?Sized + Send + Sync + 'static> Registry<T> {
    pub(crate) fn add(&self, what: Arc<T>) -> Registration {
        let born = Birthplace::here();
        let id = self.0.next.fetch_add(1, Relaxed);
        self.0.change(|old, new| new.extend(old.iter().cloned().chain([(id, what.clone())])));
        let inner: Weak<Inner<T>> = Arc::downgrade(&self.0);
        Registration(Some(Box::new(move || {
            let Some(inner) = inner.upgrade().filter(|_| born.is_here()) else { return };
            inner.change(|old, new| new.extend(old.iter().filter(|&&(i, _)| i != id).cloned()));
        })))
    }
}

impl<T: ?Sized> Registry<T> {
    /// Returns all registered values. No lock is held while they are called.
    pub(crate) fn all(&self) -> Snapshot<T> {
        Snapshot(Some(self.0.list()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.all.lock().is_empty()
    }
}

/// The values registered at one moment.
pub(crate) struct Snapshot<T: ?Sized>(Option<List<T>>);

impl<T: ?Sized> Snapshot<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|list| list.iter()).map(|(_, what)| &**what)
    }
}

impl<T: ?Sized> Drop for Snapshot<T> {
    fn drop(&mut self) {
        // Registrations may have ended in the meantime, which makes these the last references.
        guarded(|| drop(self.0.take()));
    }
}

/// Keeps a value registered until dropped. A call that has begun by then may end after the drop.
/// [`keep`](Registration::keep) registers it for good.
///
/// ```
/// use pageyard::ReclaimJob;
/// use pageyard_host::Builder;
///
/// let yard = Builder::new(16 << 20).build()?;
/// let registration = yard.register_shrinker(|_: &ReclaimJob| 0);
/// // Ends when it is dropped; `keep` makes it last as long as the yard.
/// registration.keep();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, it ends the registration"]
pub struct Registration(Option<Box<dyn FnOnce() + Send + Sync>>);

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}

impl Registration {
    /// Returns a registration of nothing.
    pub(crate) fn of_nothing() -> Registration {
        Registration(None)
    }

    /// Keeps the value registered as long as the yard lives.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooked_alloc::{allocations_in, assert_free};

    type Callback = dyn Fn() -> u64 + Send + Sync;

    /// An embedder's value whose last reference the registry drops.
    struct Dropped;

    impl Drop for Dropped {
        fn drop(&mut self) {
            std::hint::black_box(vec![1u8]);
        }
    }

    #[test]
    fn the_registry_lock_covers_no_allocation_release_or_drop() {
        let registry: Registry<Callback> = Registry::default();
        let is_free = || registry.0.all.try_lock().is_some();
        assert_free(is_free, || {
            let register = |_| {
                let value = Dropped;
                registry.add(Arc::new(move || u64::from(size_of_val(&value) > 0)))
            };
            let count = if cfg!(miri) { 20 } else { 200 };
            let held: Vec<_> = (0..count).map(register).collect();
            // The last reference to a list is a reader's.
            let readers = registry.all();
            drop(held);
            drop(readers);
        });
        assert!(registry.is_empty());
    }

    /// An allocation calls a shrinker that registers another one.
    #[test]
    fn registration_terminates_with_nested_registrations() {
        let registry: Registry<Callback> = Registry::default();
        let register = || registry.add(Arc::new(|| 0)).keep();
        let others = std::cell::Cell::new(0u32);
        let registers = || {
            if others.get() < 10_000 {
                others.set(others.get() + 1);
                register();
            }
            true
        };
        allocations_in(registers, register);
        assert!((1..100).contains(&others.get()), "{} others", others.get());
        assert_eq!(registry.all().iter().count() as u32, others.get() + 1);
    }
}
