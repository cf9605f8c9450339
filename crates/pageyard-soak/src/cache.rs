//! What threads can do without when others need it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pageyard::ReclaimJob;
use pageyard_host::Shrinker;

use crate::held::{Found, Held};

/// Things that it keeps at most.
const MOST: usize = 2000;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache that yields, most of the time.
#[derive(Default)]
pub(crate) struct Cache {
    all: Mutex<Vec<Held>>,
    asked: AtomicU64,
    wrong: Mutex<Option<Found>>,
}

impl Cache {
    /// Keeps something, where there is room.
    pub(crate) fn keep(&self, held: Held) {
        let mut all = lock(&self.all);
        if all.len() < MOST {
            all.push(held);
        }
    }

    /// What was found wrong when it yielded.
    pub(crate) fn wrong(&self) -> Option<Found> {
        lock(&self.wrong).take()
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) -> Result<(), Found> {
        let all = std::mem::take(&mut *lock(&self.all));
        all.iter().try_for_each(Held::check)?;
        self.wrong().map_or(Ok(()), Err)
    }
}

impl Shrinker for &'static Cache {
    fn count(&self) -> u64 {
        self.all.try_lock().map_or(0, |all| all.iter().map(|h| h.pages).sum())
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        // One in four asks is refused, as a busy cache would.
        if self.asked.fetch_add(1, Relaxed) % 4 == 3 {
            return 0;
        }
        let Ok(mut all) = self.all.try_lock() else { return 0 };
        let mut freed = 0;
        while freed < job.pages
            && let Some(held) = all.pop()
        {
            if let Err(found) = held.check() {
                lock(&self.wrong).get_or_insert(found);
            }
            freed += held.pages;
        }
        freed
    }
}
