//! Sets of nodes, and where a request looks for its block (spec §2.5, §2.8).

use core::fmt;

use crate::base::units::NodeId;

/// The largest number of nodes.
pub const MAX_NODES: usize = 64;

/// A set of nodes.
///
/// ```
/// use pageyard::{NodeId, NodeMask};
///
/// let mask = NodeMask::only(NodeId(0)).with(NodeId(3));
/// assert!(mask.contains(NodeId(3)) && !mask.contains(NodeId(1)));
/// assert!(mask.iter().eq([NodeId(0), NodeId(3)]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeMask(pub u64);

impl NodeMask {
    /// Every node.
    pub const ALL: NodeMask = NodeMask(!0);
    /// No node.
    pub const NONE: NodeMask = NodeMask(0);

    /// Returns a set of one node, or no node for a number of [`MAX_NODES`] or more.
    pub const fn only(node: NodeId) -> NodeMask {
        if (node.0 as usize) < MAX_NODES { NodeMask(1 << node.0) } else { NodeMask::NONE }
    }

    /// Returns whether the node is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & NodeMask::only(node).0 != 0
    }

    /// Returns the set with one more node.
    #[must_use]
    pub const fn with(self, node: NodeId) -> NodeMask {
        NodeMask(self.0 | NodeMask::only(node).0)
    }

    /// Returns the nodes in both sets.
    #[must_use]
    pub const fn and(self, other: NodeMask) -> NodeMask {
        NodeMask(self.0 & other.0)
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the nodes of the set in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..MAX_NODES as u16).map(NodeId).filter(move |&n| self.contains(n))
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == NodeMask::ALL {
            return f.write_str("all nodes");
        }
        f.debug_set().entries(self.iter().map(|n| n.0)).finish()
    }
}

/// Where a request looks for its block: first at `preferred`, then at the other `allowed` nodes,
/// nearest first. With `preferred: None` it starts at the node of the requesting CPU.
///
/// Urgent requests that may not reclaim ([`Gfp::HIGH`](crate::Gfp::HIGH)), and requests that may
/// use all reserves, use nodes outside the set before they fail (§2.10).
/// [`Gfp::THISNODE`](crate::Gfp::THISNODE) still applies to them.
///
/// ```
/// use pageyard::{NodeChoice, NodeId, NodeMask};
///
/// let near = NodeChoice::from(NodeId(1));
/// assert_eq!((near.preferred, near.allowed), (Some(NodeId(1)), NodeMask::ALL));
/// let either = NodeChoice::from(NodeMask::only(NodeId(0)).with(NodeId(1)));
/// assert_eq!(either.preferred, None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeChoice {
    /// The node to start with.
    pub preferred: Option<NodeId>,
    /// The nodes that may serve the request.
    pub allowed: NodeMask,
}

impl NodeChoice {
    /// Starts at the CPU's own node and allows all nodes.
    pub const LOCAL: NodeChoice = NodeChoice { preferred: None, allowed: NodeMask::ALL };

    /// Returns whether the request starts at `local`, the node of the requesting CPU.
    pub(crate) fn begins_at(&self, local: NodeId) -> bool {
        self.preferred.is_none_or(|n| n == local) && self.allowed.contains(local)
    }
}

impl From<NodeId> for NodeChoice {
    fn from(node: NodeId) -> Self {
        NodeChoice { preferred: Some(node), allowed: NodeMask::ALL }
    }
}

impl From<NodeMask> for NodeChoice {
    fn from(allowed: NodeMask) -> Self {
        NodeChoice { preferred: None, allowed }
    }
}
