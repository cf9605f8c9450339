//! A running phase: its yards, its threads, and what they found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crate::callbacks::Callbacks;
use crate::counts::Counts;
use crate::found::{Found, Report};
use crate::held::Held;
use crate::owner::Names;
use crate::phase::{Phase, Work};
use crate::tracked::{TrackedYard, lock};
use crate::{Plant, SoakError};

/// The role of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Worker(Work),
    /// Allocates most of a yard and frees it.
    Swing,
    /// Repeats one row of the operation table.
    Repeat(usize),
    /// Runs rows that neither allocate nor free.
    Others,
}

/// A thread of the phase and its progress.
pub(crate) struct Seat {
    pub(crate) role: Role,
    /// Number of operations begun, with the row of the last one in the lowest bits.
    pub(crate) progress: AtomicU64,
}

/// The state shared by the threads of a phase.
pub(crate) struct World {
    pub(crate) phase: Phase,
    pub(crate) seats: Vec<Seat>,
    /// Items that any thread may release.
    pub(crate) exchange: Mutex<Vec<Held>>,
    /// One per yard.
    callbacks: Vec<Callbacks>,
    pub(crate) yards: Vec<TrackedYard>,
    /// The names of the table's rows.
    pub(crate) names: Names,
    /// Number of threads so far. Each thread's number is part of its owners.
    pub(crate) threads: AtomicU64,
    /// Number of workers that are not done yet.
    pub(crate) working: AtomicUsize,
    over: AtomicBool,
    /// A mistake to plant, once.
    pub(crate) plant: Mutex<Option<Plant>>,
    planting: bool,
    pub(crate) found: Mutex<Option<Found>>,
    pub(crate) counts: Mutex<Counts>,
}

impl World {
    pub(crate) fn new(
        phase: Phase,
        plant: Option<Plant>,
        names: Names,
    ) -> Result<World, SoakError> {
        let yards =
            phase.yards.iter().enumerate().map(|(n, shape)| TrackedYard::new(n, *shape, names));
        let yards = yards.collect::<Result<Vec<_>, _>>()?;
        let workers = phase.workers.iter().map(|&work| Role::Worker(work));
        let swings = std::iter::repeat_n(Role::Swing, phase.swings);
        let others = phase.others.then_some(Role::Others);
        let row = |name| names.iter().position(|n| n == name).unwrap_or_default();
        let repeated = phase.busy.iter().map(|name| Role::Repeat(row(name)));
        let roles = workers.chain(swings).chain(others).chain(repeated);
        let seat = |role| Seat { role, progress: AtomicU64::new(0) };
        Ok(World {
            seats: roles.map(seat).collect(),
            working: AtomicUsize::new(phase.workers.len()),
            phase,
            exchange: Mutex::default(),
            callbacks: yards.iter().map(|_| Callbacks::default()).collect(),
            yards,
            names,
            threads: AtomicU64::new(0),
            over: AtomicBool::new(false),
            planting: plant.is_some(),
            plant: Mutex::new(plant),
            found: Mutex::new(None),
            counts: Mutex::default(),
        })
    }

    /// Registers a shrinker, a relocator and a listener with each yard.
    pub(crate) fn open(&'static self) {
        for tracked in &self.yards {
            self.callbacks(tracked).open(self, tracked);
            // A yard of shared memory is refused. The system then serves the heap's blocks.
            let _ = tracked.heap.install(&tracked.yard);
        }
    }

    /// Frees everything that is left, and fails unless every yard is empty afterwards.
    pub(crate) fn close(&'static self) -> Result<(), Found> {
        let left = std::mem::take(&mut *lock(&self.exchange));
        left.into_iter().try_for_each(Held::release)?;
        self.yards.iter().try_for_each(|tracked| self.callbacks(tracked).close(tracked))?;
        self.yards.iter().try_for_each(TrackedYard::prove_empty)
    }

    /// Returns the callbacks registered with a yard.
    pub(crate) fn callbacks(&self, tracked: &TrackedYard) -> &Callbacks {
        &self.callbacks[tracked.number]
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, SeqCst);
    }

    /// Returns whether workers must end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Returns whether all other threads must end too.
    pub(crate) fn is_done(&self) -> bool {
        self.is_over() || self.working.load(Relaxed) == 0
    }

    /// Returns whether to plant this mistake now.
    pub(crate) fn plant_now(&self, what: Plant) -> bool {
        self.planting && lock(&self.plant).take_if(|plant| *plant == what).is_some()
    }
}

impl Report for World {
    /// Ends the phase if something was found; the first finding counts.
    fn report(&self, done: Result<(), Found>) {
        if let Err(found) = done {
            lock(&self.found).get_or_insert(found);
            self.stop();
        }
    }
}
