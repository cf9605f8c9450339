//! Embedders that can do with less: asked in the background when memory falls below the LOW mark or
//! use rises above the soft limit, and by requests that are not served otherwise.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use pageyard::ReclaimJob;

use crate::fork::Birthplace;

/// Somebody who keeps pages that can be had again: a cache, a buffer pool.
///
/// Called by the worker, and by whoever makes a request with
/// [`DIRECT_RECLAIM`](pageyard::Gfp::DIRECT_RECLAIM) (as [`KERNEL`](pageyard::Gfp::KERNEL) has) that
/// cannot be served: on that thread, without any of the yard's locks. So a shrinker does not wait for
/// a lock that its own users may hold while they allocate: it *tries* locks, or they allocate with
/// [`NOWAIT`](pageyard::Gfp::NOWAIT). Requests that it makes itself may use the reserves, and never
/// lead to another reclaim.
///
/// Closures from a job to a number of pages are shrinkers.
pub trait Shrinker: Send + Sync {
    /// How many pages it could give up, about.
    fn count(&self) -> u64 {
        u64::MAX
    }

    /// Gives up about [`job.pages`](ReclaimJob::pages) pages, by giving blocks back to the yard. How
    /// many it was.
    fn shrink(&self, job: &ReclaimJob) -> u64;
}

impl<F: Fn(&ReclaimJob) -> u64 + Send + Sync> Shrinker for F {
    fn shrink(&self, job: &ReclaimJob) -> u64 {
        self(job)
    }
}

/// Things that were registered, each until its [`Registration`] is dropped.
pub(crate) struct Registry<T: ?Sized>(Arc<Inner<T>>);

struct Inner<T: ?Sized> {
    next: AtomicU64,
    all: RwLock<Vec<(u64, Arc<T>)>>,
}

impl<T: ?Sized> Default for Registry<T> {
    fn default() -> Self {
        Registry(Arc::new(Inner { next: AtomicU64::new(0), all: RwLock::default() }))
    }
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} registered", self.all().len())
    }
}

impl<T: ?Sized + Send + Sync + 'static> Registry<T> {
    pub(crate) fn add(&self, what: Arc<T>) -> Registration {
        let born = Birthplace::here();
        let id = self.0.next.fetch_add(1, Relaxed);
        self.0.all.write().unwrap_or_else(PoisonError::into_inner).push((id, what));
        let inner: Weak<Inner<T>> = Arc::downgrade(&self.0);
        Registration(Some(Box::new(move || {
            let Some(inner) = inner.upgrade().filter(|_| born.is_here()) else { return };
            let mut all = inner.all.write().unwrap_or_else(PoisonError::into_inner);
            let gone = all.iter().position(|&(i, _)| i == id).map(|at| all.remove(at));
            drop(all);
            // What it owns may be blocks, and want the registry's lock.
            drop(gone);
        })))
    }
}

impl<T: ?Sized> Registry<T> {
    /// All of them now; no lock is held when they are called.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let all = self.0.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(_, what)| what.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.all.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What was registered stays so until this is dropped. A call that has begun by then may still end
/// afterwards. [`keep`](Registration::keep) registers it for good.
#[must_use = "dropped, it ends the registration"]
pub struct Registration(Option<Box<dyn FnOnce() + Send + Sync>>);

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registration")
    }
}

impl Registration {
    /// There was nobody to register with.
    pub(crate) fn of_nothing() -> Registration {
        Registration(None)
    }

    /// For as long as the yard lives.
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

/// Has a job done by all shrinkers, each by its share of what they could give up together.
pub(crate) fn shrink_all(shrinkers: &Registry<dyn Shrinker>, job: &ReclaimJob) -> u64 {
    let all: Vec<_> = shrinkers.all().into_iter().map(|s| (s.count(), s)).collect();
    let total: u128 = all.iter().map(|(count, _)| u128::from(*count)).sum();
    if total == 0 {
        return 0;
    }
    let share = |count: u64| {
        let exact = (u128::from(job.pages) * u128::from(count)).div_ceil(total);
        (exact as u64).min(count)
    };
    let of = |(count, s): (u64, Arc<dyn Shrinker>)| match share(count) {
        0 => 0,
        pages => s.shrink(&ReclaimJob { pages, ..*job }),
    };
    all.into_iter().map(of).fold(0, u64::saturating_add)
}

/// What all of them together say they could give up.
pub(crate) fn count_all(shrinkers: &Registry<dyn Shrinker>) -> u64 {
    shrinkers.all().iter().map(|s| s.count()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use pageyard::{Gfp, NodeId, NodeMask, Order, ZoneKind};

    use super::*;

    struct Cache(u64, Mutex<Vec<u64>>);

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
            priority: 12,
            may_write: true,
            may_swap: true,
        }
    }

    #[test]
    fn each_gives_its_share() {
        let registry: Registry<dyn Shrinker> = Registry::default();
        assert_eq!(shrink_all(&registry, &job(32)), 0);
        let caches = [300, 100, 0].map(|n| Arc::new(Cache(n, Mutex::default())));
        let mut held: Vec<_> = caches.iter().map(|c| registry.add(c.clone())).collect();
        assert_eq!(shrink_all(&registry, &job(32)), 32);
        let asked = |i: usize| std::mem::take(&mut *caches[i].1.lock().unwrap());
        assert_eq!([asked(0), asked(1), asked(2)], [vec![24], vec![8], vec![]]);
        assert_eq!(count_all(&registry), 400);
        assert_eq!(shrink_all(&registry, &job(1000)), 400, "no more than there is");
        drop(held.remove(0));
        caches.iter().for_each(|c| c.1.lock().unwrap().clear());
        assert_eq!(shrink_all(&registry, &job(32)), 32);
        assert_eq!([asked(0), asked(1)], [vec![], vec![32]]);
        held.remove(0).keep();
        assert_eq!(count_all(&registry), 100);
        // Those that do not know what they have.
        registry.add(Arc::new(|job: &ReclaimJob| job.pages)).keep();
        registry.add(Arc::new(|_: &ReclaimJob| 0)).keep();
        assert_eq!(shrink_all(&registry, &job(32)), 17);
    }
}
