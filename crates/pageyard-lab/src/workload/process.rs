//! A process as the allocator sees it: the allocations of a fork, page faults, and the burst of
//! frees at its exit. Shapes and flags are those measured in the recording `6.12-build`
//! ([`hygiene::build`](crate::hygiene::build)).

use pageyard::{NodeId, Order};

use super::actor::{Actor, Block};
use super::costs::{FAULT, UNMAP};
use crate::hygiene::build::{GATHER, PAGES_PER_TABLE, STACK, TABLES, flags, gfp, order};

/// Where the memory of a process comes from, independently of where it runs. A node that is full is
/// no error: requests fall back to others, where `numactl --membind` would fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// The node that the process runs on.
    Local,
    /// One node, as with `numactl --membind`.
    Node(NodeId),
    /// All nodes in turn, request by request, as with `numactl --interleave`.
    Interleave {
        /// The next request's node.
        next: u16,
        /// Number of nodes.
        nodes: u16,
    },
}

impl Memory {
    /// Returns the node of the next request, if it is not the node that the process runs on.
    pub(super) fn node(self) -> Option<NodeId> {
        match self {
            Memory::Local => None,
            Memory::Node(node) => Some(node),
            Memory::Interleave { next, .. } => Some(NodeId(next)),
        }
    }

    /// Allocates a block.
    pub(super) fn take(&mut self, actor: &dyn Actor<'_>, order: Order, bits: u32) -> Option<Block> {
        let node = self.node();
        if let Memory::Interleave { next, nodes } = self {
            *next = (*next + 1) % *nodes;
        }
        match node {
            Some(node) => actor.alloc_on(node, order, gfp(bits)),
            None => actor.alloc(order, gfp(bits)),
        }
    }
}

/// What one process holds.
#[derive(Debug)]
pub(super) struct Process {
    memory: Memory,
    /// Anonymous pages, in allocation order.
    pages: Vec<Block>,
    /// The root of its page tables, the tables, and the pages of its kernel stack.
    root: Option<Block>,
    tables: Vec<Block>,
    stack: Vec<Block>,
}

impl Process {
    /// Forks a process: a root of two pages, as with isolated page tables, a stack, and the first
    /// tables.
    pub(super) fn fork(actor: &dyn Actor<'_>, mut memory: Memory) -> Process {
        let mut page = |order, bits| memory.take(actor, order, bits);
        let stack = (0..STACK).filter_map(|_| page(Order::ZERO, flags::SLAB)).collect();
        let root = page(order(1), flags::PGD);
        let tables = (0..TABLES).filter_map(|_| page(Order::ZERO, flags::TABLE)).collect();
        Process { memory, stack, root, tables, pages: Vec::new() }
    }

    /// Faults in one more page.
    pub(super) fn fault(&mut self, actor: &dyn Actor<'_>) {
        actor.think(FAULT);
        self.pages.extend(self.memory.take(actor, Order::ZERO, flags::ANON));
        if self.pages.len().is_multiple_of(PAGES_PER_TABLE) {
            self.tables.extend(self.memory.take(actor, Order::ZERO, flags::TABLE));
        }
    }

    /// Returns the node of the next request, if it is not the node that the process runs on.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.memory.node()
    }

    /// Frees everything: pages one gathering at a time, then tables, root and stack. `unmap`
    /// receives the number of pages of each gathering before they are freed.
    pub(super) fn exit(mut self, actor: &dyn Actor<'_>, mut unmap: impl FnMut(usize)) {
        for chunk in self.pages.chunks(GATHER) {
            // A gathering is listed on a page of its own.
            let note = self.memory.take(actor, Order::ZERO, flags::GATHER);
            actor.think(UNMAP * chunk.len() as u64);
            unmap(chunk.len());
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
