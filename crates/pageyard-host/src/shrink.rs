//! Shrinkers: called in the background when memory falls below the LOW watermark or use rises above
//! the soft limit, and by requests that cannot be served otherwise.

use pageyard::ReclaimJob;

use crate::callback::guarded;
use crate::registry::Registry;

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
    use std::sync::{self, Arc};

    use pageyard::{Gfp, NodeId, NodeMask, Order, ZoneKind};

    use super::*;
    use crate::hooked_alloc::allocations_in;

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
