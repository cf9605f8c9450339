//! Shrinkers: called in the background when memory falls below the LOW watermark or use rises above
//! the soft limit, and by requests that cannot be served otherwise.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::{fmt, mem};

use pageyard::ReclaimJob;

use crate::callback::guarded;
use crate::fork::Birthplace;
use crate::held::{Class, Mutex};

/// A callback that frees cached blocks under memory pressure: a cache, a buffer pool.
///
/// It is called by the worker, and by a request with
/// [`DIRECT_RECLAIM`](pageyard::Gfp::DIRECT_RECLAIM) (which [`KERNEL`](pageyard::Gfp::KERNEL)
/// contains) that cannot be served. That call runs on the requesting thread, without any of the
/// yard's locks.
///
/// So a shrinker must not wait for a lock that its own users may hold while they allocate: it uses
/// `try_lock`, or they allocate with [`NOWAIT`](pageyard::Gfp::NOWAIT). Requests that it makes
/// itself may use the reserves, and never lead to another reclaim.
///
/// A panic does not leave the yard: the panic hook runs, and the call counts as 0 pages.
///
/// Closures from a job to a number of pages are shrinkers.
///
/// ```
/// use std::sync::Mutex;
/// use pageyard::ReclaimJob;
/// use pageyard_host::Shrinker;
///
/// struct Cache(Mutex<Vec<pageyard_host::Block<'static>>>);
/// impl Shrinker for Cache {
///     fn count(&self) -> u64 {
///         self.0.try_lock().map_or(0, |blocks| blocks.len() as u64)
///     }
///     fn shrink(&self, job: &ReclaimJob) -> u64 {
///         // The user of the cache may hold the lock while it allocates.
///         let Ok(mut blocks) = self.0.try_lock() else { return 0 };
///         let kept = blocks.len().saturating_sub(job.pages as usize);
///         blocks.drain(kept..).len() as u64
///     }
/// }
/// ```
pub trait Shrinker: Send + Sync {
    /// Returns about how many pages it could free. The default, [`u64::MAX`], means unknown: it
    /// counts as long as calls free anything.
    fn count(&self) -> u64 {
        u64::MAX
    }

    /// Frees about [`job.pages`](ReclaimJob::pages) pages, by freeing blocks to the yard. Returns
    /// the number of pages freed.
    fn shrink(&self, job: &ReclaimJob) -> u64;
}

impl<F: Fn(&ReclaimJob) -> u64 + Send + Sync> Shrinker for F {
    fn shrink(&self, job: &ReclaimJob) -> u64 {
        self(job)
    }
}

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

/// Number of counts that one reclaim stores; shrinkers beyond are counted a second time.
const KEPT: usize = 64;

/// A shrinker that panics counts as 0 pages.
fn count(shrinker: &dyn Shrinker) -> u64 {
    guarded(|| shrinker.count()).unwrap_or(0)
}

/// Splits a job among all shrinkers in proportion to their counts. Returns the number of pages
/// freed. Allocates nothing, because a request without memory is waiting.
pub(crate) fn shrink_all(shrinkers: &Registry<dyn Shrinker>, job: &ReclaimJob) -> u64 {
    let all = shrinkers.all();
    let mut counts = [0; KEPT];
    let mut total = 0;
    for (n, shrinker) in all.iter().enumerate() {
        let count = count(shrinker);
        total += u128::from(count);
        if let Some(kept) = counts.get_mut(n) {
            *kept = count;
        }
    }
    if total == 0 {
        return 0;
    }
    let share = |count: u64| {
        let exact = (u128::from(job.pages) * u128::from(count)).div_ceil(total);
        // A second count may exceed the total; limit the share to the whole job.
        exact.min(job.pages.into()).min(count.into()) as u64
    };
    let of = |(n, shrinker): (usize, &dyn Shrinker)| {
        let count = counts.get(n).copied().unwrap_or_else(|| count(shrinker));
        match share(count) {
            0 => 0,
            pages => {
                let job = ReclaimJob { pages, ..*job };
                guarded(|| shrinker.shrink(&job)).unwrap_or(0)
            }
        }
    };
    all.iter().enumerate().map(of).fold(0, u64::saturating_add)
}

/// Returns the sum of all shrinkers' counts. Unknown counts (the default) are left out if the last
/// calls freed nothing (`believe` is false): otherwise a request would wait for them as long as it
/// may, every time.
pub(crate) fn count_all(shrinkers: &Registry<dyn Shrinker>, believe: bool) -> u64 {
    let known = |n: &u64| believe || *n != u64::MAX;
    shrinkers.all().iter().map(count).filter(known).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync;

    use pageyard::{Gfp, NodeId, NodeMask, Order, ZoneKind};

    use super::*;
    use crate::hooked_alloc::{allocations_in, assert_free};

    struct Cache(u64, sync::Mutex<Vec<u64>>);

    impl Shrinker for Cache {
        fn count(&self) -> u64 {
            self.0
        }
        fn shrink(&self, job: &ReclaimJob) -> u64 {
            self.1.lock().unwrap().push(job.pages);
            job.pages
        }
    }

    fn job(pages: u64) -> ReclaimJob {
        ReclaimJob {
            node: NodeId(0),
            allowed: NodeMask::only(NodeId(0)),
            highest: ZoneKind::Normal,
            order: Order::ZERO,
            gfp: Gfp::KERNEL,
            pages,
            priority: ReclaimJob::FIRST_PRIORITY,
            may_write: true,
            may_swap: true,
        }
    }

    fn cache(pages: u64) -> Arc<Cache> {
        Arc::new(Cache(pages, sync::Mutex::default()))
    }

    /// Returns the sizes of the jobs that a cache got since the last call.
    fn jobs(cache: &Cache) -> Vec<u64> {
        std::mem::take(&mut *cache.1.lock().unwrap())
    }

    #[test]
    fn a_job_is_divided_by_the_shrinkers_counts() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        assert_eq!(shrink_all(&registry, &job(32)), 0, "no shrinker");
        let caches = [300, 100, 0].map(cache);
        let _held: Vec<_> = caches.iter().map(|c| registry.add(c.clone())).collect();
        assert_eq!(shrink_all(&registry, &job(32)), 32);
        assert_eq!(caches.each_ref().map(|c| jobs(c)), [vec![24], vec![8], vec![]]);
        assert_eq!(count_all(&registry, true), 400);
        assert_eq!(shrink_all(&registry, &job(1000)), 400, "no more than there is");
    }

    #[test]
    fn a_shrinker_is_called_while_its_registration_is_held_or_kept() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        let caches = [300, 100].map(cache);
        let [first, second] = caches.each_ref().map(|c| registry.add(c.clone()));
        drop(first);
        assert_eq!(shrink_all(&registry, &job(32)), 32);
        assert_eq!(caches.each_ref().map(|c| jobs(c)), [vec![], vec![32]]);
        second.keep();
        assert_eq!(count_all(&registry, true), 100);
    }

    #[test]
    fn shrinkers_with_unknown_counts_share_a_job_equally() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        registry.add(cache(100)).keep();
        registry.add(Arc::new(|job: &ReclaimJob| job.pages)).keep();
        registry.add(Arc::new(|_: &ReclaimJob| 0)).keep();
        assert_eq!(shrink_all(&registry, &job(32)), 1 + 16, "the other half was asked for in vain");
        assert_eq!((count_all(&registry, true), count_all(&registry, false)), (u64::MAX, 100));
    }

    /// An embedder's value whose last reference the registry drops.
    struct Dropped;

    impl Drop for Dropped {
        fn drop(&mut self) {
            std::hint::black_box(vec![1u8]);
        }
    }

    #[test]
    fn the_registry_lock_covers_no_allocation_release_or_drop() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        let is_free = || registry.0.all.try_lock().is_some();
        assert_free(is_free, || {
            let register = |_| {
                let value = Dropped;
                registry.add(Arc::new(move |_: &ReclaimJob| u64::from(size_of_val(&value) > 0)))
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
        let registry: Registry<dyn Shrinker> = Registry::default();
        let register = || registry.add(Arc::new(|_: &ReclaimJob| 0)).keep();
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

    #[test]
    fn reclaim_allocates_nothing() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        for _ in 0..2 * KEPT {
            registry.add(Arc::new(|job: &ReclaimJob| job.pages)).keep();
        }
        let mut freed = 0;
        let reclaim = || freed = shrink_all(&registry, &job(1024)) + count_all(&registry, true) % 2;
        assert_eq!(allocations_in(|| true, reclaim), (0, 0));
        assert_eq!(freed, 1024 + 1, "eight of each; a count that is too large for a sum");
    }

    #[test]
    fn a_panicking_shrinker_frees_nothing() {
        struct Wrong;
        impl Shrinker for Wrong {
            fn count(&self) -> u64 {
                panic!("planted: count")
            }
            fn shrink(&self, _: &ReclaimJob) -> u64 {
                unreachable!("it has nothing")
            }
        }
        let registry: Registry<dyn Shrinker> = Registry::default();
        registry.add(Arc::new(Wrong)).keep();
        assert_eq!((shrink_all(&registry, &job(32)), count_all(&registry, true)), (0, 0));
        registry.add(Arc::new(|_: &ReclaimJob| -> u64 { panic!("planted: shrink") })).keep();
        registry.add(Arc::new(|job: &ReclaimJob| job.pages)).keep();
        assert_eq!(shrink_all(&registry, &job(32)), 16, "the other one's half");
    }
}
