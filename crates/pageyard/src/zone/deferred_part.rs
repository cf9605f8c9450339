//! The part of a zone that is initialised later (spec §8.2).

use crate::base::sync::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use crate::base::units::Pfn;

/// The part of a zone that is initialised later.
#[derive(Debug)]
pub(crate) struct DeferredPart {
    pub(crate) start: Pfn,
    /// Frames before this one are initialised or claimed by a worker. 0 if the zone has no deferred
    /// part.
    pub(crate) next: AtomicU64,
    /// Sections that are not initialised yet.
    pub(crate) left: AtomicU64,
}

impl DeferredPart {
    /// Returns the state of a zone without a deferred part.
    pub(crate) const fn none() -> Self {
        DeferredPart { start: Pfn(0), next: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// Returns a deferred part of `sections` sections from `start` to the end of the zone.
    pub(crate) fn new((start, sections): (Pfn, u64)) -> Self {
        DeferredPart { start, next: AtomicU64::new(start.0), left: AtomicU64::new(sections) }
    }

    /// Returns whether part of the zone was deferred at the start, initialised by now or not.
    pub(crate) fn is_deferred(&self) -> bool {
        self.next.load(Relaxed) != 0
    }

    /// Returns the first frame of the deferred part.
    pub(crate) fn start(&self) -> Option<Pfn> {
        self.is_deferred().then_some(self.start)
    }

    /// Returns the number of sections that are not initialised yet. A section that this count no
    /// longer includes is visible to the caller.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Acquire)
    }
}
