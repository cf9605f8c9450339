//! The free pages in pageblocks that are set apart: how many, and where the last ones were taken.

use crate::base::shared::{AtomicI64, AtomicU32};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType;

/// The free pages of the highatomic reserve and of CMA pageblocks, on a line of their own: each request
/// reads them while such pageblocks exist, and the sum over all pageblocks would take microseconds.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct FreeSetApart {
    highatomic: AtomicI64,
    cma: AtomicI64,
    /// The pageblocks from which the last blocks were taken.
    highatomic_at: AtomicU32,
    cma_at: AtomicU32,
}

impl FreeSetApart {
    pub(super) const fn new() -> Self {
        FreeSetApart {
            highatomic: AtomicI64::new(0),
            cma: AtomicI64::new(0),
            highatomic_at: AtomicU32::new(0),
            cma_at: AtomicU32::new(0),
        }
    }

    pub(super) fn of(&self, t: MigrateType) -> &AtomicI64 {
        if t == MigrateType::Cma { &self.cma } else { &self.highatomic }
    }

    /// The pageblock from which the last block was taken, and from which the next one is.
    pub(super) fn last(&self, t: MigrateType) -> &AtomicU32 {
        if t == MigrateType::Cma { &self.cma_at } else { &self.highatomic_at }
    }

    pub(super) fn add(&self, t: MigrateType, pages: i64) {
        self.of(t).fetch_add(pages, Relaxed);
    }
}
