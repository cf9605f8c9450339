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
    /// Frames before this one are taken care of by somebody; 0: there is no such part.
    pub(crate) next: AtomicU64,
    /// Sections that are not done.
    pub(crate) left: AtomicU64,
}

impl DeferredPart {
    /// Nothing is initialised later.
    pub(crate) const fn none() -> Self {
        DeferredPart { start: Pfn(0), next: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// All sections from here to the end of the zone, of which there are so many.
    pub(crate) fn new((start, sections): (Pfn, u64)) -> Self {
        DeferredPart { start, next: AtomicU64::new(start.0), left: AtomicU64::new(sections) }
    }

    /// Whether some of the zone was not initialised at once, done by now or not.
    pub(crate) fn is_deferred(&self) -> bool {
        self.next.load(Relaxed) != 0
    }

    /// Where that part begins.
    pub(crate) fn start(&self) -> Option<Pfn> {
        self.is_deferred().then_some(self.start)
    }

    /// Sections that are not done. What was done is seen by whoever reads it.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Acquire)
    }
}
