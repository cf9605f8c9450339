//! A process as the allocator sees it: the allocations of a fork, page faults, and the burst of
//! frees at its exit. Shapes and flags are those measured in the recording `6.12-build`
//! ([`hygiene::build`](crate::hygiene::build)).

use pageyard::{NodeId, Order};

use super::actor::{Actor, Block};
use super::costs::{FAULT, UNMAP};
use crate::hygiene::build::{GATHER, PAGES_PER_TABLE, STACK, TABLES, flags, gfp, order};

/// What one process holds.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// The node that its memory comes from, if not the node it runs on.
    node: Option<NodeId>,
    /// Anonymous pages, in allocation order.
    pages: Vec<Block>,
    /// The root of its page tables, the tables, and the pages of its kernel stack.
    root: Option<Block>,
    tables: Vec<Block>,
    stack: Vec<Block>,
}

/// Allocates a block from this node, or from the node that the actor runs on.
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
    /// Forks a process: a root of two pages, as with isolated page tables (§8.5), a stack, and the
    /// first tables.
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

    /// Faults in one more page.
    pub(super) fn fault(&mut self, actor: &dyn Actor<'_>) {
        actor.think(FAULT);
        self.pages.extend(take(actor, self.node, Order::ZERO, flags::ANON));
        if self.pages.len().is_multiple_of(PAGES_PER_TABLE) {
            self.tables.extend(take(actor, self.node, Order::ZERO, flags::TABLE));
        }
    }

    /// Frees everything: pages one gathering at a time, then tables, root and stack.
    pub(super) fn exit(self, actor: &dyn Actor<'_>) {
        for chunk in self.pages.chunks(GATHER) {
            // A gathering is listed on a page of its own.
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
