//! How much a yard may hand out. The hard limit takes the rest out of circulation, as a balloon
//! does: requests do not know of it, so it costs them nothing, and the reserves are within it.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::policy::Policy;
use pageyard::{Gfp, MAX_ORDER, NodeId, Order, PAGE_SIZE, Pfn};

use crate::held::{Class, Mutex};
use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// Limits of a yard, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// No more than so many are handed out or lie on per-CPU lists, the reserves included: ordinary
    /// requests fail at the MIN mark before, critical ones
    /// ([`HIGH`](pageyard::Gfp::HIGH), [`MEMALLOC`](pageyard::Gfp::MEMALLOC)) go on up to here.
    pub hard: Option<u64>,
    /// Above this, shrinkers are asked for what is over, and the level of pressure is
    /// [`Moderate`](crate::Level::Moderate) at least.
    pub soft: Option<u64>,
}

/// Limits that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The hard limit is more than there is, or too little to serve anybody.
    #[error("hard_limit: {given} pages; give {least} to {most}")]
    Hard {
        /// What was asked for.
        given: u64,
        /// The least there can be: the largest block for each node.
        least: u64,
        /// The most there can be: all of the yard.
        most: u64,
    },
    /// The soft limit is more than the hard one.
    #[error("soft_limit: {given} pages are more than the hard limit, {hard}")]
    Soft {
        /// What was asked for.
        given: u64,
        /// The hard limit, or the size of the yard.
        hard: u64,
    },
}

impl Limits {
    pub(crate) fn check(&self, pages: u64, nodes: u64) -> Result<(), LimitError> {
        let least = nodes << MAX_ORDER;
        match (self.hard, self.soft) {
            (Some(given), _) if !(least..=pages).contains(&given) => {
                Err(LimitError::Hard { given, least, most: pages })
            }
            (hard, Some(given)) if given > hard.unwrap_or(pages) => {
                Err(LimitError::Soft { given, hard: hard.unwrap_or(pages) })
            }
            _ => Ok(()),
        }
    }
}

/// The limits in force, and the blocks that the hard one keeps.
#[derive(Debug)]
pub(crate) struct Balloon {
    /// Read and set together: the soft one is never above the hard one.
    limits: Mutex<Limits>,
    blocks: Mutex<Vec<(Pfn, Order)>>,
    pages: AtomicU64,
}

impl Default for Balloon {
    fn default() -> Self {
        Balloon {
            limits: Mutex::new(Class::Limits, Limits::default()),
            blocks: Mutex::new(Class::Balloon, Vec::new()),
            pages: AtomicU64::new(0),
        }
    }
}

impl Balloon {
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    pub(crate) fn set(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    /// Pages it keeps.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Keeps as much as the hard limit wants, or as much of that as is free; the rest when this is
    /// called again. Whether that is all.
    ///
    /// The list grows outside the lock: the allocation may reclaim, and a shrinker may set limits.
    pub(crate) fn adjust<P: Policy>(&self, raw: &RawYard<P, HostLock>) -> bool {
        let zones = || raw.core().zone_ids().filter_map(|z| raw.core().zone_info(z));
        let nodes: Vec<NodeId> = zones().map(|z| z.node).collect();
        let mut room = Vec::new();
        loop {
            let mut blocks = self.blocks.lock();
            if room.capacity() > blocks.capacity() {
                room.append(&mut blocks);
                mem::swap(&mut room, &mut blocks);
            }
            // Not the region's: sections may be offline.
            let present: u64 = zones().map(|z| z.present).sum();
            let target = self.limits().hard.map_or(0, |hard| present.saturating_sub(hard));
            let mut kept = self.pages();
            let fits = keep(raw, &nodes, target, &mut blocks, &mut kept);
            self.pages.store(kept, Relaxed);
            let wanted = 2 * blocks.capacity().max(LEAST_ROOM);
            drop(blocks);
            if fits {
                return kept >= target;
            }
            room = Vec::with_capacity(wanted);
        }
    }
}

/// Room for blocks in the list's first allocation.
const LEAST_ROOM: usize = 32;

/// Takes or frees blocks until `kept` is the target, or nothing more is free. `false`: the list is
/// full.
fn keep<P: Policy>(
    raw: &RawYard<P, HostLock>,
    nodes: &[NodeId],
    target: u64,
    blocks: &mut Vec<(Pfn, Order)>,
    kept: &mut u64,
) -> bool {
    let is_full = |blocks: &Vec<_>| blocks.len() == blocks.capacity();
    while *kept > target {
        if is_full(blocks) {
            // A split adds one.
            return false;
        }
        let Some((pfn, order)) = blocks.pop() else { break };
        let pages = u64::from(order.pages());
        if *kept - pages < target && order != Order::ZERO {
            // Only part of it: the other half stays.
            let half = Order::new(order.get() - 1).unwrap_or_default();
            if raw.core().split(pfn, order, half).is_ok() {
                blocks.push((pfn, half));
                blocks.push((Pfn(pfn.0 + u64::from(half.pages())), half));
                continue;
            }
        }
        *kept -= pages;
        // It fails only where a page of it was taken out of use meanwhile.
        let _ = raw.free(pfn, order);
    }
    for order in (0..=MAX_ORDER).rev().filter_map(Order::new) {
        let pages = u64::from(order.pages());
        let mut more = true;
        while more && *kept + pages <= target {
            more = false;
            // From all nodes alike.
            for &node in nodes {
                if *kept + pages > target {
                    break;
                }
                if is_full(blocks) {
                    return false;
                }
                let Ok(pfn) = raw.alloc_on(node, order, QUIETLY) else { continue };
                more = true;
                *kept += pages;
                blocks.push((pfn, order));
                let _ = raw.core().hooks().discard(pfn, order, false);
            }
        }
    }
    true
}

/// All that is free of this node, its reserves too, without waking anybody: what is left after that
/// is what the hard limit leaves.
const QUIETLY: Gfp =
    Gfp::THISNODE.union(Gfp::NOWARN).union(Gfp::NORETRY).union(Gfp::MEMALLOC).union(Gfp::MOVABLE);

/// Bytes as pages, rounded down.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes / PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be() {
        let check = |hard, soft| Limits { hard, soft }.check(10_000, 2).map_err(|e| e.to_string());
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(Some(2048), Some(2048)), Ok(()));
        let text = |t: &str| Err(t.to_owned());
        assert_eq!(check(Some(2047), None), text("hard_limit: 2047 pages; give 2048 to 10000"));
        assert_eq!(check(Some(10_001), None), text("hard_limit: 10001 pages; give 2048 to 10000"));
        let more = "pages are more than the hard limit,";
        assert_eq!(check(Some(5000), Some(5001)), text(&format!("soft_limit: 5001 {more} 5000")));
        assert_eq!(check(None, Some(10_001)), text(&format!("soft_limit: 10001 {more} 10000")));
    }
}
