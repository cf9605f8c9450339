//! The zones that a request may use, in the order in which it tries them (spec §2.5).

use core::slice;

use lock_api::RawMutex;

use crate::node::{Node, NodeMask};
use crate::units::{NodeId, ZoneKind};
use crate::zone::Zone;

/// A walk over zones with memory: node by node, nearest first, within a node from the highest
/// kind down.
pub(crate) struct Zonelist<'a, R: RawMutex> {
    nodes: &'a [Node<'a, R>],
    from: Option<&'a Node<'a, R>>,
    /// Position in the order of `from`.
    next: usize,
    highest: ZoneKind,
    allowed: NodeMask,
    zones: slice::Iter<'a, Zone<'a, R>>,
}

impl<R: RawMutex> Clone for Zonelist<'_, R> {
    fn clone(&self) -> Self {
        Zonelist { zones: self.zones.clone(), ..*self }
    }
}

impl<'a, R: RawMutex> Zonelist<'a, R> {
    /// The zones up to `highest` of the allowed nodes, as requests that prefer node `from` see
    /// them.
    pub(crate) fn new(
        nodes: &'a [Node<'a, R>],
        from: NodeId,
        highest: ZoneKind,
        allowed: NodeMask,
    ) -> Self {
        let from = nodes.get(usize::from(from.0));
        Zonelist { nodes, from, next: 0, highest, allowed, zones: [].iter() }
    }
}

impl<'a, R: RawMutex> Iterator for Zonelist<'a, R> {
    type Item = &'a Zone<'a, R>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(zone) = self.zones.next() {
                if zone.is_populated() {
                    return Some(zone);
                }
                continue;
            }
            let id = self.from?.order().nth(self.next)?;
            self.next += 1;
            if self.allowed.contains(id)
                && let Some(node) = self.nodes.get(usize::from(id.0))
            {
                self.zones = node.zones_up_to(self.highest).iter();
            }
        }
    }
}
