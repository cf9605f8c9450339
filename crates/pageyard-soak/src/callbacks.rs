//! What is registered with a yard, and what that holds.

use std::sync::Mutex;

use pageyard::ReclaimJob;
use pageyard_host::{Registration, Shrinker};

use crate::found::{Found, Report};
use crate::held::Held;
use crate::house::{House, lock};
use crate::pool::{Moves, Pool};

/// The callbacks of a yard.
#[derive(Default)]
pub(crate) struct Callbacks {
    /// What a shrinker frees.
    pub(crate) cache: Mutex<Vec<Held>>,
    /// Blocks that a relocator moves.
    pub(crate) pool: Pool,
    registrations: Mutex<Vec<Registration>>,
}

impl Callbacks {
    /// The yard's shrinker.
    pub(crate) fn shrinker(&'static self, to: &'static dyn Report) -> Frees {
        Frees { to, cache: &self.cache }
    }

    /// The yard's relocator.
    pub(crate) fn relocator(
        &'static self,
        to: &'static dyn Report,
        house: &'static House,
    ) -> Moves {
        Moves { to, house, pool: &self.pool }
    }

    /// Registers a shrinker, a relocator and a listener.
    pub(crate) fn open(&'static self, to: &'static dyn Report, house: &'static House) {
        let added = [
            house.yard.register_shrinker(self.shrinker(to)),
            house.yard.register_relocator(self.relocator(to, house)),
            house.yard.on_pressure(|event| drop(event.clone())),
        ];
        lock(&self.registrations).extend(added);
    }

    /// Returns what the shrinker and the relocator have, and ends their registrations.
    pub(crate) fn close(&self, house: &'static House) -> Result<(), Found> {
        // A call of them may go on until the worker's step ends.
        lock(&self.registrations).clear();
        house.wait_for_worker()?;
        let all = std::mem::take(&mut *lock(&self.cache));
        all.into_iter().try_for_each(Held::release)?;
        std::iter::from_fn(|| self.pool.take(house)).try_for_each(Held::release)
    }
}

/// Frees what a yard's cache holds.
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
            // Its own lock is not held while it frees.
            let held = self.cache.try_lock().ok().and_then(|mut all| all.pop());
            let Some(held) = held else { break };
            freed += held.pages();
            self.to.report(held.release());
        }
        freed
    }
}
