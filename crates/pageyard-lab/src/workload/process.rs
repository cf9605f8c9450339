//! A process as the allocator sees it: what a fork takes, faults, and the burst of frees when it
//! exits. Shapes and flags are those measured in the recording `6.12-build`
//! ([`hygiene::build`](crate::hygiene::build)).

use pageyard::{NodeId, Order};

use super::actor::{Actor, Block};
use super::costs::{FAULT, UNMAP};
use crate::hygiene::build::{GATHER, PAGES_PER_TABLE, STACK, TABLES, flags, gfp, order};

/// What one process holds.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Where its memory is to come from, if not from where it runs.
    node: Option<NodeId>,
    /// Anonymous pages, in the order in which they came.
    pages: Vec<Block>,
    /// The root of its page tables, tables, and the pages of its kernel stack.
    root: Option<Block>,
    tables: Vec<Block>,
    stack: Vec<Block>,
}

/// A block from this node, or from where the actor runs.
pub(super) fn take(
    actor: &dyn Actor<'_>,
    node: Option<NodeId>,
    order: Order,
    bits: u32,
) -> Option<Block> {
    match node {
        Some(node) => actor.alloc_on(node, order, gfp(bits)),
        None => actor.alloc(order, gfp(bits)),
    }
}

impl Process {
    /// A root of two pages, as with isolated page tables (§8.5), a stack, and the first tables.
    pub(super) fn fork(actor: &dyn Actor<'_>, node: Option<NodeId>) -> Process {
        let page = |bits| take(actor, node, Order::ZERO, bits);
        Process {
            node,
            stack: (0..STACK).filter_map(|_| page(flags::SLAB)).collect(),
            root: take(actor, node, order(1), flags::PGD),
            tables: (0..TABLES).filter_map(|_| page(flags::TABLE)).collect(),
            pages: Vec::new(),
        }
    }

    /// Touches one page more for the first time.
    pub(super) fn fault(&mut self, actor: &dyn Actor<'_>) {
        actor.think(FAULT);
        self.pages.extend(take(actor, self.node, Order::ZERO, flags::ANON));
        if self.pages.len().is_multiple_of(PAGES_PER_TABLE) {
            self.tables.extend(take(actor, self.node, Order::ZERO, flags::TABLE));
        }
    }

    /// Gives everything back: pages a gathering at a time, then tables, root and stack.
    pub(super) fn exit(self, actor: &dyn Actor<'_>) {
        for chunk in self.pages.chunks(GATHER) {
            // A gathering is noted on a page of its own.
            let note = take(actor, self.node, Order::ZERO, flags::GATHER);
            actor.think(UNMAP * chunk.len() as u64);
            actor.free_list(chunk);
            if let Some(note) = note {
                actor.free(note);
            }
        }
        actor.free_list(&self.tables);
        if let Some(root) = self.root {
            actor.free(root);
        }
        self.stack.into_iter().for_each(|page| actor.free(page));
    }
}
