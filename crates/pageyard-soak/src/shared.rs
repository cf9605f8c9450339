//! What all threads see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pageyard_host::HostYard;

use crate::Plant;
use crate::cache::{Cache, lock};
use crate::counts::Tally;
use crate::held::{Found, Hands, Held};

/// What all threads see.
pub(crate) struct Shared {
    pub(crate) yard: &'static HostYard,
    pub(crate) hands: &'static Hands,
    pub(crate) tally: Tally,
    pub(crate) cache: &'static Cache,
    /// Held for reading by whoever uses the yard.
    pub(crate) still: RwLock<()>,
    pub(crate) over: AtomicBool,
    /// How many pages each thread would like to hold.
    pub(crate) appetite: AtomicU64,
    pub(crate) plant: Mutex<Option<Plant>>,
    pub(crate) found: Mutex<Option<Found>>,
}

impl Shared {
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.still.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop_all(&self) -> RwLockWriteGuard<'_, ()> {
        self.still.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    pub(crate) fn appetite(&self) -> u64 {
        self.appetite.load(Relaxed)
    }

    /// Whether this mistake is to be made now.
    pub(crate) fn plant_now(&self, what: Plant) -> bool {
        self.plant.try_lock().is_ok_and(|mut p| p.take_if(|p| *p == what).is_some())
    }

    /// Ends it all.
    pub(crate) fn report(&self, found: Found) {
        lock(&self.found).get_or_insert(found);
        self.over.store(true, SeqCst);
    }

    /// Leaves something to be had again when others need it.
    pub(crate) fn cache(&self, held: Held) {
        self.cache.keep(held);
    }
}
