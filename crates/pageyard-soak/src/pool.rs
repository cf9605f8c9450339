//! Blocks that a relocator moves.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Mutex, TryLockError};

use pageyard::{Order, Pfn, Relocation};
use pageyard_host::{Moving, Relocator};

use crate::found::Report;
use crate::held::{Held, Item, Terms};
use crate::tracked::{TrackedYard, lock};

/// Blocks lent to a relocator, which may move them, by frame number.
#[derive(Default)]
pub(crate) struct Pool(Mutex<HashMap<Pfn, (Order, Terms)>>);

impl Pool {
    /// Lends a block; any other item is dropped.
    pub(crate) fn put(&self, held: Held) {
        let (tracked, terms) = (held.tracked, held.terms);
        let Some(block) = held.into_item().block() else { return };
        let (pfn, order) = block.into_raw();
        let mut all = lock(&self.0);
        all.insert(pfn, (order, terms));
        // SAFETY: no `Block` owns it. If this fails, it is not moved.
        let _ = unsafe { tracked.yard.core() }.set_movable(pfn, order, true);
    }

    /// Takes back a lent block.
    pub(crate) fn take(&self, tracked: &'static TrackedYard) -> Option<Held> {
        let mut all = lock(&self.0);
        let pfn = *all.keys().next()?;
        let (order, terms) = all.remove(&pfn)?;
        // SAFETY: `put` gave up its ownership, and the relocator moves only blocks in the table.
        let block = unsafe { tracked.yard.from_raw(pfn, order) }.expect("a block of this yard");
        Some(Held::entered(tracked, Item::Block(block), terms))
    }
}

/// Moves the blocks of a yard's pool.
pub(crate) struct Moves {
    pub(crate) to: &'static dyn Report,
    pub(crate) tracked: &'static TrackedYard,
    pub(crate) pool: &'static Pool,
}

// SAFETY: a block that it moves is in the pool, so nothing uses it, and is entered there under its
// new place afterwards. All other blocks are refused.
unsafe impl Relocator for Moves {
    fn relocate(&self, block: &Moving) -> Relocation {
        let (from, to, order) = (block.from(), block.to(), block.order());
        let mut all = match self.pool.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return Relocation::Busy,
        };
        let Some(&(_, Terms { owner, .. })) = all.get(&from).filter(|(known, _)| *known == order)
        else {
            return Relocation::Refused;
        };
        let frames = |pfn: Pfn| pfn.0..pfn.0 + u64::from(order.pages());
        self.to.report(self.tracked.owners.acquire(frames(to), owner));
        // SAFETY: the pool owns the block, and its table is locked.
        unsafe { block.copy() };
        self.to.report(self.tracked.owners.release(frames(from), owner));
        let lent = all.remove(&from);
        all.extend(lent.map(|lent| (to, lent)));
        Relocation::Moved
    }
}
