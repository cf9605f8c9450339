//! NUMA policies that spread requests over nodes: a thin layer above [`Yard::alloc_on`]. To bind
//! requests to nodes, pass their mask to `alloc_on`.

use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::node_mask::{MAX_NODES, NodeChoice, NodeMask};
use crate::base::sync::{AtomicU32, Ordering::Relaxed};
use crate::base::units::{NodeId, Order, Pfn};
use crate::embedder::config::Config;
use crate::embedder::hooks::Defences;
use crate::request::alloc::AllocError;

/// Round-robin choice among a set of nodes.
///
/// ```
/// use pageyard::{Interleave, NodeId, NodeMask};
///
/// let nodes = NodeMask::only(NodeId(0)).with(NodeId(2));
/// let turns = Interleave::new(nodes);
/// assert_ne!(turns.next(), turns.next());
/// ```
#[derive(Debug)]
pub struct Interleave {
    nodes: NodeMask,
    last: AtomicU32,
}

impl Interleave {
    /// Creates an interleaver over the nodes of the mask, starting with the lowest.
    pub const fn new(nodes: NodeMask) -> Self {
        Interleave { nodes, last: AtomicU32::new(MAX_NODES as u32 - 1) }
    }

    /// Returns the next node; `None` if the mask is empty.
    pub fn next(&self) -> Option<NodeId> {
        let after = |last: u32| {
            let turn = |i| (last + i) % MAX_NODES as u32;
            (1..=MAX_NODES as u32).map(turn).find(|&n| self.nodes.contains(NodeId(n as u16)))
        };
        let mut last = self.last.load(Relaxed);
        loop {
            let next = after(last)?;
            match self.last.compare_exchange_weak(last, next, Relaxed, Relaxed) {
                Ok(_) => return Some(NodeId(next as u16)),
                Err(now) => last = now,
            }
        }
    }
}

impl<C: Config> Yard<'_, C> {
    /// Allocates a block from the next node in turn, or else from the nearest node that can serve
    /// it.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    pub fn alloc_interleaved(
        &self,
        turns: &Interleave,
        order: Order,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        let turn = turns.next();
        if self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory);
        }
        let nodes = turn.map_or(NodeChoice::LOCAL, NodeChoice::from);
        let pfn = self.alloc_admitted(nodes, order, gfp)?;
        if let Some((zone, _)) = self.locate(pfn)
            && Some(zone.node) == turn
        {
            zone.note_numa(|z| &z.numa_interleave);
        }
        Ok(pfn)
    }

    /// Allocates a block from the nearest of these nodes that can serve it without direct reclaim.
    /// Otherwise allocates it from any node, with all means that the flags allow.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    pub fn alloc_preferring(
        &self,
        nodes: NodeMask,
        order: Order,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        if self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory);
        }
        let effort = Gfp::DIRECT_RECLAIM | Gfp::NOFAIL;
        match self.alloc_admitted(nodes.into(), order, gfp.difference(effort) | Gfp::NOWARN) {
            Err(AllocError::NoMemory) => self.alloc_admitted(NodeChoice::LOCAL, order, gfp),
            answer => answer,
        }
    }

    /// Like [`alloc_on`](Yard::alloc_on) without a question to [`Defences::fail`]. The common path is not
    /// inlined, so that its frame is gone when the rest runs, and a caller with several requests has
    /// it once.
    fn alloc_admitted(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        match self.ready_outlined(nodes, order, gfp) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_rest(nodes, order, gfp),
        }
    }

    #[inline(never)]
    fn ready_outlined(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Option<Pfn> {
        self.alloc_ready(nodes, order, gfp)
    }
}
