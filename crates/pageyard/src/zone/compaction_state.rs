//! The state that a zone keeps between compaction runs (spec §7.4, §7.6, §7.8).

use crate::base::frame::NIL;
use crate::base::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::base::units::ZoneKind;
use crate::embedder::compact_events::Deferral;

/// One counter of [`CompactStats`](crate::CompactStats).
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Stall,
    Fail,
    Success,
    MigrateScanned,
    FreeScanned,
    Isolated,
    DaemonWake,
    DaemonMigrateScanned,
    DaemonFreeScanned,
    Moved,
    NotMoved,
}

/// The state that a zone keeps between compaction runs. Concurrent runs may share it: it holds
/// hints and counters, nothing that correctness depends on.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// The pageblock where the next descending scan starts; [`NIL`] for the zone's last. On the packed engine
    /// where the next run is sought.
    pub(crate) free_at: AtomicU32,
    /// Where the next ascending scan starts: for asynchronous runs, for others. On the packed engine
    /// the place of a search for sparse pageblocks.
    pub(crate) migrate_at: [AtomicU32; 2],
    /// Where the next impatient request looks for a run that it could make, on the packed engine. A patient
    /// one must not begin behind pageblocks that it alone would try.
    pub(crate) impatient_at: AtomicU32,
    pub(crate) deferral: SharedDeferral,
    /// A request's run covered the whole zone. The hints must be cleared when background reclaim
    /// sleeps.
    pub(crate) flush: AtomicBool,
    pub(crate) counts: [AtomicU64; 16],
}

impl Compaction {
    pub(crate) const fn new() -> Self {
        Compaction {
            free_at: AtomicU32::new(NIL),
            migrate_at: [const { AtomicU32::new(0) }; 2],
            impatient_at: AtomicU32::new(0),
            deferral: SharedDeferral::new(),
            flush: AtomicBool::new(false),
            counts: [const { AtomicU64::new(0) }; 16],
        }
    }

    pub(crate) fn count(&self, what: Count, n: u64) {
        self.counts[what as usize & 15].fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self, what: Count) -> u64 {
        self.counts[what as usize & 15].load(Relaxed)
    }
}

/// A zone's [`Deferral`], changed by any CPU.
#[derive(Debug)]
pub(crate) struct SharedDeferral(AtomicU32);

impl SharedDeferral {
    pub(super) const fn new() -> Self {
        SharedDeferral(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> Deferral {
        Deferral::from_bits(self.0.load(Relaxed))
    }

    /// Applies a change atomically. Returns the result of `change` and the new value.
    pub(crate) fn change<T>(&self, change: impl Fn(&mut Deferral) -> T) -> (T, Deferral) {
        let mut old = self.0.load(Relaxed);
        loop {
            let mut new = Deferral::from_bits(old);
            let said = change(&mut new);
            match self.0.compare_exchange_weak(old, new.to_bits(), Relaxed, Relaxed) {
                Ok(_) => return (said, new),
                Err(now) => old = now,
            }
        }
    }
}

/// The requests to a node's background compaction.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The requested order; 0 for none.
    pub(crate) order: AtomicU8,
    /// The highest zone that may serve it.
    pub(crate) highest: AtomicU8,
    /// When the score is next examined; `u64::MAX` until the clock is set.
    pub(crate) check_at: AtomicU64,
    /// The score must be acted on now.
    pub(crate) triggered: AtomicBool,
}

impl Daemon {
    pub(crate) const fn new() -> Self {
        Daemon {
            order: AtomicU8::new(0),
            highest: AtomicU8::new(ZoneKind::Device as u8),
            check_at: AtomicU64::new(u64::MAX),
            triggered: AtomicBool::new(false),
        }
    }
}
