//! The hard limit takes pages above it out of circulation, like a balloon driver. Requests do not
//! check the limit, so it costs them nothing.

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{Config, Gfp, MAX_ORDER, NodeId, Order, Pfn, Relocation, Yard};

use crate::held::{Class, Mutex};
use crate::limits::Limits;

/// The limits in force, and the blocks that the hard limit keeps. They are movable: kept in pieces
/// while the yard is full, they would leave it in pieces.
#[derive(Debug)]
pub(crate) struct Balloon {
    /// Read and set together: the soft limit is never above the hard limit.
    limits: Mutex<Limits>,
    blocks: Mutex<Blocks>,
    pages: AtomicU64,
}

/// The blocks by first frame.
#[derive(Debug, Default)]
struct Blocks {
    /// The yard's first frame.
    first: u64,
    /// For each page one more than the order of the block that begins there, or 0. Empty until there
    /// is a hard limit. In memory that the system provides when it is written.
    orders: Vec<u8>,
}

impl Default for Balloon {
    fn default() -> Self {
        Balloon {
            limits: Mutex::new(Class::Limits, Limits::default()),
            blocks: Mutex::new(Class::Balloon, Blocks::default()),
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
    /// `frames` are the yard's. `discard` returns a block's memory to the system.
    pub(crate) fn adjust<C: Config>(
        &self,
        core: &Yard<'_, C>,
        frames: Range<Pfn>,
        discard: impl Fn(Pfn, Order),
    ) -> bool {
        if self.limits().hard.is_some() && self.blocks.lock().orders.is_empty() {
            // Allocated and freed outside the lock, which both may need.
            let mut new = Blocks::of(&frames);
            let mut blocks = self.blocks.lock();
            if blocks.orders.is_empty() {
                mem::swap(&mut *blocks, &mut new);
            }
            drop(blocks);
        }
        let mut blocks = self.blocks.lock();
        if blocks.orders.is_empty() {
            // No limit; or one that was set just now, and the call that follows is still to come.
            return self.limits().hard.is_none();
        }
        // Not the size of the region: sections may be offline.
        let zones = core.zone_ids().filter_map(|z| core.zone_info(z));
        let present: u64 = zones.map(|z| z.present).sum();
        // Read under the lock: what another call keeps for a limit that was changed meanwhile is
        // corrected by the one that follows the change.
        let target = self.limits().hard.map_or(0, |hard| present.saturating_sub(hard));
        blocks.release(core, &self.pages, target);
        blocks.keep(core, &discard, &self.pages, target);
        self.pages() >= target
    }

    /// Returns whether a frame lies in one of its blocks.
    pub(crate) fn keeps(&self, pfn: Pfn) -> bool {
        let blocks = self.blocks.lock();
        (0..=MAX_ORDER).any(|order| blocks.at(Pfn(pfn.0 >> order << order)) == Some(&(order + 1)))
    }

    /// Frees the blocks in a range of whole sections. Returns whether there were any. The worker may
    /// take some of the pages again before the caller has isolated them.
    pub(crate) fn leave<C: Config>(&self, core: &Yard<'_, C>, range: &Range<Pfn>) -> bool {
        let mut blocks = self.blocks.lock();
        let before = self.pages();
        blocks.release_in(core, range.clone(), &self.pages, 0);
        self.pages() < before
    }

    /// Moves a block, if it is one of these. `discard` returns its new memory to the system.
    pub(crate) fn relocate(
        &self,
        (from, to): (Pfn, Pfn),
        order: Order,
        discard: impl FnOnce(),
    ) -> Option<Relocation> {
        if self.pages() == 0 {
            return None;
        }
        // Another thread changes the limit's blocks. This may be one of them or not: compaction asks
        // again after Busy.
        let Some(mut blocks) = self.blocks.try_lock() else { return Some(Relocation::Busy) };
        let kept = Some(order.get() + 1);
        if blocks.at(from).copied() != kept {
            return None;
        }
        let (Some(order), Some(_)) = (kept, blocks.at(to)) else { return None };
        blocks.set(from, 0);
        blocks.set(to, order);
        // Under the lock: afterwards another thread may free the block.
        discard();
        Some(Relocation::Moved)
    }
}

impl Blocks {
    /// Returns none of these frames.
    fn of(frames: &Range<Pfn>) -> Blocks {
        let pages = frames.end.0.saturating_sub(frames.start.0);
        Blocks { first: frames.start.0, orders: vec![0; pages as usize] }
    }

    fn index(&self, pfn: Pfn) -> usize {
        usize::try_from(pfn.0.wrapping_sub(self.first)).unwrap_or(usize::MAX)
    }

    fn at(&self, pfn: Pfn) -> Option<&u8> {
        self.orders.get(self.index(pfn))
    }

    fn set(&mut self, pfn: Pfn, order: u8) {
        let index = self.index(pfn);
        if let Some(entry) = self.orders.get_mut(index) {
            *entry = order;
        }
    }

    /// Returns the first block of a range.
    fn next(&self, range: Range<Pfn>) -> Option<(Pfn, Order)> {
        let from = self.index(range.start);
        let orders = self.orders.get(from..self.index(range.end).min(self.orders.len()))?;
        let at = orders.iter().position(|&order| order != 0)?;
        Some((Pfn(range.start.0 + at as u64), Order::new(orders[at] - 1)?))
    }

    /// Frees blocks until no more than `target` of the `kept` pages are left.
    fn release<C: Config>(&mut self, core: &Yard<'_, C>, kept: &AtomicU64, target: u64) {
        let all = Pfn(self.first)..Pfn(self.first + self.orders.len() as u64);
        self.release_in(core, all.clone(), kept, target);
        while kept.load(Relaxed) > target {
            // Only part of a block must go: one half of it stays.
            let Some((pfn, order)) = self.next(all.clone()) else { break };
            let Some(half) = order.get().checked_sub(1).and_then(Order::new) else { break };
            if core.split(pfn, order, half).is_err() {
                break;
            }
            let other = Pfn(pfn.0 + u64::from(half.pages()));
            for pfn in [pfn, other] {
                let _ = core.set_movable(pfn, half, true);
                self.set(pfn, half.get() + 1);
            }
            self.release_in(core, pfn..Pfn(other.0 + 1), kept, target);
        }
    }

    /// Frees the blocks of a range that fit into what is to go.
    fn release_in<C: Config>(
        &mut self,
        core: &Yard<'_, C>,
        range: Range<Pfn>,
        kept: &AtomicU64,
        target: u64,
    ) {
        let mut from = range.start;
        while kept.load(Relaxed) > target
            && let Some((pfn, order)) = self.next(from..range.end)
        {
            let pages = u64::from(order.pages());
            from = Pfn(pfn.0 + pages);
            let left = kept.load(Relaxed).saturating_sub(pages);
            if left >= target {
                self.set(pfn, 0);
                // Fails only if a page of the block was taken out of use in the meantime.
                let _ = core.free(pfn, order);
                kept.store(left, Relaxed);
            }
        }
    }

    /// Allocates blocks until `kept` is the target, or nothing more is free. It counts each block at
    /// once: others see these pages as in use otherwise.
    fn keep<C: Config>(
        &mut self,
        core: &Yard<'_, C>,
        discard: &impl Fn(Pfn, Order),
        kept: &AtomicU64,
        target: u64,
    ) {
        for order in (0..=MAX_ORDER).rev().filter_map(Order::new) {
            let pages = u64::from(order.pages());
            let mut more = true;
            let fits = || kept.load(Relaxed) + pages <= target;
            while more && fits() {
                more = false;
                // Take from all nodes in turn.
                for node in (0..core.nodes()).map(|n| NodeId(n as u16)) {
                    if !fits() {
                        break;
                    }
                    let Ok(pfn) = core.alloc_on(node, order, QUIETLY) else { continue };
                    more = true;
                    // The lock is held: no other thread stores it.
                    kept.fetch_add(pages, Relaxed);
                    self.set(pfn, order.get() + 1);
                    let _ = core.set_movable(pfn, order, true);
                    discard(pfn, order);
                }
            }
        }
    }
}

/// Takes all free memory of this node, including its reserves, without waking the worker: the rest
/// is what the hard limit leaves.
const QUIETLY: Gfp =
    Gfp::THISNODE.union(Gfp::NOWARN).union(Gfp::NORETRY).union(Gfp::MEMALLOC).union(Gfp::MOVABLE);
