//! The callbacks registered with a yard, and the items they hold.

use std::sync::Mutex;

use pageyard::ReclaimJob;
use pageyard_host::{Registration, Shrinker};

use crate::found::{Found, Report};
use crate::held::Held;
use crate::pool::{Moves, Pool};
use crate::tracked::{TrackedYard, lock};

/// The callbacks of a yard.
#[derive(Default)]
pub(crate) struct Callbacks {
    /// Items that the shrinker frees.
    pub(crate) cache: Mutex<Vec<Held>>,
    /// Blocks that the relocator moves.
    pub(crate) pool: Pool,
    registrations: Mutex<Vec<Registration>>,
}

impl Callbacks {
    /// Returns the yard's shrinker.
    pub(crate) fn shrinker(&'static self, to: &'static dyn Report) -> Frees {
        Frees { to, cache: &self.cache }
    }

    /// Returns the yard's relocator.
    pub(crate) fn relocator(
        &'static self,
        to: &'static dyn Report,
        tracked: &'static TrackedYard,
    ) -> Moves {
        Moves { to, tracked, pool: &self.pool }
    }

    /// Registers a shrinker, a relocator and a listener.
    pub(crate) fn open(&'static self, to: &'static dyn Report, tracked: &'static TrackedYard) {
        let added = [
            tracked.yard.register_shrinker(self.shrinker(to)),
            tracked.yard.register_relocator(self.relocator(to, tracked)),
            tracked.yard.on_pressure(|event| drop(event.clone())),
        ];
        lock(&self.registrations).extend(added);
    }

    /// Frees the items of the shrinker and the relocator, and ends their registrations.
    pub(crate) fn close(&self, tracked: &'static TrackedYard) -> Result<(), Found> {
        // A call of one of them may continue until the worker's step ends.
        lock(&self.registrations).clear();
        tracked.wait_for_worker()?;
        let all = std::mem::take(&mut *lock(&self.cache));
        all.into_iter().try_for_each(Held::release)?;
        std::iter::from_fn(|| self.pool.take(tracked)).try_for_each(Held::release)
    }
}

/// A shrinker that frees the items of a yard's cache.
pub(crate) struct Frees {
    pub(crate) to: &'static dyn Report,
    pub(crate) cache: &'static Mutex<Vec<Held>>,
}

impl Shrinker for Frees {
    fn count(&self) -> u64 {
        self.cache.try_lock().map_or(0, |all| all.iter().map(Held::pages).sum())
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        let mut freed = 0;
        while freed < job.pages {
            // The cache is not locked while an item is freed.
            let held = self.cache.try_lock().ok().and_then(|mut all| all.pop());
            let Some(held) = held else { break };
            freed += held.pages();
            self.to.report(held.release());
        }
        freed
    }
}
