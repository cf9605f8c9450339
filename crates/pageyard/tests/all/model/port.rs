//! The yard as the model calls it, and defective yards: each `Lie` is a defect that the model must
//! find.

use std::cell::Cell;
use std::ops::Range;

use pageyard::policy::Policy;
use pageyard::{
    AllocError, FreeError, Gfp, HotplugError, IsolateError, MigrateType, NodeChoice, Order, Pfn,
    PlaceError, PoisonError, Poisoned, ZoneId, ZoneInfo,
};

use super::world::Y;

/// A defect of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lie {
    /// No defect.
    None,
    /// Sometimes returns a block that is already allocated.
    Twice,
    /// Sometimes ignores a free.
    Loses,
    /// Returns blocks one page too high.
    Misaligned,
    /// Lets every request use all reserves.
    IgnoresMin,
    /// Leaks a page when a request fails.
    LeavesTrace,
    /// Ignores the node that a request insists on.
    IgnoresNode,
    /// Reports a free counter that is one too high.
    WrongCounter,
    /// Allocates the block beside the chosen place.
    WrongPlace,
    /// Reports an isolation that it has already ended.
    ForgetsIsolation,
    /// Reports success for onlining without doing it.
    NoMemoryComes,
    /// Leaves a poisoned frame in use.
    KeepsPoisoned,
    /// Does not record that a block can move.
    ForgetsMovable,
    /// Sometimes fails a request that could be served.
    FailsAnyway,
    /// Frees another block when it refuses a free.
    FreesAnother,
}

/// All defects, each with words from the model's report of it.
pub(super) const LIES: [(Lie, &str); 14] = [
    (Lie::Twice, " is Owned, and handed out"),
    (Lie::Loses, "the block in use at"),
    (Lie::Misaligned, "is not aligned to order"),
    (Lie::IgnoresMin, "all reserves"),
    (Lie::LeavesTrace, "the block in use at"),
    (Lie::IgnoresNode, " of node "),
    (Lie::WrongCounter, "the free counter"),
    (Lie::WrongPlace, "the block in use at"),
    (Lie::ForgetsIsolation, "right: Some(Isolate)"),
    (Lie::NoMemoryComes, "is of no zone"),
    (Lie::KeepsPoisoned, "the allocator's view, and the model's"),
    (Lie::ForgetsMovable, "the block in use at"),
    (Lie::FailsAnyway, "no page for "),
    (Lie::FreesAnother, "a call that was refused has changed something"),
];

/// A yard behind a defect.
pub(super) struct Port<'y, P: Policy> {
    pub(super) y: &'y Y<'y, P>,
    lie: Lie,
    calls: Cell<u32>,
    last: Cell<Option<(Pfn, Order)>>,
}

impl<'y, P: Policy> Port<'y, P> {
    pub(super) fn new(y: &'y Y<'y, P>, lie: Lie) -> Self {
        Port { y, lie, calls: Cell::new(0), last: Cell::new(None) }
    }

    /// Whether this call shows the defect: every `n`th call does.
    fn lies(&self, lie: Lie, n: u32) -> bool {
        if self.lie != lie {
            return false;
        }
        self.calls.set(self.calls.get() + 1);
        self.calls.get().is_multiple_of(n)
    }

    pub(super) fn alloc(
        &self,
        nodes: NodeChoice,
        order: Order,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        if self.lies(Lie::FailsAnyway, 9) {
            return Err(AllocError::NoMemory);
        }
        let asked = if self.lies(Lie::IgnoresMin, 1) { gfp | Gfp::MEMALLOC } else { gfp };
        let answer = if self.lies(Lie::IgnoresNode, 1) {
            self.y.alloc(order, asked.difference(Gfp::THISNODE))
        } else {
            self.y.alloc_on(nodes, order, asked)
        };
        let Ok(pfn) = answer else {
            if self.lies(Lie::LeavesTrace, 1) {
                let _ = self.y.alloc(Order::ZERO, gfp | Gfp::MEMALLOC);
            }
            return answer;
        };
        if let Some((last, of)) = self.last.replace(Some((pfn, order)))
            && of == order
            && self.lies(Lie::Twice, 4)
        {
            self.y.free(pfn, order).unwrap();
            return Ok(last);
        }
        Ok(if order > Order::ZERO && self.lies(Lie::Misaligned, 1) { Pfn(pfn.0 + 1) } else { pfn })
    }

    pub(super) fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.lies(Lie::Loses, 5) {
            return Ok(());
        }
        self.y.free(pfn, order)
    }

    /// Calls free where it must be refused.
    pub(super) fn free_wrongly(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if let Some((last, of)) = self.last.get()
            && self.lies(Lie::FreesAnother, 1)
        {
            let _ = self.y.free(last, of);
        }
        self.y.free(pfn, order)
    }

    pub(super) fn set_movable(
        &self,
        pfn: Pfn,
        order: Order,
        movable: bool,
    ) -> Result<(), FreeError> {
        if self.lies(Lie::ForgetsMovable, 1) {
            return Ok(());
        }
        self.y.set_movable(pfn, order, movable)
    }

    pub(super) fn alloc_at(&self, pfn: Pfn, order: Order, gfp: Gfp) -> Result<(), PlaceError> {
        let beside = Pfn(pfn.0 ^ u64::from(order.pages()));
        let wrong = self.lies(Lie::WrongPlace, 1);
        self.y.alloc_at(if wrong { beside } else { pfn }, order, gfp)
    }

    pub(super) fn isolate(&self, range: Range<Pfn>, t: MigrateType) -> Result<(), IsolateError> {
        self.y.isolate(range.clone(), t)?;
        if self.lies(Lie::ForgetsIsolation, 1) {
            self.y.unisolate(range, t)?;
        }
        Ok(())
    }

    pub(super) fn online(&self, range: Range<Pfn>) -> Result<(), HotplugError> {
        if self.lies(Lie::NoMemoryComes, 1) {
            return Ok(());
        }
        self.y.online(range)
    }

    pub(super) fn poison(&self, pfn: Pfn) -> Result<Poisoned, PoisonError> {
        if self.lies(Lie::KeepsPoisoned, 1) {
            return Ok(Poisoned::Removed);
        }
        self.y.poison_frame(pfn)
    }

    pub(super) fn info(&self, zone: ZoneId) -> ZoneInfo {
        let info = self.y.zone_info(zone).unwrap();
        let wrong = u64::from(self.lies(Lie::WrongCounter, 1));
        ZoneInfo { free_exact: info.free_exact + wrong, ..info }
    }
}
