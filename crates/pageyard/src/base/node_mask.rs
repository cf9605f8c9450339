//! Sets of nodes, and where a request looks for its block (spec §2.5, §2.8).

use core::fmt;

use crate::base::units::NodeId;

/// How many nodes a machine may have.
pub const MAX_NODES: usize = 64;

/// A set of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeMask(pub u64);

impl NodeMask {
    /// Every node.
    pub const ALL: NodeMask = NodeMask(!0);
    /// No node.
    pub const NONE: NodeMask = NodeMask(0);

    /// One node alone; none for a number of [`MAX_NODES`] or more.
    pub const fn only(node: NodeId) -> NodeMask {
        if (node.0 as usize) < MAX_NODES { NodeMask(1 << node.0) } else { NodeMask::NONE }
    }

    /// Whether the node is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & NodeMask::only(node).0 != 0
    }

    /// With one node more.
    #[must_use]
    pub const fn with(self, node: NodeId) -> NodeMask {
        NodeMask(self.0 | NodeMask::only(node).0)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn and(self, other: NodeMask) -> NodeMask {
        NodeMask(self.0 & other.0)
    }

    /// Whether no node is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes of the set, ascending.
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

/// Where a request looks for its block: at `preferred` first, then at the other `allowed` nodes,
/// nearest first. `None`: the node of the CPU that asks.
///
/// Urgent requests that may not reclaim ([`Gfp::HIGH`](crate::Gfp::HIGH)), and those that may use
/// all reserves, leave the set before they fail (§2.10); [`Gfp::THISNODE`](crate::Gfp::THISNODE)
/// holds for them too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeChoice {
    /// The node to begin with.
    pub preferred: Option<NodeId>,
    /// The nodes that may serve.
    pub allowed: NodeMask,
}

impl NodeChoice {
    /// The CPU's own node first, all allowed.
    pub const LOCAL: NodeChoice = NodeChoice { preferred: None, allowed: NodeMask::ALL };

    /// Whether this node, the CPU's own, is where to look first.
    pub(crate) fn begins_at(&self, home: NodeId) -> bool {
        self.preferred.is_none_or(|n| n == home) && self.allowed.contains(home)
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
