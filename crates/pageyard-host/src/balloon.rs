//! The hard limit takes pages above it out of circulation, like a balloon driver. Requests do not
//! check the limit, so it costs them nothing.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{Config, Gfp, MAX_ORDER, NodeId, Order, Pfn, Yard};

use crate::held::{Class, Mutex};
use crate::limits::Limits;

/// The limits in force, and the blocks that the hard limit keeps.
#[derive(Debug)]
pub(crate) struct Balloon {
    /// Read and set together: the soft limit is never above the hard limit.
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

    /// Returns the number of pages that it keeps.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// Keeps as many pages as the hard limit requires, as far as they are free, and the rest on
    /// later calls. Returns whether it keeps all of them.
    ///
    /// The list grows outside the lock: the allocation may reclaim, and a shrinker may set limits.
    ///
    /// `discard` returns a block's memory to the system.
    pub(crate) fn adjust<C: Config>(
        &self,
        core: &Yard<'_, C>,
        discard: impl Fn(Pfn, Order),
    ) -> bool {
        let zones = || core.zone_ids().filter_map(|z| core.zone_info(z));
        let nodes: Vec<NodeId> = zones().map(|z| z.node).collect();
        let mut room = Vec::new();
        loop {
            let mut blocks = self.blocks.lock();
            if room.capacity() > blocks.capacity() {
                room.append(&mut blocks);
                mem::swap(&mut room, &mut blocks);
            }
            // Not the size of the region: sections may be offline.
            let present: u64 = zones().map(|z| z.present).sum();
            let target = self.limits().hard.map_or(0, |hard| present.saturating_sub(hard));
            let mut kept = self.pages();
            let fits = keep(core, &discard, &nodes, target, &mut blocks, &mut kept);
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

/// Capacity of the list's first allocation is twice this number of blocks.
const LEAST_ROOM: usize = 32;

/// Allocates or frees blocks until `kept` is the target, or nothing more is free. Returns `false`
/// if the list is full.
fn keep<C: Config>(
    core: &Yard<'_, C>,
    discard: &impl Fn(Pfn, Order),
    nodes: &[NodeId],
    target: u64,
    blocks: &mut Vec<(Pfn, Order)>,
    kept: &mut u64,
) -> bool {
    let is_full = |blocks: &Vec<_>| blocks.len() == blocks.capacity();
    while *kept > target {
        if is_full(blocks) {
            // A split adds one block.
            return false;
        }
        let Some((pfn, order)) = blocks.pop() else { break };
        let pages = u64::from(order.pages());
        if *kept - pages < target && order != Order::ZERO {
            // Only part of it must go; the other half stays.
            let half = Order::new(order.get() - 1).unwrap_or_default();
            if core.split(pfn, order, half).is_ok() {
                blocks.push((pfn, half));
                blocks.push((Pfn(pfn.0 + u64::from(half.pages())), half));
                continue;
            }
        }
        *kept -= pages;
        // Fails only if a page of the block was taken out of use in the meantime.
        let _ = core.free(pfn, order);
    }
    for order in (0..=MAX_ORDER).rev().filter_map(Order::new) {
        let pages = u64::from(order.pages());
        let mut more = true;
        while more && *kept + pages <= target {
            more = false;
            // Take from all nodes in turn.
            for &node in nodes {
                if *kept + pages > target {
                    break;
                }
                if is_full(blocks) {
                    return false;
                }
                let Ok(pfn) = core.alloc_on(node, order, QUIETLY) else { continue };
                more = true;
                *kept += pages;
                blocks.push((pfn, order));
                discard(pfn, order);
            }
        }
    }
    true
}

/// Takes all free memory of this node, including its reserves, without waking the worker: the rest
/// is what the hard limit leaves.
const QUIETLY: Gfp =
    Gfp::THISNODE.union(Gfp::NOWARN).union(Gfp::NORETRY).union(Gfp::MEMALLOC).union(Gfp::MOVABLE);
