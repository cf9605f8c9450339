//! The zones that a request may use, in the order in which it tries them (spec §2.5).

use lock_api::RawMutex;

use crate::base::node_mask::NodeMask;
use crate::base::units::{NodeId, ZoneKind};
use crate::zone::node::Node;
use crate::zone::state::Zone;

/// Iterates over zones with memory: node by node, nearest first; within a node, from the highest
/// kind down.
pub(crate) struct Zonelist<'a, R: RawMutex> {
    nodes: &'a [Node<'a, R>],
    allowed: NodeMask,
    from: NodeId,
    highest: ZoneKind,
    /// How many nodes of the order of `from` were visited.
    looked: u8,
    /// The last of these nodes, if it is allowed. Stored, because the order may be rewritten
    /// meanwhile.
    current: Option<u8>,
    /// Index of its next zone. Numbers rather than iterators, because a zonelist is on the stack
    /// during most of a request.
    zone: u8,
}

impl<R: RawMutex> Clone for Zonelist<'_, R> {
    fn clone(&self) -> Self {
        Zonelist { ..*self }
    }
}

impl<'a, R: RawMutex> Zonelist<'a, R> {
    pub(crate) fn new(
        nodes: &'a [Node<'a, R>],
        from: NodeId,
        highest: ZoneKind,
        allowed: NodeMask,
    ) -> Self {
        Zonelist { nodes, allowed, from, highest, looked: 0, current: None, zone: 0 }
    }

    /// Restarts the iteration.
    pub(crate) fn rewind(&mut self) {
        (self.looked, self.current) = (0, None);
    }

    fn node(&self, id: u8) -> Option<&'a Node<'a, R>> {
        self.nodes.get(usize::from(id))
    }
}

impl<'a, R: RawMutex> Iterator for Zonelist<'a, R> {
    type Item = &'a Zone<'a, R>;

    #[inline(never)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(node) = self.current.and_then(|id| self.node(id)) {
                while let Some(zone) = node.zones_up_to(self.highest).get(usize::from(self.zone)) {
                    self.zone += 1;
                    if zone.is_populated() {
                        return Some(zone);
                    }
                }
            }
            let from = self.nodes.get(usize::from(self.from.0))?;
            let id = from.order().nth(usize::from(self.looked))?;
            self.looked += 1;
            self.current = self.allowed.contains(id).then_some(id.0 as u8);
            self.zone = 0;
        }
    }
}
