//! The naive model: where each frame is. It knows nothing of lists, buddies or CPUs.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::Machine;

/// Where a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// No memory, or not managed by the allocator.
    Nowhere,
    /// Managed by the allocator, without an owner.
    Idle,
    /// Owned by a caller.
    Owned,
    /// Out of use: faulty.
    Faulty,
}

/// A block that a caller owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) order: u8,
    pub(super) movable: bool,
}

/// All frames, and what callers were told about them.
#[derive(Clone, Debug)]
pub(super) struct Table {
    frames: Vec<Where>,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Frames said to be faulty, in use or not, memory or not.
    pub(super) poisoned: BTreeSet<u64>,
    /// Pageblocks that serve no request.
    pub(super) isolated: BTreeSet<u64>,
    /// Zones' spans, with the frames in them that are memory.
    pub(super) managed: Vec<u64>,
    spans: Vec<std::ops::Range<u64>>,
    /// A broken rule that a hook saw; a hook must not panic.
    pub(super) complaint: Option<String>,
}

impl Table {
    /// From the layout: the allocator manages frames that are usable, not reserved, and in a zone.
    pub(super) fn new(machine: &Machine) -> Self {
        let spans: Vec<_> = machine.zones.iter().map(|z| z.span.start.0..z.span.end.0).collect();
        let end = spans.iter().map(|s| s.end).max().unwrap_or(0);
        let mut frames = vec![Where::Nowhere; end as usize];
        for span in &spans {
            for r in &machine.usable {
                let inside = r.start.0.max(span.start)..r.end.0.min(span.end);
                inside.for_each(|p| frames[p as usize] = Where::Idle);
            }
        }
        for r in &machine.reserved {
            (r.start.0..r.end.0.min(end)).for_each(|p| frames[p as usize] = Where::Nowhere);
        }
        let mut t = Table {
            frames,
            blocks: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            isolated: BTreeSet::new(),
            managed: vec![0; spans.len()],
            spans,
            complaint: None,
        };
        t.recount();
        t
    }

    fn recount(&mut self) {
        for (n, span) in self.managed.iter_mut().zip(&self.spans) {
            let all = &self.frames[span.start as usize..span.end as usize];
            *n = all.iter().filter(|&&w| w != Where::Nowhere).count() as u64;
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.frames.len() as u64
    }

    pub(super) fn frame(&self, pfn: u64) -> Where {
        self.frames.get(pfn as usize).copied().unwrap_or(Where::Nowhere)
    }

    pub(super) fn frames(&self) -> &[Where] {
        &self.frames
    }

    /// Allocates a block: all of it must be idle and aligned.
    pub(super) fn take(&mut self, pfn: u64, order: u8, movable: bool) -> Result<(), String> {
        if !pfn.is_multiple_of(1 << order) {
            return Err(format!("{pfn:#x} is not aligned to order {order}"));
        }
        for p in pfn..pfn + (1 << order) {
            let found = self.frame(p);
            if found != Where::Idle {
                return Err(format!(
                    "{p:#x} of the block at {pfn:#x} is {found:?}, and handed out"
                ));
            }
            if self.isolated.contains(&(p >> 9)) {
                return Err(format!("{p:#x} is isolated, and handed out"));
            }
        }
        self.set(pfn..pfn + (1 << order), Where::Owned);
        self.blocks.insert(pfn, Block { order, movable });
        Ok(())
    }

    /// Frees a block: its frames are idle again, except the faulty ones.
    pub(super) fn give(&mut self, pfn: u64, order: u8) {
        self.blocks.remove(&pfn);
        for p in pfn..pfn + (1 << order) {
            let faulty = self.poisoned.contains(&p);
            self.frames[p as usize] = if faulty { Where::Faulty } else { Where::Idle };
        }
    }

    /// Moves a block to another place.
    pub(super) fn moved(&mut self, from: u64, to: u64, order: u8) -> Result<(), String> {
        self.give(from, order);
        self.take(to, order, true)
    }

    pub(super) fn set(&mut self, frames: std::ops::Range<u64>, w: Where) {
        self.frames[frames.start as usize..frames.end as usize].fill(w);
    }

    /// Onlines frames, all idle except known faulty ones, or offlines them.
    pub(super) fn plug(&mut self, frames: std::ops::Range<u64>, there: bool) {
        for p in frames {
            let faulty = self.poisoned.contains(&p);
            self.frames[p as usize] = match (there, faulty) {
                (false, _) => Where::Nowhere,
                (true, true) => Where::Faulty,
                (true, false) => Where::Idle,
            };
        }
        self.recount();
    }
}
